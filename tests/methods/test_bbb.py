"""Bayes by Backprop against what it must be: divergences in closed form, the mean-field optimum, three estimators."""

import math

import pytest
import torch
from torch import nn

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity.methods.bbb import BayesByBackprop
from scenarios import correlated_regression, directional_moments
from zoo import ZOO, Tied, tokens

NOISY = ("weights", "local", "flipout")


def inverse_softplus(value):
    return torch.log(torch.expm1(torch.as_tensor(value)))


def spread(posterior, std):
    with torch.no_grad():
        posterior.spreads.copy_(inverse_softplus(std).expand_as(posterior.spreads))
    return posterior


@pytest.mark.parametrize(
    ("estimator", "parametrisation"), [*((way, "softplus") for way in NOISY), ("local", "log_variance")]
)
def test_reaches_the_mean_field_optimum_of_a_correlated_posterior(estimator, parametrisation):
    problem = correlated_regression()
    options = {"prior_std": problem.prior_std, "estimator": estimator, "parametrisation": parametrisation}
    posterior = BayesByBackprop(problem.network(), samples=4, **options)
    likelihood = posterity.Gaussian(std=problem.noise)
    data = (problem.x, problem.y)
    posterity.fit(posterior, data, likelihood, epochs=300, batch_size=50, lr=2e-2, seed=1, device="cpu", progress=False)
    _, variances = directional_moments(posterior)
    ratio = variances / problem.factorised()
    assert bool(((ratio < 1.2) & (ratio > 1 / 1.2)).all()), ratio
    torch.testing.assert_close(posterior.stds**2, problem.mean_field, rtol=0.2, atol=0)
    distance = (posterior.means - problem.mean).abs() / problem.covariance.diagonal().sqrt()
    assert bool((distance < 0.5).all()), distance
    assert variances[0] < problem.exact()[0] / 5  # what no factorised posterior can give


def test_the_divergence_is_that_of_independent_gaussians_summed_over_weights():
    posterior = spread(BayesByBackprop(seeded(mlp), prior_std=0.3), 0.05)
    q = torch.distributions.Normal(posterior.means, posterior.stds)
    p = torch.distributions.Normal(0.0, 0.3)
    torch.testing.assert_close(posterior.divergence(), torch.distributions.kl_divergence(q, p).sum())
    count = sum(parameter.numel() for parameter in mlp().parameters())
    assert posterior.means.shape == posterior.spreads.shape == (count,)


def test_the_divergence_of_many_weights_at_the_prior_is_nothing():
    posterior = BayesByBackprop(nn.Linear(2_000, 1_000, bias=False), prior_std=0.37)
    with torch.no_grad():
        posterior.means.zero_()
    assert float(spread(posterior, 0.37).divergence()) == pytest.approx(0.0, abs=0.01)


def test_both_parametrisations_start_alike_and_by_the_log_variance_noise_grows_half_as_fast():
    ends = {}
    for kind in ("softplus", "log_variance"):
        posterior = BayesByBackprop(seeded(mlp), prior_std=0.7, init_std=1e-4, parametrisation=kind)
        torch.testing.assert_close(posterior.stds, torch.full_like(posterior.stds, 0.7e-4))
        optimizer = torch.optim.Adam([posterior.spreads], lr=0.01, eps=0.0)
        for _ in range(50):
            optimizer.zero_grad()
            posterior.divergence().backward()
            optimizer.step()
        ends[kind] = (posterior.stds / 0.7e-4).log().mean().item()
    assert ends["softplus"] == pytest.approx(0.5, rel=1e-3)
    assert ends["log_variance"] == pytest.approx(0.25, rel=1e-3)


def test_the_prior_may_differ_by_tensor_or_by_weight():
    by_tensor = [0.5, 1.0, 2.0, 4.0]
    sizes = [parameter.numel() for parameter in mlp().parameters()]
    by_weight = torch.cat([torch.full((size,), std) for size, std in zip(sizes, by_tensor, strict=True)])
    values = [BayesByBackprop(seeded(mlp), prior_std=std, init_std=0.1).divergence() for std in (by_tensor, by_weight)]
    torch.testing.assert_close(*values)
    posterior = BayesByBackprop(seeded(mlp), prior_std=by_tensor, init_std=0.1)
    torch.testing.assert_close(posterior.stds, 0.1 * by_weight)
    assert posterior.config()["prior_std"] == by_tensor
    for wrong in (0.0, -1.0, math.inf, math.nan, [1.0, 2.0]):
        with pytest.raises(posterity.Error, match="prior_std"):
            BayesByBackprop(mlp(), prior_std=wrong)


