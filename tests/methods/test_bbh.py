"""Bayes by Hypernet: the generators, the divergences, and posteriors that are known."""

import math
import warnings

import banana
import pytest
import torch
from torch import nn

import posterity
import scenarios
from common import ConvNet, generator, mlp, seeded
from posterity.generators import LAYOUTS
from posterity.methods.bbh import BayesByHypernet, _information, nearest_neighbour_kl

SHARED = [True, False]


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_log_volume_is_that_of_the_whole_jacobian(layout, shared):
    posterior = BayesByHypernet(seeded(mlp), layout, noise=3, shared=shared, hidden=(7, 6), chunk=11, seed=0).double()
    z = posterior._noise(1, generator())
    jacobian = torch.autograd.functional.jacobian(lambda z: posterior.generate(z)[0], z).flatten(1)
    with torch.no_grad():
        posterior.log_jitter.add_(0.3 * torch.randn(len(posterior.log_jitter), generator=generator()))
        std = posterior.scale * posterior.generator.per_weight(posterior.log_jitter.exp())
        white = jacobian / std.unsqueeze(1)
        expected = 0.5 * torch.logdet(torch.eye(white.shape[1]).double() + white.T @ white)
        found = posterior.generator.log_volume(z, posterior.log_jitter.exp())
    torch.testing.assert_close(found[0], expected)


def test_the_linearised_divergence_is_exact_for_a_linear_generator():
    posterior = BayesByHypernet(seeded(mlp), noise=4, prior_std=0.7, samples=400, seed=0).double()
    with torch.no_grad():
        for block in posterior.generator.blocks:
            block.outer.zero_()
        zero = torch.zeros(1, 1, 4).double()
        jacobian = torch.autograd.functional.jacobian(lambda z: posterior.generate(z)[0], zero).flatten(1)
        std = posterior.scale * posterior.generator.per_weight(posterior.log_jitter.exp())
        covariance = jacobian @ jacobian.T + torch.diag(std**2)
        q = torch.distributions.MultivariateNormal(posterior.generate(zero)[0], covariance)
        p = torch.distributions.MultivariateNormal(torch.zeros(len(std)).double(), 0.49 * torch.eye(len(std)).double())
        values = torch.stack([posterior.divergence(generator(i)) for i in range(20)])
    error = values.std() / math.sqrt(20)
    assert abs(values.mean() - torch.distributions.kl_divergence(q, p)) < 4 * error
    assert error < 0.01 * values.mean()


def test_the_bound_is_above_the_divergence_and_comes_nearer_with_more_neighbours():
    values = {}
    for name, k in (("linearised", 500), ("bound", 5), ("bound", 500)):
        posterior = BayesByHypernet(
            seeded(lambda: nn.Linear(2, 1)), noise=1, jitter=0.03, divergence=name, neighbours=k, prior_std=1.0, seed=0
        )
        with torch.no_grad():
            posterior.generator.blocks[0].outer.zero_()
            posterior.samples = 500 if name == "linearised" else 1
            values[name, k] = torch.stack([posterior.divergence(generator(i)) for i in range(100)]).mean()
    assert values["bound", 5] > values["bound", 500] + 0.01
    assert values["bound", 500] > values["linearised", 500] - 0.05
    assert values["bound", 500] < values["linearised", 500] + 0.05


@pytest.mark.parametrize("std", [1.0, 0.1, 2.0])
def test_the_nearest_neighbour_estimate_is_what_it_is_known_to_be(std):
    d, k = 2000, 5
    values = torch.stack(
        [
            nearest_neighbour_kl(std * torch.randn(k, d, generator=g), torch.randn(k, d, generator=g))
            for g in map(generator, range(40))
        ]
    )
    expected = d * 0.5 * math.log((1 + std**2) / (2 * std**2)) + math.log(k / (k - 1))
    # The nearest of five distances is less than a typical one, by about the distances' own relative spread 1/√(2d);
    # p's five and q's four differ in it by a tenth of that.
    assert abs(float(values.mean()) - expected) < 4 * float(values.std()) / math.sqrt(40) + 0.1 * math.sqrt(d / 2)


