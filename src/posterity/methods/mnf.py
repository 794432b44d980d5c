"""MNF: multiplicative normalizing flows (Louizos & Welling 2017, arXiv:1703.01961).

    q(W) = ∫ q(W|z) q(z) dz,   q(W|z) = ∏_ij N(z_i μ_ij, σ_ij²),   z = a + b∘f(u₀),   u₀ ~ N(0, 1)

with one z for each layer, on the inputs of a Linear and on the output filters of a convolution, and f a flow. Every
other parameter (biases, norms, embeddings, recurrent weights) is a mean-field Gaussian. The marginal q(W) has no
density in closed form; with any density r(z|W) the evidence is at least

    E log p(y|W) − KL(q(W|z) ‖ p(W)) + E[log r(z|W) − log q(z)],

and the bound is as good as r knows z from W. W tells of z_i by its least-squares estimate alone, whose distribution is
known: with λ_i = b_i² Σ_j μ_ij²/σ_ij², it is û_i = u_i + ξ_i/√λ_i for u = f(u₀). So by default

    r(u|W) = N( g(u); (λû + πm)/(λ + π), 1/(λ + π) ) · |det g′(u)|

with m, π learned and g a flow that fades by π/(λ + π) where W says all. The mean over ξ is taken in closed form: the
divergence needs no draw of W. Given z a dense layer's outputs are drawn for each row (local reparameterisation, see
`posterity.noises`). The paper's r sees W through one number for a whole layer; on a regression whose inputs
correlate at 0.98 it stays at mean field, with 0.02 of the largest posterior variance, where this one finds 0.75.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from posterity import inputs
from posterity.flows import Couplings, groups
from posterity.layers import Selector, features
from posterity.likelihoods import Likelihood, wide
from posterity.noises import Noises
from posterity.parameter_groups import rate_of_stds
from posterity.posterior import (
    RATE,
    Description,
    as_generator,
    count,
    deviation,
    inverse_softplus,
    one_of,
    randn,
    standard_deviations,
)
from posterity.weights import WeightPosterior


class Latent(NamedTuple):
    """n draws of all z: their base, the flows' value and log-determinant; each `[n, latents]`, the last `[n]`."""

    base: Tensor
    u: Tensor
    log_det: Tensor


