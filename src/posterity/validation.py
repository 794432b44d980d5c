"""Held-out rows in training: when they are measured, with how many draws, and which epoch is kept for it."""

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from posterity.errors import Error
from posterity.loading import Batches
from posterity.posterior import Posterior
from posterity.predicting import predict
from posterity.processes import Processes
from posterity.progress import Bar

#: Draws for each held-out row: at least so many, more where they cost little, and never more.
FEWEST, USUAL, MOST = 4, 8, 32
#: Epochs in which held-out rows are measured: rather fewer draws than fewer epochs, and at least so many.
WANTED, LEAST = 10, 5


class Plan(NamedTuple):
    """With how many draws held-out rows are measured, and every how many epochs, counted from the last."""

    draws: int
    every: int

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether they are measured after an epoch, the first of which is 1; after the last they are."""
        return (epochs - epoch) % self.every == 0


def plan(posterior: Posterior, epochs: int, rows: int, held: int) -> Plan:
    """Measure `held` rows such that they cost about a third of training on `rows` rows.

    The cost is counted as rows times draws, for which a row in training counts as much as a held-out one, though it
    also has a backward pass. It may be more in runs of few epochs, of which five are measured at least.
    """
    affordable = rows * posterior.samples / (3 * max(1, held))  # draws, for each epoch
    few = max(FEWEST, min(USUAL, int(affordable * epochs / WANTED)))
    draws = min(posterior.draws, MOST, max(few, int(affordable)))
    return Plan(draws, max(1, min(math.ceil(draws / affordable), epochs // LEAST)))


def measure(
    posterior: Posterior, data: Any, draws: int, seed: int, rows: int, processes: Processes, shown: bool = False
) -> float:
    """Mean negative log-likelihood of held-out data, in which rows count by their weights.

    Args:
        posterior: in evaluation mode afterwards.
        data: with targets.
        draws: functions, the same ones whenever the seed is the same.
        seed: of the draws.
        rows: at a time.
        processes: that share the rows.
        shown: whether a bar shows that it takes long.
    """
    posterior.eval()
    total, weights = 0.0, 0.0
    generator = torch.Generator().manual_seed(seed)
    batches = Batches(data, rows, False, processes.device, processes.rank, processes.count)
    with processes.whole(), Bar(batches.size, shown, unit="row", name="validation", delay=2.0) as bar:
        for batch in batches.epoch(0):
            if batch.y is None:
                raise Error("Validation needs answers: its data give inputs alone.")
            prediction = predict(posterior, batch.x, draws, generator, progress=False)
            if batch.share is None or batch.share.counts:
                nll = -prediction.log_prob(batch.y).double()
                weight = torch.ones_like(nll) if batch.weight is None else batch.weight.to(nll).flatten()
                if len(weight) != len(nll):
                    raise Error(f"There are {len(weight)} weights for {len(nll)} held-out rows: one each.")
                total, weights = total + float((weight * nll).sum()), weights + float(weight.sum())
            bar.update(count=len(prediction) if batch.share is None else batch.share.rows)
    total, weights = processes.total(total, weights)
    if not weights:
        raise Error("The held-out rows all have weight 0: none of them counts.")
    return total / weights


def improves(record: Mapping[str, float], best: Mapping[str, Any] | None) -> bool:
    """Whether an epoch's held-out negative log-likelihood is a number, and below that of the best epoch so far."""
    measured = record.get("validation", math.nan)
    return math.isfinite(measured) and (best is None or not best["validation"] <= measured)


def warn_of_none(measured: list[float]) -> None:
    """Warn where no epoch can be chosen, for none of the held-out negative log-likelihoods is a finite number."""
    if measured and not any(map(math.isfinite, measured)):
        warnings.warn(
            f"The held-out negative log-likelihood is {measured[-1]} in every epoch, so that none can be chosen and "
            "the last one's parameters stay: look for NaN in the validation targets, or for targets of probability 0.",
            stacklevel=3,
        )
