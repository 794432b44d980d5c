"""What a report is about, and how its scores are named, ranked and written."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posterity.evaluation.differences import LEVEL, Design, Difference, Samples, difference, leaders, student_quantile
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
    evidence: tuple[str, ...] = ()
    """What tells a difference from chance, each of it, where that is not what rows add to the score itself."""

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
    "ece": Score(
        "ECE",
        "how far stated confidence is from the share that is right",
        percent=True,
        evidence=("ece", "ece_corrected"),
    ),
    "coverage90": Score(
        "coverage 90 %",
        "how often the 90 % interval holds the truth: 90 % is right",
        goal=0.9,
        percent=True,
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
        evidence=("nll_calibrated",),
    ),
    "train_seconds": Score("training, s", "seconds of training", goal=None),
}
"""Every score a table may show, in its order."""

IGNORANCE = 1e-6
"""Less epistemic uncertainty than this is rounding."""
CHANCE = ""
"""Stands for a coin among the methods of a comparison."""

Values = Mapping[str, float | None]
Evidence = Mapping[str, Mapping[str, Mapping[int, Samples]]]


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
    evidence: Evidence = field(default_factory=dict)
    """Per method, score and seed, the samples that `posterity.evaluation.evidence` has of it."""
    design: Design = field(default_factory=Design)
    """How the rows of several seeds hang together."""
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

    @property
    def about(self) -> str:
        """What is compared: with one seed no more than the networks that were trained, else the methods."""
        return "methods" if self.seeds > 1 else "trained networks"

    def best(self, score: str) -> set[str]:
        """The methods that are best in a score, as far as can be told; none where that is all of them."""
        tied = set(self.tied(score))
        return tied if len(tied) < len(self.ranked(score)) else set()

    def tied(self, score: str) -> list[str]:
        """The best method in a score and those that cannot be told from it, in the table's order.

        Equal methods are told apart in at most 5 % of comparisons (see `posterity.evaluation.differences`): by the
        differences of each row and between seeds or, without these, between the means of several seeds. What is written
        the same cannot be told apart, nor what is between two that cannot. None without a contest, and none that is not
        better than chance.
        """
        goal, chance = SCORES[score].goal, SCORES[score].chance
        found = {m: v for m in self.methods if (v := self.value(m, score)) is not None}
        if goal is None or len(found) < 2:
            return []
        distance = {m: v if goal == -math.inf else -v if goal == math.inf else abs(v - goal) for m, v in found.items()}
        contest = distance if chance == -math.inf else distance | {CHANCE: -chance}
        ranked = sorted(contest, key=contest.__getitem__)
        kept = leaders(ranked, lambda one, other, level: self.differ(one, other, score, level))
        if CHANCE in kept:
            return []
        limit = max(distance[m] for m in kept)
        return [m for m in distance if distance[m] <= limit]

    def differ(self, better: str, worse: str, score: str, level: float = LEVEL) -> bool:
        """Whether the second method is worse than the first in a score, tested two-sided at a level."""
        values = [SCORES[score].chance if method == CHANCE else self.value(method, score) for method in (better, worse)]
        first, second = values
        if first is None or second is None or SCORES[score].text(first) == SCORES[score].text(second):
            return False
        found = [self.difference(better, worse, name) for name in SCORES[score].evidence or (score,)]
        if None not in found:
            return all(each is not None and each.gap > each.half_width(level) for each in found)
        if self.seeds < 2:
            return False
        error = math.hypot(*(self.standard_error(method, score) for method in (better, worse) if method != CHANCE))
        return abs(first - second) > student_quantile(level, self.seeds - 1) * error

    def difference(self, first: str, second: str, name: str) -> Difference | None:
        """By how much the second method is worse than the first, by the evidence of that name; None without.

        Of several seeds it takes those that both methods have, and at least two.
        """
        one, other = (self.evidence.get(method, {}).get(name, {}) for method in (first, second))
        if CHANCE in (first, second):
            known = other if first == CHANCE else one
            level = {seed: [np.full(len(rows), 1 - SCORES[name].chance) for rows in known[seed]] for seed in known}
            one, other = (level, other) if first == CHANCE else (one, level)
        seeds = [seed for seed in one if seed in other]
        if len(seeds) < min(2, self.seeds):
            return None
        ours, theirs = ([found[seed] for seed in seeds] for found in (one, other))
        if any([len(a) for a in x] != [len(b) for b in y] for x, y in zip(ours, theirs, strict=True)):
            return None
        return difference(ours, theirs, self.design)

    def written(self, method: str, score: str) -> str:
        """Mean and, with several seeds, its standard error, as the table writes them."""
        value = self.value(method, score)
        text = SCORES[score].text(value)
        if value is None or self.methods[method].get(f"{score}_std") is None or SCORES[score].goal is None:
            return text
        shown, unit = text.removesuffix(" %"), " %" if SCORES[score].percent else ""
        error = self.standard_error(method, score) * (100 if unit else 1)
        decimals = 0 if "e" in shown else len(shown.partition(".")[2])
        return f"{shown} ± {f'{error:.{decimals}f}' if decimals else number(error, 2)}{unit}"
