"""Readers of strangers' files: CSV, Parquet, NPZ. Nothing in them is executed; all trouble is an ``Error``."""

import csv
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from posterity.datasets import formats
from posterity.datasets.columns import mostly_words, numbers
from posterity.datasets.preprocessing import MOST_COLUMNS
from posterity.errors import Error, require

TEXT = (".csv", ".tsv", ".txt", ".data")
PARQUET = (".parquet", ".pq")
_SEPARATORS = ",;\t|"
_SAID = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # the first line that Excel writes, and reads
#: What stands for no value: what pandas takes for it, but for the word None (see `settled`), and what old tables write.
_MISSING = {
    *("", "?", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NULL", "null"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
}
_LOOKED_AT = 1 << 16  # characters in which the separator is looked for
_LIMIT = 16_000_000_000  # bytes of a file's unpacked arrays or columns
_SMALL = 128_000_000  # unpacked bytes that any file may hold
_TIMES = {"npz": 200, "parquet": 1_000}  # the size of its file that a larger one may unpack to
_LONGEST_NAMES = 10_000_000  # characters of all column names of a text file
_FEW_CELLS = 4_000_000  # cells that any text file may hold, and that are read at once
_CELLS_PER_BYTE = 8  # that a larger one may hold; at most one where every row is as long as the header


class Table(dict[str, np.ndarray]):
    """Raw columns by name; ``decimal`` is the mark on which their texts agree, else ""."""

    decimal: str = ""


def read_table(path: Path, target: str | None = None) -> Table:
    """Read a CSV or Parquet file into raw columns; ``target`` must not be there twice."""
    suffix = path.suffix.lower()
    if suffix not in TEXT + PARQUET:
        raise Error(f"{path} is no file of a known kind: these are .csv, .tsv, .txt, .parquet and .npz.")
    require("pandas")
    names, columns, words, separator = guard(path, _read_text if suffix in TEXT else _read_parquet)
    if not names:
        raise Error(f"{path} holds no columns.")
    if target is not None and names.count(target) > 1:
        raise Error(f"{path} has {names.count(target)} columns named {target!r}: rename all but one.")
    if target in names and (stood := words[names.index(target)]) and mostly_words(columns[names.index(target)]):
        warnings.warn(f"In the target {target!r} {', '.join(stood)} is read as no value: a class needs another name.")
    table = _table(names, columns, separator)
    first = next(iter(table), "")
    if not names[0] and first and _numbers_rows(table[first]):
        if not np.array_equal(numbers(table[first]), np.arange(len(table[first]))):
            warnings.warn(f"The first column of {path} has no name and numbers the rows: it is left out.")
        del table[first]  # what pandas writes
    if not table or not len(next(iter(table.values()))):
        raise Error(f"{path} holds no rows.")
    return table


def _numbers_rows(values: np.ndarray) -> bool:
    """Whether values are whole numbers, of which none is there twice: the numbers of rows, or of some of them."""
    read = numbers(values)
    return bool(np.isfinite(read).all() and (read == np.round(read)).all() and len(np.unique(read)) == len(read))


def read_npz(path: Path, wanted: Iterable[str]) -> dict[str, np.ndarray]:
    """Read those of the wanted arrays that an NPZ file holds; pickled objects are refused."""

    def read(file: IO[bytes]) -> dict[str, np.ndarray]:
        with zipfile.ZipFile(file) as archive:
            held = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            chosen = {name: held[name] for name in wanted if name in held}
            _check_unpacked(path, "npz", sum(entry.file_size for entry in chosen.values()))
            return {name: _array(archive, entry) for name, entry in chosen.items()}

    return guard(path, read)


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One array of an archive, which is as large as its header says before memory is taken for it."""
    form: Any = np.lib.format
    with archive.open(entry) as member:
        short = form.read_magic(member) == (1, 0)
        shape, _, kind = (form.read_array_header_1_0 if short else form.read_array_header_2_0)(member)
        if kind.hasobject or math.prod(shape) * kind.itemsize != entry.file_size - member.tell():
            raise Error(f"{archive.filename} cannot be read: it holds objects, or less than its header says.")
    with archive.open(entry) as member:
        return form.read_array(member, allow_pickle=False)


def _check_unpacked(path: Path, kind: str, size: int) -> None:
    """Refuse a file of a stranger that unpacks to far more than it is."""
    if size > _LIMIT or size > max(_SMALL, _TIMES[kind] * path.stat().st_size):
        raise Error(f"{path} unpacks to {size:,} bytes, which is too much for its size: save it uncompressed.")


def guard(path: Path, read: Callable[[IO[bytes]], Any]) -> Any:
    """Read a file of unknown origin: whatever its reader raises becomes an ``Error`` that names the file."""
    try:
        if not path.is_file():  # a device has no end
            raise Error(f"{path} is no file.")
        with path.open("rb") as file:
            if not file.peek(1):
                raise Error(f"{path} is empty.")
            return read(file)
    except Error:
        raise
    except Exception as error:
        # The readers of other libraries raise too many kinds of exception on damaged files to name them.
        reason = str(error).strip().partition("\n")[0][:200]
        raise Error(f"{path} cannot be read: {reason or type(error).__name__}.") from error


def _table(names: list[str], columns: list[np.ndarray | None], separator: str = "") -> Table:
    """The columns that there are, by their names, each once."""
    table = Table((name, values) for name, values in zip(_unique(names), columns, strict=True) if values is not None)
    table.decimal = formats.common_mark(table.values(), separator)
    return table


def from_frame(frame: Any) -> Table:
    """Turn a pandas data frame into raw columns; nested ones are left out with a warning."""
    names = [str(name) for name in frame.columns]
    return _table(names, [_raw(name, frame.iloc[:, i]) for i, name in enumerate(names)])


def _read_text(file: IO[bytes]) -> tuple[list[str], list[np.ndarray], list[list[str]], str]:
    start = file.read(1 << 16)
    file.seek(0)
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in start:
        raise Error(f"{file.name} is not a text file: save the table as CSV or Parquet.")
    try:
        return _read_csv(file.name, encoding)
    except UnicodeDecodeError:
        return _read_csv(file.name, "cp1252")


def _read_csv(name: str, encoding: str) -> tuple[list[str], list[np.ndarray], list[list[str]], str]:
    """Column names, columns, the words that stand for no value in each, and what stands between fields."""
    pandas = require("pandas")
    with open(name, encoding=encoding, newline="") as text:
        separator, began = _separator(text)
        header = [field.strip() for field in next(_rows(_start(text), separator), [])]
        if len(header) > MOST_COLUMNS:
            raise Error(f"{name} has more than {MOST_COLUMNS:,} columns.")
        first = next((row for row in _rows(text, separator) if row), [])
        if any(field.strip() for field in first[len(header) :]) or len(first) > MOST_COLUMNS:
            raise Error(f"{name} has {len(first)} fields in its first row, but only {len(header)} column names.")
        text.seek(began)
        next(_rows(text, separator), None)  # pandas goes on behind the header
        # Everything is read as text, so that a column means the same in every file.
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            frames = pandas.read_csv(
                text,
                sep=separator,
                header=None,
                names=range(len(header)),
                index_col=False,
                dtype=object,
                keep_default_na=False,
                skipinitialspace=True,
                chunksize=_FEW_CELLS // max(1, len(header)),
                low_memory=False,
            )
            cells = _cells(Path(name), len(header), frames)
    if len(header) > 1 and all(_is_number(field) for field in header):
        warnings.warn(f"The first line of {name} holds only numbers: does it have a line of column names?")
    columns, words = [], []
    for values in cells:
        blanked, stood = _blanked(values)
        columns.append(blanked)
        words.append(stood)
    return header, columns, words, separator


def _rows(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """The fields of each line; spaces behind a separator are not of the field, so that quotes may follow them."""
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)


def _separator(text: IO[str]) -> tuple[str, int]:
    """What stands between fields, and where the column names begin, at which the file is left.

    It is what makes the most fields of the first line, and as many of the next ones; of several such the semicolon,
    since those who write it need the comma for decimals.
    """
    said = _SAID.fullmatch(text.readline(_LONGEST_NAMES))
    if said is None:
        text.seek(0)
    began = text.tell()
    lines = text.read(_LOOKED_AT).splitlines(keepends=True)
    text.seek(began)
    if said is not None:
        return said[1], began

    def fields(separator: str) -> tuple[bool, int]:
        counts = [len(row) for row, _ in zip(_rows(lines, separator), range(6), strict=False) if row]
        return counts[1:5] == counts[:1] * len(counts[1:5]), counts[0] if counts else 0

    found = {separator: fields(separator) for separator in _SEPARATORS}
    several = [separator for separator, (_, count) in found.items() if count > 1]
    return max(several or found, key=lambda separator: (*found[separator], separator == ";")), began


def _blanked(values: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Texts [n] with None in place of those that stand for no value, and which these are."""
    found = {text for text in values if text in _MISSING}
    if found:
        values = np.array([None if text in found else text for text in values], dtype=object)
    return values, sorted(found - {""})


def _start(text: IO[str]) -> Iterator[str]:
    """The lines of a file, of which column names fill no more than they may."""
    size = 0
    while line := text.readline(_LONGEST_NAMES):
        size += len(line)
        if size >= _LONGEST_NAMES:
            raise Error(f"{text.name} has column names of more than {_LONGEST_NAMES:,} characters.")
        yield line


def _cells(path: Path, columns: int, frames: Iterable[Any]) -> np.ndarray:
    """The texts [columns, rows] of a file that is read piece by piece; None where there is none.

    Short rows are filled up, so that a small file may ask for far more memory than it has bytes.
    """
    parts, rows, most = [], 0, max(_FEW_CELLS, _CELLS_PER_BYTE * path.stat().st_size)
    for frame in frames:
        rows += len(frame)
        if rows * columns > most:
            raise Error(f"{path} has {columns:,} column names, but rows of far fewer fields: fill them up.")
        values = np.array(frame.to_numpy(dtype=object).T, order="C")
        values[values != values] = None  # NaN, which alone differs from itself
        parts.append(values)
    return np.concatenate(parts, axis=1) if parts else np.empty((columns, 0), dtype=object)


def _read_parquet(file: IO[bytes]) -> tuple[list[str], list[np.ndarray | None], list[list[str]], str]:
    parquet = require("pyarrow.parquet")
    metadata = parquet.ParquetFile(file).metadata
    if metadata.num_columns > MOST_COLUMNS:
        raise Error(f"{file.name} has more than {MOST_COLUMNS:,} columns.")
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    stored = sum(group.total_byte_size for group in groups)
    _check_unpacked(Path(file.name), "parquet", max(stored, 8 * metadata.num_columns * metadata.num_rows))
    # A text that a file holds once for many rows is kept once.
    leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and leaf.max_repetition_level == 0]
    file.seek(0)
    table = parquet.ParquetFile(file, read_dictionary=texts).read()
    names, columns = [], []
    for name, values in zip(table.column_names, table.columns, strict=True):
        if not name.startswith("__index_level_"):
            names.append(name)
            columns.append(_raw(name, values.to_pandas()))
    return names, columns, [[] for _ in names], ""


