"""Faults of papers' code and of peer libraries that any method of the table could have."""

import copy
import inspect
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import posterity
from common import ConvNet, generator, mlp, seeded

METHODS = posterity.methods()
WITH_PRIOR = [name for name, cls in METHODS.items() if "prior_std" in inspect.signature(cls).parameters]


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


def data(rows: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 5, generator=generator(1)), torch.arange(rows) % 3


@pytest.mark.parametrize("make", [mlp, ConvNet])
@pytest.mark.parametrize("name", WITH_PRIOR)
def test_the_prior_is_a_gaussian_of_that_standard_deviation_over_every_number(name, make):
    """As a function of s the divergence is D log s + A / (2 s²) + const, D all that is uncertain, for one A ≥ 0.

    A mean in place of a sum, a layer left out, numbers too many, or s taken for a variance would change D or the law.
    """
    priors, values, first = (0.5, 1.0, 2.0, 4.0), [], None
    for s in priors:
        posterior = METHODS[name](seeded(make).double(), prior_std=s, seed=0)
        first = posterior if first is None else first
        with torch.no_grad():
            for mine, theirs in zip(posterior.parameters(), first.parameters(), strict=True):
                mine.copy_(theirs)
            values.append(float(posterior.divergence(generator())))
    law = torch.tensor([[math.log(s), 0.5 / s**2, 1.0] for s in priors], dtype=torch.float64)
    found = torch.linalg.lstsq(law, torch.tensor(values, dtype=torch.float64)[:, None]).solution[:, 0]
    torch.testing.assert_close(law @ found, torch.tensor(values, dtype=torch.float64), rtol=1e-9, atol=1e-6)
    weights = sum(p.numel() for p in make().parameters())
    nodes = 5 + 8 if make is mlp else 1 + 4 + 16
    assert float(found[0]) == pytest.approx(nodes if name == "ibnn" else weights, abs=1e-5)
    assert float(found[1]) > 0


def test_every_training_draw_counts_in_the_likelihood(method):
    x, y = data()
    posterior = method(seeded(mlp), samples=3, seed=0)
    outputs = posterior(x, generator(2))
    each = torch.stack([F.cross_entropy(out, y) for out in outputs])
    assert len(each) == 3
    torch.testing.assert_close(
        posterior.loss(x, y, size=50, beta=0.0, generator=generator(2)), posterior.models * each.mean()
    )
    assert posterior.draws == 1 or float(each.detach().std()) > 0


def test_noise_at_the_start_keeps_the_size_of_activations(method):
    """Sixteen layers without normalisation: noise of variance 0.56 around 1 would make outputs 35 times as large."""
    network = seeded(
        lambda: nn.Sequential(
            *(layer for _ in range(15) for layer in (nn.Linear(64, 64, bias=False), nn.ReLU())),
            nn.Linear(64, 64, bias=False),
        )
    )
    usual = math.sqrt((1 / 3) ** 16 * (1 / 2) ** 15)  # torch's start: weights of variance 1 / (3 fan-in)
    x = torch.randn(16, 64, generator=generator()) / usual
    posterior = method(network, seed=0)
    for outputs in (posterior.draw(20, generator())(x), posterior(x, generator()).detach()):
        size = float(outputs.square().mean().sqrt())
        assert 1 / 3 < size < 3, size


def test_prediction_does_not_pay_for_the_divergence(method, monkeypatch):
    posterior = method(seeded(mlp), seed=0)

    def fail(*_):
        pytest.fail("a prediction computed the divergence")

    for name in ("divergence", "penalty", "terms", "loss"):
        monkeypatch.setattr(posterior, name, fail)
    assert posterity.predict(posterior, data()[0], 4).probs.shape == (7, 3)


def test_a_loop_of_ones_own_trains(method):
    """No trainer, no callback: `loss` and any optimiser."""
    x, y = data(64)
    y = (x[:, 0] > 0).long()
    posterior = method(seeded(mlp), seed=0).train()
    optimizer = torch.optim.Adam([p for p in posterior.parameters() if p.requires_grad], 1e-2)
    g, losses = generator(), []
    for _ in range(100):
        loss = posterior.loss(x, y, size=64, beta=0.0, generator=g)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])


