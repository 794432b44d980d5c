"""Calibration: does a stated probability come true as often as it says?"""

from typing import NamedTuple

import torch
from torch import Tensor

from posterity import inputs
from posterity.errors import Error
from posterity.evaluation.selection import shared_within_ties


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

    Example:
        >>> import torch
        >>> from posterity.evaluation import reliability
        >>> probs, y = torch.tensor([[0.85, 0.15]] * 4 + [[0.35, 0.65]] * 4), torch.tensor([0, 0, 0, 1, 1, 1, 0, 0])
        >>> found = reliability(probs, y, bins=10)
        >>> [[round(v, 4) for v in part[[6, 8]].tolist()] for part in found]  # confidence, accuracy, share of two bins
        [[0.65, 0.85], [0.5, 0.75], [0.5, 0.5]]
    """
    confidence, right = _confidence(probs, y, bins)
    return _reliability(confidence, right, bin_of(confidence, bins), bins)


def ece(probs: Tensor, y: Tensor, bins: int = 15) -> float:
    """Expected calibration error: Σ_b share_b · |accuracy_b − confidence_b| (Naeini et al., 2015).

    Args:
        probs: [batch, classes, ...]
        y: [batch, ...], class indices
        bins: of equal width; 15 as in Guo et al. (2017)

    Example:
        >>> import torch
        >>> from posterity.evaluation import ece
        >>> probs = torch.tensor([[0.9, 0.1]] * 4)  # says 90 % four times
        >>> round(ece(probs, torch.tensor([0, 0, 0, 1])), 4)  # and is right three times: 0.9 − 0.75
        0.15
    """
    return _gap(reliability(probs, y, bins))


def adaptive_ece(probs: Tensor, y: Tensor, bins: int = 15) -> float:
    """ECE over bins that hold equally many data each (Nguyen and O'Connor, 2015).

    The datum of rank r (from 0) among n is in bin ⌊r · bins/n⌋. Data of equal confidence count with their mean
    accuracy, so that their order means nothing. With fewer data than bins each datum is a bin.

    Args:
        probs: [batch, classes, ...]
        y: [batch, ...], class indices
        bins: of equal mass
    """
    confidence, right = _confidence(probs, y, bins)
    n = len(confidence)
    index = torch.arange(n, device=confidence.device) * bins // max(n, 1)
    return _gap(_reliability(confidence.sort().values, shared_within_ties(right, confidence), index, bins))


def classwise_ece(probs: Tensor, y: Tensor, bins: int = 15) -> float:
    """The mean over classes of the ECE of "is it class c?", with p_c as its confidence (Kull et al., 2019).

    (1/C) Σ_c Σ_b |Σ_{i in bin b of class c} (1[y_i = c] − p_ic)| / n. It sees every class, not only the likeliest.

    Args:
        probs: [batch, classes, ...]
        y: [batch, ...], class indices
        bins: of equal width
    """
    y = _checked(probs, y, bins)
    classes = probs.shape[1]
    probs, y = probs.movedim(1, -1).reshape(-1, classes), y.flatten()
    # A row has fewer than `bins` probabilities above 1/bins: only these are sorted, the rest is in the lowest bin.
    row, column = (probs > (1 - 1e-6) / bins).nonzero(as_tuple=True)
    high = probs[row, column].double()
    gaps = torch.zeros(classes * bins, dtype=torch.float64, device=probs.device)
    gaps[::bins] = -probs.sum(dim=0, dtype=torch.float64).index_add(0, column, high, alpha=-1)
    gaps.index_add_(0, column * bins + bin_of(high, bins), high, alpha=-1)
    of_truth = probs.gather(1, y[:, None]).squeeze(1).double()
    gaps += torch.bincount(y * bins + bin_of(of_truth, bins), minlength=classes * bins)
    return float(gaps.abs().sum() / (classes * max(len(y), 1)))


def _confidence(probs: Tensor, y: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """The likeliest class's probability, and 1 where it is the true one; [positions] each, float64."""
    y = _checked(probs, y, bins)
    confidence, predicted = probs.max(dim=1)
    return confidence.flatten().double(), (predicted == y).flatten().double()


def _checked(probs: Tensor, y: Tensor, bins: int) -> Tensor:
    """Class indices in the shape that the probabilities have without the axis of classes."""
    if bins < 1:
        raise Error(f"Calibration needs at least one bin; got {bins}.")
    if probs.dim() < 2 or not inputs.alike(probs.shape[:1] + probs.shape[2:], y.shape):
        raise Error(
            f"Probabilities of shape {tuple(probs.shape)} do not fit classes of shape {tuple(y.shape)}: "
            "[batch, classes, ...] and [batch, ...] are needed."
        )
    return y.reshape(probs.shape[:1] + probs.shape[2:]).long()


def bin_of(confidence: Tensor, bins: int) -> Tensor:
    """Of the bins (b/bins, (b + 1)/bins]; in float32, where what is 0.8 but for its rounding is on the edge 12/15."""
    return (torch.ceil(confidence.float() * bins).long() - 1).clamp(0, bins - 1)


def _reliability(confidence: Tensor, right: Tensor, index: Tensor, bins: int) -> Reliability:
    count = torch.bincount(index, minlength=bins).double()
    filled = count.clamp_min(1)
    return Reliability(
        confidence=torch.bincount(index, weights=confidence, minlength=bins) / filled,
        accuracy=torch.bincount(index, weights=right, minlength=bins) / filled,
        share=count / count.sum().clamp_min(1),
    )


def _gap(bins: Reliability) -> float:
    return float((bins.share * (bins.accuracy - bins.confidence).abs()).sum())
