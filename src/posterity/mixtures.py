"""Mixtures of K diagonal Gaussians with equal weights: how far they are from a Gaussian prior.

Throughout, `means` and `stds` are `[K, nodes]`, the prior is N(1, s²) for each node with `prior_std` a 0-d tensor or
`[nodes]`, and results are nats summed over nodes (0-d).

`mixture_mean_kl`: KL of the average of one draw per component (Trinh et al. 2020, eq. 22–24). It is 0 at σ_k = s√K
with means that average to 1, charges nothing for the spread of the means, and bounds nothing.

`bound`: cross-entropy to the prior less the pairwise Bhattacharyya lower bound of the entropy (Kolchinsky & Tracey
2017): an upper bound of the mixture's own divergence. Rewards σ_k = s and means near 1, but up to log K for being
apart.

`mean_of_kls`: the mean over components of their divergences: an upper bound too, looser by up to log K. Rewards σ_k = s
and every mean at 1; being apart earns nothing.

`monte_carlo_kl`: the mixture's own divergence, without bias, with noise.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from posterity.posterior import randn

LOG_2PI = math.log(2 * math.pi)
_SMALL = 1_000_000  # numbers of which all pairs of components are kept at once
_PAIRWISE = 4_000_000  # numbers in a tensor of all pairs of components, at most


def gaussian_kl(mean: Tensor, std: Tensor, prior_std: Tensor) -> Tensor:
    """KL(N(mean, std²) ‖ N(1, s²)) of every node."""
    ratio = std / prior_std
    return 0.5 * (ratio**2 - 1 + ((mean - 1) / prior_std) ** 2) - torch.log(ratio)


def mixture_mean_kl(means: Tensor, stds: Tensor, prior_std: Tensor) -> Tensor:
    """KL of N(mean_k μ_k, Σ_k σ_k²/K²), the law of the average of one draw per component."""
    std = (stds**2).sum(0).sqrt() / len(stds)
    return gaussian_kl(means.mean(0), std, prior_std).sum()


def mean_of_kls(means: Tensor, stds: Tensor, prior_std: Tensor) -> Tensor:
    """(1/K) Σ_k KL(N_k ‖ prior)."""
    return gaussian_kl(means, stds, prior_std).sum() / len(means)


def cross_entropy(means: Tensor, stds: Tensor, prior_std: Tensor) -> Tensor:
    """−E_q log N(z; 1, s²)."""
    terms = 0.5 * LOG_2PI + torch.log(prior_std) + ((means - 1) ** 2 + stds**2) / (2 * prior_std**2)
    return terms.sum() / len(means)


def bhattacharyya(means: Tensor, stds: Tensor) -> Tensor:
    """Pairwise distances `[K, K]`: ¼ Σ (μ_i − μ_j)²/(σ_i² + σ_j²) + ½ Σ log((σ_i² + σ_j²)/(2 σ_i σ_j))."""
    total = means.new_zeros(len(means), len(means))
    step = max(1, _PAIRWISE // len(means) ** 2)
    for mean, std in zip(means.split(step, 1), stds.split(step, 1), strict=True):
        square = std**2
        variance = square.unsqueeze(0) + square.unsqueeze(1)
        distance = (mean.unsqueeze(0) - mean.unsqueeze(1)) ** 2
        # The logarithm of each ratio: sums of the parts' logarithms would differ by more than their difference.
        spread = (variance / (2 * std.unsqueeze(0) * std.unsqueeze(1))).log()
        total = total + (0.25 * distance / variance + 0.5 * spread).sum(2)
    return total


def entropy_bound(means: Tensor, stds: Tensor) -> Tensor:
    """A lower bound of the mixture's entropy: mean_k H(N_k) − mean_i log (1/K) Σ_j exp(−BD_ij)."""
    return _own_entropy(stds) + _apart(means, stds)


