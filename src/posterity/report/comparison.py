"""What a report is about, and how its scores are named, ranked and written."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from posterity.report.canvas import short


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

    def text(self, value: float | None) -> str:
        """The value as a reader wants it; a dash where there is none."""
        if value is None or not math.isfinite(value):
            return "–"
        if self.percent:
            return f"{100 * value:.2f} %"
        if value != 0 and not 1e-3 <= abs(value) < 1e5:
            return f"{value:.3g}"
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
        "NLL, calibrated", "surprise once confidence is rescaled: what is left of the NLL after that", detail=True
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
    ),
    "ensemble_equivalent": Score(
        "worth networks",
        "how many networks, trained apart, have the same calibrated NLL: 1 to as many as there were",
        goal=math.inf,
        detail=True,
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
        """The methods whose value of a score is best, as the table writes it; none without a contest."""
        goal = SCORES[score].goal
        found = {m: v for m in self.methods if (v := self.value(m, score)) is not None}
        if goal is None or len(found) < 2:
            return set()
        distance = {m: v if goal == -math.inf else -v if goal == math.inf else abs(v - goal) for m, v in found.items()}
        winner = min(distance, key=distance.__getitem__)
        written = SCORES[score].text(found[winner])
        return {m for m in found if distance[m] == distance[winner] or SCORES[score].text(found[m]) == written}

    def written(self, method: str, score: str) -> str:
        """Mean and, with several seeds, its standard error, as the table writes them."""
        value = self.value(method, score)
        text = SCORES[score].text(value)
        if value is None or self.seeds < 2 or SCORES[score].goal is None:
            return text
        number, unit = text.removesuffix(" %"), " %" if SCORES[score].percent else ""
        error = self.standard_error(method, score) * (100 if unit else 1)
        decimals = len(number.partition(".")[2])
        return f"{number} ± {f'{error:.2g}' if 'e' in number else f'{error:.{decimals}f}'}{unit}"
