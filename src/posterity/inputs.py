"""What a network takes and gives: a tensor, a tuple or a mapping of them.

Rows are on axis 0 of every tensor of an input. Anything that is not a tensor, and a tensor without axes, goes
through as it is.
"""

import dataclasses
import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from posterity.errors import Error, short

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Types of whole numbers for which torch has few kernels, on a GPU none that takes rows."""
LOOKED_AT = 2**28
"""Bytes of a tensor, at most, that its fingerprint is made of."""


def call(
    network: nn.Module,
    x: Any,
    weights: Mapping[str, Tensor] | None = None,
    ties: bool = True,
    after: dict[str, Tensor] | None = None,
) -> Any:
    """Call a network with x: a tuple or list gives positional arguments, a mapping keyword arguments.

    With `weights` it is called with these in place of its own parameters and buffers of the same names, and with `ties`
    of all other names that these have. `after` gets what these have become: a network may replace a buffer.
    """
    args = tuple(x) if isinstance(x, (tuple, list)) else () if isinstance(x, Mapping) else (x,)
    kwargs = dict(x) if isinstance(x, Mapping) else {}
    if weights:
        swapped = _with_ties(network, weights) if ties else dict(weights)
        result = torch.func.functional_call(network, swapped, args, kwargs, tie_weights=False)
        if after is not None:
            after.update({name: swapped[name] for name in weights})
        return result
    return network(*args, **kwargs)


def _with_ties(network: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under all names that their tensors have in the network.

    A module that the network holds under several names is named once: torch's own way swaps its weights twice, and puts
    the first swap in their place afterwards.
    """
    also = {place.name: every for every in places(network) for place in every}
    return {
        name: value for key, value in weights.items() for name in [place.name for place in also.get(key, ())] or [key]
    }


class Place(NamedTuple):
    """Where a module holds a parameter or a buffer: its name in the network, and the module's dict with its key."""

    name: str
    held: dict[str, Any]
    key: str


def places(network: nn.Module) -> list[list[Place]]:
    """All places of each parameter and buffer of a network: several where it is tied."""
    found: dict[Tensor, list[Place]] = {}
    for at, module in network.named_modules():
        for held in (module._parameters, module._buffers):
            for key, tensor in held.items():
                if tensor is not None:
                    found.setdefault(tensor, []).append(Place(f"{at}.{key}" if at else key, held, key))
    return list(found.values())


def output(result: Any, name: str | int | None = None) -> Tensor:
    """The tensor of a network's result that carries the answer: `name`, else `logits`, else the first tensor."""
    if isinstance(result, Tensor) and name is None:
        return result
    fields = _fields(result)
    if name is not None:
        if name not in fields:
            raise Error(f"The network returns {sorted(map(str, fields))}, not output={short(name)}.")
        return fields[name]
    if isinstance(fields.get("logits"), Tensor):
        return fields["logits"]
    found = [key for key, value in fields.items() if isinstance(value, Tensor)]
    if len(found) > 1 and isinstance(found[0], str) and not torch.compiler.is_compiling():
        warnings.warn(
            f"The network returns {', '.join(map(str, found))}, none of them called logits: {found[0]!r}, the first, "
            f"is taken for the answer. Say which one is with output={found[-1]!r}, or another.",
            stacklevel=2,
        )
    if found:
        return fields[found[0]]
    raise Error(f"The network returned a {type(result).__name__} that holds no tensor: name one with output=.")


def _fields(result: Any) -> dict[Any, Any]:
    if isinstance(result, Mapping):
        return dict(result)
    if dataclasses.is_dataclass(result):
        return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    if isinstance(result, (tuple, list)):
        named = getattr(result, "_fields", ())
        return dict(enumerate(result)) | dict(zip(named, result, strict=True)) if named else dict(enumerate(result))
    return {0: result}


def results(result: Any) -> list[Tensor]:
    """All tensors of a network's result."""
    if isinstance(result, Tensor):
        return [result]
    return [tensor for value in _fields(result).values() if value is not result for tensor in results(value)]


def like(module: nn.Module) -> Tensor:
    """The first parameter that inputs are made alike: of real numbers, not a count or a complex one."""
    return next((p for p in module.parameters() if p.is_floating_point()), torch.zeros(()))


def copies(x: Any, n: int) -> list[Any]:
    """x for each of n calls of a network that may write into its inputs: all but the last have a copy of their own."""
    return [apply(x, Tensor.clone) for _ in range(n - 1)] + [x] * (n > 0)


