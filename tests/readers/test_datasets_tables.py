import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import posterity
from posterity import datasets
from posterity.datasets import readers
from posterity.datasets.preprocessing import Preprocessing
from posterity.errors import Error

N = 50


def frame(**columns):
    generator = np.random.default_rng(0)
    base = {"a": generator.normal(3, 2, N), "b": generator.normal(-1, 5, N)}
    return pd.DataFrame(base | columns)


def csv(tmp_path, table, name="table.csv", **options):
    table.to_csv(tmp_path / name, index=False, **options)
    return tmp_path / name


def regression(tmp_path, **columns):
    return csv(tmp_path, frame(**columns, y=np.random.default_rng(1).normal(100, 10, N)))


def names_of(data):
    return [column.name for column in data.preprocessing.columns]


def test_a_csv_is_split_and_standardised_by_its_training_part(tmp_path):
    path = regression(tmp_path)
    data = datasets.load(path, target="y")
    assert data.task == "regression"
    assert data.train[0].shape == (40, 2)
    assert data.test[1].shape == (10, 1)
    for tensor in data.train:
        assert tensor.dtype == torch.float32
        assert tensor.mean(0).abs().max() < 1e-5
        assert (tensor.std(0, correction=0) - 1).abs().max() < 1e-5
    p = data.preprocessing
    raw = pd.read_csv(path)["y"]
    back = torch.cat([data.train[1], data.test[1]]) * p.target_std + p.target_mean
    assert torch.allclose(back.sort(0).values[:, 0], torch.tensor(sorted(raw)).float(), rtol=1e-5)


def test_the_split_follows_the_seed(tmp_path):
    path = regression(tmp_path)
    a, b, c = (datasets.load(path, target="y", seed=seed).preprocessing.target_mean for seed in (0, 0, 1))
    assert a == b != c


def test_rows_stay_with_their_targets(tmp_path):
    a = np.arange(N, dtype=float)
    data = datasets.load(csv(tmp_path, pd.DataFrame({"a": a, "y": 2.5 * a})), target="y", task="regression")
    for x, y in (data.train, data.test):
        assert torch.allclose(x, y, atol=1e-5)


def test_csv_parquet_and_npz_give_the_same(tmp_path):
    table = frame(y=np.random.default_rng(1).normal(size=N))
    table.to_parquet(tmp_path / "table.parquet")
    np.savez(tmp_path / "table.npz", x=table[["a", "b"]].to_numpy(), y=table["y"].to_numpy())
    first, *rest = [
        datasets.load(csv(tmp_path, table), target="y"),
        datasets.load(tmp_path / "table.parquet", target="y"),
        datasets.load(tmp_path / "table.npz"),
    ]
    for other in rest:
        assert torch.allclose(other.train[0], first.train[0], atol=1e-5)
        assert torch.allclose(other.test[1], first.test[1], atol=1e-5)


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["no", "yes"] * 25, "classification", ["no", "yes"]),
        ([True, False] * 25, "classification", ["False", "True"]),
        ([10, 9] * 25, "classification", ["9", "10"]),
        ([1.0, 2.0] * 25, "classification", ["1", "2"]),
        (list(range(20)) + list(range(20)) + [0] * 10, "classification", [str(i) for i in range(20)]),
        (list(range(21)) + list(range(21)) + [0] * 8, "regression", None),
        ([0.5, 1.5] * 25, "regression", None),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_the_task_is_guessed_from_the_target(tmp_path, values, task, classes, kind):
    table = frame(y=values)
    path = tmp_path / f"table.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "parquet":
        table.to_parquet(path)
    else:
        np.savez(path, x=table[["a", "b"]].to_numpy(), y=np.array(values))
    data = datasets.load(path, target="y")
    assert data.task == task
    assert data.preprocessing.classes == classes
    assert data.outputs == (len(classes) if classes else 1)
    if classes:
        assert data.train[1].dtype == torch.int64
        assert sorted({*data.train[1].tolist()}) == list(range(len(classes)))


