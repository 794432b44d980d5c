"""Networks that generate the weights of another network: noise in, a flat vector of weights out.

A `Generator` cuts the flat vector into blocks, and a block into rows of equal width; all rows of a block come from one
small network, which is told by a code which row it makes:

    u_r(z) = V h(z, c_r) + b,   V: [width, features]

Whether there is one block or one for every tensor, and how long the rows are, is what the layouts differ in.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posterity.posterior import one_of, randn

LAYOUTS = ("chunked", "single", "sliced", "tensor")
SLOPE = 0.1


class Block(nn.Module):
    """`rows` pieces of equal `width`, of which the first `length` weights are used; a subclass gives the trunk.

    Args:
        length: weights that are used: more than (rows − 1) · width.
        rows: pieces, each with a code of its own.
        features: width of the last hidden layer, and `power` the mean square of its features at the start.
        spread: root mean square of the outputs at the start.
        like: a tensor of the wanted type and device.
        generator: of the initialisation.
    """

    def __init__(
        self,
        length: int,
        rows: int,
        features: int,
        power: float,
        spread: float,
        like: Tensor,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.length, self.rows, self.width = length, rows, -(-length // rows)
        self.head = _normal((self.width, features), spread / math.sqrt(power * features), like, generator)
        self.bias = nn.Parameter(torch.zeros_like(self.head[:, 0]))

    def trunk(self, z: Tensor, tangents: bool) -> tuple[Tensor, Tensor | None]:
        """The last hidden layer `[n, rows, features]` and, where wanted, its tangents `[n, rows, noise, features]`."""
        raise NotImplementedError

    def forward(self, z: Tensor) -> Tensor:
        """Weights `[n, length]` of noise `[n, 1 or rows, noise]`."""
        return self.weights_of(self.trunk(z, False)[0])

    def weights_of(self, features: Tensor) -> Tensor:
        """Weights `[n, length]` of the last hidden layer `[n, rows, features]`."""
        return F.linear(features, self.head, self.bias).flatten(1)[:, : self.length]

    def gram(self, z: Tensor) -> Tensor:
        """J_rᵀ J_r of each row's weights with respect to z, `[n, rows, noise, noise]`, in double precision.

        With J_r = V T_r, T_r the tangents of the last hidden layer, it is T_rᵀ (Vᵀ V) T_r: the Jacobian of the weights
        themselves is never formed.
        """
        tangents, head = _double(self.trunk(z, True)[1]), _double(self.head)
        square = (tangents @ (head.T @ head)) @ tangents.mT
        surplus = self.rows * self.width - self.length
        if not surplus:
            return square
        unused = tangents[:, -1] @ head[self.width - surplus :].T
        last = square[:, -1] - unused @ unused.mT
        return torch.cat([square[:, :-1], last.unsqueeze(1)], 1)


class Plain(Block):
    """The paper's: [z, one-hot code] through LeakyReLU layers (slope 0.1) of the widths `hidden`."""

    def __init__(
        self, length: int, rows: int, noise: int, hidden: Sequence[int], spread: float, like: Tensor,
        generator: torch.Generator | None,
    ) -> None:  # fmt: skip
        keep = (1 + SLOPE**2) / 2
        super().__init__(length, rows, hidden[-1], keep, spread, like, generator)
        self.entry = _normal((hidden[0], noise), math.sqrt(0.5 / max(noise, 1)), like, generator)
        self.codes = _normal((rows, hidden[0]), math.sqrt(0.5), like, generator)
        self.weights = nn.ParameterList(
            _normal((after, before), 1 / math.sqrt(keep * before), like, generator)
            for before, after in itertools.pairwise(hidden)
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros_like(w[:, 0])) for w in self.weights)

    def trunk(self, z: Tensor, tangents: bool) -> tuple[Tensor, Tensor | None]:
        """LeakyReLU layers; a one-hot code picks a row of the first layer's weights."""
        before, t = F.linear(z, self.entry) + self.codes, self.entry.T
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if tangents:
                t = F.linear(t * _slope(before).unsqueeze(-2), weight)
            before = F.linear(F.leaky_relu(before, SLOPE), weight, bias)
        return F.leaky_relu(before, SLOPE), t * _slope(before).unsqueeze(-2) if tangents else None

    @staticmethod
    def trunks(blocks: Sequence["Plain"], z: Tensor) -> Iterable[Tensor]:
        """The last hidden layer `[n, 1, features]` of each of some blocks of one row, of z `[n, 1 or blocks, noise]`.

        All at once: for dozens of tensors, starting small products one by one takes longer than to compute them.
        """
        stacked = [torch.stack(same) for same in zip(*([*b.weights, *b.biases] for b in blocks), strict=True)]
        entry, codes = torch.stack([b.entry for b in blocks]), torch.stack([b.codes for b in blocks])
        columns = z.permute(1, 2, 0).expand(len(blocks), -1, -1)  # gradients of stacked weights then lie as these do
        before = torch.baddbmm(codes.mT, entry, columns)
        depth = len(stacked) // 2
        for weight, bias in zip(stacked[:depth], stacked[depth:], strict=True):
            before = torch.baddbmm(bias.unsqueeze(2), weight, F.leaky_relu(before, SLOPE))
        return F.leaky_relu(before, SLOPE).mT.contiguous().unsqueeze(2).unbind(0)