def _own_entropy(stds: Tensor) -> Tensor:
    """mean_k H(N_k)."""
    return (torch.log(stds) + 0.5 * (1 + LOG_2PI)).sum() / len(stds)


def _apart(means: Tensor, stds: Tensor) -> Tensor:
    """What components add to the entropy by being apart, −mean_i log (1/K) Σ_j exp(−BD_ij): from 0 to log K."""
    k = len(means)
    if k == 1:
        return means.new_zeros(())
    return (math.log(k) - torch.logsumexp(-bhattacharyya(means, stds), dim=1)).mean()


def _joined(means: Tensor, stds: Tensor, prior_std: Tensor, weight: float, apart: Tensor) -> Tensor:
    """`bound` of its parts: near the prior divergences keep the digits that entropies lose to each other."""
    joined = mean_of_kls(means, stds, prior_std) - weight * apart
    return joined if weight == 1 else joined + (1 - weight) * _own_entropy(stds)


def bound(means: Tensor, stds: Tensor, prior_std: Tensor, weight: float = 1.0) -> Tensor:
    """The cross-entropy less `weight` times a lower bound of the entropy: with 1 an upper bound of KL(q ‖ prior)."""
    k, nodes = means.shape
    if k == 1 or k * k * nodes > _SMALL or torch.compiler.is_compiling():
        return _joined(means, stds, prior_std, weight, _apart(means, stds))
    return _Bound.apply(means, stds, prior_std, weight)  # type: ignore[no-any-return]


class _Bound(torch.autograd.Function):
    """`bound` with its gradient in closed form: for small networks the steps of autograd cost more than the sums."""

    @staticmethod
    def forward(ctx: Any, means: Tensor, stds: Tensor, prior_std: Tensor, weight: float) -> Tensor:
        k = len(means)
        square, precision, offset = stds**2, prior_std**-2 / k, means - 1
        variance, difference = square.unsqueeze(1) + square, means.unsqueeze(1) - means
        inverse = variance.reciprocal()
        ratio = difference * inverse
        spread = (variance / ((2 * stds).unsqueeze(1) * stds)).log()  # of the ratio, as in `bhattacharyya`
        away = -(0.25 * (difference * ratio) + 0.5 * spread).sum(2)
        near = away.softmax(1)
        pull = ((near + near.T) / k).unsqueeze(1)
        by_mean = torch.bmm(pull, ratio).squeeze(1)
        by_square = torch.bmm(pull, inverse - 0.5 * ratio**2).squeeze(1)
        by_log = 1 / k - 0.5 * pull.sum(2)
        ctx.save_for_backward(
            offset * precision - (0.5 * weight) * by_mean,
            stds * (precision - weight * by_square) - weight * by_log / stds,
        )
        return _joined(means, stds, prior_std, weight, (math.log(k) - away.logsumexp(1)).mean())

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[override]
        by_mean, by_std = ctx.saved_tensors
        return g * by_mean, g * by_std, None, None


def log_density(z: Tensor, means: Tensor, stds: Tensor) -> Tensor:
    """log q(z) for z `[n, nodes]` → `[n]`."""
    terms = [
        (-0.5 * ((z - mean) / std) ** 2 - torch.log(std) - 0.5 * LOG_2PI).sum(-1)
        for mean, std in zip(means, stds, strict=True)
    ]
    return torch.logsumexp(torch.stack(terms), dim=0) - math.log(len(means))


def monte_carlo_kl(
    means: Tensor, stds: Tensor, prior_std: Tensor, draws: int = 1, generator: torch.Generator | None = None
) -> Tensor:
    """E_q[log q(z) − log p(z)] with `draws` samples of each component."""
    noise = randn((draws, *means.shape), means, generator)
    z = (means + stds * noise).flatten(0, 1)
    prior = (-0.5 * ((z - 1) / prior_std) ** 2 - torch.log(prior_std) - 0.5 * LOG_2PI).sum(-1)
    return (log_density(z, means, stds) - prior).mean()
