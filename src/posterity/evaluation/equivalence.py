"""The deep-ensemble equivalent: how many independent networks a method is worth."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from posterity.errors import Error
from posterity.evaluation.scaling import calibrated_nll
from posterity.functions import Functions
from posterity.likelihoods import Likelihood
from posterity.outputs import outputs
from posterity.prediction import kind


@dataclass(frozen=True)
class EnsembleEquivalent:
    """How many independently trained networks predict as well as a method; prints as a sentence's end."""

    number: float
    """Networks, from 1 to the largest ensemble measured."""
    largest: int
    """How many networks the largest ensemble had."""
    bound: str
    """Either "more" where the method beats every ensemble, "fewer" where it falls short of one network, or ""."""

    def __str__(self) -> str:
        if self.bound == "more":
            return f"more than {self.largest} networks" if self.largest > 1 else "more than 1 network"
        if self.bound == "fewer":
            return "less than 1 network"
        return "1 network" if self.number == 1 else f"{self.number:.1f} networks"


def ensemble_equivalent(nll: float, ensembles: Sequence[float]) -> EnsembleEquivalent:
    """The size at which a deep ensemble has a method's calibrated NLL (Ashukha et al., 2020).

    The least l ≥ 1 with E(l) ≤ nll, where E is the lowest NLL of ensembles of up to l networks, interpolated linearly
    between whole numbers. Clipped to what was measured, and the answer says so.

    Args:
        nll: `calibrated_nll` of the method
        ensembles: `calibrated_nll` of ensembles of 1, 2, …, M networks on the same data

    Example:
        >>> from posterity.evaluation import ensemble_equivalent
        >>> print(ensemble_equivalent(0.35, [0.5, 0.4, 0.3]))  # half way between two and three
        2.5 networks
    """
    values = [float(value) for value in ensembles]
    if not values or not all(map(math.isfinite, (nll, *values))):
        raise Error("The equivalent needs finite calibrated NLLs of the method and of ensembles of 1, 2, … networks.")
    best = list(itertools.accumulate(values, min))
    reached = next((i for i, value in enumerate(best) if value <= nll), None)
    if reached is None:
        return EnsembleEquivalent(float(len(best)), len(best), "more")
    if reached == 0:
        return EnsembleEquivalent(1.0, len(best), "fewer" if nll > best[0] else "")
    before, after = best[reached - 1], best[reached]
    return EnsembleEquivalent(reached + (before - nll) / (before - after), len(best), "")


def by_size(functions: Functions, likelihood: Likelihood, x: Tensor, y: Tensor) -> list[float]:
    """`calibrated_nll` of ensembles of 1, 2, …, n of the functions; of each size, the mean over n choices.

    Args:
        functions: the members of an ensemble, each once
        likelihood: of classes
        x: inputs `[batch, ...]`
        y: their classes, `[batch, ...]`
    """
    n, said, found = len(functions), outputs(functions, x), []
    for size in range(1, n + 1):
        starts = range(n if size < n else 1)
        some = ([(start + step) % n for step in range(size)] for start in starts)
        values = [calibrated_nll(kind(likelihood).gather([said[chosen]], likelihood), y.cpu()) for chosen in some]
        found.append(sum(values) / len(values))
    return found
