"""Figure 1 of the iBNN paper: y = x³ by networks of one to five hidden layers (Trinh, Kaski & Heinonen 2020).

The paper's text and its code describe two experiments, and both are run:

    text   30 points, the same for both methods; the divergence has its weight in the bound, KL / N, after a ramp over
           the first fifth of the steps. The text gives no noise: its standard deviation is 1, as the likelihood's.
    code   400 points, with noise 2 for iBNN and 1 for BNN-VI. iBNN's divergence is not divided by N, which is β = N
           here, after a ramp over the first fifth; BNN-VI's is, without a ramp.

All else is the code's in both: ReLU, 256 units a layer, likelihood of standard deviation 1, 5,000 steps of Adam on all
points with constant rates and without weight decay, x and y as they are (not standardised). iBNN has K = 8, S = 8,
means from N(1, 0.5²), prior N(1, 0.3²), rates 0.008 and 0.001; BNN-VI 10 samples, prior N(0, 3²), deviations from
0.015, rate 0.001, and draws weights once for the batch (in "text", where few points make that slow, by local
reparameterisation, the same objective with less noise).

At size `small` there are 2,000 steps at 2.5 times these rates: parameters can go as far as in 5,000 (at the same rates
BNN-VI's deviations would still be on their way up from 0.015, and nothing would collapse yet). In "code" two samples a
datum take the place of 8 and 10.

A panel shows the mean of 60 drawn functions ± 2 of their standard deviations.
"""

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import posterity
from posterity import networks
from posterity.datasets.toys import cubic
from posterity.papers.reproduction import Bench, Outcome, Table
from posterity.plots.common import legend, panels
from posterity.report.canvas import INK, color, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {"ibnn": "iBNN", "bbb": "BNN-VI"}
PROTOCOLS = {"text": "as in the text", "code": "as in the code"}
WIDTH, DRAWS, RAMP = 256, 60, 0.2
LIKELIHOOD_STD = 1.0
#: Shown above and below; x³ reaches 125.
HEIGHT = 130.0
#: A fit that leaves more than this share of what a constant leaves (as an RMSE) is no fit.
COLLAPSED = 0.5
#: A fit whose RMSE grows more than so many times from the shallowest network to the deepest gets worse with depth.
WORSE = 3.0

Panels = dict[str, dict[str, dict[int, dict[str, float]]]]


def figure_1(bench: Bench) -> Outcome:
    """Both methods, both experiments, a network for each depth."""
    depths = bench.pick(smoke=(1, 2), small=(1, 2, 3, 4, 5), full=(1, 2, 3, 4, 5))
    found: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for protocol in PROTOCOLS:
        for method in METHODS:
            for depth in depths:
                settings = panel(bench, protocol, method, depth)
                name = f"cubic-{protocol}-{method}-{depth}"
                records = bench.cell(name, settings, _maker(bench, settings))
                if records:
                    found[protocol, method, depth] = records
    numbers: Panels = {p: {m: {} for m in METHODS} for p in PROTOCOLS}
    for (protocol, method, depth), records in found.items():
        scores = records[0]["scores"]
        numbers[protocol][method][depth] = {key: statistics.fmean(r["scores"][key] for r in records) for key in scores}
    return Outcome(
        {"panels": numbers, "rms_of_target": target_rms()},
        [_table(protocol, numbers[protocol]) for protocol in PROTOCOLS],
        [_size(bench), *findings(numbers)],
        _picture({key: records[0] for key, records in found.items()}, list(depths)),
    )


def panel(bench: Bench, protocol: str, method: str, depth: int) -> dict[str, Any]:
    """All that one panel depends on besides the seed. `beta` is the weight of KL / N: N where KL is not divided."""
    text = protocol == "text"
    points = 30 if text else 400
    samples = {"ibnn": 8, "bbb": 10}[method]
    if not text:  # 400 points are slow on a processor
        samples = bench.pick(smoke=1, small=2, full=samples)
    pace = bench.pick(smoke=1.0, small=2.5, full=1.0)
    posteriors: dict[str, dict[str, Any]] = {
        "ibnn": {"components": 8, "init_std": 0.5, "prior_std": 0.3, "kl": "mixture_mean", "gamma": 0.0},
        "bbb": {"prior_std": 3.0, "init_std": 0.015 / 3.0, "estimator": "auto" if text else "weights"},
    }
    return {
        "method": method,
        "hidden": [WIDTH] * depth,
        "points": points,
        "noise": 1.0 if text or method == "bbb" else 2.0,
        "steps": bench.pick(smoke=20, small=2_000, full=5_000),
        "beta": 1.0 if text or method == "bbb" else float(points),
        "ramp": 0.0 if method == "bbb" and not text else RAMP,
        "posterior": posteriors[method] | {"samples": samples},
        "fit": {"lr": pace * 1e-3, "lr_posterior": pace * {"ibnn": 0.008, "bbb": 1e-3}[method]},
    }


