"""The task that every contender is given: the same network, batch and number of draws."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZES = (784, 512, 512, 10)
ROWS, DRAWS, DATA, RATE = 256, 8, 60_000, 0.1


def network(dropout: float = 0.0, linear: Callable[[int, int], nn.Module] = nn.Linear) -> nn.Sequential:
    """784-512-512-10 with ReLU, and dropout behind it where a rate is given."""
    first, *hidden, last = SIZES
    layers: list[nn.Module] = []
    for before, after in zip((first, *hidden), hidden, strict=False):
        layers += [linear(before, after), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, linear(hidden[-1], last))


def batch() -> tuple[Tensor, Tensor]:
    """256 rows and their answers; one thread from here on."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.randn(ROWS, SIZES[0]), torch.randint(SIZES[-1], (ROWS,))


def sgd(module: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """A step of SGD in training mode."""
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    def step() -> None:
        module.train()
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def predicts(module: nn.Module, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A prediction in evaluation mode, without gradients."""

    def predict() -> Tensor:
        if module.training:
            module.eval()
        with torch.no_grad():
            return call()

    return predict


def repeated(module: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """As many passes as draws, each with draws of its own: what libraries advise that have no call for it."""
    return predicts(module, lambda: torch.stack([module(x) for _ in range(DRAWS)]))


def cross_entropy(module: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    """The loss of a plain network."""
    return lambda: F.cross_entropy(module(x), y)
