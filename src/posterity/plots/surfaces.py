"""The components of an iBNN on the surfaces of loss and error."""

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from posterity.errors import Error, require
from posterity.likelihoods import Gaussian
from posterity.methods.ibnn import IBNN
from posterity.plots.common import legend, panels
from posterity.plots.plane import Landscape, landscape
from posterity.report.canvas import INK, color, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = 12


def components(
    posterior: IBNN,
    x: Any,
    y: Any,
    test: tuple[Any, Any] | None = None,
    *,
    resolution: int = 21,
    margin: float = 0.5,
    rows: int = 1000,
    progress: bool | None = None,
) -> "Figure":
    """The components of an iBNN on the plane of their two principal directions (Trinh et al. 2020, figure 2).

    Left is the training loss, right the test error, of the network with the noise of each point of the plane. A dot is
    a component's mean and the star the network without noise (z = 1), projected onto the plane. Both are filled with
    their own values: where that differs from what surrounds one, it lies off the plane (of three components none does).
    No random numbers are involved.

    Args:
        posterior: a trained IBNN with at least two components
        x: training inputs, [batch, ...]
        y: their answers, [batch, ...], in the units the posterior was trained in
        test: inputs and answers of the right panel; by default it shows the error of the training data
        resolution: points of the grid along each direction; the work is resolution² networks on the data
        margin: what the window adds on each side, as a share of the components' extent
        rows: how many data at most, evenly spaced in the order given
        progress: a progress bar; by default where standard error is a terminal
    """
    found = landscape(posterior, x, y, test, resolution=resolution, margin=margin, rows=rows, progress=progress)
    data = "training" if test is None else "test"
    what = "RMSE" if isinstance(posterior.likelihood, Gaussian) else "share wrong"
    with panels(1, 2, 8.6, 4.1, sharex=True, sharey=True) as (figure, grid):
        figure.set_layout_engine("compressed")
        left, right = grid[0]
        _surface(figure, left, found, found.loss, 0, "nats per datum")
        _surface(figure, right, found, found.error, 1, what)
        left.set(title="training loss", ylabel="second principal direction of z")
        right.set(title=f"{data} error")
        for axes in grid[0]:
            axes.set_xlabel("first principal direction of z")
        legend(figure)
    loss, error = found.own[:-1].mean(0).tolist()
    return described(
        figure,
        f"The {len(found.positions)} components of an iBNN on the plane of their two principal directions, which holds",
        f"{100 * found.explained:.0f} % of their spread, over contours of training loss and {data} error.",
        f"The components' mean loss is {loss:.3g} nats per datum and their mean {what} {error:.3g};",
        f"the network without noise has {found.own[-1, 0]:.3g} and {found.own[-1, 1]:.3g}.",
    )


def _surface(figure: Any, axes: Any, found: Landscape, values: Tensor, column: int, unit: str) -> None:
    """Filled contours with lines, the components, and a bar of colours."""
    low, high = float(values.min()), float(values.max())
    if not math.isfinite(low) or not math.isfinite(high):
        raise Error("Some networks on the plane have a loss that is not finite: choose a smaller margin.")
    if high - low <= 1e-9 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    levels = require("matplotlib.ticker").MaxNLocator(LEVELS).tick_values(low, high)
    grid = (found.axes[0], found.axes[1], values)
    filled = axes.contourf(*grid, levels=levels, cmap="cividis", extend="both")
    between = levels[(levels > float(values.min())) & (levels < float(values.max()))]
    if len(between):
        axes.contour(*grid, levels=between, colors="white", linewidths=0.6, alpha=0.6)
    style = {"cmap": "cividis", "norm": filled.norm, "edgecolors": color(1), "linewidths": 2}
    axes.scatter(*found.positions.T, c=found.own[:-1, column], s=60, zorder=3, label="mean of a component", **style)
    star = style | {"edgecolors": INK, "linewidths": 1.2, "marker": "*", "s": 220}
    axes.scatter(*found.network[:, None], c=found.own[-1:, column], zorder=3, label="network without noise", **star)
    axes.set_aspect("equal")
    axes.grid(False)
    axes.locator_params(nbins=5)
    bar = figure.colorbar(filled, ax=axes, shrink=0.9, extendrect=True, extendfrac=0)
    bar.set_label(unit, color=INK)
    bar.ax.locator_params(nbins=6)