def test_the_nearest_neighbour_estimate_by_hand():
    draws, prior = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[0.5], [10.0], [11.0]])
    ratios = (math.log(0.5) + math.log(0.5) + math.log(2.5 / 2)) / 3
    torch.testing.assert_close(nearest_neighbour_kl(draws, prior), torch.tensor(ratios + math.log(3 / 2)))
    twice = torch.cat([draws, draws], 1)  # distances grow by √2 alike, the dimension counts twice
    found = nearest_neighbour_kl(twice, torch.cat([prior, prior], 1))
    torch.testing.assert_close(found, torch.tensor(2 * ratios + math.log(3 / 2)))


def test_the_gradient_of_the_nearest_neighbour_estimate():
    g = generator()
    draws, prior = (torch.randn(5, 7, generator=g, dtype=torch.float64) for _ in range(2))
    assert torch.autograd.gradcheck(lambda w: nearest_neighbour_kl(w, prior), draws.requires_grad_())
    twins = draws.detach()[[0, 0, 1]].requires_grad_()  # two draws in one place: no direction to move in
    (slope,) = torch.autograd.grad(nearest_neighbour_kl(twins, prior), twins)
    assert bool(slope.isfinite().all())


def test_what_the_noise_says_of_many_weights_keeps_its_digits():
    """Squares of a million numbers of jitter are common to all pairs; what differs are a few units."""
    g = generator()
    clean = 30 * torch.randn(1_000_000, generator=g) + 1e-3 * torch.randn(5, 1_000_000, generator=g)
    flat = clean + torch.randn(clean.shape, generator=g)
    pairs = -0.5 * (flat.double().unsqueeze(1) - clean.double()).square().sum(2)
    exact = (pairs.diagonal() - pairs.logsumexp(1)).mean() + math.log(5)
    assert 0.1 < float(exact) < math.log(5) - 0.1
    torch.testing.assert_close(_information(flat, clean).double(), exact, rtol=0, atol=1e-2)


@pytest.mark.parametrize("kind", ["linearised", "bound", "nearest"])
def test_each_divergence_by_hand(kind):
    posterior = BayesByHypernet(seeded(mlp), samples=3, divergence=kind, prior_std=0.3, spread=0.5, jitter=0.2, seed=0)
    g = generator()
    z, clean, flat = posterior._sample(3 if kind == "linearised" else 5, g)
    jitter = posterior.log_jitter.exp()
    q = torch.distributions.Normal(clean, posterior.scale * posterior.generator.per_weight(jitter))
    kl = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 0.3)).sum(1).mean()
    if kind == "linearised":
        expected = kl - posterior.generator.log_volume(z, jitter).mean()
    elif kind == "bound":
        pairs = torch.distributions.Normal(clean, q.stddev[:1]).log_prob(flat.unsqueeze(1)).sum(2)
        expected = kl - (pairs.diagonal() - pairs.logsumexp(1)).mean() - math.log(5)
    else:
        expected = nearest_neighbour_kl(flat / 0.3, torch.randn(flat.shape, generator=g))
    torch.testing.assert_close(posterior.divergence(generator()), expected.to(kl), rtol=1e-4, atol=1e-3)


def test_the_scales_and_the_prior_that_follows_them():
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.scalar = nn.Linear(4, 3).weight, nn.Parameter(torch.ones(()))
            self.vector, self.constant = nn.Parameter(torch.tensor([1.0, 3.0])), nn.Parameter(torch.ones(3))
            self.single = nn.Parameter(torch.ones(1))

    posterior = BayesByHypernet(Bare(), prior_std=None, seed=0)
    scale = {name: float(part.mean()) for name, part in posterior.weights.split(posterior.scale).items()}
    expected = {"weight": 0.5, "scalar": 1.0, "vector": math.sqrt(2), "constant": 0.1, "single": 0.1}
    assert scale == pytest.approx(expected)
    torch.testing.assert_close(posterior.prior_std, math.sqrt(2) * posterior.scale)
    assert posterior.config()["prior_std"] is None


