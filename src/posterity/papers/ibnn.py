"""Implicit Bayesian neural networks (Trinh, Kaski & Heinonen 2020, arXiv:2010.13498), table by table.

Where the paper's text and its code differ, the code made the numbers, and the code's way is taken: the S samples of a
datum come from different components, and VGG-16 sees images with ImageNet's mean and deviation. Not taken are its
faults: MC-dropout is scored with batch normalisation in evaluation mode, and BNN-VI meets the same data.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from posterity.papers import fashion, published, sizes, toys, trained, widths
from posterity.papers.ibnn_cells import (
    CHOSEN,
    CLASSES,
    METHODS,
    OURS,
    SHORT,
    VARIANTS,
    cell,
    entropic_cell,
    in_float32,
    places,
    short,
)
from posterity.papers.pictures import calibration, scores_by_components, scores_by_method, sweep, under_noise
from posterity.papers.reproduction import Bench, Entry, Outcome, Table

SCORES = ("error", "nll", "ece")
LABELS = {"error": "error, %", "nll": "NLL", "ece": "ECE"}
WORDS = {"error": "error", "nll": "NLL", "ece": "ECE"}
TITLES = {"vgg16": "VGG-16", "wrn28x10": "WideResNet-28x10", "lenet": "LeNet"}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "digits": "digits"}
#: Samples a datum and γ of further runs on the test images: the successor's γ, and with its samples, twice the cost.
FURTHER = {"smoke": [], "small": [], "full": [(2, 80), (4, 80), (4, 70)]}
COMPONENTS = (4, 8, 16, 24, 32)
LARGE_BATCH = 512

Records = dict[str, list[dict[str, Any]]]


def tables(bench: Bench, score: str) -> Outcome:
    """Tables 3, 4 and 5: one score of all networks, data sets and methods, the published one beside it."""
    every = {place: _trained(bench, *place) for place in places(bench)}
    found = _run(bench)
    columns, rows = ["method"], []
    for network, data in found:
        columns += [f"{TITLES[network]}, {DATA[data]}", *(["published"] if (network, data) in published.IBNN else [])]
    for method in (*METHODS, OURS, *VARIANTS):
        if method in VARIANTS and not any(records[method] for records in found.values()):
            continue
        row = [method]
        for place, records in found.items():
            row.append(_mean(records[method], score))
            if place in published.IBNN:
                row.append(_published(published.IBNN[place].get(method), score))
        rows.append(row)
    return Outcome(
        {f"{network}, {data}": _numbers(records) for (network, data), records in found.items()},
        [Table(f"{LABELS[score]}, lower is better", columns, rows)],
        [line for place, records in found.items() for line in _claims(place, records, score)]
        + [line for (n, d), records in every.items() for line in _stuck(records, f"{TITLES[n]}, {DATA[d]}")],
    )


def table_3(bench: Bench) -> Outcome:
    """The test error."""
    return tables(bench, "error")


def table_4(bench: Bench) -> Outcome:
    """The negative log-likelihood."""
    return tables(bench, "nll")


def table_5(bench: Bench) -> Outcome:
    """The expected calibration error."""
    return tables(bench, "ece")


def figure_5(bench: Bench) -> Outcome:
    """The three scores of tables 3 to 5 as a picture, with the published ones."""
    found = _run(bench)
    outcomes = [tables(bench, score) for score in SCORES]
    panels = {
        f"{TITLES[n]}, {DATA[d]}": _numbers({method: _alive(records) for method, records in of.items()})
        for (n, d), of in found.items()
    }
    known = {f"{TITLES[n]}, {DATA[d]}": published.IBNN.get((n, d), {}) for n, d in found}
    absent = [
        f"{TITLES[n]}, {DATA[d]}: {method} gives all classes equal probabilities, and is left out of the picture."
        for (n, d), of in found.items()
        for method, records in of.items()
        if records and not _alive(records)
    ]
    return Outcome(
        outcomes[0].numbers,
        [table for outcome in outcomes for table in outcome.tables],
        absent + list(dict.fromkeys(line for outcome in outcomes for line in outcome.findings)),
        scores_by_method(panels, known, LABELS),
    )


def table_6(bench: Bench) -> Outcome:
    """The number of components, with the paper's batches and with larger ones."""
    network, data = bench.pick(smoke=("lenet", "digits"), small=("lenet", "cifar10"), full=("vgg16", "cifar100"))
    counts = bench.pick(smoke=(4, 8), small=COMPONENTS, full=COMPONENTS)
    found: dict[str, Records] = {"128 images a step": {}, f"{LARGE_BATCH} images a step": {}}
    usual, large = found.values()
    for k in counts:
        made = cell(bench, network, data, f"iBNN-{k}")
        usual[str(k)] = made.records(bench, f"{network}-{data}-ibnn-{k}")
        bigger = replace(made, fit=made.fit | {"batch_size": LARGE_BATCH})
        large[str(k)] = bigger.records(bench, f"{network}-{data}-ibnn-{k}-batch-{LARGE_BATCH}")
    rows = []
    for name, records in found.items():
        for k in counts:
            values = [_mean(records[str(k)], score) for score in SCORES]
            known = published.IBNN_COMPONENTS.get(k) if records is usual and network == "vgg16" else None
            rows.append([name, str(k), *values, *(_published(known, score) for score in SCORES)])
    columns = ["batch", "K", *(LABELS[s] for s in SCORES), *(f"published {LABELS[s]}" for s in SCORES)]
    if network != "vgg16":
        columns, rows = columns[:5], [row[:5] for row in rows]
    all_known = published.IBNN_COMPONENTS if network == "vgg16" else {}
    title = f"{TITLES[network]} on {DATA[data]} by the number of components"
    return Outcome(
        {name: _numbers(records) for name, records in found.items()},
        [Table(title, columns, rows)],
        _component_claims(found),
        scores_by_components({name: _numbers(records) for name, records in found.items()}, all_known, LABELS, title),
    )


