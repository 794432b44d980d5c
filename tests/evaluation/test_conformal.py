import math

import numpy as np
import pytest
import torch

from posterity import evaluation
from posterity.errors import Error
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction

N, NEW, REPEATS, COVERAGE = 20, 20, 2000, 0.8
EXACT = 17 / 21
"""⌈(n + 1) · 0.8⌉/(n + 1), which a continuous score meets exactly; with ⌈n · 0.8⌉ it would be 16/21, below 0.8."""


def draw(n, seed, classes=5):
    """Probabilities that are off (too sharp), and classes drawn from the true ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    y = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)[:, 0]
    return CategoricalPrediction(torch.log_softmax(2 * logits, 1), torch.zeros(n)), y


def numbers(n, seed, outputs=1):
    """A mixture with wrong spread, and values from a skewed truth."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, outputs, generator=generator, dtype=torch.float64)
    y = x + (0.2 + x) * torch.empty_like(x).exponential_(generator=generator)
    means = torch.stack([x, x + 0.5])
    return GaussianPrediction(means, (0.1 + 0.2 * x).square().expand(2, n, outputs)), y


def meets(found):
    """Whether the mean coverage of independent repetitions is the exact one, to 4 standard errors."""
    return abs(np.mean(found) - EXACT) < 4 * np.std(found) / math.sqrt(len(found))


def part(prediction, rows):
    if isinstance(prediction, GaussianPrediction):
        return GaussianPrediction(prediction.means[:, rows], prediction.variances[:, rows])
    return CategoricalPrediction(prediction.log_probs[rows], prediction.aleatoric[rows])


@pytest.mark.parametrize(("score", "randomised"), [("lac", False), ("aps", False), ("aps", True)])
def test_sets_hold_the_true_class_at_the_stated_rate(score, randomised):
    found = []
    generator = torch.Generator().manual_seed(9)
    prediction, y = draw(REPEATS * (N + NEW), 1)
    for rows in torch.arange(len(y)).split(N + NEW):
        fit, new = rows[:N], rows[N:]
        options = {"randomised": randomised, "generator": generator}
        sets = evaluation.conformal_sets(part(prediction, fit), y[fit], COVERAGE, score, **options)
        chosen = sets.sets(part(prediction, new), generator)
        found.append(float(chosen.gather(1, y[new][:, None]).double().mean()))
    assert meets(found)


