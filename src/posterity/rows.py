"""Where the rows of a batch are in what a layer gets: found once, by looking, never guessed from sizes that match.

Batches of two and of three rows are sent through the network: the axis whose size follows is the axis of rows. Where a
row has several positions on it (windows, tokens), one row is changed to see which of them move.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from posterity import inputs
from posterity.state import untouched

if TYPE_CHECKING:
    from posterity.nodes import Site

T = TypeVar("T")

#: What a network raises where a batch of two or three rows does not suit it.
FAILURES = (RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError, NotImplementedError)
APART = "the rows of the batch cannot be told apart there"


class Layout(NamedTuple):
    """Where the rows of the batch are in a layer's input.

    `axis` is None where the input does not depend on the row at all. Where several positions of one row are folded into
    that axis, `blocked` tells row-major (all of row 0 first) from interleaved; it is None as long as no such input was
    seen.
    """

    axis: int | None
    blocked: bool | None = None


class Grown(NamedTuple):
    """An input that cannot be cut into rows, as a graph, with one row more.

    Args:
        x: the input with its last row once more.
        at: which of its tensors has the rows, the first of several.
        rows: how many there were.
    """

    x: Any
    at: int
    rows: int


def grown(network: nn.Module, x: Any) -> Grown | None:
    """x with one row more, where a tensor of it has as many as the output, or all have; else None."""
    rows, given = inputs.rows(x), inputs.tensors(x)
    if rows is None:
        with untouched(network, x), evaluation_mode(network), torch.no_grad():
            results = inputs.results(inputs.call(network, inputs.apply(x, Tensor.clone)))
        rows = next(
            (len(result) for result in results if result.dim() and any(len(result) == len(t) for t in given)), 0
        )
    if not rows:
        return None
    more = inputs.apply(x, lambda tensor: torch.cat([tensor, tensor[-1:]]) if len(tensor) == rows else tensor)
    return Grown(more, next(at for at, tensor in enumerate(given) if len(tensor) == rows), rows)


def first_rows(x: Any, count: int) -> Any:
    """The first `count` rows of x, from the start again where there are fewer."""
    can_be_cut(x)
    return inputs.apply(x, lambda tensor: tensor[torch.arange(count, device=tensor.device) % len(tensor)])


def can_be_cut(x: Any) -> None:
    """Raise one of `FAILURES` where the tensors of x do not agree on a number of rows."""
    if not torch.compiler.is_compiling() and inputs.rows(x) is None:
        raise ValueError("The inputs have different numbers of rows on axis 0 of their tensors.")


def few(function: Callable[[Any], T], x: Any) -> T:
    """`function` of two rows of x, or of x where the network does not take two rows."""
    try:
        return function(first_rows(x, 2))
    except FAILURES:
        return function(inputs.apply(x, Tensor.clone))


def find(sites: "list[Site]", network: nn.Module, x: Any) -> int | None:
    """The layouts of the sites that batches of two and of three rows pass and that have none yet.

    Where a network does not take these, all rows and one more are passed; the number of the tensor of x that has the
    rows is returned then.
    """
    sizes, more = (2, 3), None
    try:
        passes = [watch(sites, network, first_rows(x, count)) for count in sizes]
    except FAILURES:
        passes = [watch(sites, network, inputs.apply(x, Tensor.clone))]
        try:
            if (more := grown(network, x)) is not None:
                passes, sizes = [*passes, watch(sites, network, more.x)], (more.rows, more.rows + 1)
        except FAILURES:
            more = None
        if more is None:
            for site, seen in zip(sites, passes[0], strict=True):
                site.called, site.shared = bool(seen), "the network does not run on batches of two and of three rows"
            return None
    for site, one, other in zip(sites, *passes, strict=True):
        if site.layouts or site.shared:
            continue
        site.called = bool(one)
        if len(one) != len(other):  # training may have left it out this time
            site.called, site.shared = not network.training, None if network.training else APART
            continue
        for argument in site.arguments:
            shapes = [(a[argument], b[argument]) for a, b in zip(one, other, strict=True) if argument in a]
            layouts = {layout(*pair, sizes) for pair in shapes}
            folded = more is not None and any(
                at and at.axis is not None and a[at.axis] != sizes[0] for a, _ in shapes for at in layouts
            )
            if None in layouts or len(layouts) > 1 or folded:
                site.shared = APART
            elif layouts:
                site.layouts[argument] = layouts.pop()  # type: ignore[assignment]
    if more is None:
        find_order(sites, network, x)
    return None if more is None else more.at


def find_order(sites: "list[Site]", network: nn.Module, x: Any) -> None:
    """Where positions share the axis of rows, change one of two rows and see which of them move."""
    pair = first_rows(x, 2)
    shapes = watch(sites, network, pair)
    folded = [
        (site, argument, at, call)
        for site, seen in zip(sites, shapes, strict=True)
        for argument, at in site.layouts.items()
        if at.axis is not None and at.blocked is None
        for call in [next((i for i, one in enumerate(seen) if argument in one and one[argument][at.axis] > 2), None)]
        if call is not None
    ]
    if not folded:
        return
    some = [site for site, *_ in folded]
    with evaluation_mode(network):
        before, after = (watch(some, network, x, values=True) for x in (pair, inputs.apply(pair, change_last)))
    for (site, argument, at, call), was, now in zip(folded, before, after, strict=True):
        blocked = is_blocked(was[call][argument], now[call][argument], at.axis) if len(was) == len(now) else None
        if blocked is None:
            site.shared = APART
        site.layouts[argument] = at._replace(blocked=blocked)


def watch(sites: "list[Site]", network: nn.Module, x: Any, values: bool = False) -> list[list[dict[str, Any]]]:
    """By site and call the shapes (or values) of its inputs; the network and the generators stay as they were."""
    for site in sites:
        site.seen, site.keep = [], values
    try:
        with untouched(network, x), unnested(encoders(network)), torch.no_grad():
            inputs.call(network, x)
        return [site.seen or [] for site in sites]
    finally:
        for site in sites:
            site.watched()


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


def encoders(network: nn.Module) -> list[nn.TransformerEncoder]:
    """Modules that may turn what they get into nested tensors, which take no noise and have no rule for vmap."""
    return [module for module in network.modules() if isinstance(module, nn.TransformerEncoder)]


@contextlib.contextmanager
def unnested(modules: list[nn.TransformerEncoder]) -> Iterator[None]:
    """These modules leave tensors as they are in here."""
    kept = [module.use_nested_tensor for module in modules]
    for module in modules:
        module.use_nested_tensor = False
    try:
        yield
    finally:
        for module, use in zip(modules, kept, strict=True):
            module.use_nested_tensor = use


def layout(one: tuple[int, ...], other: tuple[int, ...], rows: tuple[int, int] = (2, 3)) -> Layout | None:
    """The layout of inputs that have these shapes for so many rows; None where it cannot be told."""
    if len(one) != len(other):
        return None
    follows = [axis for axis, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    if len(follows) > 1 or any(rows[1] * one[axis] != rows[0] * other[axis] for axis in follows):
        return None
    return Layout(follows[0] if follows else None)


def is_blocked(before: Tensor, now: Tensor, axis: int | None) -> bool | None:
    """Whether the positions of one row lie together: `now` is `before` with the last of two rows changed."""
    if axis is None or before.shape != now.shape:
        return None
    moved = (before != now).movedim(axis, 0).flatten(1).any(1)
    blocked, interleaved = not bool(moved[: len(moved) // 2].any()), not bool(moved[0::2].any())
    return None if blocked == interleaved else blocked


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
