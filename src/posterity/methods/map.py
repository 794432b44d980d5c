"""Maximum a posteriori: the network itself, one function without uncertainty."""

from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs
from posterity.functions import Functions
from posterity.layers import check_sizes
from posterity.posterior import DECAY, RATE, Description, Entry, Posterior, as_generator, count
from posterity.state import alone, home


class MAP(Posterior):
    """The network as it is: what every other method is compared with.

    Weight decay stands for a prior: N(0, 1/(N · decay)) under SGD, which then ends at the mode; the decoupled decay of
    Adam (AdamW) pulls less.

    Args:
        network: any module.
        samples: takes part in the contract; the draws of one function are equal, so it makes no difference.
        output: which part of the network's result is the answer, where it returns several.
        seed: takes part in the contract, as `generator` does; nothing is random here.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.MAP(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)))
        >>> x = torch.randn(5, 2)
        >>> torch.equal(posterior.draw(1)(x)[0], posterior.network(x))
        True
        >>> float(posterity.predict(posterior, x).epistemic.max())  # one function cannot disagree with itself
        0.0
    """

    draws = distinct = 1
    space = (RATE, DECAY)

    def __init__(
        self,
        network: nn.Module,
        *,
        samples: int = 1,
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, samples=samples, output=output)
        for name, p in self.network.named_parameters():
            check_sizes(name, [p])
        as_generator(seed, generator)

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """The network's output, `[samples, batch, ...]`."""
        with alone():
            once = inputs.output(inputs.call(self.network, x), self.output)
        return once.unsqueeze(0).expand(self.samples, *once.shape)

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """Zero: a point has no divergence that could be compared."""
        return torch.zeros((), device=next(iter(self.parameters()), torch.zeros(())).device)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Functions:
        """The same function n times, for the cost of one."""
        home(generator)
        return Functions(self.network, count(n, "n"), output=self.output)

    def mean(self) -> Functions:
        """The network itself."""
        return self.draw(1)

    def describe(self) -> Description:
        """Nothing is uncertain."""
        return Description(
            Entry(name, f"{tuple(p.shape)}", False, "MAP keeps one value of every parameter")
            for name, p in self.network.named_parameters()
        )

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {"samples": self.samples, "output": self.output}
