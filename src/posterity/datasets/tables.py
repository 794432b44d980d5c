"""Tables of columns: choosing the target and the task, splitting, and learning the preprocessing."""

import difflib
import warnings
from collections.abc import Mapping

import numpy as np
import torch

from posterity.datasets import columns as column
from posterity.datasets.data import Data, far_away, random, split
from posterity.datasets.preprocessing import TablePreprocessing
from posterity.errors import Error

FEWEST_ROWS = 5
_GUESSED_CLASSES = 20
TASKS = ("classification", "regression")

Table = Mapping[str, np.ndarray]


def load(name: str, table: Table, target: str | None, task: str | None, seed: int) -> Data:
    """Return ``Data`` from raw columns, one of which is the target."""
    target = choose_target(table, target)
    features = {key: values for key, values in table.items() if key != target}
    return assemble(name, features, table[target], target, task, seed)


def choose_target(table: Table, target: str | None) -> str:
    """Return the target column's name, or say which columns there are."""
    names = ", ".join(list(table)[:30]) + (", ..." if len(table) > 30 else "")
    if target is None:
        raise Error(f"Say which column to predict by target= or --target. The columns are: {names}.")
    if target not in table:
        near = difflib.get_close_matches(str(target), list(table), n=3, cutoff=0.5)
        near += [key for key in table if key.lower() == str(target).lower() and key not in near]
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise Error(f"There is no column {target!r}.{hint} The columns are: {names}.")
    return target


def assemble(
    name: str,
    features: Table,
    y: np.ndarray,
    target: str,
    task: str | None,
    seed: int,
    *,
    test: np.ndarray | None = None,
) -> Data:
    """Split rows, learn the columns from the training part, and encode both parts.

    ``test`` [n] marks the test rows; without it the split is 80/20 by ``seed``.
    """
    y, keep, task = prepare_target(y, target, task)
    rows = int(keep.sum())
    if rows < FEWEST_ROWS:
        raise Error(f"{rows} rows with a target are too few: there must be at least {FEWEST_ROWS}.")
    classes = class_names(y, target) if task == "classification" else None
    numbered = np.array([classes.index(str(c)) for c in column.labels(y)]) if classes else None
    if test is None:
        train_rows, test_rows = split(rows, seed, labels=numbered)
    else:
        train_rows, test_rows = np.flatnonzero(~test[keep]), np.flatnonzero(test[keep])
        random(seed)
    if not len(train_rows) or not len(test_rows):
        raise Error("The training part or the test part has no rows.")
    features = {key: values[keep] for key, values in features.items()}
    fitted = [column.fit(key, values[train_rows]) for key, values in features.items()]
    used = [one for one in fitted if one is not None]
    if not used:
        raise Error("No column can be used as an input: each is constant, empty, or looks like names or ids.")
    mean, std = _moments(y[train_rows], target) if classes is None else (0.0, 1.0)
    preprocessing = TablePreprocessing(
        target=target,
        classes=classes,
        target_mean=mean,
        target_std=std,
        features=list(features),
        columns=used,
    )
    x, targets = preprocessing.inputs(features), preprocessing.targets(y)
    train, held_out = torch.from_numpy(train_rows), torch.from_numpy(test_rows)
    return Data(
        name=name,
        task=task,
        train=(x[train], targets[train]),
        test=(x[held_out], targets[held_out]),
        preprocessing=preprocessing,
        outside=far_away(x[held_out], seed),
        outside_name="far away",
    )


def prepare_target(y: np.ndarray, target: str, task: str | None) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the target's values, without the missing ones, where they are, and the task (guessed if None)."""
    if task is not None and task not in TASKS:
        raise Error(f"The task must be 'classification' or 'regression', not {task!r}.")
    if y.dtype.kind not in "bfiuOUST":
        raise Error(f"The target {target!r} holds {y.dtype}, which can be neither a class nor a number.")
    keep = ~column.missing(y)
    if not keep.all():
        warnings.warn(f"{int((~keep).sum())} rows without a value of {target!r} are left out.")
    y = y[keep]
    value = column.numbers(y)
    if np.isinf(value).any():
        raise Error(f"The target {target!r} holds infinite values: mend or leave out those rows.")
    if task is None:
        task = _guess(y, value)
    if task == "regression":
        if np.isnan(value).any():
            raise Error(f"The target {target!r} holds {y[np.isnan(value)][0]!r}: regression needs numbers.")
        y = value
    return y, keep, task


def class_names(y: np.ndarray, target: str) -> list[str]:
    """Return the names of the classes, by number where all are numbers, else by alphabet."""
    names = sorted({str(name) for name in column.labels(y)})
    if len(names) < 2:
        raise Error(f"The target {target!r} has only one class, {names}: there is nothing to tell apart.")
    if len(names) > max(2, len(y) / 2):
        raise Error(
            f"The target {target!r} has {len(names)} different values in {len(y)} rows, too many for classes: "
            "name another target, or ask for the task 'regression'."
        )
    order = column.numbers(np.array(names, dtype=object))
    return names if np.isnan(order).any() else [names[i] for i in np.argsort(order, kind="stable")]


def _guess(y: np.ndarray, value: np.ndarray) -> str:
    if y.dtype.kind == "b" or np.isnan(value).any():
        return "classification"
    distinct = np.unique(value)
    whole = bool((distinct == np.round(distinct)).all())
    few = len(distinct) <= min(_GUESSED_CLASSES, max(2, len(value) / 2))
    words = column.is_text(y) and not any(character.isdigit() for character in str(y[0])) if len(y) else False
    return "classification" if (whole and few) or words else "regression"


def _moments(y: np.ndarray, target: str) -> tuple[float, float]:
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(y.mean()), float(y.std())
    if not np.isfinite(std) or not np.isfinite(mean):
        raise Error(f"The target {target!r} holds numbers that are too large: divide them by a power of ten.")
    if y.min() == y.max() or std == 0:
        raise Error(f"The target {target!r} is always {y[0]!r} in the training part: nothing can be learned.")
    return mean, std
