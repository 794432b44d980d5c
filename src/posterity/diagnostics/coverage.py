"""TARP: do credible regions around points that follow the data hold the truth as often as they say?"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posterity.diagnostics.arrays import as_array, follow, generator, pairs, rows, scale, share
from posterity.diagnostics.uniformity import kolmogorov, rank, tail, uniformity, written
from posterity.errors import Error, require, short
from posterity.posterior import count

References = str | Tensor | Callable[[Tensor], Any] | Any

#: Steps of the coverage curve.
STEPS = 50
#: What the bootstrap bands hold.
BAND = 0.95


@dataclass(frozen=True)
class TARP:
    """Expected coverage against credibility; prints as a verdict."""

    alpha: Tensor
    """`[STEPS + 1]`, credibility from 0 to 1."""
    coverage: Tensor
    """`[STEPS + 1]`, how often the region of that credibility held the truth; it should equal `alpha`."""
    low: Tensor
    """`[STEPS + 1]`, lower end of the pointwise 95 % bootstrap band of `coverage`."""
    high: Tensor
    """`[STEPS + 1]`, its upper end."""
    simulations: int
    """N."""
    ks: float
    """P-value of Kolmogorov and Smirnov's test of coverage = credibility."""
    p_value: float
    """P-value of that test and Neyman's smooth test together; see `uniformity`."""
    width: float
    """Standard normal where all is well: above 0 where truths lie farther from the draws' centre than draws do."""
    fixed: bool
    """Whether the references were blind to the data."""
    level: float
    """How often a right posterior would be called wrong."""

    @property
    def passed(self) -> bool:
        """Whether no fault was found."""
        return self.p_value >= self.level

    @property
    def verdict(self) -> str:
        """One of "no fault found", "over-confident", "under-confident" and "misplaced"."""
        if self.passed:
            return "no fault found"
        if tail(self.width) >= self.level:
            return "misplaced"
        return "over-confident" if self.width > 0 else "under-confident"

    def __str__(self) -> str:
        numbers = f"{self.simulations} simulations ({written(self.p_value)})"
        blind = " The references do not follow the data, so a posterior that is the prior would pass." * self.fixed
        return {
            "no fault found": f"No fault found at {numbers}.{blind}",
            "over-confident": f"Over-confident: at {numbers} truths lie farther from the centre of the draws than the "
            "draws do, which are too narrow or off the mark.",
            "under-confident": f"Under-confident: at {numbers} truths lie nearer to the centre of the draws than the "
            "draws do, which are too wide.",
            "misplaced": f"Misplaced: at {numbers} the draws are about as wide as their errors, but not where the data "
            "put the truth; the prior itself looks like this.",
        }[self.verdict]

    def plot(self) -> Any:
        """A matplotlib figure of coverage against credibility, with its band; the diagonal is right."""
        figure = require("matplotlib.figure").Figure(figsize=(4, 4), layout="constrained")
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color="0.3", ls=":", lw=1.2)
        axes.fill_between(self.alpha.numpy(), self.low.numpy(), self.high.numpy(), color="C0", alpha=0.3, lw=0)
        axes.plot(self.alpha.numpy(), self.coverage.numpy(), color="C0")
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="credibility", ylabel="expected coverage", title=self.verdict)
        return figure


