"""Attacks on the networks of table 3 of Bayes by Hypernet, and their weights; nothing is trained here beyond them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posterity.papers.bbh_cells import METHODS, PROTOCOLS, SLIDES, SUCCESSOR, compared, contenders, recorded
from posterity.papers.cells import Cell
from posterity.papers.outliers import BINS, SHOWN
from posterity.papers.reproduction import DEVIATIONS, Bench, Outcome, Table, verdict
from posterity.plots.common import legend, panels
from posterity.report.canvas import FAINT, INK, color, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTACKS = {"slides": "attack of the slides", "expected": "full attack"}
#: Method and protocol of the weights that are shown.
WEIGHTS = (("BbB", "fair"), ("MNF", "fair"), ("BbH", "fair"), ("LIVI", "fair"), ("BbH", "published"))


Curves = dict[str, dict[str, dict[str, Any]]]


def attacks(bench: Bench) -> Outcome:
    """The first test images, FGSM of size ε in units of pixels, by training and by the protocol of the attack."""
    curves: Curves = {}
    for protocol, words in PROTOCOLS.items():
        cells = compared(bench, "mnist", protocol)
        found = recorded(bench, cells)
        for attack in ATTACKS:
            curves[f"{words}, {ATTACKS[attack]}"] = {
                method: _curve([record["attacks"][attack] for record in records], cells[method][1])
                for method, records in found.items()
            }
    tables = [_attack_table(place, methods) for place, methods in curves.items()]
    return Outcome(curves, tables, [*attack_claims(curves), *worse_of_both(curves)], _attack_picture(curves))


def _attack_table(place: str, methods: Mapping[str, Mapping[str, Any]]) -> Table:
    chosen = (0.0, 0.1, 0.2, 0.4)
    columns = ["method", "a pixel moves by, × ε", "error, %: mean over ε > 0"]
    columns += [f"error at ε = {eps:g}, %" for eps in chosen] + [f"entropy at ε = {eps:g}" for eps in chosen]
    lines = []
    for method, curve in methods.items():
        by_eps = {round(line["eps"], 3): line for line in curve["lines"]}
        lines.append(
            [method, f"{curve['moved']:.2f}", f"{100 * curve['mean_error']:.1f} ± {100 * curve['chance']:.1f}"]
            + [f"{100 * by_eps[eps]['error']:.1f}" for eps in chosen]
            + [f"{by_eps[eps]['total']:.2f}" for eps in chosen]
        )
    return Table(f"MNIST under FGSM without clipping, {place}", columns, lines)


def _curve(records: Sequence[Mapping[str, Any]], made: Cell) -> dict[str, Any]:
    """Means over seeds; `chance` is the standard error of the mean error, from the number of images."""
    keys = records[0]["lines"][0]
    lines = [
        {key: statistics.fmean(record["lines"][at][key] for record in records) for key in keys}
        for at in range(len(records[0]["lines"]))
    ]
    attacked = [line["error"] for line in lines if line["eps"] > 0]
    moved = statistics.fmean(record["moved"] for record in records)
    chance = _deviation(attacked) / math.sqrt(made.attacked)
    return {"moved": moved, "mean_error": statistics.fmean(attacked), "chance": chance, "lines": lines}


def _deviation(errors: Sequence[float]) -> float:
    """Over images, of the share of attacks that fool each, where one that does so is not survived in a larger size.

    Then P(an image is fooled by at least j of n sizes) is the j-th largest of the error rates.
    """
    n, rates = len(errors), sorted(errors, reverse=True)
    mean = sum(rates) / n
    square = sum((2 * j - 1) * rate for j, rate in enumerate(rates, 1)) / n**2
    return math.sqrt(max(0.0, square - mean**2))


def attack_claims(curves: Curves) -> list[str]:
    """Whether BbH is the least vulnerable of the slides' methods, and what part of the attack each met."""
    said = []
    for place, methods in curves.items():
        theirs = {m: curve for m, curve in methods.items() if m in SLIDES}
        if "BbH" not in theirs or len(theirs) < 2:
            continue
        rest = {m: curve for m, curve in theirs.items() if m != "BbH"}
        least = min(rest, key=lambda m: rest[m]["mean_error"])
        ranked = ", ".join(f"{m} {100 * c['mean_error']:.1f}" for m, c in sorted(theirs.items(), key=_by_error))
        lead = rest[least]["mean_error"] - theirs["BbH"]["mean_error"]
        clear = abs(lead) > DEVIATIONS * math.hypot(rest[least]["chance"], theirs["BbH"]["chance"])
        said.append(
            f"Trained {place}: that BbH is the least vulnerable {verdict(lead > 0, clear)} (mean error in % over ε: "
            f"{ranked}); a pixel moved by {theirs['BbH']['moved']:.2f} ε against BbH" + _against(theirs) + "."
        )
        ours = {m: curve for m, curve in methods.items() if m not in (*SLIDES, SUCCESSOR)}
        if ours:
            listed = ", ".join(f"{m} {100 * c['mean_error']:.1f}" for m, c in sorted(ours.items(), key=_by_error))
            said.append(f"Trained {place}: beyond the slides, {listed}.")
    return said


