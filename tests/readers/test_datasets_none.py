"""The word None in a file of text: a value among words, no value among numbers and dates."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from posterity import datasets
from posterity.datasets import columns, readers

N = 60


def written(folder, text, name="t.csv"):
    path = folder / name
    path.write_text(text)
    return path


def column(folder, values, separator=","):
    lines = [f"a{separator}b", *(f"{value}{separator}0" for value in values)]
    return columns.settled(readers.read_table(written(folder, "\n".join(lines)))["a"]).tolist()


def test_among_words_none_is_a_word(tmp_path):
    assert column(tmp_path, ["None", "mild", "NA", "severe"]) == ["None", "mild", None, "severe"]


@pytest.mark.parametrize(
    ("values", "separator"),
    [
        (["1.5", "None", "2", "x"], ","),
        (["2026-11-19", "None", "2026-11-20"], ","),
        (["1,5", "None", "2,5"], ";"),
        (["True", "None", "False"], ","),
        (["None", "None"], ","),
    ],
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


@pytest.mark.parametrize("word", ["NA", ""])
def test_a_class_that_reads_as_no_value_is_told_of(tmp_path, word):
    path, count = severities(tmp_path, word)
    with pytest.warns(UserWarning, match="value") as told:
        data = datasets.load(path, target="d")
    said = [str(warning.message) for warning in told]
    assert f"{count} rows without a value of 'd' are left out." in said
    assert ("In the target 'd' NA is read as no value: a class needs another name." in said) == bool(word)
    assert data.preprocessing.classes == ["mild", "severe"]


@pytest.fixture
def trained(tmp_path):
    """Pain in words, age in numbers, of which a few are missing."""
    rows = [f"{'None' if i % 2 else 'some'},{i if i > 3 else ''},{i % 2}" for i in range(N)]
    path = written(tmp_path, "\n".join(["pain,age,y", *rows]))
    return datasets.load(path, target="y", task="classification").preprocessing


def encoded(folder, preprocessing, *rows):
    return datasets.read_inputs(written(folder, "\n".join(["pain,age", *rows]), "new.csv"), preprocessing)[0]


def test_new_rows_mean_what_the_model_knows_whatever_stands_beside_them(tmp_path, trained):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = encoded(tmp_path, trained, "None,10")
        beside = encoded(tmp_path, trained, "None,10", *["some,10"] * 3)
        gone, blank = encoded(tmp_path, trained, "some,None"), encoded(tmp_path, trained, "some,")
        listed = trained.inputs([{"pain": "None", "age": 10}])
        frame = trained.inputs(pd.DataFrame({"pain": ["None"], "age": ["10"]}))
    with pytest.warns(UserWarning, match="'pain': 3 of 4 rows have a category that training never had"):
        among = encoded(tmp_path, trained, "None,10", "38,10", "40,10", "2026-11-19,10")
    assert torch.equal(alone, among[:1])
    assert torch.equal(alone, beside[:1])
    assert torch.equal(alone, listed)
    assert torch.equal(alone, frame)
    assert torch.equal(gone, blank)
    assert not torch.equal(alone, encoded(tmp_path, trained, "some,10"))


def test_a_target_of_numbers_has_no_none(tmp_path):
    rows = [f"{i},{'None' if i < 10 else 0.37 * i**2}" for i in range(N)]
    with pytest.warns(UserWarning, match="10 rows without a value of 'y'"):
        data = datasets.load(written(tmp_path, "\n".join(["x,y", *rows])), target="y")
    assert data.task == "regression"
    with pytest.warns(UserWarning, match="Some rows have no 'y'"):
        _, y = datasets.read_inputs(written(tmp_path, "x,y\n1,None\n", "new.csv"), data.preprocessing)
    assert y is None