def figure_7(bench: Bench) -> Outcome:
    """Confidence less accuracy over the confidence, method by method."""
    methods = ("SGD", "MC-dropout", "iBNN-16", OURS, SHORT)
    curves, findings = {}, []
    for (network, data), records in _run(bench).items():
        name = f"{TITLES[network]}, {DATA[data]}"
        curves[name] = {m: records[m][0]["reliability"] for m in methods if records[m]}
        gaps = {m: _value(records[m], "ece") for m in methods if records[m]}
        if len(gaps) > 1:
            best = min(gaps, key=lambda m: gaps[m])
            listed = ", ".join(f"{m} {gap:.4f}" for m, gap in gaps.items())
            findings.append(f"{name}: the best calibrated is {best} (ECE: {listed}).")
    return Outcome(curves, [], findings, calibration(curves))


def figure_8(bench: Bench) -> Outcome:
    """The mean predictive entropy under noise, split into its parts, in the paper's own kinds of noise."""
    shown = ("SGD", "MC-dropout", "iBNN-16", OURS, SHORT)
    curves: dict[str, dict[str, Any]] = {}
    for (network, data), records in _run(bench).items():
        noisy = {m: records[m][0]["noise"] for m in shown if records[m] and "noise" in records[m][0]}
        curves.setdefault(DATA[data], {}).update({f"{TITLES[network]}, {m}": kinds for m, kinds in noisy.items()})
    findings = []
    for place, methods in curves.items():
        for method, kinds in methods.items():
            for kind, lines in kinds.items():
                first, last = lines[0], lines[-1]
                share = last["epistemic"] / last["total"] if last["total"] > 0 else 0.0
                top = max(lines, key=lambda line: line["total"])
                peak = "" if top is last else f", the most at {top['severity']:g} ({top['total']:.2f})"
                findings.append(
                    f"{place}, {method}, {kind} noise: entropy goes from {first['total']:.2f} to {last['total']:.2f} "
                    f"nats{peak}; at the end {share:.0%} of it is epistemic."
                )
    return Outcome(curves, [], findings, under_noise(curves))


