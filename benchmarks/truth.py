"""Every method against posteriors that are known: the scenarios of tests/exact.

    python -m benchmarks.truth run      train and measure, into benchmarks/results/truth.json
    python -m benchmarks.truth page     docs/results/truth.md and its pictures, from the recorded runs

Runs that the file holds already are not repeated, so a stopped command goes on where it was.
"""

import argparse
import copy
import dataclasses
import functools
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "exact")]

import distances  # noqa: E402
import known  # noqa: E402
import numpy as np  # noqa: E402
import recipes  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from benchmarks.measure import machine  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "truth.json"
PAGE, IMAGES = ROOT / "docs" / "results" / "truth.md", ROOT / "docs" / "images"
SEEDS = (0, 1, 2)
#: The network once more, for those methods that keep a centre, which then starts at a mode of the posterior.
STARTED = "network, from its mode"
EPOCHS = {"linear": 600, "logistic": 600, "signs": 600, "network": 2000, STARTED: 1000}
#: Steps from the mode of those whose steps are cheap, so that mean field does not lag behind for want of them.
LONGER = {"bbb": 4000, "ibnn wide": 4000, "livi linear": 4000}
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
POINTS = ("map", "ensemble", "dropout")
IMPLICIT = ("mnf", "bbh", "ibnn", "livi")
TITLES = {
    "map": "MAP",
    "ensemble": "deep ensemble",
    "dropout": "MC dropout",
    "bbb": "Bayes by Backprop",
    "mnf": "MNF",
    "bbh": "Bayes by Hypernet",
    "bbh bound": "Bayes by Hypernet, true bound",
    "ibnn": "iBNN, defaults",
    "ibnn wide": "iBNN, wide prior",
    "livi": "LIVI",
    "livi linear": "LIVI, linear",
}
#: Bins of the picture of the two humps.
HUMPS = np.linspace(0.0, 3.0, 61)
DIAGONAL = 3

Run = dict[str, Any]


@functools.cache
def at_mode(seed: int) -> nn.Module:
    """The network at the mode of its posterior that is nearest to an initialisation."""
    problem = known.network()
    network = problem.network(seed)
    best = recipes.mode(problem, nn.utils.parameters_to_vector(network.parameters()).detach())
    nn.utils.vector_to_parameters(best.float(), network.parameters())
    return network


def names(scenario: str) -> list[str]:
    """The recipes that are run on a scenario."""
    return [name for name in recipes.RECIPES if scenario != STARTED or name not in (*POINTS, "bbh bound", "ibnn")]


def measure(scenario: str, name: str, seed: int) -> Run:
    """Train one recipe on one scenario, and compare its functions with what is known."""
    problem = known.SCENARIOS[scenario.split(",")[0]]()
    start = dataclasses.replace(problem, make=lambda: copy.deepcopy(at_mode(seed))) if scenario == STARTED else problem
    posterior = recipes.RECIPES[name].build(start, seed)
    steps = LONGER.get(name, EPOCHS[scenario]) if scenario == STARTED else EPOCHS[scenario]
    began = time.perf_counter()
    recipes.train(posterior, problem, recipes.settings(problem, name, steps), seed)
    seconds = time.perf_counter() - began
    values, reference = recipes.functions(posterior, problem), problem.reference
    result: Run = {
        "scenario": scenario,
        "method": name,
        "seed": seed,
        "steps": steps,
        "seconds": round(seconds, 2),
        "total_variation": distances.total_variation(values, reference),
        "mean_error": distances.mean_error(values, reference),
        "log_variance_error": distances.log_variance_error(values, reference),
        "log_variance_ratio": distances.log_variance_ratio(values, reference),
    }
    if scenario == "logistic":
        result["agreement"] = distances.agreement(values, reference)
    if name not in POINTS and name != "ibnn":
        found, evidence = recipes.bound(posterior, problem), recipes.log_evidence(problem, name)
        result |= {"bound": found.value, "bound_error": found.error}
        result["gap"] = None if evidence is None else evidence - found.value
    if scenario == "network":
        result["quantiles"] = np.quantile(values, LEVELS, axis=0).round(3).tolist()
    if scenario == "signs":
        result["humps"] = (np.histogram(values[:, DIAGONAL], HUMPS)[0] / len(values)).round(4).tolist()
    return result


