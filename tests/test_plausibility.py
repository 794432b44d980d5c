"""Data and networks that would train without an error, and wrongly, are refused or warned of."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import posterity
from common import generator, mlp, seeded
from posterity.logits import checked_outputs

METHODS = posterity.methods()
BRIEF = {"epochs": 1, "batch_size": 16, "seed": 0, "progress": False}


def random(*shape):
    return torch.randn(*shape, generator=generator(sum(shape)))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, first, second):
        return self.layer(first + second)


def forms(*parts):
    """Data in memory, as a data set and as a loader."""
    return parts, TensorDataset(*parts), DataLoader(TensorDataset(*parts), batch_size=16)


@pytest.mark.parametrize("form", range(3))
@pytest.mark.parametrize(
    ("third", "network", "likelihood", "why"),
    [
        (random(40, 1).abs(), nn.Linear(5, 5), posterity.Gaussian(), r"the third, of shape \(\d+, 1\), may be targets"),
        (random(40), nn.Linear(5, 5), posterity.Gaussian(), "not negative"),
        (random(40).abs(), nn.Linear(5, 1), posterity.Gaussian(), "do not fit"),
        (random(40).abs(), nn.Linear(5, 3), posterity.Categorical(), "needs class indices"),
        (random(40).abs(), TwoInputs(), posterity.Categorical(), "the network takes 2 inputs, first, second"),
        (torch.arange(40) % 3, TwoInputs(), posterity.Categorical(), "it holds torch.int64"),
    ],
    ids=["column", "negative", "shape", "classes", "two inputs", "labels"],
)
def test_two_inputs_and_targets_in_a_triple_are_refused_with_both_readings(third, network, likelihood, why, form):
    data = forms(random(40, 5), random(40, 5), third)[form]
    with pytest.raises(posterity.Error, match=rf"{why}.*\(x, y, weight\).*\(\(x1, x2\), y\)"):
        posterity.fit(posterity.MAP(network), data, likelihood, **BRIEF)


@pytest.mark.parametrize("form", range(3))
def test_weights_of_rows_and_two_inputs_train_as_they_are_meant(form):
    x, y = random(40, 5), torch.arange(40) % 3
    posterity.fit(posterity.MAP(mlp()), forms(x, y, random(40).abs())[form], **BRIEF)
    posterity.fit(posterity.MAP(TwoInputs()), ((x, x), y), **BRIEF)
    posterity.fit(posterity.MAP(TwoInputs()), ((x, x), y, random(40).abs()), **BRIEF)


@pytest.mark.parametrize("method", METHODS)
def test_one_output_is_refused_as_the_only_class(method):
    posterior = METHODS[method](seeded(lambda: mlp(5, 1)), seed=0)
    with pytest.raises(posterity.Error, match=r"one output.*Bernoulli\(\).*Gaussian\(\)"):
        posterity.predict(posterior, random(4, 5))
    with pytest.raises(posterity.Error, match=r"one output.*Bernoulli\(\).*Gaussian\(\)"):
        posterity.fit(posterior, (random(40, 5), torch.zeros(40, dtype=torch.long)), **BRIEF)


def caught(function):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function()
    return [str(one.message) for one in found if "the network trains badly" in str(one.message)]


ENDS = {"softmax": nn.Softmax(1), "log softmax": nn.LogSoftmax(1), "nothing": nn.Identity()}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_network_that_ends_in_a_softmax_is_warned_of(method, end):
    x, y = random(40, 5), torch.arange(40) % 3
    posterior = METHODS[method](seeded(lambda: nn.Sequential(*mlp(), ENDS[end])), seed=0)
    for warned in (
        caught(lambda: posterity.fit(posterior, (x, y), **BRIEF)),
        caught(lambda: posterity.predict(posterior, x, 4)),
    ):
        assert len(warned) == (end == "softmax")
        assert all("Softmax" in text for text in warned)
    assert not posterior.network._forward_hooks or method == "ibnn"


def test_logits_of_one_row_that_happen_to_sum_to_one_are_not_taken_for_probabilities():
    """Of a thousand rows of logits of two classes a few have no negative one, and sum to 1 within a hundredth."""
    posterior = posterity.MAP(nn.Identity())
    outputs = torch.randn(1000, 2, generator=generator())
    near = (outputs >= 0).all(1) & ((outputs.sum(1) - 1).abs() < 1e-2)
    assert near.any()
    assert not caught(lambda: [posterity.predict(posterior, row[None]) for row in outputs[near]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_probabilities_are_known_in_every_precision(dtype):
    outputs = torch.randn(64, 3, generator=generator()).to(dtype).softmax(1)
    assert len(caught(lambda: list(checked_outputs([outputs[None]], posterity.Categorical())))) == 1


@pytest.mark.parametrize("end", [nn.Sigmoid(), nn.Sequential(nn.Sigmoid(), nn.Flatten(0)), nn.Identity()])
@pytest.mark.parametrize("method", METHODS)
def test_a_network_that_ends_in_a_sigmoid_is_warned_of(method, end):
    x, y = random(40, 5), torch.arange(40) % 2
    posterior = METHODS[method](seeded(lambda: nn.Sequential(*mlp(5, 1), end)), seed=0)
    y = y.float() if len(list(end.children())) else y.float().unsqueeze(1)
    warned = caught(lambda: posterity.fit(posterior, (x, y), posterity.Bernoulli(), **BRIEF))
    assert len(warned) == (not isinstance(end, nn.Identity))
