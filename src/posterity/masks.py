"""Dropout that can be answered: by nothing, by fresh masks, or by masks that a drawn function keeps."""

import contextlib
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from posterity import inputs
from posterity.errors import Error
from posterity.sites import ONE_AT_A_TIME, Selector, Site, change_last, select


class Kind(NamedTuple):
    """How a dropout drops: numbers or whole channels (with fewer than `dims` axes there is no batch), to 0 or α'."""

    channels: bool = False
    dims: int = 0
    alpha: bool = False


KINDS: dict[Any, Kind] = {
    F.dropout: Kind(),
    F.dropout1d: Kind(channels=True, dims=3),
    F.dropout2d: Kind(channels=True),
    F.dropout3d: Kind(channels=True, dims=5),
    F.alpha_dropout: Kind(alpha=True),
    F.feature_alpha_dropout: Kind(channels=True, alpha=True),
    torch.dropout: Kind(),
    torch.feature_dropout: Kind(channels=True),
    torch.alpha_dropout: Kind(alpha=True),
    torch.feature_alpha_dropout: Kind(channels=True, alpha=True),
}
#: torch's attention, which would ask the mode again whether it may run.
_attention: Any = types.FunctionType(
    F.multi_head_attention_forward.__code__,
    {**vars(F), "has_torch_function": lambda tensors: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)
Answering = Callable[[Tensor, float, Any], Tensor]


class Answer(TorchFunctionMode):
    """Answers every dropout in a pass, module or functional, whatever the network's mode: `answer(x, p, function)`."""

    def __init__(self, answer: Answering) -> None:
        super().__init__()
        self.answer = answer

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in KINDS:
            x, p = args[0] if args else kwargs["input"], args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            return self.answer(x, p, func) if p else x
        if func is F.multi_head_attention_forward and self.answer is not none:
            with self:
                return _attention(*args, **{**kwargs, "training": True})
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        return func(*args, **kwargs)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if not dropout_p or self.answer is none:
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if enable_gqa:
            times = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None:
            allowed = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -torch.inf) if allowed else scores + attn_mask
        return self.answer(scores.softmax(-1), dropout_p, F.dropout) @ value


def none(x: Tensor, p: float, function: Any) -> Tensor:
    """Nothing is dropped."""
    return x


def fresh(x: Tensor, p: float, function: Any) -> Tensor:
    """A new mask for every row, as in training."""
    return function(x, p, True)  # type: ignore[no-any-return]


class Place(NamedTuple):
    """Where the rows are in what a dropout gets: their axis (None: it is the same for all rows), and how many
    positions of one row lie on it, row by row (`blocked`) or interleaved."""

    axis: int | None
    copies: int = 1
    blocked: bool = True


class Masks:
    """The masks of one function, in the order in which the network asks for them."""

    def __init__(self, seed: Tensor, places: list[Place]) -> None:
        self.seed, self.places, self.calls = seed, places, 0

    def __call__(self, x: Tensor, p: float, function: Any) -> Tensor:
        """The mask of this call of dropout, the same for every row and every time."""
        if self.calls == len(self.places):
            raise Error("The network calls dropout more often than for other rows of this shape: it cannot be drawn.")
        place, kind = self.places[self.calls], KINDS[function]
        self.calls += 1
        kept = x.dim() if not kind.channels else 1 if x.dim() < kind.dims else 2
        shape: list[int] = [size if axis < kept else 1 for axis, size in enumerate(x.shape)]
        if place.axis is not None:
            shape[place.axis] = 1
        if place.copies > 1 and place.axis is not None:
            x = x.unflatten(place.axis, (-1, place.copies) if place.blocked else (place.copies, -1))
            shape.insert(place.axis + place.blocked, place.copies if place.axis < kept else 1)
        keep = self._numbers(shape, x.device) >= int(min(p, 1 - 2**-53) * 2**63)
        if kind.alpha:
            low = -1.7580993408473766
            a = ((1 - p) * (1 + p * low**2)) ** -0.5 if p < 1 else 0.0
            result = torch.where(keep, x, low) * a - a * low * p
        else:
            result = x * (keep.to(x.dtype) * (1 / (1 - p) if p < 1 else 0.0))
        return result.flatten(place.axis, place.axis + 1) if place.copies > 1 and place.axis is not None else result

    def _numbers(self, shape: list[int], device: torch.device) -> Tensor:
        """Whole numbers, uniform from 0 to 2⁶³ − 1."""
        size = 1
        for length in shape:
            size = size * length
        positions = torch.arange(size, device=device).view(shape)
        return _mix(_mix(self.seed + self.calls) + positions * _STEP) & (2**63 - 1)


