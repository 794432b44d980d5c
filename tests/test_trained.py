"""Trained networks: weights that stay to the bit, barely move or are free, and docs/guides/trained.md."""

import copy
import functools

import pytest
import torch
from torch import nn

import posterity
from common import ConvNet, generator, seeded
from pages import blocks
from posterity.training import train_mode

X, Y = torch.randn(60, 1, 6, 6, generator=generator(1)), torch.arange(60) % 3


@pytest.fixture(scope="module")
def trained():
    network = seeded(ConvNet)
    posterity.fit(posterity.MAP(network), (X, Y), epochs=10, lr=1e-2, seed=0, device="cpu", progress=False)
    return network


def state(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def equal(network, before):
    return all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def distance(network, before):
    return float(sum((p.detach() - before[name]).square().sum() for name, p in network.named_parameters())) ** 0.5


def fit(posterior, **options):
    return posterity.fit(posterior, (X, Y), **{"epochs": 4, "seed": 0, "device": "cpu", "progress": False} | options)


def test_a_frozen_network_keeps_weights_and_statistics_to_the_bit(trained):
    network = copy.deepcopy(trained).requires_grad_(False)
    before = state(network)
    posterior = posterity.IBNN(network, seed=0)
    noise = posterior.means.clone()
    fit(posterior, validation=(X, Y))
    assert equal(network, before)
    assert not torch.equal(posterior.means, noise)
    assert torch.equal(network(X), trained(X))


def test_part_of_a_network_can_be_frozen(trained):
    network = copy.deepcopy(trained)
    network.norm.requires_grad_(False)
    network.first.requires_grad_(False)
    before = state(network)
    fit(posterity.IBNN(network, seed=0))
    now = network.state_dict()
    frozen = [name for name in before if name.startswith(("norm", "first"))]
    assert len(frozen) == 7
    assert all(torch.equal(now[name], before[name]) for name in frozen)
    assert not torch.equal(now["head.weight"], before["head.weight"])


def test_statistics_of_a_norm_that_is_trained_follow_the_data(trained):
    network = copy.deepcopy(trained)
    before = state(network)
    fit(posterity.IBNN(network, seed=0), lr=0.0, lr_posterior=1e-2)
    now = network.state_dict()
    assert all(torch.equal(p, before[name]) for name, p in network.named_parameters())
    assert not torch.equal(now["norm.running_mean"], before["norm.running_mean"])


@pytest.mark.parametrize("method", ["bbb", "mnf", "bbh", "livi", "ensemble"])
def test_what_is_frozen_stays_although_layers_match_it(method):
    network = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
    network[0].requires_grad_(False)
    posterior = posterity.methods()[method](network, layers=nn.Linear)
    assert set(posterior.describe().uncertain) == {"2.weight", "2.bias"}
    network[2].requires_grad_(False)
    if method != "ensemble":  # whose members could not differ
        assert set(posterity.methods()[method](network, layers="2").describe().uncertain) == {"2.weight", "2.bias"}


def test_a_norm_without_parameters_is_frozen_with_the_whole_network():
    network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False))
    assert train_mode(posterity.IBNN(network, 2)).network[1].training
    network.requires_grad_(False)
    assert not train_mode(posterity.IBNN(network, 2)).network[1].training
    assert network[0].training


@pytest.mark.parametrize("name", ["bbb", "mnf", "ensemble"])
def test_statistics_follow_where_the_weights_are_drawn_anew(name):
    posterior = posterity.methods()[name](seeded(ConvNet), seed=0)
    assert train_mode(posterior).network.norm.training


def test_barely_moving_weights_move_less_than_free_ones(trained):
    moved = []
    for lr in (1e-4, 1e-3):
        network = copy.deepcopy(trained)
        posterior = posterity.IBNN(network, seed=0)
        noise = posterior.means.detach().clone()
        fit(posterior, lr=lr, lr_posterior=1e-2)
        moved.append(distance(network, trained.state_dict()))
        assert float((posterior.means - noise).detach().abs().mean()) > 0.01
    barely, free = moved
    assert 0 < barely < free / 3


def test_dropout_on_a_trained_network_needs_no_training(trained):
    network = copy.deepcopy(trained).requires_grad_(False)
    posterior = posterity.MCDropout(network)
    assert float(posterity.predict(posterior, X, 8, generator()).epistemic.mean()) > 0
    assert torch.equal(posterior.mean()(X)[0], trained(X))
    with pytest.raises(posterity.Error, match="nothing to train"):
        fit(posterior)
    network.requires_grad_(True)
    fit(posterior, lr=1e-4)
    assert 0 < distance(network, trained.state_dict()) < 0.2


def test_bayes_by_backprop_starts_from_the_trained_weights_and_leaves_them(trained):
    before = state(trained)
    posterior = posterity.BayesByBackprop(trained, seed=0)
    torch.testing.assert_close(posterior.mean()(X)[0], trained(X))
    fit(posterior)
    assert equal(trained, before)
    assert not torch.allclose(posterior.mean()(X)[0], trained(X))


def test_bayes_by_backprop_with_frozen_means_trains_its_spreads_alone(trained):
    posterior = posterity.BayesByBackprop(trained, centred=True, prior_std=0.05, seed=0)
    posterior.means.requires_grad_(False)
    means, spreads = posterior.means.clone(), posterior.spreads.clone()
    fit(posterior, lr_posterior=1e-2)
    assert torch.equal(posterior.means, means)
    assert not torch.equal(posterior.spreads, spreads)
    assert torch.equal(posterior.network.norm.running_mean, trained.norm.running_mean)
    torch.testing.assert_close(posterior.mean()(X)[0], trained(X))


def test_the_page_says_what_happens(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(posterity, "fit", functools.partial(posterity.fit, device="cpu"))
    names = {}
    with torch.random.fork_rng():
        for block in blocks("docs/guides/trained.md"):
            exec(block, names)
    trained, x = names["trained"], names["x_test"]
    assert equal(names["frozen"].network, trained.state_dict())
    assert torch.equal(names["frozen"].network(x), trained(x))
    assert sum(path.stat().st_size for path in (tmp_path / "noise").iterdir()) < 10_000
    assert 0 < distance(names["moving"].network, trained.state_dict()) < 0.5
    assert not equal(names["two_phases"].network, trained.state_dict())
    *printed, running, own = capsys.readouterr().out.splitlines()
    assert float(own.split()[-1]) < float(running.split()[-1]) - 0.2  # NLL with statistics of each function's own
    rows = {row[:14].strip(): [float(word) for word in row[14:].split()] for row in printed}
    assert set(rows) == {"alone", "frozen", "barely moving"}
    for accuracy, nll, known, unknown in (rows["frozen"], rows["barely moving"]):
        assert accuracy > rows["alone"][0] - 0.01
        assert nll < rows["alone"][1] + 0.02
        assert unknown > 2.5 * known > 0
    torch.testing.assert_close(names["gaussian"].mean()(x)[0], trained(x))
    for name in ("dropout", "gaussian", "two_phases"):
        inside, outside = (posterity.predict(names[name], z, 40, generator()) for z in (x, names["unknown"]))
        assert outside.epistemic.mean() > 2 * inside.epistemic.mean() > 0