def _raw(name: str, series: Any) -> np.ndarray | None:
    """Return a pandas series as a raw column, or None with a warning where it is of no known type."""
    kind = series.dtype.kind
    gone = series.isna()
    if kind == "b" and not gone.any():
        return series.to_numpy(dtype=bool)
    if kind in "biuf":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if kind == "M":
        naive = series.dt.tz_convert(None) if getattr(series.dtype, "tz", None) else series
        return naive.to_numpy(dtype="datetime64[ns]")
    values = series.astype(object).to_numpy(dtype=object, copy=True)
    values[gone.to_numpy(dtype=bool)] = None
    if kind not in "OUST" or any(isinstance(value, list | dict | tuple | np.ndarray) for value in values):
        warnings.warn(f"Column {name!r} is left out: it holds neither numbers, texts nor dates.")
        return None
    return values


def _unique(names: list[str]) -> list[str]:
    """Name the unnamed by their place, and number repeated names: a, a.1, a.2."""
    result: dict[str, int] = {}
    taken, repeats = set(names), dict.fromkeys(names, 0)
    for place, name in enumerate(names):
        start = fresh = name or f"column {place + 1}"
        while fresh in result or (fresh != name and fresh in taken):
            repeats[name] += 1
            fresh = f"{start}.{repeats[name]}"
        if fresh not in (name, start):
            warnings.warn(f"There are several columns named {name!r}; one is now called {fresh!r}.")
        result[fresh] = place
    return list(result)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
