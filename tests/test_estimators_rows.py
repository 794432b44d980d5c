"""What the scikit-learn estimators make of rows, their weights and order, and of the units of their targets."""

import csv

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import posterity
from posterity import PosteriorClassifier, PosteriorRegressor
from posterity.cli.app import app
from posterity.datasets.preprocessing import Preprocessing
from posterity.errors import Error

TINY = {"hidden": (4,), "epochs": 3, "samples": 4, "random_state": 0, "batch_size": 16}


def frame(n=60, seed=0):
    rng = np.random.default_rng(seed)
    town = rng.choice(["Bern", "Basel"], n)
    table = pd.DataFrame({"size": rng.normal(100, 20, n), "town": town, "built": pd.Timestamp("2020-01-01")})
    table["built"] += pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    table.loc[::7, "size"] = np.nan
    return table, np.nan_to_num(table["size"], nan=100.0) + 50 * (town == "Bern") + rng.normal(0, 5, n)


@pytest.mark.parametrize("kind", [PosteriorRegressor, PosteriorClassifier])
def test_whole_weights_are_copies_of_rows_in_any_order(kind):
    table, y = frame()
    y = y if kind is PosteriorRegressor else np.where(y > 130, "dear", "cheap")
    rng = np.random.default_rng(1)
    weight, order = rng.integers(0, 4, len(y)), rng.permutation(len(y))
    weighted = kind("ibnn", **TINY).fit(table.iloc[order], y[order], sample_weight=weight[order])
    repeated = kind("ibnn", **TINY).fit(table.loc[np.repeat(np.arange(len(y)), weight)], np.repeat(y, weight))
    said = [m.predict_posterior(table).total for m in (weighted, repeated, kind("ibnn", **TINY).fit(table, y))]
    assert torch.equal(said[0], said[1])
    assert not torch.equal(said[0], said[2])


def test_other_weights_are_those_of_the_likelihood():
    table, y = frame()
    fits = [PosteriorRegressor("map", **TINY).fit(table, y, sample_weight=w) for w in (None, np.linspace(0.5, 1.5, 60))]
    assert len(fits[1].history_) == len(fits[0].history_)
    assert not np.array_equal(fits[0].predict(table), fits[1].predict(table))
    huge = PosteriorRegressor("map", **TINY).fit(table, y, sample_weight=np.full(60, 1e9))
    assert np.isfinite(huge.predict(table)).all()


@pytest.mark.parametrize("several", [False, True])
def test_the_noise_to_begin_with_is_in_the_units_of_y(several):
    table, y = frame()
    y, initial = (np.stack([y, 1000 * y], 1), [3.0, 2000.0]) if several else (y, 3.0)
    still = {**TINY, "epochs": 1, "fit_options": {"lr": 0.0}}
    std = PosteriorRegressor("map", likelihood=posterity.Gaussian(initial=initial), **still).fit(table, y)
    known = PosteriorRegressor("map", likelihood=posterity.Gaussian(std=initial), **still).fit(table, y)
    for model in (std, known):
        assert np.allclose(model.predict(table, return_std=True)[1], initial, rtol=1e-5)
    assert std.posterior_.likelihood.learned


@pytest.fixture(scope="module")
def several():
    table, y = frame()
    return table, PosteriorRegressor("map", **TINY).fit(table, np.stack([y, -1000 * y + 7], 1))


def test_several_targets_keep_their_units_when_saved(several, tmp_path):
    table, model = several
    posterity.save(model.posterior_, tmp_path / "model")
    loaded = posterity.load(tmp_path / "model")
    assert loaded.preprocessing.target_mean == pytest.approx(model._mean.tolist())
    said = posterity.predict(loaded, table)
    mean, std = model.predict(table, return_std=True)
    assert np.allclose(said.mean, mean, rtol=1e-6)
    assert np.allclose(said.std, std, rtol=1e-6)
    back = loaded.preprocessing.targets(said.mean)
    assert np.allclose(back * model._std + model._mean, mean, rtol=1e-4)
    with pytest.raises(Error, match=r"shape \[n, 2\]; got \[60\]"):
        loaded.preprocessing.targets(said.mean[:, 0])


def test_several_targets_are_predicted_from_the_command_line(several, tmp_path):
    table, model = several
    posterity.save(model.posterior_, tmp_path / "model")
    table.to_csv(tmp_path / "new.csv", index=False)
    words = ["predict", tmp_path / "model", tmp_path / "new.csv", "--out", tmp_path / "p.csv"]
    for _ in range(2):  # the second replaces the first
        result = CliRunner().invoke(app, list(map(str, words)))
        assert result.exit_code == 0, result.output
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    mean = model.predict(table)
    assert [[float(r["mean_0"]), float(r["mean_1"])] for r in rows] == pytest.approx(mean, rel=1e-5)
    assert "total_1" in rows[0]


def test_several_targets_are_exported_in_their_units(several, tmp_path):
    model = several[1]
    path, facts = posterity.export(model.posterior_, tmp_path / "model.pt2")
    assert facts["outputs"]["mean"]["shape"] == ["batch", 2]
    program = torch.export.load(path).module()
    given = torch.tensor([[100.0, 0.0, 18_500.0]], dtype=torch.float64)
    mean = model.predict(pd.DataFrame({"size": [100.0], "town": ["Basel"], "built": [pd.Timestamp("2020-08-26")]}))
    assert facts["columns"][1]["categories"] == ["Basel", "Bern"]
    assert np.allclose(program(given)["mean"].detach(), mean, rtol=1e-5)


@pytest.mark.parametrize("change", [{"target_std": [1.0]}, {"target_std": [1.0, 0.0]}, {"target_mean": ["1", 2.0]}])
def test_moments_of_several_targets_are_checked(several, change):
    good = several[1].preprocessing_.to_dict()
    assert Preprocessing.from_dict(good).to_dict() == good
    with pytest.raises(Error, match="damaged"):
        Preprocessing.from_dict(good | change)
