"""Bayes by Hypernet (Pawlowski et al. 2017, arXiv:1711.01297), as the slides of 2020 show it, table by table.

"As published" is what the authors' code does, with its confounders; "with the library's defaults" gives every method
what it has here, and the same data, epochs and optimiser. What both are is in `posterity.papers.bbh_cells`. The slides'
"AUC" is 1 − E[H] / log C, the mean predictive entropy in other units: high is good inside the data, low outside. It is
no detection: the AUROC columns are.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from posterity.papers import published
from posterity.papers.bbh_cells import (
    LAYOUTS,
    PROTOCOLS,
    SLIDES,
    SUCCESSOR,
    N,
    Named,
    bound,
    cell,
    compared,
    layout,
    livi,
    one_number,
    other,
    others,
    recorded,
)
from posterity.papers.bbh_figures import attacks, weights
from posterity.papers.bbh_toy import toy
from posterity.papers.cells import Cell
from posterity.papers.pictures import errors_and_areas
from posterity.papers.reproduction import DEVIATIONS, Bench, Entry, Outcome, Table, verdict

#: A network of ten classes with more errors than this is at chance.
IDLE = 0.7
#: Areas outside the data that differ by less are not called different: so far apart are the slides' own two networks
#: of layer-wise generators, in tables 1 and 3.
AREAS = 0.06
#: Further rows of table 1.
ONE_NUMBER, CHUNKED = "single, noise of one number", "chunked, the default"

Numbers = dict[str, dict[str, float]]
Columns = list[tuple[str, str, Callable[[float], str], int | None]]
#: What a table shows: key, heading, how it is written, and the place of the published number.
COLUMNS: Columns = [
    ("error", "error, %", lambda v: f"{100 * v:.2f}", 0),
    ("inside_auc", "AUC inside", lambda v: f"{v:.3f}", 1),
    ("outside_auc", "AUC outliers", lambda v: f"{v:.3f}", 2),
    ("auroc_total", "AUROC, total", lambda v: f"{v:.3f}", None),
    ("auroc_epistemic", "AUROC, epistemic", lambda v: f"{v:.3f}", None),
    ("nll", "NLL", lambda v: f"{v:.4f}", None),
    ("calibrated_nll", "calibrated NLL", lambda v: f"{v:.4f}", None),
]


def table_1(bench: Bench) -> Outcome:
    """Three kinds of generators: the published hidden layers, about equally many parameters, the library's defaults."""
    numbers: dict[str, Numbers] = {}
    missing: list[str] = []
    kinds: dict[str, Named] = {
        "hidden layers as published": {kind: layout(bench, kind, False) for kind in LAYOUTS}
        | {ONE_NUMBER: one_number(bench)},
        "about equally many parameters": {kind: layout(bench, kind, True) for kind in LAYOUTS},
        "the library's defaults, about equally many parameters": {kind: bound(bench, kind) for kind in LAYOUTS}
        | {CHUNKED: bound(bench, "chunked")},
    }
    for title, cells in kinds.items():
        cells[SUCCESSOR] = livi(bench)
        numbers[title] = means(recorded(bench, cells))
        missing += _missing(title, cells, numbers[title])
    tables = []
    findings = [_size(layout(bench, "layer-wise", False)[1], "mnist"), _widths(bench), *missing]
    shown = COLUMNS[:4]
    columns = ["generator", "parameters, millions", *_headings(shown)]
    for title, of in numbers.items():
        lines = []
        for kind, values in of.items():
            known = published.BBH_LAYOUTS.get(kind.partition(",")[0]) if bench.size != "smoke" else None
            lines.append([kind, f"{values['parameters'] / 1e6:.3g}", *_line(values, known, shown)])
        if lines:
            tables.append(Table(f"MNIST by the kind of generator, {title}", columns, lines))
        findings += _layout_claims(title, of)
    return Outcome(numbers, tables, findings)


def table_3(bench: Bench) -> Outcome:
    """MNIST, with notMNIST's letters as outliers."""
    return _table(bench, "mnist", "MNIST, LeNet", published.BBH_MNIST)


def table_4(bench: Bench) -> Outcome:
    """CIFAR-10's first five classes, with the other five as outliers."""
    return _table(bench, "cifar5", "CIFAR5, pre-activation ResNet", published.BBH_CIFAR5)


