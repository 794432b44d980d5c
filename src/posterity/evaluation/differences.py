"""Which of several methods are better than chance explains: paired differences over rows and seeds."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

LEVEL = 0.05
"""The share of comparisons of equal methods in which a difference may be claimed."""
CLOSED_FORM = 100
"""Up to so many degrees of freedom a quantile of Student's t is exact; beyond, an expansion has six digits."""
HALVINGS = 60
"""Of an angle: all that double precision has."""

Samples = Sequence[Any]
"""Of one seed: arrays [rows], each of which adds to the variance of their common mean."""


@dataclass(frozen=True)
class Design:
    """How the rows of several seeds hang together."""

    same_rows: bool = True
    """Whether all seeds have the same test rows, in the same order."""
    overlap: float = 0.25
    """Where they do not: test rows per training row, as of splits of one table."""


@dataclass(frozen=True)
class Difference:
    """A mean difference between two methods, with what its variance is made of."""

    gap: float
    rows: float
    """The variance that the choice of rows gives to the mean over these seeds."""
    freedom: int
    """Degrees of freedom of that: rows that differ, less one."""
    shared: float = 0.0
    """The part of it that all seeds share, which their differences do not show."""
    seeds: float = 0.0
    """The variance of the mean over seeds, from how much the seeds differ."""
    runs: int = 1

    @property
    def standard_error(self) -> float:
        """Of the gap."""
        return math.sqrt(max(self.rows, self.seeds + self.shared))

    def half_width(self, level: float = LEVEL) -> float:
        """Half of the interval that holds the true difference with confidence 1 − level.

        Of one seed t·√rows. Of J seeds √(t² · seeds + t'² · shared), with J − 1 degrees of freedom in the first, as
        for the sum of two variances that are known differently well; and no less than the rows alone give. Infinite
        where so few rows differ that all would do so in the same direction more often than the level: a coin has k
        equal sides in 2 of 2^k cases, and a variance of 0 says nothing then.
        """
        if 1 - math.log2(level) > self.freedom + 1:
            return math.inf
        of_rows = student_quantile(level, self.freedom) ** 2 if self.freedom > 0 else math.inf
        least = of_rows * self.rows if self.rows else 0.0
        if self.runs < 2:
            return math.sqrt(least)
        both = student_quantile(level, self.runs - 1) ** 2 * self.seeds + (of_rows * self.shared if self.shared else 0)
        return math.sqrt(max(least, both))


def difference(first: Sequence[Samples], second: Sequence[Samples], design: Design | None = None) -> Difference:
    """The mean difference second − first, over the rows of each seed and over seeds.

    With the same rows in all J seeds, d_ij is the difference at row i with seed j: the mean of all varies by the rows
    that all seeds share, cov(d_ij, d_ik)/n, and by training anew, var_j(mean_i d_ij)/J. Where each seed has a split of
    its own of one table, the means of seeds have all of the variance but for the rows that the splits share: it is
    var_j · (1/J + test rows/training rows) (Nadeau and Bengio, 2003).

    Args:
        first: of each seed the samples of a method, as `evidence` has them
        second: those of another method, of the same rows and seeds
        design: of several seeds
    """
    design, runs = design or Design(), len(first)
    gaps = [
        [np.subtract(b, a, dtype=float) for a, b in zip(*pair, strict=True)] for pair in zip(first, second, strict=True)
    ]
    means = np.array([samples[0].mean() for samples in gaps])
    within = sum(np.var(d, ddof=1) / len(d) if len(d) > 1 else math.inf for samples in gaps for d in samples)
    common = design.same_rows and len({tuple(map(len, samples)) for samples in gaps}) == 1
    averages = [np.mean(d, axis=0) for d in zip(*gaps, strict=True)] if common else [d for s in gaps for d in s]
    freedom = sum(int(np.count_nonzero(d)) for d in averages) - 1
    gap = float(means.mean())
    if runs == 1:
        return Difference(gap, float(within), freedom)
    spread = float(means.var(ddof=1))
    if not common:
        return Difference(
            gap, float(within) / runs**2, freedom, 0.0, spread * (1 / runs + min(1, design.overlap)), runs
        )
    rows = float(sum(np.var(d, ddof=1) / len(d) for d in averages))
    shared = max(0.0, (rows - float(within) / runs**2) * runs / (runs - 1))
    return Difference(gap, rows, freedom, shared, spread / runs, runs)


def leaders(ranked: Sequence[str], differ: Callable[[str, str, float], bool], level: float = LEVEL) -> list[str]:
    """The best and what cannot be told from it, where equal methods are told apart at most at the rate `level`.

    One is best by itself where it differs from each of the others at the level: this needs all of these differences
    at once, and with m methods it is wrong at most as often as with two (Berger, 1982). Otherwise those go that differ
    from the best at level/pairs, where pairs counts those of the methods that are left, until none goes: Bonferroni's
    bound, applied step by step as Holm's (1979).

    Args:
        ranked: names, the best first
        differ: whether the second is worse than the first, tested two-sided at a level
        level: of all comparisons together
    """
    left = list(ranked)
    if all(differ(left[0], other, level) for other in left[1:]):
        return left[:1]
    while len(left) > 1:
        pairs = len(left) * (len(left) - 1) / 2
        kept = [name for name in left if name == left[0] or not differ(left[0], name, level / pairs)]
        if len(kept) == len(left):
            break
        left = kept
    return left


@functools.cache
def student_quantile(level: float, freedom: int) -> float:
    """The t with P(|T| > t) = level, for Student's T with whole degrees of freedom."""
    z = NormalDist().inv_cdf(1 - level / 2)
    if freedom > CLOSED_FORM:
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    low, high = 0.0, math.pi / 2  # t = √freedom · tan θ
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - _within(middle, freedom) > level else (low, middle)
    return math.sqrt(freedom) * math.tan(high)


def _within(angle: float, freedom: int) -> float:
    """P(|T| < √freedom · tan angle), a finite sum (Abramowitz and Stegun, 1964, 26.7.3 and 26.7.4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, cosine if freedom > 1 else 0.0) if odd else (1.0, 1.0)
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
