"""The page's sections. To add one, write a function from a comparison to a section and list it below."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posterity.evaluation.robustness import DRAWS, ROWS
from posterity.report import plots
from posterity.report.canvas import short
from posterity.report.comparison import SCORES, Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Section:
    """A heading, figures (side by side where there is room), and what they mean in plain words."""

    title: str
    figures: "list[Figure]"
    words: str


def scores(comparison: Comparison) -> Section | None:
    """Every score that can be won, one small figure each."""
    names = list(comparison.methods)
    ranked = [score for score in comparison.scores() if SCORES[score].goal is not None]
    if len(names) < 2 or not ranked:
        return None
    figures = []
    for score in ranked:
        values = [comparison.value(name, score) for name in names]
        errors = [comparison.standard_error(name, score) for name in names]
        goal = SCORES[score].goal
        target = goal if goal is not None and abs(goal) < 1 else None
        figures.append(plots.dots(SCORES[score].label, names, values, errors, target, SCORES[score].percent))
    exceptions = [
        text
        for score, text in {
            "coverage90": "coverage, which should lie on the dotted line",
            "auroc_outside": "AUROC, where further right is better",
            "ensemble_equivalent": "what it is worth in networks, where further right is better",
        }.items()
        if score in ranked
    ]
    aim = "Further left is better" + (f", except for {' and '.join(exceptions)}" if exceptions else "")
    whiskers = (
        f"The whiskers are standard errors over {comparison.seeds} seeds, of each method by itself; which differences "
        "are more than chance, the ★ of the table says, by the rows and seeds that the methods share."
        if comparison.seeds > 1
        else "There was one seed, so nothing here says how much is the luck of one training: run with --seeds 5 to see."
    )
    return Section("The methods side by side", figures, f"{aim}. {whiskers}")


def reliability(comparison: Comparison) -> Section | None:
    """Reliability diagrams, one a method."""
    found = _with(comparison, "reliability")
    figures = [plots.reliability(s, name, _place(comparison, name)) for name, s in found.items()]
    return _section(
        "Can the confidence be believed?",
        figures,
        "Answers are sorted by how sure the method was; each bar shows which share of them was right. On the "
        "dotted line, 80 % sure means right 80 % of the time. Bars under the line are overconfident, bars "
        "above it too modest, as far as they stand for many answers: the stronger a bar's colour, the more. Those of "
        f"few answers jump by chance alone{_chance(comparison, found)}.",
    )


def _chance(comparison: Comparison, found: Mapping[str, Any]) -> str:
    """How large the ECE of calibrated confidences would be on the same rows."""
    limits = [limit for name in found if (limit := comparison.value(name, "ece_limit")) is not None]
    if not limits:
        return ""
    most = SCORES["ece"].text(max(limits))
    return f": even calibrated confidences would have an ECE of up to {most} on so many rows, in 95 of 100 cases"


def coverage(comparison: Comparison) -> Section | None:
    """Observed against nominal coverage."""
    found = _with(comparison, "coverage")
    if not found:
        return None
    figure = plots.coverage(found, _places(comparison))
    return Section(
        "Are the intervals as wide as they should be?",
        [figure],
        "An interval of level 0.9 should hold the truth nine times in ten. On the dotted line every interval "
        "keeps its promise; under it they are too narrow (overconfident), above it wider than needed, where that is "
        f"more than chance{_chance_of_intervals(comparison, found)}.",
    )


def _chance_of_intervals(comparison: Comparison, found: Mapping[str, Any]) -> str:
    """What right intervals would hold of the same rows."""
    ends = [comparison.value(name, f"coverage90_{end}") for name in found for end in ("low", "high")][:2]
    if not ends or None in ends:
        return ""
    low, high = map(SCORES["coverage90"].text, ends)
    return f": right intervals of level 0.9 hold {low} to {high} of so many rows, in 95 of 100 cases"


def predicted_true(comparison: Comparison) -> Section | None:
    """Predicted against true, one panel a method."""
    found = _with(comparison, "points")
    figures = [plots.predicted_true(s, name, comparison.target, _place(comparison, name)) for name, s in found.items()]
    return _section(
        "Predictions with their intervals",
        figures,
        "Each dot is one test datum, each line its 90 % interval. Good predictions lie along the dotted "
        "line, and the lines should cross it nine times in ten: long where the dot is off, short elsewhere.",
    )


def selection(comparison: Comparison) -> Section | None:
    """What abstaining gains."""
    found = _with(comparison, "selection")
    if not found:
        return None
    figure = plots.selection(found, comparison.task, _places(comparison))
    better = "rises" if comparison.task == "classification" else "falls"
    return Section(
        "What is gained by saying “I don't know”?",
        [figure],
        "From right to left, the method withholds more and more of the answers it is least certain of. If "
        f"its uncertainty knows where the mistakes are, the line {better} steadily to the left; a flat line "
        "means that it does not.",
    )


def inside_outside(comparison: Comparison) -> Section | None:
    """Uncertainty inside and outside the data."""
    found = _with(comparison, "outside")
    figures = [
        plots.inside_outside(s, name, comparison.task, comparison.outside, _place(comparison, name))
        for name, s in found.items()
    ]
    return _section(
        "Does it notice data unlike any it has seen?",
        figures,
        "Epistemic uncertainty is what more data would remove, so it should be low for test data (filled) "
        f"and high for {comparison.outside} (outline). The less the two overlap, the better; AUROC is the "
        "chance that a datum from elsewhere is the more uncertain of two. A single network without posterior "
        "has no epistemic uncertainty at all, and stays at 0.5.",
    )


def extremes(comparison: Comparison) -> Section | None:
    """The most and the least certain images of the best method."""
    best = comparison.shown("extremes")
    if comparison.images is None or best is None:
        return None
    chosen = comparison.summaries[best]["extremes"]
    half = len(chosen["index"]) // 2
    captions = [
        f"{comparison.class_name(said)}" + ("" if said == true else f" (is {comparison.class_name(true)})")
        for said, true in zip(chosen["predicted"], chosen["true"], strict=True)
    ]
    pictures = [comparison.images[index] for index in chosen["index"]]
    return Section(
        "What it is sure of, and what not",
        [
            plots.strip(pictures[:half], captions[:half], f"{short(best)}: most certain"),
            plots.strip(pictures[half:], captions[half:], f"{short(best)}: least certain"),
        ],
        f"The test images of which {best} is most and least certain, with its answer under each, and the "
        "truth in brackets where it was wrong. Doubtful images should look doubtful to you, too.",
    )


STRESSES = {
    "noise": ("Noise mixed in", "share of noise"),
    "rotation": ("Rotation", "degrees"),
    "corruption": ("Common corruptions", "severity"),
    "attack": ("Attack", "largest change"),
}
"""Titles and axes of the curves of `evaluation.robustness`."""


def stress(comparison: Comparison) -> Section | None:
    """Accuracy and uncertainty as the inputs get worse."""
    found, best = _with(comparison, "stress"), comparison.shown("stress")
    if best is None:
        return None
    figures = []
    for kind, (title, axis) in STRESSES.items():
        curves = {name: s["stress"][kind] for name, s in found.items() if s["stress"].get(kind)}
        if best in curves:
            figures.append(plots.stress(curves, comparison.task, _places(comparison), best, title, axis))
    return _section(
        "What happens when the inputs get worse?",
        figures,
        "Each method will fail at some point; the honest ones grow uncertain as they do. Left, how good the answers "
        f"still are; right, how the uncertainty of {best} grows, split into noise (aleatoric) and ignorance "
        "(epistemic). An attack changes every input by at most the given amount (of a pixel between 0 and 1, or of a "
        f"column's standard deviation) in the direction that hurts most. From {ROWS} test rows, drawn at random with "
        f"each class, or each part of the target's range, in its share, and {DRAWS} draws, or as many as there are: "
        "without any change the scores are those of the table up to chance.",
    )


def training(comparison: Comparison) -> Section | None:
    """The training curves."""
    found = {name: s for name, s in _with(comparison, "history").items() if s["history"]["nll"]}
    kept = any("kept" in summary["history"] for summary in found.values())
    held_out = "; dashed, at rows held out, with a dot at the epoch that was kept" if kept else ""
    return _section(
        "How the training went",
        [plots.training(found, _places(comparison))] if found else [],
        f"How surprised each method is at its training data, epoch by epoch{held_out}. Curves that still fall at the "
        "end ask for more epochs; one that jumps about asks for a lower learning rate.",
    )


SECTIONS: tuple[Callable[[Comparison], Section | None], ...] = (
    scores,
    reliability,
    coverage,
    predicted_true,
    selection,
    inside_outside,
    stress,
    training,
    extremes,
)
"""In the order of the page; a function returns None where its figure does not apply."""


def _with(comparison: Comparison, key: str) -> dict[str, Mapping[str, Any]]:
    """The summaries that hold a key, in the methods' order."""
    return {m: comparison.summaries[m] for m in comparison.methods if key in comparison.summaries.get(m, {})}


def _places(comparison: Comparison) -> dict[str, int]:
    return {name: index for index, name in enumerate(comparison.methods)}


def _place(comparison: Comparison, name: str) -> int:
    return _places(comparison)[name]


def _section(title: str, figures: "list[Figure]", words: str) -> Section | None:
    return Section(title, figures, words) if figures else None
