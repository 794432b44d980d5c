"""Where a network can be made uncertain: the inputs and outputs of its layers.

A `Site` is a pair of hooks on one layer that multiply what goes in (one number per input feature or channel) or
comes out. It does nothing until it is given noise, and the network is never rewritten.
"""

import contextlib
import fnmatch
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from posterity import inputs
from posterity.errors import Error


class Features(NamedTuple):
    """How a type of layer lays out its features: their names and, counted from the end, their axis."""

    inputs: str
    outputs: str
    axis: int


#: Hooks read the noise from their site, so two threads must not run a noisy network at once.
ONE_AT_A_TIME = threading.RLock()
_CONV = ("in_channels", "out_channels")
LAYERS: dict[type[nn.Module], Features] = {
    nn.RNNBase: Features("input_size", "hidden_size", -1),
    nn.Linear: Features("in_features", "out_features", -1),
    nn.Conv1d: Features(*_CONV, -2),
    nn.Conv2d: Features(*_CONV, -3),
    nn.Conv3d: Features(*_CONV, -4),
    nn.ConvTranspose1d: Features(*_CONV, -2),
    nn.ConvTranspose2d: Features(*_CONV, -3),
    nn.ConvTranspose3d: Features(*_CONV, -4),
}


_LINEAR = [base for base in LAYERS if base is not nn.RNNBase]


def features(layer: nn.Module) -> Features | None:
    """The layout of a layer that can carry noise, or None."""
    for base in type(layer).__mro__:
        if base in LAYERS:
            return LAYERS[base]
    return None


Selector = str | Sequence[str] | Callable[[str, nn.Module], bool] | None


def select(network: nn.Module, layers: Selector = None) -> dict[str, str | None]:
    """Every layer that holds parameters of its own: its name, and None if it can and shall carry noise, else why not.

    Args:
        network: any module.
        layers: a name pattern (`"encoder.*"`), several, or a function of name and layer; None takes all.
    """
    reasons: dict[str, str | None] = {}
    inside_attention: set[str] = set()
    for name, layer in network.named_modules():
        if isinstance(layer, nn.MultiheadAttention):
            inside_attention.update(f"{name}.{child}" if name else child for child, _ in layer.named_modules() if child)
        own = next(layer.parameters(recurse=False), None) is not None
        if isinstance(layer, parametrize.ParametrizationList) or not (own or features(layer) is not None):
            continue
        if features(layer) is None:
            reasons[name] = f"a {type(layer).__name__} has no input that carries noise"
        elif name in inside_attention:
            reasons[name] = "attention uses its weights without calling it"
        elif any(isinstance(p, nn.UninitializedParameter) for p in layer.parameters(recurse=False)):
            raise Error(f"The lazy layer {name!r} has no size yet: run the network once on an example first.")
        elif not _chosen(layers, name, layer):
            reasons[name] = "left out by layers="
        else:
            reasons[name] = None
    return reasons


def _chosen(layers: Selector, name: str, layer: nn.Module) -> bool:
    if layers is None:
        return True
    if callable(layers):
        return bool(layers(name, layer))
    patterns = [layers] if isinstance(layers, str) else list(layers)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise Error("layers= takes a name pattern, several, or a function of name and layer.")
    return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class Layout(NamedTuple):
    """Where the rows of the batch are in a layer's input.

    `axis` is None where the input does not depend on the row at all. Where several positions of one row are
    folded into that axis (windows, tokens), `blocked` tells row-major (all of row 0 first) from interleaved; it is
    None as long as no such input was seen.
    """

    axis: int | None
    blocked: bool | None = None


class _Folded(Exception):
    """Several positions of a row share its axis, and it is not known yet in which order."""