_STEP = -7046029254386353131


def _mix(z: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014); `&` makes torch's shifts logical ones."""
    z = (z ^ ((z >> 30) & (2**34 - 1))) * -4658895280553007687
    z = (z ^ ((z >> 27) & (2**37 - 1))) * -7723592293110705685
    return z ^ ((z >> 31) & (2**33 - 1))


class Plan(NamedTuple):
    """What a pass through a network meets: whether dropout is added, and the place of rows at each dropout."""

    added: bool
    places: list[Place]


class Plans:
    """Plans of a network by the shape of a row; found by passes of two and of three rows, without masks."""

    def __init__(self) -> None:
        self.known: dict[Any, Plan] = {}

    def find(self, network: nn.Module, added: "list[Added]", x: Any) -> Plan:
        """The plan for rows like those of x; the network stays as it was."""
        compiling = torch.compiler.is_compiling()
        if torch.compiler.is_dynamo_compiling() and has_attention(network):
            raise Error("torch.compile would leave out the dropout of attention: export the functions instead.")
        if not compiling and inputs.rows(x) is None:
            raise Error("The inputs need the same number of rows on axis 0 of each tensor.")
        key = None if compiling else tuple(tensor.shape[1:] for tensor in inputs.tensors(x))
        if key is None or key not in self.known:
            with contextlib.nullcontext() if compiling else torch.no_grad(), evaluation_mode(network):
                places, on = self._places(network, x), False
                if not places and added:
                    with switched_on(added):
                        places, on = self._places(network, x), True
            if key is None:
                return Plan(on, places)
            if added and not places:
                warnings.warn(
                    "No dropout acts in this network: the layers where it was added are used without being called, so "
                    "all functions will be the same. Give the network dropout of its own.",
                    stacklevel=3,
                )
            self.known[key] = Plan(on, places)
        return self.known[key]

    def _places(self, network: nn.Module, x: Any) -> list[Place]:
        two, three = (_inputs_of_dropouts(network, _repeated(x, rows)) for rows in (2, 3))
        if len(two) != len(three):
            raise Error("The network calls dropout a different number of times for two rows and for three.")
        places = [_place(a.shape, b.shape) for a, b in zip(two, three, strict=True)]
        if any(place.copies > 1 for place in places):
            if torch.compiler.is_compiling():
                raise Error("A dropout sees several positions of a row on one axis: leave functions uncompiled.")
            changed = _inputs_of_dropouts(network, inputs.apply(_repeated(x, 2), change_last))
            places = [_ordered(*each) for each in zip(places, two, changed, strict=True)]
        return places


def _inputs_of_dropouts(network: nn.Module, x: Any) -> list[Tensor]:
    seen: list[Tensor] = []

    def record(x: Tensor, p: float, function: Any) -> Tensor:
        seen.append(x)
        return x

    with Answer(record):
        inputs.call(network, x)
    return seen


def _repeated(x: Any, rows: int) -> Any:
    """The first row of x, several times."""
    return inputs.apply(x, lambda tensor: tensor[:1].repeat(rows, *[1] * (tensor.dim() - 1)))


