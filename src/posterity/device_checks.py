"""Checks of labels and indices before a GPU meets them.

An index that is out of range makes a GPU's kernel assert, and no call of CUDA succeeds in the process from then on. A
check of values on a device waits for it, so training checks in its first epoch alone.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from posterity import inputs
from posterity.errors import Error

_LOCAL = threading.local()


def can_check(values: Tensor) -> bool:
    """Whether the values of a tensor can be read here: not in a recorded step, nor where it must not wait for them."""
    return not is_recorded(values) and not (values.is_cuda and getattr(_LOCAL, "without_index_checks", False))


def is_recorded(values: Tensor) -> bool:
    """Whether what is computed here is compiled, or captured as a CUDA graph: it runs later, with other values."""
    return torch.compiler.is_compiling() or (values.is_cuda and torch.cuda.is_current_stream_capturing())


@contextlib.contextmanager
def without_index_checks() -> Iterator[None]:
    """Inside, nothing waits for a device: its labels and indices have been checked before."""
    before = getattr(_LOCAL, "without_index_checks", False)
    _LOCAL.without_index_checks = True
    try:
        yield
    finally:
        _LOCAL.without_index_checks = before


def check_embeddings(network: nn.Module) -> list[torch.utils.hooks.RemovableHandle]:
    """Let a network's embeddings check indices that are on a device; the handles take the checks away again."""
    return [
        module.register_forward_pre_hook(_check_index)
        for module in network.modules()
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag))
    ]


@contextlib.contextmanager
def embeddings_checked(network: nn.Module) -> Iterator[None]:
    """Inside, the network's embeddings check indices that are on a device."""
    handles = check_embeddings(network)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _check_index(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Raise, as an embedding on a processor does, for an index that it does not have."""
    index = args[0] if args else None
    if not isinstance(index, Tensor) or not index.is_cuda or not can_check(index):
        return
    if torch._C._functorch.is_functorch_wrapped_tensor(index):  # inside vmap no value can be read
        return
    _check_range(index, 0, int(module.num_embeddings))  # type: ignore[arg-type]


@contextlib.contextmanager
def assertions_explained() -> Iterator[None]:
    """Inside, a kernel that met an index out of range is an `Error` that says what to do."""
    try:
        yield
    except torch.AcceleratorError as error:
        if "device-side assert" not in str(error):
            raise
        raise Error(
            "A kernel on the GPU met an index that is out of range: a label that is not below the number of classes, "
            "or a token or row number that is not below the number of embeddings or rows. This process cannot use the "
            'GPU any more: start it anew, with device="cpu" to see which index it is.'
        ) from error


class IndexChecks(TorchDispatchMode):
    """Inside, an operator that takes rows by number raises for a number that is out of range, as on a processor."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The operator, after a look at its indices."""
        name = func.overloadpacket.__name__.rstrip("_")
        if name in ALONG_AXIS:
            _check_range(args[2], 0, args[0].shape[args[1]] if args[0].dim() else 1)
        elif name == "embedding":
            _check_range(args[1], 0, len(args[0]))
        elif name in ("index", "index_put", "_index_put_impl"):
            for size, index in zip(args[0].shape, args[1], strict=False):
                if index is not None and index.dtype in (torch.bool, torch.uint8):  # a mask may span several axes
                    break
                _check_range(index, -size, size)
        return func(*args, **(kwargs or {}))


ALONG_AXIS = {"index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy"}
"""Operators whose second and third arguments are an axis and indices on it."""


def indices_checked(x: Any) -> contextlib.AbstractContextManager[Any]:
    """`IndexChecks` where a network that gets x may take rows by number, on a device.

    Networks are tried on two and three rows, for which the row numbers that a graph holds are out of range.
    """
    if torch.compiler.is_compiling():
        return contextlib.nullcontext()
    whole = any(tensor.is_cuda and not tensor.is_floating_point() for tensor in inputs.tensors(x))
    return IndexChecks() if whole else contextlib.nullcontext()


def _check_range(index: Tensor | None, least: int, size: int) -> None:
    if index is None or not index.numel():
        return
    low, high = torch.stack(torch.aminmax(index.long())).tolist()
    if low < least or high >= size:
        raise IndexError(f"index {low if low < least else high} is out of range for an axis of {size}")
