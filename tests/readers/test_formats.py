"""How a file writes numbers and dates is found in training, kept with the model, and applied to new files."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import posterity
from posterity import datasets
from posterity.datasets import columns, readers
from posterity.datasets.preprocessing import Preprocessing
from posterity.errors import Error

N = 50


def write(folder, content, name="t.csv"):
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


def german(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def read(path, name="a"):
    """A column's texts as Python writes them."""
    from posterity.datasets import formats

    table = readers.read_table(path)
    return formats.plain(table[name], formats.learned_mark(name, table[name], table.decimal)).tolist()


@pytest.fixture
def trained(tmp_path):
    """On a German file: 1.234,56 and semicolons."""
    values = np.random.default_rng(0).uniform(1_000, 9_000, (N, 2))
    rows = "\n".join(f"{german(a)};{i % 7};{german(b)}" for i, (a, b) in enumerate(values))
    return datasets.load(write(tmp_path, f"a;n;y\n{rows}\n"), target="y")


def raw(preprocessing, x, name):
    """The numbers behind an encoded column."""
    place = [column.name for column in preprocessing.columns].index(name)
    column = preprocessing.columns[place]
    return (x[:, place].double() * column.std + column.mean).tolist()


def test_a_model_of_german_numbers_reads_new_ones_the_same_way(tmp_path, trained):
    known = Preprocessing.from_dict(trained.preprocessing.to_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, y = datasets.read_inputs(write(tmp_path, "a;n;y\n5.432;3;1.234\n"), known)
        rows = known.inputs([{"a": "5.432", "n": 3}])
        frame = known.inputs(pd.DataFrame({"a": ["5.432"], "n": ["3"]}))
        targets = known.targets(["1.234"])
    assert raw(known, x, "a") == pytest.approx([5432], rel=1e-4)
    assert torch.equal(x, rows)
    assert torch.equal(x, frame)
    assert torch.equal(y, targets)
    assert float(y) * known.target_std + known.target_mean == pytest.approx(1234, rel=1e-4)


def test_a_file_of_the_other_mark_is_read_by_it_as_a_whole_with_a_warning(tmp_path, trained):
    known = trained.preprocessing
    with pytest.warns(UserWarning, match="'y' holds '99.5', but in training .* decimal comma.*read like 1234.5"):
        x, y = datasets.read_inputs(write(tmp_path, "a,n,y\n5.432,3,99.5\n"), known)
    assert raw(known, x, "a") == pytest.approx([5.432], abs=1e-3)
    assert float(y) * known.target_std + known.target_mean == pytest.approx(99.5, abs=1e-3)
    with pytest.warns(UserWarning, match="decimal comma"):
        assert torch.equal(known.inputs({"a": ["5432.1"], "n": ["1"]}), known.inputs({"a": [5432.1], "n": [1]}))


def test_columns_of_different_marks_in_one_new_file_are_an_error(tmp_path, trained):
    with pytest.raises(Error, match=r"'y' holds '99.5', but in training .* such as 1234,5, and other columns here"):
        datasets.read_inputs(write(tmp_path, "a;n;y\n5432,1;3;99.5\n"), trained.preprocessing)


def test_a_model_without_formats_reads_each_file_by_itself(tmp_path, trained):
    old = trained.preprocessing.to_dict()
    del old["target_format"]
    for column in old["columns"]:
        del column["format"]
    known = Preprocessing.from_dict(old)
    for content in ("a;n\n5.432,5;3\n", "a,n\n5432.5,3\n"):
        x, _ = datasets.read_inputs(write(tmp_path, content), known)
        assert raw(known, x, "a") == pytest.approx([5432.5], rel=1e-4)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_decimal_commas_are_numbers(tmp_path, separator):
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"a": generator.normal(3, 2, N), "b": generator.normal(-1, 5, N), "c": np.arange(N) / 2})
    table = table.assign(y=generator.normal(100, 10, N)).round(3)
    table.loc[::5, "b"] = np.nan
    table.to_csv(tmp_path / "points.csv", index=False, sep=separator)
    expected = datasets.load(tmp_path / "points.csv", target="y")
    text = (tmp_path / "points.csv").read_text().replace(".0" + separator, separator).replace(".", ",")
    assert f"{separator}12{separator}" in text
    data = datasets.load(write(tmp_path, text, "commas.csv"), target="y")
    assert data.task == "regression"
    assert {column.format for column in data.preprocessing.columns} == {data.preprocessing.target_format} == {","}
    assert data.preprocessing.target_mean == expected.preprocessing.target_mean
    assert torch.equal(data.train[0], expected.train[0])
    x, y = datasets.read_inputs(tmp_path / "commas.csv", data.preprocessing)
    with pytest.warns(UserWarning, match="in training its numbers were written with a decimal comma"):
        right = datasets.read_inputs(tmp_path / "points.csv", data.preprocessing)
    assert torch.equal(x, right[0])
    assert torch.equal(y, right[1])


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "a;b\n0,5;x\n,5;y\n-1,5e3;z\n 2,5 ;w\n12;v\n", ["0.5", ".5", "-1.5e3", "2.5", "12"]),
        ("a.csv", "a;b\n1,234;x\n", ["1.234"]),
        ("a.tsv", "a\tb\n1,234\tx\n0,5\ty\n", ["1.234", "0.5"]),
        ("a.csv", "a;b\n0,5;x\n1.234;y\n", ["0.5", "1234"]),
        ("a.csv", "a;b\n0,5;x\n1.5;y\n", ["0,5", "1.5"]),  # no one mark reads both
        ("a.csv", "a;b\n1,2,3;x\none, two;y\n", ["1,2,3", "one, two"]),
        ("a.csv", 'a,b\n"0,5",x\n', ["0.5"]),
        ("a.csv", 'a,b\n"5,500.5",x\n"1,234,567",y\n12,z\n', ["5500.5", "1234567", "12"]),
        ("a.csv", "a;b\n1 234,5;x\n1'234'567;y\n1\u202f234;z\n", ["1234.5", "1234567", "1234"]),
        ("a.csv", "a;b\n1.234.567;x\n1.234;y\n", ["1234567", "1234"]),
        ("a.csv", "a,b\n1234.50,x\n0.125,y\n2.,z\n", ["1234.50", "0.125", "2."]),
        ("a.csv", "a,b\n10_2,x\n1 23,y\n31.12.2020,z\n1.2.3,w\n", ["10_2", "1 23", "31.12.2020", "1.2.3"]),
    ],
)
def test_numbers_are_read_by_the_mark_that_fits_their_column(tmp_path, name, content, expected):
    assert read(write(tmp_path, content, name)) == expected


