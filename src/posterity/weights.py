"""Methods that draw the weights: a network's parameters as one flat vector, and what such methods share."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs
from posterity.errors import Error
from posterity.functions import Functions
from posterity.layers import Selector, features, select_parameters
from posterity.posterior import Description, Entry, Posterior, count
from posterity.rows import encoders
from posterity.state import clean, duplicate, forget, refuse_again

#: Weights that a prediction holds at a time, or those of 16 functions where that is more.
HELD = 1_000_000
LEFT, FROZEN = "left out by layers=: a point", "requires no gradient: stays as it is"


class Weights:
    """The drawable parameters of a network as one flat vector of `size` numbers; a tied parameter stands in it once.

    Every parameter of floating point is drawable. `names` are those under which a draw replaces them: the tie is kept
    because the network is called with ties.

    Args:
        network: any module.
        layers: whose parameters are drawn (see `posterity.layers.select`); by default all.
        frozen: whether parameters that require no gradient are drawn too.
    """

    def __init__(self, network: nn.Module, layers: Selector = None, frozen: bool = True) -> None:
        names, own = select_parameters(network, layers), dict(network.named_parameters())
        chosen = {name: own[name] for name in names if own[name].is_floating_point()}
        if not chosen:
            raise Error("The network has no parameters to be uncertain about.")
        chosen = {name: p for name, p in chosen.items() if frozen or p.requires_grad}
        if not chosen:
            raise Error("The network has no parameter that requires a gradient: members could not differ.")
        self.all = len(chosen) == sum(p.is_floating_point() for p in own.values())
        self.shapes = {name: p.shape for name, p in chosen.items()}
        self._axes = _output_axes(network)
        self.sizes = [shape.numel() for shape in self.shapes.values()]
        self.size = sum(self.sizes)

    @property
    def names(self) -> list[str]:
        """The parameters' names, in the order of the flat vector."""
        return list(self.shapes)

    @property
    def layers(self) -> list[str] | None:
        """What `layers` would choose the same parameters; None for all."""
        return None if self.all else self.names

    def scales(self, gain: float, otherwise: float) -> list[float]:
        """gain/√fan-in for each tensor that multiplies a layer's inputs, for vectors and embeddings another number."""
        values = []
        for name, shape in self.shapes.items():
            axis, groups = self._axes.get(name, (0, 1))
            if len(shape) < 2 or axis is None or not shape.numel():
                values.append(otherwise)
            else:
                values.append(gain * math.sqrt(groups * shape[axis] / shape.numel()))
        return values

    def spread(self, values: Sequence[float], like: Tensor) -> Tensor:
        """One value for each tensor as one for each weight, `[size]`."""
        return torch.cat([like.new_full((size,), value) for size, value in zip(self.sizes, values, strict=True)])

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """`[..., size]` as parameters by name, each `[..., *shape]`: views, not copies."""
        parts = flat.split(self.sizes, dim=-1)
        return {
            name: part.unflatten(-1, shape) if len(shape) else part.squeeze(-1)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def join(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The flat vector `[size]` of parameters by name."""
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.shapes])


class WeightPosterior(Posterior):
    """A posterior over all weights at once, or over those of some layers: a method gives `sample` and `divergence`, and
    the rest is here.

    The given network is a template: a copy is kept, in which the drawn parameters are frozen and replaced in every
    call; the others, where `layers` leaves some out, are trained as points. Parameters that require no gradient stay as
    they are, unless none that is chosen requires one. Its buffers (batch statistics) are the copy's own.
    """

    at_weights = ("means", "centre")

    def __init__(
        self, network: nn.Module, *, samples: int = 1, layers: Selector = None, output: str | int | None = None
    ) -> None:
        super().__init__(network, samples=samples, output=output)
        self.network = duplicate(network)
        forget(self.network)
        own = dict(self.network.named_parameters())
        some = any(own[name].requires_grad for name in select_parameters(self.network, layers))
        self.weights = Weights(self.network, layers, frozen=not some)
        refuse_again(self.network, self.weights.names)
        for name, p in self.network.named_parameters():
            p.requires_grad_(p.requires_grad and name not in self.weights.shapes)
        for module in encoders(self.network):
            module.use_nested_tensor = False

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws of all weights, `[n, weights]`; gradients flow."""
        raise NotImplementedError

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under `samples` fresh draws of the weights, each for the whole batch, `[samples, batch, ...]`."""
        return self.calls(x, self.sample(self.samples, generator))

    def calls(self, x: Any, draws: Tensor) -> Tensor:
        """The network's outputs under each of the draws `[n, weights]`, one after the other, `[n, batch, ...]`."""
        own = inputs.copies(x, len(draws))
        return torch.stack([self.call(part, draw) for part, draw in zip(own, draws, strict=True)])

    def call(self, x: Any, flat: Tensor) -> Tensor:
        """The network's output under one draw `[weights]`, `[batch, ...]`."""
        with clean(self.network):
            return inputs.output(inputs.call(self.network, x, self.weights.split(flat)), self.output)

    @property
    def turn(self) -> int | None:
        """As many functions as `HELD` weights make: a multiple of 16, as torch draws 16 numbers together on a CPU."""
        on_cpu = next(self.parameters()).device.type == "cpu"
        return 16 * max(1, HELD // (16 * self.weights.size)) if on_cpu else None

    @torch.no_grad()
    def draw(self, n: int, generator: torch.Generator | None = None) -> Functions:
        """n functions, each with its own weights; they are drawn in turns, so that they are those of any turns."""
        n = count(n, "n")
        turn = self.turn or n
        flat = self.sample(min(turn, n), generator)
        if n > turn:
            flat, first = flat.new_empty(n, flat.shape[1]), flat
            flat[:turn] = first
            for start in range(turn, n, turn):
                flat[start : start + turn] = self.sample(min(turn, n - start), generator)
        return Functions(self.network, n, weights=self.weights.split(flat), output=self.output)

    def config(self) -> dict[str, Any]:
        """The arguments that all such methods share; `layers` as the names of the parameters that were chosen."""
        return {"samples": self.samples, "layers": self.weights.layers, "output": self.output}

    def variational(self) -> Iterator[nn.Parameter]:
        """All that is trained but what `layers` leaves out: the rest of the network is a template."""
        return (p for name, p in self.named_parameters() if not name.startswith(("network.", "likelihood.")))

    def describe(self) -> Description:
        """Every parameter that is chosen is drawn; buffers are not."""
        drawn = [Entry(n, str(tuple(s)), True, "drawn with all other weights") for n, s in self.weights.shapes.items()]
        whole = [
            Entry(
                name,
                str(tuple(p.shape)),
                False,
                f"holds numbers of type {p.dtype}"
                if not p.is_floating_point()
                else LEFT
                if p.requires_grad
                else FROZEN,
            )
            for name, p in self.network.named_parameters()
            if name not in self.weights.shapes
        ]
        kept = [
            Entry(name, str(tuple(b.shape)), False, "a buffer: kept as the network keeps it")
            for name, b in self.network.named_buffers()
        ]
        return Description(drawn + whole + kept)


def _output_axes(network: nn.Module) -> dict[str, tuple[int | None, int]]:
    """The weights whose outputs do not lie on axis 0: by name that axis (None for embeddings) and the groups."""
    axes: dict[str, tuple[int | None, int]] = {}
    for name, layer in network.named_modules():
        key = f"{name}.weight".lstrip(".")
        facts = features(layer)
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            axes[key] = None, 1
        elif facts is not None and facts.transposed:
            axes[key] = 1, getattr(layer, "groups", 1)
    return axes
