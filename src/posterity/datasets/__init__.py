"""Data sets by name, and tables and images from users' own files, ready for training.

``load("digits")`` or ``load("table.csv", target="price")`` returns ``Data``; ``read_inputs`` reads new
rows or images for a trained model through the ``Preprocessing`` it was saved with.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

from posterity.datasets import arrays, digits, folders, images, readers, tables, toys, uci
from posterity.datasets.columns import missing, settled
from posterity.datasets.data import Data, random
from posterity.datasets.leaks import warn_of_leaks
from posterity.datasets.preprocessing import Preprocessing, TablePreprocessing
from posterity.errors import Error, short
from posterity.wording import did_you_mean

__all__ = ["Data", "Preprocessing", "load", "names", "read_inputs"]

_IMAGES: dict[str, Callable[[images.Folder, bool], Data]] = {
    "mnist": images.mnist,
    "fashion-mnist": images.fashion_mnist,
    "notmnist": images.notmnist,
    "cifar10": images.cifar10,
    "cifar100": images.cifar100,
    "cifar5": images.cifar5,
}
_NAMES = {
    "digits": "1,797 handwritten digits of 8 × 8 pixels, which come with scikit-learn",
    "mnist": "70,000 handwritten digits of 28 × 28 pixels",
    "fashion-mnist": "70,000 pictures of clothes of 28 × 28 pixels",
    "notmnist": "18,724 letters A to J of 28 × 28 pixels (the small set)",
    "cifar10": "60,000 colour photographs of 32 × 32 pixels in 10 classes",
    "cifar100": "60,000 colour photographs of 32 × 32 pixels in 100 classes",
    "cifar5": "the first five classes of CIFAR-10, with the other five outside",
    "uci/boston": "506 districts of Boston: the price of houses from 13 numbers",
    "uci/concrete": "1,030 mixtures of concrete: the strength from 8 numbers",
    "uci/energy": "768 buildings: the heating load from 8 numbers",
    "uci/naval": "11,934 states of a ship's engine: the compressor's decay from 16 numbers",
    "uci/protein": "45,730 proteins: the error of the structure from 9 numbers",
    "uci/wine-red": "1,599 red wines: the quality from 11 numbers",
    "toy/cubic": "x³ from 30 points with a gap (the iBNN paper's text)",
    "toy/cubic-400": "x³ from 400 points with a gap (the iBNN paper's code)",
    "toy/cubic-bbh": "x³ from 20 points with noise of 9 (Bayes by Hypernet)",
    "toy/cubic-mnf": "x³ from 20 points with noise of 3 (MNF)",
    "toy/sinusoids": "two sinusoids from 70 points in two clusters (LIVI)",
}


def names() -> dict[str, str]:
    """Return the built-in data sets: name and description.

    Example:
        >>> from posterity import datasets
        >>> datasets.names()["toy/cubic"]
        "x³ from 30 points with a gap (the iBNN paper's text)"
    """
    return dict(_NAMES)


def load(
    name: str | os.PathLike[str],
    *,
    target: str | None = None,
    task: str | None = None,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> Data:
    """Load a built-in data set or a file: CSV, Parquet, NPZ (arrays x and y) or a folder of images by class.

    Args:
        name: one of `names()`, or the path of a file or folder.
        target: the column of a table to predict, or the array of an NPZ file (by default y).
        task: "classification" or "regression"; None guesses it from the target.
        seed: chooses the split, a UCI set's fixed split, or a toy's noise.
        data_dir: where files are sought, before POSTERITY_DATA and the cache.
        download: whether files that are nowhere are downloaded to the cache.

    Example:
        >>> from posterity import datasets
        >>> data = datasets.load("toy/cubic")
        >>> x, y = data.train
        >>> x.shape, y.shape, data.task, data.outputs
        (torch.Size([30, 1]), torch.Size([30, 1]), 'regression', 1)
    """
    random(seed)
    if not isinstance(name, str | os.PathLike):
        raise Error(f"Data are named by a text or a path; got {short(name)}.")
    if task is not None and (not isinstance(task, str) or task not in tables.TASKS):
        raise Error(f"The task must be 'classification' or 'regression', not {short(task)}.")
    if str(name) in _NAMES:
        return _built_in(str(name), target, task, seed, data_dir, download)
    path = Path(name).expanduser()
    if not path.exists():
        raise Error(
            f"There is no file or folder {str(name)!r} and no built-in data set of that name."
            f"{did_you_mean(name, _NAMES)} Built in are: {', '.join(_NAMES)}."
        )
    if path.is_dir():
        data = folders.load(path.resolve().name, path, task, seed)
    elif path.suffix.lower() == ".npz":
        data = arrays.load(path.name, path, target, task, seed)
    else:
        data = tables.load(path.name, readers.read_table(path, target), target, task, seed)
    warn_of_leaks(data)
    return data


def read_inputs(path: str | os.PathLike[str], preprocessing: Preprocessing) -> tuple[Tensor, Tensor | None]:
    """Read new rows or images for a trained model: x and, where every row has its target, y.

    x is float32, `[n, features]` or `[n, channels, height, width]`; y as in `Data`. Rows keep the file's order, images
    that of their sorted names.

    Args:
        path: a table, an NPZ file with x, an image, or a folder of images, by class or not.
        preprocessing: what the model was trained with, such as `posterior.preprocessing`.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise Error(f"There is no file or folder {str(path)!r}.")
    y: np.ndarray | None
    form: str | None = None
    if path.suffix.lower() == ".npz":
        x, y = arrays.read(path, preprocessing)
    elif preprocessing.kind == "images":
        x, y = folders.read(path, preprocessing)
    elif path.is_dir():
        raise Error(f"The model was trained on a table, but {str(path)!r} is a folder.")
    else:
        assert isinstance(preprocessing, TablePreprocessing)
        table = readers.read_table(path, preprocessing.target)
        marks = preprocessing.marks(table)
        x, y, form = (
            preprocessing.encode(table, marks),
            table.get(preprocessing.target),
            marks.get(preprocessing.target),
        )
        y = None if y is None else settled(y, preprocessing.classes or ())
    if y is not None and missing(y).any():
        warnings.warn(f"Some rows have no {preprocessing.target!r}, so the targets are not used.")
        y = None
    return x, None if y is None else preprocessing.targets(y, form)


def _built_in(
    name: str, target: str | None, task: str | None, seed: int, data_dir: images.Folder, download: bool
) -> Data:
    wanted = "regression" if name.startswith(("uci/", "toy/")) else "classification"
    if target is not None:
        raise Error(f"{name!r} is built in and has its own target: leave the target out.")
    if task not in (None, wanted):
        raise Error(f"{name!r} is a data set for {wanted}, not for {task}.")
    if name == "digits":
        return digits.load(seed)
    if name.startswith("toy/"):
        return toys.load(name, seed)
    if name in _IMAGES:
        return _IMAGES[name](data_dir, download)
    return uci.load(name.removeprefix("uci/"), seed, data_dir, download)
