"""NPZ files: x [n], [n, features] or images, y [n], and optionally test, which marks the test rows."""

from pathlib import Path

import numpy as np
from torch import Tensor

from posterity.datasets import folders, tables
from posterity.datasets.data import Data
from posterity.datasets.preprocessing import Preprocessing, channels_first, numeric
from posterity.datasets.readers import read_npz
from posterity.errors import Error


def load(name: str, path: Path, target: str | None, task: str | None, seed: int) -> Data:
    """Return ``Data`` from an NPZ file; where test is [splits, n], split ``seed`` modulo their number."""
    target = target or "y"
    arrays = read_npz(path, ["x", target, "test"])
    for wanted in ("x", target):
        if wanted not in arrays:
            raise Error(f"{path} has no array {wanted!r}: it must hold x [n, features] and {target} [n].")
    x, y = numeric(arrays["x"]), _column(arrays[target], target)
    if x.ndim == 0 or len(x) != len(y):
        raise Error(f"{path} holds x of shape {list(x.shape)} but {len(y)} targets.")
    if not x.size:
        raise Error(f"{path} holds no inputs: x is of shape {list(x.shape)}.")
    test = _test_rows(arrays["test"], len(y), seed) if "test" in arrays else None
    rows = tables.choose_rows(y, target, task, seed, test)
    if x.ndim > 2:
        return folders.assemble(name, channels_first(x), rows, 255.0 if x.dtype == np.uint8 else 1.0)
    features = x.reshape(len(x), -1)
    return tables.assemble(name, {f"x{i}": features[:, i] for i in range(features.shape[1])}, rows, seed)


def read(path: Path, preprocessing: Preprocessing) -> tuple[Tensor, np.ndarray | None]:
    """Read x for a trained model and, where it is there, the raw target."""
    arrays = read_npz(path, ["x", preprocessing.target])
    if "x" not in arrays:
        raise Error(f"{path} has no array 'x'.")
    x = preprocessing.inputs(arrays["x"])
    if preprocessing.target not in arrays:
        return x, None
    y = _column(arrays[preprocessing.target], preprocessing.target)
    if len(y) != len(x):
        raise Error(f"{path} holds {len(x)} inputs but {len(y)} targets.")
    return x, y


def _column(y: np.ndarray, target: str) -> np.ndarray:
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise Error(f"The target {target!r} must be one column, not an array of shape {list(y.shape)}.")
    return y


def _test_rows(test: np.ndarray, rows: int, seed: int) -> np.ndarray:
    if test.dtype != bool or test.ndim not in (1, 2) or test.shape[-1] != rows or not test.size:
        raise Error(f"The array 'test' must be true for test rows, of shape [{rows}] or [splits, {rows}].")
    return test if test.ndim == 1 else test[seed % len(test)]