def test_a_target_of_too_many_values_may_be_a_regression_only_if_these_are_numbers(tmp_path):
    for values, advised in (([f"C{i:03}" for i in range(N)], False), (list(range(N)), True)):
        path = csv(tmp_path, frame(y=values))
        with pytest.raises(posterity.Error, match="50 values in 50 rows, too many for classes") as caught:
            datasets.load(path, target="y", task="classification")
        assert ("'regression'" in str(caught.value)) is advised


def test_classes_are_split_evenly_and_a_single_row_trains(tmp_path):
    y = ["a"] * 30 + ["b"] * 10 + ["c"] * 2 + ["d"] + ["a"] * 7
    data = datasets.load(csv(tmp_path, frame(y=y)), target="y")
    assert torch.bincount(data.test[1], minlength=4).tolist() == [7, 2, 1, 0]
    assert torch.bincount(data.train[1], minlength=4).tolist() == [30, 8, 1, 1]


def test_missing_numbers_become_the_training_median_with_an_indicator(tmp_path):
    a = np.random.default_rng(3).exponential(size=N)
    a[::5] = np.nan
    data = datasets.load(regression(tmp_path, a=a), target="y")
    column = data.preprocessing.columns[0]
    assert column.indicator
    x = torch.cat([data.train[0], data.test[0]])
    gone = x[:, 1] == 1
    assert gone.sum() == 10
    assert x[gone, 0].unique().numel() == 1
    assert x[gone, 0][0].item() == pytest.approx((column.median - column.mean) / column.std, abs=1e-5)
    present = data.train[0][data.train[0][:, 1] == 0, 0]
    assert present.mean().item() == pytest.approx(0, abs=1e-5)


def test_text_becomes_one_hot_with_missing_as_its_own_category(tmp_path):
    town = (["york", "bath", None] * 17)[:N]
    data = datasets.load(regression(tmp_path, town=town), target="y")
    column = data.preprocessing.columns[-1]
    assert column.categories == ("bath", "york", None)
    assert torch.cat([data.train[0], data.test[0]])[:, 2:].sum(0).tolist() == [17, 17, 16]
    encoded = column.encode(np.array(["york", "paris", None], dtype=object))
    assert encoded.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_columns_like_names_are_dropped_with_a_warning(tmp_path):
    path = regression(tmp_path, name=[f"person {i}" for i in range(N)])
    with pytest.warns(UserWarning, match="'name' is left out"):
        assert names_of(datasets.load(path, target="y")) == ["a", "b"]


def test_booleans_and_dates_become_numbers(tmp_path):
    days = pd.date_range("2024-01-01", periods=N)
    path = regression(tmp_path, flag=[True, False] * 25, day=days, stamp=days.strftime("%Y/%m/%d 12:00"))
    table = pd.read_csv(path)
    table["day"] = pd.to_datetime(table["day"]).dt.tz_localize("UTC")
    table.to_parquet(tmp_path / "t.parquet")
    data = datasets.load(path, target="y")
    kinds = {column.name: column.kind for column in data.preprocessing.columns}
    assert kinds == {"a": "number", "b": "number", "flag": "number", "day": "date", "stamp": "date"}
    assert data.preprocessing.columns[4].mean - data.preprocessing.columns[3].mean == pytest.approx(0.5)
    typed = datasets.load(tmp_path / "t.parquet", target="y")
    assert torch.allclose(typed.train[0], data.train[0], atol=1e-5)


def test_constant_columns_are_dropped(tmp_path):
    path = regression(tmp_path, c=7, empty=np.nan, text="same")
    assert names_of(datasets.load(path, target="y")) == ["a", "b"]


def test_infinite_and_huge_features_count_as_missing(tmp_path):
    a = np.random.default_rng(0).normal(size=N)
    a[:10], a[10:20], a[20:30] = np.inf, -np.inf, 1e200
    with pytest.warns(UserWarning, match="infinite values count as missing"):
        data = datasets.load(regression(tmp_path, a=a), target="y")
    x = torch.cat([data.train[0], data.test[0]])
    assert torch.isfinite(x).all()
    assert x[:, 1].sum() == 30


