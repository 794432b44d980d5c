"""The largest norm of the gradient of networks that are trained side by side: each has its own."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def clip_members(members: nn.Parameter, shared: Iterable[nn.Parameter], norm: float) -> None:
    """Clip each member's gradient to a norm, as `clip_grad_norm_` would if it were trained alone.

    Args:
        members: `[members, ...]`, whose gradient is of the sum of the members' losses.
        shared: parameters that all members have in common; of their gradient each member has an equal part.
        norm: the largest.
    """
    own: Any = members.grad
    common = [p.grad for p in shared if p.grad is not None]
    squares = _whole(own.square().flatten(1).sum(1))
    for gradient in common:
        squares = squares + _whole(gradient.square().sum()) / len(squares) ** 2
    factors = (norm / (squares.sqrt() + 1e-6)).clamp(max=1)
    for gradient in common:
        gradient.mul_(float(factors.mean()) if hasattr(gradient, "full_tensor") else factors.mean())
    if hasattr(own, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor

        factors = distribute_tensor(factors, own.device_mesh, own.placements)
    own.mul_(factors.reshape(-1, *[1] * (own.dim() - 1)))


def _whole(value: Any) -> Tensor:
    """A tensor whose parts are in several processes, whole."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value
