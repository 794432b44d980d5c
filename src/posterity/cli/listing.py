"""`posterity methods` and `posterity data`: what there is."""

import inspect

import posterity
from posterity.cli import options
from posterity.cli.console import Output


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
        ["name", "class", "what it does"], [[name, line["class"], line["about"]] for name, line in found.items()]
    )
    output.finish(found)


def data(data_dir: options.DataDir = None, json: options.Json = False) -> None:
    """List the built-in data sets, and where each was found.

    Example: `posterity data --data-dir ~/data`
    """
    output = Output(json)
    found = posterity.datasets.names(data_dir)
    output.finish(found)
