"""One column of a table: how its raw values become numbers for a network.

A raw column is a one-dimensional array of numbers, booleans, ``datetime64`` or objects (text, ``None`` where
missing). What it becomes is learned from the training rows alone.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from posterity.datasets import checks, formats
from posterity.errors import Error
from posterity.wording import number

MOST_CATEGORIES = 50
_NONE = "None"
_ORDERS = {"dmy": " (day, month, year)", "mdy": " (month, day, year)"}
_PARSED = 0.95  # of the texts in a column, for it to count as numbers or dates
LARGEST = 1e100  # squares of larger numbers overflow, so they count as infinite
_CLIP = 1e6  # standard deviations, so that float32 stays finite
_ROUNDING = float(np.finfo(np.float32).eps)  # of mean and standard deviation: what is nearer to 0 is read as 0


def is_text(values: np.ndarray) -> bool:
    """Whether a raw column holds objects or text rather than numbers, booleans or dates."""
    return values.dtype.kind in "OUST"


def missing(values: np.ndarray) -> np.ndarray:
    """Return where a raw column has no value: NaN, NaT, None or empty text."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind == "M":
        return np.isnat(values)
    if is_text(values):
        return np.array([_absent(value) for value in values], dtype=bool)
    return np.zeros(len(values), dtype=bool)


def _absent(value: Any) -> bool:
    if isinstance(value, float):
        return value != value
    return value is None or (isinstance(value, str) and not value.strip())


def numbers(values: np.ndarray, decimal: str = "") -> np.ndarray:
    """Return a raw column as float64, NaN where a value is missing or no number with that decimal mark."""
    if values.dtype.kind in "bfiu":
        return values.astype(np.float64)
    result = np.full(len(values), np.nan)
    if not is_text(values):
        return result
    present = ~missing(values)
    values = formats.plain(values, decimal)
    try:
        if any(isinstance(value, str) and "_" in value for value in values):
            raise ValueError  # codes, which NumPy takes for numbers
        result[present] = values[present].astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        result[present] = _each(formats.number, values[present])
    return result


def dates(values: np.ndarray, order: str = "") -> np.ndarray:
    """Return a raw column as days since 1970, NaN where a value is missing or no date in that order."""
    result = np.full(len(values), np.nan)
    if values.dtype.kind == "M":
        present = ~np.isnat(values)
        result[present] = values[present].astype("datetime64[s]").astype(np.float64) / 86_400
    elif is_text(values):
        present = ~missing(values)
        result[present] = _each(lambda value: formats.days(value, order), values[present])
    return result


def labels(values: np.ndarray) -> list[str | None]:
    """Return a raw column as text, None where a value is missing; whole numbers have no point."""
    return (
        _each(lambda value: None if _absent(value) else label(value), values)
        if is_text(values)
        else [None if gone else label(value) for value, gone in zip(values, missing(values), strict=True)]
    )


def _each(function: Callable[[Any], Any], values: np.ndarray) -> list[Any]:
    """The function of every value, computed once for all that are the same: columns of text repeat themselves."""
    known: dict[tuple[type, Any], Any] = {}
    for value in values:
        if (key := (type(value), value)) not in known:
            known[key] = function(value)
    return [known[type(value), value] for value in values]


def label(value: Any) -> str:
    """Write one value as text: 1, 1.0 and "1.0" are all "1"."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float | np.floating):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    text = str(value).strip()
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text)


def places(names: Iterable[str | None]) -> dict[str | None, int]:
    """Return the place of each name in a list; a number with a decimal comma is also known by its point."""
    place = {name: i for i, name in enumerate(names)}
    pointed = formats.plain(np.array(list(place), dtype=object), ",")
    return {label(name): i for name, i in zip(pointed, place.values(), strict=True) if name is not None} | place


def place_numbers(values: np.ndarray, names: Iterable[str | None], decimal: str) -> list[int | None]:
    """Return each value's place in a list of names, as it stands or as the number that it is; None if in neither."""
    place = places(names)
    pairs = zip(labels(values), labels(formats.plain(values, decimal)), strict=True)
    return [place.get(text, place.get(number)) for text, number in pairs]


def settled(values: np.ndarray, known: Collection[str | None] | None = None) -> np.ndarray:
    """A raw column in which the word None is no value, unless it is a word like others.

    So it is among the names that are known, of categories or classes; where none are yet, among words, as against
    numbers and dates.
    """
    if not is_text(values) or not any(called := [isinstance(v, str) and v.strip() == _NONE for v in values]):
        return values
    rest = np.where(called, np.array(None), values)
    return values if (mostly_words(rest) if known is None else _NONE in known) else rest


