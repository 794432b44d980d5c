"""Posterior predictive checks: do data that the model makes look like the data that were observed?"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posterity.diagnostics.arrays import share
from posterity.diagnostics.makers import Statistic, maker
from posterity.diagnostics.uniformity import written
from posterity.errors import Error, require
from posterity.posterior import Posterior, count
from posterity.prediction import Prediction

#: Statistics that a text or a figure shows, the worst first.
SHOWN = 12
#: Replicated data sets, at least and at most, where their number is not given.
FEWEST, MOST = 1000, 20_000


@dataclass(frozen=True)
class PredictiveCheck:
    """K statistics of the observed data and of R replicated data sets; prints as a verdict."""

    names: list[str]
    """Of the statistics."""
    observed: Tensor
    """`[K]`, T(y)."""
    replicated: Tensor
    """`[R, K]`, T(y_rep)."""
    level: float
    """A statistic is strange where its two-sided p-value is below level / K."""
    functions: int | None = None
    """How many functions all replicated data sets were made by, where there are no others to draw (an ensemble's
    members, one network, the draws of a prediction). The level then holds for data that one of these made, but not for
    data of another function of the same posterior. None: each data set was made by a new draw, and the level holds."""

    @property
    def p_values(self) -> Tensor:
        """`[K]`: P(T(y_rep) > T(y)) + ½ P(T(y_rep) = T(y)); near 0 or near 1 the data are strange to the model."""
        above = (self.replicated > self.observed).double().mean(0)
        return above + (self.replicated == self.observed).double().mean(0) / 2

    @property
    def strange(self) -> list[str]:
        """The statistics that the model does not reproduce, the worst first."""
        two_sided = self._two_sided()
        order = two_sided.argsort(stable=True).tolist()
        return [self.names[k] for k in order if float(two_sided[k]) * len(self.names) < self.level]

    def _two_sided(self) -> Tensor:
        """`[K]`: at most t in no more than t of all repetitions, since the observed data set counts as one more."""
        sides = [(side.sum(0) + 1) for side in (self.replicated >= self.observed, self.replicated <= self.observed)]
        return (2 * torch.minimum(*sides).double() / (len(self.replicated) + 1)).clamp(max=1.0)

    @property
    def _fewest(self) -> int:
        """Replicated data sets with which a statistic can be called strange at all."""
        return math.floor(2 * len(self.names) / self.level)

    def __str__(self) -> str:
        strange = self.strange
        if len(self.replicated) < self._fewest:
            return (
                f"Nothing can be said of {len(self.names)} statistics at a level of {self.level:g} from "
                f"{len(self.replicated)} replicated data sets: give replicates={self._fewest}."
            )
        if not strange:
            return f"No fault found: the model reproduces {', '.join(self.names[:SHOWN])} of the data.{self._few()}"
        lines = [f"The model does not reproduce {len(strange)} of {len(self.names)} statistics of the data:"]
        for name in strange[:SHOWN]:
            k = self.names.index(name)
            low, high = torch.quantile(
                self.replicated[:, k], torch.tensor([0.005, 0.995], dtype=torch.float64)
            ).tolist()
            side = "above" if float(self.p_values[k]) < 0.5 else "below"
            lines.append(
                f"  {name}: {float(self.observed[k]):.4g}, {side} what it makes: {low:.4g} to {high:.4g} "
                f"({written(float(self._two_sided()[k]))})."
            )
        few = self._few().strip()
        return "\n".join(lines + ["  ..."] * (len(strange) > SHOWN) + [few] * bool(few))

    def _few(self) -> str:
        """A sentence where the level does not hold, since the functions are few."""
        if self.functions is None:
            return ""
        whose = "one function" if self.functions == 1 else f"{self.functions} functions"
        least = min(1.0, 2 * len(self.names) / (self.functions + 1))
        return (
            f" All {len(self.replicated)} replicated data sets are of {whose}: the level of {self.level:g} holds if "
            f"{'it' if self.functions == 1 else 'one of these'} made the data. For data of another draw of the same "
            f"posterior it does not: from so few functions no level below {least:.2g} can be held."
        )

    def plot(self) -> Any:
        """A matplotlib figure: the replicated values of each statistic as a histogram, the observed one as a line."""
        chosen = sorted(self._two_sided().argsort(stable=True)[:SHOWN].tolist())
        columns = min(3, len(chosen))
        lines = -(-len(chosen) // columns)
        figure = require("matplotlib.figure").Figure(figsize=(2.8 * columns, 2.2 * lines), layout="constrained")
        for place, k in enumerate(chosen):
            axes = figure.add_subplot(lines, columns, place + 1)
            axes.hist(self.replicated[:, k].numpy(), bins=30, color="C0", alpha=0.6)
            axes.axvline(float(self.observed[k]), color="C3")
            axes.set(yticks=[], xlabel=self.names[k], title=f"p = {float(self.p_values[k]):.3f}")
        return figure


@torch.no_grad()
def predictive_check(
    source: Posterior | Prediction,
    y: Any,
    x: Any = None,
    *,
    statistics: Mapping[str, Statistic] | None = None,
    replicates: int | None = None,
    level: float = 0.01,
    generator: torch.Generator | None = None,
) -> PredictiveCheck:
    """Posterior predictive check (Rubin 1984; Gelman, Meng and Stern 1996): T(y_rep) against T(y).

    y_rep is a whole data set for the same inputs: a function from the posterior, then a target for each row from the
    likelihood. Each data set has a function of its own, so that y, if a function of the posterior made it, is one data
    set more of the same kind, and the level holds. A method that has a few functions only, such as an ensemble, and a
    prediction, whose draws were made before, cannot give that: the check then says so (`functions`). A p-value near 0
    or 1 is a fault of the model; one near ½ is no proof of its truth, since the same data may have trained it.

    Args:
        source: a posterior, or what `predict` said of x. A prediction of classes holds their mean probabilities alone:
            the rows of y_rep are then independent, and vary less together than functions do.
        y: the observed answers, `[batch, ...]`.
        x: their inputs, with a posterior.
        statistics: by name, each a function of a data set `[batch, ...]` that returns a number. By default, for real
            numbers: mean, std, min and max, and of the residuals from the predicted mean the std and the correlation of
            each with the next row's; for classes: the share of each.
        replicates: R, also of the functions that are drawn; by default 2 K / level, so that the level can be met,
            between 1,000 and 20,000.
        level: how often a true model may be called wrong, at most.
        generator: of the functions and of y_rep.
    """
    share(level, "level")
    makes = maker(source, x, y, generator)
    chosen = makes.defaults() if statistics is None else dict(statistics)
    if not chosen:
        raise Error("There is no statistic to compare.")
    n = min(MOST, max(FEWEST, math.ceil(2 * len(chosen) / level)))
    n = n if replicates is None else count(replicates, "replicates")
    replicated = [_values(chosen, makes.replicate(generator)) for _ in range(n)]
    observed = _values(chosen, makes.y)
    return PredictiveCheck(list(chosen), observed, torch.stack(replicated), level, makes.draws.functions)


def _values(statistics: Mapping[str, Statistic], y: Tensor) -> Tensor:
    """Each statistic of one data set, `[K]`."""
    found = []
    for name, statistic in statistics.items():
        value = torch.as_tensor(statistic(y), dtype=torch.float64)
        if value.numel() != 1 or not bool(value.isfinite()):
            raise Error(f"The statistic {name!r} must return one finite number for a data set; it returned {value}.")
        found.append(value.reshape(()))
    return torch.stack(found)
