"""Rows of a table for training: as often as their weights say, and in an order of their own."""

import numpy as np
import torch
from torch import Tensor

from posterity.datasets.fingerprints import fingerprints

MOST_COPIES = 10
"""Times the number of rows, up to which whole weights are copies of rows."""
_ROWS = 10_000  # at a time

Table = dict[str, np.ndarray]


def weighted_rows(
    table: Table, y: np.ndarray, weight: np.ndarray | None
) -> tuple[Table, np.ndarray, np.ndarray | None]:
    """The rows as often as their whole weights say; else those whose weight is not zero, and their weights."""
    if weight is None:
        return table, y, None
    whole = bool((weight == weight.round()).all()) and weight.sum(dtype=np.float64) <= MOST_COPIES * len(weight)
    rows = np.repeat(np.arange(len(y)), weight.astype(np.int64)) if whole else np.flatnonzero(weight)
    return _taken(table, rows), y[rows], None if whole else weight[rows]


def ordered_rows(table: Table, y: np.ndarray, weight: np.ndarray | None) -> tuple[Table, np.ndarray, Tensor | None]:
    """The rows in an order that follows from their values alone: the one they came in makes no difference."""
    parts = [*map(_ranks, table.values()), *map(_ranks, y.reshape(len(y), -1).T), *([] if weight is None else [weight])]
    pieces = [[part[start : start + _ROWS] for part in parts] for start in range(0, len(y), _ROWS)]
    found = np.concatenate([fingerprints(np.stack(piece, axis=1)) for piece in pieces])
    order = np.argsort(found, kind="stable")
    return _taken(table, order), y[order], None if weight is None else torch.from_numpy(weight[order])


def _taken(table: Table, rows: np.ndarray) -> Table:
    return {name: values[rows] for name, values in table.items()}


def _ranks(values: np.ndarray) -> np.ndarray:
    """The place of each raw value among the different ones, float64 [n]: it does not hang on the values' units."""
    if values.dtype.kind not in "biufM":
        values = np.array([str(value) for value in values])
    return np.unique(values, return_inverse=True)[1].astype(np.float64)
