"""Memory that grows faster than the network, which peers ask for without a word."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import posterity
from common import generator, seeded
from posterity import mixtures

METHODS = posterity.methods()


class Largest(TorchDispatchMode):
    """The most numbers that any tensor holds."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return result


@pytest.mark.parametrize("name", METHODS)
def test_no_tensor_of_a_training_step_is_many_times_the_network(name):
    network = seeded(lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)))
    size = sum(p.numel() for p in network.parameters())
    posterior = METHODS[name](network, seed=0)
    x, y = torch.randn(4, 64, generator=generator()), torch.arange(4)
    posterior.loss(x, y, size=100)
    with Largest() as largest:
        posterior.loss(x, y, size=100).backward()
    assert 0 < largest.numbers <= 32 * size


def test_the_pairs_of_many_components_are_taken_in_parts(monkeypatch):
    g = generator()
    means, stds = (f(12, 500, generator=g, dtype=torch.float64) for f in (torch.randn, torch.rand))
    stds = stds + 0.1
    whole = mixtures.bhattacharyya(means, stds)
    monkeypatch.setattr(mixtures, "_PAIRWISE", 5_000)
    with Largest() as largest:
        parts = mixtures.bhattacharyya(means, stds)
    torch.testing.assert_close(parts, whole)
    assert largest.numbers <= 6_000  # all pairs at once: 72,000
