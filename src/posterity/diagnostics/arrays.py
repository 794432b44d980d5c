"""What the tests on simulations take: draws, truths and data as arrays, and points that depend on the data."""

from typing import Any

import torch
from torch import Tensor

from posterity.errors import Error, short
from posterity.streams import numpy_seed

#: Simulations before the first regression of θ on x.
FIRST = 20
#: Noise of that regression, relative to the variance that x could explain.
RIDGE = 0.1


def pairs(samples: Any, truth: Any) -> tuple[Tensor, Tensor]:
    """Draws `[S, N, ...]` and truths `[N, ...]` as `[S, N, D]` and `[N, D]` of double precision."""
    samples, truth = as_array(samples, "samples"), as_array(truth, "truth")
    if truth.dim() < 1 or samples.shape[1:] != truth.shape:
        raise Error(
            f"samples of shape {tuple(samples.shape)} do not fit truth of shape {tuple(truth.shape)}: expected "
            "[draws, simulations, dimensions] and [simulations, dimensions]."
        )
    if not samples.numel():
        raise Error(f"There is nothing to test: samples of shape {tuple(samples.shape)} are empty.")
    n = len(truth)
    return samples.reshape(len(samples), n, -1), truth.reshape(n, -1)


def as_array(values: Any, name: str) -> Tensor:
    """Finite numbers on the processor, in double precision."""
    try:
        array = torch.as_tensor(values).detach().cpu().double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise Error(f"{name} must be an array of numbers; got {type(values).__name__}.") from error
    if not bool(array.isfinite().all()):
        raise Error(f"{name} holds NaN or infinite values.")
    return array


def scale(samples: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each coordinate, `[D]` each, over draws and truths together.

    Truth and draws enter alike, so that their exchangeability, on which the tests rest, survives the scaling.
    """
    everything = torch.cat([samples, truth.unsqueeze(0)]).reshape(-1, truth.shape[1])
    std = everything.std(0)
    return everything.mean(0), torch.where(std > 0, std, 1.0)


def follow(x: Any, truth: Tensor, seed: int) -> Tensor:
    """Points `[N, D]` that follow the data x `[N, ...]`, for standardised truths `[N, D]`.

    Point i is what a ridge regression of θ on x says of x_i, fitted on simulations before the i-th alone, plus half of
    a fixed random linear map of x_i to unit variance. Given x_i it is independent of θ*_i and of the draws, whatever
    came before, so that a test with these points keeps its level exactly; and it is near the truth, so that draws
    which ignore the data stand out. The map is for data that tell of θ without moving its mean.
    """
    flat = rows(x, len(truth))
    flat = flat[:, flat.std(0) > 0]
    if not flat.shape[1]:
        raise Error("x is the same in every simulation: references cannot depend on it.")
    z = (flat - flat.mean(0)) / flat.std(0)
    mapped = z @ torch.randn(z.shape[1], truth.shape[1], generator=generator(seed, 1), dtype=torch.float64)
    regressed, start = torch.zeros_like(truth), FIRST
    while start < len(z):  # refitted each time the simulations have doubled
        part = slice(start, 2 * start)
        regressed[part] = _ridge(z[:start], truth[:start], z[part])
        start *= 2
    return regressed + mapped / mapped.std(0) / 2


def _ridge(x: Tensor, y: Tensor, new: Tensor) -> Tensor:
    """x_new (xᵀx + λ)⁻¹ xᵀ y, by the smaller of the two systems."""
    n, f = x.shape
    if f <= n:
        weights: Tensor = torch.linalg.solve(x.T @ x + RIDGE * f * torch.eye(f, dtype=x.dtype), x.T @ y)
    else:
        weights = x.T @ torch.linalg.solve(x @ x.T + RIDGE * f * torch.eye(n, dtype=x.dtype), y)
    return new @ weights


def rows(x: Any, n: int) -> Tensor:
    """The data of N simulations as `[N, F]`."""
    data = as_array(x, "x")
    if data.dim() < 1 or len(data) != n:
        raise Error(f"x must hold the data of each of the {n} simulations on axis 0; got shape {tuple(data.shape)}.")
    return data.reshape(n, -1)


def generator(seed: int, purpose: int) -> torch.Generator:
    """A generator whose numbers are unlike those a user draws with the same seed."""
    return torch.Generator().manual_seed(numpy_seed(seed, 7, purpose))


def share(value: float, name: str) -> float:
    """A number between 0 and 1, or an error that names the argument."""
    if not isinstance(value, (int, float)) or not 0 < value < 1:
        raise Error(f"{name} must lie between 0 and 1; got {short(value)}.")
    return float(value)
