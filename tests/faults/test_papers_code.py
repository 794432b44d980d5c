"""Faults found in the code of single papers, where the same slip could be made here."""

import inspect
import itertools
import math
import re
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity import mixtures, networks
from posterity.generators import LAYOUTS
from posterity.methods.bbh import nearest_neighbour_kl
from posterity.methods.ibnn import KLS, NOISES
from posterity.weights import Weights

ROOT = Path(__file__).parents[2]


def data(rows: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, 5, generator=generator())
    return x, (x[:, 0] > 0).long()


def fit(posterior: posterity.Posterior, pair=None, **arguments):
    return posterity.fit(
        posterior, pair or data(), **{"epochs": 2, "seed": 0, "device": "cpu", "progress": False} | arguments
    )


def test_the_divergence_is_divided_by_the_rows_that_train_whatever_a_loader_drops():
    sizes = set()

    class Spy(posterity.MAP):
        def loss(self, *args, **kwargs):
            sizes.add(kwargs["size"])
            return super().loss(*args, **kwargs)

    pairs = TensorDataset(*data())
    for source in (data(), pairs, DataLoader(pairs, 16), DataLoader(pairs, 16, drop_last=True)):
        fit(Spy(seeded(mlp)), source)
    assert sizes == {40}
    fit(Spy(seeded(mlp)), validation=0.25)
    assert sizes == {40, 30}


def test_validation_is_the_mean_over_rows_of_batches_of_any_size():
    x, y = data(1100)  # a batch of 1,024 and one of 76, whose answers are all wrong
    y[1024:] = 1 - y[1024:]
    posterior = posterity.MAP(seeded(mlp))
    history = fit(posterior, validation=(x, y), epochs=1)
    expected = nn.functional.cross_entropy(posterior.network(x), y)
    assert history[0]["validation"] == pytest.approx(float(expected.detach()), rel=1e-5)


