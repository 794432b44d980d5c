"""Intervals of a regression: do they hold the truth as often as they say, and how wide are they for it?"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from posterity.errors import Error
from posterity.evaluation.positions import targets

LEVELS = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
"""Where coverage is looked at, unless said otherwise."""


class IntervalScores(NamedTuple):
    """Central intervals at several levels, averaged over data and outputs."""

    level: Tensor
    """[levels], the mass each interval should hold."""
    coverage: Tensor
    """[levels], how often it held the target."""
    width: Tensor
    """[levels], its mean width, in the target's units."""
    score: Tensor
    """[levels], its mean interval score; lower is better."""


def interval_coverage(prediction: Any, y: Tensor, levels: Tensor) -> Tensor:
    """How often the central interval of each level holds the target; [levels].

    The interval of level α holds y where |2F(y) − 1| ≤ α, with F the predictive distribution function.

    Args:
        prediction: of a regression, with `cdf`
        y: [batch, outputs]
        levels: [levels], each between 0 and 1
    """
    centrality = (2 * prediction.cdf(targets(prediction, y)).double() - 1).abs()
    return _share_up_to(centrality, levels)


def coverage_gap(prediction: Any, y: Tensor, levels: Tensor = LEVELS) -> float:
    """Calibration error of intervals: the mean over levels of |coverage − level|; 0 is best.

    Args:
        prediction: of a regression, with `cdf`
        y: [batch, outputs]
        levels: [levels], each between 0 and 1
    """
    levels = checked(levels)
    return float((interval_coverage(prediction, y, levels).cpu() - levels).abs().mean())


def quantile_gap(prediction: Any, y: Tensor, levels: Tensor = LEVELS) -> float:
    """Calibration error of quantiles: the mean over q of |share of targets below their q-quantile − q|.

    The share is that of the probability integral transforms F(y) up to q (Kuleshov et al., 2018). Unlike
    `coverage_gap` it also sees intervals that are as wide as they should be but lie to one side.

    Args:
        prediction: of a regression, with `cdf`
        y: [batch, outputs]
        levels: [levels], each between 0 and 1
    """
    levels = checked(levels)
    return float((_share_up_to(prediction.cdf(targets(prediction, y)).double(), levels).cpu() - levels).abs().mean())


def interval_score(low: Tensor, high: Tensor, y: Tensor, level: float = 0.9) -> Tensor:
    """The score of a central interval; lower is better, and the true quantiles have the lowest mean.

    (high − low) + (2/α) (low − y)⁺ + (2/α) (y − high)⁺ with α = 1 − level (Gneiting and Raftery, 2007, eq. 43).

    Args:
        low: the interval's lower ends, [batch, outputs]
        high: its upper ends, [batch, outputs]
        y: [batch, outputs]
        level: the mass that the interval should hold

    Example:
        >>> import torch
        >>> from posterity.evaluation import interval_score
        >>> low, high = torch.zeros(2, 1), torch.ones(2, 1)
        >>> interval_score(low, high, torch.tensor([[0.5], [1.5]]), 0.75).flatten()  # the width, and 8 times the miss
        tensor([1., 5.], dtype=torch.float64)
    """
    if not 0 < level < 1:
        raise Error(f"An interval's level lies between 0 and 1; got {level}.")
    low, high, y = low.double(), high.double(), y.double()
    if not low.shape == high.shape == y.shape:
        raise Error(
            f"Intervals of shapes {tuple(low.shape)} and {tuple(high.shape)} and targets of shape {tuple(y.shape)} "
            "must all have the same shape."
        )
    return high - low + 2 / (1 - level) * ((low - y).clamp_min(0) + (y - high).clamp_min(0))


def interval_scores(prediction: Any, y: Tensor, levels: Tensor = LEVELS) -> IntervalScores:
    """Coverage, width and score of the central interval at every level.

    Args:
        prediction: of a regression, with `interval`
        y: [batch, outputs]
        levels: [levels], each between 0 and 1
    """
    levels = checked(levels)
    y = targets(prediction, y)
    rows = []
    for level in levels.tolist():
        low, high = prediction.interval(level)
        rows.append(((high - low).double().mean(), interval_score(low, high, y, level).mean()))
    width, score = (torch.stack(column).cpu() for column in zip(*rows, strict=True))
    return IntervalScores(levels, interval_coverage(prediction, y, levels.to(y.device)).cpu(), width, score)


def checked(levels: Tensor) -> Tensor:
    """Levels on the processor, [levels], float64."""
    levels = torch.as_tensor(levels, dtype=torch.float64).cpu().flatten()
    if not len(levels) or not bool(((levels > 0) & (levels < 1)).all()):
        raise Error("Levels must be one or more numbers between 0 and 1.")
    return levels


def _share_up_to(values: Tensor, levels: Tensor) -> Tensor:
    ordered = values.flatten().sort().values
    below = torch.searchsorted(ordered, levels.to(ordered), right=True)
    return below.double() / len(ordered)