def worse_of_both(curves: Curves) -> list[str]:
    """The error of each under the worse attack of each size: neither attack is the stronger one throughout."""
    said = []
    for words in PROTOCOLS.values():
        both = [curves.get(f"{words}, {attack}", {}) for attack in ATTACKS.values()]
        errors = {}
        for method in (m for m in both[0] if m != SUCCESSOR):
            pairs = zip(*(found[method]["lines"] for found in both), strict=True)
            worst = [max(line["error"] for line in pair) for pair in pairs if pair[0]["eps"] > 0]
            errors[method] = 100 * statistics.fmean(worst)
        if errors:
            ranked = ", ".join(f"{m} {errors[m]:.1f}" for m in sorted(errors, key=lambda m: errors[m]))
            said.append(f"Trained {words}: by the worse of both attacks at each size the mean error in % is {ranked}.")
    return said


def _by_error(item: tuple[str, Mapping[str, Any]]) -> float:
    return float(item[1]["mean_error"])


def _against(methods: Mapping[str, Mapping[str, Any]]) -> str:
    return f" and by {methods['MAP']['moved']:.2f} ε against MAP" if "MAP" in methods else ""


def _attack_picture(curves: Curves) -> "Figure":
    """A column for each training and attack; error above, entropy below."""
    methods = list(METHODS)
    with panels(2, len(curves), 2.7 * len(curves), 5.2, sharex=True, sharey="row") as (figure, grid):
        for column, (place, found) in enumerate(curves.items()):
            for row, (key, label, factor) in enumerate((("error", "error, %", 100), ("total", "entropy, nats", 1))):
                axes = grid[row][column]
                for method, curve in found.items():
                    points = [(line["eps"], factor * line[key]) for line in curve["lines"]]
                    width = 2.4 if method == "BbH" else 1.2
                    style = {"color": color(methods.index(_short(method))), "linewidth": width, "markersize": 3}
                    line = "o-" if method in SLIDES else "o--"
                    axes.plot(*zip(*points, strict=True), line, label=_short(method), zorder=3, **style)
                axes.grid(color=FAINT)
                if not column:
                    axes.set_ylabel(label)
            training, _, attack = place.partition(", ")
            grid[0][column].set_title(f"{training},\n{attack}", fontsize=9)
            grid[1][column].set_xlabel("ε")
        legend(figure, columns=8)
    listed = {
        place: ", ".join(f"{m} {100 * curve['mean_error']:.0f} %" for m, curve in found.items())
        for place, found in curves.items()
    }
    words = [f"{place}: {line}" for place, line in listed.items()]
    return described(
        figure,
        "Error and predictive entropy against the size of an attack. Mean error over sizes:",
        f"{'; '.join(words)}.",
    )


def _short(method: str) -> str:
    """Without how it is set."""
    return method.partition(",")[0]