def run(scenarios: list[str]) -> None:
    """All recipes on all scenarios with all seeds; written after each."""
    torch.set_num_threads(1)
    record: Run = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": []}
    done = {(r["scenario"], r["method"], r["seed"]) for r in record["runs"]}
    chains = {key: value for key, value in known.network().chains.items() if key != "draws"}
    record = {
        "command": "python -m benchmarks.truth run",
        "machine": machine(),
        "seeds": list(SEEDS),
        "epochs": EPOCHS,
        "draws": recipes.DRAWS,
        "bins": distances.BINS,
        "settings": {name: recipe.words for name, recipe in recipes.RECIPES.items()},
        "chains": chains,
        "runs": record["runs"],
    }
    for scenario in scenarios:
        for name in names(scenario):
            for seed in SEEDS:
                if (scenario, name, seed) in done:
                    continue
                found = measure(scenario, name, seed)
                record["runs"].append(found)
                RESULTS.write_text(json.dumps(record, indent=1) + "\n")
                print(
                    f"{scenario:9} {name:12} {seed} {found['total_variation']:.3f} {found['seconds']:.1f} s", flush=True
                )


def select(record: Run, scenario: str, name: str) -> list[Run]:
    return [r for r in record["runs"] if r["scenario"] == scenario and r["method"] == name]


def mean(runs: list[Run], key: str) -> float | None:
    values = [r[key] for r in runs if r.get(key) is not None]
    return statistics.fmean(values) if len(values) == len(runs) and values else None


def spread(runs: list[Run], key: str) -> float:
    """Standard error of the mean over seeds."""
    return statistics.stdev([r[key] for r in runs]) / math.sqrt(len(runs))


