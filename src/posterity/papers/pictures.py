"""The pictures of the papers' numbers; each function returns a figure with a description in words."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posterity.papers.bbh_cells import METHODS, PROTOCOLS
from posterity.plots.common import legend, listing, panels
from posterity.plots.stress import Stress, keys, stack
from posterity.report.canvas import FAINT, INK, color, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scores = Mapping[str, Mapping[str, Any]]
#: Kinds of noise, as axes name them.
NOISES = {"Gaussian": "share of Gaussian noise", "salt and pepper": "share of salt, and of pepper"}
#: How the slides, and the networks trained by each protocol, are marked.
MARKS = {"slides": "o", "published": "o", "fair": "s"}
OPEN = {"marker": "o", "color": "white", "markeredgecolor": INK, "linestyle": "", "markersize": 6}


def scores_by_method(found: Mapping[str, Scores], known: Mapping[str, Any], labels: Mapping[str, str]) -> "Figure":
    """A panel for each score and place; dots are ours, circles what was published."""
    scores, places = list(labels), list(found)
    with panels(len(scores), max(1, len(places)), 3.3 * max(2, len(places)), 2.3 * len(scores), sharex="col") as (
        figure,
        grid,
    ):
        for column, place in enumerate(places):
            methods = list(dict.fromkeys([*known[place], *found[place]]))
            for row, score in enumerate(scores):
                axes, factor = grid[row][column], 100 if score == "error" else 1
                for at, method in enumerate(methods):
                    if method in known[place]:
                        mean, deviation = known[place][method][row]
                        axes.errorbar(at, mean, deviation, ecolor=INK, label="published", zorder=3, **OPEN)
                    if method in found[place]:
                        value = factor * found[place][method][score]
                        axes.plot(at, value, "o", color=color(0), markersize=6, label="here", zorder=4)
                axes.set_xticks(range(len(methods)), methods, rotation=40, ha="right")
                axes.set_xlim(-0.5, len(methods) - 0.5)
                if not row:
                    axes.set_title(place, fontsize=10)
                if not column:
                    axes.set_ylabel(labels[score])
        legend(figure)
    words = {
        place: ", ".join(f"{m} {values['nll']:.3g}" for m, values in by_method.items())
        for place, by_method in found.items()
    }
    return described(figure, f"Error, NLL and ECE by method. NLL: {listing(words)}.")


def scores_by_components(
    found: Mapping[str, Scores], known: Mapping[int, Any], labels: Mapping[str, str], title: str
) -> "Figure":
    """A panel for each score: against the number of components, a line for each size of the batch."""
    with panels(1, len(labels), 3.1 * len(labels), 3.2) as (figure, grid):
        for at, (score, label) in enumerate(labels.items()):
            axes, factor = grid[0][at], 100 if score == "error" else 1
            for place, (name, records) in enumerate(found.items()):
                points = sorted((int(k), factor * values[score]) for k, values in records.items())
                if points:
                    axes.plot(*zip(*points, strict=True), "o-", color=color(place), label=name)
            for k, values in known.items():
                axes.errorbar(k, *values[at], ecolor=INK, label="published", **OPEN)
            axes.set(xlabel="components", ylabel=label)
        legend(figure)
    words = {name: ", ".join(f"K {k} {v['nll']:.4g}" for k, v in records.items()) for name, records in found.items()}
    return described(figure, f"{title}. NLL: {listing(words)}.")


def calibration(curves: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> "Figure":
    """A panel for each place: confidence less accuracy in bins of confidence, a line for each method."""
    order = list(dict.fromkeys(method for methods in curves.values() for method in methods))
    with panels(1, max(1, len(curves)), max(5.0, 3.4 * len(curves)), 3.3, sharey=True) as (figure, grid):
        for axes, (place, methods) in zip(grid[0], curves.items(), strict=False):
            axes.axhline(0, color=INK, linewidth=1)
            for method, bins in methods.items():
                points = [
                    (c, c - a)
                    for c, a, share in zip(bins["confidence"], bins["accuracy"], bins["share"], strict=True)
                    if share * 1000 >= 1  # fewer are chance
                ]
                if points:
                    axes.plot(
                        *zip(*points, strict=True), "o-", color=color(order.index(method)), markersize=4, label=method
                    )
            axes.set(title=place, xlabel="confidence", xlim=(0, 1))
        grid[0][0].set_ylabel("confidence − accuracy")
        legend(figure)
    return described(figure, f"Confidence less accuracy against confidence, for {', '.join(curves)}; zero is best.")


def under_noise(curves: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> "Figure":
    """Entropy under rising noise, split into its parts: a row for each data set and kind of noise."""
    methods = list(dict.fromkeys(method for found in curves.values() for method in found))
    rows = [
        (data, kind) for data, of in curves.items() for kind in dict.fromkeys(k for own in of.values() for k in own)
    ]
    across = max([1, *(len(found) for found in curves.values())])
    size = max(5.0, 2.6 * across), 2.5 * max(1, len(rows))
    ends = {}
    with panels(max(1, len(rows)), across, *size, sharey="row", sharex="row") as (figure, grid):
        for line, (data, kind) in zip(grid, rows, strict=False):
            for axes, (method, kinds) in zip(line, curves[data].items(), strict=False):
                curve = Stress.of(kinds[kind])
                total = [a + e for a, e in zip(curve.aleatoric, curve.epistemic, strict=True)]
                stack(axes, curve, color(methods.index(method)))
                axes.set_xlabel(NOISES.get(kind, kind))
                network, _, name = method.partition(", ")
                axes.set_title(f"{name}\n{network}, {data}", fontsize=9)
                ends[f"{method} on {data}, {kind}"] = f"{total[0]:.2f} to {total[-1]:.2f}"
            for axes in line[len(curves[data]) :]:
                axes.set_axis_off()
            line[0].set_ylabel("mean entropy (nats)")
        legend(figure, keys())
    return described(figure, f"Mean entropy under noise, in nats: {listing(ends)}.")


def sweep(curves: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], x: str) -> "Figure":
    """A panel for each quantity: a line of points (x, quantity) for each name."""
    with panels(1, max(1, len(curves)), max(4.6, 3.6 * len(curves)), 3.3) as (figure, grid):
        for axes, (title, lines) in zip(grid[0], curves.items(), strict=False):
            for at, (name, points) in enumerate(lines.items()):
                if points:
                    axes.plot(*zip(*points, strict=True), "o-", color=color(at), label=name)
            values = sorted({g for p in lines.values() for g, _ in p})
            axes.set_xscale("symlog", linthresh=min((g for g in values if g), default=1))
            axes.set_xticks(values, [f"{g:g}" for g in values])
            axes.minorticks_off()
            axes.set(title=title, xlabel=x)
            axes.grid(color=FAINT)
        legend(figure)
    best = {
        title: f"{min(value for points in lines.values() for _, value in points):.4g}"
        for title, lines in curves.items()
        if any(lines.values())
    }
    return described(figure, f"{', '.join(curves)}, against {x}. The lowest: {listing(best)}.")


def errors_and_areas(
    found: Mapping[str, Mapping[str, Mapping[str, float]]], known: Mapping[str, Sequence[float]]
) -> "Figure | None":
    """Errors and the area outside beside those of the slides; and whether who is less sure of outliers tells them."""
    marked: list[tuple[str, str, Mapping[str, float]]]
    marked = [("slides", m, {"error": v[0] / 100, "outside_auc": v[2]}) for m, v in known.items()]
    marked += [(protocol, m, values) for protocol, of in found.items() for m, values in of.items() if m in METHODS]
    if len(marked) == len(known):
        return None
    methods, places = list(METHODS), list(MARKS)
    with panels(1, 3, 10.4, 4.2) as (figure, grid):
        for protocol, method, values in marked:
            style = _mark(protocol, color(methods.index(method)))
            at = methods.index(method) + 0.22 * (places.index(protocol) - 1)
            grid[0][0].plot(at, 100 * values["error"], zorder=3, **style)
            grid[0][1].plot(at, values["outside_auc"], zorder=3, **style)
            if "auroc_total" in values:
                grid[0][2].plot(values["outside_auc"], values["auroc_total"], zorder=3, **style)
        unsure = "AUC outliers (low: unsure)"
        for axes, label in zip(grid[0], ("error, %", unsure, "AUROC, total"), strict=True):
            axes.set_ylabel(label)
        for axes in grid[0][:2]:
            axes.set_xticks(range(len(methods)), methods, rotation=40, ha="right")
        grid[0][2].set_xlabel(unsure)
        names = {"slides": "the slides", **PROTOCOLS}
        keys = [(label, _mark(protocol, INK)) for protocol, label in names.items()]
        keys += [(method, {"marker": "D", "color": color(at), "linestyle": ""}) for at, method in enumerate(methods)]
        legend(figure, [grid[0][2].plot([], [], label=label, **style)[0] for label, style in keys], columns=6)
    told = {
        protocol: listing({m: f"{values['auroc_total']:.3f}" for m, values in of.items() if m in METHODS})
        for protocol, of in found.items()
    }
    words = [f"{PROTOCOLS[protocol]}: {line}" for protocol, line in told.items()]
    return described(
        figure,
        "Error and the area under the distribution of entropy on outliers by method, beside those of the slides, and",
        f"that area against the AUROC of detection. AUROC {'; '.join(words)}.",
    )


def _mark(protocol: str, shade: str) -> dict[str, Any]:
    return {
        "marker": MARKS[protocol],
        "color": shade,
        "markerfacecolor": "white" if protocol == "slides" else shade,
        "markersize": 6,
        "linestyle": "",
    }