def weights(bench: Bench) -> Outcome:
    """Histograms of drawn weights by layer, and correlations of some of them; of the first seed."""
    found: dict[str, dict[str, Any]] = {}
    trained = {protocol: recorded(bench, contenders(bench, "mnist", protocol)) for protocol in PROTOCOLS}
    for method, protocol in WEIGHTS:
        records = trained[protocol].get(method)
        if records:
            found[f"{method}, {'defaults' if protocol == 'fair' else 'as published'}"] = records[0]["weights"]
    layers = list(next(iter(found.values()))["layers"]) if found else []
    columns = ["posterior"] + [f"{name}: size, spread" for name in layers] + ["correlation within", "between layers"]
    lines = [
        [title]
        + [f"{kept['layers'][name]['size']:.3g}, {kept['layers'][name]['spread']:.2g}" for name in layers]
        + [f"{kept['within']:.3f}", f"{kept['between']:.3f}"]
        for title, kept in found.items()
    ]
    table = Table("Weights: root mean square, standard deviation over draws, mean |correlation|", columns, lines)
    picture = _weight_picture(found, layers) if found else None
    return Outcome(found, [table], weight_claims(found), picture)


def weight_claims(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Whose weights correlate by three standard errors more than independent ones would, and how wide they are.

    |correlation| of n independent draws has the mean √(2 / πn) and the variance (1 − 2/π) / n.
    """
    said = []
    for title, kept in found.items():
        chance = math.sqrt(2 / (math.pi * kept["draws"]))
        both = {"within a layer": kept["within"], "between layers": kept["between"]}
        layers = len(kept["layers"])
        pairs = {"within a layer": layers * SHOWN * (SHOWN - 1) / 2, "between layers": _pairs(layers) * SHOWN**2}
        error = {where: math.sqrt((1 - 2 / math.pi) / kept["draws"] / max(1, n)) for where, n in pairs.items()}
        above = [where for where, value in both.items() if value > chance + 3 * error[where]]
        listed = ", ".join(f"{value:.3f} {where}" for where, value in both.items())
        said.append(
            f"{title}: weights {'correlate ' + ' and '.join(above) if above else 'were not seen to correlate'} (mean "
            f"|correlation| {listed}; independent ones would have {chance:.3f} over {kept['draws']} draws)."
        )
    shares = {
        title: statistics.fmean(layer["spread"] / layer["size"] for layer in kept["layers"].values() if layer["size"])
        for title, kept in found.items()
    }
    if shares:
        listed = ", ".join(f"{title} {share:.2g}" for title, share in shares.items())
        said.append(f"Standard deviation over draws relative to the size of weights, mean over layers: {listed}.")
    return said


def _pairs(n: int) -> float:
    return n * (n - 1) / 2


def _weight_picture(found: Mapping[str, Mapping[str, Any]], layers: list[str]) -> "Figure":
    """A row for each posterior: a histogram for each layer, then the correlations."""
    width = 1.9 * (len(layers) + 1)
    with panels(len(found), len(layers) + 1, width, 0.4 + 1.7 * len(found)) as (figure, grid):
        for row, (title, kept) in enumerate(found.items()):
            for column, name in enumerate(layers):
                axes, layer = grid[row][column], kept["layers"][name]
                step = 2 * layer["reach"] / BINS
                edges = [-layer["reach"] + step * at for at in range(BINS + 1)]
                axes.stairs(layer["density"], edges, fill=True, color=color(row), alpha=0.6)
                axes.set_yticks([])
                axes.tick_params(labelsize=7)
                axes.locator_params(axis="x", nbins=4)
                if not row:
                    axes.set_title(name, fontsize=9)
            grid[row][0].set_ylabel(title.replace(", ", "\n"), fontsize=9)
            axes = grid[row][-1]
            image = axes.imshow(kept["correlation"], cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
            for at in range(1, len(layers)):
                axes.axhline(SHOWN * at - 0.5, color=INK, linewidth=0.5)
                axes.axvline(SHOWN * at - 0.5, color=INK, linewidth=0.5)
            axes.set(xticks=[], yticks=[])
            if not row:
                axes.set_title(f"correlation of {SHOWN}\nweights a layer", fontsize=9)
        figure.colorbar(image, ax=list(grid[:, -1]), shrink=0.5)
    words = [f"{title} {kept['within']:.2f} and {kept['between']:.2f}" for title, kept in found.items()]
    return described(
        figure,
        "Histograms of drawn weights by layer, and the correlations of some. Mean absolute correlation within and",
        f"between layers: {', '.join(words)}.",
    )