class Residual(Block):
    """Linear in z at the start, and smooth: a = (E z) ∘ (1 + G c_r) + C c_r,   h = a + B tanh(A a + b).

    A code scales and shifts the noise of its row. Nothing folds the noise over unless the data ask for it, which is
    where a Jacobian tells the truth about an entropy.
    """

    def __init__(
        self, length: int, rows: int, noise: int, hidden: Sequence[int], codes: int, spread: float, like: Tensor,
        generator: torch.Generator | None,
    ) -> None:  # fmt: skip
        features, inner = hidden[0], hidden[-1]
        super().__init__(length, rows, features, 2.3, spread, like, generator)
        self.entry = _normal((features, noise), math.sqrt(1 / max(noise, 1)), like, generator)
        self.codes = _normal((rows, codes), 1.0, like, generator)
        self.gain = _normal((features, codes), math.sqrt(1 / codes), like, generator)
        self.shift = _normal((features, codes), 0.5 * math.sqrt(1 / codes), like, generator)
        self.inner = _normal((inner, features), 0.5 * math.sqrt(1 / features), like, generator)
        self.offset = _normal((inner,), 0.5, like, generator)
        self.outer = _normal((features, inner), 0.5 * math.sqrt(1 / inner), like, generator)

    def trunk(self, z: Tensor, tangents: bool) -> tuple[Tensor, Tensor | None]:
        """A scaled and shifted linear map of z with one residual layer."""
        gain = 1 + F.linear(self.codes, self.gain)
        a = F.linear(z, self.entry) * gain + F.linear(self.codes, self.shift)
        h = torch.tanh(F.linear(a, self.inner, self.offset))
        out = a + F.linear(h, self.outer)
        if not tangents:
            return out, None
        t = self.entry.T * gain.unsqueeze(-2)
        return out, t + F.linear(F.linear(t, self.inner) * (1 - h**2).unsqueeze(-2), self.outer)


