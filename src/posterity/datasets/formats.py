"""How numbers and dates are written in texts: found in training, kept with the model, and applied to new rows.

A decimal mark is "." or ","; the other one, a space or an apostrophe may then stand between thousands. Dates with
slashes or dashes have the order "dmy" or "mdy"; those with points begin with the day, those that begin with the year
need no order.
"""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from posterity.errors import Error

MARKS = (".", ",")
ORDERS = ("dmy", "mdy")
_EXAMPLES = {".": "1234.5", ",": "1234,5"}
_SPACES = " \u00a0\u202f'\u2019"  # between thousands
_ROUGH = re.compile(rf"[.,{_SPACES}]")
_DATE = re.compile(
    r"(\d{1,4})([./-])(\d{1,2})\2(\d{1,4})(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?(?: ?([AP])M)?)?", re.I
)


def _form(decimal: str, other: str) -> re.Pattern[str]:
    """A number with this decimal mark, and perhaps groups of thousands."""
    groups = rf"[1-9]\d{{0,2}}([{other}{_SPACES}])\d{{3}}(?:\1\d{{3}})*"
    return re.compile(rf"[+-]?(?=[.,]?\d)(?:{groups}|\d+)?(?:[{decimal}]\d*)?(?:[eE][+-]?\d+)?")


_FORMS = {".": _form(".", ","), ",": _form(",", ".")}


def _read_by(text: str) -> list[str]:
    """The decimal marks with which a text is a number."""
    return [mark for mark, form in _FORMS.items() if form.fullmatch(text.strip())]


def _texts(values: np.ndarray) -> Iterator[str]:
    """The texts of a raw column in which there is a point or a comma."""
    if values.dtype.kind in "OUST":
        yield from (value for value in values if isinstance(value, str) and ("," in value or "." in value))


def decimal_mark(values: np.ndarray) -> str:
    """The only decimal mark that a column's texts can have: 0,5 and 1.234,5 a comma; "" where none or both are seen."""
    found = ""
    for text in _texts(values):
        # Once a mark is found, only what may speak against it need be looked at.
        if found and text.count(found) < 2 and ("," if found == "." else ".") not in text:
            continue
        read = _read_by(text)
        if len(read) == 1 and read[0] != found:
            if found:
                return ""
            found = read[0]
    return found


def undecided(values: np.ndarray) -> str | None:
    """The first text of a column that is a number with either mark: 1,234 or 1.234."""
    return next((text for text in _texts(values) if len(_read_by(text)) == 2), None)


def common_mark(columns: Iterable[np.ndarray], separator: str = "") -> str:
    """The decimal mark of all columns of a table where they agree, else "".

    Where none shows it, a comma between semicolons is one: only those separate by semicolons who need it.
    """
    columns = list(columns)
    found = {decimal_mark(values) for values in columns} - {""}
    if not found and separator == ";":
        return "," if any("," in (undecided(values) or "") for values in columns) else ""
    return found.pop() if len(found) == 1 else ""


def learned_mark(name: str, values: np.ndarray, common: str) -> str:
    """The decimal mark of a column in training: its own, else the table's, else a point where there are marks at all.

    A warning says where this makes a mark one of thousands, which it might not be.
    """
    if mark := decimal_mark(values):
        return mark
    example = undecided(values)
    if example is None:
        return common
    mark = common or "."
    if mark not in example:
        other, read = ("commas", example.replace(",", "")) if "," in example else ("points", example.replace(".", ""))
        why = "since other columns have decimal commas" if mark == "," else "since all could be"
        warnings.warn(f"Column {name!r}: {other} are read as marks of thousands, {example} as {read}, {why}.")
    return mark


