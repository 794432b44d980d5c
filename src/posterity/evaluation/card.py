"""Every score of a prediction in one dictionary."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from posterity.evaluation.calibration import adaptive_ece, classwise_ece, ece
from posterity.evaluation.chance import calibrated_ece, coverage_range
from posterity.evaluation.detection import auroc
from posterity.evaluation.intervals import coverage_gap, quantile_gap
from posterity.evaluation.losses import losses
from posterity.evaluation.positions import class_log_probabilities, is_regression, observed, per_datum, targets
from posterity.evaluation.scaling import calibrated_nll, temperature
from posterity.evaluation.scores import coverage, marginal_nll
from posterity.evaluation.selection import augrc, aurc, ause, excess_aurc, risk_at
from posterity.prediction import PARTS


def scorecard(prediction: Any, y: Tensor, held_out: tuple[Any, Tensor] | None = None) -> dict[str, float]:
    """All scores that fit the prediction: those of `score`, and more.

    Classification adds `nll_position` (per observed position), `nll_calibrated`, `temperature` (where there are
    held-out data to fit it on), `ece_adaptive`, `ece_classwise`, `entropy_auc`, the means of `total`, `aleatoric` and
    `epistemic` uncertainty, and how well total uncertainty ranks the errors: `aurc`, `excess_aurc`, `augrc`,
    `risk80` (the error at a coverage of 80 %) and `auroc_errors` (where some answers are right and some wrong). Where
    every row has one answer, `ece_expected` and `ece_limit` are what the ECE would be if the model were calibrated: on
    average, and in 95 of 100 cases at most (`calibrated_ece`).

    Regression adds `nll_position` (per output), `width90`, `interval_score90`, `coverage_gap`, `quantile_gap`, `ause`
    (the mean over outputs: ranked together, those of a larger scale would be the more uncertain and the more wrong),
    `coverage90_low` and `coverage90_high` (between which right intervals come in 95 of 100 cases, `coverage_range`),
    and the same means. Dense predictions are scored by position; `nll` alone is by datum.

    Args:
        prediction: what `posterity.predict` returns
        y: the true targets: class indices [batch, ...] or numbers [batch, outputs]
        held_out: a prediction of other data and their targets, to fit a temperature on; without it `nll_calibrated`
            is cross-validated
    """
    return card_of(prediction, y, losses(prediction, y), held_out)


def card_of(
    prediction: Any, y: Tensor, rows: Mapping[str, Tensor], held_out: tuple[Any, Tensor] | None = None
) -> dict[str, float]:
    """`scorecard`, where the prediction's `losses` are known."""
    y = targets(prediction, y)
    card = {name: float(loss.mean()) for name, loss in rows.items()}
    if is_regression(prediction):
        first = ("rmse", "nll", "crps", "coverage90")
        card |= {"rmse": math.sqrt(card["rmse"])} | _of_numbers(prediction, y)
    else:
        first = ("error", "nll", "brier", "ece")
        card |= _of_classes(prediction, y, held_out)
    return {name: card[name] for name in (*first, *card)}


def _of_classes(prediction: Any, y: Tensor, held_out: tuple[Any, Tensor] | None) -> dict[str, float]:
    seen = observed(prediction, y)
    wrong = seen.wrong
    log_probs, classes, _ = class_log_probabilities(prediction, y)
    card = {"nll_position": -float(log_probs.gather(1, classes[:, None]).double().mean())}
    if held_out is not None:
        card |= {"temperature": temperature(*held_out), "nll_calibrated": calibrated_nll(prediction, y, held_out)}
    card |= {
        "ece": ece(seen.probs, seen.y),
        "ece_adaptive": adaptive_ece(seen.probs, seen.y),
        "ece_classwise": classwise_ece(seen.probs, seen.y),
        "entropy_auc": 1 - float(seen.total.mean()) / math.log(seen.probs.shape[1]),
        "total": float(seen.total.mean()),
        "aleatoric": float(seen.aleatoric.mean()),
        "epistemic": float(seen.epistemic.mean()),
        "aurc": aurc(wrong, seen.total),
        "excess_aurc": excess_aurc(wrong, seen.total),
        "augrc": augrc(wrong, seen.total),
        "risk80": risk_at(wrong, seen.total, 0.8),
    }
    if len(seen.datum.unique()) == len(seen.datum):
        chance = calibrated_ece(seen.probs)
        card |= {"ece_expected": chance.expected, "ece_limit": chance.limit}
    if 0 < float(wrong.mean()) < 1:
        card["auroc_errors"] = auroc(seen.total[wrong == 0], seen.total[wrong == 1])
    return card


def _of_numbers(prediction: Any, y: Tensor) -> dict[str, float]:
    low, high = prediction.interval(0.9)
    squares, total = (prediction.mean.double() - y).square(), prediction.total.double()
    ranked = [(squares, total)] if squares.dim() < 2 else zip(squares.unbind(1), total.unbind(1), strict=True)
    sparsification = [ause(loss.flatten(), doubt.flatten(), root=True) for loss, doubt in ranked]
    least, most = coverage_range(len(y))
    return {
        "coverage90": coverage(low, high, y),
        "coverage90_low": least,
        "coverage90_high": most,
        "nll_position": marginal_nll(prediction, y),
        "width90": float((high - low).double().mean()),
        "coverage_gap": coverage_gap(prediction, y),
        "quantile_gap": quantile_gap(prediction, y),
        "ause": sum(sparsification) / len(sparsification),
        **{part: float(per_datum(getattr(prediction, part)).mean()) for part in PARTS},
    }