def test_a_few_words_among_numbers_count_as_missing(tmp_path):
    a = [str(i) for i in range(48)] + ["oops", "?"]
    with pytest.warns(UserWarning, match="no number count as missing"):
        data = datasets.load(regression(tmp_path, a=a), target="y", seed=1)
    assert data.preprocessing.columns[0].kind == "number"


def test_rows_without_a_target_are_dropped_with_a_warning(tmp_path):
    y = np.random.default_rng(0).normal(size=N)
    y[:10] = np.nan
    with pytest.warns(UserWarning, match="10 rows without a value of 'y'"):
        data = datasets.load(csv(tmp_path, frame(y=y)), target="y")
    assert len(data.train[1]) + len(data.test[1]) == 40


def test_far_away_rows_are_at_least_five_from_the_mean(tmp_path):
    data = datasets.load(regression(tmp_path), target="y")
    assert data.outside_name == "far away"
    assert data.outside.shape == data.test[0].shape
    assert data.outside.norm(dim=1).min() >= 5 - 1e-4
    pushed = (data.outside - data.test[0]).norm(dim=1)
    assert torch.allclose(pushed, 5 + data.test[0].norm(dim=1), atol=1e-4)


def test_large_numbers_stay_finite_and_far_ones_are_clipped(tmp_path):
    data = datasets.load(regression(tmp_path, a=np.linspace(1e90, 2e90, N)), target="y")
    assert data.train[0][:, 0].std(correction=0).item() == pytest.approx(1, abs=1e-4)
    x = data.preprocessing.inputs({"a": np.array([-1e99]), "b": np.array([1e99])})
    assert torch.isfinite(x).all()


def test_semicolons_tabs_and_other_encodings_are_read(tmp_path):
    table = frame(town=["zürich", "köln"] * 25, y=np.arange(N) / 7)
    expected = datasets.load(csv(tmp_path, table), target="y").train[0]
    for name, options in {
        "a.csv": {"sep": ";"},
        "b.tsv": {"sep": "\t"},
        "c.csv": {"encoding": "utf-16"},
        "d.csv": {"encoding": "utf-8-sig"},
        "e.csv": {"encoding": "cp1252"},
    }.items():
        assert torch.equal(datasets.load(csv(tmp_path, table, name, **options), target="y").train[0], expected), name


def test_an_unnamed_row_number_is_not_an_input(tmp_path):
    frame(y=np.arange(N) / 7).to_csv(tmp_path / "t.csv")
    assert names_of(datasets.load(tmp_path / "t.csv", target="y")) == ["a", "b"]


def test_an_unnamed_number_of_some_rows_is_left_out_with_a_word(tmp_path):
    """As after a split of a frame, whose order may follow the target."""
    frame(y=np.arange(N) / 7).sample(frac=1.0, random_state=0).to_csv(tmp_path / "t.csv")
    with pytest.warns(UserWarning, match="has no name and numbers the rows"):
        assert names_of(datasets.load(tmp_path / "t.csv", target="y")) == ["a", "b"]


def test_unnamed_and_repeated_columns_get_names(tmp_path):
    rows = "\n".join(f"{i % 7},{i % 5},{i % 3},{i / 3}" for i in range(N))
    (tmp_path / "t.csv").write_text(f"a,,a,y\n{rows}\n")
    with pytest.warns(UserWarning, match="several columns named 'a'"):
        data = datasets.load(tmp_path / "t.csv", target="y")
    assert names_of(data) == ["a", "column 2", "a.1"]
    (tmp_path / "t.csv").write_text(f"a,b,y,y\n{rows}\n")
    with pytest.raises(Error, match="2 columns named 'y'"):
        datasets.load(tmp_path / "t.csv", target="y")


