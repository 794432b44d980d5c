"""Bayes by Backprop: an independent Gaussian for every weight (Blundell et al. 2015, arXiv:1505.05424).

    q(w) = Π_i N(w_i; μ_i, σ_i²),   σ = softplus(ρ) or exp(ρ/2),   p(w) = Π_i N(w_i; m_i, s_i²)
    loss = −E_q log p(y | x, w) + β · KL(q‖p) / N,
    KL(q‖p) = Σ_i [ log(s_i / σ_i) + (σ_i² + (μ_i − m_i)²) / (2 s_i²) − ½ ]

The expectation is estimated by one draw of the weights for the batch or, for less variance of the gradient, by noise of
its own for every row (see `posterity.noises`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posterity import inputs, shares
from posterity.errors import Error, short
from posterity.functions import Functions
from posterity.layers import Selector
from posterity.likelihoods import wide
from posterity.noises import ESTIMATORS, Noises
from posterity.pairs import mirrored
from posterity.parameter_groups import rate_of_stds
from posterity.posterior import (
    RATE,
    SMALLEST,
    Description,
    as_generator,
    count,
    deviation,
    flag,
    inverse_softplus,
    one_of,
    positive,
    randn,
)
from posterity.state import kept
from posterity.weights import WeightPosterior

PRIORS = ("gaussian", "scale_mixture")
PARAMETRISATIONS = ("softplus", "log_variance")


class BayesByBackprop(WeightPosterior):
    """Every parameter of any network has a mean and a spread of its own; a tied one is drawn once.

    Args:
        network: a template, which is left as it is; the means start at its values.
        samples: S, training draws per datum.
        prior_std: s: a number, one for each parameter tensor, or one for each weight. By default one for each tensor:
            4 / √(fan-in), which follows the width and is wide enough for a few hundred data (2 / √ and less underfit
            on validation splits); 1 for tensors of one axis; the root mean square of the given values where that is
            more.
        prior: "gaussian", with the divergence in closed form, or "scale_mixture": π N(0, s²) + (1 − π) N(0, (r s)²),
            whose divergence is estimated by one draw (the entropy of q stays exact).
        share: π of the scale mixture.
        narrow: r of the scale mixture; Blundell et al. searched 1 > r > e⁻⁸.
        centred: centre the prior on the given network's weights too, not on zero: for a network that is trained
            (Krishnan et al. 2020).
        init_std: the standard deviations start at this times those of the prior. They have a rate of their own: as
            many times that of the means as there are rows per weight, from 0.4 to 10. So they are at the optimum of the
            bound where rows determine the weights, and stop short of it where they are few, for there a factorised
            posterior of a wide network underfits; `lr_posterior`, which is that of both, or longer training goes there.
        parametrisation: what ρ is: "softplus", σ = softplus(ρ), or "log_variance", σ = exp(ρ/2) (Pawlowski et al.
            2017). A step of Adam moves log σ half as far by the second, so that the noise grows more slowly and the
            means have longer to fit: it matters where `init_std` is tiny.
        estimator: of the gradient: "weights" (one draw for the batch), "local", "flipout", or "auto": local
            reparameterisation where it is exact, Flipout for the other Linear layers, and one draw for convolutions,
            where Flipout doubles the cost for the same likelihood on validation splits. Parameters for which a
            layer's own noise would not be right are drawn once for the batch too; `describe` says why.
        layers: whose parameters are drawn: a name pattern, a type of module, several of these, "first", "last", or a
            function of name and module (see `posterity.layers.select`); the others are trained as points.
        output: which part of the network's result is the answer, where it returns several.
        seed: takes part in the contract, as `generator` does; nothing is random here.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> network = nn.Linear(2, 1, bias=False)
        >>> network.weight.data = torch.tensor([[3.0, 4.0]])
        >>> posterior = posterity.BayesByBackprop(network, prior_std=1.0, init_std=1.0)
        >>> round(posterior.divergence().item(), 4)  # ½ (3² + 4²), as the spreads are those of the prior
        12.5
        >>> posterior.draw(10)(torch.randn(5, 2)).shape
        torch.Size([10, 5, 1])
    """

    prior_std: Tensor
    prior_stds: Tensor
    prior_mean: Tensor | None
    space = (RATE, ("posterior", "init_std", 1e-4, 0.3))
    bounds_evidence = True

    def __init__(
        self,
        network: nn.Module,
        *,
        samples: int = 1,
        prior_std: float | Sequence[float] | Tensor | None = None,
        prior: str = "gaussian",
        share: float = 0.5,
        narrow: float = 0.1,
        centred: bool = False,
        init_std: float = 0.03,
        parametrisation: str = "softplus",
        estimator: str = "auto",
        layers: Selector = None,
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, samples=samples, layers=layers, output=output)
        as_generator(seed, generator)
        self.prior, self.estimator = one_of(prior, PRIORS, "prior"), one_of(estimator, ESTIMATORS, "estimator")
        self.share, self.narrow = positive(share, "share", zero=True), deviation(narrow, "narrow")
        self.init_std = deviation(init_std, "init_std")
        self.parametrisation = one_of(parametrisation, PARAMETRISATIONS, "parametrisation")
        self.centred = flag(centred, "centred")
        if self.share > 1:
            raise Error(f"share must lie between 0 and 1; got {short(share)}.")
        parameters = dict(self.network.named_parameters())
        means = self.weights.join(parameters)
        scales = inputs.numbers(self._scales(parameters) if prior_std is None else prior_std)
        sizes = torch.tensor(self.weights.sizes, device=means.device)
        if scales.shape not in ((), sizes.shape, means.shape) or not bool(
            ((scales >= SMALLEST) & (scales < torch.inf)).all()
        ):
            raise Error(
                f"prior_std must be a positive number, {len(sizes)} of them (one for each parameter tensor) or "
                f"{len(means)} (one for each weight), of at least {SMALLEST:g}, whose square is not lost in rounding."
            )
        scales = scales.to(means)
        stds = scales.repeat_interleave(sizes) if scales.shape == sizes.shape else scales.expand_as(means)
        self.register_buffer("prior_std", scales)
        self.register_buffer("prior_stds", wide(stds).clone(), persistent=False)
        self.register_buffer("prior_mean", means.clone() if centred else None)
        self.means = nn.Parameter(means)
        stds = self.init_std * self.prior_stds
        spreads = inverse_softplus(stds) if self.parametrisation == "softplus" else 2 * stds.log()
        self.spreads = nn.Parameter(spreads.to(means))
        self.noises = Noises(self.network, self.weights, self.estimator, self.output)

    @property
    def stds(self) -> Tensor:
        """σ, `[weights]`."""
        return F.softplus(self.spreads) if self.parametrisation == "softplus" else (0.5 * self.spreads).exp()

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws of all weights, `[n, weights]`; gradients flow."""
        noise = randn((n, self.weights.size), self.means, generator)
        if torch.is_grad_enabled():
            return self.means + self.stds * noise
        return torch.addcmul(self.means, self.stds, noise, out=noise)  # n networks need no more memory than that

    def draw(self, n: int, generator: torch.Generator | None = None, pairs: bool = False) -> Functions:
        """n functions, each with its own weights; with `pairs`, every second is the reflection of the one before it."""
        if not pairs:
            return super().draw(n, generator)
        with torch.no_grad():
            noise = mirrored(randn((count(n, "n"), self.weights.size), self.means, generator))
            weights = self.weights.split(torch.addcmul(self.means, self.stds, noise))
        return Functions(self.network, n, weights=weights, output=self.output)

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under `samples` fresh draws, `[samples, batch, ...]`; noise is fresh for each row where it can be.

        Where all of it is noise of rows alone (local reparameterisation) the samples run together, else in turn.
        """
        means = self.weights.split(self.means)
        ways = self.noises.ways(x, means)
        if not ways:
            return super().forward(x, generator)
        stds = self.weights.split(self.stds)
        if self.samples > 1 and self.noises.all_local(ways):
            x = inputs.apply(x, lambda tensor: torch.cat([tensor] * self.samples))
            with shares.copied(self.samples):
                return self.noises.run(x, means, stds, ways, generator).unflatten(0, (self.samples, -1))
        own = inputs.copies(x, self.samples)
        return torch.stack([self.noises.run(part, means, stds, ways, generator) for part in own])

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """KL(q‖p) in nats, summed over the weights: exact, or for the scale mixture by one draw."""
        means, stds, prior = wide(self.means), wide(self.stds), wide(self.prior_stds)
        offset = means if self.prior_mean is None else means - wide(self.prior_mean)
        if self.prior == "gaussian":
            ratio = stds / prior
            return (0.5 * (ratio.square() - 1 + (offset / prior).square()) - ratio.log()).sum()
        w = offset + stds * randn(means.shape, means, generator)
        share = torch.tensor([self.share, 1 - self.share], dtype=w.dtype, device=w.device).log()
        broad, slim = (p - (w / s) ** 2 / 2 - s.log() for p, s in zip(share, (prior, self.narrow * prior), strict=True))
        return (-0.5 - stds.log() - torch.logaddexp(broad, slim)).sum()

    def mean(self) -> Functions:
        """The network under the means of its weights."""
        weights = self.weights.split(kept(self.means).unsqueeze(0))
        return Functions(self.network, 1, weights=weights, output=self.output)

    def own_rates(self, size: int | None = None) -> dict[str, float]:
        """Standard deviations are faster than the means where there are more rows than weights, slower where fewer."""
        return {"spreads": rate_of_stds(size, self.weights.size)}

    def describe(self) -> Description:
        """Every parameter, with the way its noise enters the training; buffers are not drawn."""
        words = self.noises.words()
        return Description(
            entry._replace(reason=f"drawn; noise in training: {words[entry.name]}") if entry.uncertain else entry
            for entry in super().describe()
        )

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {
            **super().config(),
            "prior_std": self.prior_std.tolist(),
            "prior": self.prior,
            "share": self.share,
            "narrow": self.narrow,
            "centred": self.centred,
            "init_std": self.init_std,
            "parametrisation": self.parametrisation,
            "estimator": self.estimator,
        }

    def _scales(self, parameters: dict[str, nn.Parameter]) -> list[float]:
        """A standard deviation of the prior for each parameter tensor: see `prior_std`."""
        given = (parameters[name].detach().float() for name in self.weights.names)
        sizes = (float(value.square().mean().sqrt()) if value.numel() else 0.0 for value in given)
        return [max(scale, size) for scale, size in zip(self.weights.scales(4.0, 1.0), sizes, strict=True)]