class MNF(WeightPosterior):
    """Gaussian weights whose means are multiplied by noise from a normalizing flow.

    Args:
        network: any module: a template, whose weights are where the means start.
        steps: couplings of the flow of each layer, in q and in r.
        hidden: width of their hidden layers.
        samples: S, training draws of all weights for each batch.
        prior_std: of the prior N(0, s²): a number, one for each weight, or None for 4/√fan-in where a weight has
            several axes, and 1 for vectors and embeddings; narrower ones underfit on validation splits.
        init_std: where σ starts, as a part of the prior's standard deviation; its rate is that of `BayesByBackprop`, up
            to 3 times that of the means.
        init_noise: b, where the standard deviation of z starts; its mean starts at 1.
        r: "estimate" (above), or "paper": b₁·t with variance exp(−b₂·t), t = mean_j tanh(Σ_i c_i W_ij), and g.
        layers: whose parameters are drawn: a name pattern, a type of module, several of these, "first", "last", or a
            function of name and module (see `posterity.layers.select`); the others are trained as points.
        output: which part of the network's result is the answer, where it returns several.
        seed: of the initialisation; or `generator`.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.MNF(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)))
        >>> posterior.draw(10)(torch.randn(5, 2)).shape
        torch.Size([10, 5, 3])
        >>> posterior.sample(4).shape  # all weights at once
        torch.Size([4, 99])
    """

    prior_std: Tensor

    space = (RATE, ("posterior", "init_std", 1e-4, 0.3), ("posterior", "init_noise", 0.01, 1.0))
    bounds_evidence = True

    def __init__(
        self,
        network: nn.Module,
        *,
        steps: int = 2,
        hidden: int = 50,
        samples: int = 1,
        prior_std: float | Sequence[float] | Tensor | None = None,
        init_std: float = 0.03,
        init_noise: float = 0.1,
        r: str = "estimate",
        layers: Selector = None,
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, samples=samples, layers=layers, output=output)
        self.r = one_of(r, ("estimate", "paper"), "r")
        self.steps, self.hidden = count(steps, "steps"), count(hidden, "hidden")
        self.init_std, self.init_noise = deviation(init_std, "init_std"), deviation(init_noise, "init_noise")
        self.given_prior_std = getattr(prior_std, "tolist", lambda: prior_std)()
        self.axes = _axes(self.network, self.weights.names)
        self.sizes = [self.weights.shapes[name][axis] for name, axis in self.axes.items()]
        self.parts = groups(self.sizes)
        generator = as_generator(seed, generator)
        parameters = dict(self.network.named_parameters())
        means = self.weights.join(parameters)
        self.register_buffer("prior_std", self._prior(means), persistent=False)
        self.noises = Noises(self.network, self.weights, "auto" if r == "estimate" else "weights", output)
        self.means = nn.Parameter(means)
        self.spreads = nn.Parameter(inverse_softplus(self.init_std * self.prior_std))
        shape = (sum(self.sizes),)
        self.latent_means = nn.Parameter(means.new_ones(shape))
        self.latent_spreads = nn.Parameter(inverse_softplus(means.new_full(shape, self.init_noise)))
        self.flows, self.auxiliary_flows = (
            nn.ModuleList(
                Couplings(part, steps, hidden, means, backwards=backwards, generator=generator) for part in self.parts
            )
            for backwards in (False, True)
        )
        self.auxiliary = nn.Parameter(
            randn((3, *shape), means, generator) if r == "paper" else means.new_zeros(2, *shape)
        )

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws of all weights, `[n, weights]`, each with its own z."""
        return self._given(self._latent(n, generator), generator)

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under `samples` draws of z, `[samples, batch, ...]`; given z, rows have noise of their own."""
        return self._outputs(x, self._latent(self.samples, generator), generator)

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """KL(q(W|z) ‖ p(W)) + log q(z) − log r(z|W) in nats, the mean over `samples` fresh draws."""
        latent = self._latent(self.samples, generator)
        return self._divergence(latent, self._given(latent, generator) if self.r == "paper" else None)

    def terms(
        self, x: Any, y: Tensor, likelihood: Likelihood, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Both terms under the same draws: their noise cancels in part. The paper's r needs the weights themselves."""
        latent = self._latent(self.samples, generator)
        if self.r == "estimate":
            outputs, drawn = self._outputs(x, latent, generator), None
        else:
            drawn = self._given(latent, generator)
            outputs = torch.stack([self.call(x, flat) for flat in drawn])
        return likelihood.log_prob(outputs, y), self._divergence(latent, drawn)

    def own_rates(self, size: int | None = None) -> dict[str, float]:
        """As in Bayes by Backprop, but at most 3: where they are wide before z has correlations, it finds none."""
        return {"spreads": rate_of_stds(size, self.weights.size, fastest=3.0)}

    def describe(self) -> Description:
        """Every parameter is drawn, with a z where it is the weight of a Linear or a convolution; buffers are not."""
        words, lines = self.noises.words(), []
        for entry in super().describe():
            if entry.uncertain:
                axis = self.axes.get(entry.name)
                kind = "mean field" if axis is None else f"its mean times a z for each of axis {axis}"
                entry = entry._replace(reason=f"Gaussian, {kind}; noise in training: {words[entry.name]}")
            lines.append(entry)
        return Description(lines)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {
            "steps": self.steps,
            "hidden": self.hidden,
            **super().config(),
            "prior_std": self.given_prior_std,
            "init_std": self.init_std,
            "init_noise": self.init_noise,
            "r": self.r,
        }

    def _latent(self, n: int, generator: torch.Generator | None) -> Latent:
        base = randn((n, sum(self.sizes)), self.latent_means, generator)
        u, log_det = self._through(self.flows, base)
        return Latent(base, u, log_det)

    def _through(self, flows: nn.ModuleList, u: Tensor, strength: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The flows of all layers, each on its part of u `[n, latents]`; in full precision."""
        if not self.sizes:
            return u, u.new_zeros(len(u))
        totals = [sum(part) for part in self.parts]
        strengths = [None] * len(totals) if strength is None else strength.split(totals)
        with torch.autocast(u.device.type, enabled=False):
            done = [flow(part, k) for flow, part, k in zip(flows, u.split(totals, -1), strengths, strict=True)]
        return torch.cat([part for part, _ in done], -1), torch.stack([log_det for _, log_det in done]).sum(0)

    def _moments(self, latent: Latent) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """By name the means of W given z, `[n, *shape]` where there is a z, and the standard deviations."""
        z = self.latent_means + F.softplus(self.latent_spreads) * latent.u
        means = self.weights.split(self.means)
        for (name, axis), part in zip(self.axes.items(), z.split(self.sizes, -1), strict=True):
            shape = [len(z), *[1] * means[name].dim()]
            shape[axis + 1] = part.shape[1]
            means[name] = means[name] * part.view(shape)
        return means, self.weights.split(F.softplus(self.spreads))

    def _outputs(self, x: Any, latent: Latent, generator: torch.Generator | None) -> Tensor:
        """The network's outputs under the draws of z, `[n, batch, ...]`."""
        means, stds = self._moments(latent)
        each = [
            {name: mean[i] if name in self.axes else mean for name, mean in means.items()}
            for i in range(len(latent.base))
        ]
        ways = self.noises.ways(x, each[0])
        own = zip(inputs.copies(x, len(each)), each, strict=True)
        return torch.stack([self.noises.run(part, mean, stds, ways, generator) for part, mean in own])

    def _given(self, latent: Latent, generator: torch.Generator | None) -> Tensor:
        """W given z, `[n, weights]`."""
        n, (means, stds) = len(latent.base), self._moments(latent)
        flat = torch.cat(
            [
                (mean if name in self.axes else mean.expand(n, *mean.shape)).reshape(n, -1)
                for name, mean in means.items()
            ],
            -1,
        )
        spread = torch.cat([std.reshape(-1) for std in stds.values()])
        return flat + spread * randn(tuple(flat.shape), flat, generator)

    def _divergence(self, latent: Latent, drawn: Tensor | None) -> Tensor:
        stds, noise = F.softplus(wide(self.spreads)), F.softplus(wide(self.latent_spreads))
        means, prior = wide(self.means), wide(self.prior_std)
        latent = Latent(*map(wide, latent))
        ratio = stds / prior
        kl = (0.5 * ratio**2 - 0.5 - ratio.log()).sum()
        energy = self.weights.split(0.5 * (means / prior) ** 2)
        kl = kl + sum(part.sum() for name, part in energy.items() if name not in self.axes)
        if not self.sizes:
            return kl
        z = wide(self.latent_means) + noise * latent.u
        kl = kl + (z**2 * self._along(energy)).sum(-1)
        log_q = (-0.5 * latent.base**2 - 0.5 * math.log(2 * math.pi)).sum(-1) - latent.log_det
        if self.r == "paper" and drawn is not None:
            log_r = self._paper(latent.u, wide(drawn))
        else:
            known = noise**2 * self._along(self.weights.split((means / stds) ** 2))
            log_r = self._estimate(latent.u, known)
        return (kl + log_q - log_r).mean()

    def _estimate(self, u: Tensor, known: Tensor) -> Tensor:
        """E log r(u|W) over W given u, `[n]`; `known` is λ, the precision with which W tells u."""
        mean, own = wide(self.auxiliary[0]), wide(self.auxiliary[1]).exp()
        precision = known + own
        v, log_det = self._through(self.auxiliary_flows, u, own / precision)
        miss = known * (v - u) + own * (v - mean)
        return 0.5 * ((precision / (2 * math.pi)).log() - (miss**2 + known) / precision).sum(-1) + log_det

    def _paper(self, u: Tensor, drawn: Tensor) -> Tensor:
        """log r(u|W) of the paper at drawn weights, `[n]`."""
        v, log_det = self._through(self.auxiliary_flows, u)
        auxiliary, weights, seen = wide(self.auxiliary), self.weights.split(drawn), []
        for (name, axis), read in zip(self.axes.items(), auxiliary[2].split(self.sizes), strict=True):
            per_column = torch.tanh((weights[name].movedim(axis + 1, -1) * read).sum(-1))
            seen.append(per_column.flatten(1).mean(1, keepdim=True).expand(-1, len(read)))
        mean, log_precision = auxiliary[:2].unsqueeze(1) * torch.cat(seen, -1)
        miss = (v - mean) ** 2 * log_precision.exp()
        return 0.5 * (log_precision - math.log(2 * math.pi) - miss).sum(-1) + log_det

    def _along(self, values: dict[str, Tensor]) -> Tensor:
        """Sums over all axes but that of z, `[latents]`."""
        return torch.cat([values[name].movedim(axis, 0).flatten(1).sum(1) for name, axis in self.axes.items()])

    def _prior(self, like: Tensor) -> Tensor:
        """The prior's standard deviation of each weight."""
        if self.given_prior_std is None:
            return self.weights.spread(self.weights.scales(4.0, 1.0), like)
        return standard_deviations(self.given_prior_std, like, len(like), "weight").expand_as(like).clone()


def _axes(network: nn.Module, drawn: Iterable[str]) -> dict[str, int]:
    """The weights that carry a z, by name, and its axis: a Linear's inputs, a convolution's output filters.

    Those with most come first.
    """
    names = {id(p): name for name, p in network.named_parameters() if name in drawn}
    found = {}
    for layer in network.modules():
        name = names.get(id(layer._parameters.get("weight")))
        facts = features(layer)
        if name is not None and facts is not None and facts.linear:
            found[name] = int(facts.transposed == isinstance(layer, _ConvNd))
    parameters = dict(network.named_parameters())
    return dict(sorted(found.items(), key=lambda item: -parameters[item[0]].shape[item[1]]))