def test_a_wrong_target_lists_near_matches_and_all_columns(tmp_path):
    path = csv(tmp_path, frame(Price=np.arange(N) / 7))
    with pytest.raises(Error, match=r"no column 'price'.*mean 'Price'.*a, b, Price"):
        datasets.load(path, target="price")
    with pytest.raises(Error, match=r"--target.*a, b, Price"):
        datasets.load(path)


def check_refused(path, match, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(Error, match=match):
            datasets.load(path, **{"target": "y", **options})


@pytest.mark.parametrize(
    ("y", "task", "match"),
    [
        (["one"] * N, None, "only the class 'one'"),
        ([3.5] * N, None, "always 3.5"),
        ([np.inf] + [1.5] * (N - 1), None, "infinite"),
        (["x", *np.arange(N - 1) / 7], "regression", "holds 'x': regression needs numbers"),
        ([f"id{i}" for i in range(N)], None, "50 values in 50 rows, too many"),
        (list(np.arange(N) / 7), "classification", "too many"),
        ([np.nan] * N, None, "0 rows with a target are too few"),
        (list(np.linspace(1e200, 2e200, N)), None, "too large"),
        (list(np.arange(N) / 7), "ranking", "task must be"),
    ],
)
def test_a_target_that_cannot_be_learned_is_refused(tmp_path, y, task, match):
    check_refused(csv(tmp_path, frame(y=y)), match, task=task)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "empty"),
        (b"a,b,y\n", "no rows"),
        (b"a,b,y\n1,2,3\n4,5,6\n", "2 rows with a target are too few"),
        (b"\n\n\n", "t.csv"),
        (b"\x00\x01\x02\xff" * 100, "not a text file"),
        (bytes(range(1, 256)) * 50, "t.csv"),
        (b"a,y\n" + b"1,2,3\n" * 20, "t.csv"),
        (b"a,y\n1,2\n1,2,3,4,5\n" * 5, "t.csv"),
        (b'a,y\n"1,2\n' + b"3,4\n" * 20, "t.csv"),
        (b",".join(b"c%d" % i for i in range(20_000)) + b"\n1\n", "more than 10,000 columns"),
        (b"x" * 200_000 + b",y\n1,2\n", "t.csv"),
        (b"y\n" + b"\n".join(b"%d" % (i % 3) for i in range(30)), "No column can be used"),
        (b"a,y\n" + b"".join(b"1,%d\n" % (i % 3) for i in range(30)), "No column can be used"),
    ],
)
def test_a_bad_csv_is_an_error(tmp_path, content, match):
    (tmp_path / "t.csv").write_bytes(content)
    check_refused(tmp_path / "t.csv", match)


@pytest.mark.parametrize("name", ["t.parquet", "t.npz", "t.xlsx", "t.pkl", "t"])
@pytest.mark.parametrize("content", [b"", b"junk" * 50, b"PAR1" + b"\0" * 50 + b"PAR1", b"PK\x03\x04" + b"\0" * 50])
def test_junk_of_every_kind_is_an_error(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    check_refused(tmp_path / name, "t")


def test_nested_parquet_columns_are_left_out(tmp_path):
    table = frame(nested=[[1, 2]] * N, y=np.arange(N) / 7)
    table.to_parquet(tmp_path / "t.parquet")
    with pytest.warns(UserWarning, match="'nested' is left out"):
        assert names_of(datasets.load(tmp_path / "t.parquet", target="y")) == ["a", "b"]


X = np.random.default_rng(0).normal(size=(30, 2))
Y = np.arange(30) / 7


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"y": Y}, "no array 'x'"),
        ({"x": X}, "no array 'y'"),
        ({"x": X, "y": Y[:-1]}, "29 targets"),
        ({"x": X, "y": X}, "must be one column"),
        ({"x": X.astype(complex), "y": Y}, "array of numbers"),
        ({"x": X.astype(str), "y": Y}, "array of numbers"),
        ({"x": X.astype(object), "y": Y}, "cannot be read"),
        ({"x": X, "y": Y.astype(complex)}, "neither a class nor a number"),
        ({"x": np.float64(3), "y": Y}, "targets"),
        ({"x": np.zeros((30, 0)), "y": Y}, "no inputs"),
        ({"x": np.zeros((30, 2, 2, 2, 2)), "y": Y}, "Images must be"),
        ({"x": np.zeros((30, 100, 5, 5)), "y": Y}, "100 channels"),
        ({"x": np.full((30, 1, 4, 4), np.inf), "y": Y}, "not finite"),
        ({"x": X, "y": Y, "test": np.zeros(30)}, "'test' must be"),
        ({"x": X, "y": Y, "test": np.zeros((2, 29), bool)}, "'test' must be"),
        ({"x": X, "y": Y, "test": np.zeros(30, bool)}, "no rows"),
    ],
)
def test_a_bad_npz_is_an_error(tmp_path, arrays, match):
    np.savez(tmp_path / "t.npz", **arrays)
    check_refused(tmp_path / "t.npz", match, target=None)


