"""A posterior of two weights that is curved: known on a grid, and out of reach of a factorised Gaussian.

y = a + b² + noise with a, b ~ N(0, 1), seen n times with mean 0: the weights lie along the parabola a = −b².
"""

import torch
from torch import Tensor, nn

import posterity
from common import generator

NOISE, N, EDGE, CELLS = 0.5, 20, 3.2, 64
#: Data of mean zero, whose spread adds a constant to the log-likelihood.
X = torch.ones(N, 1)
Y = NOISE * torch.linspace(-1.7, 1.7, N).unsqueeze(1)


class Parabola(nn.Module):
    """f(x) = x · (a + b²): `[batch, 1]` → `[batch, 1]`. Started at zero, the flat vector is (a, b)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.a + self.b**2)


def likelihood() -> posterity.Gaussian:
    return posterity.Gaussian(std=NOISE)


def exact() -> Tensor:
    """The posterior's probability of each cell of the grid over (a, b) in [−3.2, 3.2]², `[cells, cells]`."""
    fine = 8
    at = (torch.arange(CELLS * fine, dtype=torch.float64) + 0.5) * (2 * EDGE / CELLS / fine) - EDGE
    a, b = at.unsqueeze(1), at
    log = -0.5 * (a**2 + b**2) - 0.5 * N / NOISE**2 * (a + b**2) ** 2
    cells = (log - log.max()).exp().view(CELLS, fine, CELLS, fine).sum((1, 3))
    return cells / cells.sum()


def mean_field() -> Tensor:
    """The cells' probabilities under the factorised Gaussian of least KL(q ‖ posterior), in closed form: E b⁴ = 3σ⁴ …

    Of its two mirror images in b (where it has two) one is taken: a factorised Gaussian has one hump.
    """
    best = None
    for start in (0.0, 0.7):
        mean = torch.tensor([-0.2, start], dtype=torch.float64, requires_grad=True)
        log_std = torch.full((2,), -1.0, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([mean, log_std], max_iter=500, line_search_fn="strong_wolfe")

        def objective(mean: Tensor = mean, log_std: Tensor = log_std) -> Tensor:
            (m, k), (s2, t2) = mean, (2 * log_std).exp()
            square = k**2 + t2
            fourth = k**4 + 6 * k**2 * t2 + 3 * t2**2
            misfit = m**2 + s2 + 2 * m * square + fourth
            return 0.5 * (m**2 + s2 + square) + 0.5 * N / NOISE**2 * misfit - log_std.sum()

        def closure(objective=objective, optimizer=optimizer):  # type: ignore[no-untyped-def]
            optimizer.zero_grad()
            value = objective()
            value.backward()
            return value

        optimizer.step(closure)
        value = float(objective().detach())
        if best is None or value < best[0]:
            best = (value, mean.detach(), log_std.detach().exp())
    assert best is not None
    edges = torch.linspace(-EDGE, EDGE, CELLS + 1, dtype=torch.float64)
    cdf = torch.special.ndtr((edges.unsqueeze(1) - best[1]) / best[2]).diff(dim=0)
    return cdf[:, :1] * cdf[:, 1]


def histogram(posterior: posterity.Posterior, draws: int = 40_000) -> Tensor:
    """The share of a weight posterior's draws in each cell; draws outside of the grid are in none."""
    with torch.no_grad():
        w = posterior.sample(draws, generator(5)).double()  # type: ignore[operator]
    index = ((w + EDGE) * (CELLS / (2 * EDGE))).floor().long()
    index = index[((index >= 0) & (index < CELLS)).all(1)]
    return torch.bincount(index[:, 0] * CELLS + index[:, 1], minlength=CELLS**2).view(CELLS, CELLS).double() / draws


def total_variation(p: Tensor, q: Tensor) -> float:
    """½ Σ |p − q| over the cells and the one outside of them."""
    return 0.5 * float((p - q).abs().sum() + (p.sum() - q.sum()).abs())


def sampling_error(draws: int = 40_000) -> float:
    """What a histogram of exact draws would show, on average: ½ Σ √(2 p / (π draws))."""
    return 0.5 * float((2 * exact() / (torch.pi * draws)).sqrt().sum())