def test_hidden_layers_are_as_wide_as_the_paper_says_or_as_chosen():
    widths = {layout: BayesByHypernet(seeded(mlp), layout, seed=0).config()["hidden"] for layout in LAYOUTS}
    assert widths == {layout: [64, 64] if layout == "chunked" else [64, 256, 512] for layout in LAYOUTS}


def test_a_small_positive_estimate_is_no_reason_to_warn():
    posterior = BayesByHypernet(seeded(mlp), divergence="nearest", seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = posterior._nearest(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[2.2], [10.0]]))
    assert 0 < float(value) < 1


def test_a_negative_estimate_is_warned_of_once():
    posterior = BayesByHypernet(
        seeded(mlp), divergence="nearest", centre=False, spread=3.0, prior_std=0.1, noise=32, seed=0
    )
    with pytest.warns(UserWarning, match="negative"):
        assert float(posterior.divergence(generator()).detach()) < 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior.divergence(generator())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_generated_weights_start_at_the_scale_of_their_fan_in(layout):
    network = seeded(lambda: nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 20)))
    alone = BayesByHypernet(network, layout, centre=False, seed=0)
    around = BayesByHypernet(network, layout, seed=0)
    for name, fan_in in (("0.weight", 40), ("2.weight", 30)):
        made = alone.weights.split(alone.sample(100, generator()))[name]
        assert 1 / 1.5 < float(made.std()) * math.sqrt(fan_in) < 1.5
        own = dict(network.named_parameters())[name]
        made = around.weights.split(around.sample(100, generator()))[name]
        assert 1 / 1.5 < float(made.std() / own.std()) < 1.5
        torch.testing.assert_close(made.mean(0), own, rtol=0, atol=0.2 * float(own.std()))


def test_the_papers_generators_have_the_papers_sizes():
    network = posterity.networks.LeNetCaffe()
    single = BayesByHypernet(network, "single", noise=1, chunk=3316, seed=0, centre=False)
    assert single.generator.blocks[0].rows == 130
    assert single.generator.blocks[0].width == 3316
    sliced = BayesByHypernet(network, "sliced", noise=1, seed=0, centre=False)
    assert [block.rows for block in sliced.generator.blocks] == [20, 1, 50, 1, 500, 1, 10, 1]
    size = sum(p.numel() for p in sliced.generator.parameters())
    assert size == pytest.approx(2.46e6, rel=0.02)


def test_shared_noise_moves_all_tensors_together():
    def correlation(shared: bool) -> float:
        posterior = BayesByHypernet(
            seeded(mlp), "tensor", noise=1, shared=shared, jitter=1e-4, hidden=(32,), centre=False, seed=0
        )
        parts = posterior.weights.split(posterior.sample(2000, generator()).detach())
        a, b = parts["0.weight"].flatten(1), parts["2.weight"].flatten(1)
        both = torch.corrcoef(torch.cat([a, b], 1).T)[: a.shape[1], a.shape[1] :]
        return float(both.abs().mean())

    assert correlation(True) > 0.5
    assert correlation(False) < 4 / math.sqrt(2000)


@pytest.mark.parametrize("hidden", [[5], [4, 6], [3, 4, 5]])
@pytest.mark.parametrize("noise", [0, 2])
@pytest.mark.parametrize("shared", SHARED)
def test_tensors_that_are_made_together_are_those_of_each_generator(hidden, noise, shared):
    posterior = BayesByHypernet(seeded(mlp), "tensor", noise=noise, shared=shared, hidden=hidden, seed=0).double()
    made, z = posterior.generator, torch.randn(3, posterior.generator.sites, noise, generator=generator()).double()
    parts = [z] * len(made.blocks) if shared else z.split(1, 1)
    alone = torch.cat([block(part) for block, part in zip(made.blocks, parts, strict=True)], 1)
    torch.testing.assert_close(made(z), alone)
    weigh = torch.randn(alone.shape, generator=generator()).double()
    found, known = (
        torch.autograd.grad((weigh * of).sum(), list(made.parameters()), allow_unused=True) for of in (made(z), alone)
    )
    torch.testing.assert_close(found, known)