def mostly_words(values: np.ndarray) -> bool:
    """Whether most values that there are in a raw column are neither numbers nor dates."""
    present = values[~missing(values)]
    read = numbers(present, formats.decimal_mark(present)), dates(present, formats.date_order(present))
    return is_text(values) and 2 * int(np.isnan(read).all(0).sum()) > len(present)


def mostly_numbers(values: np.ndarray) -> str | None:
    """Say how many values are numbers, and what another is, where most are but not all; else None."""
    if not is_text(values):
        return None
    present = values[~missing(values)]
    others = np.isnan(numbers(present))
    read = len(present) - int(others.sum())
    if not len(present) / 2 < read < len(present):
        return None
    return f"{read} of {len(present)} values are numbers, others are not, such as {_brief(present[others][0])}"


def _brief(value: Any) -> str:
    return repr(str(value)[:40])


@dataclass(frozen=True)
class Column:
    """A column that a network sees: ``kind`` is "number", "date" (in days) or "category".

    Numbers and dates are standardised by ``mean`` and ``std``, with ``median`` where missing and, with
    ``indicator``, a second column that is 1 there. Categories are one-hot; None is the missing value.

    ``format`` is how texts are read: the decimal mark, "." or ",", or the order of a date, "dmy" or "mdy"; "" where
    training did not show it.
    """

    name: str
    kind: str
    mean: float = 0.0
    std: float = 1.0
    median: float = 0.0
    indicator: bool = False
    categories: tuple[str | None, ...] = ()
    format: str = ""

    @property
    def knows_missing(self) -> bool:
        """Whether values were missing in training."""
        return None in self.categories if self.kind == "category" else self.indicator

    @property
    def width(self) -> int:
        """The number of columns it becomes."""
        return len(self.categories) if self.kind == "category" else 1 + self.indicator

    def encode(self, values: np.ndarray, form: str | None = None) -> np.ndarray:
        """Turn raw values [n] into float32 [n, width]; a category that was never seen is all zeros.

        Missing values where training had none and categories that it did not have are warned of, and an ``Error``
        raised where no value can be read. ``form`` is how texts are read, by default as in training.
        """
        values = settled(values, self.categories)
        if form is None:
            form = self.format or (formats.date_order if self.kind == "date" else formats.decimal_mark)(values)
        if self.kind == "category":
            return self._one_hot(values, form)
        result = np.zeros((len(values), self.width), dtype=np.float32)
        value = _finite(self.name, _PARSERS[self.kind](values, form))
        gone = np.isnan(value)
        self._check_missing(values, gone)
        strange = gone & ~missing(values)
        if strange.any():
            warnings.warn(
                f"{self.name}: {int(strange.sum())} of {len(values)} values are no {self.kind}{_ORDERS.get(form, '')}, "
                f"such as {_brief(values[strange][0])}; they are read as missing.",
                stacklevel=2,
            )
        value[gone] = self.median
        with np.errstate(over="ignore"):
            result[:, 0] = np.clip((value - self.mean) / self.std, -_CLIP, _CLIP)
        if self.indicator:
            result[:, 1] = gone
        return result

    def _one_hot(self, values: np.ndarray, form: str) -> np.ndarray:
        gone = missing(values)
        self._check_missing(values, gone)
        found = place_numbers(values, self.categories, form)
        place = np.array([-1 if one is None else one for one in found], dtype=int)
        if (new := ~gone & (place < 0)).any():
            warnings.warn(
                f"Column {self.name!r}: {int(new.sum())} of {len(values)} rows have a category that training never "
                f"had, such as {_brief(values[new][0])}. They get no category and the prediction does not know of it: "
                "its uncertainty may be too small.",
                stacklevel=3,
            )
        return (place[:, None] == np.arange(self.width)).astype(np.float32)

    def _check_missing(self, values: np.ndarray, gone: np.ndarray) -> None:
        if self.knows_missing or not gone.any():
            return
        found = values[~missing(values)]
        if gone.all() and len(found):
            raise Error(
                f"The column {self.name!r} has no value that can be read, only such as {_brief(found[0])}, which is no "
                f"{self.kind}{_ORDERS.get(self.format, '')}. In training no value of it was missing, so the model "
                "cannot do without it."
            )
        instead = f"the training median, {self._text(self.median)}," if self.kind != "category" else "no category"
        warnings.warn(
            f"Column {self.name!r}: {int(gone.sum())} of {len(values)} rows have no value, which never was so in "
            f"training. They get {instead} and the answer does not know of it: its uncertainty may be too small.",
            stacklevel=3,
        )

    def decode(self, encoded: np.ndarray) -> list[str]:
        """Write encoded values [n, width] as text, as a reader of the table knows them."""
        if self.kind == "category":
            texts = ["missing" if name is None else name for name in self.categories]
            return [texts[int(row.argmax())] if row.any() else "another" for row in encoded]
        values = encoded[:, 0].astype(np.float64) * self.std + self.mean
        values[np.abs(values) < _ROUNDING * (abs(self.mean) + self.std)] = 0.0
        gone = encoded[:, 1] > 0.5 if self.indicator else np.zeros(len(encoded), dtype=bool)
        return ["missing" if absent else self._text(value) for value, absent in zip(values, gone, strict=True)]

    def _text(self, value: float) -> str:
        if self.kind == "number":
            return number(value)
        try:
            # A network's inputs are of single precision, which must not make it the day before.
            return datetime.fromtimestamp(3_600 * round(24 * value), UTC).date().isoformat()
        except (OverflowError, ValueError, OSError):
            return f"day {value:.0f}"

    @classmethod
    def from_dict(cls, value: object) -> "Column":
        """Rebuild a column from its fields, as JSON holds them; anything else is an ``Error``."""
        entry = checks.mapping(value, set(cls.__dataclass_fields__), "a column", {"format": ""})
        categories = checks.texts(entry["categories"], "categories", most=MOST_CATEGORIES, empty=True)
        if entry["kind"] not in ("number", "date", "category") or (bool(categories) != (entry["kind"] == "category")):
            raise Error(f"The preprocessing of this model has a column of unknown kind {entry['kind']!r}.")
        return cls(
            name=checks.text(entry["name"], "name"),
            kind=entry["kind"],
            mean=checks.number(entry["mean"], "mean"),
            std=checks.number(entry["std"], "std", positive=True),
            median=checks.number(entry["median"], "median"),
            indicator=checks.boolean(entry["indicator"], "indicator"),
            categories=tuple(categories),
            format=checks.one_of(
                entry["format"], "format", ("", *(formats.ORDERS if entry["kind"] == "date" else formats.MARKS))
            ),
        )


