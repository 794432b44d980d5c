"""What scores a right model shows by chance alone, on as many rows."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from posterity.evaluation.binomial import binomial_cdf
from posterity.evaluation.calibration import bin_of
from posterity.evaluation.detection import auroc, placements
from posterity.streams import stream

LEVEL = 0.05
"""How often a right model is said to be off, at most."""
RESAMPLES = 1000
CELLS = 256
"""In each bin: rows whose confidences are in the same cell count as equally confident, by their mean."""


class CalibratedECE(NamedTuple):
    """The ECE that the same predictions would show if they were calibrated."""

    expected: float
    """The mean over resampled labels: above 0, since the ECE counts every deviation, chance or not."""
    limit: float
    """What it exceeds with a probability of at most the level."""


def calibrated_ece(probs: Tensor, bins: int = 15, *, level: float = LEVEL, seed: int = 0) -> CalibratedECE:
    """ECE of labels that are drawn from the predictions themselves: consistency resampling (Bröcker and Smith, 2007).

    Such labels agree with the likeliest class with the probability that is stated for it, row by row. An ECE of the
    true labels above `limit` is a fault of calibration, and a calibrated model is blamed with a probability of at most
    `level`: of R resampled values the limit is the ⌈(R + 1)(1 − level)⌉-th smallest. Rows must be independent, which
    the positions of one image are not.

    Args:
        probs: [rows, classes].
        bins: of equal width, as for `ece`.
        level: in (0, 1).
        seed: of the labels.

    Example:
        >>> import torch
        >>> from posterity import evaluation
        >>> few, many = (evaluation.calibrated_ece(torch.full((n, 2), 0.5)) for n in (50, 5000))
        >>> round(few.limit, 2), many.limit < 0.02  # of 50 coins 18 to 32 show heads, 95 times in 100
        (0.14, True)
    """
    confidence = probs.amax(dim=1).double().cpu()
    cells = bin_of(confidence, bins) * CELLS + bin_of(confidence * bins % 1, CELLS)
    names, cells = cells.unique(return_inverse=True)
    counts = torch.bincount(cells).double()
    mean = torch.bincount(cells, weights=confidence) / counts
    counted, stated = counts.expand(RESAMPLES, -1), mean.clamp(0, 1).expand(RESAMPLES, -1)
    right = torch.binomial(counted, stated, stream(seed, "labels"))
    gaps = torch.zeros(RESAMPLES, bins, dtype=torch.float64).index_add(1, names // CELLS, right - counts * mean)
    values = (gaps.abs().sum(dim=1) / len(confidence)).sort().values
    place = min(math.ceil((RESAMPLES + 1) * (1 - level)), RESAMPLES)
    return CalibratedECE(float(values.mean()), float(values[place - 1]))


def coverage_range(rows: int, level: float = 0.9, alpha: float = LEVEL) -> tuple[float, float]:
    """How many of so many right intervals hold the truth, as shares: each end is passed in at most alpha/2 of cases.

    The ends are exact quantiles of Binomial(rows, level). Where a row has several outputs they may hold or miss
    together, so that rows, not outputs, are to be counted.

    Args:
        rows: how many there are
        level: of the intervals
        alpha: both ends together

    Example:
        >>> from posterity.evaluation import coverage_range
        >>> coverage_range(20)  # 15 to 20 of 20
        (0.75, 1.0)
    """
    return _quantile(alpha / 2, rows, level) / rows, 1 - _quantile(alpha / 2, rows, 1 - level) / rows


def auroc_limit(inside: Tensor, outside: Tensor, level: float = LEVEL) -> float:
    """Upper confidence bound of an AUROC, one-sided: the true one is above it in about `level` of all repetitions.

    The variance is that of placements, Var[P(in < out_j)]/m + Var[P(in_i < out)]/n (DeLong et al., 1988), and the bound
    is taken on the scale of log-odds, so that it stays below 1.

    Args:
        inside: scores of n rows like those trained on
        outside: the same score of m other rows
        level: in (0, 1)
    """
    area = auroc(inside, outside)
    if not 0 < area < 1 or min(len(inside), len(outside)) < 2:
        return area if min(len(inside), len(outside)) > 1 else 1.0
    variance = sum(float(part.var()) / len(part) for part in (placements(inside, outside), placements(outside, inside)))
    z = torch.special.ndtri(torch.tensor(1 - level, dtype=torch.float64)) * math.sqrt(variance)
    return float(torch.sigmoid(torch.logit(torch.tensor(area, dtype=torch.float64)) + z / (area * (1 - area))))


def _quantile(p: float, n: int, rate: float) -> int:
    """The least k with P(at most k of n) > p: fewer than k has a probability of at most p."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if binomial_cdf(middle, n, rate) > p else (middle + 1, high)
    return low
