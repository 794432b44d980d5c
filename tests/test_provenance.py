"""A model knows the rows that it was trained on: `evaluate` scores others, `predict` marks them."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from posterity import datasets
from posterity.cli.app import app
from posterity.cli.provenance import NOTE, ROWS, Provenance
from posterity.datasets.data import split
from posterity.datasets.fingerprints import fingerprints
from posterity.errors import Error


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def evaluated(model, data, folder, *options):
    result = run("evaluate", model, data, "--out", folder / "e", "--json", *options)
    return json.loads(result.stdout), " ".join(result.stderr.split())


def predicted(model, data, folder):
    result = run("predict", model, data, "--out", folder / "p.csv")
    with (folder / "p.csv").open(newline="") as file:
        return list(csv.DictReader(file)), " ".join(result.stderr.split())


def table(path, rows, seed=0):
    x = np.random.default_rng(seed).normal(size=(rows, 2)).round(6)
    lines = [f"{a},{b},{2 * a - b**2}" for a, b in x.tolist()]
    path.write_text("\n".join(["a,b,y", *lines]))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = table(folder / "table.csv", 100)
    run("train", data, "--target", "y", "--method", "map", "--epochs", 1, "--seed", 3, "--out", folder / "m")
    return data, folder / "m"


def test_built_in_data_are_split_as_in_training_whatever_the_seed(tmp_path):
    run("train", "digits", "--method", "map", "--epochs", 1, "--batch-size", 256, "--seed", 3, "--out", tmp_path / "m")
    scores = json.loads((tmp_path / "m" / "metrics.json").read_text())["methods"]["map"]
    for seed in (0, 3):
        found, _ = evaluated(tmp_path / "m", "digits", tmp_path, "--seed", seed)
        assert found["held_out"]
        assert found["scores"]["error"] == scores["error"]
    rows, _ = predicted(tmp_path / "m", "digits", tmp_path)
    assert len(rows) == found["rows"]
    assert "in_training" not in rows[0]
    known = Provenance.of(tmp_path / "m")
    assert known.trained(datasets.load("digits", seed=3).train[0]).all()


def test_of_the_training_file_the_held_out_rows_are_scored(trained, tmp_path):
    data, model = trained
    scores = json.loads((model / "metrics.json").read_text())["methods"]["map"]
    shutil.copy(data, tmp_path / "renamed.csv")
    for path in (data, tmp_path / "renamed.csv"):
        found, said = evaluated(model, path, tmp_path)
        assert found["rows"] == 20
        assert found["held_out"]
        assert found["scores"]["rmse"] == pytest.approx(scores["rmse"], rel=1e-5)
        assert "the 20 that were held out are scored" in said


def test_training_rows_among_new_ones_are_counted_and_marked(trained, tmp_path):
    data, model = trained
    new = table(tmp_path / "new.csv", 30, seed=1)
    found, said = evaluated(model, new, tmp_path)
    assert found["rows"] == 30
    assert "trained the model" not in said
    assert "in_training" not in predicted(model, new, tmp_path)[0][0]
    more = tmp_path / "more.csv"
    more.write_text(data.read_text() + "\n" + new.read_text().partition("\n")[2])
    found, said = evaluated(model, more, tmp_path)
    assert found["rows"] == 130
    assert not found["held_out"]
    assert "80 of 130 rows" in said
    assert "on these its scores flatter it" in said
    rows, said = predicted(model, more, tmp_path)
    assert "80 of 130 rows" in said
    marked = [number for number, row in enumerate(rows) if row["in_training"] == "True"]
    assert marked == split(100, seed=3)[0].tolist()


def test_rows_that_new_ones_equal_by_chance_are_not_told_of(tmp_path):
    generator = np.random.default_rng(0)

    def write(name):
        a, b = generator.integers(0, 2, (2, 100))
        y = np.where(generator.random(100) < 0.2 + 0.6 * a, "yes", "no")
        (tmp_path / name).write_text("\n".join(["a,b,y", *(f"{i},{j},{k}" for i, j, k in zip(a, b, y, strict=True))]))
        return tmp_path / name

    run("train", write("t.csv"), "--target", "y", "--method", "map", "--epochs", 1, "--out", tmp_path / "m")
    _, said = evaluated(tmp_path / "m", write("new.csv"), tmp_path)
    assert "trained the model" not in said


def test_a_model_that_does_not_say_what_trained_it_is_warned_of(trained, tmp_path):
    data, model = trained
    old = shutil.copytree(model, tmp_path / "old")
    (old / ROWS).unlink()
    found, _ = evaluated(old, data, tmp_path)
    assert found["rows"] == 20  # its run is noted, which is enough for the same file
    (old / NOTE).unlink()
    found, said = evaluated(old, data, tmp_path)
    assert found["rows"] == 100
    assert "does not say on which rows it was trained" in said
    predicted(old, data, tmp_path)


def test_a_corrupt_note_of_rows_is_an_error(trained, tmp_path):
    other = shutil.copytree(trained[1], tmp_path / "m")
    np.savez(other / ROWS, rows=np.zeros(3), alike=0.0)
    with pytest.raises(Error, match=r"training_rows\.npz is corrupt"):
        Provenance.of(other)


def test_fingerprints_are_of_the_bits_of_rows():
    x = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])
    a, b, c = fingerprints(x)
    assert a == b != c
    assert not set(fingerprints(x)) & set(fingerprints(x, torch.zeros(3)))
