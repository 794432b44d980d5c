"""Figure 4 of the iBNN paper: LeNet on Fashion-MNIST as it grows (Trinh, Kaski & Heinonen 2020).

iBNN has the settings of figures 2 and 3 (`posterity.papers.fashion`). SGD has the same rate, decay and schedule, and
BNN-VI what it has in the authors' code: Adam at 0.001, one draw of the weights for each batch, deviations from 0.015;
its prior N(0, 1) is the same at every width.
"""

import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from posterity import networks, schedules
from posterity.methods.ibnn import IBNN
from posterity.papers.cells import Cell
from posterity.papers.fashion import COMPONENTS, DRAWS, SIDE
from posterity.papers.reproduction import DEVIATIONS, Bench, Outcome, Table
from posterity.plots.common import legend, panels
from posterity.report.canvas import color, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = {1: "×1", 2: "×4", 4: "×16", 8: "×64"}
METHODS = {"ibnn": f"iBNN-{COMPONENTS}", "bbb": "BNN-VI", "map": "SGD"}

Errors = Mapping[str, Mapping[int, float]]


def figure_4(bench: Bench) -> Outcome:
    """The test error as the network grows."""
    widths = bench.pick(smoke=(1, 2), small=(1, 2, 4), full=tuple(WIDTHS))
    records = {
        method: {
            width: cell(bench, method, width).records(bench, f"fashion-{method}-width-{width}") for width in widths
        }
        for method in METHODS
    }
    errors = {
        METHODS[method]: {
            width: statistics.fmean(r["scores"]["error"] for r in found) for width, found in by.items() if found
        }
        for method, by in records.items()
    }
    first = cell(bench, "ibnn", 1)
    parameters = {width: _parameters(width) for width in widths}
    tested = first.tested or 10_000
    numbers = {
        "errors": errors,
        "parameters": parameters,
        "images": first.images or 60_000,
        "epochs": first.fit["epochs"],
        "tested": tested,
        "seeds": len(bench.seeds),
    }
    rows = [
        [name, *(f"{100 * by[width]:.2f}" if width in by else "–" for width in widths)] for name, by in errors.items()
    ]
    columns = ["method", *(f"{WIDTHS[width]} ({parameters[width]:,})" for width in widths)]
    size = f"{numbers['images']:,} training images, {numbers['epochs']} epochs, {tested:,} test images"
    return Outcome(
        numbers,
        [Table(f"Test error in % by parameters: {size}", columns, rows)],
        [f"Size: {size}.", *findings(errors, tested * len(bench.seeds)), *too_short(cell(bench, "bbb", 1))],
        _picture(errors, parameters, tested * len(bench.seeds)),
    )


