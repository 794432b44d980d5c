"""The word None in a file of text: a value among words, no value among numbers and dates."""

import warnings

import numpy as np
import pytest

from posterity import datasets
from posterity.datasets import readers
from posterity.errors import Error

N = 60


def written(folder, text, name="t.csv"):
    path = folder / name
    path.write_text(text)
    return path


def column(folder, values, separator=","):
    lines = [f"a{separator}b", *(f"{value}{separator}0" for value in values)]
    return readers.read_table(written(folder, "\n".join(lines)))["a"].tolist()


def test_among_words_none_is_a_word(tmp_path):
    assert column(tmp_path, ["None", "mild", "NA", "severe"]) == ["None", "mild", None, "severe"]


@pytest.mark.parametrize(
    ("values", "separator"),
    [(["1.5", "None", "2", "x"], ","), (["2026-11-19", "None", "2026-11-20"], ","), (["1,5", "None", "2,5"], ";")],
)
def test_among_numbers_and_dates_none_is_no_value(tmp_path, values, separator):
    read = column(tmp_path, values, separator)
    assert [value is None for value in read] == [value == "None" for value in values]


@pytest.mark.parametrize("word", ["", "?", "NA", "N/A", "null", "NaN"])
def test_what_stands_for_no_value_is_none_everywhere(tmp_path, word):
    assert column(tmp_path, [word, "mild", "severe"]) == [None, "mild", "severe"]


def severities(folder, none):
    """x below 0 has the first class."""
    x = np.random.default_rng(0).normal(size=N)
    rows = [f"{v},{none if v < 0 else 'mild' if v < 1 else 'severe'}" for v in x]
    return written(folder, "\n".join(["x,d", *rows])), int((x < 0).sum())


def test_none_is_a_class_like_others(tmp_path):
    path, _ = severities(tmp_path, "None")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = datasets.load(path, target="d")
    assert data.preprocessing.classes == ["None", "mild", "severe"]


def test_a_class_that_reads_as_no_value_is_told_of(tmp_path):
    path, count = severities(tmp_path, "NA")
    with pytest.warns(
        UserWarning, match=f"{count} rows without a value of 'd' are left out. .*give a class another name"
    ):
        data = datasets.load(path, target="d")
    assert data.preprocessing.classes == ["mild", "severe"]


def test_a_new_row_of_none_alone_is_what_the_model_knows_it_as(tmp_path):
    rows = [f"{'None' if i % 2 else 'some'},{i},{i % 2}" for i in range(N)]
    data = datasets.load(written(tmp_path, "\n".join(["pain,age,y", *rows])), target="y", task="classification")
    new = {"None": "pain,age\nNone,3\n", "some": "pain,age\nsome,3\n"}
    files = [written(tmp_path, text, f"{name}.csv") for name, text in new.items()]
    none, some = (datasets.read_inputs(path, data.preprocessing)[0][0].tolist() for path in files)
    assert sorted(none) == sorted(some)  # one of two categories each, and the same age
    assert none != some
    with pytest.raises(Error, match="'age' has no value that can be read, only such as 'None'"):
        datasets.read_inputs(written(tmp_path, "pain,age\nsome,None\n", "new.csv"), data.preprocessing)
