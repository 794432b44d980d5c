"""The figures of a report, one function each: numbers in, a matplotlib figure out."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posterity.report.canvas import FAINT, INK, color, described, drawing, picture, short
from posterity.wording import number

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
    numbers = (f"{name} {'–' if value is None else number(value)}" for name, value in zip(names, values, strict=True))
    return described(figure, f"{title} of each method: {', '.join(numbers)}.")


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
    pairs = (f"{c:.2f} sure, {a:.2f} right" for c, a in zip(confidence[filled], accuracy[filled], strict=True))
    return described(figure, f"Reliability of {title}, from the least confident answers: {'; '.join(pairs)}.")


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
    what = "Accuracy" if task == "classification" else "RMSE"
    kept = {name: summary["selection"]["kept"] for name, summary in summaries.items()}
    ends = (
        f"{name} from {number(curve[-1])} to {number(curve[(len(curve) - 1) // 2])}" for name, curve in kept.items()
    )
    return described(figure, f"{what} of the answers kept, from all of them to the surer half: {', '.join(ends)}.")


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
    return described(
        figure,
        f"Epistemic uncertainty of {title}: on average {number(histogram['epistemic_inside'], 3)} for test data and "
        f"{number(histogram['epistemic_outside'], 3)} for {outside}; AUROC {histogram['auroc_epistemic']:.3f}.",
    )


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
    held = (
        f"{name} {np.interp(0.5, s['coverage']['level'], s['coverage']['observed']):.2f} and "
        f"{np.interp(0.9, s['coverage']['level'], s['coverage']['observed']):.2f}"
        for name, s in summaries.items()
    )
    return described(figure, f"Share of truths inside intervals of level 0.5 and 0.9: {', '.join(held)}.")


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
    inside = float(np.mean((points["low"] <= true) & (true <= points["high"])))
    off = number(float(np.abs(true - mean).mean()), 3)
    return described(
        figure,
        f"Predictions of {title} against the truth for {len(true)} test data: off by {off} on average, with "
        f"{inside:.0%} of the truths inside the 90 % intervals.",
    )


def strip(images: Sequence[Any], captions: Sequence[str], title: str) -> "Figure":
    """Images [channels, height, width] in rows of four, each scaled to its own range, captions below."""
    columns = 4
    rows = max(1, -(-len(images) // columns))
    with drawing(4.4, 0.4 + 1.35 * rows) as (figure, first):
        first.remove()
        for place, (image, caption) in enumerate(zip(images, captions, strict=True)):
            axes = figure.add_subplot(rows, columns, place + 1)
            axes.imshow(picture(image), cmap="gray", interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            for spine in axes.spines.values():
                spine.set(visible=True, edgecolor=FAINT)
            axes.set_xlabel(caption, fontsize=8)
        figure.suptitle(title, fontsize=11, fontweight="bold")
    return described(figure, f"{title}: {', '.join(captions)}.")


def training(summaries: Mapping[str, Summary], indices: Mapping[str, int]) -> "Figure":
    """The negative log-likelihood of the training data over the course of training, and of rows held out (dashed)."""
    with drawing() as (figure, axes):
        for name, summary in summaries.items():
            curve, hue = summary["history"], color(indices[name])
            axes.plot(curve["epoch"], curve["nll"], color=hue, label=short(name), linewidth=1.6)
            if "kept" in curve:
                axes.plot(
                    curve.get("validation_epoch", curve["epoch"]), curve["validation"], "--", color=hue, linewidth=0.9
                )
                axes.plot(*curve["kept"], "o", color=hue)
        axes.set(xlabel="epoch", ylabel="negative log-likelihood (nats per datum)")
        _legend(figure)
    ends = (
        f"{n} from {number(s['history']['nll'][0], 3)} to {number(s['history']['nll'][-1], 3)}"
        for n, s in summaries.items()
    )
    kept = [f"{n} {s['history']['kept'][0]}" for n, s in summaries.items() if "kept" in s["history"]]
    return described(
        figure,
        f"Negative log-likelihood of the training data, first to last epoch: {', '.join(ends)}.",
        f"Kept, as the best on rows held out, was the epoch of {', '.join(kept)}." if kept else "",
    )


def stress(
    curves: Mapping[str, Sequence[Mapping[str, float]]],
    task: str,
    indices: Mapping[str, int],
    best: str,
    title: str,
    axis: str,
) -> "Figure":
    """Accuracy or RMSE of every method as inputs get worse, and beside it the two parts of one method's uncertainty."""
    key, what = ("error", "accuracy") if task == "classification" else ("rmse", "RMSE")
    with drawing(4.9, 3.0) as (figure, first):
        first.remove()
        left, right = figure.subplots(1, 2)
        for name, curve in curves.items():
            heights = [1 - line[key] if key == "error" else line[key] for line in curve]
            left.plot(
                [line["strength"] for line in curve],
                heights,
                "o-",
                markersize=3,
                color=color(indices[name]),
                label=short(name),
            )
        strengths = [line["strength"] for line in curves[best]]
        parts = {part: np.array([line[part] for line in curves[best]]) for part in ("aleatoric", "epistemic")}
        below = np.zeros(len(strengths))
        for (part, values), alpha in zip(parts.items(), (0.3, 0.75), strict=True):
            right.fill_between(
                strengths, below, below + values, color=color(indices[best]), alpha=alpha, linewidth=0, label=part
            )
            below = below + values
        left.set(xlabel=axis, ylabel=what)
        left.set_ylim(bottom=0)
        if task == "classification":
            left.set_ylim(0, 1.02)
        right.set(xlabel=axis, ylabel="nats" if task == "classification" else "variance", ylim=(0, None))
        right.margins(x=0)
        right.set_title(f"{short(best, 14)} is unsure")
        left.set_title(title)
        for axes in (left, right):
            axes.locator_params(axis="x", nbins=5)
        _legend(figure)
    first_last = (f"{name} from {_end(curve, key, 0)} to {_end(curve, key, -1)}" for name, curve in curves.items())
    return described(
        figure,
        f"{title}: {what} from none of it to the most, {', '.join(first_last)}.",
        f"Meanwhile the uncertainty of {best} goes from {number(parts['aleatoric'][0] + parts['epistemic'][0], 3)} to "
        f"{number(parts['aleatoric'][-1] + parts['epistemic'][-1], 3)}.",
    )


def _end(curve: Sequence[Mapping[str, float]], key: str, place: int) -> str:
    value = curve[place][key]
    return number(1 - value if key == "error" else value, 3)


def _legend(figure: "Figure") -> None:
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
