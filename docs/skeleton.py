"""A method to copy: every weight is Gaussian, w = m + σ c η, with one learned σ for the whole network.

    q(w) = N(m, σ² c²),   p(w) = N(0, s² c²),   KL(q ‖ p) = ½ Σ (m² / c² + σ²) / s² − D/2 − D log(σ / s)

c is 1/√fan-in, or 0.1 for biases, so one number σ suits layers of all widths. Bayes by Backprop is this with a σ for
each weight.
"""

from typing import Any

import torch
from torch import Tensor, nn

from posterity.layers import Selector
from posterity.posterior import as_generator, deviation, randn
from posterity.weights import WeightPosterior


class Isotropic(WeightPosterior):
    """Gaussian weights that share one deviation.

    Args:
        network: any module: a template, of which a copy is kept; its values are where the means start.
        samples: S, training draws of all weights in a step.
        prior_std: s, of the prior N(0, s² c²).
        init_std: σ at the start.
        layers: whose parameters are drawn; the others are trained as points.
        output: which part of the network's result is the answer, where it returns several.
        seed: of whatever the method starts at random: here nothing; or `generator`.
    """

    scales: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        samples: int = 1,
        prior_std: float = 1.0,
        init_std: float = 0.05,
        layers: Selector = None,
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, samples=samples, layers=layers, output=output)
        as_generator(seed, generator)  # refuses both at once
        self.prior_std, self.init_std = deviation(prior_std, "prior_std"), deviation(init_std, "init_std")
        self.means = nn.Parameter(self.weights.join(dict(self.network.named_parameters())))
        scales = self.weights.spread(self.weights.scales(1.0, 0.1), self.means)
        self.register_buffer("scales", scales, persistent=False)  # follows from the network's shapes
        self.log_std = nn.Parameter(self.means.new_tensor(self.init_std).log())

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws of all weights, `[n, weights]`; gradients flow."""
        noise = randn((n, len(self.means)), self.means, generator)
        return self.means + self.log_std.exp() * self.scales * noise

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """KL(q ‖ p) in closed form: a 0-d tensor."""
        squares = (self.means / self.scales) ** 2 + (2 * self.log_std).exp()
        log_ratio = self.log_std - torch.as_tensor(self.prior_std).log().to(self.log_std)
        return (0.5 * squares / self.prior_std**2 - 0.5 - log_ratio).sum()

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return super().config() | {"prior_std": self.prior_std, "init_std": self.init_std}