@pytest.mark.parametrize("score", ["scaled", "cqr"])
def test_intervals_hold_the_truth_at_the_stated_rate(score):
    found = []
    prediction, y = numbers(REPEATS // 4 * (N + NEW), 2)
    for rows in torch.arange(len(y)).split(N + NEW):
        fit, new = rows[:N], rows[N:]
        intervals = evaluation.conformal_intervals(part(prediction, fit), y[fit], COVERAGE, score)
        low, high = intervals.intervals(part(prediction, new))
        found.append(evaluation.coverage(low, high, y[new]))
    assert meets(found)


def test_the_quantile_is_that_of_n_plus_one():
    scores = torch.arange(1.0, 20.0)
    assert float(evaluation.conformal_quantile(scores, 0.8)) == 16
    assert float(evaluation.conformal_quantile(scores, 0.95)) == 19
    assert float(evaluation.conformal_quantile(scores[:9], 0.9)) == 9
    assert float(evaluation.conformal_quantile(scores[:10], 0.5)) == 6  # with n it would be 5


def test_lac_holds_what_is_likely_enough():
    prediction, y = draw(200, 3)
    found = evaluation.conformal_sets(prediction, y, 0.9, "lac")
    ordered = sorted(1 - float(prediction.probs[i, y[i]]) for i in range(200))
    q = ordered[math.ceil(201 * 0.9) - 1]
    assert torch.equal(found.sets(prediction), 1 - prediction.probs <= q)


def test_aps_adds_classes_from_the_likeliest_down():
    prediction, y = draw(150, 4)
    found = evaluation.conformal_sets(prediction, y, 0.85)

    def total(row, label):
        return sum(p for p in row if p > row[label]) + row[label]

    rows = prediction.probs.tolist()
    q = sorted(total(rows[i], int(y[i])) for i in range(150))[math.ceil(151 * 0.85) - 1]
    expected = [[total(row, c) <= q + 1e-12 for c in range(5)] for row in rows]
    assert found.sets(prediction).tolist() == expected


def test_sets_need_not_be_empty():
    prediction = CategoricalPrediction(torch.tensor([[0.6, 0.4]] * 9).log(), torch.zeros(9))
    sets = evaluation.conformal_sets(prediction, torch.zeros(9).long(), 0.5, "lac")
    unsure = CategoricalPrediction(torch.tensor([[0.5, 0.5]]).log(), torch.zeros(1))
    assert not sets.sets(unsure).any()
    assert sets.sets(unsure, nonempty=True).tolist() == [[True, False]]


@pytest.mark.parametrize("shape", [(40,), (40, 1)])
def test_a_yes_or_no_has_sets_of_two(shape):
    p = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = (p > 0.3).long()
    prediction = BernoulliPrediction(p, torch.zeros(shape))
    sets = evaluation.conformal_sets(prediction, y, 0.9).sets(prediction)
    assert sets.shape == (40, 2)
    assert float(sets.gather(1, y.view(-1, 1)).double().mean()) >= 0.9


def test_positions_of_dense_data_have_a_threshold_each():
    generator = torch.Generator().manual_seed(5)
    log_probs = torch.log_softmax(torch.randn(50, 3, 2, 2, generator=generator), 1)
    y = torch.randint(3, (50, 2, 2), generator=generator)
    y[:20, 0, 1] = -100
    found = evaluation.conformal_sets(CategoricalPrediction(log_probs, torch.zeros(50, 2, 2)), y, 0.8)
    alone = evaluation.conformal_sets(
        CategoricalPrediction(log_probs[20:, :, 0, 1], torch.zeros(30)), y[20:, 0, 1], 0.8
    )
    assert found.threshold.shape == (2, 2)
    assert found.n == 30
    assert float(found.threshold[0, 1]) == pytest.approx(float(alone.threshold))
    assert found.sets(CategoricalPrediction(log_probs, torch.zeros(50, 2, 2))).shape == log_probs.shape


def test_outputs_of_a_regression_have_a_threshold_each():
    prediction, y = numbers(60, 6, outputs=3)
    for score in ("scaled", "cqr"):
        found = evaluation.conformal_intervals(prediction, y, 0.9, score)
        low, high = found.intervals(prediction)
        held = ((y >= low) & (y <= high)).double().sum(0)
        assert held.tolist() == [55] * 3  # ⌈61 · 0.9⌉ of the calibration data themselves
        assert low.shape == (60, 3)


def test_intervals_that_shrink_do_not_cross():
    wide = GaussianPrediction(torch.zeros(1, 20, 1), torch.full((1, 20, 1), 100.0))
    found = evaluation.conformal_intervals(wide, torch.zeros(20, 1), 0.9, "cqr")
    narrow = GaussianPrediction(torch.ones(1, 3, 1), torch.full((1, 3, 1), 1e-4))
    low, high = found.intervals(narrow)
    torch.testing.assert_close(low, high)


def test_guarantees_are_said_in_words():
    prediction, y = draw(30, 7)
    assert "probability of at least 0.9" in str(evaluation.conformal_sets(prediction, y))
    assert "60 calibration data" in str(evaluation.conformal_intervals(*numbers(60, 8)))


def test_bad_requests_are_refused_in_plain_words():
    prediction, y = draw(8, 7)
    with pytest.raises(Error, match=r"at least 9 calibration data .* there are 8"):
        evaluation.conformal_sets(prediction, y, 0.9)
    with pytest.raises(Error, match="one of lac, aps"):
        evaluation.conformal_sets(prediction, y, score="raps")
    with pytest.raises(Error, match="generator must be"):
        evaluation.conformal_sets(*draw(20, 1), 0.5, score="aps", randomised=True, generator=5)
    with pytest.raises(Error, match="between 0 and 1"):
        evaluation.conformal_intervals(*numbers(8, 1), coverage=1.0)
    with pytest.raises(Error, match="use conformal_sets"):
        evaluation.conformal_intervals(prediction, y)
    with pytest.raises(Error, match="use conformal_intervals"):
        evaluation.conformal_sets(*numbers(8, 1))
    with pytest.raises(Error, match="knows 5 classes"):
        evaluation.conformal_sets(*draw(20, 1)[:1], torch.full((20,), 5), 0.5)


def test_next_to_no_coverage_takes_the_smallest_score():
    assert float(evaluation.conformal_quantile(torch.arange(1.0, 21.0), 1e-12)) == 1
