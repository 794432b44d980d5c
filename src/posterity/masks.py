"""Dropout that can be answered: by nothing, by fresh masks, or by masks that a drawn function keeps."""

import contextlib
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from posterity import inputs
from posterity.added import Drop, call, in_order, switched_on
from posterity.device_checks import indices_checked
from posterity.errors import Error
from posterity.rows import FAILURES, can_be_cut, change_last, evaluation_mode, grown, is_blocked, layout
from posterity.sites import find_direct
from posterity.state import alone, clean, untouched
from posterity.transforms import untransformed

T = TypeVar("T")


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


def alpha_dropped(x: Tensor, keep: Tensor, p: float) -> Tensor:
    """Alpha dropout (Klambauer et al. 2017): what is not kept is α', and mean 0 and variance 1 stay what they are."""
    low = -1.7580993408473766
    a = ((1 - p) * (1 + p * low**2)) ** -0.5 if p < 1 else 0.0
    return torch.where(keep, x, low) * a - a * low * p


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
        # The length of each axis of the mask, and by which step its positions are told apart: those of a row in order,
        # positions on the axis of rows by a step of their own.
        own = [axis for axis in range(x.dim()) if axis != place.axis]
        axes = [
            (size if axis < kept else 1, own.index(axis) + 1) if axis in own else (1, 0)
            for axis, size in enumerate(x.shape)
        ]
        if place.copies > 1 and place.axis is not None:
            x = x.unflatten(place.axis, (-1, place.copies) if place.blocked else (place.copies, -1))
            axes.insert(place.axis + place.blocked, (place.copies if place.axis < kept else 1, 0))
        keep = self._numbers(axes, x.device) >= int(min(p, 1 - 2**-53) * 2**63)
        if kind.alpha:
            result = alpha_dropped(x, keep, p)
        else:
            result = x * (keep.to(x.dtype) * (1 / (1 - p) if p < 1 else 0.0))
        return result.flatten(place.axis, place.axis + 1) if place.copies > 1 and place.axis is not None else result

    def _numbers(self, axes: list[tuple[int, int]], device: torch.device) -> Tensor:
        """Whole numbers, uniform from 0 to 2⁶³ − 1, one for each position: that of a position does not depend on how
        many there are, so that a row which is padded further keeps its mask."""
        positions = torch.zeros((), dtype=torch.int64, device=device)
        for at, (length, step) in enumerate(axes):
            along = torch.arange(length, device=device)
            if torch.compiler.is_compiling():  # which cannot hold the bounds of a product that wraps around
                along = along + (self.seed & 0)
            positions = positions + (along * _STEPS[step]).view(-1, *(1,) * (len(axes) - at - 1))
        return _mix(_mix(self.seed + self.calls) + positions) & (2**63 - 1)


_STEP = -7046029254386353131


def _mix(z: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014); `&` makes torch's shifts logical ones."""
    z = (z ^ ((z >> 30) & (2**34 - 1))) * -4658895280553007687
    z = (z ^ ((z >> 27) & (2**37 - 1))) * -7723592293110705685
    return z ^ ((z >> 31) & (2**33 - 1))


#: Along the first axis beside the rows, and along others, which no small whole numbers relate to it.
_STEPS = [int(step) | 1 for step in _mix(torch.arange(16) * _STEP)]
_STEPS[1] = _STEP


class Plan(NamedTuple):
    """What a pass through a network meets.

    Args:
        added: the layers and matrices at which dropout is added; none where the network drops by itself.
        first: the one that is spared, because its inputs are the data.
        places: of the rows, at each dropout.
        direct: the layers that the network uses without calling them.
        missing: those that no dropout reaches, and why.
    """

    added: tuple[str, ...]
    first: str | None
    places: list[Place]
    direct: list[str]
    missing: dict[str, str]


