"""Calibration: does a stated probability come true as often as it says?"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Reliability(NamedTuple):
    """What a reliability diagram shows, per bin of confidence; empty bins hold zeros."""

    confidence: Tensor
    """[bins], the mean confidence of what fell into the bin."""
    accuracy: Tensor
    """[bins], the fraction of it that was right."""
    share: Tensor
    """[bins], the fraction of all data in the bin; sums to 1."""


def reliability(probs: Tensor, y: Tensor, bins: int = 15) -> Reliability:
    """Sort predictions into equal-width bins of confidence, the probability of the likeliest class.

    Bin b holds (b/bins, (b+1)/bins], so that a confidence of exactly 1 counts in the last one.

    Args:
        probs: [batch, classes, ...]
        y: [batch, ...], class indices
        bins: how many bins of equal width there are on [0, 1]
    """
    confidence, predicted = probs.double().max(dim=1)
    confidence = confidence.flatten()
    right = (predicted == y).flatten().double()
    index = (torch.ceil(confidence * bins).long() - 1).clamp(0, bins - 1)
    count = torch.bincount(index, minlength=bins).double()
    filled = count.clamp_min(1)
    return Reliability(
        confidence=torch.bincount(index, weights=confidence, minlength=bins) / filled,
        accuracy=torch.bincount(index, weights=right, minlength=bins) / filled,
        share=count / count.sum().clamp_min(1),
    )


def ece(probs: Tensor, y: Tensor, bins: int = 15) -> float:
    """Expected calibration error: Σ_b share_b · |accuracy_b − confidence_b| (Naeini et al., 2015).

    Args:
        probs: [batch, classes, ...]
        y: [batch, ...], class indices
        bins: of equal width; 15 as in Guo et al. (2017)
    """
    confidence, accuracy, share = reliability(probs, y, bins)
    return float((share * (accuracy - confidence).abs()).sum())


def interval_coverage(prediction: Any, y: Tensor, levels: Tensor) -> Tensor:
    """How often the central interval of each level holds the target; [levels].

    The interval of level α holds y where |2F(y) − 1| ≤ α, with F the predictive distribution function.

    Args:
        prediction: of a regression, with `cdf`
        y: [batch, outputs]
        levels: [levels], each between 0 and 1
    """
    centrality = (2 * prediction.cdf(y).double() - 1).abs().flatten()
    return (centrality[None, :] <= levels.double()[:, None]).double().mean(dim=1)
