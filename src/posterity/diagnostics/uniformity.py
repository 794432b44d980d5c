"""Ranks of a truth among draws, and whether they are uniform."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from posterity.errors import Error

#: Below so many simulations the distributions of the test statistics are not those of the limit.
FEWEST = 20


class Uniformity(NamedTuple):
    """Tests of uniformity on [0, 1], one per column."""

    p_value: Tensor
    """Twice the smaller of the two p-values of `kolmogorov` and `smooth`, at most 1."""
    bias: Tensor
    """About standard normal under uniformity; above 0 where values are too high."""
    spread: Tensor
    """About standard normal under uniformity; above 0 where values crowd at both ends, below 0 in the middle."""


def uniformity(u: Tensor) -> Uniformity:
    """Test each column of u `[N, ...]` for uniformity; the results are `[...]`.

    Two tests share the level. Kolmogorov and Smirnov's sees any departure, given enough values, but is slow to see a
    wrong width; Neyman's smooth test (1937) sees a wrong place or width early.

    Args:
        u: numbers between 0 and 1; N of at least 20.

    Example:
        >>> import torch
        >>> from posterity.diagnostics import uniformity
        >>> u = (torch.arange(100) + 0.5) / 100
        >>> float(uniformity(u).p_value) > 0.9, float(uniformity(u / 2).p_value) < 0.01
        (True, True)
    """
    if len(u) < FEWEST:
        raise Error(f"A test of uniformity needs at least {FEWEST} simulations; got {len(u)}.")
    p, bias, spread = smooth(u)
    return Uniformity((2 * torch.minimum(kolmogorov(u), p)).clamp(max=1), bias, spread)


def kolmogorov(u: Tensor) -> Tensor:
    """P-value of D = sup |F_N(t) − t| for u `[N, ...]`, by Kolmogorov's series with Stephens' correction (1970).

    λ = (√N + 0.12 + 0.11/√N) D and p = 2 Σ_k (−1)^(k−1) exp(−2k²λ²).
    """
    n = len(u)
    ordered = u.double().sort(0).values
    steps = torch.arange(n + 1, dtype=torch.float64).view(-1, *[1] * (u.dim() - 1)) / n
    distance = torch.maximum((steps[1:] - ordered).amax(0), (ordered - steps[:-1]).amax(0))
    root = math.sqrt(n)
    scaled = (root + 0.12 + 0.11 / root) * distance
    k = torch.arange(1, 21, dtype=torch.float64).view(-1, *[1] * scaled.dim())
    series = 2 * ((-1) ** (k - 1) * torch.exp(-2 * (k * scaled) ** 2)).sum(0)
    return torch.where(scaled < 0.2, 1.0, series).clamp(0, 1)  # below 0.2 the p-value is 1 to twelve digits


def smooth(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Neyman's smooth test of u `[N, ...]` with two components: p-value, bias and spread, `[...]` each.

    With v = 2u − 1, bias = N^(−½) Σ √3 v and spread = N^(−½) Σ √5 (3v² − 1)/2: Legendre's polynomials, which make two
    uncorrelated standard normal numbers in the limit. The sum of their squares is χ² with two degrees of freedom.
    """
    v = 2 * u.double() - 1
    bias = math.sqrt(3 / len(u)) * v.sum(0)
    spread = math.sqrt(5 / len(u)) * (1.5 * v.square() - 0.5).sum(0)
    return torch.exp(-(bias.square() + spread.square()) / 2), bias, spread


def rank(draws: Tensor, truth: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """How many of the draws `[S, ...]` lie below the truth `[...]`, and that as a number in (0, 1); ties by lot.

    Where truth and draws come from the same distribution, the rank is uniform on 0 … S, and (rank + U) / (S + 1),
    with U uniform, is uniform on [0, 1], exactly.
    """
    ties = (draws == truth).sum(0)
    lots = torch.rand(2, *truth.shape, generator=generator, dtype=torch.float64)
    ranks = (draws < truth).sum(0) + (lots[0] * (ties + 1)).long()
    return ranks, (ranks + lots[1]) / (len(draws) + 1)


def tail(z: float) -> float:
    """P(|Z| ≥ |z|) for a standard normal Z."""
    return math.erfc(abs(z) / math.sqrt(2))


def written(p: float) -> str:
    """A p-value in a sentence."""
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"
