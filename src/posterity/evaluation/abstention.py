"""Abstention: which answers to give, and which to leave to someone else."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posterity.errors import Error, short
from posterity.evaluation.binomial import binomial_cdf, rate_bound
from posterity.evaluation.positions import confidence_of, is_regression, observed, per_datum, targets

GRID = 20
"""How many thresholds are tested."""
GRID_SHARE = 0.1
"""The share of the calibration data that only places the thresholds."""
HEADROOM = 4
"""The strictest threshold keeps this many times the fewest data that could pass: else one error might end the test."""
MEASURES = ("total", "epistemic", "aleatoric", "confidence")


@dataclass(frozen=True)
class Abstention:
    """Gives the answers whose uncertainty is at most a threshold; prints as what that guarantees."""

    threshold: float
    """The highest uncertainty at which an answer is given; −inf where none is."""
    by: str
    """Which uncertainty: total, epistemic, aleatoric, or confidence (1 − the likeliest class's probability)."""
    coverage: float
    """The share of the calibration data that got an answer."""
    statement: str
    """What is guaranteed, in words."""
    bound: float | None = None
    """The upper bound of the share of wrong answers at this threshold, where labels gave one."""

    def accept(self, prediction: Any) -> Tensor:
        """Which answers to give: [batch, ...] of bool (a regression's outputs are averaged, [batch])."""
        return doubt(prediction, self.by) <= self.threshold

    def __str__(self) -> str:
        return self.statement


def doubt(prediction: Any, by: str = "total") -> Tensor:
    """The uncertainty that decides, [batch, ...]; a regression's outputs are averaged, [batch].

    Args:
        prediction: what `posterity.predict` returns
        by: "total", "epistemic", "aleatoric" or, for classes, "confidence" (1 − the likeliest class's probability)
    """
    if by not in MEASURES or (by == "confidence" and is_regression(prediction)):
        raise Error(f"Abstention goes by one of {', '.join(MEASURES)} (the last for classes only); got {short(by)}.")
    if by != "confidence":
        values: Tensor = getattr(prediction, by).double()
        return per_datum(values) if is_regression(prediction) else values
    return 1 - confidence_of(prediction)


def keep_coverage(prediction: Any, coverage: float, by: str = "total") -> Abstention:
    """Abstain from the most uncertain answers, so that a given share of them is left.

    The threshold is the ⌈coverage · n⌉-th lowest uncertainty of these data; they need no labels. Data of just that
    uncertainty are kept too, so that more may remain.

    Args:
        prediction: of data like those to come
        coverage: the share of answers to give, in (0, 1]
        by: which uncertainty decides
    """
    if not 0 < coverage <= 1:
        raise Error(f"Coverage is a share above 0 and up to 1; got {coverage}.")
    values = doubt(prediction, by).flatten()
    if not len(values):
        raise Error("A threshold needs at least one prediction to be placed by.")
    kept = max(1, math.ceil(coverage * len(values) * (1 - 1e-9)))
    threshold = float(values.sort().values[kept - 1])
    share = float((values <= threshold).double().mean())
    words = f"Answers {share:.1%} of the {len(values)} data it was set on; nothing is guaranteed about errors."
    return Abstention(threshold, by, share, words)


def control_risk(
    prediction: Any,
    y: Tensor,
    risk: float,
    confidence: float = 0.95,
    *,
    by: str = "total",
    tolerance: float | None = None,
    thresholds: Tensor | None = None,
    seed: int = 0,
    among: int = 1,
) -> Abstention:
    """Abstain so that, with a stated confidence, at most a share `risk` of the answers given is wrong.

    Thresholds t_1 < t_2 < … are tested from strict to loose. At t the k data with uncertainty up to t hold e wrong
    answers; as e is binomial given k, P(wrong | answered at t) is at most `rate_bound(e, k, confidence)`. The first
    threshold whose bound exceeds `risk` ends the test and the one before it is taken. As the order is fixed
    beforehand, all tests together keep the confidence of one (fixed sequence: Angelopoulos et al., 2021, "Learn then
    test"). Thresholds must not depend on the data that test them: by default a random tenth of the data places them,
    and the rest tests.

    Args:
        prediction: of calibration data that trained nothing, drawn like the data to come
        y: their true answers, [batch] or, for a regression, [batch, outputs]
        risk: the share of wrong answers among those given, in (0, 1)
        confidence: over the draw of the calibration data, in (0, 1)
        by: which uncertainty decides
        tolerance: for a regression: an answer is wrong where the mean is off by more than this in any output
        thresholds: from elsewhere, such as other data; then all of the data test
        seed: of the tenth
        among: how many methods one is chosen from by what their rules keep; the statement then holds for the chosen
            one, as each is tested with a confidence of 1 − (1 − confidence)/among

    Example:
        >>> import torch
        >>> from posterity import Prediction, evaluation
        >>> probs = torch.tensor([[0.99, 0.01]] * 300 + [[0.6, 0.4]] * 100)
        >>> prediction = Prediction.from_probs(probs)
        >>> y = torch.tensor([0] * 300 + [0, 1] * 50)  # of the unsure answers a half is wrong
        >>> rule = evaluation.control_risk(prediction, y, risk=0.05)
        >>> int(rule.accept(prediction).sum()), rule.bound < 0.05
        (300, True)
    """
    if not 0 < risk < 1 or not 0 < confidence < 1:
        raise Error(f"Risk and confidence lie between 0 and 1; got {risk} and {confidence}.")
    return risk_controlled_abstention(
        *_answers(prediction, y, by, tolerance), risk, confidence, by=by, thresholds=thresholds, seed=seed, among=among
    )


def risk_controlled_abstention(
    wrong: Tensor,
    values: Tensor,
    risk: float,
    confidence: float,
    *,
    by: str = "total",
    thresholds: Tensor | None = None,
    seed: int = 0,
    among: int = 1,
) -> Abstention:
    """`control_risk`, from whether each answer is wrong and how uncertain it is, [rows] each."""
    if among < 1:
        raise Error(f"One method is chosen among at least one; got among={among}.")
    if thresholds is None:
        thresholds, testing = _thresholds(values, risk, confidence, seed, among)
        wrong, values = wrong[testing], values[testing]
    passed: tuple[float, int, int] | None = None
    level = (1 - confidence) / among
    for threshold in torch.as_tensor(thresholds, dtype=torch.float64).flatten().sort().values.tolist():
        kept = values <= threshold
        k, e = int(kept.sum()), int(wrong[kept].sum())
        if binomial_cdf(e, k, risk) > level:  # the same as rate_bound(e, k, 1 - level) > risk, in one step
            break
        passed = threshold, e, k
    if passed is None:
        return Abstention(-math.inf, by, 0.0, _words(None, risk, confidence, len(values)))
    threshold, e, k = passed
    words = _words((e, k), risk, confidence, len(values))
    return Abstention(threshold, by, k / len(values), words, rate_bound(e, k, 1 - level))


def _answers(prediction: Any, y: Tensor, by: str, tolerance: float | None) -> tuple[Tensor, Tensor]:
    """Whether each answer is wrong and how uncertain it is, [data] each."""
    y = targets(prediction, y)
    values = doubt(prediction, by)
    if is_regression(prediction):
        if tolerance is None or not tolerance > 0:
            raise Error("An answer of real numbers is wrong beyond some error: give it as tolerance=, above 0.")
        off = (prediction.mean.double() - y.double()).abs().reshape(len(y), -1).amax(dim=1)
        return (off > tolerance).cpu(), values.cpu()
    if values.numel() != len(values):
        raise Error(
            "Risk is controlled for data that are independent of each other, which positions of one datum are not: "
            "give one answer per datum."
        )
    seen = observed(prediction, y)
    return seen.wrong.bool().cpu(), values.flatten()[seen.datum].cpu()


def _thresholds(values: Tensor, risk: float, confidence: float, seed: int, among: int) -> tuple[Tensor, Tensor]:
    """Quantiles of a random part of the data, from a strict one up to all, and which of the data are left to test."""
    n = len(values)
    alone, least = (math.ceil(math.log((1 - confidence) / m) / math.log(1 - risk)) for m in (1, among))
    placing = max(2, round(GRID_SHARE * n))
    if n - placing < least:
        chosen = f", of one method chosen among {among}," if among > 1 else ""
        raise Error(
            f"To show that at most {risk:.3g} of the answers are wrong{chosen} with confidence {confidence:.3g} takes "
            f"at least {least} answers without an error, and some more to place thresholds; there are {n} calibration "
            "data."
        )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    fewest = least / (n - placing)
    headroom = max(HEADROOM * alone / (n - placing), 2 * fewest)
    start = min(headroom, (1 + fewest) / 2)  # with few data, half-way between what could pass and all
    placed = values[order[:placing]].quantile(torch.linspace(start, 1, GRID, dtype=torch.float64))
    return torch.unique(placed), order[placing:]


def _words(found: tuple[int, int] | None, risk: float, confidence: float, n: int) -> str:
    if found is None:
        return (
            f"Gives no answer: {n} calibration data could not show, with confidence {confidence:.3g}, that any "
            f"threshold leaves at most {risk:.3g} of the answers wrong. Allow more risk, or bring more data."
        )
    e, k = found
    return (
        f"With confidence {confidence:.3g} over the draw of the calibration data, at most {risk:.3g} of the answers "
        f"given are wrong, for new data of the same distribution. Of {n} calibration data {k} were answered, {e} of "
        "them wrong."
    )