def _place(two: torch.Size, three: torch.Size) -> Place:
    follows = [axis for axis, (a, b) in enumerate(zip(two, three, strict=True)) if a != b]
    if len(follows) > 1 or any(3 * two[axis] != 2 * three[axis] for axis in follows):
        raise Error(
            f"The rows of the batch cannot be told apart at a dropout whose input has shape {tuple(two)} for two rows "
            f"and {tuple(three)} for three."
        )
    return Place(follows[0], two[follows[0]] // 2) if follows else Place(None)


def _ordered(place: Place, before: Tensor, now: Tensor) -> Place:
    """Whether the positions of a row lie together: `now` is `before` with the last of two rows changed."""
    if place.copies == 1 or place.axis is None:
        return place
    moved = (before != now).movedim(place.axis, 0).flatten(1).any(1)
    blocked, interleaved = not bool(moved[: place.copies].any()), not bool(moved[0::2].any())
    if blocked == interleaved:
        raise Error("The rows of the batch cannot be told apart at a dropout where other positions share their axis.")
    return place._replace(blocked=blocked)


class Added(Site):
    """Dropout at the input of a layer, while it is on."""

    def __init__(self, name: str, layer: nn.Module, rate: float, reached: set[str]) -> None:
        super().__init__(name, layer, ("input",))
        self.rate, self.on, self.reached = rate, False, reached

    def before(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Pre-hook: drop."""
        if not self.on:
            if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
                raise Error(
                    f"The layer {self.name!r} is computed again in the backward pass (gradient checkpointing), where "
                    "its dropout would be another one. Turn that off, or leave the layer out with layers=."
                )
            return None
        if not torch.compiler.is_compiling():
            self.reached.add(self.name)
        if args:
            return (F.dropout(args[0], self.rate, True), *args[1:]), kwargs
        return args, {**kwargs, "input": F.dropout(kwargs["input"], self.rate, True)}


def add(network: nn.Module, names: list[str], rate: float, reached: set[str]) -> list[Added]:
    """Inert hooks that drop the inputs of the named layers once they are switched on; those that are called go to
    `reached`."""
    sites = []
    for name in names if rate else []:
        layer = network.get_submodule(name)
        sites.append(Added(name, layer, rate, reached))
        layer.register_forward_pre_hook(sites[-1].before, with_kwargs=True)
    return sites


def rate_of(module: nn.Module) -> float:
    """p of a dropout that can be drawn; 0 for any other module."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return float(module.p)
    return float(module.dropout) if isinstance(module, nn.MultiheadAttention) else 0.0


def has_attention(network: nn.Module) -> bool:
    """Whether torch's own attention drops: a compiler puts its fused kernel, which does not, in its place."""
    kinds = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
    return any(isinstance(layer, kinds) and any(map(rate_of, layer.modules())) for layer in network.modules())


@contextlib.contextmanager
def switched_on(added: list[Added]) -> Iterator[None]:
    """Dropout is added in here; in one thread at a time."""
    with contextlib.nullcontext() if torch.compiler.is_compiling() or not added else ONE_AT_A_TIME:
        for site in added:
            site.on = True
        try:
            yield
        finally:
            for site in added:
                site.on = False


def reasons_against(network: nn.Module, layers: Selector) -> dict[str, str | None]:
    """The layers at which dropout can be added, and why others cannot.

    Unless they are named it is not added at the first of several, where it would take data away: on tables of few
    columns that costs more than it tells.
    """
    reasons = select(network, layers)
    for name in reasons:
        if isinstance(network.get_submodule(name), nn.RNNBase):
            reasons[name] = "dropout is added at linear and convolution layers"
    able = [name for name, reason in reasons.items() if reason is None]
    if layers is None and len(able) > 1:
        reasons[able[0]] = "dropout is not added at the first layer, whose inputs are the data"
    return reasons


@contextlib.contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """The network in evaluation mode, and back."""
    training = [module for module in network.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextlib.contextmanager
def seeded(generator: torch.Generator | None, x: Any) -> Iterator[None]:
    """Let what takes no generator follow this one; the global generators are left as they were.

    Without a generator nothing is done.
    """
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    devices = sorted({tensor.get_device() for tensor in inputs.tensors(x) if tensor.is_cuda})
    with torch.random.fork_rng(devices=devices):
        for own in (torch.default_generator, *(torch.cuda.default_generators[index] for index in devices)):
            own.manual_seed(seed)
        yield
