"""LIVI: its entropy against closed forms, its posterior against exact ones."""

import math

import banana
import pytest
import torch
from torch import Tensor, nn

import posterity
import scenarios
from common import ConvNet, generator, mlp, seeded
from posterity.methods.livi import LIVI


def small(noise_size: int, **options: object) -> LIVI:
    """A posterior of D = 10 weights in two layers, in double precision; d = noise_size²."""
    network = seeded(lambda: nn.Sequential(nn.Linear(2, 3, bias=False), nn.Tanh(), nn.Linear(3, 1, bias=True))).double()
    options = {"hidden": 5, "noise_std": 0.05, "init_std": 0.5, "seed": 3} | options
    return LIVI(network, noise_size=noise_size, **options)  # type: ignore[arg-type]


def map_of(posterior: LIVI) -> tuple[Tensor, Tensor]:
    """One ε, and the Jacobian `[D, d]` of the whole map from ε to the weights there, by automatic differentiation."""
    noise = posterior._noise(1, generator(4))[0]

    def mapped(flat: Tensor) -> Tensor:
        return posterior.scales * posterior._deviations(posterior._features(flat.view(1, *noise.shape))[0])[0]

    return noise, torch.func.jacrev(mapped)(noise.flatten()).detach()


def test_the_weights_are_what_the_equations_say():
    """θ = M + c ∘ (L_t Z R_tᵀ + σ η) for each tensor t, Z ← ELU(L Z R + B + 1) − 1 from Z = ε."""
    posterior = small(2)
    assert [tuple(left.shape) for left in posterior.lefts] == [(5, 2), (5, 5)]
    with torch.no_grad():
        for bias in posterior.biases:
            bias.add_(torch.randn(5, 5, generator=generator(1)))
        g = generator(2)
        z = torch.randn(3, 2, 2, generator=g, dtype=torch.float64)
        noise = torch.randn(3, 10, generator=g, dtype=torch.float64)
        for left, right, bias in zip(posterior.lefts, posterior.rights, posterior.biases, strict=True):
            z = nn.functional.elu(left @ z @ right + bias + 1) - 1
        lefts, rights = posterior.left.split([3, 1, 1]), posterior.right.split([2, 3, 1])
        made = torch.cat([(a @ z @ b.T).flatten(1) for a, b in zip(lefts, rights, strict=True)], 1)
        scales = torch.tensor([2**-0.5] * 6 + [3**-0.5] * 3 + [0.1]).double()
        expected = posterior.means + scales * (made + 0.05 * noise)
    torch.testing.assert_close(posterior.sample(3, generator(2)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("noise_size", [2, 4], ids=["d < D", "d > D"])
def test_the_entropy_of_a_linear_generator_is_that_of_its_gaussian(noise_size):
    posterior = small(noise_size, linear=True)
    _, jacobian = map_of(posterior)
    covariance = jacobian @ jacobian.T + torch.diag(0.05 * posterior.scales).square()
    exact = torch.distributions.MultivariateNormal(torch.zeros(len(jacobian)).double(), covariance).entropy()
    torch.testing.assert_close(posterior.entropy(3, generator(4)), exact.expand(3))
    drawn = posterior.sample(40_000, generator(1)).detach()
    error = math.sqrt(2 / 40_000) * covariance.diagonal().max()
    assert float((drawn.T.cov() - covariance).abs().max()) < 5 * error


@pytest.mark.parametrize("hidden", [5, 13], ids=["all tensors at once", "one by one"])
@pytest.mark.parametrize("noise_size", [2, 4], ids=["d < D", "d > D"])
def test_the_entropy_is_that_of_the_linearisation(noise_size, hidden):
    posterior = small(noise_size, hidden=hidden)
    _, jacobian = map_of(posterior)
    covariance = jacobian @ jacobian.T + torch.diag(0.05 * posterior.scales).square()
    exact = 0.5 * torch.logdet(2 * math.pi * math.e * covariance)
    torch.testing.assert_close(posterior.entropy(1, generator(4))[0], exact)


@pytest.mark.parametrize("noise_size", [2, 4], ids=["d < D", "d > D"])
def test_the_smallest_singular_value_bounds_the_entropy(noise_size):
    bound, exact = small(noise_size, entropy="smallest"), small(noise_size)
    _, jacobian = map_of(bound)
    singular = torch.linalg.svdvals(jacobian / bound.scales.unsqueeze(1))
    weights, rank = len(jacobian), len(singular)
    by_hand = 0.5 * rank * (singular.min() ** 2 + 0.05**2).log() + (weights - rank) * math.log(0.05)
    by_hand = by_hand + 0.5 * weights * math.log(2 * math.pi * math.e) + bound.scales.log().sum()
    torch.testing.assert_close(bound.entropy(1, generator(4))[0], by_hand)
    assert bool((bound.entropy(50, generator(5)) < exact.entropy(50, generator(5))).all())


def test_the_divergence_is_that_of_the_draws_that_the_loss_sees():
    posterior = small(2, samples=4, prior_std=0.7)
    x, y = torch.randn(6, 2, generator=generator()).double(), torch.zeros(6, 1).double()
    likelihood = posterity.Gaussian(std=1.0)
    losses = [posterior.loss(x, y, likelihood, size=30, beta=b, generator=generator(2)) for b in (0.0, 1.0)]
    divergence = posterior.divergence(generator(2))
    torch.testing.assert_close((losses[1] - losses[0]) * 30, divergence)
    torch.testing.assert_close(
        losses[0], -likelihood.log_prob(posterior(x, generator(2)), y).mean(), rtol=1e-6, atol=1e-6
    )


def test_the_divergence_is_the_mean_over_draws_that_come_in_pairs():
    posterior, g = small(2, samples=4, prior_std=0.7), generator(2)
    pairs = posterior._pairs(g)
    torch.testing.assert_close(pairs[2:], -pairs[:2])
    features, tangents = posterior._features(pairs, tangents=True)
    log_prior = torch.distributions.Normal(0.0, 0.7).log_prob(posterior._weights(features, g)).sum(1)
    assert posterior._entropy(tangents).shape == (4,)
    expected = -(log_prior + posterior._entropy(tangents)).mean()
    torch.testing.assert_close(posterior.divergence(generator(2)), expected)
    odd = small(2, samples=3)._pairs(generator())
    torch.testing.assert_close(odd[2], -odd[0])


def test_the_generator_starts_so_that_its_layers_keep_their_size():
    posterior, linear = LIVI(seeded(ConvNet), hidden=64, seed=0), LIVI(seeded(ConvNet), linear=True, seed=0)
    found = [
        float(p.detach().std())
        for p in (*posterior.lefts, *posterior.rights, posterior.left, posterior.right, linear.left)
    ]
    expected = [8**-0.5, 64**-0.5] * 2 + [(0.1 / 64) ** 0.5] * 2 + [0.1 / 8]
    assert found == pytest.approx(expected, rel=0.15)


def test_the_divergence_of_the_prior_itself_is_zero():
    posterior = small(4, linear=True, prior_std=0.3, noise_std=1e-4, samples=20_000)
    with torch.no_grad():
        posterior.means.zero_()
        posterior.left.copy_(0.3 * torch.eye(10, 16) / posterior.scales.unsqueeze(1))
    error = math.sqrt(10 / 2 / 10_000)
    assert abs(float(posterior.divergence(generator()).detach())) < 4 * error


def test_the_prior_follows_the_fan_in_unless_it_is_given():
    prior = LIVI(ConvNet(), seed=0).prior_stds
    by_name = LIVI(ConvNet()).weights.split(prior)
    torch.testing.assert_close(by_name["second.weight"], torch.full((4, 4, 3, 3), 2 / 6))
    torch.testing.assert_close(by_name["norm.weight"], torch.ones(4))
    assert bool((LIVI(ConvNet(), prior_std=0.2).prior_stds == 0.2).all())
    assert LIVI(mlp(), prior_std=[0.1] * 75).config()["prior_std"] == [0.1] * 75


def test_the_mean_starts_at_the_template_and_the_deviation_small():
    network = seeded(ConvNet)
    posterior = LIVI(network, seed=0)
    drawn = posterior.weights.split(posterior.sample(200, generator()).detach())
    for name, value in network.named_parameters():
        assert float((drawn[name].mean(0) - value.detach()).abs().max()) < 0.2
        assert float(drawn[name].std(0).mean()) < 0.1


@pytest.mark.parametrize("linear", [False, True])
def test_a_correlated_posterior_is_found(linear):
    scenario = scenarios.correlated_regression()
    size = 2 if linear else 4
    posterior = LIVI(scenario.network(), samples=4, prior_std=1.0, noise_size=size, linear=linear, seed=0)
    fit(posterior, scenario.x, scenario.y, scenario.noise, batch_size=50, epochs=250, lr=3e-3)
    mean, variance = scenarios.directional_moments(posterior)
    exact = scenario.exact()
    assert bool(((variance / exact).log().abs() < math.log(1.35)).all()), variance / exact
    assert bool(((mean - scenarios.DIRECTIONS @ scenario.mean).abs() < 0.5 * exact.sqrt()).all())


def test_a_linear_generator_reaches_the_evidence():
    scenario = scenarios.correlated_regression()
    posterior = LIVI(scenario.network(), prior_std=1.0, noise_size=2, linear=True, samples=16, noise_std=1e-4, seed=0)
    fit(posterior, scenario.x, scenario.y, scenario.noise, batch_size=100, epochs=500, lr=3e-3)
    bound, error = evidence_bound(posterior, scenario)
    assert error < 0.002
    assert scenario.log_evidence - 0.01 < bound < scenario.log_evidence + 3 * error


def evidence_bound(posterior: LIVI, scenario: scenarios.LinearRegression, draws: int = 400_000) -> tuple[float, float]:
    """E log p(D, θ) + H[q] for all data and its standard error, from draws."""
    x, y, n = scenario.x.double(), scenario.y.double(), len(scenario.x)
    with torch.no_grad():
        w = posterior.sample(draws, generator(8)).double()
        misfit = (y * y).sum() - 2 * (w @ (x.T @ y)).squeeze(1) + ((w @ (x.T @ x)) * w).sum(1)
        log_joint = -0.5 * misfit / scenario.noise**2 - n * math.log(scenario.noise * math.sqrt(2 * math.pi))
        log_joint = log_joint - 0.5 * w.square().sum(1) / scenario.prior_std**2 - 2 * math.log(scenario.prior_std)
        log_joint = log_joint - math.log(2 * math.pi)
        entropy = posterior.entropy(1).double()[0]
    return float(log_joint.mean() + entropy), float(log_joint.std()) / math.sqrt(draws)


class Scale(nn.Module):
    """A layer of one weight: x · (2 + w)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * (2 + self.weight)


def test_a_correlation_across_layers_is_found():
    noise, n = 1.0, 8
    posterior = LIVI(nn.Sequential(Scale(), Scale()), samples=8, prior_std=1.0, noise_size=4, seed=0)
    y = 4 + noise * torch.linspace(-1, 1, n).unsqueeze(1)
    fit(posterior, torch.ones(n, 1), y, noise, batch_size=n, epochs=800, lr=2e-3)
    grid = torch.linspace(-5, 5, 1001, dtype=torch.float64)
    u, v = grid.unsqueeze(1), grid
    log = -0.5 * (u**2 + v**2) - 0.5 * n * ((2 + u) * (2 + v) - 4) ** 2 / noise**2
    mass = (log - log.max()).exp()
    mass = mass / mass.sum()
    means = torch.stack([(mass * u).sum(), (mass * v).sum()])
    cross = (mass * (u - means[0]) * (v - means[1])).sum()
    stds = torch.stack([(mass * (u - means[0]) ** 2).sum(), (mass * (v - means[1]) ** 2).sum()]).sqrt()
    exact = float(cross / stds.prod())
    assert exact < -0.8
    drawn = posterior.sample(20_000, generator(1)).detach().double()
    assert abs(float(drawn.T.corrcoef()[0, 1]) - exact) < 0.1
    assert bool(((drawn.std(0) / stds).log().abs() < math.log(1.35)).all())
    assert bool(((drawn.mean(0) - means).abs() < 0.5 * stds).all())


def test_a_banana_is_found():
    exact = banana.exact()
    posterior = LIVI(banana.Parabola(), prior_std=1.0, noise_size=4, samples=4, seed=0)
    posterity.fit(
        posterior,
        (banana.X, banana.Y),
        banana.likelihood(),
        batch_size=20,
        epochs=900,
        lr=2e-3,
        seed=0,
        device="cpu",
        progress=False,
    )
    distance = banana.total_variation(banana.histogram(posterior), exact)
    assert distance < 0.5 * banana.total_variation(banana.mean_field(), exact)


def test_all_options_train_and_are_kept(tmp_path):
    x, y = torch.randn(32, 5, generator=generator()), torch.arange(32) % 3
    for options in ({"entropy": "smallest"}, {"learn_noise": True}, {"linear": True}, {"depth": 3, "samples": 3}):
        posterior = LIVI(seeded(mlp), seed=0, **options)
        before = float(posterior.log_noise.detach())
        posterity.fit(posterior, (x, y), epochs=3, seed=0, progress=False)
        assert (float(posterior.log_noise.detach()) != before) == bool(options.get("learn_noise"))
        assert LIVI(seeded(mlp), **posterior.config()).config() == posterior.config()


def test_mistakes_are_named():
    negative = {"prior_std": [*[1.0] * 74, -1.0]}
    wrong = {"entropy": "none"}, {"noise_std": 0.0}, {"init_std": -1}, {"prior_std": -1.0}, {"prior_std": [1.0, 2.0]}
    for options in (*wrong, negative):
        with pytest.raises(posterity.Error, match=next(iter(options))):
            LIVI(mlp(), **options)
    for name in ("noise_size", "hidden", "depth"):
        with pytest.raises(posterity.Error, match=name):
            LIVI(mlp(), **{name: 129})


def fit(posterior: LIVI, x: Tensor, y: Tensor, noise: float, **settings: float) -> None:
    data, likelihood = (x, y), posterity.Gaussian(std=noise)
    posterity.fit(posterior, data, likelihood, seed=0, device="cpu", progress=False, **settings)  # type: ignore[arg-type]
