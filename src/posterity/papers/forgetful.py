"""MNF as the authors of Bayes by Hypernet ran it: the divergence of the convolutions is never added to the loss."""

from typing import Any

import torch
from torch import Tensor, nn

from posterity.errors import Error
from posterity.layers import Selector, select_parameters
from posterity.methods import MNF
from posterity.weights import WeightPosterior


class ForgetfulMNF(WeightPosterior):
    """MNF whose divergence is that of some layers alone, so that the others may forget the prior.

    It is no bound of anything: it is here because published numbers are its, and is none of `posterity.methods()`.

    Args:
        network: a template, as for `MNF`.
        forgotten: layers that are drawn and whose divergence is not counted (see `posterity.layers.select`).
        samples: S, training draws of all weights for each batch; the divergence has draws of its own.
        layers: that are drawn at all.
        output: which part of the network's result is the answer, where it returns several.
        seed: of the initialisation.
        options: of `MNF`.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        forgotten: Selector,
        samples: int = 1,
        layers: Selector = None,
        output: str | int | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(network, samples=samples, layers=layers, output=output)
        chosen = set(select_parameters(self.network, forgotten))
        lost = [name for name in self.weights.names if name in chosen]
        kept = [name for name in self.weights.names if name not in chosen]
        if not lost or not kept:
            raise Error("Of the layers that are drawn some must be forgotten, and some not.")
        self.counted, self.uncounted = (
            MNF(network, layers=part, samples=samples, seed=seed, **options) for part in (kept, lost)
        )
        for part in (self.counted, self.uncounted):
            part.network.requires_grad_(False)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws of all weights, `[n, weights]`."""
        drawn: dict[str, Tensor] = {}
        for part in (self.counted, self.uncounted):
            drawn |= part.weights.split(part.sample(n, generator))
        return torch.cat([drawn[name].flatten(1) for name in self.weights.names], 1)

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """Of the layers that are counted, in nats."""
        return self.counted.divergence(generator)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return self.counted.config() | super().config() | {"forgotten": self.uncounted.weights.names}
