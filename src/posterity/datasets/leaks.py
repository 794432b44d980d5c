"""Warnings of what lets scores flatter every model: copies of rows, and columns that give the target away."""

import math
import warnings

import numpy as np
import torch
from torch import Tensor

from posterity.datasets.columns import Column
from posterity.datasets.data import Data
from posterity.datasets.fingerprints import fingerprints
from posterity.datasets.preprocessing import TablePreprocessing

_FEWEST = 20  # rows, of which fewer are in order by chance
_SAME_ORDER = 0.9999  # rank correlation
_CHANCE = 1e-3  # that any column of noise determines a target
_TIMES = 10  # as many copies as independent columns would have: columns that depend on each other have more
_EXACT = 1e5  # the standard deviation up to which single precision tells whole numbers from others


def warn_of_leaks(data: Data) -> None:
    """Warn where test rows are copies of training rows, and of columns that number the rows or determine the target."""
    known = data.preprocessing
    columns = known.columns if isinstance(known, TablePreprocessing) else []
    _warn_of_copies(data, columns)
    if len(columns) < 2:
        return
    y = torch.cat([data.train[1], data.test[1]]).flatten().numpy()
    for start, column in _places(columns):
        parts = [x[:, start : start + column.width].double() for x, _ in (data.train, data.test)]
        numbers_rows = column.kind == "number" and len(y) >= _FEWEST and all(_rises(part, column) for part in parts)
        determines = len(y) >= _FEWEST and _determines(torch.cat(parts).numpy(), y, column, data.task, len(columns))
        if not numbers_rows and not determines:
            continue
        what = ["numbers the rows of the file"] * numbers_rows + ["determines the target all by itself"] * determines
        warnings.warn(
            f"Column {column.name!r} {' and '.join(what)}: if it is an identifier, or is known only together with the "
            f"target {known.target!r}, the scores flatter every model; take it out of the file."
        )


def _warn_of_copies(data: Data, columns: list[Column]) -> None:
    (x, y), (x_test, y_test) = data.train, data.test
    count = int(np.isin(fingerprints(x_test, y_test), fingerprints(x, y)).sum())
    chance = _copies_by_chance(data, columns) if count and columns else 0.0
    if count > _TIMES * chance + 3 * math.sqrt(chance):
        warnings.warn(
            f"{count:,} of {len(y_test):,} test rows are copies of training rows, with the same inputs and target, and "
            "flatter every model: leave repeated rows out of the data."
        )


def _copies_by_chance(data: Data, columns: list[Column]) -> float:
    """How many test rows would be like a training row if columns and target were independent."""
    (x, y), (x_test, y_test) = ((x.numpy(), y.flatten().numpy()) for x, y in (data.train, data.test))
    pairs = [(y, y_test)]
    for start, column in _places(columns):
        known, asked = x[:, start : start + column.width], x_test[:, start : start + column.width]
        category = column.kind == "category"
        pairs.append((known.argmax(1), asked.argmax(1)) if category else (known[:, 0], asked[:, 0]))
    alike = np.full(len(y_test), float(len(y)))
    for one, other in pairs:
        values, counts = np.unique(one, return_counts=True)
        place = np.searchsorted(values, other).clip(max=len(values) - 1)
        alike *= np.where(values[place] == other, counts[place] / len(y), 0)
    return float(-np.expm1(-alike).sum())


def _places(columns: list[Column]) -> list[tuple[int, Column]]:
    """Each column with the place of its first feature."""
    starts = np.cumsum([0, *(column.width for column in columns)])
    return list(zip(starts.tolist(), columns, strict=False))


def _rises(part: Tensor, column: Column) -> bool:
    """Whether a column holds whole numbers that rise, or fall, from each row to the next."""
    step = part[1:, 0] - part[:-1, 0]
    value = part[:, 0] * column.std + column.mean
    whole = column.std > _EXACT or bool(((value - value.round()).abs() < 0.1).all())
    return whole and bool((step > 0).all() or (step < 0).all())


def _determines(features: np.ndarray, y: np.ndarray, column: Column, task: str, columns: int) -> bool:
    """Whether the target follows from a column alone, by its categories, by thresholds or by its order, not by chance.

    Args:
        columns: how many there are, of which any might do so by chance
    """
    sizes = np.unique(y, return_counts=True)[1].tolist()
    orders = math.lgamma(len(y) + 1) - sum(math.lgamma(size + 1) for size in sizes)  # of the targets, in logarithms
    likely = orders + math.log(_CHANCE / columns)  # where more of them than this follow from a column of noise
    if column.kind == "category":
        place = features.argmax(1)
        pairs, groups = len(np.unique(np.stack([place, y], axis=1), axis=0)), len(np.unique(place))
        return pairs == groups and 2 * pairs <= len(y) and groups * math.log(len(sizes)) < likely
    value = features[:, 0]
    if task == "classification":
        order = np.lexsort((y, value))
        steps = y[order][1:] != y[order][:-1]
        tied = value[order][1:] == value[order][:-1]
        once = int(steps.sum()) == len(sizes) - 1 and not (steps & tied).any()
        return once and math.lgamma(len(sizes) + 1) < likely
    ranks = [np.unique(part, return_inverse=True)[1].astype(float) for part in (value, y)]
    return bool(abs(np.corrcoef(ranks[0], ranks[1])[0, 1]) > _SAME_ORDER) and len(np.unique(value)) >= _FEWEST
