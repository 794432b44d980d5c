"""What a checkpoint remembers of a user's functions, so that a run does not go on with others in silence."""

import functools
import hashlib
import sys
import types
from collections.abc import Callable
from typing import Any

#: Values of a schedule that are compared, evenly over training.
POINTS = 64
PLAIN = (bool, int, float, complex, str, bytes, type(None))


def of_schedule(schedule: Callable[[float], Any]) -> str:
    """Fingerprint of a function of t in [0, 1), by its values: what they are computed by makes no difference."""
    return _digest([_value(schedule, i / POINTS) for i in range(POINTS)])


def of_function(function: Any) -> str:
    """Fingerprint of a function or callable object, by its code and the plain values in its reach.

    These are constants, defaults, what it closes over, an object's public attributes, and the functions of its module
    that it calls. Other values, such as tensors, are known by their type alone. The code is that of one version of
    Python, which comes first.
    """
    return f"{sys.version_info.major}.{sys.version_info.minor}:{_digest(_code(function, set()))}"


def of_values(values: Any) -> str:
    """Fingerprint of plain values, such as the settings of an optimiser's groups."""
    return _digest(values)


def differ(one: Any, other: Any) -> bool:
    """Whether two fingerprints tell functions apart; those of several versions of Python do not."""
    versions = [str(each).rpartition(":")[0] for each in (one, other)]
    return bool(versions[0] == versions[1] and one != other)


def _digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(errors="surrogateescape"), digest_size=8).hexdigest()


def _value(schedule: Callable[[float], Any], t: float) -> str:
    """To nine digits, for libraries of other machines round otherwise."""
    try:
        return f"{float(schedule(t)):.9g}"
    except (ArithmeticError, TypeError, ValueError, RuntimeError) as error:  # which training meets by itself
        return type(error).__name__


def _code(value: Any, seen: set[int]) -> Any:
    """A value as nested lists of plain ones."""
    if isinstance(value, PLAIN):
        return value
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if id(value) in seen:
        return name
    seen.add(id(value))
    if isinstance(value, types.CodeType):
        return [value.co_code, [_code(each, seen) for each in value.co_consts], value.co_names]
    if isinstance(value, types.FunctionType):
        return _function(value, seen)
    if isinstance(value, types.MethodType):
        return [_code(value.__func__, seen), _code(value.__self__, seen)]
    if isinstance(value, functools.partial):
        return [_code(each, seen) for each in (value.func, value.args, sorted(value.keywords.items()))]
    if isinstance(value, (tuple, list)):
        return [name, *(_code(each, seen) for each in value)]
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    if not hasattr(value, "__dict__") or not callable(value):
        return name
    public = {key: each for key, each in sorted(vars(value).items()) if not key.startswith("_")}
    methods = [getattr(type(value), method, None) for method in ("forward", "__call__")]
    parts = vars(value).get("_modules", {}).values()
    return [name, *(_code(each, seen) for each in (*methods, *public.items(), *parts))]


def _function(function: types.FunctionType, seen: set[int]) -> Any:
    """Its code, and the values that it finds outside; lists and the like may be where it writes, and are left out."""
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    own = [each for each in named if isinstance(each, PLAIN) or getattr(each, "__module__", 0) == function.__module__]
    closed = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
    reached = [each for each in (*own, *closed) if not isinstance(each, list)]
    defaults = function.__defaults__, sorted((function.__kwdefaults__ or {}).items())
    return [_code(each, seen) for each in (function.__code__, *defaults, *reached)]
