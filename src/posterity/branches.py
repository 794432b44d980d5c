"""Work that does not depend on each other's results, as branches of a CUDA graph: each is on a stream of its own."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

Result = TypeVar("Result")
_ON: ContextVar[bool] = ContextVar("branches", default=False)
#: More streams would be in each other's way, and each has memory of its own.
STREAMS = 8


@contextmanager
def branching(on: bool = True) -> Iterator[None]:
    """Within it work may branch: in a step that is captured, and in those that warm up for it."""
    token = _ON.set(on)
    try:
        yield
    finally:
        _ON.reset(token)


def branches() -> bool:
    """Whether work branches here. Outside a graph launches are what takes time, and more streams would need more."""
    return not torch.compiler.is_compiling() and _ON.get()  # in this order: a compiler cannot follow the second


def side_by_side(work: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """The result of each call; where work branches they run beside each other, and so does their backward pass.

    Each begins after all that was asked for before, and what is asked for afterwards waits for all of them.
    """
    if device.type != "cuda" or not branches():
        return [call() for call in work]
    here, results = torch.cuda.current_stream(device), []
    streams = [_stream(device, index) for index in range(min(len(work), STREAMS))]
    for stream in streams:
        stream.wait_stream(here)
    try:
        for index, call in enumerate(work):
            with torch.cuda.stream(streams[index % STREAMS]):
                results.append(call())
    finally:
        for stream in streams:
            here.wait_stream(stream)
    return results


@functools.cache
def _stream(device: torch.device, index: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
