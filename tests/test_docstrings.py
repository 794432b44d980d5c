"""Every public name says what it is, names what it takes, and its examples run."""

import ast
import doctest
import importlib
import inspect
import itertools
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import posterity
from posterity.errors import Error, require

PARTS = ("evaluation", "diagnostics", "plots", "datasets", "networks", "deployment", "huggingface", "augmentation")
OPTIONAL = ("matplotlib", "optuna", "pandas", "PIL", "pyarrow", "rich", "sklearn", "transformers", "typer")
METHODS = ("MAP", "DeepEnsemble", "MCDropout", "BayesByBackprop", "MNF", "BayesByHypernet", "IBNN", "LIVI")
WITH_EXAMPLES = {
    "posterity": (
        *("fit", "predict", "save", "load", "distil", "methods", "Posterior.draw", "Categorical", "Gaussian"),
        *("PosteriorClassifier", "PosteriorRegressor", *METHODS),
    ),
    "posterity.evaluation": (
        *("score", "ece", "nll", "detect", "control_risk", "conformal_sets", "conformal_intervals"),
        *("temperature", "scaled", "under", "fgsm"),
    ),
    "posterity.diagnostics": ("check", "sbc"),
    "posterity.networks": ("create",),
    "posterity.datasets": ("load",),
}


def missing(error: Exception) -> str:
    """The package that is not installed, or else the error again: it is no reason to skip."""
    cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
    package = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    if package not in OPTIONAL:
        raise error
    return package


def optional(name: str) -> ModuleType:
    """A module of the library; the test is skipped where what the module needs is not installed."""
    try:
        if name.startswith("posterity.plots"):
            require("matplotlib")
        return importlib.import_module(name)
    except (ModuleNotFoundError, Error) as error:
        pytest.skip(f"{missing(error)} is not installed")


def exported(module: ModuleType) -> list[str]:
    """The names in `__all__`, or else those that the module itself defines."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_")])


def names() -> list[str]:
    """Every public name, dotted; of a part that cannot be imported here, the part alone."""
    found = [
        f"posterity.{name}" for name in [*posterity.__all__, "PosteriorClassifier", "PosteriorRegressor", "export"]
    ]
    for part in PARTS:
        try:
            found += [f"posterity.{part}.{name}" for name in exported(importlib.import_module(f"posterity.{part}"))]
        except (ModuleNotFoundError, Error) as error:
            missing(error)
            found.append(f"posterity.{part}")
    return found


def resolve(name: str) -> Any:
    """What a dotted name stands for."""
    head, *rest = name.removeprefix("posterity.").split(".")
    if head.startswith("Posterior") and head != "Posterior":
        optional("posterity.estimators")
    value = optional(f"posterity.{head}") if head in PARTS else getattr(posterity, head)
    for part in rest:
        value = getattr(value, part)
    return value


def own_doc(value: Any) -> str:
    """A docstring, without what Python writes for a tuple or a record by itself."""
    doc = inspect.getdoc(value) or ""
    return "" if isinstance(value, type) and doc.startswith(f"{value.__name__}(") else doc


def documented_fields(cls: type) -> set[str]:
    """The fields of a record, its own and inherited, that a string follows in the source."""
    found = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("posterity"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for field, after in itertools.pairwise(body):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, str):
                found.add(field.target.id)
    return found


def parameters(value: Callable[..., Any]) -> list[str]:
    """The names that a caller may pass; `*args` and `**options` count by their bare names."""
    if isinstance(value, type) and value.__init__ is nn.Module.__init__:  # type: ignore[misc]
        return []
    return [name for name in inspect.signature(value).parameters if not name.startswith("_")]


def unnamed(value: Any) -> list[str]:
    """The parameters that a docstring does not name: in `Args:`, as "x:" or "low, high:", or within backticks."""
    own = documented_fields(value) if isinstance(value, type) else set()
    doc = own_doc(value)
    return [
        name
        for name in parameters(value)
        if name not in own and not re.search(rf"^ +(\w+, )*{name}(, \w+)*: |`{name}`", doc, re.MULTILINE)
    ]


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that the library wrote for a class."""
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        value = getattr(value, "__func__", getattr(value, "fget", value))
        if not name.startswith("_") and isinstance(value, FunctionType) and value.__module__.startswith("posterity"):
            yield name, value


class Finder(doctest.DocTestFinder):
    """Finds functions that torch has decorated too, such as `predict`."""

    def _from_module(self, module: ModuleType | None, value: Any) -> bool:
        return super()._from_module(module, inspect.unwrap(value))  # type: ignore[misc]


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """The examples in a module's docstrings; each imports what it needs."""
    found = Finder().find(module, globs={"__name__": "__main__"})
    return [test for test in found if test.examples]


def modules() -> list[str]:
    """Every module of the library."""
    found = pkgutil.walk_packages(posterity.__path__, "posterity.", onerror=lambda name: None)
    return ["posterity", *(module.name for module in found if not module.name.endswith("__main__"))]


@pytest.mark.parametrize("name", names())
def test_a_public_name_has_a_docstring_that_names_its_parameters(name: str) -> None:
    value = resolve(name)
    if not callable(value):
        return
    assert own_doc(value), f"{name} has no docstring"
    if not (isinstance(value, type) and issubclass(value, Exception)):
        assert unnamed(value) == [], f"{name}: parameters that its docstring does not name"


@pytest.mark.parametrize("name", names())
def test_public_methods_and_properties_have_docstrings(name: str) -> None:
    value = resolve(name)
    bare = [member for member, function in members(value) if not own_doc(function)] if isinstance(value, type) else []
    assert bare == []


@pytest.mark.parametrize("name", [f"{part}.{name}" for part, names in WITH_EXAMPLES.items() for name in names])
def test_a_central_name_has_an_example(name: str) -> None:
    value = resolve(name)
    found = [test.name for test in examples(sys.modules[value.__module__])]
    assert f"{value.__module__}.{value.__qualname__}" in found, f"{name} has no example"


@pytest.mark.parametrize("name", modules())
def test_examples_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tests = examples(optional(name))
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            runner.run(test)
    assert runner.failures == 0