def entropic(bench: Bench) -> Outcome:
    """The successor's entropic regulariser: γ and K on held-out data, then the chosen setting on the test data."""
    network, data = bench.pick(smoke=("lenet", "digits"), small=("lenet", "cifar10"), full=("vgg16", "cifar100"))
    gammas = bench.pick(smoke=(0, 8), small=(0, 4, 16, 64), full=(0, 20, 40, 80))
    counts = bench.pick(smoke=(2,), small=(4, 16), full=(4, 16))
    epochs = bench.pick(smoke=1, small=8, full=60)
    title = f"{TITLES[network]}, {DATA[data]}"
    tried: Records = {}
    for k in counts:
        for gamma in gammas:
            made = entropic_cell(bench, network, data, k, gamma)
            made = replace(made, fit=made.fit | {"epochs": epochs}, held_out=True, disturbed=0)
            tried[f"K {k}, gamma {gamma}"] = made.records(bench, f"{network}-{data}-entropic-{k}-{gamma}-held-out")
    findings = _stuck(tried, title)
    tried = {name: kept for name, records in tried.items() if (kept := _alive(records))}
    numbers: dict[str, Any] = {"held out": _numbers(tried)}
    curves = {
        f"{WORDS[score]} on held-out images": {
            f"K = {k}": [(g, _value(tried[name], score)) for g in gammas if (name := f"K {k}, gamma {g}") in tried]
            for k in counts
        }
        for score in ("nll", "ece")
    }
    if tried:
        best = min(tried, key=lambda name: _value(tried[name], "nll"))
        zero = min((_value(r, "nll") for name, r in tried.items() if name.endswith("gamma 0")), default=None)
        findings.append(
            f"{title}, {epochs} epoch{'s' * (epochs > 1)}: the lowest NLL on held-out images is "
            f"{_value(tried[best], 'nll'):.4f}, with {best.replace('gamma', 'γ =').replace('K', 'K =')}"
            + ("." if zero is None else f"; with γ = 0 it is {zero:.4f}.")
        )
    rows = []
    for place in places(bench):
        final = _rows(bench, *place)
        name = f"{TITLES[place[0]]}, {DATA[place[1]]}"
        if not final[OURS]:
            continue
        k, gamma = CHOSEN[bench.size]
        shown = {"iBNN-16": final["iBNN-16"], f"{OURS}, γ = {gamma:g}": final[OURS]}
        for samples, other in FURTHER[bench.size] if place == (network, data) else ():
            made = entropic_cell(bench, *place, k, other, samples)
            records = made.records(bench, f"{network}-{data}-entropic-{k}-{other}-samples-{samples}")
            shown[f"{OURS}, γ = {other}" + (f", {samples} samples a datum" if samples > 2 else "")] = records
        shown = {method: records for method, records in shown.items() if records}
        numbers[name] = _numbers(shown)
        rows += [[name, method, *(_mean(records, score) for score in SCORES)] for method, records in shown.items()]
        findings += [f"{name}: {line}." for score in SCORES for line in _against(final, OURS, ["iBNN-16"], score)]
    table = Table("Test images", ["", "method", *LABELS.values()], rows)
    return Outcome(numbers, [table], findings, sweep(curves, "γ"))


def _run(bench: Bench) -> dict[tuple[str, str], Records]:
    """The records of networks and data sets of which there are any."""
    found = {place: _rows(bench, *place) for place in places(bench)}
    return {place: records for place, records in found.items() if any(records.values())}


def _rows(bench: Bench, network: str, data: str) -> Records:
    """The records of all methods, without those that learned nothing; BNN-VI's bound may want nothing learned."""
    found = _trained(bench, network, data)
    found = {method: records if method == "BNN-VI" else _alive(records) for method, records in found.items()}
    for method, (place, ending) in VARIANTS.items():
        made = short(bench, network, data) if method == SHORT else in_float32(bench, network, data)
        found[method] = _alive(made.records(bench, f"{network}-{data}-{ending}")) if place == (network, data) else []
    return found


def _trained(bench: Bench, network: str, data: str) -> Records:
    """The records of all methods; VGG-16's row "SGD" is its MC-dropout without dropout, as in the paper."""
    found: Records = {}
    for method in (*METHODS, OURS):
        same = method == "SGD" and network == "vgg16"
        name = f"{network}-{data}-{'MC-dropout' if same else method}".lower().replace(" ", "-")
        records = cell(bench, network, data, "MC-dropout" if same else method).records(bench, name)
        found[method] = [record | record["undisturbed"] for record in records] if same else records
    return found