def test_without_noise_it_is_a_point():
    problem = scenarios.correlated_regression()
    posterior = BayesByHypernet(problem.network(), noise=0, jitter=0.0, prior_std=1.0, seed=0)
    draws = posterior.sample(3, generator())
    torch.testing.assert_close(draws, draws[:1].expand(3, -1), rtol=1e-6, atol=1e-7)  # rows round by their place
    posterity.fit(
        posterior, (problem.x, problem.y), posterity.Gaussian(std=problem.noise),
        epochs=400, batch_size=200, lr=5e-2, beta=1.0, seed=0, device="cpu", progress=False,
    )  # fmt: skip
    std = problem.covariance.diagonal().sqrt()
    assert bool(((posterior.sample(1)[0] - problem.mean).abs() < 0.2 * std).all())


def test_the_divergence_of_a_point_is_its_surprise_under_the_prior():
    posterior = BayesByHypernet(seeded(mlp), noise=0, jitter=0.0, prior_std=0.7, seed=0)
    point = posterior.sample(1)[0].detach()
    expected = -torch.distributions.Normal(0.0, 0.7).log_prob(point).sum()
    torch.testing.assert_close(posterior.divergence().detach(), expected)


def test_the_known_posterior_of_a_linear_regression():
    problem = scenarios.correlated_regression()
    posterior = BayesByHypernet(problem.network(), samples=16, prior_std=problem.prior_std, seed=0)
    likelihood = posterity.Gaussian(std=problem.noise)
    data = (problem.x, problem.y)
    posterity.fit(
        posterior, data, likelihood, epochs=300, batch_size=100, lr=5e-3, seed=0, device="cpu", progress=False
    )
    mean, variance = scenarios.directional_moments(posterior)
    ratio = variance / problem.exact()
    assert bool(((ratio > 1 / 1.35) & (ratio < 1.35)).all()), ratio
    exact = scenarios.DIRECTIONS @ problem.mean
    assert bool(((mean - exact).abs() < 0.5 * problem.exact().sqrt()).all())


def test_a_banana_is_followed():
    posterior = BayesByHypernet(banana.Parabola(), samples=64, prior_std=1.0, seed=0)
    posterity.fit(
        posterior, (banana.X, banana.Y), banana.likelihood(),
        epochs=1000, batch_size=20, lr=1e-2, seed=0, device="cpu", progress=False,
    )  # fmt: skip
    exact = banana.exact()
    found = banana.total_variation(banana.histogram(posterior), exact)
    assert found < 0.5 * banana.total_variation(banana.mean_field(), exact), found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_trains_networks_with_skips_and_batch_statistics(layout):
    posterior = BayesByHypernet(seeded(ConvNet), layout, hidden=(16, 16), seed=0)
    x, y = torch.randn(32, 1, 6, 6, generator=generator()), torch.arange(32) % 3
    x[torch.arange(32), 0, 0, y] += 3
    history = posterity.fit(posterior, (x, y), epochs=25, lr=1e-2, beta=0.0, seed=0, progress=False)
    assert history[-1]["nll"] < history[0]["nll"] - 0.1


