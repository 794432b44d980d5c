"""What a right model's scores are by chance, and that a report blames it no more often than it may."""

import itertools
import math

import pytest
import torch

from common import generator
from posterity import evaluation
from posterity.evaluation.binomial import binomial_cdf
from posterity.prediction import CategoricalPrediction, GaussianPrediction
from posterity.report import Comparison
from posterity.report.words import verdict


def classified(rows, factor=1.0, seed=0):
    """Scores of a classifier of three classes whose logits are the true ones times a factor."""
    source = generator(seed)
    logits = 2 * torch.randn(rows, 3, generator=source, dtype=torch.float64)
    y = torch.multinomial(logits.softmax(1), 1, generator=source)[:, 0]
    return evaluation.scorecard(CategoricalPrediction((factor * logits).log_softmax(1), torch.zeros(rows)), y)


def blamed(words, task="classification", **methods):
    return words in " ".join(verdict(Comparison("t", task, methods)))


def said(words, cards, task="classification"):
    """The share of reports that say it of the better of two methods."""
    worse = [card | {"nll": card["nll"] + 1} for card in cards]
    return sum(blamed(words, task, a=a, b=b) for a, b in zip(cards, worse, strict=True)) / len(cards)


def test_a_calibrated_model_is_blamed_for_its_confidence_in_at_most_one_report_of_twenty():
    runs = 150
    cards = [classified(50, seed=seed) for seed in range(runs)]
    assert sum(card["ece"] > 0.05 for card in cards) > 0.9 * runs  # all of it chance
    assert said("do not take it as a rate", cards) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_a_model_with_twice_the_right_logits_is_blamed_for_its_confidence():
    assert said("do not take it as a rate", [classified(500, 2.0, seed) for seed in range(20)]) >= 0.8


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_the_ece_of_labels_drawn_from_the_predictions_exceeds_the_limit_as_often_as_stated(level):
    source = generator(3)
    probs = (2 * torch.randn(80, 4, generator=source, dtype=torch.float64)).softmax(1)
    limit = evaluation.calibrated_ece(probs, level=level).limit
    runs = 2000
    labels = torch.multinomial(probs, runs, replacement=True, generator=source).T
    rate = sum(evaluation.ece(probs, y) > limit for y in labels) / runs
    # The limit is itself known from 1,000 resamples, with as much noise again.
    assert abs(rate - level) < 4 * math.sqrt(level * (1 - level) * (1 / runs + 1 / 1000))


def test_the_expected_ece_of_few_rows_is_that_of_all_their_outcomes():
    confidence = torch.tensor([0.55, 0.58, 0.9, 0.97], dtype=torch.float64)
    probs = torch.stack([confidence, 1 - confidence], 1)
    exact = 0.0
    for outcome in itertools.product((0, 1), repeat=4):
        y = torch.tensor(outcome)
        chance = float(torch.where(y == 0, confidence, 1 - confidence).prod())
        exact += chance * evaluation.ece(probs, y)
    # An ECE between 0 and 1 has a standard deviation of at most a half.
    assert evaluation.calibrated_ece(probs).expected == pytest.approx(exact, abs=4 * 0.5 / math.sqrt(1000))


@pytest.mark.parametrize("rows", [1, 10, 11, 20, 50, 360, 5000])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_right_intervals_leave_their_range_as_seldom_as_stated(rows, level):
    low, high = (round(end * rows) for end in evaluation.coverage_range(rows, level))
    assert binomial_cdf(low - 1, rows, level) <= 0.025 < binomial_cdf(low, rows, level)
    above = binomial_cdf(rows - high - 1, rows, 1 - level)  # more than `high` hold
    assert above <= 0.025 < binomial_cdf(rows - high, rows, 1 - level)


def intervals(rows, std=1.0, seed=0):
    """Scores of a regression whose standard deviation is `std` times the right one."""
    y = torch.randn(rows, 1, generator=generator(seed), dtype=torch.float64)
    zero = torch.zeros(1, rows, 1, dtype=torch.float64)
    return evaluation.scorecard(GaussianPrediction(zero, zero + std**2), y)


@pytest.mark.parametrize("rows", [10, 20, 200])
def test_right_intervals_of_few_rows_are_not_called_too_narrow(rows):
    """Exactly: the chance of each number of rows that they hold, where the report says that it is too few."""
    card, rate = intervals(rows), 0.0
    for k in range(rows + 1):
        if said("too narrow", [card | {"coverage90": k / rows}], "regression"):
            rate += binomial_cdf(k, rows, 0.9) - binomial_cdf(k - 1, rows, 0.9)
    assert rate <= 0.025


def test_intervals_of_half_the_right_width_are_called_too_narrow():
    assert said("too narrow", [intervals(50, 0.5, seed) for seed in range(20)], "regression") >= 0.9


def test_the_upper_bound_of_an_auroc_is_above_the_true_one_as_often_as_stated():
    runs, true = 1000, 0.8
    shift = math.sqrt(2) * float(torch.special.ndtri(torch.tensor(true, dtype=torch.float64)))
    x = torch.randn(runs, 60, generator=generator(5), dtype=torch.float64)
    below = sum(evaluation.auroc_limit(row[:30], row[30:] + shift) < true for row in x) / runs
    assert below < 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
    assert evaluation.auroc_limit(x[0, :1], x[0, 1:]) == 1.0  # one row says nothing
    assert evaluation.auroc_limit(torch.zeros(50), torch.zeros(50)) == 0.5


def test_a_method_is_not_said_to_miss_the_unfamiliar_where_few_rows_cannot_tell():
    card = {"nll": 0.5, "auroc_outside": 0.7, "error": 0.1}
    worse = card | {"nll": 1.0}
    for limit, told in ((0.85, False), (0.78, True)):
        a = card | {"auroc_outside_limit": limit}
        assert blamed("does not reliably notice", a=a, b=worse) == told


def test_dense_outputs_make_no_claim_of_calibration():
    log_probs = torch.randn(6, 3, 5, generator=generator(), dtype=torch.float64).log_softmax(1)
    card = evaluation.scorecard(CategoricalPrediction(log_probs, torch.zeros(6, 5)), torch.zeros(6, 5).long())
    assert "ece_limit" not in card