def runtime(bench: Bench) -> Outcome:
    """What an epoch of tables 1 and 3 takes, each method alone on the machine and all by the same `fit`."""
    cells = {PROTOCOLS[protocol]: compared(bench, "mnist", protocol) for protocol in PROTOCOLS}
    if "MNF" in cells[PROTOCOLS["published"]]:  # with all of its divergence, which takes longest
        cells[PROTOCOLS["published"]]["MNF"] = other(bench, "mnist", "MNF", "mnf-whole")
    generators = {kind: layout(bench, kind, False) for kind in LAYOUTS}
    cells["by the kind of generator"] = generators | {SUCCESSOR: livi(bench)}
    numbers, tables, findings = {}, [], []
    for title, of in cells.items():
        timed = {method: _timed(bench, *named) for method, named in of.items()}
        seconds = numbers[title] = {method: statistics.median(times) for method, times in timed.items() if times}
        findings += _missing(title, of, {method: {} for method in seconds})
        first, known, lines = next(iter(of)), published.BBH_MNIST | published.BBH_LAYOUTS, []
        if first not in seconds:
            continue
        for method, value in seconds.items():
            theirs = f"{known[method][3] / known[first][3]:.1f}" if method in known else "–"
            lines.append([method, f"{value:.3g}", f"{value / seconds[first]:.1f}", theirs])
        columns = ["method", "seconds an epoch", f"× {first}", "published"]
        tables.append(Table(f"An epoch of MNIST, {title}", columns, lines))
        findings += runtime_claims(title, seconds)
    return Outcome(numbers, tables, findings)


def _timed(bench: Bench, name: str, made: Cell) -> list[float]:
    """Seconds of epochs after the first, in which graphs are captured and memory is found."""
    few = bench.pick(smoke={}, small={"images": 1_000}, full={})
    fit = made.fit | {"epochs": bench.pick(smoke=2, small=4, full=3)}
    posterior = {key: value for key, value in made.posterior.items() if key != "parametrisation"}
    if made.method == "mnf" and "beta" in fit:
        fit["beta"] = 1.0  # as they were timed: neither a weight that rises nor an exponential takes longer
    few |= {"tested": 100, "outside": 0, "attacked": 0, "weighed": 0, "draws": made.draws and 4}
    made = replace(made, posterior=posterior, fit=fit, **few)
    records = made.records(bench, f"{name}-timed")
    return [seconds for record in records for seconds in record["history"]["seconds"][1:]]


def runtime_claims(title: str, seconds: Mapping[str, float]) -> list[str]:
    """What the slides say of the time."""
    seconds = {method: value for method, value in seconds.items() if method != SUCCESSOR}
    words = ", ".join(f"{method} {value:.3g}" for method, value in seconds.items())
    if "single" in seconds:
        held = min(seconds, key=lambda k: seconds[k]) == "single"
        claim = "that a single generator is the fastest"
    else:
        theirs = [method for method in seconds if method in SLIDES]
        held = set(sorted(theirs, key=lambda m: -seconds[m])[:2]) == {"BbH", "MNF"}
        claim = "that BbH and MNF take longest"
    return [f"{title.capitalize()}: {claim} {'held' if held else 'did not hold'}: seconds an epoch are {words}."]


