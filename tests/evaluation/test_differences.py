import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from posterity import evaluation
from posterity.evaluation.differences import Design, difference, leaders, student_quantile
from posterity.prediction import CategoricalPrediction, GaussianPrediction


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def classes(rows=200, seed=0):
    probs = (2 * random(3, rows, 4, seed=seed)).softmax(2)
    probs[:, : rows // 4] = probs[:, :1]  # rows that are alike
    y = torch.multinomial(probs.mean(0), 1, generator=torch.Generator().manual_seed(seed))[:, 0]
    return CategoricalPrediction.from_probs(probs), y


def numbers(rows=200, outputs=2):
    prediction = GaussianPrediction(random(3, rows, outputs), random(3, rows, outputs, seed=1).exp())
    return prediction, random(rows, outputs, seed=2)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 10, 99, 100, 101, 10_000])
@pytest.mark.parametrize("level", [0.5, 0.05, 0.001])
def test_quantiles_of_students_t(freedom, level):
    assert student_quantile(level, freedom) == pytest.approx(stats.t.ppf(1 - level / 2, freedom), rel=3e-5)


def test_what_rows_add_to_a_score_has_the_score_as_its_mean():
    prediction, y = classes()
    outside = classes(rows=90, seed=1)[0]
    card = evaluation.scorecard(prediction, y)
    found = {
        name: [float(s.mean()) for s in samples]
        for name, samples in evaluation.evidence(prediction, y, outside).items()
    }
    for score in ("error", "nll", "brier", "ece", "aurc"):
        assert found[score] == pytest.approx([card[score]])
    assert found["auroc_outside"] == pytest.approx([1 - evaluation.detect(prediction, outside)["epistemic"].auroc] * 2)
    prediction, y = numbers()
    card = evaluation.scorecard(prediction, y)
    found = {name: float(sample.mean()) for name, (sample,) in evaluation.evidence(prediction, y).items()}
    for score in ("rmse", "nll", "crps", "interval_score90"):
        assert found[score] == pytest.approx(card[score])
    assert found["coverage90"] == pytest.approx(abs(card["coverage90"] - 0.9))


def test_their_variance_is_that_of_scores_of_rows_drawn_anew():
    """Against 400 bootstraps, whose standard deviation has a standard error of 3.5 %."""
    prediction, y = classes(rows=400)
    outside = classes(rows=300, seed=1)[0]
    samples = evaluation.evidence(prediction, y, outside)
    generator, found = torch.Generator().manual_seed(0), {"aurc": [], "auroc_outside": [], "ece": []}
    for _ in range(400):
        rows, others = (torch.randint(len(p), (len(p),), generator=generator) for p in (prediction, outside))
        seen = evaluation.observed(prediction[rows], y[rows])
        found["aurc"].append(evaluation.aurc(seen.wrong, seen.total))
        found["ece"].append(evaluation.ece(seen.probs, seen.y))
        found["auroc_outside"].append(evaluation.auroc(prediction.epistemic[rows], outside.epistemic[others]))
    for score, tolerance in (("aurc", 0.12), ("auroc_outside", 0.12), ("ece", 0.6)):
        error = sum(float(sample.var()) / len(sample) for sample in samples[score]) ** 0.5
        # That of the ECE is larger where bins are off by no more than chance: |·| halves what varies.
        assert np.std(found[score]) / error == pytest.approx(1, abs=tolerance)


def test_the_corrected_ece_of_a_calibrated_prediction_is_near_zero():
    found = []
    for seed in range(100):
        prediction, y = classes(rows=200, seed=seed)
        samples = evaluation.evidence(prediction, y)
        found.append([float(samples[name][0].mean()) for name in ("ece", "ece_corrected")])
    plain, corrected = np.mean(found, axis=0)
    assert plain > 0.04
    assert abs(corrected) < 0.3 * plain


def test_positions_of_a_row_count_as_one_row():
    probs = (2 * random(3, 20, 4, 5)).softmax(2)
    prediction = CategoricalPrediction.from_probs(probs)
    y = torch.arange(100).reshape(20, 5) % 4
    y[0, 1:] = -100
    found = evaluation.evidence(prediction, y)
    assert {len(samples[0]) for samples in found.values()} == {20}
    assert float(found["error"][0].mean()) == pytest.approx(evaluation.error(*evaluation_rows(prediction, y)))


def evaluation_rows(prediction, y):
    seen = evaluation.observed(prediction, y)
    return seen.probs, seen.y


def variances(runs=600, seeds=3, rows=50, shares=(1.0, 1.0, 1.0), same_rows=True):
    """The mean of the estimated variances of a difference, and the variance of the differences."""
    numbers, found = np.random.default_rng(0), []
    hard, own, trained = shares
    for _ in range(runs):
        d = hard * numbers.standard_normal(rows) + own * numbers.standard_normal((seeds, rows))
        d = d + trained / rows**0.5 * numbers.standard_normal((seeds, 1))
        each = difference([[np.zeros(rows)]] * seeds, [[row] for row in d], Design(same_rows, 0.0))
        found.append((each.seeds + each.shared, each.gap))
    estimated, gaps = np.transpose(found)
    return estimated.mean(), gaps.var()


@pytest.mark.parametrize("shares", [s for s in itertools.product([0.0, 1.0], repeat=3) if any(s)])
def test_the_variance_over_rows_and_seeds_is_that_of_repeated_comparisons(shares):
    """The variance of 600 differences has a standard error of 6 %, the estimates' mean one of at most 4 %."""
    estimated, true = variances(shares=shares)
    assert estimated == pytest.approx(true, rel=0.25)


def test_splits_of_one_table_add_what_their_overlap_hides():
    rows = [[np.full(20, value)] for value in (0.0, 1.0, 2.0)]
    zeros = [[np.zeros(20)]] * 3
    for overlap, factor in ((0.25, 1 / 3 + 1 / 4), (0.0, 1 / 3), (30.0, 4 / 3)):
        found = difference(zeros, rows, Design(False, overlap))
        assert found.gap == 1
        assert found.seeds == pytest.approx(factor)
        assert found.half_width() == pytest.approx(stats.t.ppf(0.975, 2) * factor**0.5)


@pytest.mark.parametrize(("rows", "level", "told"), [(5, 0.05, False), (6, 0.05, True), (6, 0.05 / 28, False)])
def test_rows_that_all_differ_alike_tell_methods_apart_only_where_a_coin_would_not(rows, level, told):
    """Five heads or five tails come up in one of 16 cases, six in one of 32."""
    found = difference([[np.zeros(rows)]], [[np.ones(rows)]])
    assert bool(found.gap > found.half_width(level)) is told


def test_the_best_needs_no_correction_and_the_rest_is_corrected_by_what_is_left():
    asked = []

    def differ(better, worse, level):
        asked.append((better, worse, level))
        return p[worse] <= level

    p = {"b": 0.04, "c": 0.04}
    assert leaders(["a", "b", "c"], differ) == ["a"]
    p = {"b": 0.3, "c": 0.02}
    assert leaders(["a", "b", "c"], differ) == ["a", "b", "c"]
    p = {"b": 0.3, "c": 0.016}  # of three pairs
    assert leaders(["a", "b", "c"], differ) == ["a", "b"]
    p = {"b": 0.3, "c": 0.02, "d": 0.008}  # of six pairs, then of three
    assert leaders(["a", "b", "c", "d"], differ) == ["a", "b", "c"]
