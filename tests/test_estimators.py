"""The scikit-learn estimators: scikit-learn's own checks, known answers, and tables as people have them."""

import functools
import math
import pickle
import random
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import posterity
from pages import ROOT, blocks
from posterity import Error, PosteriorClassifier, PosteriorRegressor, estimators

METHODS = list(posterity.methods())
QUICK = {"hidden": (16,), "epochs": 8, "lr": 0.05, "batch_size": 64, "samples": 20, "random_state": 0}
TINY = {"hidden": (4,), "epochs": 2, "samples": 4, "random_state": 0}


def numbers(n=60, seed=0):
    """X of three columns, and a y that depends on the first two."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=n)


def labels(n=60, seed=0):
    X, y = numbers(n, seed)
    return X, np.array(["low", "middle", "high"])[np.digitize(y, [-1, 1])]


def frame(n=60, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "size": rng.normal(100, 20, n),
            "town": rng.choice(["Bern", "Basel", "Chur"], n),
            "zone": pd.Categorical(rng.choice([1, 2, 3], n)),
            "built": pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), unit="D"),
        }
    )
    price = table["size"] + 50 * (table["town"] == "Bern") + rng.normal(0, 5, n)
    table.loc[::10, "size"] = np.nan
    return table, price.rename("price")


@pytest.fixture(scope="module")
def linear():
    """A regressor of linear data with noise 25, in units far from 0 and 1, and 1,000 rows it has not seen."""
    X, y = numbers(1400)
    y = 1000 + 50 * (X[:, 0] - 2 * X[:, 1]) + 25 * np.random.default_rng(5).normal(size=len(X))
    model = PosteriorRegressor(hidden=(8,), epochs=60, batch_size=64, lr=0.02, random_state=0).fit(X[:400], y[:400])
    return model, X[400:], y[400:]


@pytest.mark.parametrize("cls", [PosteriorClassifier, PosteriorRegressor])
def test_scikit_learns_own_checks_pass(cls):
    found = check_estimator(cls(**QUICK), on_fail=None, on_skip=None)
    assert [f"{one['check_name']}: {one['exception']}" for one in found if one["status"] == "failed"] == []
    assert sum(one["status"] == "passed" for one in found) >= 50


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_by_its_name(method):
    X, y = numbers()
    model = PosteriorRegressor(method, **TINY).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert type(model.posterior_) is posterity.methods()[method]
    assert mean.shape == std.shape == (60,)
    assert (std > 0).all()
    assert np.array_equal(mean, model.predict(X))
    assert np.allclose(mean[:7], model.predict(X[:7]), rtol=0, atol=1e-12)
    assert len(model.history_) == 2
    X, y = labels()
    model = PosteriorClassifier(method, **TINY, device="cpu").fit(X, y)
    probs = model.predict_proba(X)
    assert list(model.classes_) == ["high", "low", "middle"]
    assert np.allclose(probs.sum(1), 1, rtol=0, atol=1e-12)
    assert np.array_equal(model.predict(X), model.classes_[probs.argmax(1)])
    assert np.allclose(np.exp(model.predict_log_proba(X)), probs)
    assert np.array_equal(probs, pickle.loads(pickle.dumps(model)).predict_proba(X))


def test_intervals_of_linear_data_hold_what_they_promise(linear):
    model, X, y = linear
    low, high = model.predict_posterior(X).interval(0.9)
    coverage = np.mean((low.numpy() < y) & (y < high.numpy()))
    # The share of 1,000 rows, and the noise estimated from 400 (its logarithm to 1/√800), of which a change moves
    # coverage by 2 z φ(z) = 0.34 at z = 1.645.
    error = math.hypot(math.sqrt(0.09 / 1000), 0.34 / math.sqrt(800))
    assert abs(coverage - 0.9) < 3 * error
    assert abs(math.log(model.predict_posterior(X).aleatoric.mean().sqrt() / 25)) < 4 / math.sqrt(800)
    assert model.score(X, y) > 0.93  # 1 − 25²/(25² + 50²·5) = 0.952


def test_uncertainty_grows_away_from_the_data(linear):
    model, X, _ = linear
    inside, outside = model.predict_posterior(X), model.predict_posterior(20 * X)
    assert outside.epistemic.median() > 20 * inside.epistemic.median()
    assert torch.allclose(outside.aleatoric, inside.aleatoric)


def test_samples_have_the_mean_and_deviation_of_predictions(linear):
    model, X, _ = linear
    n = 4000
    drawn = model.sample_y(X[:40], n, random_state=1)
    said = model.predict_posterior(X[:40], samples=n)
    assert drawn.shape == (40, n)
    error = ((said.total + said.epistemic) / n).sqrt().numpy()
    assert (abs(drawn.mean(1) - said.mean.numpy()) < 4.5 * error).all()
    assert (abs(drawn.std(1) / said.std.numpy() - 1) < 5 / math.sqrt(2 * n)).all()
    assert np.array_equal(drawn, model.sample_y(X[:40], n, random_state=1))
    assert not np.array_equal(drawn, model.sample_y(X[:40], n, random_state=2))


def test_a_sample_is_one_function_with_noise(linear):
    model, X, _ = linear
    there = 20 * X[:1]  # far away, where functions differ by far more than the noise
    twice = model.sample_y(np.concatenate([there, there]), 2000)
    noise = float(model.predict_posterior(there).aleatoric)
    assert twice[0].var() > 10 * noise
    assert abs((twice[0] - twice[1]).std() / math.sqrt(2 * noise) - 1) < 4 / math.sqrt(2 * 2000)


def test_probabilities_are_near_the_true_ones():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    X = (rng.normal(size=1000) + 2 * y - 1)[:, None]
    model = PosteriorClassifier(hidden=(8,), epochs=20, batch_size=64, lr=0.02, random_state=0).fit(X, y)
    x = np.linspace(-2.5, 2.5, 50)
    # Slope and offset of the true logit, 2x, are known to about 0.1 each from 1,000 rows; a logit's error of
    # 0.1 √(1 + x²) is one of at most 0.04 in the probability.
    assert abs(model.predict_proba(x[:, None])[:, 1] - 1 / (1 + np.exp(-2 * x))).mean() < 0.04
    assert model.predict([[-2.0], [2.0]]).tolist() == [0, 1]


def test_weights_count_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 1)), np.repeat(["a", "b"], 200)
    model = PosteriorClassifier("map", hidden=(), epochs=20, batch_size=64, lr=0.1, random_state=0)
    probs = model.fit(X, y, sample_weight=np.where(y == "a", 3.0, 1.0)).predict_proba([[0.0]])
    assert abs(probs[0, 0] - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 400)
    keep = np.arange(400) % 3 > 0
    weighted = model.fit(X, y, sample_weight=1.0 * keep).predict_proba(X)
    ones = np.ones(keep.sum())
    assert np.array_equal(weighted, model.fit(X[keep], y[keep], sample_weight=ones).predict_proba(X))
    assert np.allclose(weighted, model.fit(X[keep], y[keep]).predict_proba(X))


def test_a_likelihood_is_in_the_units_of_y():
    rng = np.random.default_rng(0)
    group = np.repeat([0.0, 1.0], 300)
    y = 70 + rng.normal(size=600) * np.where(group, 20.0, 5.0)
    quick = {"hidden": (4,), "epochs": 1, "validation": None, "random_state": 0}
    known = PosteriorRegressor("map", likelihood=posterity.Gaussian(std=3.0), **quick)
    assert np.allclose(known.fit(group[:, None], y).predict([[0.0]], return_std=True)[1], 3)
    assert float(known.likelihood.log_std) == pytest.approx(math.log(3))
    told = clone(known).set_params(
        likelihood=posterity.Gaussian(heteroscedastic=True), epochs=30, batch_size=64, lr=0.02
    )
    _, std = told.fit(group[:, None], y).predict([[0.0], [1.0]], return_std=True)
    truth = [y[group == 0].std(), y[group == 1].std()]
    assert np.allclose(std, truth, rtol=0.1)


def test_the_units_of_y_make_no_difference():
    X, y = numbers()
    own = PosteriorRegressor(**TINY).fit(X, y).predict(X, return_std=True)
    other = PosteriorRegressor(**TINY).fit(X, 1e6 + 1e4 * y).predict(X, return_std=True)
    assert np.allclose(other[0], 1e6 + 1e4 * own[0], rtol=0, atol=1)
    assert np.allclose(other[1], 1e4 * own[1], rtol=1e-4)


def test_several_targets_have_noises_of_their_own():
    X, y = numbers(300)
    two = np.stack([y, X[:, 2] + 2 * np.random.default_rng(1).normal(size=300)], axis=1)
    model = PosteriorRegressor("map", hidden=(4,), epochs=40, batch_size=32, lr=0.02, random_state=0).fit(X, two)
    mean, std = model.predict(X[:5], return_std=True)
    assert mean.shape == std.shape == tuple(model.predict_posterior(X[:5]).mean.shape) == (5, 2)
    assert model.sample_y(X[:5], 7).shape == (5, 2, 7)
    assert (std[:, 0] < 0.5).all()
    assert np.allclose(std[:, 1], 2, rtol=4 / math.sqrt(2 * 300))
    assert model.predict(X).shape == (300, 2)
    assert PosteriorRegressor(**TINY).fit(X, two[:, :1]).predict(X).shape == (300, 1)


def test_large_tables_are_predicted_in_parts(monkeypatch):
    X, y = numbers()
    model = PosteriorRegressor(**TINY).fit(X, y)
    whole = model.predict(X, return_std=True)
    monkeypatch.setattr(estimators, "ROWS", 7)
    assert np.allclose(whole, model.predict(X, return_std=True), rtol=1e-12)


def test_a_fit_is_a_function_of_its_random_state_and_leaves_no_trace():
    X, y = numbers()
    before = torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()
    first = PosteriorRegressor(**TINY).fit(X, y)
    first.predict(X)
    first.sample_y(X)
    assert before == (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate())
    torch.rand(1)
    assert np.array_equal(first.predict(X), PosteriorRegressor(**TINY).fit(X, y).predict(X))
    assert not np.array_equal(first.predict(X), clone(first).set_params(random_state=1).fit(X, y).predict(X))
    state = np.random.RandomState(0)
    assert clone(first).set_params(random_state=state).fit(X, y).seed_ == first.seed_


def test_a_small_network_is_trained_by_one_thread(monkeypatch):
    during = []
    monkeypatch.setattr(estimators, "fit", lambda *_, **__: during.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        PosteriorRegressor(**TINY).fit(*numbers())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert during == [1]


def test_pipelines_searches_and_calibration_work():
    X, y = labels(90)
    pipeline = make_pipeline(StandardScaler(), PosteriorClassifier(**TINY))
    grid = {
        "posteriorclassifier__method": ["map", "ibnn"],
        "posteriorclassifier__options": [None, {"samples": 2}],
    }
    search = GridSearchCV(pipeline, grid, scoring="neg_log_loss", cv=2, error_score="raise").fit(X, y)
    assert search.predict_proba(X).shape == (90, 3)
    assert cross_val_score(PosteriorRegressor(**TINY), *numbers(), cv=2, error_score="raise").shape == (2,)
    calibrated = CalibratedClassifierCV(PosteriorClassifier(**TINY), cv=2).fit(X, y)
    assert np.allclose(calibrated.predict_proba(X).sum(1), 1)
    copied = clone(PosteriorClassifier("bbb", options={"samples": 2}, likelihood=posterity.Categorical()))
    assert copied.method == "bbb"
    assert copied.options == {"samples": 2}


def test_a_data_frame_may_hold_texts_categories_dates_and_gaps():
    table, price = frame()
    model = PosteriorRegressor(**TINY).fit(table, price)
    assert model.feature_names_in_.tolist() == ["size", "town", "zone", "built"]
    assert model.n_features_in_ == 4
    kinds = {column.name: column.kind for column in model.preprocessing_.columns}
    assert kinds == {"size": "number", "town": "category", "zone": "category", "built": "date"}
    assert model.preprocessing_.columns[0].mean == pytest.approx(table["size"].mean())
    new = table.head(3).copy()
    new["zone"] = [1, 2, 9]
    new["town"] = ["Bern", None, "Genf"]
    new.loc[0, "built"] = pd.NaT
    assert np.isfinite(model.predict(new)).all()
    assert model._inputs(new)[2, 2:8].tolist() == [0] * 6  # a town and a zone that were never seen
    with pytest.raises(Error, match="feature names"):
        model.predict(table[["town", "size", "zone", "built"]])
    with pytest.warns(UserWarning, match="valid feature names"):
        assert np.array_equal(model.predict(table.to_numpy()), model.predict(table))
    table["id"] = [f"row {i}" for i in range(60)]
    with pytest.warns(UserWarning, match="'id' is left out"):
        PosteriorRegressor(**TINY).fit(table, price)


def test_categories_of_which_there_are_too_many_are_left_out_with_a_warning():
    X, y = numbers(60)
    table = pd.DataFrame({"x": X[:, 0], "code": pd.Categorical(range(60))})
    with pytest.warns(UserWarning, match="'code' is left out: 60 categories"):
        model = PosteriorRegressor(**TINY).fit(table, y)
    assert [column.name for column in model.preprocessing_.columns] == ["x"]


def test_a_network_of_ones_own_is_made_anew_for_every_fit():
    made = []

    def network(inputs, outputs):
        made.append(torch.nn.Sequential(torch.nn.Linear(inputs, 5), torch.nn.Tanh(), torch.nn.Linear(5, outputs)))
        return made[-1]

    X, y = labels()
    model = PosteriorClassifier(network=network, options={"components": 3}, epochs=1, random_state=0)
    first = model.fit(X, y).predict_proba(X)
    assert np.array_equal(first, model.fit(X, y).predict_proba(X))
    assert len(made) == 2
    assert model.posterior_.network is made[1]
    assert model.posterior_.components == 3


def test_rows_held_out_keep_a_network_from_learning_the_noise():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 5)), rng.normal(size=600)
    inside = {}
    for validation in ("auto", None):
        model = PosteriorRegressor("map", epochs=150, batch_size=32, lr=0.005, validation=validation, random_state=0)
        low, high = model.fit(X[:100], y[:100]).predict_posterior(X[100:]).interval(0.9)
        inside[validation] = np.mean((low.numpy() < y[100:]) & (y[100:] < high.numpy()))
    assert inside["auto"] > 0.8
    assert inside[None] < 0.4


def test_what_fit_takes_can_be_given():
    X, y = numbers()
    model = PosteriorRegressor("map", **TINY, validation=None, fit_options={"schedule": "constant"}).fit(X, y)
    assert model.history_.column("lr") == [1e-3, 1e-3]
    assert model.history_.column("validation") == []
    assert len(PosteriorRegressor("map", **TINY).fit(X, y).history_.column("validation")) == 2


def test_a_saved_posterior_keeps_its_preprocessing(tmp_path):
    table, price = frame()
    model = PosteriorRegressor(**TINY).fit(table, price)
    posterity.save(model.posterior_, tmp_path / "model")
    loaded = posterity.load(tmp_path / "model")
    said = posterity.predict(loaded, loaded.preprocessing.inputs(table), 4, seed=model.seed_)
    said = said.rescale(loaded.preprocessing.target_mean, loaded.preprocessing.target_std)
    assert np.allclose(said.mean.squeeze(1), model.predict(table), rtol=1e-9)
    assert loaded.preprocessing.target == "price"
    town = PosteriorClassifier(**TINY).fit(table.drop(columns="town"), table["town"])
    assert town.posterior_.preprocessing.classes == ["Basel", "Bern", "Chur"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "magic"}, "method must be one of 'map'"),
        ({"method": ["ibnn"]}, "method must be one of 'map'"),
        ({"hidden": (8, 0)}, "hidden must be a whole number"),
        ({"hidden": "wide"}, "hidden must be a whole number"),
        ({"network": torch.nn.Linear(3, 1)}, "network must be a function"),
        ({"options": {"colour": 1}}, "options holds 'colour'; the options of IBNN are components"),
        ({"options": 3}, "options must be a dictionary"),
        ({"fit_options": {"seed": 1}}, "fit_options holds 'seed'"),
        ({"likelihood": posterity.Categorical()}, "likelihood must be a posterity.Gaussian"),
        ({"epochs": -1}, "epochs must be"),
        ({"validation": 2}, "validation must be 'auto', None or a share"),
        ({"lr": "fast"}, "lr must be"),
        ({"random_state": "seed"}, "cannot be used to seed"),
        ({"device": "toaster"}, "'toaster' is no device"),
    ],
)
def test_a_wrong_argument_is_refused_with_a_sentence(arguments, sentence):
    with pytest.raises(Error, match=re.escape(sentence)):
        PosteriorRegressor(**{**TINY, **arguments}).fit(*numbers())


def test_data_that_cannot_be_used_are_refused_with_a_sentence():
    X, y = numbers()
    quick = PosteriorRegressor(**TINY)
    for bad, sentence in [
        ((np.ones((60, 2)), y), "No column can be used"),
        ((X[:, 0], y), "Expected 2D array"),
        ((X, y[:9]), "inconsistent numbers of samples"),
        ((X, np.full(60, 2.0)), "the same in all rows"),
        ((X, np.where(y > 0, y, np.nan)), "Input y contains NaN"),
        ((X, 1e200 * y), "too large"),
        ((X, ["a"] * 60), "could not convert string to float"),
        ((X, y, np.full(60, -1.0)), "no negative weight"),
        ((X, y, np.ones(3)), "one number per row"),
        ((pd.DataFrame(X, columns=["a", "b", "b"]), y), "(same name|unique column names)"),
        ((pd.DataFrame(X, columns=[1, 2, 2]), y), "(same name|unique column names)"),
        ((pd.DataFrame(X[:1]), y[:1]), "at least two rows"),
    ]:
        with pytest.raises(Error, match=sentence):
            quick.fit(*bad)
    classify = PosteriorClassifier(**TINY)
    for bad, sentence in [
        (["a"] * 60, "only the class 'a'"),
        (["a", None] * 30, "missing values"),
        (y, "Unknown label type"),
    ]:
        with pytest.raises(Error, match=sentence):
            classify.fit(X, np.array(bad, dtype=object) if None in bad else bad)
    with pytest.raises(Error, match="expecting 3 features"):
        quick.fit(X, y).predict(X[:, :2])


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    for name in ("sklearn", "sklearn.base"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "posterity.estimators")
    with pytest.raises(Error, match="needs the package 'sklearn'"):
        posterity.PosteriorClassifier  # noqa: B018


def test_the_page_runs(monkeypatch, tmp_path):
    train = estimators.fit

    @functools.wraps(train)
    def briefly(*arguments, **options):
        return train(*arguments, **{**options, "epochs": 1})

    monkeypatch.setattr(estimators, "fit", briefly)
    monkeypatch.chdir(tmp_path)
    found = blocks("docs/guides/scikit-learn.md")
    space = {}
    for block in found:
        exec(compile(block, "docs/guides/scikit-learn.md", "exec"), space)
    assert len(found) == 5
    assert np.allclose(space["there"].mean.squeeze(1), space["mean"], rtol=0.1)
    page = (ROOT / "docs/guides/scikit-learn.md").read_text()
    for name in space["search"].get_params():
        if name.startswith("estimator__"):
            assert f"`{name.removeprefix('estimator__')}`" in page


def test_a_network_of_more_outputs_than_classes_is_refused():
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = PosteriorClassifier("map", network=lambda inputs, outputs: torch.nn.Linear(inputs, 5), epochs=1)
    with pytest.raises(Error, match="5 outputs, but there are 2 classes"):
        model.fit(X, X[:, 0] > 0).predict(X)


def test_a_regressor_of_one_column_keeps_its_preprocessing_and_its_summary_is_made():
    X = 1000 + 50 * np.random.default_rng(0).normal(size=(80, 2))
    y = 3 * X[:, 0] + 5
    model = PosteriorRegressor("map", epochs=3, random_state=0).fit(X, y[:, None])
    said = posterity.predict(model.posterior_, X).mean.flatten().numpy()
    assert said == pytest.approx(model.predict(X).ravel(), rel=1e-6)
    flat = PosteriorRegressor("map", epochs=3, random_state=0).fit(X, y)
    assert posterity.evaluation.summarise(flat.predict_posterior(X), y)["points"]["true"] == pytest.approx(y, rel=1e-4)
