"""The course of a training run."""

import json
from pathlib import Path
from typing import Any

from posterity.errors import require


class History(list[dict[str, float]]):
    """One record an epoch: epoch, step, nll, loss, divergence, divergence_per_row, beta, lr, seconds and validation.

    `nll` is the negative log-likelihood per row, of an ensemble the mean over its members. `loss` is `nll` plus β times
    `divergence_per_row` (KL/N), so that it rises while β does. `validation` is the negative log-likelihood of held-out
    rows, in the epochs in which it was measured, and `best` the epoch whose parameters were kept for it.
    """

    best: int | None = None

    def __repr__(self) -> str:
        if not self:
            return "History of no epoch"
        names = {"nll": "nll", "validation": "validation"}
        if any(self.column("divergence")):
            names |= {"divergence_per_row": "KL/N", "beta": "beta"}
        columns = {name: self.column(key) for key, name in names.items()}
        ends = "".join(f", {name} {found[0]:.4g} → {found[-1]:.4g}" for name, found in columns.items() if found)
        kept = "" if self.best is None else f", epoch {self.best} kept"
        return f"History of {len(self)} epoch{'s' * (len(self) > 1)}{ends}{kept}, {self.seconds:.1f} s"

    def column(self, name: str) -> list[float]:
        """The values of one entry over epochs."""
        return [record[name] for record in self if name in record]

    @property
    def seconds(self) -> float:
        """Time spent training."""
        return sum(self.column("seconds"))

    def save(self, path: str | Path) -> None:
        """Write the records as JSON."""
        Path(path).write_text(json.dumps({"best": self.best, "epochs": list(self)}, indent=1))

    def plot(self) -> Any:
        """A matplotlib figure of the two terms of the loss."""
        figure = require("matplotlib.figure").Figure(figsize=(8.6, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        epochs = self.column("epoch")
        left.plot(epochs, self.column("nll"), label="training")
        if self.column("validation"):
            left.plot([r["epoch"] for r in self if "validation" in r], self.column("validation"), label="validation")
        if self.best is not None:
            left.axvline(self.best, color="0.7", lw=1, label="kept")
        left.set(xlabel="epoch", ylabel="negative log-likelihood (nats per datum)")
        left.legend(frameon=False)
        right.plot(epochs, self.column("divergence"), color="C3")
        right.set(xlabel="epoch", ylabel="divergence (nats)")
        return figure