def test_autocast_reaches_the_network(method):
    """Noise of rows is drawn in the type of the outputs, so that other types have other noise: here it is small."""
    small = {"init_std": 0.0015} if method in (posterity.BayesByBackprop, posterity.MNF) else {}
    posterior, (x, _) = method(seeded(mlp), seed=0, **small), data()
    full = posterior(x, generator()).detach(), posterior.draw(3, generator())(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = posterior(x, generator()).detach(), posterior.draw(3, generator())(x)
    for a, b in zip(full, half, strict=True):
        assert 1e-5 < float((a - b).abs().max()) < 0.05


def test_the_given_network_answers_as_before(method):
    x, y = data()
    network = seeded(mlp)
    before = network(x).detach()
    posterior = method(network, seed=0)
    posterior(x)
    posterior.draw(3)(x)
    for mode in (True, False):
        network.train(mode)
        torch.testing.assert_close(network(x).detach(), before, rtol=0, atol=0)
    posterior.loss(x, y, size=7).backward()
    torch.testing.assert_close(copy.deepcopy(network)(x).detach(), before, rtol=0, atol=0)


def test_two_posteriors_share_no_default(method):
    first, second = (method(seeded(mlp), seed=0) for _ in range(2))
    assert first.likelihood is not second.likelihood
    before = {name: value.clone() for name, value in second.state_dict().items()}
    places = {value.data_ptr() for value in second.state_dict().values()}
    assert not places & {value.data_ptr() for value in first.state_dict().values()}
    posterity.fit(first, data(32), posterity.Categorical(ignore=7), epochs=1, lr=0.1, seed=0, progress=False)
    assert second.likelihood.ignore == -100
    assert all(torch.equal(value, before[name]) for name, value in second.state_dict().items())


def test_no_method_collapses_out_of_the_box(method):
    """With its defaults it fits what MAP fits, and where a method has several functions they part where data end."""
    x = torch.linspace(-1, 1, 64)[:, None]
    y = torch.sin(3 * x) + 0.1 * torch.randn(64, 1, generator=generator())
    network = seeded(lambda: posterity.networks.MLP(1, 1, hidden=(32, 32)))
    posterior = method(network, seed=0)
    posterity.fit(posterior, (x, y), posterity.Gaussian(), epochs=80, seed=0, device="cpu", progress=False)
    inside = posterity.predict(posterior, x, generator=generator())
    outside = posterity.predict(posterior, 4 * x[x.abs() > 0.5][:, None], generator=generator())
    assert float((inside.mean - torch.sin(3 * x)).square().mean().sqrt()) < 0.35  # of 0.68
    if posterior.draws > 1:
        assert bool((inside.epistemic > 0).all())
        assert float(outside.epistemic.mean()) > 1.2 * float(inside.epistemic.mean())
    try:
        mean = posterior.mean()(x)[0]
    except posterity.Error:
        return
    assert float((mean - torch.sin(3 * x)).square().mean().sqrt()) < 0.35


STARTS = [
    (name, argument)
    for name, cls in METHODS.items()
    for argument in inspect.signature(cls).parameters
    if argument in ("init_std", "init_noise", "noise_std", "jitter", "spread")
]


@pytest.mark.parametrize("value", [1e-8, 10.0])
@pytest.mark.parametrize(("name", "argument"), STARTS)
def test_a_spread_of_any_size_starts_finite(name, argument, value):
    """log(exp(σ) − 1) is −∞ for a σ that rounds to 0."""
    posterior = METHODS[name](seeded(mlp), **{argument: value}, seed=0)
    assert all(bool(p.isfinite().all()) for p in posterior.parameters())
    loss = posterior.loss(*data(), size=100)
    loss.backward()
    assert bool(loss.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in posterior.parameters() if p.grad is not None)


class Several(nn.Module):
    """Two answers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.aux, self.logits = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return {"logits": self.logits(hidden), "aux": self.aux(hidden)}


#: Values of arguments of which another one cannot be told from the default.
OTHER = {
    "adversarial": 0.1,
    "assignment": "authors",
    "chunk": 20,
    "divergence": "bound",
    "entropy": "smallest",
    "estimator": "weights",
    "hidden": (8, 8),
    "kl": "monte_carlo",
    "noise_std": 0.02,
    "layers": "0",
    "layout": "single",
    "noise": "output",
    "output": "aux",
    "parametrisation": "log_variance",
    "prior": "scale_mixture",
    "prior_std": 0.5,
    "r": "paper",
    "samples": 3,
    "spread": 0.5,
}
#: Without which an argument means nothing.
TOGETHER = {
    ("bbb", "narrow"): {"prior": "scale_mixture"},
    ("bbb", "share"): {"prior": "scale_mixture"},
    ("bbh", "neighbours"): {"divergence": "nearest"},
    ("bbh", "slice_batch"): {"samples": 3},
    ("ibnn", "assignment"): {"samples": 2},
    ("ibnn", "per_layer"): {"kl": "mean_of_kls", "gamma": 0.0},
}
ARGUMENTS = [
    (name, argument)
    for name, cls in METHODS.items()
    for argument in inspect.signature(cls).parameters
    if argument not in ("network", "seed", "generator")
]


def other(default, argument):
    """Another value than the default."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    if isinstance(default, float):
        return 0.5 * default + 0.01
    assert argument in OTHER, f"give OTHER a value of {argument}"
    return OTHER[argument]


def behaviour(posterior) -> list[torch.Tensor]:
    """All that can be seen of a posterior from outside."""
    x, y = data()
    posterior.train()
    with torch.no_grad():
        seen = [posterior(x, generator(1)), posterior.divergence(generator(2)), posterior.draw(4, generator(3))(x)]
    loss = posterior.loss(x, y, size=30, generator=generator(4))
    loss.backward()
    slopes = [0.0 if p.grad is None else float(p.grad.abs().sum()) for p in posterior.parameters()]
    sizes = [float(p.numel() * p.requires_grad) for p in posterior.parameters()]
    return [*seen, loss.detach(), *map(torch.tensor, (slopes, sizes, [posterior.rate, posterior.draws]))]


@pytest.mark.filterwarnings("ignore:The nearest-neighbour estimate")
@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_every_argument_is_heeded_and_remembered(name, argument):
    """None is parsed and forgotten; `config` rebuilds the same posterior."""
    cls = METHODS[name]
    make = Several if argument == "output" else mlp
    value = other(inspect.signature(cls).parameters[argument].default, argument)
    together = TOGETHER.get((name, argument), {})
    plain = cls(seeded(make), seed=0, **together)
    changed = cls(seeded(make), seed=0, **together | {argument: value})
    before, now = behaviour(plain), behaviour(changed)
    differ = [a.shape != b.shape or not torch.allclose(a, b, rtol=1e-6) for a, b in zip(before, now, strict=True)]
    assert any(differ)
    again = behaviour(cls(seeded(make), seed=0, **changed.config()))
    for a, b in zip(now, again, strict=True):
        torch.testing.assert_close(a, b)
