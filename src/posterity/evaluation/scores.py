"""Scores of a prediction against the truth: lower is better, and coverage should meet its level."""

import math
from typing import Any

import torch
from torch import Tensor

from posterity import inputs
from posterity.evaluation.calibration import ece
from posterity.evaluation.positions import NOT_OBSERVED, class_probabilities, is_regression, labels, targets

CRPS_CHUNK = 2**21
"""How many numbers the pairwise term of the CRPS may hold at once (16 MiB of float64)."""


def error(probs: Tensor, y: Tensor) -> float:
    """The fraction of wrong answers, when the likeliest class is the answer.

    Args:
        probs: [batch, classes, ...]
        y: [batch, ...], class indices
    """
    return float((probs.argmax(dim=1) != _classes(probs, y)).double().mean())


def brier(probs: Tensor, y: Tensor) -> float:
    """The mean of Σ_c (p_c − 1[y = c])², between 0 and 2 (Brier, 1950).

    Args:
        probs: [batch, classes, ...]
        y: [batch, ...], class indices

    Example:
        >>> import torch
        >>> from posterity.evaluation import brier
        >>> round(brier(torch.tensor([[0.8, 0.2]]), torch.tensor([0])), 4)  # 0.2² + 0.2²
        0.08
    """
    return float(squared_distances(probs, y).mean())


def squared_distances(probs: Tensor, y: Tensor) -> Tensor:
    """Σ_c (p_c − 1[y = c])² of each answer, whose mean is the Brier score; [batch, ...].

    Args:
        probs: [batch, classes, ...]
        y: [batch, ...], class indices
    """
    probs = probs.double()
    of_truth = probs.gather(1, _classes(probs, y).unsqueeze(1)).squeeze(1)
    return probs.square().sum(dim=1) - 2 * of_truth + 1


def _classes(probs: Tensor, y: Tensor) -> Tensor:
    """Class indices as they meet probabilities [batch, classes, ...]."""
    return inputs.shaped(y, probs.shape[:1] + probs.shape[2:]).long()


def entropy(probs: Tensor) -> Tensor:
    """−Σ_c p_c log p_c in nats, [batch, ...]. Of a `Prediction` it is `total`, the sum of its two parts.

    Args:
        probs: [batch, classes, ...]
    """
    return torch.special.entr(probs.double()).sum(dim=1)


def rmse(mean: Tensor, y: Tensor) -> float:
    """The root of the mean squared error, over data and outputs.

    Args:
        mean: [batch, outputs]
        y: [batch, outputs]
    """
    return float((mean.double() - inputs.shaped(y, mean.shape).double()).square().mean().sqrt())


def coverage(low: Tensor, high: Tensor, y: Tensor) -> float:
    """The fraction of targets inside their interval, ends included.

    Args:
        low: the interval's lower ends, [batch, outputs]
        high: its upper ends, [batch, outputs]
        y: [batch, outputs]

    Example:
        >>> import torch
        >>> from posterity.evaluation import coverage
        >>> low, high = torch.zeros(4, 1), torch.ones(4, 1)
        >>> coverage(low, high, torch.tensor([[0.0], [0.5], [1.0], [1.5]]))
        0.75
    """
    y = inputs.shaped(y, low.shape)
    return float(((y >= low) & (y <= inputs.shaped(high, low.shape))).double().mean())


