"""Problems with a known answer, shared by all methods."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

import posterity
from common import generator

DIRECTIONS = torch.tensor([[1.0, -1.0], [1.0, 1.0], [1.0, 0.0]]) / torch.tensor([[math.sqrt(2)], [math.sqrt(2)], [1.0]])


class LinearRegression(NamedTuple):
    """y = x w + noise with w ~ N(0, prior_std²): the posterior of w is Gaussian, in closed form."""

    x: Tensor  # [n, 2]
    y: Tensor  # [n, 1]
    noise: float
    prior_std: float
    mean: Tensor  # [2]
    covariance: Tensor  # [2, 2]
    mean_field: Tensor  # [2]: variances of the mean-field optimum, 1 / diag(precision)
    log_evidence: float

    def network(self) -> nn.Module:
        """The linear function, started at zero so that nothing is given away."""
        network = nn.Linear(2, 1, bias=False)
        nn.init.zeros_(network.weight)
        return network

    def exact(self) -> Tensor:
        """Posterior variances along (1,−1), (1,1) and (1,0)."""
        return torch.einsum("di,ij,dj->d", DIRECTIONS, self.covariance, DIRECTIONS)

    def factorised(self) -> Tensor:
        """Variances of the mean-field optimum along the same directions."""
        return (DIRECTIONS**2) @ self.mean_field


def correlated_regression() -> LinearRegression:
    """Two inputs with correlation 0.98, 200 points: mean field is off by more than ×10 along (1,−1)."""
    n, noise, prior_std = 200, 0.5, 1.0
    g = generator(7)
    base = torch.randn(n, 2, generator=g, dtype=torch.float64)
    x = torch.stack([base[:, 0], 0.98 * base[:, 0] + math.sqrt(1 - 0.98**2) * base[:, 1]], 1)
    y = x @ torch.tensor([[0.7], [-0.2]], dtype=torch.float64) + noise * torch.randn(
        n, 1, generator=g, dtype=torch.float64
    )
    precision = x.T @ x / noise**2 + torch.eye(2, dtype=torch.float64) / prior_std**2
    covariance = torch.linalg.inv(precision)
    mean = covariance @ (x.T @ y[:, 0]) / noise**2
    marginal = noise**2 * torch.eye(n, dtype=torch.float64) + prior_std**2 * x @ x.T
    evidence = torch.distributions.MultivariateNormal(torch.zeros(n, dtype=torch.float64), marginal).log_prob(y[:, 0])
    return LinearRegression(
        x.float(), y.float(), noise, prior_std, mean.float(), covariance.float(),
        (1 / precision.diagonal()).float(), float(evidence),
    )  # fmt: skip


def directional_moments(posterior: posterity.Posterior, draws: int = 4000) -> tuple[Tensor, Tensor]:
    """Mean and variance, over drawn functions, of w·d for each of the directions."""
    with torch.no_grad():
        values = posterior.draw(draws, generator=generator(11))(DIRECTIONS).squeeze(-1)
    return values.mean(0), values.var(0)
