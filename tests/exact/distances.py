"""How far draws of functions are from a reference, in function space: f(x) on a grid of inputs, never the weights.

Throughout `values` are draws `[n, grid]`. This file needs numpy alone: whatever drew the functions can use it.

The total variation of a grid point is taken on BINS fixed bins that hold 1/BINS of the reference each, so it neither
changes with the scale of f nor depends on where a histogram would begin:

    TV = ½ Σ_b |p_b − 1/BINS|,   averaged over the grid

It is that of the binned distributions, and so at most that of the distributions themselves. With n independent draws
its estimate is too large by at most `noise(n)` in the mean (Jensen: E|p̂ − p| ≤ √(p (1 − p)/n); Cauchy–Schwarz over the
bins), and above that by t with probability at most exp(−2 n t²) (McDiarmid: one draw moves it by at most 1/n), for
whatever correlation the grid points have.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

BINS = 20
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Reference:
    """What is known of f on the grid.

    Args:
        edges: of the bins, `[BINS − 1, grid]`: the reference's quantiles.
        mean: of f, `[grid]`.
        variance: of f, `[grid]`.
        yes: the probability E σ(f) of yes where f is a logit, `[grid]`.
        draws: how many draws the edges come from; None where they come from a formula or an integral.
    """

    edges: Array
    mean: Array
    variance: Array
    yes: Array
    draws: int | None = None

    @staticmethod
    def weighted(values: Array, weights: Array, draws: int | None = None) -> "Reference":
        """From nodes `[n, grid]` and their probabilities `[n]`: those of an integral, or equal ones of draws."""
        values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64) / np.sum(weights)
        order = np.argsort(values, axis=0)
        at = np.arange(1, BINS) / BINS
        edges = []
        for column, index in zip(values.T, order.T, strict=True):
            below = np.cumsum(weights[index]) - 0.5 * weights[index]
            edges.append(np.interp(at, below, column[index]))
        mean = weights @ values
        return Reference(np.stack(edges, 1), mean, weights @ (values - mean) ** 2, weights @ sigmoid(values), draws)


def sigmoid(values: Array) -> Array:
    """1 / (1 + e^−v)."""
    return 0.5 * (1 + np.tanh(0.5 * values))


def shares(values: Array, edges: Array) -> Array:
    """The share of draws in each bin, `[BINS, grid]`."""
    found = [np.bincount(np.searchsorted(e, v), minlength=BINS) for v, e in zip(values.T, edges.T, strict=True)]
    return np.stack(found, 1) / len(values)


def total_variation(values: Array, reference: Reference) -> float:
    """½ Σ_b |p_b − 1/BINS|, averaged over the grid: between 0 and 1 − 1/BINS."""
    return float(0.5 * np.abs(shares(values, reference.edges) - 1 / BINS).sum(0).mean())


def noise(n: int) -> float:
    """What n independent draws of the reference itself would show at most, in the mean: ½ √((BINS − 1)/n)."""
    return 0.5 * math.sqrt((BINS - 1) / n)


def tolerance(n: int, chance: float = 1e-6) -> float:
    """What they would exceed with this probability only: the above and √(log(1/chance) / 2n)."""
    return noise(n) + math.sqrt(math.log(1 / chance) / (2 * n))


def mean_error(values: Array, reference: Reference) -> float:
    """Root mean square over the grid of the mean's error, in standard deviations of the reference."""
    return float(np.sqrt(((values.mean(0) - reference.mean) ** 2 / reference.variance).mean()))


def log_variance_error(values: Array, reference: Reference) -> float | None:
    """Root mean square over the grid of log(variance / reference's); None for a point, which has no variance."""
    ratio = values.var(0) / reference.variance
    return None if (ratio < 1e-10).any() else float(np.sqrt((np.log(ratio) ** 2).mean()))


def log_variance_ratio(values: Array, reference: Reference) -> float | None:
    """Mean over the grid of log(variance / reference's), with its sign; None for a point."""
    ratio = values.var(0) / reference.variance
    return None if (ratio < 1e-10).any() else float(np.log(ratio).mean())


def agreement(values: Array, reference: Reference) -> float:
    """The share of the grid on which the predicted class, E σ(f) above ½ or not, is the reference's."""
    return float(((sigmoid(values).mean(0) > 0.5) == (reference.yes > 0.5)).mean())