def table(record: Run, scenario: str) -> list[str]:
    """One line a method."""
    gap = "bound" if scenario.startswith("network") else "gap"
    agreement = scenario == "logistic"
    head = ["method", "total variation", "error of the mean", "of the log-variance", "variance", gap]
    head += ["same class"] * agreement + ["seconds"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name in names(scenario):
        runs = select(record, scenario, name)
        ratio = mean(runs, "log_variance_ratio")
        other = scenario.startswith("network") and recipes.RECIPES[name].method == "ibnn"  # the bound of another model
        bound, mark = None if other else mean(runs, gap), "" if recipes.RECIPES[name].bounds else "\\*"
        cells = [
            TITLES[name],
            f"{mean(runs, 'total_variation'):.3f} ± {spread(runs, 'total_variation'):.3f}",
            f"{mean(runs, 'mean_error'):.2f}",
            _number(mean(runs, "log_variance_error"), "{:.2f}"),
            "–" if ratio is None else f"× {math.exp(ratio):.2f}",
            "–" if bound is None else f"{bound:.2f}{mark}",
        ]
        if agreement:
            cells.append(f"{100 * (mean(runs, 'agreement') or 0):.0f} %")
        lines.append("| " + " | ".join([*cells, f"{mean(runs, 'seconds'):.1f}"]) + " |")
    if scenario.startswith("network"):
        again = record["chains"]["again_all"]
        lines.append(
            f"| *NUTS, other chains* | {again['total_variation']:.3f} | {again['mean_error']:.2f} | "
            f"{again['log_variance_error']:.2f} | × {math.exp(again['log_variance_ratio']):.2f} | – | "
            f"{record['chains']['runs'][1]['seconds']:.0f} |"
        )
    return lines


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def closest(record: Run, scenario: str) -> list[str]:
    """Whether some implicit method is closer to the reference than mean field, by more than two standard errors."""
    field = select(record, scenario, "bbb")
    own = mean(field, "total_variation") or 0.0
    found = {
        name: select(record, scenario, name) for name in names(scenario) if recipes.RECIPES[name].method in IMPLICIT
    }
    below = []
    for name, runs in sorted(found.items(), key=lambda item: mean(item[1], "total_variation") or 0.0):
        pairs = zip(field, runs, strict=True)
        differences = [{"by": b["total_variation"] - r["total_variation"]} for b, r in pairs]
        if (mean(differences, "by") or 0.0) > 2 * spread(differences, "by"):
            below.append(f"{TITLES[name]} ({mean(runs, 'total_variation'):.3f})")
    answer = "yes: " + ", ".join(below) if below else "**no**"
    return [f"| {scenario} | {own:.3f} | {answer} |"]


def page(record: Run) -> str:
    """docs/results/truth.md."""
    chains, machine_ = record["chains"], record["machine"]
    first = chains["runs"][0]
    wrong = {
        (name, scenario): mean(select(record, scenario, name), "gap") or 0.0
        for name in ("livi", "bbh")
        for scenario in ("linear", "logistic", "signs")
    }
    lines = [
        "# Known answers",
        "",
        "Four posteriors that are known, and how close each method comes. Generated by `python -m benchmarks.truth page` from",
        f"the runs in `benchmarks/results/truth.json`, made by `{record['command']}`: seeds {', '.join(map(str, record['seeds']))}, one thread of",
        f"{machine_['processor']}, Python {machine_['python']}, torch {machine_['torch']}. The same scenarios, with shorter training, are held in",
        "`tests/exact`, where every method must satisfy what theory says of it.",
        "",
        "| scenario | network | data | what is known |",
        "|---|---|---|---|",
        "| linear | w·x, two weights | 24, inputs correlate at 0.9, noise 1 | closed form, and the log evidence |",
        "| logistic | σ(w·x), two weights | 20, inputs correlate at 0.9 | an integral over both weights, and the log evidence |",
        "| signs | \\|w·x\\|, two weights | 16, along the two axes only, noise 0.3 | the same: \\|w₁\\| and \\|w₂\\| are told, their signs are not: two humps of functions, four of weights |",
        f"| network | 1–{chains['hidden']}–1, tanh | 24 on both sides of a gap, noise {chains['noise']} | long NUTS chains (`benchmarks/nuts.py`) |",
        "",
        "## What is measured",
        "",
        "Functions, not weights: f(x) on a grid of inputs, of 20,000 draws a method.",
        "",
        f"- *Total variation* between the distributions of f(x), averaged over the grid, on {record['bins']} bins that hold the same share of",
        f"  the reference: from 0 to {1 - 1 / record['bins']:.2f}, which is what a point has. The estimate is too large by at most",
        f"  {distances.noise(record['draws']):.3f} for that many draws; ± is the standard error over seeds.",
        "- *Error of the mean*: root mean square over the grid, in standard deviations of the reference. *Of the log-variance*: root",
        "  mean square of log(variance / reference's). *Variance*: the geometric mean of that ratio; below 1 is too sure.",
        "- *Gap*: log evidence less the evidence bound that the method reports, in nats. For a bound it is KL(q ‖ posterior) or more,",
        "  and never below 0. \\* marks the objectives that are no bound: their entropy is that of a linearised generator.",
        "- *Same class*: share of the grid on which the predicted class is the reference's. *Seconds*: of training, on a machine that",
        "  had other work; an order of magnitude.",
        "",
        f"The yardstick for the network: {first['chains']} chains of {first['samples']} draws after {first['warmup']} of warm-up, {first['divergences']} divergences, R-hat at most {first['largest_rhat']:.4f} and at least",
        f"{first['least_effective_draws']:.0f} effective draws for f at every grid point; a second set with other seeds is at a total variation of",
        f"{chains['again_all']['total_variation']:.3f} from the {record['chains'].get('kept', 2000)} draws that are kept of the first.",
        "",
        "## Is an implicit method closer than mean field?",
        "",
        "Implicit: MNF, Bayes by Hypernet, iBNN, LIVI. Mean field: Bayes by Backprop. Closer: in total variation, by more than two",
        "standard errors of the mean difference of runs with the same seed, which start at the same network.",
        "",
        "| scenario | mean field | closer |",
        "|---|---|---|",
        *[line for scenario in EPOCHS for line in closest(record, scenario)],
        "",
        *words(record),
        "",
        "The linearised entropy is exact for a linear generator and approximate for any other. What is reported is then above the log",
        "evidence, which no bound can be: "
        + ", ".join(
            f"by {-wrong[name, s]:.2f} nats on *{s}* ({TITLES[name]})"
            for name in ("livi", "bbh")
            for s in ("linear", "logistic", "signs")
            if wrong[name, s] < 0
        )
        + ".",
        f"A single hump of *signs* cannot have a gap below log 4 = 1.39; LIVI reports {wrong['livi', 'signs']:.2f} and the hypernet {wrong['bbh', 'signs']:.2f}. Their draws are close all",
        "the same. Use these objectives to train, not to compare models.",
        "",
        "![Functions of each method on the network, beside NUTS](../images/truth-network.png)",
        "",
        "*Bands of 50 % and 90 % of f(x), median and data; seed 0. Beyond the data and in the gap a posterior should widen as NUTS does.*",
        "",
        "![The two humps of signs](../images/truth-signs.png)",
        "",
        "*f along (1, 1) in* signs*: the posterior (grey) and each method, seed 0.*",
    ]
    for scenario in EPOCHS:
        lines += ["", f"## {scenario}", "", *table(record, scenario)]
    lines += [
        "",
        "## Settings",
        "",
        f"Full batches, β = 1 throughout, rates on a cosine, {EPOCHS['linear']} steps ({EPOCHS['network']} on the network; from its mode {EPOCHS[STARTED]}, and {LONGER['bbb']} for mean field, iBNN and linear LIVI), {recipes.SAMPLES} draws a step unless said; the scenario's",
        "prior is given to every method that has one over weights. MAP, ensemble and dropout train by SGD with the prior as weight",
        "decay 1/(N s²): AdamW's decay is apart from the loss, and with full batches it ends near maximum likelihood. iBNN's prior",
        "is over nodes and its weights are points, so with defaults it approximates another posterior than the one it is held",
        "against here; with the wide prior and held weights, on the networks of one layer, it is the same but for a shift of the",
        "prior's mean by a thirtieth of its standard deviation, and its gap is to the evidence of that model. No setting was tuned",
        "for a seed.",
        "",
        "| method | what is not the default |",
        "|---|---|",
        *[f"| {TITLES[name]} | {words} |" for name, words in record["settings"].items()],
    ]
    return "\n".join(lines) + "\n"


def words(record: Run) -> list[str]:
    """What each gets right and wrong, with the numbers of the runs."""

    def tv(scenario: str, name: str) -> str:
        return f"{mean(select(record, scenario, name), 'total_variation'):.2f}"

    def width(scenario: str, name: str) -> str:
        ratio = mean(select(record, scenario, name), "log_variance_ratio")
        return "×0" if ratio is None else f"×{math.exp(ratio):.2g}"

    def error(scenario: str, name: str) -> str:
        return f"{mean(select(record, scenario, name), 'mean_error'):.1f}"

    def gap(scenario: str, name: str) -> str:
        return f"{mean(select(record, scenario, name), 'gap'):.2f}"

    def log_variance(name: str) -> str:
        return f"{mean(select(record, STARTED, name), 'log_variance_error'):.2f}"

    def bound(name: str) -> str:
        return f"{mean(select(record, 'network', name), 'bound'):.0f}"

    return [
        "## What each gets right and wrong",
        "",
        "- **MAP** is at the mode, to the last digit where the network has two weights, and has no spread at all.",
        "- **Deep ensembles** find both humps of *signs*, but no width: where the posterior has one hump all members end at the same",
        f"  mode, and on the network they keep {width('network', 'ensemble')} of the variance. Disagreement of members is not the posterior's spread.",
        f"- **MC dropout** has noise in proportion to the weights, whatever the data leave open: {width('linear', 'dropout')} of the variance on *linear*,",
        f"  {width('logistic', 'dropout')} on *logistic*; on the network its mean is {error('network', 'dropout')} standard deviations off.",
        f"- **Bayes by Backprop** is the best factorised Gaussian, to within its training: means right, variance {width('linear', 'bbb')} where weights",
        f"  correlate, one of the humps of *signs* (a gap of {gap('signs', 'bbb')}, log 4 being the price of one in four).",
        f"- **MNF** finds the correlations ({tv('linear', 'mnf')} and {tv('logistic', 'mnf')} against {tv('linear', 'bbb')} and {tv('logistic', 'bbb')}) with a bound that is one, and one hump. It needs its small",
        f"  initial spread. On the network, from an initialisation, it is slow: a bound of {bound('mnf')} where mean field has {bound('bbb')}.",
        f"- **Bayes by Hypernet** is as close on *linear* and *logistic* ({tv('linear', 'bbh')}, {tv('logistic', 'bbh')}), and has one hump. With the true bound it is",
        f"  too sure ({width('logistic', 'bbh bound')} on *logistic*): what noise can add to the entropy is at most log 64.",
        f"- **iBNN** with its defaults has a prior of its own, which is narrow ({tv('linear', 'ibnn')} to {tv('logistic', 'ibnn')} on two weights). With a wide prior its mixture",
        f"  is the only one here that holds both humps of *signs* with their width ({tv('signs', 'ibnn wide')}); it also follows oblique posteriors, less well",
        f"  than what can turn. On the network its mean is off by {error('network', 'ibnn wide')}, less than that of the others with a width, and it has too little variance ({width('network', 'ibnn wide')}).",
        f"- **LIVI** is close on *linear* and *logistic* ({tv('linear', 'livi')}, {tv('logistic', 'livi')}), and has one hump. **With a linear generator** it is the best Gaussian",
        f"  ({tv('linear', 'livi linear')} on *linear*, which is the noise of the estimate), and has the best bound on the network, {bound('livi linear')}.",
        "",
        "The network is hard for all of them. The posterior of its 49 weights has a hump for every order and sign of the hidden units;",
        "a q with one hump pays for every weight that it pins down. The means of all variational methods are half a standard deviation",
        "off or more: they flatten beyond the data, where NUTS goes on and widens.",
        "",
        f"There no implicit method is closer than mean field beyond the errors, from an initialisation and after {EPOCHS['network']} steps. Two reasons are",
        f"in the runs. MNF, whose family holds mean field's, ends at a lower bound ({bound('mnf')} against {bound('bbb')}): it is not at its optimum yet. Linear LIVI",
        f"has a much better bound ({bound('livi linear')}), but the bound is of weights: at the same bound its functions are at {tv('network', 'livi linear')} here and at {tv(STARTED, 'livi linear')} when it starts",
        f"at a mode of the posterior. From there mean field comes to {tv(STARTED, 'bbb')} with every seed, and linear LIVI, a Gaussian with all correlations, is",
        f"closer; the gain is in the variance (error of its logarithm {log_variance('livi linear')} against {log_variance('bbb')}). Both had {LONGER['bbb']} steps there, as had iBNN; that length",
        f"is for those whose steps are cheap, and was chosen after a first round of {EPOCHS[STARTED]} steps for all, in which mean field was at 0.40, linear",
        f"LIVI at 0.37 and iBNN at 0.33. With more steps iBNN is worse ({tv(STARTED, 'ibnn wide')}).",
    ]


def draw(record: Run) -> None:
    """The pictures: fans on the network, and the humps of signs."""
    from matplotlib.figure import Figure

    problem = known.network()
    grid, x, y = problem.grid[:, 0].numpy(), problem.x[:, 0].numpy(), problem.y[:, 0].numpy()
    fans = {"NUTS": np.quantile(problem.chains["draws"], LEVELS, axis=0)}
    for name in recipes.RECIPES:
        fans[TITLES[name]] = np.array(select(record, "network", name)[0]["quantiles"])
    distance = {TITLES[name]: select(record, "network", name)[0]["total_variation"] for name in recipes.RECIPES}
    figure = Figure(figsize=(11, 7.6), layout="constrained", facecolor="white")
    for axes, (title, bands) in zip(figure.subplots(3, 4, sharex=True, sharey=True).flat, fans.items(), strict=True):
        colour = "#444444" if title == "NUTS" else "C0"
        axes.fill_between(grid, bands[0], bands[4], color=colour, alpha=0.2, lw=0)
        axes.fill_between(grid, bands[1], bands[3], color=colour, alpha=0.35, lw=0)
        axes.plot(grid, bands[2], color=colour, lw=1.5)
        if title != "NUTS":
            for edge in (fans["NUTS"][0], fans["NUTS"][4]):
                axes.plot(grid, edge, color="#444444", lw=0.8, ls=":")
            title = f"{title}: {distance[title]:.2f}"
        axes.scatter(x, y, s=7, color="black", zorder=3)
        axes.set(ylim=(-3.2, 3.2))
        axes.set_title(title, fontsize=10)
    figure.supxlabel("x", fontsize=10)
    figure.supylabel("f(x); dotted: 90 % of NUTS; number: total variation", fontsize=10)
    figure.savefig(IMAGES / "truth-network.png", dpi=110)

    reference = known.signs()
    centre = 0.5 * (HUMPS[1:] + HUMPS[:-1])
    exact = humps(reference)
    figure = Figure(figsize=(11, 5.4), layout="constrained", facecolor="white")
    for axes, name in zip(figure.subplots(3, 4, sharex=True).flat, recipes.RECIPES, strict=False):
        share = np.array(select(record, "signs", name)[0]["humps"])
        axes.bar(centre, exact / exact.max(), width=HUMPS[1] - HUMPS[0], color="#bbbbbb")
        axes.step(centre, share / share.max(), where="mid", color="C0", lw=1.3)
        axes.set_title(TITLES[name], fontsize=10)
        axes.set_yticks([])
    figure.axes[-1].set_axis_off()
    figure.supxlabel("f along (1, 1); heights are scaled to 1", fontsize=10)
    figure.savefig(IMAGES / "truth-signs.png", dpi=110)


def humps(scenario: known.Known) -> Any:
    """The reference's share of each bin of the picture along (1, 1), from an integral."""
    at = torch.linspace(-3.5, 3.5, 701, dtype=torch.float64)
    nodes = torch.cartesian_prod(at, at)
    weights = torch.softmax(scenario.log_joint(nodes), 0)
    values = (nodes @ scenario.grid[DIAGONAL].double()).abs()
    return np.histogram(values.numpy(), HUMPS, weights=weights.numpy())[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "page"))
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(list(EPOCHS))
    else:
        record = json.loads(RESULTS.read_text())
        PAGE.write_text(page(record))
        draw(record)


if __name__ == "__main__":
    main()