def fit(name: str, values: np.ndarray, common: str = "") -> Column | None:
    """Learn a column from the training rows; None, with a warning where it matters, if it is of no use.

    ``common`` is the decimal mark of the whole table, where it is known.
    """
    decimal = formats.learned_mark(name, values, common) if is_text(values) else ""
    order = formats.date_order(values) if is_text(values) else ""
    values = settled(formats.plain(values, decimal))
    kind = _kind(values, order)
    if kind == "category":
        if why := formats.why_no_dates(values):
            warnings.warn(f"Column {name!r} is not read as dates: {why}. Write the year first, as in 2026-11-19.")
        return _fit_category(name, labels(values), mostly_numbers(values), decimal)
    form = order if kind == "date" else decimal
    raw = _PARSERS[kind](values, order if kind == "date" else "")
    if (unread := int(np.isnan(raw).sum() - missing(values).sum())) > 0:
        warnings.warn(f"Column {name!r}: {unread} values that are no {kind} count as missing.")
    value = _finite(name, raw)
    gone = np.isnan(value)
    present = value[~gone]
    constant = not len(present) or present.min() == present.max()
    if constant and (not len(present) or not gone.any()):
        return None
    std = 1.0 if constant else float(present.std()) or 1.0
    median = float(np.median(present))
    return Column(name, kind, float(present.mean()), std, median, bool(gone.any()), format=form)


def _fit_category(name: str, texts: list[str | None], mixed: str | None, decimal: str) -> Column | None:
    counts = Counter(texts)
    if len(counts) < 2:
        return None
    if len(counts) > MOST_CATEGORIES or len(counts) > max(10, len(texts) / 2):
        why = f"{mixed}. Mend or empty those" if mixed else f"its {len(counts)} different texts look like names or ids"
        warnings.warn(f"Column {name!r} is left out: {why}.")
        return None
    if mixed:
        warnings.warn(f"Column {name!r} is read as categories: {mixed}. Mend or empty those for it to be a number.")
    categories = tuple(sorted(counts, key=lambda text: (text is None, text or "")))
    return Column(name, "category", categories=categories, format=decimal)


def _kind(values: np.ndarray, order: str) -> str:
    if values.dtype.kind == "M":
        return "date"
    if not is_text(values):
        return "number"
    present = values[~missing(values)]
    for kind, parse in _PARSERS.items():
        if (~np.isnan(parse(present, order if kind == "date" else ""))).sum() >= max(_PARSED * len(present), 1):
            return kind
    return "category"


def _finite(name: str, value: np.ndarray) -> np.ndarray:
    huge = np.abs(value) > LARGEST
    if huge.any():
        warnings.warn(f"Column {name!r}: {int(huge.sum())} infinite values count as missing.")
    return np.where(huge, np.nan, value)


_PARSERS: dict[str, Callable[[np.ndarray, str], np.ndarray]] = {"number": numbers, "date": dates}
