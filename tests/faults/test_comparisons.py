"""Comparisons that compare something else than they say, and installations that need more than they say."""

import csv
import json
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import posterity
from posterity import datasets, evaluation
from posterity.cli.app import app

ROOT = Path(__file__).parents[2]
METHODS = ["map", "dropout", "bbb", "ibnn"]


@pytest.fixture
def table(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 3))
    with (tmp_path / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "kind"])
        writer.writerows([*row, "yes" if row[0] + row[1] > 0 else "no"] for row in x)
    return tmp_path / "table.csv"


def run(*arguments) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


def spy(monkeypatch, name: str) -> list:
    """What a function of the package is called with, from now on."""
    calls, original = [], getattr(posterity, name)

    def called(*args, **kwargs):
        calls.append((args, kwargs))
        return original(*args, **kwargs)

    monkeypatch.setattr(posterity, name, called)
    return calls


def test_every_option_of_the_command_line_reaches_the_training(table, tmp_path, monkeypatch):
    fits, predictions = spy(monkeypatch, "fit"), spy(monkeypatch, "predict")
    options = {"--epochs": 3, "--batch-size": 7, "--lr": 0.004, "--samples": 6, "--seed": 5, "--device": "cpu"}
    words = [word for option in options.items() for word in option]
    run("train", table, "--target", "kind", "--method", "ibnn", *words, "--out", tmp_path / "out")
    ((posterior, *_), arguments), *more = fits
    assert not more
    assert type(posterior) is posterity.IBNN
    wanted = {"epochs": 3, "batch_size": 7, "lr": 0.004, "seed": 5, "device": "cpu"}
    assert {name: arguments[name] for name in wanted} == wanted
    assert predictions
    assert {kwargs["samples"] for _, kwargs in predictions} == {6}


def test_methods_are_compared_on_one_network_one_budget_and_the_same_rows(table, tmp_path, monkeypatch):
    """And none of them sees a row of the test part before it is scored."""
    fits = spy(monkeypatch, "fit")
    run("compare", table, "--target", "kind", "--methods", ",".join(METHODS), "--epochs", 1, "--out", tmp_path / "out")
    assert [type(args[0]) for args, _ in fits] == [posterity.methods()[name] for name in METHODS]
    data = datasets.load(str(table), target="kind", seed=0)
    for args, kwargs in fits:
        assert torch.equal(args[1][0], data.train[0])
        assert torch.equal(args[1][1], data.train[1])
        assert kwargs["validation"] == "auto"  # of the training part
    differ = ("checkpoint", "likelihood")
    assert len({repr({k: v for k, v in kwargs.items() if k not in differ}) for _, kwargs in fits}) == 1
    assert len({repr(kwargs["likelihood"]) for _, kwargs in fits}) == 1
    assert len({repr(args[0].network) for args, _ in fits}) == 1


def test_the_scores_of_a_comparison_are_those_of_each_methods_own_model(table, tmp_path):
    out = tmp_path / "out"
    run("compare", table, "--target", "kind", "--methods", ",".join(METHODS), "--epochs", 2, "--out", out)
    found = json.loads((out / "metrics.json").read_text())["methods"]
    x, y = datasets.load(str(table), target="kind", seed=0).test
    for name in METHODS:
        posterior = posterity.load(out / "models" / name)
        prediction = posterity.predict(posterior, x, seed=0)
        scores = evaluation.score(prediction, y)
        assert {key: found[name][key] for key in scores} == pytest.approx(scores, rel=1e-5), name
    assert len({found[name]["nll"] for name in METHODS}) == len(METHODS)


ALONE = """
    import sys
    from importlib.machinery import PathFinder

    names, find = {names}, PathFinder.find_spec
    PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in names else find(name, *rest)
    import torch, posterity

    x = torch.randn(32, 3)
    for cls in posterity.methods().values():
        posterior = cls(torch.nn.Linear(3, 2), seed=0)
        history = posterity.fit(posterior, (x, (x[:, 0] > 0).long()), epochs=1, seed=0)
        prediction = posterity.predict(posterior, x, 4)
        posterity.evaluation.score(prediction, torch.zeros(32, dtype=torch.long))
        posterity.load(posterity.save(posterior, sys.argv[1]), torch.nn.Linear(3, 2))
    try:
        history.plot()
    except posterity.Error as error:
        print(error)
"""


def optional() -> list[str]:
    """The packages that only extras bring, by the names under which they are imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = [line.partition(">")[0] for group in project["optional-dependencies"].values() for line in group]
    named = {"scikit-learn": "sklearn", "pillow": "PIL"}
    return [named.get(word, word.replace("-", "_")) for word in words] + ["torchvision", "lightning", "timm"]


def test_without_extras_every_method_trains_predicts_is_scored_and_saved(tmp_path):
    script = textwrap.dedent(ALONE).format(names=set(optional()))
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pip install 'posterity[all]'" in done.stdout


def test_no_dependency_is_held_below_a_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in project["dependencies"] + project["optional-dependencies"]["all"]:
        assert not set("<=~!") & set(line.replace(">=", "")), line
