"""What lets scores flatter every model is warned of when data are read."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from posterity import datasets

N = 200


def table(**columns):
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, N))
    return pd.DataFrame({"a": a, "b": b, "y": a + b + generator.normal(size=N)} | columns)


def notes(folder, frame, **options):
    frame.to_csv(folder / "t.csv", index=False)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        datasets.load(folder / "t.csv", target="y", **options)
    return [str(note.message) for note in found]


def test_data_without_leaks_are_read_without_a_word(tmp_path):
    frame = table()
    assert notes(tmp_path, frame) == []
    assert notes(tmp_path, frame.assign(y=np.where(frame["y"] > 0, "yes", "no"))) == []
    assert notes(tmp_path, frame.assign(a=np.sort(frame["a"]))) == []  # sorted by a measurement


def test_copies_of_training_rows_among_test_rows_are_counted(tmp_path):
    frame = table()
    frame[100:150] = frame[:50].to_numpy()
    (said,) = notes(tmp_path, frame)
    test = set(datasets.data.split(N, 0)[1].tolist())
    count = sum((i in test) != (i + 100 in test) for i in range(50))
    assert f"{count} of 40 test rows are copies of training rows" in said
    assert "leave repeated rows out" in said


def test_copies_of_images_are_counted(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "t.npz", x=np.concatenate([x, x]), y=np.arange(80) % 2)
    with pytest.warns(UserWarning, match="of 16 test rows are copies of training rows"):
        datasets.load(tmp_path / "t.npz")


def test_rows_alike_by_chance_are_not_told_of(tmp_path):
    generator = np.random.default_rng(0)
    few = {"a": generator.integers(0, 3, N), "b": generator.choice(["x", "z"], N), "y": generator.integers(0, 2, N)}
    assert notes(tmp_path, pd.DataFrame(few)) == []


def test_a_few_rows_alike_by_chance_are_not_told_of_where_columns_have_many_values(tmp_path):
    generator = np.random.default_rng(4)
    frame = pd.DataFrame({name: generator.integers(0, 18, N) for name in "ab"} | {"y": generator.integers(0, 9, N)})
    assert notes(tmp_path, frame) == []
    data = datasets.load(tmp_path / "t.csv", target="y")
    train, test = ({*map(tuple, torch.column_stack(part).tolist())} for part in (data.train, data.test))
    assert train & test  # which only by chance are alike


def test_a_single_row_of_a_class_that_is_extreme_by_chance_is_not_told_of(tmp_path):
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{i}": generator.normal(size=N) for i in range(30)})
    frame["y"] = (np.arange(N) == frame["x7"].argmax()).astype(int)
    assert notes(tmp_path, frame) == []


def test_a_column_that_numbers_the_rows_is_told_of(tmp_path):
    (said,) = notes(tmp_path, table(id=1000 + 3 * np.arange(N)))
    assert "Column 'id' numbers the rows of the file: if it is an identifier" in said
    assert "take it out" in said


def test_a_number_in_a_file_sorted_by_target_is_told_of(tmp_path):
    (said,) = notes(tmp_path, table().sort_values("y").assign(id=range(N)))
    assert "Column 'id' numbers the rows of the file and determines the target all by itself" in said
    frame = table()
    frame = frame.assign(y=np.where(frame["y"] > 0, "yes", "no")).sort_values("y").assign(id=range(N))
    (said,) = notes(tmp_path, frame.sample(frac=1.0, random_state=0))
    assert "Column 'id' determines the target all by itself" in said
    assert "known only together with the target 'y'" in said


def test_a_column_that_determines_the_target_is_told_of(tmp_path):
    frame = table()
    (said,) = notes(tmp_path, frame.assign(euros=2.5 * frame["y"] - 7))
    assert "Column 'euros' determines the target" in said
    classes = frame.assign(y=np.digitize(frame["y"], [-1, 1]))
    (said,) = notes(tmp_path, classes.assign(grade=classes["y"].map({0: "low", 1: "middle", 2: "high"})))
    assert "Column 'grade' determines the target" in said
    assert notes(tmp_path, classes.assign(grade=np.where(classes["y"] == 0, "low", "other"))) == []