def test_seconds_of_training_leave_out_what_callbacks_take():
    history = fit(posterity.MAP(seeded(mlp)), callbacks=[lambda *_: time.sleep(0.5)], epochs=2)
    assert 0 < history.seconds < 0.5


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_map_is_what_torchs_own_optimiser_makes_of_the_network(optimizer):
    """With its momentum, and with weight decay as the prior."""
    x, y = data()
    posterior, network = posterity.MAP(seeded(mlp)), seeded(mlp)
    decay = {"weight_decay": 0.1, "lr": 0.05}
    fit(posterior, (x, y), epochs=6, batch_size=40, optimizer=optimizer, schedule="constant", **decay)
    if optimizer == "adam":
        theirs = torch.optim.AdamW(network.parameters(), **decay)
    else:
        theirs = torch.optim.SGD(network.parameters(), momentum=0.9, nesterov=True, **decay)
    for _ in range(6):
        theirs.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        theirs.step()
    for mine, other in zip(posterior.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


CHANGES = {
    "epochs": 3,
    "batch_size": 8,
    "lr": 0.02,
    "lr_posterior": 0.5,
    "weight_decay": 1.0,
    "optimizer": "sgd",
    "schedule": "constant",
    "schedule_posterior": "piecewise",
    "beta": 0.5,
    "seed": 1,
    "size": 1000,
    "precision": "bf16",
    "augment": lambda x: x + 1,
    "clip": 1e-3,
    "validation": 0.5,
    "likelihood": posterity.Categorical(weight=[1.0, 3.0, 1.0]),
}
ELSEWHERE = {"device", "compile", "graph", "checkpoint", "checkpoint_every", "callbacks", "progress"}


def test_no_argument_of_fit_is_ignored():
    """Those in `ELSEWHERE` must not change the numbers, and have tests of their own."""
    assert set(inspect.signature(posterity.fit).parameters) == {"posterior", "data", *CHANGES, *ELSEWHERE}
    plain = posterity.IBNN(seeded(mlp), 3, seed=0)
    fit(plain, batch_size=16, lr=0.01)
    for name, value in CHANGES.items():
        posterior = posterity.IBNN(seeded(mlp), 3, seed=0)
        fit(posterior, **{"batch_size": 16, "lr": 0.01, name: value})
        assert not torch.equal(posterior.means, plain.means), name


@pytest.mark.parametrize("noise", NOISES)
def test_every_combination_of_the_options_of_ibnn_trains(noise):
    x, y = data(9)
    switches = itertools.product(KLS, (0.0, 1.5), (False, True), (False, True), ("paper", "authors"))
    for kl, gamma, per_layer, bias_noise, assignment in switches:
        posterior = posterity.IBNN(
            seeded(mlp), 3, samples=2, kl=kl, gamma=gamma, noise=noise, per_layer=per_layer, bias_noise=bias_noise,
            assignment=assignment, seed=0,
        )  # fmt: skip
        posterior.loss(x, y, size=40).backward()
        assert all(bool(p.grad.isfinite().all()) for p in posterior.parameters())


@pytest.mark.parametrize("small", [0, 1_000_000])
def test_the_pairs_of_components_are_met_once_a_step(small, monkeypatch):
    calls = []
    monkeypatch.setattr(mixtures, "_SMALL", small)
    for holder, name in ((mixtures, "bhattacharyya"), (mixtures._Bound, "apply")):
        original = getattr(holder, name)
        monkeypatch.setattr(holder, name, lambda *args, original=original: calls.append(1) or original(*args))
    posterity.IBNN(seeded(mlp), 3, gamma=2.0, kl="bound", seed=0).loss(*data(), size=40).backward()
    assert len(calls) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_generators_bend(layout):
    """An accidentally linear generator gives a Gaussian."""
    posterior = posterity.BayesByHypernet(seeded(mlp), layout, noise=3, seed=0)
    z = 2 * posterior._noise(2, generator())
    middle = posterior.generate(z.mean(0, keepdim=True)).detach()[0]
    made = posterior.generate(z).detach()
    assert float((made.mean(0) - middle).norm()) > 0.01 * float((made[0] - made[1]).norm())


def test_livis_generator_bends_unless_it_is_asked_not_to():
    for linear in (False, True):
        posterior = posterity.LIVI(seeded(mlp), linear=linear, seed=0)
        z = 2 * posterior._noise(2, generator())
        ends, middle = (posterior._deviations(posterior._features(v)[0]).detach() for v in (z, z.mean(0, keepdim=True)))
        bend = float((ends.mean(0) - middle[0]).norm()) / float((ends[0] - ends[1]).norm())
        assert bend < 1e-5 if linear else bend > 0.01


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_number_of_a_generated_tensor_is_its_own(layout, shared):
    """Also those of a bias, which is no one number for all filters."""
    posterior = posterity.BayesByHypernet(seeded(ConvNet), layout, shared=shared, centre=False, seed=0)
    made = posterior.generate(posterior._noise(6, generator())).detach()
    for name, part in posterior.weights.split(made).items():
        columns = part.flatten(1).T
        assert len(columns.unique(dim=0)) == len(columns), name


def test_every_number_of_the_flat_vector_belongs_to_one_parameter():
    weights = Weights(ConvNet())
    parts = weights.split(torch.arange(weights.size))
    assert list(parts) == [name for name, _ in ConvNet().named_parameters()]
    assert torch.cat([part.flatten() for part in parts.values()]).tolist() == list(range(weights.size))


def test_draws_that_coincide_leave_a_finite_divergence():
    draws = torch.randn(5, 100, generator=generator())
    draws[1] = draws[0]
    draws.requires_grad_()
    value = nearest_neighbour_kl(draws, torch.randn(5, 100, generator=generator(1)))
    value.backward()
    assert bool(value.isfinite())
    assert bool(draws.grad.isfinite().all())


@pytest.mark.parametrize("at", [-300.0, 300.0])
def test_gates_that_saturate_keep_the_flow_finite(at):
    posterior = posterity.MNF(seeded(mlp), seed=0)
    gates = [p for name, p in posterior.named_parameters() if name.endswith("outer_bias")]
    assert gates
    with torch.no_grad():
        for bias in gates:
            bias.fill_(at)
    loss = posterior.loss(*data(), size=40, generator=generator())
    loss.backward()
    assert bool(loss.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in posterior.parameters() if p.grad is not None)


@pytest.mark.parametrize("log_std", [-1000.0, -20.0, 20.0])
def test_a_network_that_gives_its_noise_stays_finite(log_std):
    outputs = torch.tensor([0.5, log_std]).expand(2, 3, 2).clone().requires_grad_()
    likelihood = posterity.Gaussian(heteroscedastic=True)
    log_prob = likelihood.log_prob(outputs, torch.zeros(3, 1))
    log_prob.sum().backward()
    assert bool(log_prob.isfinite().all())
    assert bool(outputs.grad.isfinite().all())
    prediction = posterity.prediction.GaussianPrediction.gather([outputs.detach()], likelihood)
    for values in (prediction.total, *prediction.interval(0.9), prediction.log_prob(torch.zeros(3, 1))):
        assert bool(values.isfinite().all())


SMALL = {
    "lenet": ({}, (1, 28, 28)),
    "lenet-caffe": ({}, (1, 28, 28)),
    "mlp": ({"inputs": 6, "outputs": 10}, (6,)),
    "preact-resnet": ({"depth": 8}, (3, 24, 24)),
    "resnet": ({"depth": 8}, (3, 32, 32)),
    "resnet50": ({"classes": 10}, (3, 64, 64)),
    "smallconv": ({"in_channels": 1, "classes": 10, "size": 8}, (1, 8, 8)),
    "vgg16": ({}, (3, 32, 32)),
    "wideresnet": ({"depth": 10, "width": 1}, (3, 32, 32)),
}


@pytest.mark.parametrize("name", networks.names())
def test_every_network_uses_all_its_parameters_and_ends_in_free_logits(name):
    arguments, shape = SMALL[name]
    network = seeded(lambda: networks.create(name, **arguments))
    logits = network(torch.randn(4, *shape, generator=generator()))
    assert float(logits.detach().min()) < 0 < float(logits.detach().max())
    logits.square().sum().backward()
    unused = [key for key, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    # A convolution before BatchNorm has a bias without effect, as the authors' WideResNet has.
    assert [key for key in unused if not key.endswith("conv1.bias")] == []


def test_a_cifar_resnet_halves_its_images_twice():
    network, sides = networks.ResNet(8), []
    for stage in (network.layer1, network.layer2, network.layer3):
        stage.register_forward_hook(lambda *args: sides.append(args[2].shape[-1]))
    network(torch.zeros(1, 3, 32, 32))
    assert sides == [32, 16, 8]


def test_the_defaults_in_the_documentation_are_those_of_the_code():
    text = (ROOT / "docs" / "methods" / "ibnn.md").read_text()
    defaults = {name: p.default for name, p in inspect.signature(posterity.IBNN).parameters.items()}
    assert re.search(r'\| `"(\w+)"` \(default\)', text)[1] == defaults["kl"]
    assert float(re.search(r"\*\*The default is (\d+)\*\*", text)[1]) == defaults["gamma"]
    words = inspect.getdoc(posterity.fit)
    assert f"({posterity.IBNN.relative_rate:g} for IBNN)" in words
    assert '("linear": f = 2/3' in words
    assert inspect.signature(posterity.fit).parameters["beta"].default is None
    assert 'By default "linear"' in words
    ramp = posterity.schedules.beta("linear")
    assert math.isclose(ramp(1 / 3), 0.5)
