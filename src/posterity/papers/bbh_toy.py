"""The toy regression of Bayes by Hypernet: y = x³ + 9 ε, 20 points, by every method, beside NUTS.

x ~ U(−4, 4), one hidden layer of 100 ReLU units, a likelihood of standard deviation 9, x and y in their own units, all
points in every step of Adam. The truth is the posterior under the prior N(0, 1) of all 301 weights, from NUTS.

published   the weight of KL / N is clip(10 / (i + 1) − 1, 0, 1) in step i: 1 for five steps, 0 from the tenth on. BbH
            has generators of 16-32-64 units for each tensor, one noise variable (the default of the authors' script),
            the nearest-neighbour divergence, 200 steps at 0.01; all others have 40 steps at 0.1, without a prior for
            MAP, with log σ² = −3 at the start for BbB, ten members on FGSM inputs (ε = 0.01), a dropout of a half.
            Networks start as torch starts them, generators at the scale of the fan-in.
fair        KL / N after a ramp over the first fifth, the prior N(0, 1), rates that fall to zero over many steps. MAP,
            ensemble and dropout have the prior as the weight decay 1 / N of SGD; all else are the library's defaults.
            iBNN has its own prior, over nodes.

Bands are standard deviations of drawn functions, without the noise; distances from NUTS are those of the predictive
distribution, with it. NUTS is the truth of the model, whose prior flattens x³: new points have a score of their own.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import posterity
from posterity import networks
from posterity.datasets.toys import cubic_uniform
from posterity.diagnostics.nuts import nuts, split_rhat
from posterity.papers.bbh_cells import METHODS, SLIDES
from posterity.papers.kept import kept, kept_rates
from posterity.papers.reproduction import DEVIATIONS, Bench, Outcome, Table, verdict
from posterity.plots.common import legend, panels
from posterity.report.canvas import INK, color, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROTOCOLS = {"published": "as published", "fair": "trained by the bound"}
TRUTH = "NUTS"
HIDDEN, NOISE, POINTS, EDGE = 100, 9.0, 20, 4.0
#: Functions drawn of every method; the slides have 100.
DRAWS = 1000
HEIGHT = 130.0

Numbers = dict[str, dict[str, dict[str, float]]]


def toy(bench: Bench) -> Outcome:
    """Every method under both protocols, and how far each is from NUTS."""
    chains = bench.pick(smoke=(2, 20, 20), small=(4, 700, 700), full=(4, 1500, 2500))
    settings = {"chains": chains[0], "warmup": chains[1], "draws": chains[2], "hidden": HIDDEN}
    truth = bench.cell("bbh-toy-nuts", settings, lambda seed, _: sampled(seed, settings))
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for protocol in PROTOCOLS:
        found[protocol] = {}
        for method in SLIDES if protocol == "published" else METHODS:
            how = panel(bench, protocol, method)
            records = bench.cell(f"bbh-toy-{protocol}-{METHODS[method]}", how, _maker(bench, how))
            if records:
                found[protocol][method] = records
    exact = {record["seed"]: record["band"] for record in truth}
    numbers: Numbers = {
        protocol: {m: _mean([scores(r["band"], exact.get(r["seed"])) for r in records]) for m, records in of.items()}
        for protocol, of in found.items()
    }
    own = {TRUTH: _mean([scores(band, band) for band in exact.values()])} if exact else {}
    return Outcome(
        {**numbers, TRUTH: own.get(TRUTH, {})},
        [_table(protocol, own | of | _successor(of, numbers["fair"])) for protocol, of in numbers.items()],
        [*_truth_words(truth), *findings(numbers)],
        _picture(truth, {p: {m: records[0] for m, records in of.items()} for p, of in found.items()}),
    )


def panel(bench: Bench, protocol: str, method: str) -> dict[str, Any]:
    """All that one panel depends on besides the seed."""
    short, fair = METHODS[method], protocol == "fair"
    posterior: dict[str, Any]
    if fair:
        posterior = {"prior_std": 1.0} if short in ("bbb", "mnf", "bbh", "livi") else {}
        posterior |= {"samples": 4} if short in ("bbb", "mnf", "bbh", "livi", "ibnn") else {}
        steps = bench.pick(smoke=20, small=3_000, full=10_000)
        fit: dict[str, Any] = {"lr": 0.01, "schedule": "cosine", "weight_decay": 1 / POINTS}
        fit |= {"optimizer": "sgd"} if short in ("map", "ensemble", "dropout") else {"lr_posterior": 0.01}
    else:
        of: dict[str, dict[str, Any]] = {
            "ensemble": {"members": 10, "adversarial": 0.01},
            "dropout": {"rate": 0.5},
            "bbb": {
                "prior_std": 1.0,
                "init_std": math.exp(-1.5),
                "parametrisation": "log_variance",
                "estimator": "weights",
            },
            "mnf": {"prior_std": 1.0, "r": "paper"},
            "bbh": {
                "layout": "tensor",
                "hidden": [16, 32, 64],
                "noise": 1,
                "divergence": "nearest",
                "neighbours": 5,
                "centre": False,
                "jitter": 0.0,
                "prior_std": 1.0,
            },
        }
        posterior = of.get(short, {})
        steps = bench.pick(smoke=10, small=None, full=None) or (200 if short == "bbh" else 40)
        fit = {"lr": 0.01 if short == "bbh" else 0.1, "schedule": "constant", "weight_decay": 0.0}
    draws = bench.pick(smoke=50, small=DRAWS, full=DRAWS)
    return {"protocol": protocol, "method": short, "steps": steps, "posterior": posterior, "fit": fit, "draws": draws}


def beta(protocol: str, steps: int) -> Callable[[float], float]:
    """The weight of KL / N as a function of t, which goes from 0 to 1."""
    if protocol == "published":
        return lambda t: min(max(10 / (round(t * steps) + 1) - 1, 0.0), 1.0)
    return lambda t: min(1.0, 5 * t)


def grid() -> Tensor:
    """Where the functions are looked at, [121, 1]."""
    return torch.linspace(-6, 6, 121).unsqueeze(1)


def data(seed: int) -> tuple[Tensor, Tensor]:
    """The points, [20, 1] each."""
    x, y = (torch.tensor(part, dtype=torch.float32) for part in cubic_uniform(seed, POINTS, NOISE).train)
    return x, y.unsqueeze(1)


def energy(x: np.ndarray, y: np.ndarray, hidden: int) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """−log posterior of the weights in torch's order, and its gradient; x and y are `[points]`."""

    def of(q: np.ndarray) -> tuple[float, np.ndarray]:
        a, b, c = q[:hidden], q[hidden : 2 * hidden], q[2 * hidden : 3 * hidden]
        h = np.maximum(np.multiply.outer(x, a) + b, 0.0)
        miss = (h @ c + q[-1] - y) / NOISE**2
        back = np.where(h > 0, np.multiply.outer(miss, c), 0.0)
        slope = np.concatenate([x @ back, back.sum(0), miss @ h, [miss.sum()]])
        return 0.5 * NOISE**2 * float(miss @ miss) + 0.5 * float(q @ q), slope + q

    return of