def apply(x: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """`function` of every tensor in x that has rows; the rest unchanged."""
    if isinstance(x, Tensor):
        return function(x) if x.dim() else x
    if isinstance(x, Mapping):
        return {key: apply(value, function) for key, value in x.items()}
    if isinstance(x, (tuple, list)):
        return tuple(apply(value, function) for value in x)
    return x


def tensors(x: Any) -> list[Tensor]:
    """The tensors of x that have rows."""
    if isinstance(x, Tensor):
        return [x] if x.dim() else []
    members = x.values() if isinstance(x, Mapping) else x if isinstance(x, (tuple, list)) else ()
    return [tensor for member in members for tensor in tensors(member)]


def fingerprint(x: Any) -> str:
    """What tells data apart: shapes and types of its tensors, and their bytes, or of large ones some of them."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors(x):
        # A tensor of one number may have any stride: bytes need 1.
        flat = tensor.detach().contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(flat[:: len(flat) // LOOKED_AT + 1].cpu().contiguous().numpy().data)
    return digest.hexdigest()


def between(x: Any, start: int, stop: int) -> Any:
    """Rows start to stop of x."""
    return apply(x, lambda tensor: tensor[start:stop])


def take(x: Any, chosen: Tensor) -> Any:
    """The rows of x whose numbers are in `chosen`."""
    return apply(x, lambda tensor: tensor[chosen.to(tensor.device)])


def joined(parts: list[Any]) -> Any:
    """Successive rows as one input."""
    if isinstance(parts[0], dict):
        return {key: joined([part[key] for part in parts]) for key in parts[0]}
    if isinstance(parts[0], tuple):
        return tuple(joined(list(each)) for each in zip(*parts, strict=True))
    return torch.cat(parts) if isinstance(parts[0], Tensor) and parts[0].dim() else parts[0]


def axes(x: Any) -> tuple[int, ...]:
    """How many each tensor has: inputs with others may take another way through a network."""
    return tuple(tensor.dim() for tensor in tensors(x))


def rows(x: Any) -> int | None:
    """The number of rows, or None where the tensors of x do not agree on one."""
    counts = [tensor.shape[0] for tensor in tensors(x)]
    return counts[0] if counts and all(count == counts[0] for count in counts) else None


def as_tensors(x: Any, device: torch.device | None = None) -> Any:
    """x with arrays, frames and lists of numbers turned into tensors (float64 into torch's default), on a device."""
    x = x.to_numpy() if hasattr(x, "to_numpy") else _array(x) if _of_numbers(x) else x
    if isinstance(x, Mapping):
        return {key: as_tensors(value, device) for key, value in x.items()}
    if isinstance(x, (tuple, list)):
        return tuple(as_tensors(value, device) for value in x)
    if isinstance(x, np.ndarray):
        if x.dtype.kind not in "fiub":
            raise Error(f"An array of type {x.dtype} cannot be an input: numbers are needed.")
        if np.ma.is_masked(x):
            raise Error("A masked array hides some of its values: fill them first.")
        x = torch.as_tensor(np.require(x, x.dtype.newbyteorder("="), ["C", "W"]))
        x = x.to(torch.get_default_dtype()) if x.dtype == torch.float64 else x
    if not isinstance(x, Tensor):
        return x
    return x.to(device, torch.int64 if x.dtype in UNSIGNED else x.dtype)


def _of_numbers(x: Any) -> bool:
    """Whether x is a list, or one of lists, that begins with a number."""
    listed = isinstance(x, list)
    while isinstance(x, list) and x:
        x = x[0]
    return listed and isinstance(x, (bool, int, float))


def _array(x: list[Any]) -> np.ndarray:
    try:
        return np.asarray(x)
    except ValueError as error:
        raise Error("Lists of numbers must be of the same length, row by row.") from error


def alike(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes are the same but for axes of length 1."""
    return [n for n in one if n != 1] == [n for n in other if n != 1]


def shaped(y: Tensor, shape: Sequence[int]) -> Tensor:
    """Answers in the shape of what is predicted: `[batch]` and `[batch, 1]` are one, other shapes are a mistake.

    Without this `[batch, 1]` against `[batch]` is `[batch, batch]` in silence, and a reshape scrambles moved axes.
    """
    if not alike(y.shape, shape):
        raise Error(
            f"Targets of shape {tuple(y.shape)} do not fit a prediction of shape {tuple(shape)}: they must be the same."
        )
    return y.reshape(tuple(shape))


def numbers(value: Any, **options: Any) -> Tensor:
    """The value as a tensor; what is no number becomes zero, which no check of positive numbers passes."""
    try:
        return torch.as_tensor(value, **options)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return torch.zeros(())