def crps(means: Tensor, variances: Tensor, y: Tensor) -> Tensor:
    """The continuous ranked probability score of a Gaussian mixture with equal weights; [batch, outputs].

    E|X − y| − ½ E|X − X'|, with X and X' independent draws of the mixture. Both are exact: for a Gaussian,
    E|N(m, v)| = m (2Φ(m/√v) − 1) + 2√v φ(m/√v) (Grimit et al., 2006).

    Args:
        means: [draws, batch, outputs]
        variances: [draws, batch, outputs]
        y: [batch, outputs]

    Example:
        >>> import torch
        >>> from posterity.evaluation import crps
        >>> means, variances = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
        >>> round(float(crps(means, variances, torch.zeros(1, 1))), 4)  # (√2 − 1) / √π
        0.2337
    """
    means, variances, y = means.double(), variances.double(), inputs.shaped(y, means.shape[1:]).double()
    draws = len(means)
    one, other = torch.triu_indices(draws, draws, 1, device=means.device)  # each pair once
    rows = max(1, CRPS_CHUNK // max(1, len(one) * math.prod(y.shape[1:])))
    chunks = []
    for m, v, target in zip(means.split(rows, dim=1), variances.split(rows, dim=1), y.split(rows), strict=True):
        to_target = _mean_absolute(m - target, v).mean(dim=0)
        between = _mean_absolute(m[one] - m[other], v[one] + v[other]).sum(dim=0)
        within = _mean_absolute(torch.zeros_like(m), 2 * v).sum(dim=0)
        chunks.append(to_target - (2 * between + within) / (2 * draws**2))
    return torch.cat(chunks) if chunks else torch.zeros_like(y)


def _mean_absolute(mean: Tensor, variance: Tensor) -> Tensor:
    """E|N(mean, variance)|, which is |mean| where the variance is zero."""
    std = variance.sqrt()
    z = mean / std.clamp_min(torch.finfo(std.dtype).tiny)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    return mean * torch.erf(z / math.sqrt(2)) + 2 * std * density


def score(prediction: Any, y: Tensor) -> dict[str, float]:
    """Every score that fits the prediction.

    Classification: `error`, `nll`, `brier`, `ece`. Regression: `rmse`, `nll`, `crps`, `coverage90`, in the
    prediction's own units. `nll` is the mean over data of −log p(y), in nats.

    Args:
        prediction: what `posterity.predict` returns
        y: the true targets: class indices [batch, ...] or numbers [batch, outputs]

    Example:
        >>> import torch
        >>> from posterity import Prediction, evaluation
        >>> probs = torch.tensor([[0.9, 0.1]] * 4)
        >>> prediction = Prediction.from_probs(probs)
        >>> y = torch.tensor([0, 0, 0, 1])
        >>> {name: round(value, 4) for name, value in evaluation.score(prediction, y).items()}
        {'error': 0.25, 'nll': 0.6547, 'brier': 0.42, 'ece': 0.15}
    """
    y = targets(prediction, y)
    if is_regression(prediction):
        low, high = prediction.interval(0.9)
        scores = {
            "rmse": rmse(prediction.mean, y),
            "nll": nll(prediction, y),
            "crps": float(crps(prediction.means, prediction.variances, y).mean()),
            "coverage90": coverage(low, high, y),
        }
    else:
        probs, classes = class_probabilities(prediction, y)
        scores = {
            "error": error(probs, classes),
            "nll": nll(prediction, y),
            "brier": brier(probs, classes),
            "ece": ece(probs, classes),
        }
    return scores


def nll(prediction: Any, y: Tensor) -> float:
    """The mean over data of −log p(y), in nats; a datum's positions and outputs are summed.

    Args:
        prediction: what `posterity.predict` returns
        y: [batch, ...]; data none of whose positions is observed are left out

    Example:
        >>> import torch
        >>> from posterity import Prediction, evaluation
        >>> probs = torch.tensor([[0.9, 0.1]] * 4)
        >>> prediction = Prediction.from_probs(probs)
        >>> y = torch.tensor([0, 0, 0, 1])
        >>> round(evaluation.nll(prediction, y), 4)  # −¾ log 0.9 − ¼ log 0.1
        0.6547
    """
    return float(surprises(prediction, y).mean())


def surprises(prediction: Any, y: Tensor) -> Tensor:
    """−log p(y) of each datum, whose mean is the NLL; [data].

    Args:
        prediction: what `posterity.predict` returns
        y: [batch, ...]; data none of whose positions is observed are left out
    """
    y = targets(prediction, y)
    values = -prediction.log_prob(y).double()
    if not is_regression(prediction) and not y.is_floating_point():
        seen = labels(prediction, y) != getattr(prediction, "ignore", NOT_OBSERVED)
        values = values[seen.reshape(len(y), -1).any(1)]
    return values


def marginal_nll(prediction: Any, y: Tensor) -> float:
    """The mean over data and outputs of −log p(y) of each output of a regression on its own, in nats.

    Args:
        prediction: of a regression; `means` and `variances` are [draws, batch, outputs]
        y: [batch, outputs]
    """
    means, variances = prediction.means.double(), prediction.variances.double()
    z = (targets(prediction, y).double() - means).square() / variances
    terms = -0.5 * (z + variances.log() + math.log(2 * math.pi))
    return math.log(len(means)) - float(terms.logsumexp(dim=0).mean())
