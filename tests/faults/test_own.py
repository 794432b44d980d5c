"""Faults that this code itself once had."""

import inspect
import re

import pytest
import torch

import posterity
from common import mlp, seeded
from posterity.prediction import BernoulliPrediction, GaussianPrediction


def test_a_certain_and_wrong_yes_is_charged_in_full():
    outputs, y = torch.full((2, 1), 100.0), torch.zeros(1)
    prediction = BernoulliPrediction.gather([outputs], posterity.Bernoulli())
    assert float(prediction.log_prob(y)) == pytest.approx(-100.0)


def test_a_huge_noise_that_the_network_gives_leaves_numbers():
    likelihood, outputs = posterity.Gaussian(heteroscedastic=True), torch.tensor([0.5, 50.0]).expand(2, 3, 2)
    prediction = GaussianPrediction.gather([outputs], likelihood)
    low, high = prediction.interval(0.9)
    assert bool((low.isfinite() & high.isfinite()).all())
    assert bool(prediction.log_prob(torch.zeros(3, 1)).isfinite().all())


def test_large_noise_of_ibnn_starts_finite():
    assert bool(posterity.IBNN(seeded(mlp), init_noise=100.0, seed=0).spreads.isfinite().all())


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("ibnn", "per_layer"),
        ("ibnn", "bias_noise"),
        ("bbb", "centred"),
        ("bbh", "shared"),
        ("bbh", "slice_batch"),
        ("livi", "linear"),
        ("livi", "learn_noise"),
    ],
)
def test_the_word_false_is_not_taken_for_true(method, argument):
    with pytest.raises(posterity.Error, match=f"{argument} must be True or False"):
        posterity.methods()[method](seeded(mlp), **{argument: "False"})


def test_the_documented_width_of_the_hypernetwork_is_its_default():
    words = re.search(r"hidden: .*by default \((\d+), (\d+)\)", inspect.getdoc(posterity.BayesByHypernet))
    assert [int(width) for width in words.groups()] == posterity.BayesByHypernet(mlp()).config()["hidden"]
