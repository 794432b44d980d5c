"""How many of the drawn functions are distinct."""

from typing import Any

import torch
from torch import Tensor

from posterity.errors import Error
from posterity.functions import Functions
from posterity.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from posterity.outputs import outputs
from posterity.posterior import Posterior
from posterity.preparing import prepared


def effective_number(
    draws: Posterior | Functions | Tensor,
    x: Any = None,
    likelihood: Likelihood | None = None,
    *,
    generator: torch.Generator | None = None,
) -> float:
    """The effective number of distinct functions among n draws: 1 where all are the same, n where none overlap.

    This is the Vendi score (Friedman and Dieng 2023), exp(−Σ_k λ_k log λ_k), with λ the eigenvalues of K/n. K_ij is
    how far two functions agree: the overlap ∫ √(p_i(y|x) p_j(y|x)) dy of what they say of y (Bhattacharyya 1943), the
    mean over rows and outputs. It is an inner product of √p_i and √p_j with K_ii = 1, so K/n is positive and its
    eigenvalues sum to 1. Groups of m₁, m₂, ... equal functions that do not overlap count as exp(entropy of m/n). Unlike
    the spectrum of the outputs alone, it has a scale: functions that differ by much less than the noise of y are one.
    A `Gaussian` of a smaller std counts finer differences.

    Args:
        draws: n functions, their outputs `[n, batch, ...]`, or a posterior, of which its usual number is drawn.
        x: where the functions are compared; not needed with outputs.
        likelihood: how an output becomes a distribution of y; a posterior has its own.
        generator: of a posterior's draws.

    Example:
        >>> import posterity, torch
        >>> outputs = torch.tensor([0.0, 0.0, 100.0, 100.0]).view(4, 1, 1)  # four functions, two of them distinct
        >>> round(posterity.diagnostics.effective_number(outputs, likelihood=posterity.Gaussian(std=1.0)), 4)
        2.0
    """
    if isinstance(draws, Posterior):
        likelihood = draws.likelihood if likelihood is None else likelihood
        x = prepared(draws, x)
        draws = draws.draw(draws.draws, generator)
    if isinstance(draws, Functions):
        if x is None:
            raise Error("Functions are compared on some inputs: give x.")
        draws = outputs(draws, x)
    if likelihood is None:
        raise Error(
            "Functions are distinct only on some scale: give the likelihood, such as posterior.likelihood or "
            "posterity.Gaussian(std=0.1)."
        )
    if not isinstance(draws, Tensor) or draws.dim() < 2 or not draws.numel():
        raise Error("draws must be a posterior, drawn functions, or their outputs [n, batch, ...].")
    if not bool(draws.isfinite().all()):
        raise Error("The outputs hold NaN or infinite values.")
    shares = torch.linalg.eigvalsh(overlap(draws.detach().cpu().double(), likelihood) / len(draws)).clamp(min=0)
    return float(torch.special.entr(shares / shares.sum()).sum().exp())


def overlap(draws: Tensor, likelihood: Likelihood) -> Tensor:
    """∫ √(p_i(y|x) p_j(y|x)) dy, the mean over rows and outputs, `[n, n]`, of outputs `[n, batch, ...]`."""
    if isinstance(likelihood, Categorical):
        if draws.dim() < 3:
            raise Error(f"Outputs of shape {tuple(draws.shape)} have no class axis: [n, batch, classes, ...] needed.")
        draws = likelihood.by_class(draws)
        positions = draws[0].numel() // draws.shape[2]
        roots = (draws.log_softmax(2) / 2).exp().flatten(1)
        return roots @ roots.T / positions
    if isinstance(likelihood, Bernoulli):
        roots = torch.cat([draws.sigmoid().sqrt().flatten(1), (-draws).sigmoid().sqrt().flatten(1)], 1)
        return roots @ roots.T / draws[0].numel()
    if isinstance(likelihood, Gaussian):
        mean, log_std = (part.detach().flatten(1) for part in likelihood.moments(draws))
        return torch.stack([_gaussian(mean, log_std, mean[i], log_std[i]) for i in range(len(mean))])
    raise Error(f"No overlap is known for the likelihood {type(likelihood).__name__}.")


def _gaussian(mean: Tensor, log_std: Tensor, other: Tensor, other_log_std: Tensor) -> Tensor:
    """√(2σ₁σ₂/(σ₁² + σ₂²)) · exp(−(μ₁ − μ₂)²/(4(σ₁² + σ₂²))) of each pair, the mean over outputs."""
    variance = (2 * log_std).exp() + (2 * other_log_std).exp()
    ratio = (2 * (log_std + other_log_std).exp() / variance).sqrt()
    return (ratio * torch.exp(-((mean - other) ** 2) / (4 * variance))).mean(1)
