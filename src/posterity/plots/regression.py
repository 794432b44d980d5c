"""A regression in one dimension: what is noise, and what is not known."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posterity.errors import Error, short
from posterity.plots.common import legend, only, panels, single, tensor
from posterity.posterior import count
from posterity.report.canvas import INK, color, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOTAL, EPISTEMIC = 0, 1
"""Places of their colours."""


def fan(
    x: Any,
    prediction: Any,
    data: tuple[Any, Any] | None = None,
    functions: int | Tensor | None = None,
    *,
    output: int = 0,
    deviations: tuple[float, ...] = (1.0, 2.0),
) -> "Figure":
    """The predictive mean with bands of its two uncertainties, and below them the two parts as curves.

    The inner bands are mean ± k·√epistemic, where functions disagree; the outer ones mean ± k·√(aleatoric + epistemic),
    where data may lie. The curves below are √aleatoric and √epistemic, in the target's units: variances add, and
    standard deviations do not.

    Args:
        x: where the prediction was made, [batch] or [batch, 1], in any order
        prediction: of real numbers, [batch, outputs]
        data: (x, y) of points to show, [n] or [n, 1] each
        functions: how many of the prediction's own draws to show as lines, or their values at x, [n, batch] or
            [n, batch, 1]
        output: which of the outputs
        deviations: the k of the bands
    """
    prediction = single(prediction)
    only(True, {"": prediction}, "A fan")
    where = _line(x, len(prediction), "x")
    if not deviations or not all(k > 0 for k in deviations):
        raise Error(f"deviations must be positive numbers; got {short(deviations)}.")
    order = where.argsort(stable=True)
    where = where[order]
    mean, aleatoric, epistemic = (
        _column(getattr(prediction, name), output)[order] for name in ("mean", "aleatoric", "epistemic")
    )
    lines = _functions(prediction, functions, output)
    with panels(2, 1, 6.0, 4.8, sharex=True, height_ratios=[3, 1]) as (figure, grid):
        upper, lower = grid[:, 0]
        words = " and ".join(f"{k:g}" for k in sorted(deviations))
        bands = (
            (TOTAL, aleatoric + epistemic, "aleatoric + epistemic", 0.16),
            (EPISTEMIC, epistemic, "epistemic", 0.45),
        )
        for place, variance, label, alpha in bands:
            for k in sorted(deviations, reverse=True):
                reach = k * variance.sqrt()
                name = f"{label}, ± {words} sd" if k == max(deviations) else None
                low, high = mean - reach, mean + reach
                upper.fill_between(where, low, high, color=color(place), alpha=alpha, linewidth=0, label=name)
        for place, line in enumerate(lines):
            name = "drawn functions" if place == 0 else None
            upper.plot(where, line[order], color=INK, alpha=0.45, linewidth=0.7, label=name)
        upper.plot(where, mean, color=INK, linewidth=1.8, label="mean")
        if data is not None:
            points = _points(data)
            upper.plot(*points, "o", color=INK, markerfacecolor="white", markersize=3.5, label="data")
        lower.plot(where, aleatoric.sqrt(), color=color(TOTAL), linestyle="--", linewidth=1.6, label="aleatoric alone")
        lower.plot(where, epistemic.sqrt(), color=color(EPISTEMIC), linewidth=1.6)
        upper.set_ylabel("y")
        lower.set(xlabel="x", ylabel="sd (units of y)")
        lower.set_ylim(bottom=0)
        upper.margins(x=0)
        legend(figure, columns=3)
    spread = " ".join(
        f"The {name} standard deviation goes from {float(part.min().sqrt()):.3g} to {float(part.max().sqrt()):.3g}."
        for name, part in (("aleatoric", aleatoric), ("epistemic", epistemic))
    )
    return described(
        figure,
        f"Predictive mean against x from {float(where[0]):.3g} to {float(where[-1]):.3g}, with bands of {words}",
        f"standard deviations of the epistemic and of the whole uncertainty. {spread}",
    )


def _line(values: Any, rows: int | None, name: str) -> Tensor:
    """[n] or [n, 1] as [n], float64."""
    given = tensor(values).double()
    flat = given.squeeze(1) if given.dim() == 2 and given.shape[1] == 1 else given
    if flat.dim() != 1 or not len(flat) or (rows is not None and len(flat) != rows):
        needed = f"[{'n' if rows is None else rows}]"
        raise Error(f"{name} must be one number for each row, {needed}; it has shape {tuple(given.shape)}.")
    if not bool(flat.isfinite().all()):
        raise Error(f"{name} holds numbers that are not finite.")
    return flat


def _column(values: Tensor, output: int) -> Tensor:
    """One output of [batch, ...], [batch], float64."""
    flat = values.double().reshape(len(values), -1)
    if not 0 <= output < flat.shape[1]:
        raise Error(f"The prediction has {flat.shape[1]} outputs, numbered from 0; there is no output {short(output)}.")
    return flat[:, output]


def _functions(prediction: Any, functions: int | Tensor | None, output: int) -> list[Tensor]:
    """The values [batch] of each function to show."""
    if functions is None:
        return []
    if isinstance(functions, int):
        n = min(count(functions, "functions"), len(prediction.means))
        # Evenly spaced: neighbouring draws of a mixture may come from the same component.
        chosen = torch.linspace(0, len(prediction.means) - 1, n).round().long()
        return [_column(prediction.means[i], output) for i in chosen]
    given = tensor(functions)
    if given.dim() < 2:
        raise Error(f"functions must be how many, or values [n, batch]; they have shape {tuple(given.shape)}.")
    return [_line(values, len(prediction), "A function's values at x") for values in given]


def _points(data: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise Error("data must be a pair (x, y).")
    x = _line(data[0], None, "The data's x")
    return x, _line(data[1], len(x), "The data's y")