def marks(columns: Mapping[str, tuple[np.ndarray, str]], otherwise: str = "") -> dict[str, str]:
    """The decimal marks by which a new table is read: those of training.

    Where texts contradict them, and none confirms them, the whole table is read by the other mark with a warning;
    where some confirm them, an ``Error`` says which do not.

    Args:
        columns: by name, the raw values, and the mark of training or "" where it is not known.
        otherwise: the mark of columns of which training knew none and which show none.
    """
    found = {name: decimal_mark(values) for name, (values, _) in columns.items()}
    against = [name for name, (_, known) in columns.items() if found[name] and known not in ("", found[name])]
    if not against:
        return {name: known or found[name] or otherwise for name, (_, known) in columns.items()}
    name, mark = against[0], found[against[0]]
    example = next(text for text in _texts(columns[name][0]) if _read_by(text) == [mark])
    known = columns[name][1]
    what = (
        f"Column {name!r} holds {example!r}, but in training its numbers were written with a decimal "
        f"{'comma' if known == ',' else 'point'}, such as {_EXAMPLES[known]}"
    )
    if any(found[other] == known for other, (_, known) in columns.items() if known):
        raise Error(f"{what}, and other columns here still are: write all numbers as in training.")
    warnings.warn(f"{what}: all numbers here are read like {_EXAMPLES[mark]}.", stacklevel=4)
    return {name: found[name] or (mark if known else otherwise) for name, (_, known) in columns.items()}


def plain(values: np.ndarray, decimal: str) -> np.ndarray:
    """A raw column whose texts that are numbers with this decimal mark ("": a point) are written as Python does."""
    if values.dtype.kind not in "OUST":
        return values
    decimal = decimal or "."
    form, other = _FORMS[decimal], "," if decimal == "." else "."
    drop = str.maketrans(decimal, ".", other + _SPACES)

    def written(value: Any) -> Any:
        if not isinstance(value, str) or not _ROUGH.search(value) or not form.fullmatch(value.strip()):
            return value
        return value.strip().translate(drop)

    return np.array([written(value) for value in values], dtype=object)


def number(value: Any) -> float:
    """A value as a number, NaN where it is none; 10_2, which Python takes for 102, is a code."""
    try:
        return np.nan if isinstance(value, str) and "_" in value else float(value)
    except (ValueError, TypeError, OverflowError):
        return {"true": 1.0, "false": 0.0}.get(str(value).strip().lower(), np.nan)


def date_order(values: np.ndarray) -> str:
    """The order of day and month in a column's dates, where some show it and none contradicts them; else ""."""
    found = _orders(values).keys() - {""}
    return found.pop() if len(found) == 1 else ""


def why_no_dates(values: np.ndarray) -> str | None:
    """Why a column is not read as dates, where most texts are dates of which none shows the order, or some differ."""
    found = _orders(values)
    if {"dmy", "mdy"} <= found.keys():
        why = f"{found['dmy'][0]!r} begins with the day, {found['mdy'][0]!r} with the month"
    elif found.keys() == {""}:
        why = f"{found[''][0]!r} could begin with the day or with the month"
    else:
        return None
    return why if 2 * sum(map(len, found.values())) >= len(values) else None


def _orders(values: np.ndarray) -> dict[str, list[str]]:
    """The dates that end in a year, by the order that they show: "dmy", "mdy", or "" where they could have either."""
    found: dict[str, list[str]] = {}
    for value in values:
        match = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or len(match[1]) > 2 or len(match[4]) != 4:
            continue
        first, second = int(match[1]), int(match[3])
        order = "dmy" if match[2] == "." or first > 12 else "mdy" if second > 12 else ""
        found.setdefault(order, []).append(value)
    return found


def days(value: Any, order: str = "") -> float:
    """A date as days since 1970, NaN where it is none."""
    text = str(value).strip()
    try:
        moment = datetime.fromisoformat(text.replace("/", "-"))
    except (ValueError, OverflowError):
        match = _DATE.fullmatch(text)
        found = None if match is None else _moment(match, order)
        if found is None:
            return np.nan
        moment = found
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() / 86_400


def _moment(match: re.Match[str], order: str) -> datetime | None:
    first, mark, second, third, hour, minute, second_, half = match.groups()
    if len(first) == 4 and len(third) < 3:
        year, month, day = first, second, third
    elif len(first) < 3 and len(third) == 4 and (mark == "." or order == "dmy"):
        day, month, year = first, second, third
    elif len(first) < 3 and len(third) == 4 and order == "mdy":
        month, day, year = first, second, third
    else:
        return None
    hours = int(hour or 0)
    if half:
        hours = hours % 12 + 12 * (half in "pP")
    try:
        return datetime(int(year), int(month), int(day), hours, int(minute or 0), int(second_ or 0))
    except ValueError:
        return None
