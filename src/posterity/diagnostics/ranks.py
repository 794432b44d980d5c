"""Simulation-based calibration: does a truth fall anywhere among its posterior draws, equally often?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posterity.diagnostics.arrays import follow, generator, pairs, scale, share
from posterity.diagnostics.uniformity import rank, uniformity, written
from posterity.errors import Error, require
from posterity.posterior import count

#: The name of the quantity that depends on the data.
DATA = "θ with x"
#: Quantities that a text or a figure shows, the worst first.
SHOWN = 12


@dataclass(frozen=True)
class SBC:
    """Ranks of N truths among S draws, for Q quantities, and whether they are uniform; prints as a verdict."""

    ranks: Tensor
    """`[N, Q]`, whole numbers from 0 to S."""
    draws: int
    """S."""
    names: list[str]
    """Of the quantities."""
    p_values: Tensor
    """`[Q]`: of uniform ranks, each for itself."""
    bias: Tensor
    """`[Q]`, standard normal where all is well: above 0 where draws are too low."""
    spread: Tensor
    """`[Q]`, standard normal where all is well: above 0 where draws are too narrow, below 0 where too wide."""
    level: float
    """How often a right posterior would be called wrong."""

    @property
    def p_value(self) -> float:
        """Of all quantities together: Q times the smallest (Bonferroni)."""
        return min(1.0, len(self.names) * float(self.p_values.min()))

    @property
    def passed(self) -> bool:
        """Whether no fault was found."""
        return self.p_value >= self.level

    def fault(self, quantity: int) -> str:
        """What is wrong with a quantity, in words."""
        if self.names[quantity] == DATA:
            return "the draws do not answer to the data as those of the exact posterior would"
        bias, spread = float(self.bias[quantity]), float(self.spread[quantity])
        if max(abs(bias), abs(spread)) < 3:
            return "wrong in shape: the ranks are not uniform, though neither shifted nor too wide or narrow"
        if abs(bias) > abs(spread):
            return f"shifted: the draws lie too {'low' if bias > 0 else 'high'}"
        if spread > 0:
            return "over-confident: the truth lies outside most draws too often"
        return "under-confident: the draws spread wider than the truth does around them"

    def __str__(self) -> str:
        n = len(self.ranks)
        if self.passed:
            text = f"No fault found at {n} simulations ({written(self.p_value)}, {len(self.names)} quantities)."
            if DATA not in self.names:
                text += " Without x this cannot see a posterior that ignores the data, such as the prior."
            return text
        order = self.p_values.argsort().tolist()
        faults = [q for q in order if len(self.names) * float(self.p_values[q]) < self.level]
        lines = [
            f"A fault at {n} simulations ({written(self.p_value)}), in {len(faults)} of {len(self.names)} quantities:"
        ]
        lines += [f"  {self.names[q]}: {self.fault(q)} ({written(float(self.p_values[q]))})." for q in faults[:SHOWN]]
        return "\n".join(lines + ["  ..."] * (len(faults) > SHOWN))

    def plot(self) -> Any:
        """A matplotlib figure: histograms of the ranks; the band holds 99 % of the bars where all is well."""
        chosen = sorted(self.p_values.argsort()[:SHOWN].tolist())
        columns = min(4, len(chosen))
        lines = -(-len(chosen) // columns)
        figure = require("matplotlib.figure").Figure(figsize=(2.6 * columns, 2.2 * lines), layout="constrained")
        n, bins = len(self.ranks), max(2, min(20, len(self.ranks) // 10))
        jitter = torch.rand(self.ranks.shape, generator=generator(0, 6))  # bins need not divide the S + 1 ranks
        values = ((self.ranks + jitter) / (self.draws + 1)).numpy()
        for place, q in enumerate(chosen):
            axes = figure.add_subplot(lines, columns, place + 1)
            axes.hist(values[:, q], bins=bins, range=(0, 1), color="C0")
            reach = 2.576 * math.sqrt(n / bins * (1 - 1 / bins))
            axes.axhspan(max(0.0, n / bins - reach), n / bins + reach, color="0.5", alpha=0.3, lw=0)
            axes.set(xlabel="rank / S", yticks=[], title=self.names[q])
        return figure


def sbc(
    samples: Any,
    truth: Any,
    x: Any = None,
    *,
    names: Sequence[str] | None = None,
    level: float = 0.01,
    seed: int = 0,
) -> SBC:
    """Simulation-based calibration (Talts et al. 2018): ranks of truths among posterior draws, which should be uniform.

    With θ* from the prior, data from p(x|θ*) and S independent draws of the exact posterior, the rank of any quantity
    g(θ*, x) among the g(θ_s, x) is uniform on 0 … S. The quantities here are the coordinates of θ. A posterior that
    is the prior passes on those; a quantity that depends on the data finds it (Modrák et al. 2023). With `x` one is
    added: the inner product of the standardised θ with a point that follows x, as in `tarp`. The log-likelihood of the
    data is another good one: add it to `samples` and `truth` as a coordinate.

    Args:
        samples: S independent posterior draws for each of N simulations, `[S, N, D]`.
        truth: what the data were made of, `[N, D]`.
        x: the data, `[N, ...]`.
        names: of the D coordinates.
        level: how often a right posterior may be called wrong.
        seed: of ties and of the points.

    Example:
        >>> import torch
        >>> from posterity.diagnostics import sbc
        >>> truth, draws = torch.randn(200, 1), torch.randn(99, 200, 1)  # as if there were no data
        >>> found = sbc(draws, truth)
        >>> found.ranks.shape, found.passed
        (torch.Size([200, 1]), True)
        >>> sbc(draws / 3, truth).fault(0)
        'over-confident: the truth lies outside most draws too often'
    """
    draws, true = pairs(samples, truth)
    labels = [f"θ{d}" for d in range(true.shape[1])] if names is None else list(names)
    if len(labels) != true.shape[1]:
        raise Error(f"There are {len(labels)} names for {true.shape[1]} coordinates.")
    if x is not None:
        mean, std = scale(draws, true)
        points = follow(x, (true - mean) / std, seed) / std
        draws = torch.cat([draws, ((draws - mean) * points).sum(-1, keepdim=True)], -1)
        true = torch.cat([true, ((true - mean) * points).sum(-1, keepdim=True)], -1)
        labels.append(DATA)
    ranks, u = rank(draws, true, generator(count(seed, "seed", least=0), 2))
    found = uniformity(u)
    return SBC(ranks, len(draws), labels, found.p_value, found.bias, found.spread, share(level, "level"))