def means(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Numbers:
    """Means over seeds of all that a table shows, by method."""
    numbers: Numbers = {}
    for method, records in found.items():
        flat = [record["scores"] | record["outliers"] | _sizes(record) for record in records]
        numbers[method] = {key: statistics.fmean(one[key] for one in flat) for key in flat[0]}
    return numbers


def _sizes(record: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(record[key]) for key in ("parameters", "tested")}


def _table(bench: Bench, place: str, title: str, known: Mapping[str, Sequence[float]]) -> Outcome:
    cells = {protocol: compared(bench, place, protocol) for protocol in PROTOCOLS}
    numbers = {protocol: means(recorded(bench, of)) for protocol, of in cells.items()}
    tables, findings = [], [_size(cell(bench, place, "published", "BbH"), place)]
    if "ensemble" in numbers["published"]:
        members = cell(bench, place, "published", "ensemble").posterior["members"]
        findings.append(
            f"As published, the ensemble has {members} members (published: {10 if place == 'mnist' else 5})."
        )
    known = known if bench.size != "smoke" else {}
    for protocol, found in numbers.items():
        tables.append(_scored(f"{title}, {PROTOCOLS[protocol]}", found, known))
        findings += _missing(PROTOCOLS[protocol], cells[protocol], found)
        findings += claims(PROTOCOLS[protocol], found, slides=place == "mnist")
    picture = errors_and_areas(numbers, known)
    rows = others(bench, place)
    numbers["other"] = means(recorded(bench, rows))
    tables += [_scored(f"{title}, set in other ways", numbers["other"], known)] if numbers["other"] else []
    findings += _missing("set in other ways", rows, numbers["other"])
    return Outcome(numbers, tables, findings, picture)


def _scored(title: str, found: Numbers, known: Mapping[str, Sequence[float]]) -> Table:
    lines = [[m, *_line(values, known.get(m.partition(",")[0]))] for m, values in found.items()]
    return Table(title, ["method", *_headings()], lines)


def _missing(title: str, cells: Named, found: Numbers) -> list[str]:
    """What has not been run, where anything has."""
    names = [name for name in cells if name not in found]
    return [f"{title.capitalize()}, not run at this size: {'; '.join(names)}."] if names and found else []


def _headings(shown: Columns = COLUMNS) -> list[str]:
    return [word for _, heading, _, place in shown for word in [heading] + ["published"] * (place is not None)]


def _line(values: Mapping[str, float], known: Sequence[float] | None, shown: Columns = COLUMNS) -> list[str]:
    line = []
    for key, _, written, place in shown:
        line.append(written(values[key]) if key in values else "–")
        if place is not None:
            line.append("–" if known is None else str(known[place]))
    return line


def claims(protocol: str, found: Numbers, slides: bool) -> list[str]:
    """What the slides say of the numbers, and whether these numbers say it too."""
    found = {method: values for method, values in found.items() if method != SUCCESSOR}
    theirs = {method: values for method, values in found.items() if method in SLIDES}
    if "BbH" not in theirs or len(theirs) < 2:
        return []
    own = theirs["BbH"]
    apart = {m for m, v in theirs.items() if _apart(v, own)}
    lower = [m for m, v in theirs.items() if v["error"] < own["error"]]
    unsure = [m for m, v in theirs.items() if v["outside_auc"] < own["outside_auc"]]
    said = []
    if slides:
        held = _only(theirs, lower, ("ensemble", "MC-dropout"), apart)
        said.append(
            f"{protocol.capitalize()}: that only ensembles and MC-dropout have fewer errors than BbH {held}: BbH has "
            f"{100 * own['error']:.2f} %; fewer have {_named(lower, theirs, 'error', 100)}, beyond {DEVIATIONS:g} "
            f"standard errors {', '.join(m for m in lower if m in apart) or 'none'}."
        )
        far = {m for m, v in theirs.items() if abs(v["outside_auc"] - own["outside_auc"]) > AREAS}
        held = _only(theirs, unsure, ("BbB",), far)
        said.append(
            f"{protocol.capitalize()}: that none but BbB is less sure of outliers than BbH {held}: BbH's AUC is "
            f"{own['outside_auc']:.3f}; lower is that of {_named(unsure, theirs, 'outside_auc')}."
        )
    least = min(found, key=lambda m: found[m]["outside_auc"])
    best = max(found, key=lambda m: found[m]["auroc_total"])
    order = sorted(found, key=lambda m: -found[m]["auroc_total"])
    said.append(
        f"{protocol.capitalize()}: least sure of outliers is {least} (AUC {found[least]['outside_auc']:.3f}), which "
        f"tells them from the data with an AUROC of {found[least]['auroc_total']:.3f}; the best detector is {best} "
        f"({_area(found[best])}), BbH the {_place(order.index('BbH') + 1)} of {len(order)} ({_area(own)})."
    )
    good = min(found, key=lambda m: found[m]["nll"])
    said.append(
        f"{protocol.capitalize()}: the lowest NLL is that of {good} ({found[good]['nll']:.4f}); BbH has "
        f"{own['nll']:.4f}, and {own['calibrated_nll']:.4f} after calibration."
    )
    return said


def _only(found: Numbers, below: Sequence[str], allowed: Sequence[str], apart: Set[str]) -> str:
    """Whether only the allowed are below BbH: a verdict that is clear where the others are apart from it."""
    rest = [m for m in found if m not in ("BbH", *allowed)]
    wrong = [m for m in rest if m in below]
    return verdict(not wrong, any(m in apart for m in wrong) if wrong else all(m in apart for m in rest))


def _apart(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two errors differ beyond chance of the test images, which all seeds share."""
    variance = sum(v["error"] * (1 - v["error"]) / v["tested"] for v in (one, other))
    return abs(one["error"] - other["error"]) > DEVIATIONS * math.sqrt(variance)


def _area(values: Mapping[str, float]) -> str:
    """The AUROC with its standard error for as many images outside as inside (Hanley & McNeil 1982)."""
    a, n = values["auroc_total"], values["tested"]
    variance = (a * (1 - a) + (n - 1) * (a / (2 - a) + 2 * a**2 / (1 + a) - 2 * a**2)) / n**2
    return f"{a:.3f} ± {math.sqrt(max(0.0, variance)):.3f}"


def _named(names: Sequence[str], found: Numbers, key: str, factor: float = 1.0) -> str:
    return ", ".join(f"{m} {factor * found[m][key]:.3g}" for m in names) or "none"


def _place(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def _layout_claims(title: str, found: Numbers) -> list[str]:
    if not set(found) >= set(LAYOUTS):
        return []
    found = {kind: values for kind, values in found.items() if kind not in (SUCCESSOR, CHUNKED)}
    best = min(found, key=lambda k: found[k]["error"])
    idle = [k for k, values in found.items() if values["error"] > IDLE]
    rest = [k for k in found if k not in ("layer-wise", *idle)]
    others = rest if best == "layer-wise" else ["layer-wise"]
    clear = all(_apart(found[best], found[k]) for k in others)
    held = verdict(best == "layer-wise", clear) if rest else "cannot be told"
    return [
        f"With {title}, that layer-wise generation has the best performance {held}: the errors in % are "
        f"{_named(list(found), found, 'error', 100)}" + (f"; {', '.join(idle)} ended at chance." if idle else "."),
    ]


def _size(made: Cell, place: str) -> str:
    """What was trained, and what differs from the published setting."""
    images, epochs = made.images or N[place], made.fit["epochs"]
    network = made.network["name"] + (f"-{depth}" if (depth := made.network["arguments"].get("depth")) else "")
    hidden = "-".join(map(str, made.posterior["hidden"]))
    weighed = made.fit.get("size") or images
    return (
        f"{network} trained on {images:,} images for {epochs} epoch{'s' * (epochs > 1)} with {made.draws} draws "
        f"(published: {N[place]:,} images, {100 if place == 'mnist' else 200} epochs, 100 draws); as published, the "
        f"divergence is divided by {weighed:,}, and BbH has layer-wise generators of {hidden} hidden units at a rate "
        f"of {made.fit['lr']:g} (published: 64-256-512 at 0.0001)."
    )


def _widths(bench: Bench) -> str:
    words = []
    for equal, title in ((False, "as published"), (True, "of equal size")):
        hidden = {kind: "-".join(map(str, layout(bench, kind, equal)[1].posterior["hidden"])) for kind in LAYOUTS}
        words.append(f"{title} {', '.join(f'{kind} {widths}' for kind, widths in hidden.items())}")
    return f"Hidden layers of the generators: {'; '.join(words)}."


ENTRIES = [
    Entry("bbh-toy", "The toy regression of all methods", toy),
    Entry("bbh-table-1", "Three kinds of generators", table_1),
    Entry("bbh-table-3", "Digits of MNIST, with letters of notMNIST as outliers", table_3),
    Entry("bbh-table-4", "Five classes of CIFAR-10, with the others as outliers", table_4),
    Entry("bbh-runtime", "What training costs", runtime),
    Entry("bbh-attacks", "Error and entropy under adversarial attack", attacks),
    Entry("bbh-weights", "The distribution of the weights", weights),
]
