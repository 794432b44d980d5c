"""The figures of a report, one function each: numbers in, a matplotlib figure out."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posterity.report.canvas import FAINT, INK, color, drawing, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (3.4, 2.9)
"""Inches of one of several small figures side by side."""

Summary = Mapping[str, Any]


def dots(
    title: str,
    names: Sequence[str],
    values: Sequence[float | None],
    errors: Sequence[float],
    goal: float | None = None,
    percent: bool = False,
) -> "Figure":
    """One dot a method with its standard error, and a line at the value to be near, where there is one."""
    with drawing(PANEL[0], 0.9 + 0.27 * len(names)) as (figure, axes):
        for row, (value, spread) in enumerate(zip(values, errors, strict=True)):
            if value is not None:
                axes.errorbar(value, row, xerr=spread or None, fmt="o", color=color(row), markersize=6, capsize=3)
        if goal is not None:
            axes.axvline(goal, color=INK, linestyle=":", linewidth=1.2)
        axes.set_yticks(range(len(names)), [short(name) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.margins(x=0.12)
        if percent:
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
        axes.locator_params(axis="x", nbins=4)
        axes.set_title(title)
    return figure


def reliability(summary: Summary, title: str, index: int = 0) -> "Figure":
    """Accuracy against confidence in bins; the diagonal is perfect. Opacity grows with a bin's share."""
    bins = summary["reliability"]
    confidence, accuracy, share = (np.array(bins[k]) for k in ("confidence", "accuracy", "share"))
    width = 1 / len(share)
    filled = share > 0
    with drawing(*PANEL) as (figure, axes):
        for left in np.flatnonzero(filled):
            alpha = 0.35 + 0.65 * float(np.sqrt(share[left] / share.max()))
            axes.bar(
                left * width,
                accuracy[left],
                width * 0.92,
                align="edge",
                color=color(index),
                alpha=alpha,
                linewidth=0,
            )
        axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.2)
        axes.plot(confidence[filled], accuracy[filled], "o", color=INK, markersize=3)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="share right")
        axes.set_title(short(title))
    return figure


def selection(summaries: Mapping[str, Summary], task: str, indices: Mapping[str, int]) -> "Figure":
    """Accuracy (classification) or RMSE (regression) of the answers kept, against the share kept."""
    with drawing() as (figure, axes):
        for name, summary in summaries.items():
            curve = summary["selection"]
            axes.plot(curve["fraction"], curve["kept"], color=color(indices[name]), label=short(name), linewidth=1.8)
        axes.set_xlabel("share of answers kept, the most certain first")
        axes.set_ylabel("accuracy of these" if task == "classification" else "RMSE of these")
        axes.set_xlim(0, 1.02)
        if task == "regression":
            axes.set_ylim(bottom=0)
        _legend(figure)
    return figure


def inside_outside(summary: Summary, title: str, task: str, outside: str, index: int = 0) -> "Figure":
    """Histograms of epistemic uncertainty for the test data and for data from elsewhere."""
    histogram = summary["outside"]
    edges = np.array(histogram["edges"])
    with drawing(*PANEL) as (figure, axes):
        axes.stairs(histogram["inside"], edges, fill=True, color=color(index), alpha=0.55, label="test data")
        axes.stairs(histogram["outside"], edges, color=INK, linewidth=1.4, label=short(outside))
        unit = "nats" if task == "classification" else "standard deviation"
        axes.set(xlabel=f"epistemic ({unit})", ylabel="share of data", xlim=(edges[0], edges[-1]))
        axes.locator_params(axis="x", nbins=4)
        _legend(figure)
        axes.set_title(f"{short(title)} – AUROC {histogram['auroc_epistemic']:.3f}")
    return figure


def coverage(summaries: Mapping[str, Summary], indices: Mapping[str, int]) -> "Figure":
    """How often the interval of each level holds the truth; the diagonal is perfect."""
    with drawing() as (figure, axes):
        axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.2)
        for name, summary in summaries.items():
            curve = summary["coverage"]
            axes.plot(
                curve["level"],
                curve["observed"],
                color=color(indices[name]),
                label=short(name),
                linewidth=1.8,
            )
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="level of the interval", ylabel="share of truths inside")
        _legend(figure)
    return figure


def predicted_true(summary: Summary, title: str, target: str, index: int = 0) -> "Figure":
    """Predicted mean and 90 % interval against the true value, for a sample of the test data."""
    points = {name: np.array(values) for name, values in summary["points"].items()}
    true, mean = points["true"], points["mean"]
    with drawing(*PANEL) as (figure, axes):
        axes.vlines(true, points["low"], points["high"], color=color(index), alpha=0.3, linewidth=1.2)
        axes.plot(true, mean, "o", color=color(index), markersize=2.5)
        ends = [float(true.min()), float(true.max())]
        axes.plot(ends, ends, color=INK, linestyle=":", linewidth=1.2)
        axes.set(xlabel=f"true {short(target)}", ylabel="predicted")
        axes.locator_params(nbins=4)
        axes.set_title(short(title))
    return figure


def strip(images: Sequence[Any], captions: Sequence[str], title: str) -> "Figure":
    """Images [channels, height, width] in rows of four, each scaled to its own range, captions below."""
    columns = 4
    rows = max(1, -(-len(images) // columns))
    with drawing(4.4, 0.4 + 1.35 * rows) as (figure, first):
        first.remove()
        for place, (image, caption) in enumerate(zip(images, captions, strict=True)):
            axes = figure.add_subplot(rows, columns, place + 1)
            axes.imshow(_picture(image), cmap="gray", interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            for spine in axes.spines.values():
                spine.set(visible=True, edgecolor=FAINT)
            axes.set_xlabel(caption, fontsize=8)
        figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def _picture(image: Any) -> Any:
    """[channels, height, width] to [height, width, 3] or [height, width], between 0 and 1."""
    pixels = np.asarray(image, dtype=np.float64)
    pixels = pixels.transpose(1, 2, 0) if pixels.shape[0] == 3 else pixels.mean(axis=0)
    low, high = float(pixels.min()), float(pixels.max())
    return (pixels - low) / (high - low or 1.0)


def _legend(figure: "Figure") -> None:
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
