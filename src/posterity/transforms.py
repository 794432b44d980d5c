"""Function transforms of torch (`torch.func.grad`, `jacrev`, `vmap`), in which a network cannot be probed."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from posterity import inputs


def is_transformed() -> bool:
    """Whether a function transform is under way."""
    return not torch.compiler.is_compiling() and _functorch.peek_interpreter_stack() is not None


@contextlib.contextmanager
def untransformed(network: nn.Module, x: Any) -> Iterator[Any]:
    """No transform is under way in here: the network holds plain tensors, and x is one (of `vmap`, its first part)."""
    if not is_transformed():
        yield x
        return
    with temporarily_clear_interpreter_stack():
        held = [place for every in inputs.places(network) for place in every]
        before = [place.held[place.key] for place in held]
        try:
            for place, value in zip(held, before, strict=True):
                place.held[place.key] = plain(value)
            yield inputs.apply(x, plain)
        finally:
            for place, value in zip(held, before, strict=True):
                place.held[place.key] = value


def plain(tensor: Tensor) -> Tensor:
    """The tensor that transforms have wrapped; of one that `vmap` has stacked, the first part."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        axis = _functorch.maybe_get_bdim(tensor) if _functorch.is_batchedtensor(tensor) else None
        tensor = _functorch.get_unwrapped(tensor)
        tensor = tensor if axis is None else tensor.select(axis, 0)
    return tensor
