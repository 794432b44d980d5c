"""What can be promised of a method on some data, with the evidence: calibrated on one half, seen on the other."""

import contextlib
import math
from typing import Any

import torch
from torch import Tensor

from posterity.errors import Error
from posterity.evaluation.abstention import control_risk
from posterity.evaluation.conformal import conformal_intervals, conformal_sets
from posterity.evaluation.positions import is_regression

RISKS = (0.01, 0.05, 0.1)
SETS, INTERVALS = 0.95, 0.9
"""The least chance that a set, or an interval, holds the truth."""


def promises(prediction: Any, y: Tensor, seed: int = 0) -> dict[str, Any]:
    """Guarantees from a random half of the data, and what they came to on the other half.

    Classification: `abstention`, one record for each of the risks 1, 5 and 10 %, with the share of answers `kept`
    and of these the share `wrong` (None where the half is too small, or too often wrong, to promise it with 95 %
    confidence), and `sets` of 95 % with their mean `size` and their `coverage`. Regression: `intervals` of 90 % with
    mean `width` and `coverage`. Data with several answers each have none: they are not independent.

    Args:
        prediction: of data that trained nothing
        y: their true answers
        seed: of the halves
    """
    one_each = y.dim() == 1 or y.numel() == len(y)
    if len(y) < 4 or not one_each or y.numel() != prediction.aleatoric.numel():
        return {}
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    half, rest = order[: len(y) // 2], order[len(y) // 2 :]
    known, new = prediction[half], prediction[rest]
    if is_regression(prediction):
        low, high = conformal_intervals(known, y[half], INTERVALS).intervals(new)
        truth = y[rest].reshape(low.shape)
        held = (low <= truth) & (truth <= high)
        return {"intervals": {"width": _finite((high - low).mean()), "coverage": float(held.double().mean())}}
    if not hasattr(prediction, "log_probs"):
        return {}
    truth = y[rest].reshape(-1).long()
    sets = conformal_sets(known, y[half], SETS, "lac").sets(new, nonempty=True)
    wrong = new.probs.argmax(1) != truth
    found: list[dict[str, Any]] = []
    for risk in RISKS:
        kept = torch.zeros(len(truth), dtype=torch.bool)
        with contextlib.suppress(Error):  # too few data to promise that much
            kept = control_risk(known, y[half], risk).accept(new).reshape(-1)
        share = float(kept.double().mean())
        found.append({"risk": risk, "kept": share, "wrong": float(wrong[kept].double().mean()) if share else None})
    held = sets.gather(1, truth[:, None])
    return {
        "abstention": found,
        "sets": {"size": float(sets.sum(1).double().mean()), "coverage": float(held.double().mean())},
    }


def _finite(value: Tensor) -> float | None:
    return float(value) if math.isfinite(float(value)) else None