@pytest.mark.parametrize("owner", [[0, 0, 1, 1, 2, 2, 2], [0, 0, 0, 1, 1, 1, 1]], ids=["3", "2"])
def test_a_sliced_batch_is_shared_out_among_the_draws(owner):
    samples = max(owner) + 1
    posterior = BayesByHypernet(seeded(mlp), samples=samples, slice_batch=True, spread=1.0, seed=0)
    x, y = torch.randn(7, 5, generator=generator()), torch.arange(7) % 3
    outputs = posterior(x, generator(1))
    assert outputs.shape == (samples, 7, 3)
    expected = nn.functional.cross_entropy(outputs[owner, torch.arange(7)], y)
    torch.testing.assert_close(posterior.loss(x, y, size=10, beta=0.0, generator=generator(1)), expected)


def test_the_loss_and_the_divergence_see_the_same_draws():
    for divergence in ("linearised", "bound"):
        posterior = BayesByHypernet(seeded(mlp), samples=6, divergence=divergence, seed=0)
        x, y = torch.randn(7, 5, generator=generator()), torch.arange(7) % 3
        low, high = (posterior.loss(x, y, size=10, beta=b, generator=generator(1)) for b in (0.0, 1.0))
        torch.testing.assert_close(high - low, posterior.divergence(generator(1)) / 10)
        outputs = posterior(x, generator(1))
        torch.testing.assert_close(low, nn.functional.cross_entropy(outputs.flatten(0, 1), y.repeat(6)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"layout": "all"},
        {"divergence": "kl"},
        {"jitter": 0.0},
        {"jitter": 0.0, "noise": 1},
        {"jitter": -0.1, "noise": 0},
        {"noise": -1},
        {"neighbours": 1},
        {"layout": ["single"]},
        {"hidden": 64},
        {"hidden": []},
        {"spread": "wide"},
        {"spread": -1},
        {"centre": "no"},
        {"prior_std": 0.0},
        {"prior_std": [*[1.0] * 74, -1.0]},
        {"neighbours": 100_001},
    ],
)
def test_mistakes_are_said(wrong):
    with pytest.raises(posterity.Error):
        BayesByHypernet(seeded(mlp), **wrong)


def test_a_chunk_is_no_longer_than_all_weights_so_that_it_is_loaded_too(tmp_path):
    posterior = BayesByHypernet(seeded(mlp), chunk=1_000_000, seed=0)
    assert posterior.config()["chunk"] == posterior.weights.size
    posterity.save(posterior, tmp_path)
    x = torch.randn(4, 5, generator=generator())
    loaded = posterity.load(tmp_path, mlp())
    torch.testing.assert_close(loaded.draw(3, generator())(x), posterior.draw(3, generator())(x))


def test_as_many_draws_as_may_be_asked_for_are_loaded(tmp_path):
    posterity.save(BayesByHypernet(seeded(mlp), samples=100_000, neighbours=100_000, seed=0), tmp_path)
    loaded = posterity.load(tmp_path, mlp())
    assert (loaded.samples, loaded.neighbours) == (100_000, 100_000)


def test_a_slice_of_one_row_is_no_batch_for_batch_normalisation():
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    data = torch.randn(14, 4, generator=generator()), torch.arange(14) % 3
    with pytest.raises(posterity.Error, match=r"two rows .*With slice_batch each draw has a part"):
        posterity.fit(BayesByHypernet(network, samples=5, slice_batch=True, seed=0), data, batch_size=7, seed=0)


def test_two_neighbours_are_enough_and_the_nearest_need_no_jitter():
    posterior = BayesByHypernet(seeded(mlp), divergence="nearest", jitter=0.0, neighbours=2, seed=0)
    assert bool(posterior.divergence(generator()).isfinite())


@pytest.mark.parametrize("samples", [2, 6])
def test_a_network_that_cannot_be_vectorised_runs_under_one_draw_after_the_other(samples):
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x):
            y = self.layer(x)
            return y if float(y.detach().sum()) > 0 else 2 * y

    posterior = BayesByHypernet(seeded(Branching), samples=samples, spread=1.0, seed=0)
    outputs = posterior(torch.randn(7, 5, generator=generator()), generator())
    assert outputs.shape == (samples, 7, 3)
    assert len({float(out.detach().sum()) for out in outputs}) == samples
