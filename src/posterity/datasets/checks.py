"""Checks of values that come from a file: what is not as expected raises an ``Error``."""

import math
from collections.abc import Mapping
from typing import Any

from posterity.errors import Error

_LONGEST = 10_000  # characters of one name


def _wrong(what: str, wanted: str) -> Error:
    return Error(f"The preprocessing of this model is damaged: {what} must be {wanted}. Save or copy the model again.")


def mapping(value: object, keys: set[str], what: str, since: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Return a mapping with exactly these keys; those of ``since``, which older models lack, get its values."""
    if not isinstance(value, Mapping) or set(value := {**(since or {}), **value}) != keys:
        raise _wrong(what, f"a mapping of {', '.join(sorted(keys))}")
    return value


def one_of(value: object, what: str, known: tuple[str, ...]) -> str:
    """Return one of the known texts."""
    if not isinstance(value, str) or value not in known:
        raise _wrong(what, f"one of {', '.join(map(repr, known))}")
    return value


def text(value: object, what: str) -> str:
    """Return a text of bounded length."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise _wrong(what, "a short text")
    return value


def number(value: object, what: str, *, positive: bool = False) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(what, "a number")
    if not abs(value) < 1e300 or not math.isfinite(value) or (positive and value <= 0):
        raise _wrong(what, "a positive, finite number" if positive else "a finite number")
    return float(value)


def whole(value: object, what: str, *, most: int) -> int:
    """Return a whole number from 1 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise _wrong(what, f"a whole number from 1 to {most}")
    return value


def boolean(value: object, what: str) -> bool:
    """Return a truth value."""
    if not isinstance(value, bool):
        raise _wrong(what, "true or false")
    return value


def sequence(value: object, what: str, *, most: int) -> list[Any]:
    """Return a list of 1 to ``most`` values."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= most:
        raise _wrong(what, f"a list of 1 to {most} values")
    return list(value)


def texts(value: object, what: str, *, most: int, empty: bool = False) -> list[Any]:
    """Return a list of different texts; with ``empty`` it may be empty, and one of them may be None."""
    if empty and isinstance(value, list | tuple) and not value:
        return []
    items = sequence(value, what, most=most)
    for item in items:
        if not (empty and item is None):
            text(item, what)
    if len(set(items)) != len(items):
        raise _wrong(what, "a list without repetitions")
    return items
