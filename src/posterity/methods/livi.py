"""LIVI: implicit variational inference with a locally linearised generator (Uppal et al., NeurIPS 2023).

    θ = g(ε) + σ c ∘ η,   ε ~ N(0, I_d),   η ~ N(0, I_D),   c = 1/√fan-in (0.1 for parameters of one axis)

over all D weights at once, so that the weights of one layer may depend on those of another. The density of θ has no
closed form; with g linear around ε, and J `[D, d]` the Jacobian of g/c, it is Gaussian, θ/c has covariance J Jᵀ + σ² I,
and the entropy needs the d singular values s of J alone (k = min(d, D)):

    H ≈ E_ε[ ½ Σ_{i≤k} log(s_i² + σ²) ] + (D − k) log σ + Σ log c + ½ D log 2πe   ≥   k/2 · log(s_min² + σ²) + …

g is a mean M, which starts at the template's values, plus a deviation of matrix products, which starts small. Noise,
as a matrix Z_0 `[m, m]` with d = m², goes through layers, and each parameter W_t, seen as a matrix `[rows, columns]`,
has factors of its own:

    Z_{l+1} = ELU(L_l Z_l R_l + B_l + 1) − 1,    W_t = M_t + c_t · L_t Z R_tᵀ

In the paper a layer is ((L Z + b) R + B), where b R is no more than a part of B, and one last matrix holds all weights
and some numbers more, which are under the prior there; here there are none. ELU is shifted to be linear around zero, so
that g starts almost linear: a generator that bends for no reason has J Jᵀ larger than its variance, the linearisation
then overstates its entropy, and the posterior comes out too narrow. As the last map is linear,

    (JᵀJ)_ij = ⟨∂Z/∂ε_i, Σ_t (L_tᵀ L_t) (∂Z/∂ε_j) (R_tᵀ R_t)⟩,

so nothing of the size D × d is ever formed, and the exact entropy costs little beside a batch.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posterity.errors import Error
from posterity.layers import Selector
from posterity.likelihoods import Likelihood, wide
from posterity.posterior import RATE, as_generator, count, deviation, flag, one_of, randn, standard_deviations
from posterity.weights import WeightPosterior

ENTROPIES = ("exact", "smallest")
#: Rows of the noise and of hidden layers: more would make matrices of gigabytes.
LARGEST = 128
#: Widest Z whose products with all tensors are one matrix of its size to the fourth power.
WIDEST = 32


class LIVI(WeightPosterior):
    """All weights from one generator of few noise variables, trained by the entropy of its linearisation.

    The objective is no bound of the evidence, but for a linear generator: where the generator bends it may lie above,
    by nats. Train by it; compare models on held-out rows. Functions need statistics of batch normalisation of their
    own: predict with `posterity.Normalised`.

    Args:
        network: any module: a template, of which a copy is kept; its values are where the mean starts.
        samples: S, training draws of all weights in a step, in pairs ε and −ε, which likelihood, prior and entropy
            share. Four find known posteriors more closely than two, for twice the cost.
        prior_std: of the prior N(0, prior_std²): a number, one for each weight, or None for 2/√fan-in (1 for
            parameters of one axis).
        noise_size: m, rows and columns of the noise: d = m² variables.
        hidden: rows and columns of the hidden layers.
        depth: how many hidden layers.
        linear: in place of matrix products, θ = M + c ∘ (A ε): a Gaussian of rank d, whose entropy is exact.
        entropy: "exact" (of the linearisation), or "smallest": its lower bound by the smallest singular value.
        noise_std: σ, in units of c: by default 0.05, which fills the directions that d variables do not reach, or
            0.001 where there are no more weights than variables.
        learn_noise: train σ too. Where D is much larger than d, its share (D − d) log σ of the entropy then outweighs
            the rest, and networks underfit; held, it is a constant.
        init_std: the deviation starts at about init_std · c, c = 1/√fan-in (0.1 for parameters of one axis).
        layers: whose parameters are drawn: a name pattern, a type of module, several of these, "first", "last", or a
            function of name and module (see `posterity.layers.select`); the others are trained as points.
        output: which part of the network's result is the answer, where it returns several.
        seed: of the initialisation; or `generator`.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.LIVI(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)), noise_size=3)
        >>> posterior.sample(6).shape  # all weights from 3² numbers each
        torch.Size([6, 99])
        >>> posterior.draw(6)(torch.randn(5, 2)).shape
        torch.Size([6, 5, 3])
    """

    #: At the network's rate the spread lags behind the weight β of the entropy, and ends too small.
    relative_rate = 10.0
    shares_statistics = False
    validation_ramp = 500
    space = (RATE, ("posterior", "noise_std", 1e-3, 0.3), ("posterior", "init_std", 0.01, 1.0))
    prior_stds: Tensor
    scales: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        samples: int = 2,
        prior_std: float | Sequence[float] | Tensor | None = None,
        noise_size: int = 8,
        hidden: int = 16,
        depth: int = 2,
        linear: bool = False,
        entropy: str = "exact",
        noise_std: float | None = None,
        learn_noise: bool = False,
        init_std: float = 0.1,
        layers: Selector = None,
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, samples=samples, layers=layers, output=output)
        self.form = one_of(entropy, ENTROPIES, "entropy")
        self.noise_size, self.hidden = count(noise_size, "noise_size"), count(hidden, "hidden")
        self.depth = count(depth, "depth")
        for name in ("noise_size", "hidden", "depth"):
            if getattr(self, name) > LARGEST:
                raise Error(f"{name} must be at most {LARGEST}; got {getattr(self, name)}.")
        if noise_std is None:
            noise_std = 0.001 if self.weights.size <= noise_size**2 else 0.05
        noise_std = deviation(noise_std, "noise_std")
        self.linear = flag(linear, "linear")
        self.noise_std, self.init_std = noise_std, deviation(init_std, "init_std")
        self.learn_noise = flag(learn_noise, "learn_noise")
        values = dict(self.network.named_parameters())
        self.means = nn.Parameter(self.weights.join(values))
        self.log_noise = nn.Parameter(self.means.new_tensor(math.log(noise_std)), requires_grad=self.learn_noise)
        shapes = list(self.weights.shapes.values())
        self.rows = [shape[0] if len(shape) else 1 for shape in shapes]
        self.columns = [shape.numel() // max(1, rows) for shape, rows in zip(shapes, self.rows, strict=True)]
        sizes = list(zip(self.rows, self.columns, strict=True))
        self.alike = [[t for t, own in enumerate(sizes) if own == size] for size in dict.fromkeys(sizes)]
        scales = self.weights.spread(self.weights.scales(1.0, 0.1), self.means)
        self.register_buffer("scales", scales, persistent=False)
        self.log_scale = float(scales.double().log().sum())
        self.register_buffer("prior_stds", self._prior(prior_std), persistent=False)
        self._prior_std = None if prior_std is None else torch.as_tensor(prior_std, dtype=torch.float64).tolist()
        self._start(as_generator(seed, generator))

    @property
    def bounds_evidence(self) -> bool:  # type: ignore[override]
        """Whether it is a bound: with a linear generator the entropy is exact, or below it."""
        return self.linear

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws of all weights, `[n, weights]`; gradients flow."""
        return self._weights(self._features(self._noise(n, generator))[0], generator).to(self.means.dtype)

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under `samples` draws of the weights, each for the whole batch, `[samples, batch, ...]`."""
        weights = self._weights(self._features(self._pairs(generator))[0], generator)
        return self._outputs(x, weights)

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """−H[q] − E log p(θ), in nats, from `samples` draws: those that `forward` makes of the same generator."""
        features, tangents = self._features(self._pairs(generator), tangents=True)
        return self._divergence(self._weights(features, generator), tangents)

    def terms(
        self, x: Any, y: Tensor, likelihood: Likelihood, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Both terms of the same draws; see `Posterior.loss`."""
        features, tangents = self._features(self._pairs(generator), tangents=True)
        weights = self._weights(features, generator)
        return likelihood.log_prob(self._outputs(x, weights), y), self._divergence(weights, tangents)

    def entropy(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """The entropy of q linearised at each of n draws of ε, in nats, `[n]`."""
        return self._entropy(self._features(self._noise(n, generator), tangents=True)[1]).expand(n)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {
            **super().config(),
            "prior_std": self._prior_std,
            "noise_size": self.noise_size,
            "hidden": self.hidden,
            "depth": self.depth,
            "linear": self.linear,
            "entropy": self.form,
            "noise_std": self.noise_std,
            "learn_noise": self.learn_noise,
            "init_std": self.init_std,
        }

    def _start(self, generator: torch.Generator | None) -> None:
        """The generator's parameters, so that Z is of the order of 1 and the deviation of init_std · c."""
        m, h, like = self.noise_size, self.hidden, self.means
        if self.linear:
            self.left = nn.Parameter(self.init_std / m * randn((self.weights.size, m * m), like, generator))
            return
        self.lefts, self.rights, self.biases = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        for side in [m] + (self.depth - 1) * [h]:
            self.lefts.append(side**-0.5 * randn((h, side), like, generator))
            self.rights.append(side**-0.5 * randn((side, h), like, generator))
            self.biases.append(torch.zeros((h, h), dtype=like.dtype, device=like.device))
        start = math.sqrt(self.init_std / h)
        self.left = nn.Parameter(start * randn((sum(self.rows), h), like, generator))
        self.right = nn.Parameter(start * randn((sum(self.columns), h), like, generator))

    def _prior(self, value: float | Sequence[float] | Tensor | None) -> Tensor:
        """The prior's standard deviation of each weight, `[weights]`."""
        if value is None:
            return self.weights.spread(self.weights.scales(2.0, 1.0), self.means)
        return standard_deviations(value, self.means, self.weights.size, "weight").expand_as(self.means).clone()

    def _noise(self, n: int, generator: torch.Generator | None) -> Tensor:
        """ε, `[n, m, m]`."""
        return randn((n, self.noise_size, self.noise_size), self.means, generator)

    def _pairs(self, generator: torch.Generator | None) -> Tensor:
        """ε of the training draws, `[samples, m, m]`, in pairs ε and −ε: what is odd in them leaves no noise."""
        half = self._noise((self.samples + 1) // 2, generator)
        return torch.cat([half, -half])[: self.samples]

    def _features(self, z: Tensor, tangents: bool = False) -> tuple[Tensor, Tensor | None]:
        """The last Z `[n, h, h]` of noise `[n, m, m]`, and its derivatives by each number of it, `[n, d, h, h]`."""
        m = self.noise_size
        z = wide(z)
        dz = torch.eye(m * m, dtype=z.dtype, device=z.device).view(1, m * m, m, m) if tangents else None
        if self.linear:
            return z, dz
        with torch.autocast(z.device.type, enabled=False):
            for left, right, bias in zip(self.lefts, self.rights, self.biases, strict=True):
                left, right = wide(left), wide(right)
                before = left @ z @ right + wide(bias) + 1
                z = F.elu(before) - 1
                if dz is not None:
                    dz = before.clamp(max=0).exp().unsqueeze(1) * (left @ dz @ right)
        return z, dz

    def _deviations(self, z: Tensor) -> Tensor:
        """The last, linear map: `[..., h, h]` to all weights in units of c, `[..., weights]`."""
        with torch.autocast(z.device.type, enabled=False):
            if self.linear:
                return z.flatten(-2) @ wide(self.left).T.to(z)
            lefts = (wide(self.left).to(z) @ z).split(self.rows, dim=-2)
            rights = wide(self.right).to(z).split(self.columns)
            parts = [z] * len(lefts)
            for alike in self.alike:
                left, right = _stack(lefts, alike), _stack(rights, alike)
                made = (left.flatten(1, -2) @ right.mT).view(*left.shape[:-1], right.shape[-2])
                for t, part in zip(alike, made.unbind(0), strict=True):
                    parts[t] = part.flatten(-2)
            return torch.cat(parts, dim=-1)

    def _weights(self, z: Tensor, generator: torch.Generator | None) -> Tensor:
        """θ `[n, weights]` of features `[n, h, h]`, in at least single precision."""
        noise = wide(randn((len(z), len(self.means)), self.means, generator))
        return wide(self.means) + wide(self.scales) * (self._deviations(z) + wide(self.log_noise).exp() * noise)

    def _outputs(self, x: Any, weights: Tensor) -> Tensor:
        return self.calls(x, weights.to(self.means.dtype))

    def _divergence(self, weights: Tensor, tangents: Tensor | None) -> Tensor:
        prior = wide(self.prior_stds)
        log_prior = -0.5 * (weights / prior).square() - prior.log() - 0.5 * math.log(2 * math.pi)
        return -log_prior.sum(-1).mean() - self._entropy(tangents).mean()

    def _entropy(self, tangents: Tensor | None) -> Tensor:
        """Of the linearisation with derivatives `[n, d, h, h]` of the features, in nats, `[n]`; in double precision."""
        assert tangents is not None
        gram, log_noise, total = self._gram(tangents.double()), self.log_noise.double(), len(self.means)
        rank = gram.shape[-1]
        if self.form == "smallest":
            smallest = torch.linalg.eigvalsh(gram)[..., 0].clamp(min=0)
            spread = 0.5 * rank * torch.log(smallest + (2 * log_noise).exp())
        else:
            eye = torch.eye(rank, dtype=gram.dtype, device=gram.device)
            factor = torch.linalg.cholesky_ex(gram + (2 * log_noise).exp() * eye).L
            spread = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = self.log_scale + 0.5 * total * math.log(2 * math.pi * math.e)
        entropy = spread + (total - rank) * log_noise + constant
        return entropy.to(tangents.dtype)

    def _gram(self, tangents: Tensor) -> Tensor:
        """JᵀJ `[n, d, d]`, or JJᵀ `[n, D, D]` where that is smaller: the eigenvalues that are not zero are the same."""
        if len(self.means) <= tangents.shape[1]:
            jacobian = self._deviations(tangents)
            return jacobian.mT @ jacobian
        if self.linear:
            jacobian = self.left.double()
            return (jacobian.T @ jacobian).unsqueeze(0)
        lefts, rights = self.left.double().split(self.rows), self.right.double().split(self.columns)
        inner, outer = (
            torch.cat([part.mT @ part for part in (_stack(parts, alike) for alike in self.alike)])
            for parts in (lefts, rights)
        )
        flat, h = tangents.flatten(2), self.hidden
        if h > min(WIDEST, 4 * len(inner)):
            return torch.einsum("tab,ndbc,tce->ndae", inner, tangents, outer).flatten(2) @ flat.mT
        both = (inner.flatten(1).T @ outer.flatten(1)).view(h, h, h, h).permute(1, 2, 0, 3)
        return flat @ both.reshape(h * h, h * h) @ flat.mT


def _stack(parts: Sequence[Tensor], alike: list[int]) -> Tensor:
    """Those of the parts that are alike, in one tensor: one product for all of them."""
    return torch.stack([parts[t] for t in alike]) if len(alike) > 1 else parts[alike[0]].unsqueeze(0)
