"""What can be promised of a method on some data, with the evidence: calibrated on one half, seen on the other."""

from typing import Any

import torch
from torch import Tensor

from posterity.errors import Error
from posterity.evaluation.abstention import risk_controlled_abstention
from posterity.evaluation.binomial import selected_level
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
CONFIDENCE = 0.95
"""That no more than the stated share of the answers given is wrong."""
SETS, INTERVALS = 0.95, 0.9
"""The least chance that a set, or an interval, holds the truth."""


def promises(prediction: Any, y: Tensor, seed: int = 0, among: int = 1) -> dict[str, Any]:
    """Guarantees from a random half of the data, and what they came to on the other half.

    Classification: `abstention`, one record for each of the risks 1, 5 and 10 %, with the share of answers `kept`
    and of these the share `wrong` (None where the half is too small, or too often wrong, to promise it with 95 %
    confidence), the `threshold` of the total uncertainty, and `sets` of 95 % with their mean `size` and their
    `coverage`. Regression: `intervals` of 90 % with mean `width` and `coverage`. Of both, `rows`: how many the other
    half has. Nothing is promised from too few data, nor where data have several answers each: these are not
    independent.

    A guarantee is one for a method that was fixed beforehand. Of m methods, whoever picks the one that keeps most, or
    has the smallest sets, picks by chance as well. With `among=m` each is tested with a confidence of 1 − 0.05/m, and
    has sets and intervals by `selected_level`: then the guarantees hold for any choice among them.

    Args:
        prediction: of data that trained nothing
        y: their true answers
        seed: of the halves
        among: how many methods one is chosen from by these guarantees

    Example:
        >>> import torch
        >>> from posterity import Prediction, evaluation
        >>> prediction = Prediction.from_probs(torch.tensor([[0.99, 0.01]]).repeat(2000, 1))
        >>> y = (torch.arange(2000) % 100 == 0).long()  # wrong in one of a hundred
        >>> [entry["kept"] for entry in evaluation.promises(prediction, y)["abstention"]]
        [0.0, 1.0, 1.0]
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
    level = INTERVALS if regression else SETS
    try:
        make = _intervals if regression else _sets
        found = make(prediction[half], y[half], prediction[rest], y[rest], selected_level(len(half), level, among))
    except Error:  # too few data
        found = {} if regression else {"sets": {"size": None, "coverage": None}}
    if not regression:
        every = observed(prediction, y)
        wrong, doubt = every.wrong.cpu(), every.total.cpu()
        found["abstention"] = [_abstention(wrong, doubt, half, rest, risk, among) for risk in RISKS]
        if found["sets"]["size"] is None and not any(entry["kept"] for entry in found["abstention"]):
            return {}
    return found | {"rows": len(rest)} if found else {}


def _intervals(known: Any, y: Tensor, new: Any, truth: Tensor, level: float) -> dict[str, Any]:
    low, high = conformal_intervals(known, y, level).intervals(new)
    truth = truth.reshape(low.shape)
    held = (low <= truth) & (truth <= high)
    return {"intervals": {"width": float((high - low).mean()), "coverage": float(held.double().mean())}}


def _sets(known: Any, y: Tensor, new: Any, truth: Tensor, level: float) -> dict[str, Any]:
    sets = conformal_sets(known, y, level, "lac").sets(new, nonempty=True)
    held = sets.gather(1, truth.long()[:, None])
    return {"sets": {"size": float(sets.sum(1).double().mean()), "coverage": float(held.double().mean())}}


def _abstention(
    wrong: Tensor, doubt: Tensor, half: Tensor, rest: Tensor, risk: float, among: int
) -> dict[str, float | None]:
    try:
        threshold = risk_controlled_abstention(wrong[half], doubt[half], risk, CONFIDENCE, among=among).threshold
    except Error:  # too few data to promise that much
        return {"risk": risk, "kept": 0.0, "wrong": None, "threshold": None}
    kept = doubt[rest] <= threshold
    if not bool(kept.any()):
        return {"risk": risk, "kept": 0.0, "wrong": None, "threshold": None}
    share = float(wrong[rest][kept].mean())
    return {"risk": risk, "kept": float(kept.double().mean()), "wrong": share, "threshold": threshold}
