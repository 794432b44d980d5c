"""Temperature: one number that makes a classification as sure as it should be, and the score that is left then."""

import math
from typing import Any

import torch
from torch import Tensor

from posterity.errors import Error
from posterity.evaluation.positions import class_log_probabilities, is_regression, targets
from posterity.prediction import BernoulliPrediction

LIMITS = (1e-2, 1e2)
"""Between these a temperature is sought: useless probabilities would have it infinite."""
PRIOR = 4.0
"""κ of the prior on b = 1/T, Gamma(κ, κ): mean 1, standard deviation 1/√κ = 0.5."""
STEPS = 100
TOLERANCE = 1e-9
"""Of log T."""
CHUNK = 2**20
"""How many log-probabilities are made double at once."""


def temperature(prediction: Any, y: Tensor) -> float:
    """Temperature T of softmax(log p̄ / T) by maximum a posteriori, with p̄ the mean predictive probabilities.

    With b = 1/T it minimises Σ_i [log Σ_c exp(b z_ic) − b z_i,y_i] + κ (b − log b): the NLL (Guo et al., 2017) and a
    Gamma(κ, κ) prior on b with κ = 4, as a density of log T, whose mode is T = 1. Rows that are all classified right
    would have T = 0 by likelihood alone, and then one wrong row ruins the NLL; with the prior a few rows leave T near
    1. From some hundred rows on the likelihood decides: for T from 1/3 up the prior moves it by less than its standard
    error. Both terms are convex in b, so there is one minimum; it is found by Newton's steps in log b, and by halving
    where one would leave the bracket. T is held within `LIMITS`. Fit it on data that neither trained the network nor
    score it (see `calibrated_nll`).

    Args:
        prediction: of classes, or of yes and no
        y: [batch, ...], class indices; what is not observed counts for nothing

    Example:
        >>> import torch
        >>> from posterity import Prediction, evaluation
        >>> probs = torch.tensor([[0.9, 0.1]] * 4000)
        >>> prediction = Prediction.from_probs(probs)
        >>> y = torch.tensor([0, 0, 0, 1] * 1000)
        >>> round(evaluation.temperature(prediction, y), 2)  # 9^(1/T) = 3: odds of 9 to 1 become those seen, 3 to 1
        2.0
    """
    z, truth, _ = _logits(prediction, y)
    return _fit(z, truth)


def scaled(prediction: Any, temperature: float) -> Any:
    """The prediction with log-probabilities divided by a temperature and normalised again.

    The parts of its uncertainty keep their shares of the total: without the draws there is nothing to split it by.

    Args:
        prediction: of classes, or of yes and no
        temperature: above 0; more than 1 makes it less sure

    Example:
        >>> import torch
        >>> from posterity import Prediction, evaluation
        >>> probs = torch.tensor([[0.9, 0.1]] * 4)
        >>> prediction = Prediction.from_probs(probs)
        >>> evaluation.scaled(prediction, 2.0).probs[0]  # the root of odds of 9 to 1
        tensor([0.7500, 0.2500])
    """
    if is_regression(prediction):
        raise Error("A temperature scales a prediction of classes; this one is of real numbers.")
    if not 0 < temperature < math.inf:
        raise Error(f"A temperature is a positive number; got {temperature}.")
    share = torch.where(prediction.total > 0, prediction.aleatoric / prediction.total, 1.0)
    none = torch.zeros_like(prediction.aleatoric)
    if isinstance(prediction, BernoulliPrediction):
        logits = prediction.logits / temperature
        probs = logits.sigmoid()
        return BernoulliPrediction(probs, share * BernoulliPrediction(probs, none).total, logits)
    log_probs = torch.log_softmax(_finite(prediction.log_probs) / temperature, dim=1)
    total = prediction.with_probs(log_probs, none).total
    return prediction.with_probs(log_probs, share * total)


