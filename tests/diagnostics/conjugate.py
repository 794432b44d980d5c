"""A linear Gaussian problem whose posterior is known: θ ~ N(0, I), x = A θ + noise."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from common import generator


class Linear(NamedTuple):
    """The problem: x given θ is N(A θ, noise² I), so θ given x is N(gain · x, covariance)."""

    design: Tensor  # [F, D]
    noise: float
    gain: Tensor  # [D, F]
    root: Tensor  # [D, D], of the covariance

    def truths(self, n: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
        """θ* [n, D] from the prior and data x [n, F] from it."""
        truth = normal(g, n, self.design.shape[1])
        return truth, truth @ self.design.T + self.noise * normal(g, n, len(self.design))

    def draws(self, s: int, x: Tensor, g: torch.Generator, width: float = 1.0, shift: float = 0.0) -> Tensor:
        """[s, n, D] from the exact posterior, or from one of another width, or moved by some of its deviations."""
        deviation = self.root.square().sum(1).sqrt()
        return x @ self.gain.T + shift * deviation + width * normal(g, s, len(x), len(self.root)) @ self.root.T


def linear(dimensions: int = 2, features: int = 4, noise: float = 1.0) -> Linear:
    design = normal(generator(0), features, dimensions) / math.sqrt(dimensions)
    covariance = torch.linalg.inv(torch.eye(dimensions, dtype=torch.float64) + design.T @ design / noise**2)
    return Linear(design, noise, covariance @ design.T / noise**2, torch.linalg.cholesky(covariance))


def simulated(
    kind: str = "exact", seed: int = 0, n: int = 300, s: int = 100, **problem
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws [s, n, D], truth [n, D] and data [n, F]; by the exact posterior or one with a known fault."""
    g, model = generator(seed), linear(**problem)
    truth, x = model.truths(n, g)
    if kind == "prior":
        return normal(g, s, *truth.shape), truth, x
    options = {"exact": {}, "narrow": {"width": 0.7}, "wide": {"width": 1.4}, "shifted": {"shift": 0.5}}[kind]
    return model.draws(s, x, g, **options), truth, x


def normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, dtype=torch.float64)
