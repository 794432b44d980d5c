"""A data set ready for training, and how rows are split and pushed away."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posterity.datasets.preprocessing import Preprocessing
from posterity.errors import Error, short


@dataclass
class Data:
    """A data set: preprocessed tensors, and the preprocessing that new inputs need.

    x is float32, `[n, features]` or `[n, channels, height, width]`; y is int64 `[n]` for classification and float32
    `[n, 1]`, standardised, for regression.
    """

    name: str
    """As `load` was given it, or of the file."""
    task: str
    """Either "classification" or "regression"."""
    train: tuple[Tensor, Tensor]
    """x and y to train on."""
    test: tuple[Tensor, Tensor]
    """x and y to test on."""
    preprocessing: Preprocessing
    """What new inputs and targets need."""
    outside: Tensor | None = None
    """Inputs from outside the data, preprocessed the same way."""
    outside_name: str = ""
    """What these are."""

    @property
    def outputs(self) -> int:
        """The number of outputs a network needs: classes, or 1 for regression."""
        classes = self.preprocessing.classes
        return 1 if classes is None else len(classes)


def random(seed: int) -> np.random.Generator:
    """Return numpy's generator for a seed, which must be a whole number from 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise Error(f"The seed must be a whole number from 0, not {short(seed)}.")
    return np.random.default_rng(int(seed))


def split(
    rows: int, seed: int, *, labels: np.ndarray | None = None, part: float = 0.2
) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted row numbers for training and for test, the latter about ``part`` of all.

    With ``labels`` [rows] each class is split by itself, and a class of one row goes to training.
    """
    generator = random(seed)
    groups = [np.arange(rows)]
    if labels is not None:
        groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    test = np.zeros(rows, dtype=bool)
    for group in groups:
        count = min(max(round(part * len(group)), 1), len(group) - 1)
        test[generator.permutation(group)[:count]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def far_away(x: Tensor, seed: int = 0) -> Tensor:
    """Push each row of x [n, features] in a random direction by 5 + its norm, in standardised units.

    The result is thus at least 5 from the mean of the training data, whatever the row.
    """
    generator = torch.Generator().manual_seed(int(random(seed).integers(2**31)))
    direction = torch.randn(x.shape, generator=generator)
    direction = direction / direction.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return x + direction * (5 + x.norm(dim=1, keepdim=True))
