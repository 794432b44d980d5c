"""The course of a training run."""

import json
from pathlib import Path
from typing import Any

from posterity.errors import require


class History(list[dict[str, float]]):
    """One record an epoch: epoch, step, loss, nll, divergence (nats), beta, lr, seconds, and validation where given.

    `best` is the epoch whose parameters were kept, where validation data were given.
    """

    best: int | None = None

    def __repr__(self) -> str:
        if not self:
            return "History of no epoch"
        ends = "".join(f", {k} {self[0][k]:.4g} → {self[-1][k]:.4g}" for k in ("loss", "validation") if k in self[-1])
        return f"History of {len(self)} epoch{'s' * (len(self) > 1)}{ends}, {self.seconds:.1f} s"

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
