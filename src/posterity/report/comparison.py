"""What a report is about, and how its scores are named, ranked and written."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posterity.report.canvas import short
from posterity.wording import number


@dataclass(frozen=True)
class Score:
    """How a score is shown, and which value of it is best."""

    label: str
    meaning: str
    goal: float | None = -math.inf
    """The value to be near: −∞ for the lower the better, ∞ for the higher; None where there is no best."""
    percent: bool = False
    detail: bool = False
    """Whether a short table leaves it out."""
    chance: float = -math.inf
    """What a coin would have: no more than that is never best."""
    source: str = ""
    """The score that it follows from, whose noise is its own."""

    def text(self, value: float | None) -> str:
        """The value as a reader wants it; a dash where there is none."""
        if value is None or not math.isfinite(value):
            return "–"
        if self.percent:
            return f"{100 * value:.2f} %"
        if value != 0 and not 1e-3 <= abs(value) < 1e3:
            return number(value, 4 if abs(value) > 1 else 3)
        decimals = max(0, 3 - math.floor(math.log10(abs(value)))) if abs(value) >= 1 else 4
        return f"{value:.{decimals}f}"


SCORES = {
    "error": Score("error", "the share of wrong answers", percent=True),
    "rmse": Score("RMSE", "the typical miss, in the target's units"),
    "nll": Score("NLL", "surprise at the truth: wrong and sure costs most"),
    "brier": Score("Brier", "squared distance between probabilities and truth"),
    "crps": Score("CRPS", "distance between the predicted distribution and the truth, in the target's units"),
    "ece": Score("ECE", "how far stated confidence is from the share that is right", percent=True),
    "coverage90": Score(
        "coverage 90 %", "how often the 90 % interval holds the truth: 90 % is right", goal=0.9, percent=True
    ),
    "nll_calibrated": Score(
        "NLL, calibrated",
        "NLL after temperature scaling, each row at a temperature that was fitted on other test rows (two halves, five "
        "times)",
        detail=True,
    ),
    "aurc": Score(
        "AURC", "errors among the answers kept, over all shares kept: lower ranks errors better", detail=True
    ),
    "interval_score90": Score(
        "interval score", "width of the 90 % interval, and a fine for every truth outside it", detail=True
    ),
    "auroc_outside": Score(
        "AUROC outside",
        "how well epistemic uncertainty tells unfamiliar data: 1 always, 0.5 never",
        goal=math.inf,
        chance=0.5,
    ),
    "ensemble_equivalent": Score(
        "worth networks",
        "how many networks, trained apart, have the same calibrated NLL: 1 to as many as there were",
        goal=math.inf,
        detail=True,
        source="nll_calibrated",
    ),
    "train_seconds": Score("training, s", "seconds of training", goal=None),
}
"""Every score a table may show, in its order."""

IGNORANCE = 1e-6
"""Less epistemic uncertainty than this is rounding."""

Values = Mapping[str, float | None]


@dataclass(frozen=True)
class Comparison:
    """The findings of one comparison, as `metrics.json` and the first seed's summaries hold them."""

    title: str
    task: str
    """`classification` or `regression`."""
    methods: Mapping[str, Values]
    """Per method, each score's mean over seeds, and its standard deviation as `<score>_std`."""
    seeds: int = 1
    data: Mapping[str, Any] = field(default_factory=dict)
    """What to say about the data, line by line."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How it was made: command, versions, machine, times."""
    summaries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per method, what `posterity.evaluation.summarise` says of the first seed."""
    losses: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    """Per method and score, what its mean is taken of: the loss of each test row or, with several seeds, the value of
    each seed; in the same order for all methods."""
    classes: tuple[str, ...] = ()
    target: str = "target"
    outside: str = "data from elsewhere"
    folder: str = "models/{method}"
    """Where a method's model lies beside the page."""
    images: Any = None
    """[batch, channels, height, width], the test inputs where they are images."""
    rows: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Of a table, the test rows that single predictions are shown of: their columns in words."""

    def scores(self, short: bool = False) -> list[str]:
        """The names of the scores that any method has, in the order of the table; a short one has the main ones."""
        shown = (name for name, score in SCORES.items() if not (short and score.detail))
        return [name for name in shown if any(name in values for values in self.methods.values())]

    def value(self, method: str, score: str) -> float | None:
        """One method's mean of a score; None where it is missing or not a number."""
        value = self.methods[method].get(score)
        return value if value is not None and math.isfinite(value) else None

    def ranked(self, score: str) -> list[str]:
        """The methods that have a score, the lowest value first."""
        found = {name: value for name in self.methods if (value := self.value(name, score)) is not None}
        return sorted(found, key=found.__getitem__)

    def shown(self, key: str) -> str | None:
        """The method whose single inputs are shown: the lowest NLL of those that know ignorance, or of all.

        Args:
            key: what its summary must hold
        """
        found = [name for name in [*self.ranked("nll"), *self.methods] if self.summaries.get(name, {}).get(key)]
        knowing = (m for m in found if self.summaries[m].get("uncertainty", {}).get("epistemic", 0.0) > IGNORANCE)
        return next(knowing, found[0] if found else None)

    def class_name(self, index: int) -> str:
        """The name of a class, cut where it is too long for a label."""
        return short(self.classes[index], 14) if index < len(self.classes) else str(index)

    def standard_error(self, method: str, score: str) -> float:
        """The standard error of that mean: the deviation over seeds over √seeds."""
        return (self.methods[method].get(f"{score}_std") or 0.0) / math.sqrt(max(1, self.seeds))

    def best(self, score: str) -> set[str]:
        """The methods that are best in a score, as far as can be told; none where that is all of them."""
        tied = set(self.tied(score))
        return tied if len(tied) < len(self.ranked(score)) else set()

    def tied(self, score: str) -> list[str]:
        """The best method in a score and those that cannot be told from it, in the table's order.

        They are written the same, or differ by no more than one standard error: of the paired differences between
        their losses or, where these are not at hand, of the difference of the means over seeds. So are all in between.
        None without a contest, and none that is no better than chance.
        """
        goal, chance = SCORES[score].goal, SCORES[score].chance
        found = {m: v for m in self.methods if (v := self.value(m, score)) is not None}
        if goal is None or len(found) < 2:
            return []
        distance = {
            m: v if goal == -math.inf else -v if goal == math.inf else abs(v - goal)
            for m, v in found.items()
            if v > chance
        }
        winner = min(distance, key=distance.__getitem__, default="")
        limit = max((distance[m] for m in distance if self._alike(m, winner, score)), default=math.inf)
        return [m for m in distance if distance[m] <= limit]

    def _alike(self, one: str, other: str, score: str) -> bool:
        """Whether chance explains the difference between two methods."""
        first, second = (self.value(method, score) for method in (one, other))
        if first is None or second is None or SCORES[score].text(first) == SCORES[score].text(second):
            return True
        pairs = [self.losses.get(method, {}).get(SCORES[score].source or score, ()) for method in (one, other)]
        if len(pairs[0]) == len(pairs[1]) > 1:
            gaps = np.subtract(pairs[0], pairs[1])
            # A single row that differs is just one standard error, which rounding must not decide.
            return bool(abs(gaps.mean()) <= (1 + 1e-9) * gaps.std(ddof=1) / math.sqrt(len(gaps)))
        return abs(first - second) <= math.hypot(*(self.standard_error(method, score) for method in (one, other)))

    def written(self, method: str, score: str) -> str:
        """Mean and, with several seeds, its standard error, as the table writes them."""
        value = self.value(method, score)
        text = SCORES[score].text(value)
        if value is None or self.seeds < 2 or SCORES[score].goal is None:
            return text
        shown, unit = text.removesuffix(" %"), " %" if SCORES[score].percent else ""
        error = self.standard_error(method, score) * (100 if unit else 1)
        decimals = 0 if "e" in shown else len(shown.partition(".")[2])
        return f"{shown} ± {f'{error:.{decimals}f}' if decimals else number(error, 2)}{unit}"