class Generator(nn.Module):
    """All weights `[n, weights]` from noise `[n, sites, noise]`, in one of four layouts.

    Args:
        shapes: of the weight tensors, in the order of the flat vector.
        layout: "chunked": the flat vector in chunks, learned codes, one network; "single": the same with one-hot codes
            (Pawlowski et al.'s "one for all"); "sliced": a network for each tensor, which makes it by its first axis
            (output channels; vectors in one piece); "tensor": a network for each tensor, which makes it at once.
        noise: size of z.
        shared: one z for all of them; else one for each tensor, or for each chunk where the network makes chunks.
        hidden: widths of the hidden layers.
        codes: size of a learned code.
        chunk: longest chunk; None for 4 √weights, where codes and the head have about the same work.
        spread: root mean square of the outputs at the start.
        like: a tensor of the wanted type and device.
        generator: of the initialisation.
    """

    def __init__(
        self,
        shapes: Iterable[torch.Size],
        layout: str,
        *,
        noise: int,
        shared: bool,
        hidden: Sequence[int],
        codes: int,
        chunk: int | None,
        spread: float,
        like: Tensor,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        one_of(layout, LAYOUTS, "layout")
        shapes = list(shapes)
        self.noise, self.shared = noise, shared
        sizes = [shape.numel() for shape in shapes]
        if layout in ("chunked", "single"):
            cuts = [_cut(sum(sizes), math.ceil(4 * math.sqrt(sum(sizes))) if chunk is None else chunk)]
        else:
            cuts = [(n, s[0] if layout == "sliced" and len(s) > 1 else 1) for n, s in zip(sizes, shapes, strict=True)]
        self.blocks = nn.ModuleList(
            Residual(length, rows, noise, hidden, codes, spread, like, generator)
            if layout == "chunked"
            else Plain(length, rows, noise, hidden, spread, like, generator)
            for length, rows in cuts
        )
        self.rows = sum(rows for _, rows in cuts)
        self.by_row = layout in ("chunked", "single")
        self.sites = 1 if shared else cuts[0][1] if self.by_row else len(cuts)
        self.together = layout == "tensor" and len(cuts) > 1

    def forward(self, z: Tensor) -> Tensor:
        """Weights `[n, weights]` of noise `[n, sites, noise]`."""
        if self.together:
            trunks = Plain.trunks(list(self.blocks), z)  # type: ignore[arg-type]
            made = [block.weights_of(h) for block, h in zip(self.blocks, trunks, strict=True)]  # type: ignore[operator]
        else:
            made = [block(part) for block, part in self._parts(z)]
        return torch.cat(made, 1)

    def per_weight(self, values: Tensor) -> Tensor:
        """Values of the rows `[rows]` as values of the weights `[weights]`."""
        parts = values.split([block.rows for block in self.blocks])  # type: ignore[misc]
        return torch.cat(
            [
                part.repeat_interleave(block.width)[: block.length]
                for part, block in zip(parts, self.blocks, strict=True)
            ]  # type: ignore[arg-type,misc]
        )

    def log_volume(self, z: Tensor, std: Tensor) -> Tensor:
        """½ log det(I + Jᵀ Σ⁻¹ J), `[n]`: what z adds to the entropy of u(z) + σ η.

        J is the Jacobian of the weights with respect to z, σ = `std`, one for each row, `[rows]`.
        """
        parts = _double(std).pow(-2).split([block.rows for block in self.blocks])  # type: ignore[misc]
        grams = [
            block.gram(noise) * inverse.view(-1, 1, 1)
            for (block, noise), inverse in zip(self._parts(z), parts, strict=True)
        ]
        if self.shared:
            squares = torch.stack([gram.sum(1) for gram in grams]).sum(0).unsqueeze(1)
        else:
            squares = grams[0] if self.by_row else torch.stack([gram.sum(1) for gram in grams], 1)
        eye = torch.eye(self.noise, dtype=squares.dtype, device=squares.device)
        factor = torch.linalg.cholesky_ex(eye + squares).L  # without a wait for the device
        return factor.diagonal(dim1=-2, dim2=-1).log().sum((-1, -2))

    def _parts(self, z: Tensor) -> list[tuple[Block, Tensor]]:
        whole = self.shared or self.by_row
        parts = [z] * len(self.blocks) if whole else z.split(1, 1)
        return list(zip(self.blocks, parts, strict=True))  # type: ignore[arg-type]


def _cut(length: int, longest: int) -> tuple[int, int]:
    """The length and the number of chunks, as equal as they can be, none of them empty."""
    width = -(-length // -(-length // longest))
    return length, -(-length // width)


def _normal(shape: tuple[int, ...], std: float, like: Tensor, generator: torch.Generator | None) -> nn.Parameter:
    return nn.Parameter(std * randn(shape, like, generator))


def _slope(before: Tensor) -> Tensor:
    return torch.where(before > 0, 1.0, SLOPE).to(before.dtype)


def _double(tensor: Tensor | None) -> Tensor:
    """A Gram matrix beside the identity needs more digits than its factors have."""
    assert tensor is not None
    return tensor.float() if tensor.device.type == "mps" else tensor.double()
