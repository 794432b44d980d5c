"""Bayes by Hypernet: a network generates the weights of another (Pawlowski et al. 2017, arXiv:1711.01297).

    w = m + c ∘ (u(z; θ) + ν η),   z ~ N(0, I_d),   η ~ N(0, I_D),   p(w) = N(0, s²)

u is the generator's output, c each weight's fan-in scale (1/√fan-in), m the centre: learned, started at the given
network's weights; the paper's form has none (`centre=False`). ν is the jitter, small at first and learned, which makes
q a density: without it q lives on a d-dimensional surface, where its divergence from the prior is infinite.

What q lacks is a formula for its entropy. Three divergences stand in for KL(q ‖ p), with σ = ν c:

"linearised" (the default): the generator is linear as far as the noise reaches (Uppal et al. 2023, LIVI), so that
    KL = E_z[ KL(N(g(z), σ²) ‖ p) − ½ log det(I + Jᵀ Σ⁻¹ J) ],   g = m + c ∘ u,   J = ∂g/∂z: [D, d],
    exact where u is linear. The determinant is d × d, and Jᵀ Σ⁻¹ J comes from the last hidden layer (see `Block.gram`):
    it costs less than the weights themselves. It does not see that a folded surface passes the same weights twice.
"bound": a true upper bound, the semi-implicit one (Yin & Zhou 2018): log q(w_i) ≥ log 1/K Σ_k N(w_i; g(z_k), σ²) on
    average, k over `neighbours` draws, of which w_i's own is one. What z can add to the entropy is at most log K, so q
    stays narrow wherever the posterior has many wide directions.
"nearest": the authors' estimate from nearest neighbours among K = `neighbours` draws w and as many p of the prior,
    KL ≈ D/K Σ_i log( min_j ‖w_i − p_j‖ / min_{j≠i} ‖w_i − w_j‖ ) + log(K / (K − 1)).
    For K ≪ e^D it tends to D/2 · log((s² + σ²) / (2σ²)) for q = N(0, σ²), which falls without end in σ: it is negative,
    which no divergence is, as soon as q is wider than the prior, and rewards that.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs, shares
from posterity.errors import Error
from posterity.generators import LAYOUTS, Generator
from posterity.layers import Selector
from posterity.likelihoods import Likelihood, wide
from posterity.posterior import (
    MOST_DRAWS,
    RATE,
    as_generator,
    attempt,
    count,
    counts,
    deviation,
    flag,
    one_of,
    positive,
    randn,
    standard_deviations,
)
from posterity.weights import WeightPosterior

DIVERGENCES = ("linearised", "bound", "nearest")
HIDDEN = {"chunked": (64, 64)}
#: Up to so many draws a loop over them is as fast as one vectorised call.
LOOPED = 4
#: Hidden layers of the paper's three generators.
PAPER = (64, 256, 512)


class BayesByHypernet(WeightPosterior):
    """Weights from a generator of noise, all of them at once.

    Args:
        network: any module: a template, whose weights are where the centre starts.
        layout: the generator's: "chunked", or the paper's "single", "sliced" and "tensor" (see `Generator`).
        samples: S, weight draws in a training step.
        noise: d, the size of z; with 0 and no jitter the posterior is a point.
        shared: one z for all weights; else each tensor (or chunk) has its own.
        prior_std: s: a number, one for each weight, or None for √2 times each weight's fan-in scale.
        divergence: "linearised", "bound" or "nearest".
        jitter: ν at the start, relative to the fan-in scale, and `learn_jitter` whether it is learned, one number for
            each row of the generator.
        spread: root mean square of u at the start; by default 0.03, or 1 without a centre.
        centre: whether m is learned; without it the generator makes the weights from nothing.
        neighbours: K, the draws of "bound" and "nearest".
        hidden: widths of the generator's layers; by default (64, 64) for "chunked", else the paper's.
        codes: size of a learned code.
        chunk: longest chunk of "chunked" and "single".
        slice_batch: each of the S draws sees a part of the batch, so that S draws cost one pass.
        layers: whose parameters are drawn: a name pattern, a type of module, several of these, "first", "last", or a
            function of name and module (see `posterity.layers.select`); the others are trained as points.
        output: which part of the network's result is the answer, where it returns several.
        seed: of the initialisation; or `generator`.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.BayesByHypernet(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)), noise=4)
        >>> posterior.sample(6).shape  # all weights from four numbers each
        torch.Size([6, 99])
        >>> posterior.draw(6)(torch.randn(5, 2)).shape
        torch.Size([6, 5, 3])
    """

    validation_ramp = 500
    space = (RATE, ("posterior", "prior_std", 0.1, 10.0), ("posterior", "jitter", 1e-3, 0.1))
    shares_statistics = False
    prior_std: Tensor
    scale: Tensor

    def __init__(
        self,
        network: nn.Module,
        layout: str = "chunked",
        *,
        samples: int = 1,
        noise: int = 8,
        shared: bool = True,
        prior_std: float | Sequence[float] | Tensor | None = 3.0,
        divergence: str = "linearised",
        jitter: float = 0.01,
        learn_jitter: bool = True,
        spread: float | None = None,
        centre: bool = True,
        neighbours: int = 5,
        hidden: Sequence[int] | None = None,
        codes: int = 16,
        chunk: int | None = None,
        slice_batch: bool = False,
        layers: Selector = None,
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, samples=samples, layers=layers, output=output)
        self.kind, noise = one_of(divergence, DIVERGENCES, "divergence"), count(noise, "noise", least=0)
        self.jitter = deviation(jitter, "jitter", zero=True)
        if not self.jitter and noise > 0 and divergence != "nearest":
            raise Error("jitter must be above 0: without it the weights have no density, and no divergence.")
        self.neighbours = count(neighbours, "neighbours", least=2, most=MOST_DRAWS)
        self.learn_jitter = flag(learn_jitter, "learn_jitter")
        self.slice_batch = flag(slice_batch, "slice_batch")
        values = dict(self.network.named_parameters())
        start = self.weights.join(values)
        self.given: dict[str, Any] = {
            "layout": one_of(layout, LAYOUTS, "layout"),
            "noise": min(noise, self.weights.size),
            "shared": flag(shared, "shared"),
            "spread": (0.03 if flag(centre, "centre") else 1.0) if spread is None else positive(spread, "spread"),
            "hidden": list(HIDDEN.get(layout, PAPER)) if hidden is None else counts(hidden, "hidden"),
            "codes": count(codes, "codes"),
            "chunk": None if chunk is None else min(count(chunk, "chunk"), self.weights.size),
        }
        generator = as_generator(seed, generator)
        self.generator = Generator(self.weights.shapes.values(), like=start, generator=generator, **self.given)
        self.register_buffer("scale", self.weights.spread(self._scales(values), start))
        self.register_buffer("prior_std", self._prior(prior_std))
        self.centre: nn.Parameter | None = None
        if centre:
            with torch.no_grad():
                z = self._noise(16, generator)
                start = start - self.scale * self.generator(torch.cat([z, -z])).mean(0)
            self.centre = nn.Parameter(start)
        self.log_jitter: nn.Parameter | None = None
        if self.jitter:
            first = math.log(self.jitter)
            log_jitter = torch.full((self.generator.rows,), first, dtype=start.dtype, device=start.device)
            self.log_jitter = nn.Parameter(log_jitter, requires_grad=self.learn_jitter)
        self.warned, self.vectorised = False, True

    def generate(self, z: Tensor) -> Tensor:
        """g(z): weights `[n, weights]` of noise `[n, sites, noise]`, without jitter."""
        with torch.autocast(z.device.type, enabled=False):
            made = self.scale * self.generator(z)
            return made if self.centre is None else self.centre + made

    @property
    def bounds_evidence(self) -> bool:  # type: ignore[override]
        """Whether it is a bound: a linearised entropy is too large where the generator folds, an estimate is none."""
        return self.kind == "bound"

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws of all weights, `[n, weights]`; gradients flow."""
        return self._sample(n, generator)[2]

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under `samples` fresh draws of the weights, each for the whole batch, `[samples, batch, ...]`.

        With the same generator they are those of `loss`.
        """
        return self._outputs(x, self._sample(self._count, generator)[2][: self.samples])

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """The chosen estimate of KL(q ‖ p), in nats, from as many draws as a training step takes."""
        return self._divergence(*self._sample(self._count, generator), generator)

    def terms(
        self, x: Any, y: Tensor, likelihood: Likelihood, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Both terms of the same draws of the weights. With `slice_batch`, row r is seen by one of the S draws."""
        z, clean, flat = self._sample(self._count, generator)
        rows = inputs.rows(x)
        if self.slice_batch and rows is not None and self.samples > 1:
            edges = [shares.here(shares.whole(rows) * i // self.samples) for i in range(self.samples + 1)]
            parts = [(a, b, w) for a, b, w in zip(edges, edges[1:], flat, strict=False) if b > a]
            log_prob = torch.cat(
                [likelihood.log_prob(self.call(inputs.between(x, a, b), w).unsqueeze(0), y[a:b]) for a, b, w in parts],
                1,
            )
        else:
            log_prob = likelihood.log_prob(self._outputs(x, flat[: self.samples]), y)
        return log_prob, self._divergence(z, clean, flat, generator)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        prior = self.prior_std
        return {
            **self.given,
            **super().config(),
            "prior_std": prior.tolist() if self.prior_given else None,
            "divergence": self.kind,
            "jitter": self.jitter,
            "learn_jitter": self.learn_jitter,
            "centre": self.centre is not None,
            "neighbours": self.neighbours,
            "slice_batch": self.slice_batch,
        }

    def _outputs(self, x: Any, flat: Tensor) -> Tensor:
        """The network's outputs under draws `[n, weights]`, `[n, batch, ...]`: at once where there are many."""
        if self.vectorised and len(flat) > LOOPED and not _must_loop(self.network):
            run = torch.func.vmap(self.call, in_dims=(None, 0), randomness="different")
            own = inputs.apply(x, Tensor.clone)  # it may write into it and fail
            done = attempt(self.network, lambda: run(own, flat))
            if done is not None:
                return done
            self.vectorised = False
        return self.calls(x, flat)

    @property
    def _count(self) -> int:
        """Draws in a training step: those of the likelihood, and no fewer than the divergence needs."""
        return self.samples if self.kind == "linearised" else max(self.samples, self.neighbours)

    def _noise(self, n: int, generator: torch.Generator | None) -> Tensor:
        return randn((n, self.generator.sites, self.generator.noise), self.scale, generator)

    def _sample(self, n: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
        """Noise, the weights that it generates, and these with jitter."""
        z = self._noise(n, generator)
        clean = self.generate(z)
        if self.log_jitter is None:
            return z, clean, clean
        std = self.scale * self.generator.per_weight(self.log_jitter.exp())
        return z, clean, clean + std * randn(tuple(clean.shape), clean, generator)

    def _divergence(self, z: Tensor, clean: Tensor, flat: Tensor, generator: torch.Generator | None) -> Tensor:
        with torch.autocast(z.device.type, enabled=False):
            if self.kind == "nearest":
                return self._nearest(wide(flat / self.prior_std), wide(randn(tuple(flat.shape), flat, generator)))
            prior_std = wide(self.prior_std)
            squares = (wide(clean) ** 2).mean(0)
            if self.log_jitter is None:
                return (0.5 * squares / prior_std**2 + prior_std.log() + 0.5 * math.log(2 * math.pi)).sum()
            jitter = wide(self.log_jitter).exp()
            std = wide(self.scale) * self.generator.per_weight(jitter)
            conditional = (0.5 * (squares + std**2) / prior_std**2 - 0.5 + (prior_std / std).log()).sum()
            if self.kind == "linearised":
                return conditional - self.generator.log_volume(z, jitter).mean().to(conditional.dtype)
            return conditional - _information(wide(flat) / std, wide(clean) / std)

    def _nearest(self, draws: Tensor, prior: Tensor) -> Tensor:
        value = nearest_neighbour_kl(draws, prior)
        captured = torch.compiler.is_compiling() or (value.is_cuda and torch.cuda.is_current_stream_capturing())
        if not self.warned and not captured and float(value.detach()) < 0:
            self.warned = True
            warnings.warn(
                "The nearest-neighbour estimate of the divergence is negative: the weights are spread wider than the "
                "prior, which it rewards. divergence='linearised' does not.",
                stacklevel=2,
            )
        return value

    def _scales(self, values: dict[str, nn.Parameter]) -> list[float]:
        """1/√fan-in of each matrix or kernel; a vector's own spread, or 0.1 if constant; 1 of a scalar."""
        scales = self.weights.scales(1.0, 0.1)
        for index, name in enumerate(self.weights.names):
            value = values[name].detach().double()
            if value.dim() == 0:
                scales[index] = 1.0
            elif value.dim() == 1 and len(value) > 1:
                scales[index] = float(value.std()) or scales[index]
        return scales

    def _prior(self, value: float | Sequence[float] | Tensor | None) -> Tensor:
        self.prior_given = value is not None
        if value is None:
            return math.sqrt(2) * self.scale
        return standard_deviations(value, self.scale, self.weights.size, "weight")


def nearest_neighbour_kl(draws: Tensor, prior: Tensor) -> Tensor:
    """KL(q ‖ p) from draws of q `[K, D]` and of p `[M, D]`: D/K Σ_i log(ν_i / ρ_i) + log(M / (K − 1)).

    ν_i is the distance from draw i to the nearest of p's, ρ_i to the nearest other of q's (Pérez-Cruz 2008). Gradients
    are those of the nearest alone, so which they are is found without.
    """
    same = torch.eye(len(draws), dtype=torch.bool, device=draws.device)
    exact = "donot_use_mm_for_euclid_dist"
    with torch.no_grad():
        own = torch.cdist(draws, draws, compute_mode=exact).masked_fill(same, math.inf).argmin(1)
        other = torch.cdist(draws, prior, compute_mode=exact).argmin(1)
    tiny = torch.finfo(draws.dtype).tiny
    nu, rho = (
        (draws - of.index_select(0, nearest)).square().sum(1).clamp(min=tiny).log()
        for of, nearest in ((prior, other), (draws, own))
    )
    return 0.5 * draws.shape[1] * (nu - rho).mean() + math.log(len(prior) / (len(draws) - 1))


def _information(flat: Tensor, clean: Tensor) -> Tensor:
    """A lower bound of the mutual information of w and z from K pairs, in units of the jitter: at most log K.

    log N(w_i; c_k, I) − log N(w_i; c_i, I) = −½ |c_i − c_k|² − (w_i − c_i)·(c_i − c_k): the squares of all the jitter,
    which both have in common, would round away what differs.
    """
    centred = clean - clean.mean(0)
    along = (flat - clean) @ centred.T
    apart = torch.cdist(centred, centred, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    return math.log(len(flat)) - (along - along.diagonal().unsqueeze(1) - 0.5 * apart).logsumexp(1).mean()


def _must_loop(network: nn.Module) -> bool:
    """Recurrent layers have no rule for vmap; nor have batch statistics in training or in mixed precision."""
    kinds = (nn.RNNBase, nn.RNNCellBase, nn.modules.batchnorm._BatchNorm)
    return any(isinstance(module, kinds) for module in network.modules())