def sampled(seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The truth: functions of the weights that NUTS draws."""
    x, y = (part.double().numpy()[:, 0] for part in data(seed))
    hidden = settings["hidden"]
    start = np.random.default_rng(seed).standard_normal((settings["chains"], 3 * hidden + 1))
    chains = nuts(energy(x, y, hidden), start, warmup=settings["warmup"], draws=settings["draws"], seed=seed)
    a, b, c, d = np.split(chains.draws, [hidden, 2 * hidden, 3 * hidden], axis=-1)
    at = grid().double().numpy()[:, 0]
    values = np.stack([(np.maximum(a * one + b, 0.0) * c).sum(-1) + d[..., 0] for one in at], axis=-1)
    flat = values.reshape(-1, len(at))
    return {
        "band": {"mean": flat.mean(0).tolist(), "std": flat.std(0).tolist()},
        "data": {"x": x.tolist(), "y": y.tolist()},
        "chains": {
            "divergences": chains.divergences,
            "steps": chains.steps,
            "largest_rhat": float(split_rhat(values).max()),
        },
    }


def _maker(bench: Bench, settings: dict[str, Any]) -> Callable[[int, Path], dict[str, Any]]:
    def make(seed: int, checkpoint: Path) -> dict[str, Any]:
        x, y = data(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = networks.MLP(1, 1, [HIDDEN])
        build: Any = posterity.methods()[settings["method"]]
        posterior = build(network, seed=seed, **kept(settings["method"], settings["posterior"]))
        history = posterity.fit(
            posterior,
            (x, y),
            posterity.Gaussian(std=NOISE),
            epochs=settings["steps"],
            batch_size=POINTS,
            beta=beta(settings["protocol"], settings["steps"]),
            seed=seed,
            device="cpu",
            checkpoint=checkpoint,
            progress=bench.progress,
            **kept_rates(build, settings["fit"]),
        )
        draws = posterior.members if settings["method"] == "ensemble" else settings["draws"]
        with torch.no_grad():
            values = posterior.draw(draws, torch.Generator().manual_seed(seed))(grid()).double().squeeze(-1)
        return {
            "band": {"mean": values.mean(0).tolist(), "std": values.std(0, correction=0).tolist()},
            "data": {"x": x.flatten().tolist(), "y": y.flatten().tolist()},
            "train_seconds": history.seconds,
        }

    return make


def scores(band: Mapping[str, list[float]], truth: Mapping[str, list[float]] | None) -> dict[str, float]:
    """Fit, spread, and how far the predictive distribution is from the truth's, on average over the grid.

    `nll` is what new points y = x³ + 9 ε cost on average, in nats; `distance` the Kullback-Leibler divergence of the
    truth's Gaussian from the method's. Both hold mean and spread.
    """
    x = grid().flatten().double()
    mean, std = (torch.tensor(band[key], dtype=torch.float64) for key in ("mean", "std"))
    inside = x.abs() <= EDGE + 1e-4
    variance = std.square() + NOISE**2
    costs = 0.5 * (((mean - x**3).square() + NOISE**2) / variance + (2 * math.pi * variance).log())
    found = {
        "rmse": float((mean - x**3)[inside].square().mean().sqrt()),
        "inside": float(std[inside].mean()),
        "outside": float(std[~inside].mean()),
        "nll": float(costs.mean()),
    }
    if truth is not None:
        theirs, spread = (torch.tensor(truth[key], dtype=torch.float64) for key in ("mean", "std"))
        whole, right = (torch.hypot(value, torch.tensor(NOISE, dtype=torch.float64)) for value in (std, spread))
        ratio = right / whole
        off = (mean - theirs) / whole
        found |= {
            "mean_off": float((mean - theirs).square().mean().sqrt()),
            "std_off": float(ratio.log().abs().mean()),
            "distance": float((0.5 * (ratio**2 + off**2 - 1) - ratio.log()).mean()),
            "outside_of_truth": found["outside"] / float(spread[~inside].mean()),
        }
    return found


def findings(numbers: Numbers) -> list[str]:
    """Whether BbH has the best trade-off of fit and uncertainty, under each protocol, and what else the slides say."""
    said = []
    for protocol, found in numbers.items():
        words = PROTOCOLS[protocol].capitalize()
        found = {m: v for m, v in found.items() if "distance" in v}
        theirs = {m: v for m, v in found.items() if m in SLIDES}
        if "BbH" not in theirs or len(theirs) < 2:
            continue
        order = sorted(theirs, key=lambda m: theirs[m]["distance"])
        held = _lower(theirs["BbH"], theirs[next(m for m in order if m != "BbH")], "distance")
        said.append(
            f"{words}, that BbH has the best trade-off of fit and uncertainty {held}: the divergence from NUTS's "
            f"predictive distribution, which holds both, is {_ranked(theirs, 'distance')} nats."
        )
        said.append(f"{words}, the negative log-likelihood of new points is {_ranked(found, 'nll')} nats.")
        points = [m for m in ("MAP", "ensemble", "MC-dropout") if m in theirs]
        low = [m for m in points if theirs[m]["outside_of_truth"] < 1]
        said.append(
            f"{words}, that {', '.join(points)} have less uncertainty outside the data than NUTS held for "
            f"{', '.join(low) or 'none'}; in units of NUTS's it is "
            + ", ".join(f"{m} {v['outside_of_truth']:.2g}" for m, v in found.items())
            + "."
        )
        for other in ("BbB", "MNF"):
            if other in theirs:
                own, its = theirs["BbH"], theirs[other]
                said.append(
                    f"{words}, that BbH fits better than {other} {_lower(own, its, 'rmse')} (RMSE {own['rmse']:.3g} "
                    f"and {its['rmse']:.3g}); that its uncertainty is closer to NUTS's {_lower(own, its, 'std_off')} "
                    f"({own['std_off']:.2f} and {its['std_off']:.2f})."
                )
        rest = [m for m in found if m not in SLIDES]
        if rest:
            beyond = _ranked({m: found[m] for m in rest}, "distance")
            said.append(f"{words}, beyond the slides: {beyond} nats from NUTS.")
    return said


def _lower(one: Mapping[str, float], other: Mapping[str, float], key: str) -> str:
    """Whether the first has less of this: a verdict, by the standard errors over seeds where there are several."""
    chance = DEVIATIONS * math.hypot(one.get(f"{key}_error", 0.0), other.get(f"{key}_error", 0.0))
    return verdict(one[key] < other[key], abs(one[key] - other[key]) >= chance)


def _ranked(found: Mapping[str, Mapping[str, float]], key: str) -> str:
    """Methods with their numbers, the lowest first."""
    return ", ".join(f"{m} {found[m][key]:.3g}" for m in sorted(found, key=lambda m: found[m][key]))


def _truth_words(truth: list[dict[str, Any]]) -> list[str]:
    if not truth:
        return []
    worst = max(record["chains"]["largest_rhat"] for record in truth)
    bad, settings = sum(record["chains"]["divergences"] for record in truth), truth[0]["settings"]
    return [
        f"The truth is {settings['chains']} chains of {settings['draws']} draws after {settings['warmup']}: R-hat at "
        f"most {worst:.3f} on the grid, {bad} divergences."
    ]


def _mean(values: list[dict[str, float]]) -> dict[str, float]:
    """Means over seeds, and where there are several their standard errors; of what all seeds have."""
    keys = [key for key in values[0] if all(key in one for one in values)]
    found = {key: statistics.fmean(one[key] for one in values) for key in keys}
    if len(values) > 1:
        found |= {f"{key}_error": statistics.stdev(one[key] for one in values) / math.sqrt(len(values)) for key in keys}
    return found


def _table(protocol: str, found: Mapping[str, Mapping[str, float]]) -> Table:
    keys = ("rmse", "inside", "outside", "nll", "mean_off", "std_off", "distance")
    rows = [[m, *(f"{v[key]:.3g}" if key in v else "–" for key in keys)] for m, v in found.items()]
    columns = ["method", "RMSE to x³, |x| ≤ 4", "sd, |x| ≤ 4", "sd, |x| > 4", "NLL of new points"]
    columns += ["mean, off NUTS's", "|log ratio| of predictive sd", "divergence from NUTS, nats"]
    return Table(f"y = x³, {PROTOCOLS[protocol]}", columns, rows)


def _successor(shown: Mapping[str, Any], fair: Mapping[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """LIVI, for a table that has none."""
    return {f"LIVI, {PROTOCOLS['fair']}": fair["LIVI"]} if "LIVI" in fair and "LIVI" not in shown else {}


def _picture(truth: list[dict[str, Any]], found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> "Figure":
    """Two rows of panels for each protocol, NUTS first; dotted, two of NUTS's deviations."""
    places: list[tuple[str, str, Mapping[str, Any]]] = [*((TRUTH, "", record) for record in truth[:1])]
    for protocol, of in found.items():
        places += [(method, PROTOCOLS[protocol], record) for method, record in of.items()]
        places += [("", "", {})] * (-len(places) % 4)
    count = max(1, len(places) // 4)
    x = grid().flatten()
    with panels(count, 4, 9.4, 0.6 + 2.1 * count, sharex=True, sharey=True) as (figure, axes):
        for where, (method, words, record) in zip(axes.flat, places, strict=False):
            where.set(xlim=(-6, 6), ylim=(-HEIGHT, HEIGHT), xticks=[-4, 0, 4])
            if not record:
                where.set_axis_off()
                continue
            mean, std = (torch.tensor(record["band"][key]) for key in ("mean", "std"))
            for k in (3, 2, 1):
                label = "1, 2 and 3 standard deviations" if k == 3 else None
                where.fill_between(
                    x, mean - k * std, mean + k * std, color=color(0), alpha=0.22, linewidth=0, label=label
                )
            if truth and method != TRUTH:
                exact = {key: torch.tensor(value) for key, value in truth[0]["band"].items()}
                for sign in (-2, 2):
                    label = "NUTS ± 2" if sign < 0 else None
                    where.plot(x, exact["mean"] + sign * exact["std"], ":", color=INK, linewidth=1, label=label)
            where.plot(x, mean, color=color(0), linewidth=1.4, label="mean")
            where.plot(x, x**3, "--", color=color(1), linewidth=1, label="x³")
            where.plot(record["data"]["x"], record["data"]["y"], "o", color=INK, markersize=2.5, label="data", zorder=4)
            where.set_title(f"{method}\n{words}" if words else f"{method}\nthe truth", fontsize=9)
        legend(figure, columns=5)
    names = ", ".join(f"{method} {words}".strip() for method, words, record in places if record)
    return described(
        figure,
        "y = x³ from 20 noisy points by each method: the mean of drawn functions with bands of 1, 2 and 3 of their",
        f"standard deviations, beside those of NUTS. Panels: {names}.",
    )
