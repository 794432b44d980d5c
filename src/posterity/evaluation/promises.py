"""What can be promised of a method on some data, with the evidence: calibrated on one half, seen on the other."""

from typing import Any

import torch
from torch import Tensor

from posterity.errors import Error
from posterity.evaluation.abstention import control_risk
from posterity.evaluation.conformal import conformal_intervals, conformal_sets
from posterity.evaluation.positions import (
    NOT_OBSERVED,
    class_probabilities,
    is_regression,
    labels,
    observed,
    targets,
)

RISKS = (0.01, 0.05, 0.1)
SETS, INTERVALS = 0.95, 0.9
"""The least chance that a set, or an interval, holds the truth."""


def promises(prediction: Any, y: Tensor, seed: int = 0) -> dict[str, Any]:
    """Guarantees from a random half of the data, and what they came to on the other half.

    Classification: `abstention`, one record for each of the risks 1, 5 and 10 %, with the share of answers `kept`
    and of these the share `wrong` (None where the half is too small, or too often wrong, to promise it with 95 %
    confidence), and `sets` of 95 % with their mean `size` and their `coverage`. Regression: `intervals` of 90 % with
    mean `width` and `coverage`. Of both, `rows`: how many the other half has. Nothing is promised from too few data,
    nor where data have several answers each: these are not independent.

    Args:
        prediction: of data that trained nothing
        y: their true answers
        seed: of the halves
    """
    y, regression = targets(prediction, y).cpu(), is_regression(prediction)
    if not regression:
        class_probabilities(prediction, y)  # a mistake in the labels is no lack of data
    if y.numel() != len(y) or prediction.aleatoric.numel() != len(y):
        return {}
    if not regression:
        y = labels(prediction, y).reshape(-1).long()
        seen = torch.nonzero(y != getattr(prediction, "ignore", NOT_OBSERVED))[:, 0]
        prediction, y = prediction[seen], y[seen]
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    half, rest = order[: len(y) // 2], order[len(y) // 2 :]
    try:
        make = _intervals if regression else _sets
        found = make(prediction[half], y[half], prediction[rest], y[rest])
    except Error:  # too few data for a promise of either kind
        return {}
    found["rows"] = len(rest)
    if not regression:
        found["abstention"] = [_abstention(prediction, y, half, rest, risk) for risk in RISKS]
    return found


def _intervals(known: Any, y: Tensor, new: Any, truth: Tensor) -> dict[str, Any]:
    low, high = conformal_intervals(known, y, INTERVALS).intervals(new)
    truth = truth.reshape(low.shape)
    held = (low <= truth) & (truth <= high)
    return {"intervals": {"width": float((high - low).mean()), "coverage": float(held.double().mean())}}


def _sets(known: Any, y: Tensor, new: Any, truth: Tensor) -> dict[str, Any]:
    sets = conformal_sets(known, y, SETS, "lac").sets(new, nonempty=True)
    held = sets.gather(1, truth.long()[:, None])
    return {"sets": {"size": float(sets.sum(1).double().mean()), "coverage": float(held.double().mean())}}


def _abstention(prediction: Any, y: Tensor, half: Tensor, rest: Tensor, risk: float) -> dict[str, float | None]:
    try:
        kept = control_risk(prediction[half], y[half], risk).accept(prediction[rest])
    except Error:  # too few data to promise that much
        return {"risk": risk, "kept": 0.0, "wrong": None}
    wrong = observed(prediction[rest], y[rest]).wrong[kept.flatten()]
    share = float(kept.double().mean())
    return {"risk": risk, "kept": share, "wrong": float(wrong.double().mean()) if share else None}