def test_a_pickle_in_an_npz_is_never_executed(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    np.savez(tmp_path / "t.npz", x=X, y=np.array([Bomb()] * 30, dtype=object))
    check_refused(tmp_path / "t.npz", "cannot be read", target=None)
    assert not (tmp_path / "executed").exists()


def test_npz_images_are_images(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (30, 9, 7, 3), dtype=np.uint8)
    np.savez(tmp_path / "t.npz", x=x, y=np.arange(30) % 3)
    data = datasets.load(tmp_path / "t.npz")
    assert data.preprocessing.kind == "images"
    assert data.train[0].shape == (24, 3, 9, 7)
    again, y = datasets.read_inputs(tmp_path / "t.npz", data.preprocessing)
    assert again.shape == (30, 3, 9, 7)
    assert y.tolist() == (np.arange(30) % 3).tolist()


def test_uci_seeds_pick_the_fixed_splits(tmp_path):
    test = np.zeros((2, 30), bool)
    test[0, :3], test[1, 10:16] = True, True
    (tmp_path / "uci").mkdir()
    x = np.concatenate([X, np.ones((30, 1))], axis=1)
    np.savez(tmp_path / "uci" / "boston.npz", x=x, y=np.arange(30) % 3, test=test)
    first, second, third = (datasets.load("uci/boston", seed=seed, data_dir=tmp_path) for seed in (0, 1, 2))
    assert first.task == "regression"
    assert (len(first.test[1]), len(second.test[1])) == (3, 6)
    assert torch.equal(first.test[0], third.test[0])
    assert torch.equal(second.test[0], second.preprocessing.inputs(x[10:16]))
    assert second.train[0].shape == (24, 2)


def test_new_rows_are_read_as_the_training_rows_were(tmp_path):
    town = (["york", "bath", None] * 17)[:N]
    a = np.random.default_rng(3).exponential(size=N)
    a[::5] = np.nan
    path = regression(tmp_path, a=a, town=town)
    data = datasets.load(path, target="y")
    p = Preprocessing.from_dict(json.loads(json.dumps(data.preprocessing.to_dict())))
    assert p == data.preprocessing
    x, y = datasets.read_inputs(path, p)
    test = [(x == row).all(1).nonzero()[0].item() for row in data.test[0]]
    assert torch.equal(y[test], data.test[1])
    pd.read_csv(path).drop(columns="y").iloc[::-1].to_parquet(tmp_path / "new.parquet")
    reverse, none = datasets.read_inputs(tmp_path / "new.parquet", p)
    assert torch.allclose(reverse.flip(0), x)
    assert none is None
    assert torch.allclose(p.inputs(pd.read_csv(path)), x)


def test_new_rows_without_some_targets_have_none(tmp_path):
    data = datasets.load(regression(tmp_path), target="y")
    (tmp_path / "new.csv").write_text("a,b,y\n1,2,\n3,4,5\n")
    with pytest.warns(UserWarning, match="Some rows have no 'y'"):
        x, y = datasets.read_inputs(tmp_path / "new.csv", data.preprocessing)
    assert (len(x), y) == (2, None)


@pytest.mark.parametrize(
    ("content", "match"),
    [("a,y\n1,2\n", "not there: b"), ("a,b,y\n1,2,x\n", "no finite number"), ("a,b\n", "no rows"), ("", "empty")],
)
def test_new_rows_that_do_not_fit_are_an_error(tmp_path, content, match):
    data = datasets.load(regression(tmp_path), target="y")
    (tmp_path / "new.csv").write_text(content)
    with pytest.raises(Error, match=match):
        datasets.read_inputs(tmp_path / "new.csv", data.preprocessing)


def test_a_class_never_seen_is_an_error(tmp_path):
    data = datasets.load(csv(tmp_path, frame(y=["no", "yes"] * 25)), target="y")
    (tmp_path / "new.csv").write_text("a,b,y\n1,2,maybe\n")
    with pytest.raises(Error, match=r"'maybe'.*'no', 'yes'"):
        datasets.read_inputs(tmp_path / "new.csv", data.preprocessing)


@pytest.mark.parametrize("raw", [np.zeros((3, 3)), np.zeros(3), "text", None, [["a", "b"]], {"a": [1, 2], "b": [1]}])
def test_raw_inputs_that_do_not_fit_are_an_error(tmp_path, raw):
    data = datasets.load(regression(tmp_path), target="y")
    with pytest.raises(Error):
        data.preprocessing.inputs(raw)


def damaged(value, path=()):
    """Yield copies of a JSON value, each with one thing in it replaced, removed or added."""
    for junk in (None, True, -1, 0, "text", [], {}, math.nan, math.inf, 10**400, [[]], ["a", "a"]):
        if type(junk) is not type(value) or junk != value:
            yield path, junk
    if isinstance(value, dict):
        for key in value:
            yield path, {k: v for k, v in value.items() if k != key}
            yield from ((p, value | {key: v}) for p, v in damaged(value[key], (*path, key)))
        yield path, value | {"extra": 1}
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from ((p, [*value[:i], v, *value[i + 1 :]]) for p, v in damaged(item, (*path, i)))


def test_a_hostile_preprocessing_is_an_error_or_harmless(tmp_path):
    table = frame(town=["york", "bath"] * 25, y=["no", "yes"] * 25)
    for good in (
        datasets.load(csv(tmp_path, table), target="y").preprocessing.to_dict(),
        datasets.load("digits").preprocessing.to_dict(),
    ):
        refused = 0
        for where, bad in damaged(good):
            try:
                Preprocessing.from_dict(bad)
            except Error:
                refused += 1
            else:
                without = {*good} - {*bad} if isinstance(bad, dict) else ()
                assert where or without == {"target_format"}, "the whole was replaced"  # which older models lack
        assert refused > 100


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "pickle"},
        {"scale": 0},
        {"scale": math.nan},
        {"std": [0.0]},
        {"std": [-1.0]},
        {"std": [1.0, 1.0]},
        {"mean": [math.inf]},
        {"mean": ["0"]},
        {"size": [8]},
        {"size": [8, 0]},
        {"size": [8, 10**9]},
        {"channels": True},
        {"classes": ["0", "0"]},
        {"classes": []},
        {"classes": [1, 2]},
        {"target": "x" * 10**6},
        {"target_std": 0.0},
        {"target_mean": 10**400},
    ],
    ids=lambda change: str(change)[:30],
)
def test_every_value_of_a_preprocessing_is_checked(change):
    good = datasets.load("digits").preprocessing.to_dict()
    assert Preprocessing.from_dict(good).to_dict() == good
    with pytest.raises(Error, match="damaged"):
        Preprocessing.from_dict(good | change)


