"""Whether probabilities and intervals come true as often as they say."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posterity import evaluation
from posterity.evaluation.intervals import LEVELS, checked
from posterity.plots.common import Predictions, classes, layout, listing, named, only, panels, targets
from posterity.posterior import count
from posterity.report import plots as report
from posterity.report.canvas import INK, color, described, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reliability(predictions: Predictions, y: Any, *, bins: int = 15) -> "Figure":
    """Share of right answers against confidence, and below it how many answers each bin holds; the diagonal is best.

    Args:
        predictions: of classes, [batch, classes, ...]; one, or several by name, which become panels
        y: class indices, [batch, ...]; what is not observed is left out
        bins: of equal width, as in `evaluation.reliability`

    Example:
        >>> import posterity, torch
        >>> prediction = posterity.predict(posterity.MAP(torch.nn.Linear(2, 3)), torch.randn(60, 2))
        >>> figure = posterity.plots.reliability(prediction, torch.arange(60) % 3)
        >>> figure.get_label().partition(":")[0]
        'Reliability diagram'
        >>> figure.savefig("reliability.svg")
    """
    found = named(predictions)
    only(False, found, "A reliability diagram")
    count(bins, "bins")
    rows, columns = layout(len(found))
    errors = {}
    size = (max(4.0, 3.1 * columns), 3.7 * rows)
    with panels(2 * rows, columns, *size, height_ratios=[3, 1] * rows, sharex=True) as (figure, grid):
        for place, (name, prediction) in enumerate(found.items()):
            row, column = divmod(place, columns)
            probs, index, _ = classes(prediction, y)
            upper, lower = grid[2 * row : 2 * row + 2, column]
            _bars(upper, lower, evaluation.reliability(probs, index, bins), len(index), place)
            gap = evaluation.ece(probs, index, bins)
            errors[name] = f"{gap:.3f}"
            upper.set_title(f"{short(name, 16)} – ECE {gap:.3f}" if name else f"ECE {gap:.3f}")
            if not column:
                upper.set_ylabel("share right")
                lower.set_ylabel("answers")
        for axes in grid.T.reshape(columns, rows, 2).swapaxes(0, 1).reshape(-1, 2)[len(found) :].flat:
            axes.remove()
    return described(
        figure,
        f"Reliability diagram: the share of right answers against confidence in {bins} bins,",
        f"with the number of answers in each. Expected calibration error: {listing(errors)}.",
    )


def _bars(upper: Any, lower: Any, found: evaluation.Reliability, total: int, place: int) -> None:
    """The accuracy of each bin with its mean confidence as a dot, and its count."""
    width = 1 / len(found.share)
    filled = found.share > 0
    left = (torch.arange(len(found.share))[filled] * width).tolist()
    confidence, accuracy = found.confidence[filled].tolist(), found.accuracy[filled].tolist()
    counts = (found.share[filled] * total).round().tolist()
    style = {"align": "edge", "color": color(place), "linewidth": 0}
    upper.bar(left, accuracy, 0.92 * width, alpha=0.75, **style)
    upper.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.2)
    upper.plot(confidence, accuracy, "o", color=INK, markersize=3)
    upper.set(xlim=(0, 1), ylim=(0, 1.02))
    lower.bar(left, counts, 0.92 * width, **style)
    lower.set_xlabel("confidence")
    lower.tick_params(labelbottom=True)
    lower.locator_params(axis="y", nbins=3, integer=True)


def interval_calibration(predictions: Predictions, y: Any, *, levels: Tensor = LEVELS) -> "Figure":
    """How often the central interval of each level holds the truth; the diagonal is best, below it is too sure.

    Args:
        predictions: of real numbers, [batch, outputs]; one, or several by name
        y: true values, [batch, outputs]
        levels: [levels], each between 0 and 1
    """
    found = named(predictions)
    only(True, found, "A diagram of intervals")
    levels = checked(levels)
    curves, gaps = {}, {}
    for name, prediction in found.items():
        share = evaluation.interval_coverage(prediction, targets(prediction, y), levels)
        curves[name] = {"coverage": {"level": levels.tolist(), "observed": share.tolist()}}
        gaps[name] = f"{float((share - levels).abs().mean()):.3f}"
    shown = {name or "prediction": curve for name, curve in curves.items()}
    figure = report.coverage(shown, {name: place for place, name in enumerate(shown)})
    if len(found) == 1:
        for box in list(figure.legends):
            box.remove()
    return described(
        figure,
        "Interval calibration: the share of true values inside the central interval, against the interval's level.",
        f"Mean distance from the diagonal: {listing(gaps)}.",
    )