class Plans:
    """Plans of a network by the shape of a row; found by passes of two and of three rows, without masks.

    Args:
        spare: whether no dropout is added at the layer that runs first.
        wanted: whether it is worth a warning that no dropout acts.
    """

    def __init__(self, spare: bool, wanted: bool) -> None:
        self.known: dict[Any, Plan] = {}
        self.spare, self.wanted = spare, wanted

    def find(self, network: nn.Module, added: Sequence[Drop], x: Any) -> Plan:
        """The plan for rows like those of x; the network stays as it was."""
        compiling = torch.compiler.is_compiling()
        if torch.compiler.is_dynamo_compiling() and has_attention(network):
            raise Error("torch.compile would leave out the dropout of attention: export the functions instead.")
        key = None if compiling else tuple(tensor.shape[1:] for tensor in inputs.tensors(x))
        if key is None or key not in self.known:
            with (
                alone(),
                contextlib.nullcontext() if compiling else torch.no_grad(),
                evaluation_mode(network),
                untransformed(network, x) as few,
                contextlib.nullcontext() if compiling else untouched(network, few),
            ):
                plan = Plan((), None, self._places(network, [], few), [], {})
                if not plan.places and added:
                    plan = self._with(network, added, few)
            if key is None:
                return plan
            if not plan.places and self.wanted:
                own = any(map(rate_of, network.modules()))
                why = "does not use the layers where it was added" if added else "calls its own in training alone"
                why = why if added or own else "has no layer at whose inputs it could be added"
                warnings.warn(
                    f"No dropout acts in this network: it {why}, so all functions will be the same. Give the network "
                    "dropout modules that it calls in evaluation mode too.",
                    stacklevel=3,
                )
            self.known[key] = plan
        return self.known[key]

    def _with(self, network: nn.Module, added: Sequence[Drop], x: Any) -> Plan:
        """The plan of a network to which dropout is added."""
        with indices_checked(x):
            return self._tried(network, added, x)

    def _tried(self, network: nn.Module, added: Sequence[Drop], x: Any) -> Plan:
        compiling = torch.compiler.is_compiling()
        calls = _few(lambda x: _silently(network, lambda: in_order(network, added, x)), x)
        direct = [site.name for site in added if not site.hooked]
        hooked = [site for site in added if site.hooked]
        if compiling:  # no gradient tells which of them are used
            missed = [site.name for site in hooked if site.facts.linear and not site.called]
            if missed and not self.known:
                raise Error("Not all layers were called: run the functions once before they are compiled or exported.")
            direct += [name for name in missed if any(name in plan.direct for plan in self.known.values())]
        else:
            direct += _few(lambda x: find_direct(hooked, network, x), x)
        first = _first([site.name for site in added], calls, direct) if self.spare else None
        acting = [site for site in added if site.name != first]
        with switched_on(acting, direct):
            missing = {site.name: site.missing.replace("noise", "dropout") for site in acting if site.missing}
            return Plan(tuple(site.name for site in acting), first, self._places(network, acting, x), direct, missing)

    def _places(self, network: nn.Module, added: Sequence[Drop], x: Any) -> list[Place]:
        try:
            two, three = (_inputs_of_dropouts(network, added, _repeated(x, rows)) for rows in (2, 3))
        except FAILURES:
            if torch.compiler.is_compiling():
                raise
            return self._of_all(network, added, x)
        if len(two) != len(three):
            raise Error("The network calls dropout a different number of times for two rows and for three.")
        places = [_place(a.shape, b.shape) for a, b in zip(two, three, strict=True)]
        if any(place.copies > 1 for place in places):
            if torch.compiler.is_compiling():
                raise Error("A dropout sees several positions of a row on one axis: leave functions uncompiled.")
            changed = _inputs_of_dropouts(network, added, inputs.apply(_repeated(x, 2), change_last))
            places = [_ordered(*each) for each in zip(places, two, changed, strict=True)]
        return places

    def _of_all(self, network: nn.Module, added: Sequence[Drop], x: Any) -> list[Place]:
        """Places by a pass of all rows and one of one row more, for a network that takes no few, as that of a graph.

        Where it does not take one more either, all of x is one example, in which every place has a mask of its own.
        """
        seen, others, more = _inputs_of_dropouts(network, added, inputs.apply(x, Tensor.clone)), [], None
        with contextlib.suppress(*FAILURES):
            more = grown(network, x)
            others = [] if more is None else _inputs_of_dropouts(network, added, more.x)
        if more is None or len(seen) != len(others):
            return [Place(None)] * len(seen)
        sizes = more.rows, more.rows + 1
        found = [layout(a.shape, b.shape, sizes) for a, b in zip(seen, others, strict=True)]
        whole = [
            at is not None and at.axis is not None and a.shape[at.axis] == sizes[0]
            for at, a in zip(found, seen, strict=True)
        ]
        return [Place(at.axis if at is not None and one else None) for at, one in zip(found, whole, strict=True)]


def _inputs_of_dropouts(network: nn.Module, added: Sequence[Drop], x: Any) -> list[Tensor]:
    seen: list[Tensor] = []

    def record(x: Tensor, p: float, function: Any) -> Tensor:
        seen.append(x)
        return x

    with Answer(record), clean(network):
        call(network, added, x)
    return seen


def _first(names: list[str], calls: list[str], direct: list[str]) -> str | None:
    """Of several layers that are used, the one that runs first; when those run that are not called is not known."""
    used = [name for name in names if name in calls or name in direct]
    if len(used) < 2:
        return None
    return used[0] if used[0] in direct else calls[0]


def _silently(network: nn.Module, function: Callable[[], T]) -> T:
    with Answer(none), clean(network):
        return function()


def _few(function: Callable[[Any], T], x: Any) -> T:
    """`function` of two rows, or of x where the network does not take two rows."""
    try:
        return function(_repeated(x, 2))
    except FAILURES:
        if torch.compiler.is_compiling():
            raise
        return function(x)


def _repeated(x: Any, rows: int) -> Any:
    """The first row of x, several times."""
    can_be_cut(x)
    return inputs.apply(x, lambda tensor: tensor[:1].repeat(rows, *[1] * (tensor.dim() - 1)))


def _place(two: torch.Size, three: torch.Size) -> Place:
    found = layout(two, three)
    if found is None:
        raise Error(
            f"The rows of the batch cannot be told apart at a dropout whose input has shape {tuple(two)} for two rows "
            f"and {tuple(three)} for three."
        )
    return Place(found.axis, 1 if found.axis is None else two[found.axis] // 2)


def _ordered(place: Place, before: Tensor, now: Tensor) -> Place:
    """Whether the positions of a row lie together: `now` is `before` with the last of two rows changed."""
    if place.copies == 1:
        return place
    blocked = is_blocked(before, now, place.axis)
    if blocked is None:
        raise Error("The rows of the batch cannot be told apart at a dropout where other positions share their axis.")
    return place._replace(blocked=blocked)


def rate_of(module: nn.Module) -> float:
    """p of a dropout that can be drawn; 0 for any other module."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return float(module.p)
    return float(module.dropout) if isinstance(module, nn.MultiheadAttention) else 0.0


def has_attention(network: nn.Module) -> bool:
    """Whether torch's own attention drops: a compiler puts its fused kernel, which does not, in its place."""
    kinds = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
    return any(isinstance(layer, kinds) and any(map(rate_of, layer.modules())) for layer in network.modules())