def test_unknown_names_are_an_error_with_a_hint():
    with pytest.raises(Error, match=r"mean fashion-mnist"):
        datasets.load("fashion-mnst")
    with pytest.raises(Error, match="no file or folder"):
        datasets.load("nowhere/to/be.csv")


@pytest.mark.parametrize("options", [{"target": "y"}, {"task": "regression"}, {"seed": -1}, {"seed": 0.5}])
def test_built_in_sets_refuse_what_they_cannot_do(options):
    with pytest.raises(Error):
        datasets.load("digits", **options)


def test_a_value_that_is_no_number_is_told_of(tmp_path):
    rows = "\n".join(f"{i},{i % 7},{3 * i}" for i in range(40))
    (tmp_path / "t.csv").write_text(f"a,b,y\n{rows}\n")
    data = datasets.load(tmp_path / "t.csv", target="y")
    (tmp_path / "new.csv").write_text("a,b\n1,2\nabc,3\n,4\n")
    with pytest.warns(UserWarning, match="a: 1 of 3 values are no number, such as 'abc'; they are read as missing"):
        datasets.read_inputs(tmp_path / "new.csv", data.preprocessing)


@pytest.mark.parametrize("town", ["york", None])
def test_values_missing_where_none_were_in_training_are_told_of(tmp_path, town):
    town = ([town, "bath"] * 25)[:N]
    a = np.arange(N, dtype=float)
    known = datasets.load(regression(tmp_path, a=a, town=town, c=np.where(a < 40, a, np.nan)), target="y").preprocessing
    median = f"{known.columns[0].median:g}"
    (tmp_path / "new.csv").write_text("a,b,town,c\n,2,bath,1\n3,4,,\n,6,bath,3\n")
    with pytest.warns(UserWarning, match="have no value") as notes:
        x, _ = datasets.read_inputs(tmp_path / "new.csv", known)
    texts = [str(note.message) for note in notes]
    assert "Column 'a': 2 of 3 rows have no value" in texts[0]
    assert f"the training median, {median}, and the answer does not know of it" in texts[0]
    if None in town:
        assert len(texts) == 1
    else:
        assert "Column 'town': 1 of 3 rows have no value" in texts[1]
        assert len(texts) == 2
    with pytest.warns(UserWarning, match="Column 'a': 2 of 3 rows"):
        assert torch.equal(known.inputs(pd.read_csv(tmp_path / "new.csv")), x)


