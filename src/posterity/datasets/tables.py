"""Tables of columns: choosing the target and the task, splitting, and learning the preprocessing."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from posterity.datasets import columns as column
from posterity.datasets import formats
from posterity.datasets.data import Data, far_away, split
from posterity.datasets.preprocessing import MOST_COLUMNS, TablePreprocessing
from posterity.errors import Error, short
from posterity.wording import did_you_mean

FEWEST_ROWS = 5
TASKS = ("classification", "regression")
_GUESSED_CLASSES = 20

Table = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Rows:
    """Which rows have a target (``keep`` [n]), which of those train and test, and what the target is.

    ``y`` holds the raw targets of the kept rows; ``target`` what a ``Preprocessing`` must know of them.
    """

    y: np.ndarray
    keep: np.ndarray
    train: np.ndarray
    test: np.ndarray
    task: str
    target: dict[str, Any]


def load(name: str, table: Table, target: str | None, task: str | None, seed: int) -> Data:
    """Return ``Data`` from raw columns, one of which is the target."""
    target = choose_target(table, target)
    features = {key: values for key, values in table.items() if key != target}
    common = getattr(table, "decimal", "")
    return assemble(name, features, choose_rows(table[target], target, task, seed, common=common), seed, common)


def choose_target(table: Table, target: str | None) -> str:
    """Return the target column's name, or say which columns there are."""
    names = ", ".join(list(table)[:30]) + (", ..." if len(table) > 30 else "")
    if target is None:
        raise Error(f"Say which column to predict by target= or --target. The columns are: {names}.")
    if target not in table:
        hint = did_you_mean(target, table, cutoff=0.5, write=repr)
        raise Error(f"There is no column {target!r}.{hint} The columns are: {names}.")
    return target


def choose_rows(
    y: np.ndarray, target: str, task: str | None, seed: int, test: np.ndarray | None = None, common: str = ""
) -> Rows:
    """Find the task, where it is None, and split the rows that have a target.

    ``test`` [n] marks the test rows; without it the split is 80/20 by ``seed``, within each class. ``common`` is the
    decimal mark of the whole table, where it is known.
    """
    decimal = formats.learned_mark(target, y, common) if column.is_text(y) else ""
    y = column.settled(formats.plain(y, decimal))
    keep = ~column.missing(y)
    if not keep.all():
        warnings.warn(f"{int((~keep).sum())} rows without a value of {target!r} are left out.")
    y = y[keep]
    if len(y) < FEWEST_ROWS:
        raise Error(f"{len(y)} rows with a target are too few: there must be at least {FEWEST_ROWS}.")
    y, task = _check_target(y, target, task)
    known: dict[str, Any] = {"target": target, "target_format": decimal}
    numbered = None
    if task == "classification":
        known["classes"] = _class_names(y, target)
        place = {name: i for i, name in enumerate(known["classes"])}
        numbered = np.array([place[str(name)] for name in column.labels(y)])
    if test is None:
        train_rows, test_rows = split(len(y), seed, labels=numbered)
    else:
        train_rows, test_rows = np.flatnonzero(~test[keep]), np.flatnonzero(test[keep])
    if not len(train_rows) or not len(test_rows):
        raise Error("The training part or the test part has no rows.")
    if task == "regression":
        known["target_mean"], known["target_std"] = _moments(y[train_rows], target)
    return Rows(y, keep, train_rows, test_rows, task, known)


def assemble(name: str, features: Table, rows: Rows, seed: int, common: str = "") -> Data:
    """Learn the columns from the training rows and encode all rows."""
    if len(features) > MOST_COLUMNS:
        raise Error(f"There are {len(features):,} columns, more than {MOST_COLUMNS:,}.")
    features = {key: values[rows.keep] for key, values in features.items()}
    fitted = [column.fit(key, values[rows.train], common) for key, values in features.items()]
    used = [one for one in fitted if one is not None]
    if not used:
        raise Error("No column can be used as an input: each is constant, empty, or looks like names or ids.")
    preprocessing = TablePreprocessing(features=list(features), columns=used, **rows.target)
    marks = {one.name: one.format for one in used if one.kind != "date"}
    x, y = preprocessing.encode(features, marks), preprocessing.targets(rows.y, ".")
    train, test = torch.from_numpy(rows.train), torch.from_numpy(rows.test)
    return Data(
        name=name,
        task=rows.task,
        train=(x[train], y[train]),
        test=(x[test], y[test]),
        preprocessing=preprocessing,
        outside=far_away(x[test], seed),
        outside_name="far away",
    )


def _check_target(y: np.ndarray, target: str, task: str | None) -> tuple[np.ndarray, str]:
    if task is not None and task not in TASKS:
        raise Error(f"The task must be 'classification' or 'regression', not {short(task)}.")
    if y.dtype.kind not in "bfiuOUST":
        raise Error(f"The target {target!r} holds {y.dtype}, which can be neither a class nor a number.")
    value = column.numbers(y)
    if np.isinf(value).any():
        raise Error(f"The target {target!r} holds infinite values: mend or leave out those rows.")
    mixed = column.mostly_numbers(y)
    if task is None and mixed:
        warnings.warn(f"The target {target!r} is read as classes: {mixed}. Mend those or leave out their rows.")
    task = task or _guess(y, value)
    if task == "regression" and np.isnan(value).any():
        raise Error(f"The target {target!r} holds {short(y[np.isnan(value)][0])}: regression needs numbers.")
    return (value if task == "regression" else y), task


def _guess(y: np.ndarray, value: np.ndarray) -> str:
    """Text, booleans and at most 20 whole numbers, each of two rows or more on average, are classes."""
    if y.dtype.kind == "b" or np.isnan(value).any():
        return "classification"
    distinct = np.unique(value)
    whole = bool((distinct == np.round(distinct)).all())
    few = len(distinct) <= min(_GUESSED_CLASSES, max(2, len(value) / 2))
    return "classification" if whole and few else "regression"


def _class_names(y: np.ndarray, target: str) -> list[str]:
    """Return the names of the classes, by number where all are numbers, else by alphabet."""
    names = sorted({str(name) for name in column.labels(y)})
    if len(names) < 2:
        raise Error(f"The target {target!r} has only the class {names[0]!r}: there is nothing to tell apart.")
    order = column.numbers(np.array(names, dtype=object))
    if len(names) > max(2, len(y) / 2):
        instead = "" if np.isnan(order).any() else ", or ask for the task 'regression'"
        raise Error(
            f"The target {target!r} has {len(names)} values in {len(y)} rows, too many for classes: "
            f"name another target{instead}."
        )
    return names if np.isnan(order).any() else [names[i] for i in np.argsort(order, kind="stable")]


def _moments(y: np.ndarray, target: str) -> tuple[float, float]:
    if np.abs(y).max() > column.LARGEST:
        raise Error(f"The target {target!r} holds numbers that are too large: divide them by a power of ten.")
    std = float(y.std())
    if y.min() == y.max() or std == 0:
        raise Error(f"The target {target!r} is always {float(y[0])}: there is nothing to learn.")
    return float(y.mean()), std
