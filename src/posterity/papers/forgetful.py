"""MNF as the authors of Bayes by Hypernet ran it: the divergence of the convolutions is never added to the loss."""

from typing import Any

import torch
from torch import Tensor, nn

from posterity.layers import Selector, select_parameters
from posterity.methods import MNF
from posterity.weights import WeightPosterior


class ForgetfulMNF(WeightPosterior):
    """MNF whose divergence is that of some layers alone, so that the others may forget the prior.

    It is no bound of anything: it is here because published numbers are its.

    Args:
        network: a template, as for `MNF`.
        forgotten: layers that are drawn and whose divergence is not counted (see `posterity.layers.select`).
        layers: that are drawn at all.
        seed: of the initialisation.
        options: of `MNF`.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        forgotten: Selector,
        layers: Selector = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(network, layers=layers)
        lost = select_parameters(self.network, forgotten)
        self.options = options | {"forgotten": forgotten}
        kept, lost = ([n for n in self.weights.names if (n in lost) == there] for there in (False, True))
        self.counted, self.uncounted = (MNF(network, layers=part, seed=seed, **options) for part in (kept, lost))
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
        return {"layers": self.weights.layers, **self.options}