class Site:
    """Noise at one layer: `z ∘ input`, `s ∘ output` and `z_b · bias`, each where it is wanted.

    Noise is either one vector `[features]` for every row (a drawn function) or `[rows, features]` (training).
    A layer with a single input feature is linear in it. For a drawn function the noise is then applied behind the
    layer, which is computed once for all draws; in training the gradient of the noise is read off the layer's output,
    because a gradient of the input would be more than half of a LeNet's step.
    """

    def __init__(self, name: str, layer: nn.Module, kinds: tuple[str, ...]) -> None:
        facts = features(layer)
        if facts is None:
            raise Error(f"The layer {name!r} ({type(layer).__name__}) has no inputs that can carry noise.")
        self.name = name
        self.axis = facts.axis
        counts = {"input": getattr(layer, facts.inputs), "output": getattr(layer, facts.outputs), "bias": 1}
        has_bias = isinstance(getattr(layer, "bias", None), Tensor)
        self.sizes = {kind: counts[kind] for kind in kinds if kind != "bias" or has_bias}
        # A subclass with a forward of its own need not be linear.
        self.single = counts["input"] == 1 and any(type(layer).forward is base.forward for base in _LINEAR)
        if isinstance(layer, nn.RNNBase):  # what goes in carries one noise for all time steps
            self.sizes = {kind: size for kind, size in self.sizes.items() if kind == "input"}
        self.layout: Layout | None = None
        self.noise: dict[str, Tensor] | None = None
        self.seen: list[tuple[int, ...]] | None = None

    @property
    def size(self) -> int:
        """How many numbers this site takes."""
        return sum(self.sizes.values())

    def set(self, noise: Tensor | None) -> None:
        """Give noise `[..., size]` to this site, or None to make it inert."""
        if noise is None:
            self.noise = None
        else:
            self.noise = dict(zip(self.sizes, noise.split(list(self.sizes.values()), dim=-1), strict=True))

    def before(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Pre-hook: multiply the input."""
        if self.seen is not None:
            given = args[0] if args else kwargs["input"]
            if not isinstance(given, Tensor):
                raise Error(
                    f"The layer {self.name!r} takes a {type(given).__name__}, which carries no noise: leave it out."
                )
            self.seen.append(tuple(given.shape))
        if self.noise is None and torch._C._current_graph_task_id() != -1:
            raise Error(
                f"The layer {self.name!r} is computed again in the backward pass (gradient checkpointing), when its "
                "noise is gone: gradients would be wrong. Turn that off, or leave the layer out with layers=."
            )
        if self.noise is None or "input" not in self.noise:
            return None
        noise = self.noise["input"]
        if self.single:
            if noise.dim() == 1:
                return None
            noise = noise.detach()
        if args:
            return (args[0] * self._spread(noise, args[0]), *args[1:]), kwargs
        return args, {**kwargs, "input": kwargs["input"] * self._spread(noise, kwargs["input"])}

    def after(self, layer: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor | None:
        """Hook: multiply the bias and the output, and the input of a layer that has only one feature."""
        if self.noise is None or not isinstance(result, Tensor):
            return None
        bias = getattr(layer, "bias", None)
        if self.single and "input" in self.noise:
            z = self._spread(self.noise["input"], result)
            if self.noise["input"].dim() > 1:
                result = _Tap.apply(result, z, None if bias is None else self._spread(bias.detach(), result))
            else:
                result = result * z if bias is None else torch.addcmul((1 - z) * self._spread(bias, result), result, z)
        if "bias" in self.noise and bias is not None:
            result = result + (self._spread(self.noise["bias"], result) - 1) * self._spread(bias, result)
        if "output" in self.noise:
            result = result * self._spread(self.noise["output"], result)
        return result

    def _spread(self, noise: Tensor, values: Tensor) -> Tensor:
        """Noise `[features]` or `[rows, features]`, shaped and repeated to multiply `values`."""
        noise = noise.to(values.dtype)
        trailing = (1,) * (-self.axis - 1)
        if noise.dim() == 1:
            return noise.view(-1, *trailing)
        if self.layout is None:
            raise Error(
                f"The layer {self.name!r} was not called when the rows of the batch were looked for, but is now: "
                "leave it out with layers=."
            )
        rows, axis = self.layout.axis, values.dim() + self.axis
        if rows is None:
            return noise[0].view(-1, *trailing)
        copies, remainder = divmod(values.shape[rows], noise.shape[0])
        if remainder:
            raise Error(f"{values.shape[rows]} positions at {self.name!r} are no multiple of {noise.shape[0]} rows.")
        if copies > 1 and self.layout.blocked is None:
            raise _Folded(self.name)
        if copies > 1:
            noise = noise.repeat_interleave(copies, 0) if self.layout.blocked else noise.repeat(copies, 1)
        shape = [1] * values.dim()
        shape[rows], shape[axis] = noise.shape
        return (noise if rows < axis else noise.T).reshape(shape)


class _Tap(torch.autograd.Function):
    """The identity on y = z · u + b, with the gradient of z: ⟨g, u⟩ = ⟨g, y − b⟩ / z."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, z: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(y, z, bias)
        return y.clone()  # a view could not be changed in place, as ReLU(inplace=True) does

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        y, z, bias = ctx.saved_tensors
        inner = (g * y).sum_to_size(z.shape)
        if bias is not None:
            behind = tuple(range(1 - bias.dim(), 0))
            inner = inner - ((g.sum(behind, keepdim=True) if behind else g) * bias).sum_to_size(z.shape)
        return g, inner / torch.where(z.abs() < 1e-6, 1e-6, z), None


class Sites:
    """The sites of a network, with one flat vector of noise for all of them, `[..., size]`."""

    def __init__(self, network: nn.Module, kinds: tuple[str, ...], names: list[str]) -> None:
        self.sites = []
        for name in names:
            layer = network.get_submodule(name)
            site = Site(name, layer, kinds)
            if site.size:
                layer.register_forward_pre_hook(site.before, with_kwargs=True)
                layer.register_forward_hook(site.after)
                self.sites.append(site)
        self.probed = False

    def __iter__(self) -> Iterator[Site]:
        return iter(self.sites)

    @property
    def names(self) -> list[str]:
        """The names of the layers."""
        return [site.name for site in self.sites]

    @property
    def size(self) -> int:
        """The length of the flat vector."""
        return sum(site.size for site in self.sites)

    def run(self, network: nn.Module, x: Any, noise: Tensor, weights: Mapping[str, Tensor] | None = None) -> Any:
        """The network's result under noise `[size]` or `[rows, size]`, and under other weights where given."""
        with contextlib.nullcontext() if torch.compiler.is_compiling() else ONE_AT_A_TIME:
            for site, part in zip(self.sites, noise.split([site.size for site in self.sites], dim=-1), strict=True):
                site.set(part)
            try:
                return inputs.call(network, x, weights)
            except _Folded as folded:
                name = str(folded)
            finally:
                for site in self.sites:
                    site.set(None)
        self._find_order(network, x)
        if any(site.name == name and site.layout is not None and site.layout.blocked is None for site in self.sites):
            raise Error(
                f"How many positions share the axis of rows at the layer {name!r} differs from batch to batch in a way "
                "that cannot be followed: leave it out with layers=."
            )
        return self.run(network, x, noise, weights)

    def find_rows(self, network: nn.Module, x: Any) -> None:
        """Establish, once, where the rows of the batch are at every site.

        Batches of two and of three rows are sent through: the axis whose size follows is the axis of rows, whatever
        other sizes happen to match. Where a row has several positions on it, one row is changed to see which of
        them move.
        """
        if self.probed:
            return
        self._probe(network, x)
        modes = {module: module.training for module in network.modules()}
        if network.training and any(site.layout is None for site in self.sites):
            network.eval()  # a layer that training left out this time
            self._probe(network, x)
            for module, mode in modes.items():
                module.training = mode
        for site in self.sites:
            if site.layout is None:
                warnings.warn(
                    f"The network did not call the layer {site.name!r}, so no noise reaches it: it may use the layer's "
                    "weights directly. describe() lists it as fixed.",
                    stacklevel=2,
                )
        self.probed = True

    def _probe(self, network: nn.Module, x: Any) -> None:
        """Find the layouts of the sites that batches of two and three rows pass."""
        few = {count: self._shapes(network, first_rows(x, count)) for count in (2, 3)}
        for site, two, three in zip(self.sites, few[2], few[3], strict=True):
            if site.layout is not None or len(two) != len(three):
                continue
            layouts = {_layout(site.name, a, b) for a, b in zip(two, three, strict=True)}
            if len(layouts) > 1:
                raise Error(
                    f"The layer {site.name!r} is called several times, with the rows of the batch on different axes; "
                    "leave it out with layers=."
                )
            if layouts:
                site.layout = layouts.pop()
        self._find_order(network, x)

    def _find_order(self, network: nn.Module, x: Any) -> None:
        """Where positions share the axis of rows, change one of two rows and see which of them move."""
        shapes = self._shapes(network, first_rows(x, 2))
        for site, seen in zip(self.sites, shapes, strict=True):
            axis = None if site.layout is None else site.layout.axis
            if site.layout is None or axis is None or site.layout.blocked is not None:
                continue
            call = next((index for index, shape in enumerate(seen) if shape[axis] > 2), None)
            if call is not None:
                site.layout = site.layout._replace(blocked=_is_blocked(site, axis, call, network, x))

    def _shapes(self, network: nn.Module, x: Any) -> list[list[tuple[int, ...]]]:
        """The shapes of every input at every site; the network's state and the generators stay as they were."""
        kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
        for site in self.sites:
            site.seen = []
        try:
            cuda = {tensor.device for tensor in inputs.tensors(x) if tensor.is_cuda}
            with torch.no_grad(), torch.random.fork_rng(devices=list(cuda)):
                inputs.call(network, x)
            return [site.seen or [] for site in self.sites]
        finally:
            for site in self.sites:
                site.seen = None
            for name, buffer in network.named_buffers():
                if name in kept:
                    buffer.copy_(kept[name])


def first_rows(x: Any, count: int) -> Any:
    """The first `count` rows of x, from the start again where there are fewer."""
    return inputs.apply(x, lambda tensor: tensor[torch.arange(count, device=tensor.device) % len(tensor)])


def _layout(name: str, two: tuple[int, ...], three: tuple[int, ...]) -> Layout:
    follows = [axis for axis, (a, b) in enumerate(zip(two, three, strict=True)) if a != b]
    if len(follows) > 1 or any(3 * two[axis] != 2 * three[axis] for axis in follows):
        raise Error(
            f"The rows of the batch cannot be told apart at the layer {name!r} (its input has shape {two} for two rows "
            f"and {three} for three): leave it out with layers=."
        )
    return Layout(follows[0] if follows else None)


def _is_blocked(site: Site, axis: int, call: int, network: nn.Module, x: Any) -> bool:
    """Whether the positions of one row lie together: changes the last of two rows and looks where the input moves."""
    seen: list[Tensor] = []

    def record(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append((args[0] if args else kwargs["input"]).detach())

    layer, modes = network.get_submodule(site.name), {m: m.training for m in network.modules()}
    handle = layer.register_forward_pre_hook(record, with_kwargs=True)
    network.eval()
    try:
        with torch.no_grad():
            pair = first_rows(x, 2)
            inputs.call(network, pair)
            calls = len(seen)
            inputs.call(network, inputs.apply(pair, change_last))
    finally:
        handle.remove()
        for module, mode in modes.items():
            module.training = mode
    before, now = seen[call], seen[calls + call]
    moved = (before != now).movedim(axis, 0).flatten(1).any(1)
    half = len(moved) // 2
    blocked, interleaved = not bool(moved[:half].any()), not bool(moved[0::2].any())
    if blocked == interleaved:
        raise Error(
            f"The rows of the batch cannot be told apart at the layer {site.name!r}, where other positions share their "
            "axis: leave it out with layers=."
        )
    return blocked


def change_last(tensor: Tensor) -> Tensor:
    """The tensor with another last row."""
    changed = tensor.clone()
    if tensor.is_floating_point():
        changed[-1] = changed[-1] * 0.5 + torch.linspace(0.1, 1.0, changed[-1].numel()).to(tensor).view(
            changed[-1].shape
        )
    elif tensor.dtype == torch.bool:
        return changed
    else:
        changed[-1] = torch.where(changed[-1] == tensor.min(), tensor.max(), tensor.min())
    return changed
