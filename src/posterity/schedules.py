"""Schedules: factors over the course of training, functions of t from 0 (start) to 1 (end)."""

import math
import numbers
from collections.abc import Callable

from torch import Tensor

from posterity.errors import Error, short

Schedule = Callable[[float], float]
Spec = str | float | tuple[str, float] | Schedule


def constant(t: float) -> float:
    """1 throughout."""
    return 1.0


def cosine(t: float) -> float:
    """From 1 to 0 along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * min(max(t, 0.0), 1.0)))


def piecewise(t: float) -> float:
    """1 for the first half, then linearly to 0.01 at 0.9, then 0.01 (Trinh et al. 2020; Izmailov et al. 2018)."""
    if t <= 0.5:
        return 1.0
    return 1.0 - 0.99 * min((t - 0.5) / 0.4, 1.0)


RATES: dict[str, Schedule] = {"constant": constant, "cosine": cosine, "piecewise": piecewise}


def rate(spec: Spec) -> Schedule:
    """A schedule of the learning rate: "constant", "cosine", "piecewise", or a function of t."""
    if callable(spec):
        return spec
    if not isinstance(spec, str) or spec not in RATES:
        raise Error(f"schedule must be one of {', '.join(map(repr, RATES))} or a function of t; got {short(spec)}.")
    return RATES[spec]


def beta(spec: Spec) -> Schedule:
    """A schedule of the divergence's weight: a number, a function of t, or ("linear", f): 0 to 1 over the first f."""
    if callable(spec):
        return spec
    number = isinstance(spec, numbers.Real) or (isinstance(spec, Tensor) and not spec.dim())
    if number and not isinstance(spec, bool) and spec >= 0:  # type: ignore[operator]
        weight = float(spec)  # type: ignore[arg-type]
        return lambda t: weight
    if isinstance(spec, str) and spec == "linear":
        spec = ("linear", 2 / 3)
    end = spec[1] if isinstance(spec, (tuple, list)) and len(spec) == 2 and str(spec[0]) == "linear" else None
    if isinstance(end, (int, float)) and 0 < end <= 1:
        return lambda t: min(1.0, t / end)
    raise Error(f"beta must be a number, 'linear', ('linear', fraction) or a function of t; got {short(spec)}.")