def test_no_note_where_nothing_is_missing_or_training_knew_it(tmp_path):
    path = regression(tmp_path, c=np.where(np.arange(N) % 3, np.arange(N), np.nan))
    known = datasets.load(path, target="y").preprocessing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        datasets.read_inputs(path, known)
        known.inputs({"a": np.ones(2), "b": np.ones(2), "c": np.full(2, np.nan)})


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["", '"51,3.2"'], "'a' has no value .* such as '51,3.2', which is no number"),
        (["01.02.2020", "03.02.2020"], "'a' has no value .* such as '01.02.2020', which is no number"),
    ],
)
def test_a_column_without_any_readable_value_is_an_error(tmp_path, values, found):
    known = datasets.load(regression(tmp_path), target="y").preprocessing
    (tmp_path / "new.csv").write_text("a,b\n" + "".join(f"{value},1\n" for value in values))
    with pytest.raises(Error, match=found):
        datasets.read_inputs(tmp_path / "new.csv", known)


def test_a_column_that_is_empty_throughout_is_told_of(tmp_path):
    known = datasets.load(regression(tmp_path, town=["york", "bath"] * 25), target="y").preprocessing
    (tmp_path / "new.csv").write_text("a,b,town\n1,2,\n3,4,\n")
    with pytest.warns(UserWarning, match="Column 'town': 2 of 2 rows have no value"):
        datasets.read_inputs(tmp_path / "new.csv", known)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ('"Area, m2";"Price, CHF"\n12;100\n13;110\n', ["Area, m2", "Price, CHF"]),
        ('"Area, m2";"Price, CHF"\n12,5;100\n13,5;110\n', ["Area, m2", "Price, CHF"]),
        ("Temp (°C, mean);Price\n12,5;100\n13,5;110\n", ["Temp (°C, mean)", "Price"]),
        ('a,"b;c;d"\n1,2\n3,4\n', ["a", "b;c;d"]),
        ("sep=;\na;b\n1;2\n", ["a", "b"]),
        ("sep=|\r\na,b|c\r\n1|2\r\n", ["a,b", "c"]),
    ],
)
def test_the_separator_is_what_divides_the_rows_as_it_divides_the_names(tmp_path, content, names):
    (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    assert list(readers.read_table(tmp_path / "a.csv")) == names


MIXED = ["<0.5"] * 10


@pytest.mark.parametrize(
    ("values", "note", "names"),
    [
        ([str(i) for i in range(40)], "is left out: .* of 40 values are numbers, others are not, such as '<0.5'", 2),
        ([str(i % 3) for i in range(40)], "read as categories: .* of 40 values are numbers, .* such as '<0.5'", 3),
    ],
)
def test_numbers_with_some_others_are_told_of(tmp_path, values, note, names):
    with pytest.warns(UserWarning, match=note) as notes:
        data = datasets.load(regression(tmp_path, c=values + MIXED), target="y")
    assert len(names_of(data)) == names
    assert not any("names or ids" in str(note.message) for note in notes)


def test_a_target_of_numbers_with_some_others_is_told_of(tmp_path):
    table = frame(y=[str(i % 3) for i in range(40)] + MIXED)
    with pytest.warns(UserWarning, match="target 'y' is read as classes: 40 of 50 values are numbers.*'<0.5'"):
        datasets.load(csv(tmp_path, table), target="y")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        datasets.load(csv(tmp_path, table), target="y", task="classification")


def model_of(data, outputs=1):
    posterior = posterity.MAP(torch.nn.Linear(data.train[0].shape[1], outputs))
    posterior.likelihood = posterity.Gaussian(std=0.1) if outputs == 1 else posterity.Categorical()
    posterior.preprocessing = data.preprocessing
    return posterior


def test_a_data_frame_is_predicted_as_its_file_is(tmp_path):
    path = regression(tmp_path, town=["york", "bath"] * 25)
    table = pd.read_csv(path)
    posterior = model_of(datasets.load(path, target="y"))
    right, said = (posterity.predict(posterior, source, seed=0) for source in (path, table.set_index(table.a)))
    assert torch.allclose(said.mean, right.mean)
    assert torch.allclose(said.std, right.std)
    assert said.std.mean() == pytest.approx(0.1 * posterior.preprocessing.target_std)
    with pytest.raises(Error, match="not there: b"):
        posterity.predict(posterior, table.drop(columns="b"))


def test_a_data_frame_of_classes_is_predicted(tmp_path):
    path = csv(tmp_path, frame(y=["no", "yes"] * 25))
    posterior = model_of(datasets.load(path, target="y"), 2)
    said = posterity.predict(posterior, pd.read_csv(path))
    assert torch.allclose(said.probs, posterity.predict(posterior, path).probs)


def test_without_a_preprocessing_a_data_frame_is_its_numbers(tmp_path):
    posterior = model_of(datasets.load(regression(tmp_path), target="y"))
    posterior.preprocessing = None
    own, plain = (posterity.predict(posterior, x) for x in (frame(), frame().to_numpy()))
    assert torch.equal(own.mean, plain.mean)
    with pytest.raises(Error, match="numbers are needed"):
        posterity.predict(posterior, frame(town="york"))


def test_an_estimator_tells_of_missing_values_as_well():
    table = frame()
    model = posterity.PosteriorRegressor("map", epochs=1, random_state=0).fit(table, table.a)
    with pytest.warns(UserWarning, match="Column 'b': 1 of 50 rows have no value"):
        model.predict(table.assign(b=table.b.where(table.index != 3)))
    with pytest.warns(UserWarning, match="Column 'b': 50 of 50 rows have no value"):
        model.predict(table.assign(b=np.nan))