def test_the_default_prior_follows_the_width_and_the_given_values():
    network = nn.Sequential(nn.Linear(100, 9), nn.ConvTranspose1d(8, 4, 5, groups=2), nn.Embedding(50, 640))
    with torch.no_grad():
        network[2].weight.mul_(3)
    stds = BayesByBackprop(seeded(lambda: network)).prior_std
    expected = torch.tensor([4 / math.sqrt(100), 1.0, 4 / math.sqrt(8 / 2 * 5), 1.0])
    torch.testing.assert_close(stds[:4], expected)
    torch.testing.assert_close(stds[4], network[2].weight.detach().square().mean().sqrt())


def test_centred_starts_at_the_given_weights_and_its_prior_stays_there():
    network = seeded(mlp)
    plain, centred = BayesByBackprop(network, prior_std=0.2), BayesByBackprop(network, prior_std=0.2, centred=True)
    weights = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    for posterior in (plain, centred):
        torch.testing.assert_close(posterior.means.detach(), weights)
    torch.testing.assert_close(plain.divergence() - centred.divergence(), (weights**2).sum() / (2 * 0.2**2))
    other = BayesByBackprop(seeded(mlp, 5), **centred.config())
    other.load_state_dict(centred.state_dict())
    torch.testing.assert_close(other.divergence(), centred.divergence())


@pytest.mark.parametrize(("share", "std"), [(1.0, 0.3), (0.0, 0.03)])
def test_a_scale_mixture_of_one_part_is_the_gaussian_prior(share, std):
    make = {"prior_std": 0.3, "prior": "scale_mixture", "share": share, "narrow": 0.1}
    mixture = spread(BayesByBackprop(seeded(mlp), **make), 0.05)
    exact = spread(BayesByBackprop(seeded(mlp), prior_std=std), 0.05).divergence()
    g = generator()
    values = torch.stack([mixture.divergence(g).detach() for _ in range(400)])
    assert abs(values.mean() - exact) < 4 * values.std() / 20
    assert values.std() < 0.2 * exact
    mixture.divergence(g).backward()
    assert bool(mixture.means.grad.isfinite().all())
    assert bool(mixture.spreads.grad.isfinite().all())


def test_the_scale_mixture_agrees_with_quadrature():
    network = nn.Linear(1, 1, bias=False)
    nn.init.constant_(network.weight, 0.2)
    posterior = BayesByBackprop(network, prior_std=1.0, prior="scale_mixture", share=0.25, narrow=0.05)
    spread(posterior, 0.1)
    w = torch.linspace(-1, 1.4, 20001, dtype=torch.float64)
    q, broad, slim = (torch.distributions.Normal(m, s) for m, s in ((0.2, 0.1), (0.0, 1.0), (0.0, 0.05)))
    prior = torch.logaddexp(broad.log_prob(w) + math.log(0.25), slim.log_prob(w) + math.log(0.75))
    exact = torch.trapezoid(q.log_prob(w).exp() * (q.log_prob(w) - prior), w)
    g = generator()
    values = torch.stack([posterior.divergence(g).detach() for _ in range(4000)])
    assert abs(values.mean() - exact) < 4 * values.std() / math.sqrt(4000)


def test_weights_far_from_a_narrow_prior_do_not_spoil_the_divergence():
    network = nn.Linear(3, 3)
    nn.init.constant_(network.weight, 50.0)
    posterior = BayesByBackprop(network, prior_std=1.0, prior="scale_mixture", narrow=math.exp(-8))
    posterior.divergence().backward()
    assert bool(posterior.means.grad.isfinite().all())


def moments(posterior, x, calls):
    g = generator()
    with torch.no_grad():
        outputs = torch.cat([posterior(x, g) for _ in range(calls)])
    return outputs.mean(0), outputs.var(0)


def close(a, b, calls):
    """Means and variances of two samples of `calls` outputs, within 5 standard errors (kurtosis up to 6)."""
    error = ((a[1] + b[1]) / calls).sqrt()
    assert bool(((a[0] - b[0]).abs() < 5 * error).all())
    assert bool(((a[1] / b[1]).log().abs() < 5 * math.sqrt(2 * 5 / calls)).all())


@pytest.mark.parametrize("bias", [True, False])
def test_all_estimators_give_the_same_distribution_of_outputs(bias):
    """Compared with drawn functions, on a layer and on two with a kink between."""
    x = torch.randn(4, 5, generator=generator(1))
    for make in (
        lambda: nn.Linear(5, 2, bias=bias),
        lambda: nn.Sequential(nn.Linear(5, 6, bias=bias), nn.ReLU(), nn.Linear(6, 2, bias=bias)),
    ):
        functions = spread(BayesByBackprop(seeded(make)), 0.3).draw(1000, generator(3))(x)
        drawn = functions.mean(0), functions.var(0)
        for estimator in NOISY:
            close(moments(spread(BayesByBackprop(seeded(make), estimator=estimator), 0.3), x, 1000), drawn, 1000)


