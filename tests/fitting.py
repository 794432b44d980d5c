"""What tests of training train, and how."""

import torch
from torch import nn

import posterity
from common import generator, mlp, seeded


def data(rows: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, 5, generator=generator())
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long()


def make() -> posterity.IBNN:
    return posterity.IBNN(seeded(mlp), 3, seed=0)


def fit(posterior: posterity.Posterior, **arguments):
    given = {"epochs": 3, "seed": 0, "device": "cpu", "progress": False} | arguments
    return posterity.fit(posterior, given.pop("data", data()), **given)


def same(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)
