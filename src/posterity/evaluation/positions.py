"""What of a prediction is scored: the observed positions, in a row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from posterity import inputs
from posterity.errors import Error
from posterity.prediction import PARTS

NOT_OBSERVED = -100
"""The label that `Categorical` gives to what is not observed; it counts in no score."""
ROUNDING = 1e-6
"""Nats: entropies in float32 differ by less than this for no reason."""


@dataclass(frozen=True)
class Observed:
    """The observed positions of a classification: one per datum, or one per pixel, token or label."""

    probs: Tensor
    """[positions, classes]"""
    y: Tensor
    """[positions], class indices"""
    datum: Tensor
    """[positions], which row of the prediction each belongs to"""
    total: Tensor
    """[positions], entropy of the mean probabilities"""
    aleatoric: Tensor
    """[positions], mean entropy over draws"""
    epistemic: Tensor
    """[positions], their difference"""

    @property
    def wrong(self) -> Tensor:
        """[positions], 1 where the likeliest class is not the true one, else 0; float64."""
        return (self.probs.argmax(dim=1) != self.y).double()


def is_regression(prediction: Any) -> bool:
    """Whether a prediction is of numbers (it has draws of means and variances) rather than of classes.

    Args:
        prediction: what `posterity.predict` returns
    """
    return hasattr(prediction, "variances")


def class_count(prediction: Any) -> int:
    """How many classes a prediction is of; two for yes and no."""
    return int(prediction.probs.shape[1]) if _has_class_axis(prediction) else 2


def confidence_of(prediction: Any) -> Tensor:
    """The probability of the likeliest class, [batch, ...], float64."""
    probs: Tensor = prediction.probs
    if _has_class_axis(prediction):
        return probs.amax(dim=1).double()
    return torch.maximum(probs, 1 - probs).double()


def class_probabilities(prediction: Any, y: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities [batch, classes, ...] and class indices [batch, ...] that fit them.

    A yes-or-no prediction, whose probabilities have the shape of its targets, becomes one of two classes.
    Where targets carry the label of what is not observed, what is observed is returned, as
    [positions, classes] and [positions].
    """
    probs, y = prediction.probs, _labels(prediction, y)
    if not _has_class_axis(prediction):
        probs = torch.stack([1 - probs, probs], dim=1)
    return _seen(prediction, probs, y)


def class_log_probabilities(prediction: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities [positions, classes], class indices [positions] and each position's datum [positions]."""
    y = _labels(prediction, y)
    if _has_class_axis(prediction):
        log_probs = prediction.log_probs
    else:
        log_probs = F.logsigmoid(torch.stack([-prediction.logits, prediction.logits], dim=1))
    log_probs, classes = _seen(prediction, log_probs, y)
    return *_flat(log_probs, classes), _datum(y)[_mask(prediction, y)]


def observed(prediction: Any, y: Tensor) -> Observed:
    """The observed positions of a classification and the uncertainty of each.

    Args:
        prediction: of classes, or of yes and no
        y: [batch, ...], class indices; positions that carry the prediction's `ignore` label are left out
    """
    y = targets(prediction, y)
    if is_regression(prediction):
        raise Error("This needs a prediction of classes; the one given is of real numbers.")
    probs, classes = _flat(*class_probabilities(prediction, y))
    y = _labels(prediction, y)
    seen = _mask(prediction, y)
    if not len(classes):
        raise Error("There is nothing to score: every target carries the label of what is not observed.")
    total, aleatoric, epistemic = (getattr(prediction, part)[seen].double() for part in PARTS)
    return Observed(probs, classes, _datum(y)[seen], total, aleatoric, epistemic)


def labels(prediction: Any, y: Tensor) -> Tensor:
    """The label that the probabilities at each position are compared with, [batch, ...].

    Args:
        prediction: of classes, or of yes and no
        y: [batch, ...], as `prediction.log_prob` takes them
    """
    return prediction.labels(y) if hasattr(prediction, "labels") else y


def targets(prediction: Any, y: Any) -> Tensor:
    """The true answers as a tensor on the device of the prediction, numbers in the shape of their means."""
    y = y if isinstance(y, Tensor) else np.asarray(y)
    if isinstance(y, np.ndarray):
        if y.dtype.kind not in "fiub":
            raise Error("Targets are numbers; names of classes become such by posterior.preprocessing.targets(y).")
        y = torch.as_tensor(y)
    y = y.to(prediction.aleatoric.device)
    if y.is_floating_point() and bool(y.isnan().any()):
        raise Error(f"{int(y.isnan().sum())} of the targets are not numbers (NaN): leave those rows out.")
    if len(y) != len(prediction):
        raise Error(f"There are {len(prediction)} predictions but {len(y)} targets.")
    if not len(y):
        raise Error("There is nothing to score: the data are empty.")
    if is_regression(prediction):
        return inputs.shaped(y, prediction.mean.shape)
    y = y if y.is_floating_point() else y.long()
    return y.reshape(prediction.aleatoric.shape) if inputs.alike(y.shape, prediction.aleatoric.shape) else y


def uncertainty(prediction: Any, part: str) -> Tensor:
    """One part of the uncertainty, [batch, ...], float64: nats, or variances.

    What rounding may have made of epistemic nats counts as none: a method that draws one function has none at all, and
    rounding must not be ranked.
    """
    values: Tensor = getattr(prediction, part).double()
    if part == "epistemic" and not is_regression(prediction):
        values = torch.where(values < ROUNDING, 0.0, values)
    return values


def per_datum(values: Tensor) -> Tensor:
    """[batch, ...] to [batch], averaging what one datum holds."""
    return values.double().reshape(len(values), -1).mean(dim=1)


def _has_class_axis(prediction: Any) -> bool:
    """Whether it is of several classes, and not of yes and no."""
    return bool(prediction.probs.dim() == prediction.aleatoric.dim() + 1)


def _labels(prediction: Any, y: Tensor) -> Tensor:
    """Class indices in the shape of the uncertainties."""
    y = inputs.shaped(labels(prediction, y), prediction.aleatoric.shape)
    if y.is_floating_point() and bool((y != y.round()).any()):
        whole = "classes need class indices" if _has_class_axis(prediction) else "yes and no need targets of 0 and 1"
        raise Error(f"Scores of {whole}; these hold fractions: round them.")
    return y.long()


def _mask(prediction: Any, y: Tensor) -> Tensor:
    return y != getattr(prediction, "ignore", NOT_OBSERVED)


def _datum(y: Tensor) -> Tensor:
    return torch.arange(len(y), device=y.device).view(-1, *(1,) * (y.dim() - 1)).expand(y.shape)


def _flat(values: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """[batch, classes, ...] and [batch, ...] to [positions, classes] and [positions]."""
    return (
        (values.movedim(1, -1).reshape(-1, values.shape[1]), classes.flatten())
        if values.dim() > 2
        else (values, classes)
    )


def _seen(prediction: Any, values: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    if values.shape[:1] + values.shape[2:] != classes.shape:
        raise Error(
            f"Targets of shape {tuple(classes.shape)} do not fit a prediction of shape {tuple(values.shape)}: "
            "[batch, ...] and [batch, classes, ...] are needed."
        )
    seen = _mask(prediction, classes)
    if not bool(seen.all()):
        values, classes = values.movedim(1, -1)[seen], classes[seen]
    if classes.numel() and (classes.min() < 0 or classes.max() >= values.shape[1]):
        raise Error(
            f"The targets hold classes from {int(classes.min())} to {int(classes.max())}, "
            f"but the prediction knows {values.shape[1]} classes, numbered from 0."
        )
    return values, classes