LAYERS = [
    (nn.Conv1d(2, 3, 3, padding=1), (2, 5)),
    (nn.Conv2d(4, 6, 3, groups=2, padding="same"), (4, 4, 4)),
    (nn.Conv2d(2, 3, (1, 3), padding=1, padding_mode="reflect"), (2, 3, 3)),
    (nn.Conv3d(1, 2, 2), (1, 3, 3, 3)),
    (nn.ConvTranspose1d(2, 4, 3, stride=2, output_padding=1, groups=2), (2, 4)),
    (nn.ConvTranspose2d(1, 2, 2, bias=False), (1, 2, 2)),
    (nn.Linear(3, 2), (4, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=str)
def test_each_layer_has_the_same_outputs_by_every_estimator(layer, shape):
    """Position by position; Flipout also where a row's positions meet again, local reparameterisation not."""
    x = 0.5 + torch.rand(2, *shape, generator=generator(1))
    pooled = nn.Sequential(layer, nn.Flatten())
    made = {name: spread(BayesByBackprop(pooled, estimator=name), 0.5) for name in NOISY}
    with torch.no_grad():
        outputs = {name: torch.cat([p(x, g) for g in [generator()] for _ in range(500)]) for name, p in made.items()}
    for name in ("local", "flipout"):
        close(*((out.mean(0), out.var(0)) for out in (outputs[name], outputs["weights"])), 500)
    sums = {name: out.sum(2) for name, out in outputs.items()}
    close(*((out.mean(0), out.var(0)) for out in (sums["flipout"], sums["weights"])), 500)
    assert bool((sums["local"].var(0) < 0.8 * sums["weights"].var(0)).all())
    reason = {way: posterior.describe()[0].reason for way, posterior in made.items()}
    assert "Flipout" in reason["flipout"]
    assert "local" in reason["local"]
    assert "one draw" in reason["weights"]


@pytest.mark.parametrize("make", [mlp, ConvNet])
def test_noise_of_rows_has_less_gradient_variance_than_one_draw_for_the_batch(make):
    shape = (5,) if make is mlp else (1, 6, 6)
    x, y = torch.randn(64, *shape, generator=generator(1)), torch.arange(64) % 3
    variance = {}
    for estimator in (*NOISY, "auto"):
        posterior = spread(BayesByBackprop(seeded(make), estimator=estimator), 0.2).eval()
        g, grads = generator(), []
        for _ in range(60):
            loss = posterior.loss(x, y, size=1000, generator=g)
            grads.append(torch.cat(torch.autograd.grad(loss, list(posterior.variational()))))
        variance[estimator] = float(torch.stack(grads).var(0).sum())
    for estimator in ("local", "flipout", "auto"):
        assert variance[estimator] < 0.5 * variance["weights"], variance


def test_several_samples_run_together_or_one_after_the_other():
    x = torch.randn(3, 5)
    together = spread(BayesByBackprop(seeded(mlp), samples=4), 0.5)
    assert together(x).shape == (4, 3, 3)
    x = torch.randn(3, 1, 6, 6)
    apart = spread(BayesByBackprop(seeded(ConvNet), samples=4), 0.5).train()
    outputs = apart(x)
    assert outputs.shape == (4, 3, 3)
    assert bool((outputs.var(0) > 0).all())
    assert int(apart.network.norm.num_batches_tracked) == 4


def test_training_updates_the_statistics_of_the_copy_and_the_probe_leaves_no_trace():
    template = seeded(ConvNet)
    before = {name: value.clone() for name, value in template.state_dict().items()}
    posterior, x = BayesByBackprop(template).train(), 3 + torch.randn(5, 1, 6, 6)
    posterior(x)
    assert int(posterior.network.norm.num_batches_tracked) == 1
    assert bool((posterior.network.norm.running_mean != 0).any())
    assert all(torch.equal(value, before[name]) for name, value in template.state_dict().items())
    assert all(noise.way is None and not noise.stds for noise in posterior.noises.layers.values())


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.layer(torch.relu(self.layer(x))))


class Elsewhere(Twice):
    def forward(self, x):
        return self.head(self.layer(x)) + self.head.weight.sum()


class SequenceFirst(Twice):
    def forward(self, x):
        return self.head(self.layer(x.transpose(0, 1)).mean(0))


class Keyword(Twice):
    def forward(self, x):
        return self.head(self.layer(input=x))


class Folded(Twice):
    def forward(self, x):
        return self.head(self.layer(x.flatten(0, 1)).unflatten(0, x.shape[:2]).mean(1))


@pytest.mark.parametrize(
    ("network", "shape", "name", "reason"),
    [
        (Twice(), (3,), "layer", "called more than once"),
        (Elsewhere(), (3,), "head", "used outside its layer"),
        (SequenceFirst(), (4, 3), "layer", "not on axis 0"),
        (Folded(), (4, 3), "layer", "not on axis 0"),
        (Keyword(), (3,), "layer", "called with keywords"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("estimator", ["auto", "flipout"])
def test_layers_whose_noise_would_be_wrong_are_drawn_once_for_the_batch(network, shape, name, reason, estimator):
    posterior, x = spread(BayesByBackprop(network, estimator=estimator), 0.3), torch.randn(4, *shape)
    posterior(x)
    reasons = {entry.name: entry.reason for entry in posterior.describe()}
    assert reason in reasons[f"{name}.weight"]
    other = "head" if name == "layer" else "layer"
    assert "one draw" not in reasons[f"{other}.weight"]
    functions = posterior.draw(1000, generator(3))(x)
    close(moments(posterior, x, 1000), (functions.mean(0), functions.var(0)), 1000)


@pytest.mark.parametrize("name", ZOO)
def test_every_parameter_of_any_network_is_uncertain_in_training_and_in_draws(name):
    """With the noise of one parameter alone, outputs differ: none is silently kept."""
    make, inputs = ZOO[name]
    network, x = seeded(make), inputs()
    posterior = BayesByBackprop(network).eval()
    posterior(x)
    assert posterior.describe().uncertain == [key for key, _ in network.named_parameters()]
    stds = torch.zeros_like(posterior.means)
    start = 0
    for key, parameter in network.named_parameters():
        one = stds.clone()
        one[start : start + parameter.numel()] = 0.5
        start += parameter.numel()
        spread(posterior, one.clamp(min=1e-8))
        with torch.no_grad():
            trained = torch.cat([posterior(x, generator(seed)) for seed in range(3)])
        for outputs in (trained, posterior.draw(3, generator())(x)):
            assert bool((outputs.std(0).flatten(1).amax(1) > 1e-4).all()), key
    assert start == posterior.means.numel()
    posterior.train()(x).sum().backward()
    assert bool(posterior.spreads.grad.isfinite().all())


def test_a_tied_parameter_is_drawn_once():
    network = seeded(Tied)
    posterior = spread(BayesByBackprop(network), 0.3)
    assert posterior.means.numel() == 40
    assert posterior.network.head.weight is posterior.network.embed.weight
    functions, x = posterior.draw(3, generator()), tokens()
    for weight, output in zip(functions.weight0, functions(x), strict=True):
        torch.testing.assert_close(output, weight[x].mean(1) @ weight.T)
    assert "tied" in posterior.describe()[0].reason


def test_the_mean_is_the_network_under_the_means():
    network, x = seeded(ConvNet).eval(), torch.randn(5, 1, 6, 6)
    torch.testing.assert_close(BayesByBackprop(network).mean()(x)[0], network(x))


def test_the_template_stays_and_draws_carry_no_hooks():
    network = seeded(mlp)
    posterior = BayesByBackprop(network)
    functions = posterior.draw(2)
    assert not any(module._forward_hooks for module in network.modules())
    assert not any(module._forward_hooks for module in functions.network.modules())
    assert not any(parameter.requires_grad for parameter in posterior.network.parameters())


def test_no_noise_and_no_nan_where_a_layer_gets_zeros():
    posterior = BayesByBackprop(seeded(lambda: nn.Linear(3, 2, bias=False)), estimator="local")
    out = posterior(torch.zeros(4, 3))
    out.sum().backward()
    assert bool((out.abs() < 1e-5).all())
    assert bool(posterior.spreads.grad.isfinite().all())


def test_wrong_options_are_named():
    for options, match in (
        ({"estimator": "lrt"}, "estimator"),
        ({"prior": "laplace"}, "prior"),
        ({"parametrisation": "exp"}, "parametrisation"),
        ({"share": 2.0}, "share"),
        ({"init_std": 0.0}, "init_std"),
    ):
        with pytest.raises(posterity.Error, match=match):
            BayesByBackprop(mlp(), **options)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_every_number_of_a_prior_must_be_positive(wrong):
    tensors = len(list(mlp().parameters()))
    with pytest.raises(posterity.Error, match="prior_std must be a positive number"):
        BayesByBackprop(mlp(), prior_std=[wrong, *[1.0] * (tensors - 1)])
