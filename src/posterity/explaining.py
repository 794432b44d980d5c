"""An input that a network does not take is answered by a sentence, not by what a layer says deep inside."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs
from posterity.errors import Error
from posterity.rows import FAILURES, evaluation_mode, first_rows, layout
from posterity.state import untouched

#: What torch raises where an input does not suit a layer, or Python where one does not suit a call.
KINDS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AssertionError)


@contextlib.contextmanager
def explained(network: nn.Module, x: Any) -> Iterator[None]:
    """Inside, what fails because the network by itself does not take x is an `Error` that says so."""
    try:
        yield
    except KINDS as error:
        if torch.compiler.is_compiling() or not (isinstance(error, Error) or type(error) in KINDS):
            raise  # kinds of their own mean something of their own
        known = None if isinstance(error, Error) else _alone(error) or _refusal(network, x, type(error))
        why = known or sequence_first(network, x)
        if why is None:
            raise
        raise Error(why) from error


def _alone(error: Exception) -> str | None:
    """What to do where batch normalisation met a single row in training, as the last of a loader's batches may be."""
    if isinstance(error, ValueError) and str(error).startswith("Expected more than 1 value per channel"):
        what = "Batch normalisation needs two rows in every batch of training, and one has a single row"
        return f"{what}: take larger batches, or a loader with drop_last=True. (With slice_batch each draw has a part.)"
    return None


@torch.no_grad()
def sequence_first(network: nn.Module, x: Any) -> str | None:
    """What to do where a layer that wants sequences on axis 0 (`batch_first=False`) gets the rows of x there."""
    seen: dict[str, list[tuple[int, ...]]] = {}

    def note(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        seen.setdefault(name, []).append(() if given is None else tuple(given.shape))

    hooks = [
        module.register_forward_pre_hook(lambda _, *given, name=name: note(name, *given), with_kwargs=True)
        for name, module in network.named_modules()
        if getattr(module, "batch_first", getattr(getattr(module, "self_attn", None), "batch_first", True)) is False
    ]
    try:
        for rows in (2, 3) if hooks else ():
            some = first_rows(x, rows)
            with untouched(network, some), evaluation_mode(network):
                inputs.call(network, some)
    except FAILURES:
        return None
    finally:
        for hook in hooks:
            hook.remove()
    for name, shapes in seen.items():
        two, three = shapes[0], shapes[-1]
        if len(two) == 3 and two[1] > 1 and (found := layout(two, three)) is not None and found.axis == 0:
            return (
                f"The layer {name!r} ({type(network.get_submodule(name)).__name__}) takes axis 0 for time "
                "(batch_first=False), but axis 0 of inputs holds their rows: set batch_first=True, or put rows on "
                "axis 0 of x and wrap the network in a module whose forward is network(x.transpose(0, 1))."
            )
    return None


@torch.no_grad()
def _refusal(network: nn.Module, x: Any, kind: type[Exception]) -> str | None:
    """What the network by itself says against x, if it fails on it in the same way."""
    try:
        with untouched(network, x), evaluation_mode(network):
            inputs.call(network, x)
    except kind as error:
        given = ", ".join(f"{tuple(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for t in inputs.tensors(x))
        said = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        return f"The network does not take these inputs ({given or 'none'}): {said}.{_hint(x)}"
    except Exception:
        return None
    return None


def _hint(x: Any) -> str:
    if isinstance(x, Mapping):
        return f" A mapping holds inputs by the names of the network's arguments; these are {', '.join(map(str, x))}."
    if isinstance(x, tuple):
        return " A tuple holds several inputs by position; answers are left out."
    if any(not tensor.is_floating_point() for tensor in inputs.tensors(x)):
        return " Whole numbers stay such, as token numbers must: give measurements as x.float()."
    return ""
