"""Scenarios whose posterior is known: in closed form, by an integral over two weights, or from long NUTS chains.

Each is a network, data, a likelihood with nothing to learn, the prior N(0, prior_std²) of every weight, a grid of
inputs and what is known of the functions there (`distances.Reference`).
"""

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from distances import BINS, Reference
from torch import Tensor, nn

import posterity
from common import generator, seeded

CHAINS = Path(__file__).parent / "nuts.npz"


@dataclass(frozen=True, eq=False)
class Known:
    """A scenario.

    Args:
        name: of the scenario.
        x: inputs, `[n, inputs]`, and `y` answers, `[n, 1]`.
        make: builds the network, freshly initialised.
        likelihood: builds the likelihood.
        prior_std: of every weight, around `prior_mean`.
        grid: inputs, `[grid, inputs]`, at which functions are compared.
        reference: what is known of f there.
        log_evidence: log p(y | x), where it is known.
        chains: what is recorded with chains.
    """

    name: str
    x: Tensor
    y: Tensor
    make: Callable[[], nn.Module]
    likelihood: Callable[[], posterity.Likelihood]
    prior_std: float
    grid: Tensor
    reference: Reference
    log_evidence: float | None = None
    prior_mean: float = 0.0
    chains: dict[str, Any] = field(default_factory=dict)

    def network(self, seed: int = 0) -> nn.Module:
        """The network, initialised by torch's own rules."""
        return seeded(self.make, seed)

    def log_joint(self, flat: Tensor) -> Tensor:
        """log p(y, w | x) of weights `[..., weights]`, in the order of the network's parameters: `[...]`."""
        network = self.make().to(flat.dtype)
        shapes = {name: p.shape for name, p in network.named_parameters()}
        x, y, likelihood = self.x.to(flat.dtype), self.y.to(flat.dtype), self.likelihood()

        def one(w: Tensor) -> Tensor:
            parts = w.split([shape.numel() for shape in shapes.values()])
            weights = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
            out = torch.func.functional_call(network, weights, (x,))
            prior = -0.5 * ((w - self.prior_mean) / self.prior_std).square() - math.log(
                self.prior_std * math.sqrt(2 * math.pi)
            )
            return likelihood.log_prob(out.unsqueeze(0), y).sum() + prior.sum()

        found = torch.func.vmap(one)(flat.reshape(-1, flat.shape[-1])) if flat.dim() > 1 else one(flat)
        return found.view(flat.shape[:-1])


class Abs(nn.Module):
    """|h|."""

    def forward(self, h: Tensor) -> Tensor:
        return h.abs()


def _away_from_zero() -> nn.Module:
    """|w·x| with weights of either sign between ½ and 1 at the start: at 0 is the ridge between its humps."""
    network = _two_weights(Abs)()
    weight = network[0].weight  # type: ignore[index]
    with torch.no_grad():
        weight.copy_(weight.sign() * (0.5 + 0.5 * torch.rand_like(weight)))
    return network


