"""Conformal prediction: sets and intervals that hold the truth at a stated rate, whatever the network is worth.

Split-conformal (Vovk et al., 2005; Lei et al., 2018): n calibration data, exchangeable with those to come, give scores
s_1, …, s_n of how badly prediction and truth agree. With q the ⌈(n + 1) · coverage⌉-th smallest, the answers whose
score is at most q hold the truth with a probability of at least `coverage`, on average over calibration and new data.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posterity import inputs
from posterity.errors import Error, short
from posterity.evaluation.positions import is_regression, labels, targets
from posterity.state import home

SETS = ("lac", "aps")
INTERVALS = ("scaled", "cqr")


@dataclass(frozen=True)
class ConformalSets:
    """Sets of classes with a stated coverage; prints as what that guarantees."""

    threshold: Tensor
    """[...]: q, one for each position of a datum."""
    coverage: float
    """The least chance that a set holds the true class."""
    score: str
    """Either "lac" or "aps"."""
    randomised: bool
    """Whether the score of APS is."""
    n: int
    """How many calibration data there were; at the position that had fewest."""

    def sets(self, prediction: Any, generator: torch.Generator | None = None, *, nonempty: bool = False) -> Tensor:
        """Which classes are in the set; [batch, classes, ...] of bool.

        Args:
            prediction: of new data
            generator: of the random numbers, where the score is randomised
            nonempty: add the likeliest class to every set; some are empty otherwise, which keeps coverage near its
                level
        """
        probs = _probabilities(prediction)
        chosen = _scores(probs, self.score, self.randomised, generator) <= self.threshold.to(probs.device)
        return chosen.scatter(1, probs.argmax(dim=1, keepdim=True), True) if nonempty else chosen

    def __str__(self) -> str:
        return _words("A set holds the true class", self.coverage, self.n)


@dataclass(frozen=True)
class ConformalIntervals:
    """Intervals of real numbers with a stated coverage; prints as what that guarantees."""

    threshold: Tensor
    """[outputs]: q, one for each output."""
    coverage: float
    """The least chance that an interval holds the truth; of each output by itself."""
    score: str
    """Either "scaled" or "cqr"."""
    n: int
    """How many calibration data there were."""

    def intervals(self, prediction: Any) -> tuple[Tensor, Tensor]:
        """The lower and the upper ends, [batch, outputs] each; the middle twice where nothing is left of one."""
        q = self.threshold.to(prediction.aleatoric.device)
        if self.score == "scaled":
            mean, std = _moments(prediction)
            return mean - q * std, mean + q * std
        low, high = (end.double() for end in prediction.interval(self.coverage))
        middle = (low + high) / 2
        return torch.minimum(low - q, middle), torch.maximum(high + q, middle)

    def __str__(self) -> str:
        return _words("An interval holds the true value", self.coverage, self.n)


def conformal_sets(
    prediction: Any,
    y: Tensor,
    coverage: float = 0.9,
    score: str = "aps",
    *,
    randomised: bool = False,
    generator: torch.Generator | None = None,
) -> ConformalSets:
    """Calibrate prediction sets for classes.

    - "lac": s = 1 − p_y (Sadinle et al., 2019): the smallest sets on average, and uneven over easy and hard data.
    - "aps": s = Σ_{c likelier than y} p_c + p_y (Romano et al., 2020): larger sets where data are hard. Randomised,
      p_y counts with a uniform random number, and the coverage is met without excess.

    Positions of dense data get a threshold each, since those of one datum are not exchangeable among themselves; one
    that no datum has observed gets every class.

    Args:
        prediction: of calibration data that trained nothing
        y: [batch, ...], their classes; what is not observed is left out
        coverage: the least chance that a set holds the true class
        score: "lac" or "aps"
        randomised: for APS
        generator: of its random numbers

    Example:
        >>> import torch
        >>> from posterity import Prediction, evaluation
        >>> known = Prediction.from_probs(torch.tensor([[0.6, 0.3, 0.1]] * 9))
        >>> rule = evaluation.conformal_sets(known, torch.tensor([0] * 8 + [1]), coverage=0.9, score="lac")
        >>> round(float(rule.threshold), 4)  # the ⌈10 · 0.9⌉-th of the nine scores 1 − p_y: the largest
        0.7
        >>> rule.sets(Prediction.from_probs(torch.tensor([[0.5, 0.4, 0.1]])))
        tensor([[ True,  True, False]])
    """
    if score not in SETS:
        raise Error(f"The score of prediction sets is one of {', '.join(SETS)}; got {short(score)}.")
    y = labels(prediction, targets(prediction, y))
    probs = _probabilities(prediction)
    y = inputs.shaped(y, probs.shape[:1] + probs.shape[2:])
    seen = y != getattr(prediction, "ignore", -100)
    classes = torch.where(seen, y, 0).long()
    if bool(((classes < 0) | (classes >= probs.shape[1])).any()):
        raise Error(f"The prediction knows {probs.shape[1]} classes, numbered from 0; the targets hold others.")
    scores = _scores(probs, score, randomised, generator).gather(1, classes.unsqueeze(1)).squeeze(1)
    threshold = conformal_quantile(scores.masked_fill(~seen, math.inf), coverage, seen.sum(dim=0))
    counts = seen.sum(dim=0)
    return ConformalSets(threshold, coverage, score, randomised, int(counts[counts > 0].min()))


def conformal_intervals(prediction: Any, y: Tensor, coverage: float = 0.9, score: str = "scaled") -> ConformalIntervals:
    """Calibrate intervals for real numbers.

    - "scaled": s = |y − mean|/std, interval mean ± q · std (Lei et al., 2018).
    - "cqr": s = max(low − y, y − high) with the predictive quantiles of the same coverage, interval
      [low − q, high + q] (Romano et al., 2019, "Conformalized quantile regression").

    Each output, and each position of dense data, gets a threshold of its own and holds its own coverage.

    Args:
        prediction: of calibration data that trained nothing
        y: [batch, outputs], their true values
        coverage: the least chance that an interval holds the truth
        score: "scaled" or "cqr"

    Example:
        >>> import torch
        >>> from posterity import evaluation
        >>> from posterity.prediction import GaussianPrediction
        >>> known = GaussianPrediction(torch.zeros(1, 9, 1), torch.ones(1, 9, 1))
        >>> y = torch.arange(1.0, 10.0)[:, None]  # 1 to 9 standard deviations off
        >>> rule = evaluation.conformal_intervals(known, y, coverage=0.8)
        >>> low, high = rule.intervals(GaussianPrediction(torch.zeros(1, 1, 1), torch.full((1, 1, 1), 4.0)))
        >>> float(low), float(high)  # the ⌈10 · 0.8⌉-th is 8, and the standard deviation is 2
        (-16.0, 16.0)
    """
    if not is_regression(prediction):
        raise Error("Intervals are those of real numbers; for classes use conformal_sets.")
    if score not in INTERVALS:
        raise Error(f"The score of intervals is one of {', '.join(INTERVALS)}; got {short(score)}.")
    _check(coverage)
    y = targets(prediction, y).double()
    if score == "scaled":
        mean, std = _moments(prediction)
        scores = (y - mean).abs() / std
    else:
        low, high = prediction.interval(coverage)
        scores = torch.maximum(low.double() - y, y - high.double())
    return ConformalIntervals(conformal_quantile(scores, coverage), coverage, score, len(y))


def conformal_quantile(scores: Tensor, coverage: float, counts: Tensor | None = None) -> Tensor:
    """The ⌈(n + 1) · coverage⌉-th smallest of n scores, along the first axis: [n, ...] to [...].

    Args:
        scores: [n, ...]
        coverage: in (0, 1)
        counts: [...], how many scores there really are where some are left out; those are infinite, and so is the
            result where there are none
    """
    _check(coverage)
    if bool(scores.isnan().any()):
        raise Error("Some scores are not numbers (NaN): did training diverge?")
    counts = torch.full(scores.shape[1:], len(scores), device=scores.device) if counts is None else counts
    rank = torch.ceil((counts + 1).double() * coverage - 1e-9).long().clamp_min(1)
    some = counts[counts > 0]
    if not len(some) or bool((rank > counts)[counts > 0].any()):
        least = math.ceil(coverage / (1 - coverage) - 1e-9)
        raise Error(
            f"A coverage of {coverage:.3g} takes at least {least} calibration data for each "
            f"position; there are {int(some.min()) if len(some) else 0}. Bring more, or ask for less coverage."
        )
    return scores.sort(dim=0).values.gather(0, rank.unsqueeze(0) - 1).squeeze(0)


def _scores(probs: Tensor, score: str, randomised: bool, generator: torch.Generator | None) -> Tensor:
    """The score that each class would have if it were true; [batch, classes, ...]."""
    if score == "lac":
        return 1 - probs
    ordered, order = probs.sort(dim=1, descending=True, stable=True)
    if randomised:
        shape = probs[:, :1].shape
        u = torch.rand(shape, generator=generator, device=home(generator), dtype=torch.float64).to(probs.device)
        above = ordered.cumsum(dim=1) - (1 - u) * ordered
    else:
        above = ordered.cumsum(dim=1)
    return torch.empty_like(probs).scatter(1, order, above)


def _probabilities(prediction: Any) -> Tensor:
    """[batch, classes, ...], float64; two classes for yes and no."""
    if is_regression(prediction):
        raise Error("Sets are those of classes; for real numbers use conformal_intervals.")
    probs: Tensor = prediction.probs.double()
    if probs.dim() == prediction.aleatoric.dim() + 1:
        return probs
    probs = probs.squeeze(1) if probs.dim() == 2 and probs.shape[1] == 1 else probs
    return torch.stack([1 - probs, probs], dim=1)


def _moments(prediction: Any) -> tuple[Tensor, Tensor]:
    std = prediction.std.double()
    return prediction.mean.double(), std.clamp_min(torch.finfo(std.dtype).tiny)


def _check(coverage: float) -> None:
    if not isinstance(coverage, int | float) or not 0 < coverage < 1:
        raise Error(f"Coverage is a number between 0 and 1; got {short(coverage)}.")


def _words(what: str, coverage: float, n: int) -> str:
    return (
        f"{what} with a probability of at least {coverage:.3g}, on average over {n} calibration data and new data of "
        "the same distribution."
    )
