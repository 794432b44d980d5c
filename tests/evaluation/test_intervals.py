import numpy as np
import pytest
import torch
from scipy import stats

from posterity import evaluation
from posterity.errors import Error
from posterity.prediction import GaussianPrediction


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mixture(*shape, seed=0):
    return GaussianPrediction(random(*shape, seed=seed), random(*shape, seed=seed + 1).exp())


def test_interval_score_agrees_with_a_loop():
    low, high, y = random(40, 2), random(40, 2, seed=1) + 3, 3 * random(40, 2, seed=2)
    found = evaluation.interval_score(low, high, y, 0.8)
    for lo, hi, t, s in zip(*(v.flatten().tolist() for v in (low, high, y, found)), strict=True):
        penalty = 10 * (lo - t) if t < lo else 10 * (t - hi) if t > hi else 0
        assert s == pytest.approx(hi - lo + penalty)


def test_the_true_interval_has_the_lowest_score():
    y = random(20_000, 1)
    z = stats.norm.ppf(0.95)
    scores = [
        float(evaluation.interval_score(-c * torch.ones_like(y), c * torch.ones_like(y), y, 0.9).mean())
        for c in (0.8 * z, z, 1.2 * z)
    ]
    assert min(scores) == scores[1]


def test_interval_scores_of_one_gaussian_have_its_widths():
    std = torch.tensor([0.5, 2.0], dtype=torch.float64).expand(1, 30, 2)
    prediction, y = GaussianPrediction(torch.zeros_like(std), std**2), 2 * random(30, 2)
    levels = torch.tensor([0.5, 0.9])
    found = evaluation.interval_scores(prediction, y, levels)
    for i, level in enumerate((0.5, 0.9)):
        z = stats.norm.ppf((1 + level) / 2)
        assert float(found.width[i]) == pytest.approx(2 * z * 1.25, rel=1e-6)
        low, high = prediction.interval(level)
        assert float(found.coverage[i]) == pytest.approx(float(((y >= low) & (y <= high)).double().mean()))
        assert float(found.score[i]) == pytest.approx(float(evaluation.interval_score(low, high, y, level).mean()))


def test_gaps_agree_with_a_loop_over_levels():
    prediction, y = mixture(3, 80, 2), 2 * random(80, 2, seed=5)
    pit = stats.norm.cdf(y[None], prediction.means, prediction.variances.sqrt()).mean(0).flatten()
    levels = np.linspace(0.05, 0.95, 19)
    quantile = np.mean([abs(np.mean(pit <= q) - q) for q in levels])
    central = np.mean([abs(np.mean(np.abs(2 * pit - 1) <= a) - a) for a in levels])
    assert evaluation.quantile_gap(prediction, y) == pytest.approx(quantile, abs=1e-9)
    assert evaluation.coverage_gap(prediction, y) == pytest.approx(central, abs=1e-9)


def test_gaps_of_a_distribution_twice_too_wide_have_their_closed_form():
    y = random(50_000, 1)
    levels = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    expected = np.mean(stats.norm.cdf(2 * stats.norm.ppf((1 + levels) / 2)) * 2 - 1 - levels.numpy())
    wide = GaussianPrediction(torch.zeros(1, 50_000, 1), torch.full((1, 50_000, 1), 4.0))
    # Each coverage has a standard error of at most ½/√n.
    assert evaluation.coverage_gap(wide, y) == pytest.approx(expected, abs=4 * 0.5 / 50_000**0.5)
    true = GaussianPrediction(torch.zeros(1, 50_000, 1), torch.ones(1, 50_000, 1))
    assert evaluation.coverage_gap(true, y) < 4 * 0.5 / 50_000**0.5
    assert evaluation.quantile_gap(true, y) < 4 * 0.5 / 50_000**0.5


def test_the_quantile_gap_sees_a_shift():
    y = random(2000, 1) + 1
    prediction = GaussianPrediction(torch.zeros(1, 2000, 1), torch.ones(1, 2000, 1))
    assert evaluation.quantile_gap(prediction, y) > 0.2


def test_dense_regressions_are_scored_by_position():
    prediction, y = mixture(3, 4, 2, 5, 6), random(4, 2, 5, 6, seed=7)
    flat = GaussianPrediction(prediction.means.reshape(3, -1, 1), prediction.variances.reshape(3, -1, 1))
    dense, rows = evaluation.scorecard(prediction, y), evaluation.scorecard(flat, y.reshape(-1, 1))
    assert rows["nll"] == pytest.approx(rows["nll_position"])
    for name in set(rows) - {"nll", "coverage90_low", "coverage90_high", "ause"}:  # these go by row, or by output
        assert dense[name] == pytest.approx(rows[name], rel=1e-9), name


def test_the_card_of_a_regression_holds_the_scores_and_more():
    prediction, y = mixture(3, 50, 1), random(50, 1, seed=9)
    card = evaluation.scorecard(prediction, y[:, 0])
    assert card | evaluation.score(prediction, y) == card
    losses = (prediction.mean - y).square().flatten()
    assert card["ause"] == evaluation.ause(losses, prediction.total.flatten(), root=True)
    assert card["total"] == pytest.approx(card["aleatoric"] + card["epistemic"])


def test_the_sparsification_error_of_several_outputs_does_not_see_their_scales():
    """Uncertainties that are the same for all rows rank nothing, whatever the outputs' units."""
    y = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 100.0])
    both = GaussianPrediction(torch.zeros(1, 500, 2), torch.tensor([1.0, 100.0]).square().expand(1, 500, 2))
    alone = [
        evaluation.scorecard(GaussianPrediction(both.means[:, :, [c]], both.variances[:, :, [c]]), y[:, [c]])["ause"]
        for c in range(2)
    ]
    assert evaluation.scorecard(both, y)["ause"] == pytest.approx(sum(alone) / 2)
    assert min(alone) > 0.5


def test_bad_levels_and_shapes_are_refused():
    with pytest.raises(Error, match="between 0 and 1"):
        evaluation.interval_scores(mixture(2, 3, 1), torch.zeros(3, 1), torch.tensor([1.5]))
    with pytest.raises(Error, match="same shape"):
        evaluation.interval_score(torch.zeros(3), torch.zeros(3), torch.zeros(3, 1))
    with pytest.raises(Error, match="do not fit"):
        evaluation.scorecard(mixture(2, 3, 1), torch.zeros(3, 2))