def test_what_could_be_thousands_or_decimals_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="points are read as marks of thousands, 1.200 as 1200, since other columns"):
        assert read(write(tmp_path, "a;b\n850;1,5\n1.200;2,5\n12.500;3\n")) == ["850", "1200", "12500"]
    for content in ("a;b\n850;1\n1.200;2\n", "a;b\n8.5;1,5\n1.200;2,5\n"):  # they may be decimals
        assert read(write(tmp_path, content))[1] == "1.200"
    with pytest.warns(UserWarning, match="commas are read as marks of thousands, 5,500 as 5500, since all could be"):
        assert read(write(tmp_path, 'a,b\n"5,500",1\n999,2\n')) == ["5500", "999"]


def test_a_column_of_quoted_thousands_is_a_number(tmp_path):
    rows = "\n".join(f'"{1000 + 37 * i:,}",{i % 7},{i / 7}' for i in range(N))
    with pytest.warns(UserWarning, match="'a': commas are read as marks of thousands, 1,000 as 1000"):
        data = datasets.load(write(tmp_path, f"a,b,y\n{rows}\n"), target="y")
    assert [(column.name, column.kind) for column in data.preprocessing.columns] == [("a", "number"), ("b", "number")]
    assert 1000 < data.preprocessing.columns[0].mean < 3000


def test_a_code_with_an_underscore_is_no_number(tmp_path):
    rows = "\n".join(f"10_{i % 3},{i % 7},{i / 7}" for i in range(N))
    data = datasets.load(write(tmp_path, f"a,b,y\n{rows}\n"), target="y")
    assert data.preprocessing.columns[0].categories == ("10_0", "10_1", "10_2")
    with pytest.raises(Error, match="'10_2'"):
        data.preprocessing.targets(["10_2"])


def test_a_category_that_training_never_had_is_warned_of():
    column = columns.Column("town", "category", categories=("bath", "york"))
    with pytest.warns(UserWarning, match="'town': 2 of 3 rows have a category that training never had, such as 'Rome'"):
        encoded = column.encode(np.array(["york", "Rome", "Oslo"], dtype=object))
    assert encoded.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert column.decode(encoded) == ["york", "another", "another"]