def beta(settings: Mapping[str, Any]) -> Callable[[float], float]:
    """The weight of KL / N as a function of t, which goes from 0 to 1."""
    weight, ramp = settings["beta"], settings["ramp"]
    return lambda t: weight * (min(1.0, t / ramp) if ramp else 1.0)


def grid() -> Tensor:
    """Where the functions are looked at, [201, 1]."""
    return torch.linspace(-5, 5, 201).unsqueeze(1)


def target_rms() -> float:
    """The root mean square of x³ over the range of the data: the RMSE of the constant 0."""
    x = grid()[_regions()["inside"]]
    return float((x**6).mean().sqrt())


def findings(numbers: Panels) -> list[str]:
    """What the numbers say of the paper's claim, by experiment: BNN-VI collapses with depth, iBNN does not."""
    limit, said = COLLAPSED * target_rms(), []
    for protocol, methods in numbers.items():
        words = PROTOCOLS[protocol].capitalize()
        for method, by_depth in methods.items():
            depths = sorted(by_depth)
            if not depths:
                continue
            listed = ", ".join(f"{by_depth[d]['rmse']:.3g}" for d in depths)
            lost = [d for d in depths if by_depth[d]["rmse"] > limit]
            narrow = [d for d in depths if by_depth[d]["outside"] <= by_depth[d]["inside"]]
            fit = f"loses the fit with {_layers(lost)}" if lost else "keeps the fit at every depth"
            spread = (
                f"its standard deviation is not larger outside the data with {_layers(narrow)}"
                if narrow
                else "its standard deviation is larger outside the data than inside at every depth"
            )
            said.append(
                f"{words}, {METHODS[method]} {fit} (RMSE against x³ on the range of the data: {listed} with "
                f"{_layers(depths)}; lost where above {limit:.3g}), and {spread} ({_ends(by_depth)})."
            )
        said += _verdict(words, methods, limit)
    return said


def _verdict(words: str, methods: Mapping[str, Mapping[int, Mapping[str, float]]], limit: float) -> list[str]:
    """One sentence on the claim, where the deepest networks of both methods were run."""
    if not all(methods.get(method) for method in METHODS):
        return []
    first, last = (methods["bbb"][at(methods["bbb"])]["rmse"] for at in (min, max))
    keeps = all(by["rmse"] <= limit and by["outside"] > by["inside"] for by in methods["ibnn"].values())
    if first > limit:
        theirs, held = "does not fit even with one layer", "did not hold"
    elif last > limit:
        theirs, held = "collapses with depth", "held"
    elif last > WORSE * first:
        theirs, held = f"gets worse with depth ({last / first:.0f} times the RMSE) but keeps a fit", "held in part"
    else:
        theirs, held = "does not collapse", "did not hold"
    ours = "keeps fit and uncertainty" if keeps else "does not keep both fit and uncertainty"
    held = held if keeps else "did not hold"
    return [f"{words}, the paper's finding {held} here: BNN-VI {theirs}, iBNN {ours}."]


def _ends(by_depth: Mapping[int, Mapping[str, float]]) -> str:
    first, last = by_depth[min(by_depth)], by_depth[max(by_depth)]
    return (
        f"inside to outside: {first['inside']:.2g} to {first['outside']:.3g} with {_layers([min(by_depth)])}, "
        f"{last['inside']:.2g} to {last['outside']:.3g} with {max(by_depth)}"
    )


def _layers(depths: list[int]) -> str:
    listed = ", ".join(map(str, depths))
    return f"{listed} hidden layer{'' if depths == [1] else 's'}"


def _size(bench: Bench) -> str:
    """What differs from the published setting."""
    ours, theirs = (panel(bench, "code", method, 1) for method in METHODS)
    return (
        f"Steps: {ours['steps']:,} at a rate of {ours['fit']['lr']:g} for weights (published: 5,000 at 0.001); samples "
        f"a datum as in the code: iBNN {ours['posterior']['samples']}, BNN-VI {theirs['posterior']['samples']} "
        "(published: 8 and 10)."
    )


