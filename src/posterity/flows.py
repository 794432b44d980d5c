"""Normalizing flows: invertible maps of a vector whose Jacobian's determinant is known."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posterity.likelihoods import wide
from posterity.posterior import randn


class Couplings(nn.Module):
    """Masked affine couplings with gates (real NVP; Dinh et al. 2017, in the form of Louizos & Welling 2017).

        u ← m∘u + (1 − m)∘( u∘g + (1 − g)∘s ),   (s, a) = B tanh(A (m∘u)),   log|det| = Σ (1 − m)∘log g

    with g = sigmoid(a)^κ. The masks m alternate, so two steps change every number. One number alone has no other that
    could change it: its mask is 0 and a step is affine. The strength κ in [0, 1] of each number fades the map: at 0
    the number stays as it is.

    Several vectors, each with couplings of its own, go through at once, padded to the longest.

    Args:
        sizes: how many numbers each vector has.
        steps: how many couplings.
        hidden: width of the hidden layer of each.
        like: the type and device of the parameters.
        backwards: the masks in the other order, as an inverse has them.
        generator: of the initialisation; gates start near 1/2 (the authors' at 0.88, where shifts hardly count) and
            shifts near 0.
    """

    masks: Tensor
    free: Tensor
    places: Tensor
    used: Tensor

    def __init__(
        self,
        sizes: Sequence[int],
        steps: int,
        hidden: int,
        like: Tensor,
        *,
        backwards: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        count, width, total = len(sizes), max(sizes), sum(sizes)
        several = torch.tensor(sizes).unsqueeze(1)
        there = torch.arange(width) < several
        places = torch.full((count, width), total)
        places[there] = torch.arange(total)
        odd = (torch.arange(width) + torch.arange(steps).view(-1, 1, 1)) % 2
        masks = (odd.flip(0) if backwards else odd) * (several > 1) * there
        for name, value in (("masks", masks), ("free", there * (1 - masks))):
            self.register_buffer(name, value.unsqueeze(2).to(like), persistent=False)  # [steps, count, 1, width]
        for name, value in (("places", places.flatten()), ("used", there.flatten().nonzero().squeeze(1))):
            self.register_buffer(name, value.to(like.device), persistent=False)
        start = randn((steps, count, width, hidden), like, generator) / several.to(like).sqrt().unsqueeze(2)
        self.inner = nn.Parameter(start)
        self.inner_bias = nn.Parameter(like.new_zeros(steps, count, 1, hidden))
        self.outer = nn.Parameter(0.1 * randn((steps, count, hidden, 2 * width), like, generator) / math.sqrt(hidden))
        self.outer_bias = nn.Parameter(like.new_zeros(steps, count, 1, 2 * width))

    def forward(self, u: Tensor, strength: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The image of u, all vectors in a row, `[n, total]`, and the log-determinant of the Jacobian, `[n]`."""
        v = self._pad(wide(u))
        if strength is not None:
            strength = self._pad(strength.unsqueeze(0))
        total = v.new_zeros(len(u))
        steps = self.masks, self.free, self.inner, self.inner_bias, self.outer, self.outer_bias
        for mask, free, inner, inner_bias, outer, outer_bias in zip(*map(wide, steps), strict=True):
            hidden = torch.tanh(torch.baddbmm(inner_bias, mask * v, inner))
            shift, gate = torch.baddbmm(outer_bias, hidden, outer).chunk(2, -1)
            log_gate = free * F.logsigmoid(gate)
            log_gate = log_gate if strength is None else strength * log_gate
            v = v * log_gate.exp() - torch.expm1(log_gate) * shift
            total = total + log_gate.sum((0, 2))
        return v.transpose(0, 1).flatten(1).index_select(1, self.used).to(u.dtype), total

    def _pad(self, u: Tensor) -> Tensor:
        """`[n, total]` as `[vectors, n, width]`."""
        padded = F.pad(u, (0, 1)).index_select(1, self.places)
        return padded.unflatten(1, (self.masks.shape[1], -1)).transpose(0, 1)


def groups(sizes: Sequence[int]) -> list[list[int]]:
    """Sizes in descending order, cut so that padding within a part makes it at most four times as large."""
    parts: list[list[int]] = []
    for size in sizes:
        if parts and (len(parts[-1]) + 1) * parts[-1][0] <= 4 * (sum(parts[-1]) + size):
            parts[-1].append(size)
        else:
            parts.append([size])
    return parts