def calibrated_nll(
    prediction: Any, y: Tensor, held_out: tuple[Any, Tensor] | None = None, *, splits: int = 5, seed: int = 0
) -> float:
    """NLL per observed position after temperature scaling: how good predictions are apart from how sure they are.

    Without held-out data it is cross-validated on the data themselves: the `temperature` is fitted on one half and the
    score taken on the other, both ways, for several random halvings (Ashukha et al., 2020), so that no row is scored
    at a temperature that it was used to fit.

    Args:
        prediction: of the test data
        y: [batch, ...], their classes
        held_out: a prediction of other data and their classes, to fit the temperature on
        splits: how many random halvings, where there are no held-out data
        seed: of the halvings
    """
    if held_out is not None:
        z, truth, _ = _logits(prediction, y)
        return float(_surprises(z, truth, temperature(*held_out)).mean())
    return float(calibrated_surprises(prediction, y, splits=splits, seed=seed).mean())


def calibrated_surprises(prediction: Any, y: Tensor, *, splits: int = 5, seed: int = 0) -> Tensor:
    """What each observed position adds to the cross-validated `calibrated_nll`; [positions].

    Args:
        prediction: of the test data
        y: [batch, ...], their classes
        splits: how many random halvings
        seed: of the halvings
    """
    z, truth, datum = _logits(prediction, y)
    if len(prediction) < 2 or splits < 1:
        raise Error("To fit a temperature and score it takes two data and one split at least; or give held_out=.")
    generator = torch.Generator().manual_seed(seed)
    total = z.new_zeros(len(z), dtype=torch.float64)
    for _ in range(splits):
        order = torch.randperm(len(prediction), generator=generator).to(z.device)
        first = (order < len(prediction) // 2)[datum]
        for fit, rest in ((first, ~first), (~first, first)):
            if not bool(fit.any()) or not bool(rest.any()):
                raise Error("Too few targets are observed to fit a temperature on half of the data.")
            total[rest] += _surprises(z[rest], truth[rest], _fit(z[fit], truth[fit]))
    return total / splits


def _logits(prediction: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Finite log-probabilities [positions, classes], classes [positions] and data [positions]."""
    if is_regression(prediction):
        raise Error("A temperature scales a prediction of classes; this one is of real numbers.")
    z, truth, datum = class_log_probabilities(prediction, targets(prediction, y))
    if not len(z):
        raise Error("There is nothing to fit a temperature to: no target is observed.")
    if bool(z.isnan().any()):
        raise Error("The predicted probabilities are not numbers (NaN): did training diverge?")
    return _finite(z), truth, datum


def _finite(log_probs: Tensor) -> Tensor:
    """Probabilities that were rounded to zero get the smallest number of their type instead."""
    return log_probs.clamp_min(math.log(torch.finfo(log_probs.dtype).tiny)) if log_probs.isneginf().any() else log_probs


def _fit(z: Tensor, truth: Tensor) -> float:
    low, high = (math.log(limit) for limit in LIMITS)
    least, most = low, high
    at, ends = 0.0, set()
    for _ in range(STEPS):
        slope, curvature = _derivatives(z, truth, math.exp(-at))
        if slope == 0 or (slope < 0 and at == least) or (slope > 0 and at == most):
            break
        low, high = (at, high) if slope > 0 else (low, at)
        ends.add(at)
        new = min(max(at + slope / (curvature * math.exp(-at)), low), high)
        if new in ends:
            new = (low + high) / 2
        if abs(new - at) < TOLERANCE:
            at = new
            break
        at = new
    return math.exp(at)


def _derivatives(z: Tensor, truth: Tensor, b: float) -> tuple[float, float]:
    """First and second derivative by b of Σ NLL, sums of E_b[z] − z_y and of Var_b[z], and of the prior's share."""
    slope, curvature = PRIOR * (1 - 1 / b), PRIOR / b**2
    rows = max(1, CHUNK // z.shape[1])
    for part, y in zip(z.split(rows), truth.split(rows), strict=True):
        part = part.double()
        weights = torch.softmax(b * part, dim=1)
        mean = (weights * part).sum(dim=1)
        slope += float((mean - part.gather(1, y[:, None]).squeeze(1)).sum())
        curvature += float((weights * (part - mean[:, None]).square()).sum())
    return slope, curvature


def _surprises(z: Tensor, truth: Tensor, temperature: float) -> Tensor:
    """−log p(y) of each position at a temperature; [positions]."""
    rows = max(1, CHUNK // z.shape[1])
    losses = []
    for part, y in zip(z.split(rows), truth.split(rows), strict=True):
        part = part.double() / temperature
        losses.append(part.logsumexp(dim=1) - part.gather(1, y[:, None]).squeeze(1))
    return torch.cat(losses)