def test_models_of_texts_with_commas_still_know_them():
    column = columns.Column("size", "category", categories=("0,5", "1,0", "1,5"))
    assert column.encode(np.array(["1,5", "1.5", "1.0"], dtype=object)).argmax(1).tolist() == [2, 2, 1]
    pointed = columns.Column("size", "category", categories=("0.5", "1.5"))
    assert pointed.encode(np.array(["1,5", "0,5"], dtype=object)).argmax(1).tolist() == [1, 0]
    known = dataclasses.replace(datasets.load("digits").preprocessing, classes=["0,5", "1,5"])
    assert known.targets(np.array(["1.5", "0,5"], dtype=object)).tolist() == [1, 0]


DAYS = [f"2020-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(N)]


@pytest.mark.parametrize(
    ("form", "order"),
    [("%d.%m.%Y", "dmy"), ("%d/%m/%Y", "dmy"), ("%m/%d/%Y", "mdy"), ("%d-%m-%Y", "dmy"), ("%Y/%m/%d", ""),
     ("%Y.%m.%d", ""), ("%m/%d/%Y 12:00 AM", "mdy"), ("%d.%m.%Y 00:00", "dmy"), ("%Y-%m-%dT00:00:00", "")],
)  # fmt: skip
def test_dates_in_common_forms_are_dates(tmp_path, form, order):
    def load(dates):
        rows = "\n".join(f"{date},{i % 7},{i / 7}" for i, date in enumerate(dates))
        return datasets.load(write(tmp_path, f"d,b,y\n{rows}\n"), target="y")

    data = load([pd.Timestamp(day).strftime(form) for day in DAYS])
    column = data.preprocessing.columns[0]
    assert (column.kind, column.format) == ("date", order)
    assert torch.equal(data.train[0], load(DAYS).train[0])
    early = pd.Timestamp("2020-02-01").strftime(form)  # by itself it could be the second of January
    again = Preprocessing.from_dict(data.preprocessing.to_dict()).columns[0].encode(np.array([early], dtype=object))
    assert column.decode(again) == ["2020-02-01"]
    assert column.decode(column.encode(np.array(["2020-02-01"], dtype=object))) == ["2020-02-01"]


def test_dates_that_could_begin_with_day_or_month_are_warned_of():
    dates = np.array([f"0{1 + i % 9}/0{1 + i % 8}/2020" for i in range(N)], dtype=object)
    with pytest.warns(UserWarning, match="'d' is not read as dates: '01/01/2020' could begin with the day or with"):
        assert columns.fit("d", dates) is None


def test_dates_of_which_some_begin_with_the_day_and_others_with_the_month_are_warned_of():
    dates = np.array([f"{13 + i % 9}/01/2020" if i % 2 else f"01/{13 + i % 9}/2020" for i in range(N)], dtype=object)
    said = (
        "'d' is not read as dates: '14/01/2020' begins with the day, '01/13/2020' with the month. Write the year first"
    )
    with pytest.warns(UserWarning, match=said):
        assert columns.fit("d", dates).kind == "category"


def test_a_date_that_contradicts_the_order_of_training_is_told_of():
    column = columns.fit("d", np.array([f"{1 + i % 28}/{1 + i % 12}/2020" for i in range(N)], dtype=object))
    with pytest.warns(UserWarning, match=r"1 of 2 values are no date \(day, month, year\), such as '12/31/2020'"):
        column.encode(np.array(["12/31/2020", "31/12/2020"], dtype=object))
    with pytest.raises(
        posterity.Error, match=r"such as '12/31/2020', which is no date \(day, month, year\)\. In training"
    ):
        column.encode(np.array(["12/31/2020", "10/15/2020"], dtype=object))


def test_an_estimator_reads_texts_of_a_data_frame_as_a_file(tmp_path):
    values = np.random.default_rng(0).uniform(1_000, 9_000, N)
    frame = pd.DataFrame({"a": [german(v) for v in values], "b": np.arange(N) % 5})
    model = posterity.PosteriorRegressor("map", epochs=1, random_state=0).fit(frame, values)
    assert (model.preprocessing_.columns[0].kind, model.preprocessing_.columns[0].format) == ("number", ",")
    assert model.predict(frame[:1].assign(a="5.432")) == pytest.approx(model.predict(frame[:1].assign(a=5432.0)))


def test_quotes_behind_a_space_are_not_part_of_a_name(tmp_path):
    rows = "\n".join(f'{i % 7}, "{i % 5}", {i / 3}' for i in range(N))
    table = readers.read_table(write(tmp_path, f'"a", "b, c", "y"\n{rows}\n'))
    assert list(table) == ["a", "b, c", "y"]
    assert table["b, c"].tolist()[:3] == ["0", "1", "2"]