def _numbers(records: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Means over seeds, by method."""
    return {
        method: {score: _value(found, score) for score in SCORES}
        | {"seeds": len(found), "seconds": statistics.fmean(r["train_seconds"] for r in found)}
        for method, found in records.items()
        if found
    }


def _alive(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that learned anything: VGG-16 has no normalisation, and its recipe may end at equal probabilities."""
    return [r for r in records if abs(r["scores"]["nll"] - math.log(CLASSES[r["settings"]["data"]])) > 1e-3]


def _stuck(records: Mapping[str, list[dict[str, Any]]], title: str) -> list[str]:
    """Of which methods a network learned nothing."""
    lost = [
        f"{name} (seed {r['seed']})"
        for name, found in records.items()
        for r in found
        if name != "BNN-VI" and r not in _alive(found)
    ]
    said = "learned nothing, equal probabilities for all classes, and are left out"
    return [f"{title}: {', '.join(lost)} {said}."] if lost else []


def _value(records: Sequence[Mapping[str, Any]], score: str) -> float:
    return statistics.fmean(record["scores"][score] for record in records)


def _mean(records: Sequence[Mapping[str, Any]], score: str) -> str:
    """The mean over seeds, with the deviation and their number where there are several."""
    if not records:
        return "–"
    values = [record["scores"][score] for record in records]
    if len(values) == 1:
        return _written(values[0], score)
    return f"{_written(statistics.fmean(values), score)} ± {_written(statistics.stdev(values), score)} ({len(values)})"


def _written(value: float, score: str) -> str:
    return f"{100 * value:.2f}" if score == "error" else f"{value:.4f}"


def _published(known: Any, score: str) -> str:
    if known is None:
        return "–"
    mean, deviation = known[SCORES.index(score)]
    return f"{mean:.2f} ± {deviation:.2f}" if score == "error" else f"{mean:.4f} ± {deviation:.4f}"


def _claims(place: tuple[str, str], records: Records, score: str) -> list[str]:
    """The paper's claims that these numbers can speak of: iBNN-16 ahead of the others, and more components better."""
    said = _against(records, "iBNN-16", METHODS[:3], score)
    counts = [m for m in METHODS[3:] if records[m]]
    if len(counts) > 1:
        values = [_value(records[m], score) for m in counts]
        falls = all(b <= a for a, b in pairwise(values))
        listed = ", ".join(f"{m} {_written(v, score)}" for m, v in zip(counts, values, strict=True))
        said.append(f"more components {'lower' if falls else 'do not always lower'} it ({listed})")
    said += _against(records, OURS, ["iBNN-16"], score)
    return [f"{TITLES[place[0]]}, {DATA[place[1]]}: {'; '.join(said)}."] if said else []


def _against(records: Records, one: str, others: Sequence[str], score: str) -> list[str]:
    """Which of the others a method is ahead of, where both were run, in one part of a sentence."""
    ran = [other for other in others if records[one] and records[other]]
    if not ran:
        return []
    mine = _value(records[one], score)
    theirs = {other: _value(records[other], score) for other in ran}
    lower = [f"{m}'s ({_written(v, score)})" for m, v in theirs.items() if mine < v]
    higher = [f"{m}'s ({_written(v, score)})" for m, v in theirs.items() if mine >= v]
    words = [f"lower than {' and '.join(lower)}"] * bool(lower) + [f"not lower than {' and '.join(higher)}"] * bool(
        higher
    )
    return [f"the {WORDS[score]} of {one} ({_written(mine, score)}) is {', and '.join(words)}"]


def _component_claims(found: Mapping[str, Records]) -> list[str]:
    """Whether more than 16 components harm, with each size of the batch."""
    lines = []
    for name, records in found.items():
        values = {int(k): _value(r, "nll") for k, r in records.items() if r}
        more = [k for k in values if k > 16]
        if 16 in values and more:
            worst = max(more, key=lambda k: values[k])
            word = "harm" if values[worst] > values[16] else "do no harm"
            lines.append(
                f"{name}: more than 16 components {word}: NLL {values[16]:.4f} with 16, "
                f"{values[worst]:.4f} with {worst}."
            )
    return lines


ENTRIES = [
    Entry("ibnn-table-1", "Weights and nodes of common networks", sizes.table_1),
    Entry("ibnn-figure-1", "Regression of x³ by networks of growing depth", toys.figure_1),
    Entry("ibnn-figure-2", "The components of an iBNN over training loss and test error", fashion.figure_2),
    Entry("ibnn-figure-3", "The most and the least certain images of four classes", fashion.figure_3),
    Entry("ibnn-figure-4", "Test error of LeNet on Fashion-MNIST as it grows", widths.figure_4),
    Entry("ibnn-table-3", "Test error on CIFAR", table_3),
    Entry("ibnn-table-4", "Negative log-likelihood on CIFAR", table_4),
    Entry("ibnn-table-5", "Expected calibration error on CIFAR", table_5),
    Entry("ibnn-figure-5", "Tables 3 to 5 as a picture", figure_5),
    Entry("ibnn-table-6", "The number of components", table_6),
    Entry("ibnn-figure-6", "Table 6 as a picture", table_6),
    Entry("ibnn-table-7", "Trained networks made Bayesian", trained.table_7),
    Entry("ibnn-figure-7", "Calibration: confidence less accuracy", figure_7),
    Entry("ibnn-figure-8", "Predictive entropy under noise, split into its parts", figure_8),
    Entry("ibnn-entropic", "The successor's entropic regulariser against γ and K", entropic),
]
