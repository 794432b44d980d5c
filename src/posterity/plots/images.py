"""Inputs as pictures: which of them is a network sure of?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posterity.errors import Error, require
from posterity.evaluation.positions import per_datum, uncertainty
from posterity.plots.common import (
    classes,
    legend,
    only,
    panels,
    single,
    tensor,
)
from posterity.posterior import count, one_of
from posterity.prediction import PARTS
from posterity.report.canvas import FAINT, color, described, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OTHER, TRUE = 0, 1
"""Places of the colours of bars."""


def extremes(
    prediction: Any,
    images: Any,
    y: Any = None,
    *,
    names: Sequence[str] | None = None,
    n: int = 4,
    part: str = "total",
    top: int = 5,
) -> "Figure":
    """The most and the least certain inputs, each with bars of its likeliest classes (Trinh et al. 2020, figure 3).

    The first row starts with the most certain of all, the second with the least certain. Pixels within [0, 1] are shown
    as they are; others, such as standardised ones, are scaled by the range of all that is shown.

    Args:
        prediction: of classes, [batch, classes], or of yes and no, [batch] or [batch, 1]
        images: [batch, channels, height, width] with one or three channels, or [batch, height, width]
        y: class indices, [batch]: the bar of the true class gets another colour
        names: of the classes
        n: how many of each
        part: "total", "aleatoric" or "epistemic"
        top: how many classes have a bar
    """
    prediction = single(prediction)
    one_of(part, PARTS, "part")
    only(False, {"": prediction}, "A figure of inputs with class probabilities")
    probs, truth = _probabilities(prediction, y)
    names = _names(names, probs.shape[1])
    doubt = per_datum(uncertainty(prediction, part))
    order = doubt.argsort(stable=True)
    n = min(count(n, "n"), len(order))
    chosen = torch.stack([order[:n], order.flip(0)[:n]])
    pictures = _pictures(images, len(prediction), chosen)
    size = (max(4.0, 0.4 + 1.75 * n), 6.3 if truth is not None else 6.0)
    with panels(4, n, *size, height_ratios=[1.25, 1] * 2) as (figure, grid):
        for row, label in enumerate(("most certain", "least certain")):
            for column in range(n):
                image, bars = grid[2 * row, column], grid[2 * row + 1, column]
                index = int(chosen[row, column])
                _image(image, pictures[row][column], f"{part} {float(doubt[index]):.2g} nats")
                _bars(bars, probs[index], None if truth is None else int(truth[index]), names, top)
            grid[2 * row, 0].set_ylabel(label, fontweight="bold")
            for axes in grid[2 * row + 1]:
                axes.set_xlabel("probability", fontsize=8)
        if truth is not None:
            legend(figure, _keys())
    return described(figure, *(_words(probs, doubt, row, names, part, i) for i, row in enumerate(chosen)))


def _probabilities(prediction: Any, y: Any) -> tuple[Tensor, Tensor | None]:
    """Probabilities [batch, classes] and, where they are known, the true classes [batch]."""
    if prediction.aleatoric.numel() != len(prediction):
        raise Error("This figure needs one answer for each image, not one for each pixel or label.")
    zeros = torch.zeros(prediction.aleatoric.shape, dtype=torch.long)
    probs, _, _ = classes(prediction, zeros)
    if y is None:
        return probs, None
    truth = tensor(y).flatten()
    if len(truth) != len(probs):
        raise Error(f"There are {len(probs)} predictions but {len(truth)} targets.")
    return probs, truth.long()


def _names(names: Sequence[str] | None, classes: int) -> list[str]:
    found = [str(i) for i in range(classes)] if names is None else [short(name, 11) for name in names]
    if len(found) != classes:
        raise Error(f"There are {classes} classes but {len(found)} names.")
    return found


def _pictures(images: Any, rows: int, chosen: Tensor) -> list[list[Any]]:
    """The chosen images as [height, width] or [height, width, 3] arrays between 0 and 1."""
    images = tensor(images)
    shape = tuple(images.shape)
    images = images.unsqueeze(1) if images.dim() == 3 else images
    if images.dim() != 4 or images.shape[1] not in (1, 3) or not images.numel():
        raise Error(
            "Images must be [batch, channels, height, width] with one or three channels, or [batch, height, width]; "
            f"these have shape {shape}."
        )
    if len(images) != rows:
        raise Error(f"There are {rows} predictions but {len(images)} images.")
    shown = images[chosen.flatten()].double()
    low, high = float(shown.min()), float(shown.max())
    if not (high > low and torch.tensor([low, high]).isfinite().all()):
        raise Error("The images to show have one colour only, or pixels that are not finite: nothing could be seen.")
    if low < 0 or high > 1:
        shown = (shown - low) / (high - low)
    arrays = [image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy() for image in shown]
    return [arrays[: chosen.shape[1]], arrays[chosen.shape[1] :]]


def _image(axes: Any, picture: Any, caption: str) -> None:
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, edgecolor=FAINT)
    axes.set_title(caption, fontsize=9, fontweight="normal")


def _bars(axes: Any, probs: Tensor, truth: int | None, names: Sequence[str], top: int) -> None:
    """One bar for each of the likeliest classes, the likeliest on top."""
    likeliest = probs.argsort(descending=True, stable=True)[: count(top, "top")].tolist()
    paint = [color(TRUE if index == truth else OTHER) for index in likeliest]
    axes.barh(range(len(likeliest)), probs[likeliest].tolist(), height=0.75, color=paint)
    axes.set_yticks(range(len(likeliest)), [names[index] for index in likeliest], fontsize=8)
    axes.set_ylim(len(likeliest) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "½", "1"], fontsize=8)
    axes.grid(False, axis="y")


def _keys() -> list[Any]:
    patch: Any = require("matplotlib.patches").Patch
    return [patch(color=color(TRUE), label="true class"), patch(color=color(OTHER), label="other classes")]


def _words(probs: Tensor, doubt: Tensor, row: Tensor, names: Sequence[str], part: str, place: int) -> str:
    kind = ("most", "least")[place]
    found = ", ".join(
        f"{names[int(probs[i].argmax())]} with probability {float(probs[i].max()):.2f}" for i in row.tolist()
    )
    mean = float(doubt[row].mean())
    return f"The {len(row)} {kind} certain inputs, of mean {part} uncertainty {mean:.3g} nats, are answered: {found}."