def cell(bench: Bench, method: str, width: int) -> Cell:
    """A network of figure 4."""
    recipe = IBNN.recipe("vgg16-cifar10", COMPONENTS)
    fit = recipe["fit"] | {"epochs": bench.pick(smoke=1, small=10, full=300)}
    plain = {name: fit[name] for name in ("epochs", "batch_size", "optimizer", "lr", "weight_decay", "schedule")}
    draws = bench.pick(smoke=8, small=16, full=DRAWS)
    of: dict[str, dict[str, Any]] = {
        "ibnn": {"posterior": recipe["posterior"] | {"assignment": "authors"}, "fit": fit, "draws": draws},
        "bbb": {
            "posterior": {"prior_std": 1.0, "init_std": 0.015, "estimator": "weights"},
            "fit": plain | {"optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0, "beta": fit["beta"]},
            "draws": draws,
        },
        "map": {"fit": plain},
    }
    digits = bench.size == "smoke"
    return Cell(
        "digits" if digits else "fashion-mnist",
        {"name": "lenet", "arguments": {"in_channels": 1, "classes": 10, "width": width}},
        method,
        augment=False,
        images=bench.pick(smoke=200, small=15_000, full=None),
        tested=bench.pick(smoke=100, small=5_000, full=None),
        enlarge=4 if digits else 1,
        crop=SIDE,
        **of[method],
    )


def findings(errors: Errors, tested: int) -> list[str]:
    """Does iBNN improve with the width, and does BNN-VI degrade beyond ×4? Judged by the standard error."""
    said = []
    for name, by in errors.items():
        widths = sorted(by)
        if len(widths) < 2:
            continue
        listed = ", ".join(f"{100 * by[w]:.2f} % at {WIDTHS[w]}" for w in widths)
        change = _change(by[widths[0]], by[widths[-1]], tested)
        said.append(f"{name} {change} from {WIDTHS[widths[0]]} to {WIDTHS[widths[-1]]} ({listed}).")
    by = errors.get(METHODS["bbb"], {})
    wider = [w for w in by if w > 2]
    if 2 in by and wider:
        widest = max(wider)
        change = _change(by[2], by[widest], tested)
        held = "as the paper says" if change == "degrades" else "unlike in the paper"
        said.append(f"BNN-VI {change} beyond ×4, to {WIDTHS[widest]}, {held}.")
    both = [errors.get(METHODS[m], {}) for m in ("ibnn", "bbb")]
    shared = [w for w in both[0] if w in both[1]]
    if shared:
        lower = [WIDTHS[w] for w in shared if both[0][w] < both[1][w]]
        said.append(f"iBNN's error is lower than BNN-VI's at {len(lower)} of {len(shared)} widths.")
    return said


def too_short(lesson: Cell) -> list[str]:
    """Says so where BNN-VI's deviations cannot come near their prior: Adam moves a number by its rate each step."""
    fit, start = lesson.fit, torch.tensor(lesson.posterior["init_std"] * lesson.posterior["prior_std"])
    steps = fit["epochs"] * -(-(lesson.images or 60_000) // fit["batch_size"])
    rate = schedules.rate(fit["schedule"])
    way = fit["lr"] * sum(rate(step / steps) for step in range(steps))
    reach = float(torch.nn.functional.softplus(start.expm1().log() + way))
    if reach > 0.5 * lesson.posterior["prior_std"]:
        return []
    return [
        f"BNN-VI's deviations start at {float(start):.3g}, and {steps:,} steps can raise them to about {reach:.2g}, "
        f"far from the prior's {lesson.posterior['prior_std']:g}: what the optimum of its bound does to wide networks "
        "cannot show at this size."
    ]


def _change(before: float, after: float, tested: int) -> str:
    limit = DEVIATIONS * math.sqrt((before * (1 - before) + after * (1 - after)) / tested)
    return "improves" if after < before - limit else "degrades" if after > before + limit else "hardly changes"


def _parameters(width: int) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in networks.LeNet(width=width).parameters())


def _picture(errors: Errors, parameters: Mapping[int, int], tested: int) -> "Figure":
    """A line for each method, with one standard error of the test images on both sides."""
    with panels(1, 1, 5.8, 3.8) as (figure, grid):
        axes = grid[0][0]
        for place, (name, by) in enumerate(errors.items()):
            widths = sorted(by)
            error = [100 * by[w] for w in widths]
            bars = [100 * math.sqrt(by[w] * (1 - by[w]) / tested) for w in widths]
            axes.errorbar([parameters[w] for w in widths], error, bars, marker="o", color=color(place), label=name)
        axes.set_xscale("log")
        axes.set_xticks(list(parameters.values()), [f"{n / 1000:,.0f}k\n({WIDTHS[w]})" for w, n in parameters.items()])
        axes.minorticks_off()
        axes.set(xlabel="parameters of LeNet", ylabel="test error, %")
        legend(figure)
    words = [f"{name} " + ", ".join(f"{100 * by[w]:.2f}" for w in sorted(by)) for name, by in errors.items()]
    return described(figure, f"Test error in percent as LeNet grows. {'; '.join(words)}.")