def tarp(
    samples: Any,
    truth: Any,
    x: Any = None,
    *,
    references: References = None,
    bootstraps: int = 500,
    level: float = 0.01,
    seed: int = 0,
) -> TARP:
    """Tests of accuracy with random points (Lemos et al. 2023): a test of a posterior from draws alone.

    For each simulation, f_i is the share of the draws that lie nearer to a reference point r(x_i) than the truth does,
    in coordinates scaled to unit variance. If the posterior is right, f is uniform, and the expected coverage
    P(f ≤ α) is the credibility α; and if this holds for every function r, the posterior is right. With points that do
    not depend on the data it also holds for a posterior that is the prior, so by default they do: r(x_i) is a
    regression of θ on x over the simulations before the i-th, plus a random map of x_i. This keeps the test exact,
    since r(x_i) knows nothing of θ*_i but x_i. Other seeds look elsewhere.

    The verdict's words come from `width`: the same rank for the distance from the mean of truth and draws.

    Args:
        samples: S independent posterior draws for each of N simulations, `[S, N, D]`.
        truth: what the data were made of, `[N, D]`.
        x: the data, `[N, ...]`.
        references: points `[N, D]` in the units of θ, a function of x `[N, F]` that returns them, or "uniform": points
            at random, blind to the data.
        bootstraps: resamplings of the simulations for the band.
        level: how often a right posterior may be called wrong.
        seed: of the map, of ties and of the bootstrap.
    """
    draws, true = pairs(samples, truth)
    mean, std = scale(draws, true)
    draws, true = (draws - mean) / std, (true - mean) / std
    points = _points(references, x, draws, true, mean, std, count(seed, "seed", least=0))
    u = _nearer(draws, true, points, seed)
    found = uniformity(u)
    centre = (draws.sum(0) + true) / (len(draws) + 1)
    width = float(uniformity(_nearer(draws, true, centre, seed)).bias)
    alpha = torch.linspace(0, 1, STEPS + 1, dtype=torch.float64)
    curve, low, high = _bands(u, count(bootstraps, "bootstraps"), seed)
    fixed = isinstance(references, str)
    p = float(found.p_value)
    return TARP(alpha, curve, low, high, len(u), float(kolmogorov(u)), p, width, fixed, share(level, "level"))


def _points(
    references: References, x: Any, draws: Tensor, true: Tensor, mean: Tensor, std: Tensor, seed: int
) -> Tensor:
    """The reference points in scaled coordinates, `[N, D]`."""
    if references is None and x is None:
        raise Error(
            "TARP needs the data x, or references= that depend on them: with points that do not, a posterior equal to "
            'the prior passes. If that is understood, ask for references="uniform".'
        )
    if references is None:
        return follow(x, true, seed)
    if isinstance(references, str):
        if references != "uniform":
            raise Error(f'references must be points, a function of x or "uniform"; got {short(references)}.')
        low, high = torch.minimum(draws.amin((0, 1)), true.amin(0)), torch.maximum(draws.amax((0, 1)), true.amax(0))
        return low + (high - low) * torch.rand(true.shape, generator=generator(seed, 3), dtype=torch.float64)
    if callable(references):
        if x is None:
            raise Error("references is a function of the data: give x as well.")
        references = references(rows(x, len(true)))
    points = as_array(references, "references")
    if points.shape != true.shape and points.numel() != true.numel():
        raise Error(f"references have shape {tuple(points.shape)}; one point per truth is needed: {tuple(true.shape)}.")
    return (points.reshape(true.shape) - mean) / std


def _nearer(draws: Tensor, true: Tensor, points: Tensor, seed: int) -> Tensor:
    """Share of the draws that lie nearer to the points than the truth does, `[N]`: uniform for a right posterior."""
    distances = torch.stack([(draw - points).square().sum(-1) for draw in draws])
    return rank(distances, (true - points).square().sum(-1), generator(seed, 4))[1]


def _bands(u: Tensor, bootstraps: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """P(u ≤ α) on the grid of credibilities, `[STEPS + 1]`, and the ends of its band over resampled simulations."""
    n = len(u)
    bins = (u * STEPS).ceil().long().clamp(0, STEPS)
    source = generator(seed, 5)
    curves = [torch.bincount(bins, minlength=STEPS + 1)]
    for _ in range(bootstraps):
        curves.append(torch.bincount(bins[torch.randint(n, (n,), generator=source)], minlength=STEPS + 1))
    shares = torch.stack(curves).cumsum(1).double() / n
    ends = torch.quantile(shares[1:], torch.tensor([(1 - BAND) / 2, (1 + BAND) / 2], dtype=torch.float64), dim=0)
    return shares[0], ends[0], ends[1]
