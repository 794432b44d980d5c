"""Normalizing flows: invertible maps of a vector whose Jacobian's determinant is known."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posterity.posterior import randn


class Couplings(nn.Module):
    """Masked affine couplings with gates (real NVP; Dinh et al. 2017, in the form of Louizos & Welling 2017).

        u ← m∘u + (1 − m)∘( u∘g + (1 − g)∘s ),   (s, a) = B tanh(A (m∘u)),   log|det| = Σ (1 − m)∘log g

    with g = sigmoid(a)^κ. The masks m alternate, so two steps change every number. One number alone has no other that
    could change it: its mask is 0 and a step is affine. The strength κ in [0, 1] of each number fades the map: at 0
    the number stays as it is.

    Args:
        size: how many numbers a vector has.
        steps: how many couplings.
        hidden: width of the hidden layer of each.
        like: the type and device of the parameters.
        backwards: the masks in the other order, as an inverse has them.
        generator: of the initialisation; gates start near 1/2 (the authors' at 0.88, where shifts hardly count) and
            shifts near 0.
    """

    masks: Tensor

    def __init__(
        self,
        size: int,
        steps: int,
        hidden: int,
        like: Tensor,
        *,
        backwards: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        masks = (torch.arange(size) + torch.arange(steps).unsqueeze(1)) % 2 * int(size > 1)
        self.register_buffer("masks", (masks.flip(0) if backwards else masks).to(like), persistent=False)
        self.inner = nn.Parameter(randn((steps, hidden, size), like, generator) / math.sqrt(size))
        self.inner_bias = nn.Parameter(like.new_zeros(steps, hidden))
        self.outer = nn.Parameter(0.1 * randn((steps, 2 * size, hidden), like, generator) / math.sqrt(hidden))
        self.outer_bias = nn.Parameter(like.new_zeros(steps, 2 * size))

    def forward(self, u: Tensor, strength: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The image of u, `[..., size]`, and the logarithm of the Jacobian's determinant, `[...]`."""
        total = u.new_zeros(u.shape[:-1])
        for mask, inner, inner_bias, outer, outer_bias in zip(
            self.masks, self.inner, self.inner_bias, self.outer, self.outer_bias, strict=True
        ):
            hidden = torch.tanh(F.linear(mask * u, inner, inner_bias))
            shift, gate = F.linear(hidden, outer, outer_bias).chunk(2, -1)
            log_gate = (1 - mask) * F.logsigmoid(gate)
            log_gate = log_gate if strength is None else strength * log_gate
            u = u * log_gate.exp() - torch.expm1(log_gate) * shift
            total = total + log_gate.sum(-1)
        return u, total
