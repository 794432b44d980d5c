"""`posterity methods` and `posterity data`: what there is."""

import inspect
import os
from pathlib import Path

import posterity
from posterity import datasets
from posterity.cli import options
from posterity.cli.console import Output
from posterity.datasets import files, images, uci

_COLLECTIONS = {
    "mnist": images.MNIST,
    "fashion-mnist": images.FASHION,
    "notmnist": images.NOTMNIST,
    "cifar10": images.CIFAR10,
    "cifar100": images.CIFAR100,
    "cifar5": images.CIFAR10,
}


def methods(json: options.Json = False) -> None:
    """List the methods: the name to use with `--methods`, the class in Python, and what each does.

    Example: `posterity methods`
    """
    output = Output(json)
    found = {
        name: {"class": cls.__name__, "about": (inspect.getdoc(cls) or "").partition("\n")[0]}
        for name, cls in posterity.methods().items()
    }
    output.table(
        ["name", "class", "what it does"],
        [[name, line["class"], line["about"]] for name, line in found.items()],
    )
    output.finish(found)


def data(data_dir: options.DataDir = None, json: options.Json = False) -> None:
    """List the built-in data sets, and where each was found.

    Example: `posterity data --data-dir ~/data`

    Besides these, every command takes a CSV, Parquet or NPZ file (arrays x and y), or a folder that holds one
    folder of images for each class.
    """
    output = Output(json)
    found = {name: {"about": about, "where": _where(name, data_dir)} for name, about in datasets.names().items()}
    output.table(
        ["name", "what it is", "where"], [[name, line["about"], line["where"]] for name, line in found.items()]
    )
    output.finish(found)


def _where(name: str, data_dir: Path | None) -> str:
    """The folder in which a data set was found, or how it would come."""
    uci_name = name.removeprefix("uci/")
    collection = _COLLECTIONS.get(name) if uci_name == name else uci.collection(uci_name)
    if collection is None:
        return "built in"
    folder = files.find(collection, data_dir)
    return "not here: downloaded when first used" if folder is None else os.fspath(folder)
