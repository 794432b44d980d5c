"""Networks and data that many tests share."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class ConvNet(nn.Module):
    """Two convolutions with batch statistics, and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.first(x)))
        h = h + torch.relu(self.second(h))
        return self.head(nn.functional.adaptive_avg_pool2d(h, 2).flatten(1))


def mlp(inputs: int = 5, outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


CASES = {
    "mlp": (mlp, (5,)),
    "conv": (ConvNet, (1, 6, 6)),
}
