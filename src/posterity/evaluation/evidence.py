"""What each row adds to a score: the evidence for a difference between two predictions of the same rows."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from posterity.evaluation.calibration import bin_of
from posterity.evaluation.losses import losses
from posterity.evaluation.positions import is_regression, observed, per_datum, targets, uncertainty
from posterity.evaluation.selection import risk_curve

BINS = 15
"""Of confidence, as in `ece`."""
LEVEL = 0.9
"""Of the intervals whose coverage is scored."""


def evidence(
    prediction: Any, y: Tensor, outside: Any = None, rows: Mapping[str, Tensor] | None = None
) -> dict[str, list[Tensor]]:
    """Of every score of a comparison, what each row adds to it; lower is better.

    Each score has a list of samples [rows]: of the test rows and, for `auroc_outside`, of the OOD rows too. The mean of
    a sample is the score (for `auroc_outside`, 1 − AUROC), so that two predictions of the same rows differ by the mean
    of the differences, with the variance of that mean, summed over samples:

    - `nll`, `error`, `brier`, `crps`, …: the losses themselves; `rmse`: its first-order expansion in the squares.
    - `aurc`: the influence of a row on the area, Σ_{k ≥ r} (loss − R_k)/k + R_r, where r is its rank and R_k the mean
      loss of the k most certain rows.
    - `auroc_outside`: the share of the other sample that a row is on the wrong side of (DeLong et al., 1988).
    - `coverage90`: hit − level, with the sign of the mean.
    - `ece`: the row's own gap, accuracy − confidence, with the sign of its bin's gap. A bin's |gap| is too large by
      chance, the more so the fewer and the less certain its rows are; `ece_corrected` has the same rows less an
      estimate of that bias. A difference that is not there in both is no difference.

    Args:
        prediction: of the test rows
        y: their true targets
        outside: of OOD inputs
        rows: the `losses` of the prediction, where they are known
    """
    y, rows = targets(prediction, y), losses(prediction, y) if rows is None else rows
    if is_regression(prediction):
        found = {name: [loss] for name, loss in rows.items()}
        found["rmse"] = [_root(rows["rmse"])]
        low, high = prediction.interval(LEVEL)
        hits = per_datum(((low <= y) & (y <= high)).double())
        found["coverage90"] = [(hits - LEVEL) * (hits.mean() - LEVEL).sign()]
    else:
        seen = observed(prediction, y)
        wrong, confidence = seen.wrong, seen.probs.amax(dim=1).double()
        found = {name: [loss] for name, loss in rows.items()} | {"aurc": [_area(wrong, seen.total)]}
        found |= _gaps(1 - wrong - confidence, bin_of(confidence, BINS))
        found |= {name: [_by_datum(loss, seen.datum)] for name, (loss,) in found.items() if name != "nll"}
    if outside is not None:
        found["auroc_outside"] = _misranked(*(per_datum(uncertainty(p, "epistemic")) for p in (prediction, outside)))
    return found


def _root(squares: Tensor) -> Tensor:
    """√m + (s − m)/(2 √m) of each square s with mean m, whose mean is the root of m."""
    root = squares.mean().sqrt()
    return root + (squares - squares.mean()) / (2 * root) if root > 0 else squares


def _gaps(gaps: Tensor, bins: Tensor) -> dict[str, list[Tensor]]:
    """Each row's gap with the sign of its bin's, and the same less the upward bias of the mean.

    The sum of a bin, with mean μ and standard deviation s, has E|·| = |μ| + s·b(|μ|/s), where b(m) = √(2/π)·exp(−m²/2)
    − 2m·Φ(−m); μ² is estimated by the square of the sum less s².
    """
    sums, squares = (torch.bincount(bins, weights=values) for values in (gaps, gaps.square()))
    std = squares.sqrt()
    m = (sums.square() - squares).clamp_min(0).sqrt() / std.clamp_min(torch.finfo(std.dtype).tiny)
    bias = std * (math.sqrt(2 / math.pi) * torch.exp(-m.square() / 2) - 2 * m * torch.special.ndtr(-m))
    plain = gaps * sums.sign()[bins]
    return {"ece": [plain], "ece_corrected": [plain - bias.sum() / len(gaps)]}


def _area(loss: Tensor, doubt: Tensor) -> Tensor:
    """What each row adds to the AURC; of rows of equal uncertainty, on average over their order; [rows]."""
    rank = torch.arange(1, len(loss) + 1, dtype=torch.float64)
    curve = risk_curve(loss, doubt)
    weight = (1 / rank).flip(0).cumsum(0).flip(0)
    rest = curve - (curve / rank).flip(0).cumsum(0).flip(0)
    _, group, counts = torch.unique(doubt, return_inverse=True, return_counts=True)
    ordered = torch.arange(len(counts)).repeat_interleave(counts)
    weight, rest = (torch.zeros(len(counts), dtype=torch.float64).index_add(0, ordered, v) for v in (weight, rest))
    return loss.double() * (weight / counts)[group] + (rest / counts)[group]


def _misranked(inside: Tensor, outside: Tensor) -> list[Tensor]:
    """Of each inside row the share of the outside rows that score lower, and the converse; ties count half."""

    def below(values: Tensor, others: Tensor) -> Tensor:
        ordered = others.sort().values
        ends = (torch.searchsorted(ordered, values, side=side) for side in ("left", "right"))
        return torch.stack(list(ends)).double().mean(dim=0) / len(others)

    return [below(inside, outside), 1 - below(outside, inside)]


def _by_datum(values: Tensor, datum: Tensor) -> Tensor:
    """Sums over the positions of each datum that has any, scaled to keep the mean; [rows]."""
    _, group, counts = torch.unique(datum, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(counts), dtype=torch.float64).index_add(0, group, values.double())
    return sums * (len(counts) / len(values))
