import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats
from torchmetrics.classification import MulticlassCalibrationError

import posterity
from posterity import evaluation
from posterity.errors import Error
from posterity.evaluation import scores
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction


def categorical(*shape, seed=0, sharpness=2.0):
    """Probabilities [batch, classes, ...] and targets drawn from flatter ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(*shape, generator=generator, dtype=torch.float64)
    y = torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)
    return torch.log_softmax(logits, dim=1), y


def gaussian(draws, batch, outputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(draws, batch, outputs, generator=generator, dtype=torch.float64)
    variances = torch.rand(draws, batch, outputs, generator=generator, dtype=torch.float64) + 0.05
    y = torch.randn(batch, outputs, generator=generator, dtype=torch.float64)
    return GaussianPrediction(means, variances), y


def test_error_counts_wrong_answers():
    probs = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]])
    assert scores.error(probs, torch.tensor([0, 1, 1, 0])) == 0.5


def test_brier_agrees_with_a_loop():
    log_probs, y = categorical(40, 5)
    probs = log_probs.exp()
    expected = np.mean(
        [sum((p - (c == t)) ** 2 for c, p in enumerate(row)) for row, t in zip(probs.tolist(), y.tolist(), strict=True)]
    )
    assert scores.brier(probs, y) == pytest.approx(expected, rel=1e-12)


def test_brier_is_two_when_sure_and_wrong():
    assert scores.brier(torch.tensor([[1.0, 0.0]]), torch.tensor([1])) == 2.0


@pytest.mark.parametrize("sharpness", [0.5, 2.0, 8.0])
def test_ece_agrees_with_torchmetrics(sharpness):
    log_probs, y = categorical(500, 7, sharpness=sharpness)
    reference = MulticlassCalibrationError(num_classes=7, n_bins=15, norm="l1")
    assert evaluation.ece(log_probs.exp(), y) == pytest.approx(float(reference(log_probs.exp(), y)), abs=1e-6)


def test_ece_puts_what_is_on_an_edge_but_for_its_rounding_into_the_lower_bin():
    probs, y = torch.tensor([[0.8, 0.2], [0.75, 0.25]] * 2), torch.tensor([0, 1, 0, 1])
    assert evaluation.ece(probs, y) == pytest.approx(0.275)  # 0.8 = 12 / 15 is in the bin of 0.75
    assert evaluation.ece(probs.double().round(decimals=6), y) == pytest.approx(0.275)


def test_targets_may_be_a_series_with_any_index_and_must_be_numbers():
    probs = torch.tensor([[0.9, 0.1]] * 4)
    prediction, y = posterity.Prediction.from_probs(probs), pd.Series([0, 0, 0, 1], index=range(10, 14))
    assert evaluation.score(prediction, y)["error"] == 0.25
    numbers = GaussianPrediction(torch.zeros(1, 2, 1), torch.ones(1, 2, 1))
    with pytest.raises(posterity.Error, match="1 of the targets are not numbers"):
        evaluation.score(numbers, torch.tensor([[0.0], [float("nan")]]))


def test_ece_counts_a_confidence_of_one_and_just_below():
    sure = torch.tensor([[1.0, 0.0], [0.995, 0.005]], dtype=torch.float64)
    assert evaluation.ece(sure, torch.tensor([1, 1])) == pytest.approx((1 + 0.995) / 2)


def test_crps_of_one_gaussian_agrees_with_numerical_integration():
    mean, std, y = 0.7, 1.3, -0.4
    # ∫ (F(t) − 1[t ≥ y])² dt
    below = integrate.quad(lambda t: stats.norm.cdf(t, mean, std) ** 2, -15, y)[0]
    above = integrate.quad(lambda t: stats.norm.sf(t, mean, std) ** 2, y, 15)[0]
    ours = scores.crps(torch.full((1, 1, 1), mean), torch.full((1, 1, 1), std**2), torch.full((1, 1), y))
    assert float(ours) == pytest.approx(below + above, rel=1e-5)


def test_crps_of_a_mixture_agrees_with_numerical_integration():
    prediction, y = gaussian(4, 6, 2)
    ours = scores.crps(prediction.means, prediction.variances, y)
    for row in range(6):
        for output in range(2):
            m, s = (
                prediction.means[:, row, output].numpy(),
                prediction.variances[:, row, output].sqrt().numpy(),
            )
            target = float(y[row, output])
            below = integrate.quad(lambda t: stats.norm.cdf(t, m, s).mean() ** 2, -12, target)[0]  # noqa: B023
            above = integrate.quad(lambda t: (stats.norm.sf(t, m, s).mean()) ** 2, target, 12)[0]  # noqa: B023
            assert float(ours[row, output]) == pytest.approx(below + above, rel=1e-6)


def test_crps_in_chunks_is_crps_at_once(monkeypatch):
    prediction, y = gaussian(5, 23, 2)
    whole = scores.crps(prediction.means, prediction.variances, y)
    monkeypatch.setattr(scores, "CRPS_CHUNK", 5 * 5 * 2 * 4)
    torch.testing.assert_close(scores.crps(prediction.means, prediction.variances, y), whole)


def test_crps_without_spread_is_the_absolute_error():
    y = torch.tensor([[1.0], [-2.0]])
    assert torch.equal(scores.crps(torch.zeros(3, 2, 1), torch.zeros(3, 2, 1), y), y.abs().double())


def test_scores_of_a_classification_agree_with_plain_formulas():
    log_probs, y = categorical(60, 4)
    found = evaluation.score(CategoricalPrediction(log_probs, torch.zeros(60)), y)
    assert list(found) == ["error", "nll", "brier", "ece"]
    assert found["nll"] == pytest.approx(-np.mean([log_probs[i, y[i]].item() for i in range(60)]))
    assert found["error"] == pytest.approx(float((log_probs.argmax(1) != y).float().mean()))


def test_scores_of_dense_outputs_are_those_of_their_positions():
    log_probs, y = categorical(6, 3, 4, 5)
    dense = evaluation.score(CategoricalPrediction(log_probs, torch.zeros(6, 4, 5)), y)
    flat = log_probs.movedim(1, -1).reshape(-1, 3)
    rows = evaluation.score(CategoricalPrediction(flat, torch.zeros(120)), y.flatten())
    for name in ("error", "brier", "ece"):
        assert dense[name] == pytest.approx(rows[name])


def test_positions_that_are_not_observed_count_in_no_score():
    log_probs, y = categorical(6, 3, 10)
    kept = evaluation.score(CategoricalPrediction(log_probs[..., :7], torch.zeros(6, 7)), y[:, :7])
    y[:, 7:] = -100
    assert evaluation.score(CategoricalPrediction(log_probs, torch.zeros(6, 10)), y) == pytest.approx(kept)


def test_yes_or_no_scores_are_those_of_two_classes():
    generator = torch.Generator().manual_seed(1)
    p = torch.rand(50, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (50,), generator=generator)
    two = CategoricalPrediction(torch.stack([1 - p, p], 1).log(), torch.zeros(50))
    ours = evaluation.score(BernoulliPrediction(p, torch.zeros(50)), y)
    assert ours == pytest.approx(evaluation.score(two, y))
    column = BernoulliPrediction(p[:, None], torch.zeros(50, 1))
    assert evaluation.score(column, y[:, None].double()) == pytest.approx(ours)


def test_scores_of_a_regression_agree_with_plain_formulas():
    prediction, y = gaussian(3, 50, 1)
    found = evaluation.score(prediction, y)
    assert list(found) == ["rmse", "nll", "crps", "coverage90"]
    density = stats.norm.pdf(y.numpy()[None], prediction.means.numpy(), prediction.variances.sqrt().numpy()).mean(0)
    assert found["nll"] == pytest.approx(-np.log(density).mean())
    assert found["rmse"] == pytest.approx(math.sqrt(((prediction.means.mean(0) - y) ** 2).mean()))
    inside = [abs(2 * float(c) - 1) <= 0.9 for c in prediction.cdf(y)]
    assert found["coverage90"] == pytest.approx(np.mean(inside))


def test_rescaling_moves_regression_scores_to_the_targets_units():
    prediction, y = gaussian(4, 30, 1)
    ours, scaled = (
        evaluation.score(prediction, y),
        evaluation.score(prediction.rescale(7.0, 10.0), 7 + 10 * y),
    )
    assert scaled["rmse"] == pytest.approx(10 * ours["rmse"])
    assert scaled["crps"] == pytest.approx(10 * ours["crps"])
    assert scaled["nll"] == pytest.approx(ours["nll"] + math.log(10))
    assert scaled["coverage90"] == ours["coverage90"]


def test_targets_of_shape_batch_fit_one_output():
    prediction, y = gaussian(4, 30, 1)
    assert evaluation.score(prediction, y[:, 0]) == evaluation.score(prediction, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.zeros(3, dtype=torch.long), "4 predictions but 3 targets"),
        (torch.tensor([0, 1, 2, 3]), "knows 3 classes"),
        (torch.tensor([0, 1, 2, -1]), "knows 3 classes"),
    ],
)
def test_targets_that_do_not_fit_are_refused(y, message):
    log_probs, _ = categorical(4, 3)
    with pytest.raises(Error, match=message):
        evaluation.score(CategoricalPrediction(log_probs, torch.zeros(4)), y)


def test_nothing_to_score_is_refused():
    with pytest.raises(Error, match="empty"):
        evaluation.score(CategoricalPrediction(torch.zeros(0, 3), torch.zeros(0)), torch.zeros(0).long())


def test_scores_of_yes_and_no_need_yes_or_no():
    prediction = posterity.prediction.BernoulliPrediction(torch.full((4, 1), 0.95), torch.zeros(4, 1))
    with pytest.raises(posterity.Error, match="need targets of 0 and 1"):
        evaluation.score(prediction, torch.full((4, 1), 0.95))
    assert evaluation.score(prediction, torch.ones(4, 1))["error"] == 0
