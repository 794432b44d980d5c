"""What the figures share: names, checks, panels, and the words that describe a figure."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from posterity import inputs
from posterity.errors import Error
from posterity.evaluation.positions import class_probabilities, is_regression, labels
from posterity.prediction import PARTS, Prediction
from posterity.report.canvas import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Predictions = Prediction | Mapping[str, Prediction]
"""One prediction, or several by name: of the same data by several methods."""


def named(predictions: Predictions) -> dict[str, Any]:
    """Predictions by name, on the processor; one alone has an empty name."""
    found = dict(predictions) if isinstance(predictions, Mapping) else {"": predictions}
    if not found:
        raise Error("There is no prediction to plot.")
    for name, prediction in found.items():
        if not isinstance(prediction, Prediction):
            raise Error(
                f"A figure needs what posterity.predict returns, or several by name; got {type(prediction).__name__}."
            )
        if not len(prediction):
            raise Error("There is nothing to plot: the prediction has no rows.")
        if not all(bool(getattr(prediction, part).isfinite().all()) for part in PARTS):
            raise Error(f"The prediction{f' {name!r}' if name else ''} holds numbers that are not finite.")
    kinds = {is_regression(prediction) for prediction in found.values()}
    if len(kinds) > 1:
        raise Error("Some predictions are of classes and some of real numbers: they have no figure in common.")
    return {str(name): prediction.to("cpu") for name, prediction in found.items()}


def single(prediction: Any) -> Any:
    """The one prediction that a figure shows."""
    if isinstance(prediction, Mapping):
        raise Error("This figure shows one prediction: choose one of those given.")
    return named(prediction)[""]


def only(regression: bool, predictions: Mapping[str, Any], figure: str) -> None:
    """Refuse predictions of the other kind."""
    if any(is_regression(prediction) != regression for prediction in predictions.values()):
        kinds = ("classes", "real numbers")
        raise Error(f"{figure} needs predictions of {kinds[regression]}; got one of {kinds[not regression]}.")


def tensor(values: Any) -> Tensor:
    """Values as a tensor on the processor, without a graph."""
    try:
        fixed = isinstance(values, np.ndarray) and not values.flags.writeable
        return torch.as_tensor(values.copy() if fixed else values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise Error(f"A tensor, an array or a list of numbers is needed; got {type(values).__name__}.") from error


def targets(prediction: Any, y: Any) -> Tensor:
    """The true answers as a tensor with as many rows as the prediction."""
    found = tensor(y)
    if not found.dim() or len(found) != len(prediction):
        raise Error(f"There are {len(prediction)} predictions but targets of shape {tuple(found.shape)}.")
    found = inputs.shaped(found, prediction.aleatoric.shape)
    if not is_regression(prediction) and found.is_floating_point() and bool((found != found.round()).any()):
        raise Error("A prediction of classes needs class indices as targets; got fractions.")
    return found


def classes(prediction: Any, y: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities [positions, classes], class indices [positions], and which positions are observed [batch, ...]."""
    y = targets(prediction, y)
    seen = labels(prediction, y) != getattr(prediction, "ignore", -100)
    if not bool(seen.any()):
        raise Error("There is nothing to plot: every target carries the label of what is not observed.")
    probs, index = class_probabilities(prediction, y)
    return probs.movedim(1, -1).reshape(-1, probs.shape[1]).double(), index.flatten(), seen


def layout(n: int) -> tuple[int, int]:
    """Rows and columns for n panels."""
    columns = n if n <= 3 else 2 if n == 4 else 3
    return -(-n // columns), columns


@contextmanager
def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> Iterator[tuple["Figure", Any]]:
    """A figure of that size in inches, and its axes [rows, columns]; options are those of `Figure.subplots`."""
    with drawing(width, height) as (figure, first):
        first.remove()
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)
        settle(figure)


def settle(figure: "Figure") -> None:
    """Make the first tick of every axis now: matplotlib would make it when it draws, in another look."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_major_ticks(1)


def legend(figure: "Figure", handles: Sequence[Any] | None = None, columns: int = 4) -> None:
    """One legend below all panels, each name once."""
    if handles is None:
        first: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                first.setdefault(label, handle)
        handles = list(first.values())
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=9)


def listing(values: Mapping[str, str]) -> str:
    """Numbers by name in words: "map 0.031, ibnn 0.012"."""
    return ", ".join(f"{name} {value}".strip() for name, value in values.items())
