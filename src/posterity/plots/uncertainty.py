"""What uncertainty is good for: to tell data from elsewhere, and to know which answers to keep."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from posterity import evaluation
from posterity.errors import Error
from posterity.evaluation.positions import is_regression, per_datum, uncertainty
from posterity.plots.common import (
    Predictions,
    classes,
    layout,
    legend,
    listing,
    named,
    panels,
    targets,
)
from posterity.posterior import count, one_of
from posterity.prediction import PARTS
from posterity.report.canvas import INK, color, described, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST = 0.02
"""The share of answers where a risk-coverage curve starts: the mean of fewer is mostly chance."""
POINTS = 500
"""How many points a risk-coverage curve has at most."""


def entropies(
    inside: Predictions,
    outside: Predictions,
    *,
    part: str = "total",
    bins: int = 30,
    labels: tuple[str, str] = ("inside", "outside"),
) -> "Figure":
    """Histograms of predictive uncertainty for data like those trained on and for data from elsewhere.

    For classes it is in nats: `total` is the entropy of the mean probabilities. For real numbers it is a standard
    deviation, and the highest 1 % count in the last bin. What one datum holds (pixels, outputs) is averaged. The title
    gives the AUROC: the chance that a datum from outside is the more uncertain one.

    Args:
        inside: the prediction of data like those trained on, or several by name, which become panels
        outside: the prediction of other data, or several by the same names
        part: "total", "aleatoric" or "epistemic"
        bins: of equal width
        labels: what to call the two kinds of data
    """
    one_of(part, PARTS, "part")
    count(bins, "bins")
    near, far = named(inside), named(outside)
    if list(near) != list(far):
        raise Error("inside and outside must be two predictions, or have the same names in the same order.")
    named({"inside": next(iter(near.values())), "outside": next(iter(far.values()))})
    regression = is_regression(next(iter(near.values())))
    pairs = {name: (_shown(near[name], part), _shown(far[name], part)) for name in near}
    edges = _edges([values for pair in pairs.values() for values in pair], bins, regression)
    rows, columns = layout(len(pairs))
    found = {}
    size = (max(4.4, 3.2 * columns), 0.5 + 2.8 * rows)
    with panels(rows, columns, *size, sharex=True, sharey=True) as (figure, grid):
        for place, (axes, (name, pair)) in enumerate(zip(grid.flat, pairs.items(), strict=False)):
            ours, theirs = (_shares(values, edges) for values in pair)
            found[name] = f"{evaluation.auroc(*pair):.3f}"
            axes.stairs(ours, edges, fill=True, color=color(place), alpha=0.55, label=short(labels[0]))
            axes.stairs(theirs, edges, color=INK, linewidth=1.4, label=short(labels[1]))
            axes.set(xlim=(edges[0], edges[-1]), xlabel=_unit(part, regression))
            axes.tick_params(labelbottom=True)
            axes.set_title(f"{short(name, 14)} – AUROC {found[name]}" if name else f"AUROC {found[name]}")
        for row in grid:
            row[0].set_ylabel("share of data")
        for axes in grid.flat[len(pairs) :]:
            axes.remove()
        legend(figure)
    means = {name: " and ".join(f"{float(values.mean()):.3g}" for values in pair) for name, pair in pairs.items()}
    return described(
        figure,
        f"Histograms of {_unit(part, regression)} for {labels[0]} and {labels[1]} data.",
        f"AUROC: {listing(found)}. Means for {labels[0]} and {labels[1]}: {listing(means)}.",
    )


def risk_coverage(predictions: Predictions, y: Any, *, part: str = "total") -> "Figure":
    """The risk of the answers kept against the share kept, the most certain first; lower is better.

    The risk is the share of wrong answers, or for real numbers the RMSE. Answers of equal uncertainty count with their
    mean risk, as in `evaluation.selective_mean`.

    Args:
        predictions: one, or several by name
        y: the true answers: class indices [batch, ...] or real numbers [batch, outputs]
        part: which uncertainty puts answers in order: "total", "aleatoric" or "epistemic"
    """
    found = named(predictions)
    one_of(part, PARTS, "part")
    regression = is_regression(next(iter(found.values())))
    ends = {}
    with panels(1, 1, 5.6, 3.6) as (figure, grid):
        axes = grid[0, 0]
        for place, (name, prediction) in enumerate(found.items()):
            loss, doubt = _losses(prediction, y, part)
            shares = _coverages(len(loss))
            risk = evaluation.selective_mean(loss, doubt, shares)
            risk = risk.sqrt() if regression else risk
            axes.plot(shares, risk, color=color(place), linewidth=1.8, label=short(name))
            half = int((shares - 0.5).abs().argmin())
            ends[name] = f"{float(risk[half]):.3g} and {float(risk[-1]):.3g}"
        axes.set_xlabel("coverage: share of answers kept, the most certain first")
        axes.set_ylabel("RMSE of these" if regression else "share of these that is wrong")
        axes.set_xlim(0, 1.02)
        axes.set_ylim(bottom=0)
        if len(found) > 1:
            legend(figure)
    return described(
        figure,
        f"Risk-coverage curve, answers in order of {part} uncertainty.",
        f"{'RMSE' if regression else 'Share of wrong answers'} at half coverage and at full: {listing(ends)}.",
    )


def _shown(prediction: Any, part: str) -> Tensor:
    """What the histogram sorts, [batch]."""
    values = per_datum(uncertainty(prediction, part))
    return values.sqrt() if is_regression(prediction) else values


def _unit(part: str, regression: bool) -> str:
    if regression:
        return f"{part} standard deviation"
    return "predictive entropy (nats)" if part == "total" else f"{part} uncertainty (nats)"


def _edges(values: list[Tensor], bins: int, regression: bool) -> Any:
    together = torch.cat(values)
    # Entropies have an upper bound; of deviations a few far out would leave everything else in one bin.
    top = float(np.quantile(together.numpy(), 0.99)) if regression else float(together.max())
    return np.linspace(0, top if top > 0 and math.isfinite(top) else 1.0, bins + 1)


def _shares(values: Tensor, edges: Any) -> Any:
    counts, _ = np.histogram(values.clamp(max=float(edges[-1])).numpy(), bins=edges)
    return counts / len(values)


def _losses(prediction: Any, y: Any, part: str) -> tuple[Tensor, Tensor]:
    """The loss of each answer and its uncertainty: [positions] of classes, or [batch] of real numbers."""
    if is_regression(prediction):
        squares = (prediction.mean.double() - targets(prediction, y).double()).square()
        return per_datum(squares), per_datum(uncertainty(prediction, part))
    probs, index, seen = classes(prediction, y)
    return (probs.argmax(dim=1) != index).double(), uncertainty(prediction, part)[seen]


def _coverages(n: int) -> Tensor:
    """Shares k/n to look at, from a few answers to all of them."""
    first = max(1, math.ceil(FEWEST * n))
    return torch.linspace(first, n, min(POINTS, n - first + 1), dtype=torch.float64).round() / n
