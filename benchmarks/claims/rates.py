"""A simulated rate beside the level that it is held to."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rate:
    """How often something happened in simulations."""

    name: str
    rate: float
    standard_error: float
    simulations: int
    level: float | None = None
    """What the rate is held to; None where it is given for comparison only."""
    at_least: bool = False
    """Whether the level is the least that it may be; else it is the most."""

    @classmethod
    def of(cls, name: str, happened: Iterable[Any], level: float | None = None, at_least: bool = False) -> "Rate":
        """The rate of what is true, one value per simulation."""
        values = [bool(value) for value in happened]
        rate = sum(values) / len(values)
        return cls(name, rate, math.sqrt(rate * (1 - rate) / len(values)), len(values), level, at_least)

    @property
    def holds(self) -> bool:
        """Whether the rate keeps its level, give or take two standard errors."""
        if self.level is None:
            return True
        over = self.level - self.rate if self.at_least else self.rate - self.level
        return over <= 2 * self.standard_error


Simulation = Callable[[int], list[Rate]]
"""From a seed to the rates that it finds."""