def _maker(bench: Bench, settings: dict[str, Any]) -> Callable[[int, Path], dict[str, Any]]:
    def make(seed: int, checkpoint: Path) -> dict[str, Any]:
        toy = cubic(seed, points=settings["points"], noise=settings["noise"])
        x, y = (torch.tensor(part, dtype=torch.float32) for part in toy.train)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = networks.MLP(1, 1, settings["hidden"])
        build: Any = posterity.methods()[settings["method"]]
        posterior = build(network, seed=seed, **settings["posterior"])
        history = posterity.fit(
            posterior,
            (x, y.unsqueeze(1)),
            posterity.Gaussian(std=LIKELIHOOD_STD),
            epochs=settings["steps"],
            batch_size=settings["points"],
            weight_decay=0.0,
            schedule="constant",
            beta=beta(settings),
            seed=seed,
            device=bench.device,
            checkpoint=checkpoint,
            progress=bench.progress,
            **settings["fit"],
        )
        device = next(posterior.parameters()).device
        with torch.no_grad():
            values = posterior.draw(DRAWS, torch.Generator().manual_seed(seed))(grid().to(device)).double().cpu()
        mean, std = values.mean(0).flatten(), values.std(0).flatten()
        return {
            "scores": scores(mean, std),
            "train_seconds": history.seconds,
            "data": {"x": x.flatten().tolist(), "y": y.tolist()},
            "band": {"mean": mean.tolist(), "std": std.tolist()},
        }

    return make


def scores(mean: Tensor, std: Tensor) -> dict[str, float]:
    """RMSE of the mean against x³ on the range of the data, and the mean deviation there, in the gap and outside."""
    regions = _regions()
    inside = regions["inside"]
    error = mean[inside] - grid().flatten()[inside].double() ** 3
    return {"rmse": float(error.square().mean().sqrt())} | {
        name: float(std[region].mean()) for name, region in regions.items()
    }


def _regions() -> dict[str, Tensor]:
    """Points of the grid among the data, in the gap between them, and outside."""
    size, rounding = grid().flatten().abs(), 1e-4
    return {
        "inside": (size >= 1 - rounding) & (size <= 3 + rounding),
        "gap": size < 1 - rounding,
        "outside": size > 3 + rounding,
    }


def _table(protocol: str, methods: Mapping[str, Mapping[int, Mapping[str, float]]]) -> Table:
    columns = ["method", "hidden layers", "RMSE", "sd, 1 ≤ |x| ≤ 3", "sd, |x| < 1", "sd, |x| > 3"]
    rows = [
        [METHODS[method], str(depth), *(f"{by_depth[depth][key]:.3g}" for key in ("rmse", "inside", "gap", "outside"))]
        for method, by_depth in methods.items()
        for depth in sorted(by_depth)
    ]
    return Table(f"y = x³ {PROTOCOLS[protocol]}: fit and standard deviation of 60 functions", columns, rows)


def _picture(found: Mapping[tuple[str, str, int], Mapping[str, Any]], depths: list[int]) -> "Figure":
    """A row for each method and experiment, a column for each depth; data red, the band blue."""
    rows = [(protocol, method) for protocol in PROTOCOLS for method in METHODS]
    x = grid().flatten()
    with panels(len(rows), len(depths), 0.9 + 2.05 * max(2, len(depths)), 8.4, sharex=True, sharey=True) as (
        figure,
        axes,
    ):
        for row, (protocol, method) in enumerate(rows):
            for column, depth in enumerate(depths):
                where, record = axes[row, column], found.get((protocol, method, depth))
                where.set(xlim=(-5, 5), ylim=(-HEIGHT, HEIGHT), xticks=[-4, -2, 0, 2, 4])
                if record is not None:
                    _panel(where, x, record)
                if not row:
                    where.set_title(f"{depth} hidden layer{'' if depth == 1 else 's'}")
            axes[row, 0].set_ylabel(f"{METHODS[method]}\n{PROTOCOLS[protocol]}")
        legend(figure, columns=4 if len(depths) > 2 else 2)
    words = [
        f"{METHODS[m]} {PROTOCOLS[p]}, RMSE by depth: "
        + ", ".join(f"{found[p, m, d]['scores']['rmse']:.3g}" for d in depths if (p, m, d) in found)
        for p, m in rows
    ]
    return described(
        figure,
        "y = x³ by networks of growing depth: data as red points, the mean of 60 drawn functions as a line and two of",
        f"their standard deviations as a blue band. {'; '.join(words)}.",
    )


def _panel(axes: Any, x: Tensor, record: Mapping[str, Any]) -> None:
    mean, std = (torch.tensor(record["band"][key]) for key in ("mean", "std"))
    band = {"color": color(0), "alpha": 0.35, "linewidth": 0, "label": "mean ± 2 standard deviations"}
    axes.fill_between(x, mean - 2 * std, mean + 2 * std, **band)
    axes.plot(x, mean, color=color(0), linewidth=1.4, label="mean of the functions")
    axes.plot(x, x**3, color=INK, linewidth=0.9, linestyle="--", label="x³")
    points = record["data"]
    size = 3.0 if len(points["x"]) < 100 else 1.2
    axes.plot(points["x"], points["y"], "o", color="#d11f1f", markersize=size, label="data", zorder=4)