def _two_weights(activation: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """f(x) = activation(w·x), `[batch, 2]` → `[batch, 1]`."""
    return lambda: nn.Sequential(nn.Linear(2, 1, bias=False), activation())


def _directions(n: int) -> Tensor:
    """Unit vectors over half a circle, `[n, 2]`; f is odd or even in x, so the other half says the same."""
    angle = torch.arange(n, dtype=torch.float64) * (math.pi / n)
    return torch.stack([angle.cos(), angle.sin()], 1).float()


@functools.cache
def linear() -> Known:
    """y = w·x + noise, inputs with correlation 0.9: the posterior is Gaussian, in closed form."""
    n, noise, prior_std, g = 24, 1.0, 0.5, generator(7)
    base = torch.randn(n, 2, generator=g, dtype=torch.float64)
    x = torch.stack([base[:, 0], 0.9 * base[:, 0] + math.sqrt(1 - 0.9**2) * base[:, 1]], 1).float().double()
    y = (x @ torch.tensor([0.7, -0.2], dtype=torch.float64) + noise * torch.randn(n, generator=g).double()).float()
    precision = x.T @ x / noise**2 + torch.eye(2, dtype=torch.float64) / prior_std**2
    covariance = torch.linalg.inv(precision)
    mean = covariance @ (x.T @ y.double()) / noise**2
    marginal = noise**2 * torch.eye(n, dtype=torch.float64) + prior_std**2 * x @ x.T
    evidence = torch.distributions.MultivariateNormal(torch.zeros(n, dtype=torch.float64), marginal).log_prob(y)
    grid = _directions(12)
    along = grid.double()
    centre, variance = along @ mean, torch.einsum("gi,ij,gj->g", along, covariance, along)
    at = torch.arange(1, BINS, dtype=torch.float64) / BINS
    edges = centre + variance.sqrt() * torch.special.ndtri(at).unsqueeze(1)
    nodes = torch.linspace(-8, 8, 801, dtype=torch.float64).unsqueeze(1)
    yes = (torch.softmax(-0.5 * nodes**2, 0) * (centre + variance.sqrt() * nodes).sigmoid()).sum(0)
    reference = Reference(edges.numpy(), centre.numpy(), variance.numpy(), yes.numpy())
    return Known(
        "linear", x.float(), y.unsqueeze(1), _two_weights(nn.Identity), lambda: posterity.Gaussian(std=noise),
        prior_std, grid, reference, float(evidence),
    )  # fmt: skip


@functools.cache
def logistic() -> Known:
    """p(y = 1) = σ(w·x), 20 data with correlated inputs: a posterior that is oblique and has a long tail."""
    n, g = 20, generator(3)
    base = torch.randn(n, 2, generator=g)
    x = torch.stack([base[:, 0], 0.9 * base[:, 0] + math.sqrt(1 - 0.9**2) * base[:, 1]], 1)
    y = (torch.rand(n, generator=g) < (x @ torch.tensor([2.5, -1.0])).sigmoid()).float().unsqueeze(1)
    return integrated("logistic", x, y, _two_weights(nn.Identity), posterity.Bernoulli, 2.0, edge=12.0)


@functools.cache
def signs() -> Known:
    """y = |w·x| + noise, seen along both axes: they tell |w₁| and |w₂|, but not whether the signs are the same.

    Along (1, 1) the function is |w₁ + w₂|: two humps, far apart, of the same mass. In the weights there are four.
    """
    n, noise, g = 16, 0.3, generator(5)
    x = torch.eye(2).repeat(n // 2, 1)
    y = (x @ torch.tensor([[1.5], [1.2]])) + noise * torch.randn(n, 1, generator=g)
    return integrated("signs", x, y, _away_from_zero, lambda: posterity.Gaussian(std=noise), 1.5, edge=5.0)


def integrated(
    name: str,
    x: Tensor,
    y: Tensor,
    make: Callable[[], nn.Module],
    likelihood: Callable[[], posterity.Likelihood],
    prior_std: float,
    edge: float,
    prior_mean: float = 0.0,
    cells: int = 800,
) -> Known:
    """A scenario of two weights, by the trapezoidal rule on a square lattice of half-width `edge`.

    The lattice is turned, so that its nodes have different values of w·x for the grid's x: their quantiles are smooth.
    The rule's error falls faster than any power of the spacing for smooth densities that vanish at the border.
    """
    grid = _directions(12)
    at = torch.linspace(-edge, edge, cells + 1, dtype=torch.float64)
    turn = torch.tensor([[math.cos(0.7), -math.sin(0.7)], [math.sin(0.7), math.cos(0.7)]], dtype=torch.float64)
    nodes = torch.cartesian_prod(at, at) @ turn.T
    known = Known(name, x, y, make, likelihood, prior_std, grid, Reference(*[np.zeros(0)] * 4), prior_mean=prior_mean)
    log = torch.cat([known.log_joint(part) for part in nodes.split(50_000)])
    log_evidence = float(log.logsumexp(0) + 2 * math.log(2 * edge / cells))
    kept = log > log.max() - 30
    nodes, weights = nodes[kept], torch.softmax(log[kept], 0)
    network = make().double()
    with torch.no_grad():
        values = torch.cat(
            [network[1](part @ grid.double().T) for part in nodes.split(50_000)]  # type: ignore[index]
        )
    reference = Reference.weighted(values.numpy(), weights.numpy())
    return Known(name, x, y, make, likelihood, prior_std, grid, reference, log_evidence, prior_mean)


@functools.cache
def network() -> Known:
    """A small tanh network on one input, seen on both sides of a gap: from the NUTS chains of `benchmarks/nuts.py`."""
    with np.load(CHAINS) as file:
        stored = {key: file[key] for key in file.files}
    record = json.loads(str(stored.pop("record")))
    x, y, grid = (torch.from_numpy(stored[key]).unsqueeze(1) for key in ("x", "y", "grid"))
    hidden, noise = record["hidden"], record["noise"]

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    draws = stored["draws"].astype(np.float64)
    reference = Reference.weighted(draws, np.ones(len(draws)), draws=len(draws))
    return Known(
        "network", x, y, make, lambda: posterity.Gaussian(std=noise), record["prior_std"], grid, reference,
        chains={**record, "draws": draws},
    )  # fmt: skip


SCENARIOS: dict[str, Callable[[], Known]] = {
    "linear": linear,
    "logistic": logistic,
    "signs": signs,
    "network": network,
}


class Optimum(NamedTuple):
    """The best Gaussian q(w) = N(mean, covariance) of a scenario of two weights, and its bound of the evidence."""

    mean: Tensor
    covariance: Tensor
    bound: float


def gaussian_optimum(known: Known, start: Tensor, full: bool) -> Optimum:
    """The Gaussian that maximises the bound, factorised or `full`, from integrals over w·x: no draws, no training.

    Of several local optima it is that near `start`, `[2]`.
    """
    x, y, likelihood, activation = known.x.double(), known.y.double(), known.likelihood(), known.make()[1]  # type: ignore[index]
    nodes = torch.linspace(-9, 9, 1201, dtype=torch.float64)
    density = torch.softmax(-0.5 * nodes**2, 0)
    mean = start.double().clone().requires_grad_()
    scales = torch.full((2,), math.log(0.2), dtype=torch.float64, requires_grad=True)
    below = torch.zeros((), dtype=torch.float64, requires_grad=full)

    def factor() -> Tensor:
        return torch.diag(scales.exp()) + below * torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)

    def bound() -> Tensor:
        root = factor()
        h = x @ mean + (x @ root).norm(dim=1) * nodes.unsqueeze(1)
        expected = (density.unsqueeze(1) * likelihood.log_prob(activation(h).unsqueeze(-1), y)).sum()
        squares = (mean.square().sum() + root.square().sum()) / known.prior_std**2
        return expected - 0.5 * squares + 1 + scales.sum() - 2 * math.log(known.prior_std)

    optimizer = torch.optim.LBFGS(
        [mean, scales, below] if full else [mean, scales], max_iter=300, tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -bound()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        root = factor()
        return Optimum(mean.detach(), root @ root.T, float(bound()))
