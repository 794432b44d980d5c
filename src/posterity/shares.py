"""Which rows of a step's batch a process has, where several processes train one posterior.

Noise that belongs to rows is drawn for the whole batch by every process, from the same seed, and each takes that of its
own rows. So any number of processes trains with the noise that one alone would train with.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from posterity import posterior


class Share(NamedTuple):
    """Rows `start` to `stop` of a batch of `rows`; `counts` is False where there were too few: they are another's."""

    start: int
    stop: int
    rows: int
    counts: bool = True


_NOW: contextvars.ContextVar[Share | None] = contextvars.ContextVar("posterity_share", default=None)


def of(rank: int, processes: int, rows: int) -> Share:
    """The share of one process, as even as can be and never empty."""
    start, stop = rows * rank // processes, rows * (rank + 1) // processes
    return Share(start, stop, rows) if stop > start else Share(rows - 1, rows, rows, False)


@contextlib.contextmanager
def taking(share: Share | None) -> Iterator[None]:
    """Inside, noise of rows is that of the share."""
    token = _NOW.set(share)
    try:
        yield
    finally:
        _NOW.reset(token)


def whole(rows: int) -> int:
    """How many rows the whole batch has, or whole copies of it, where `rows` of them are here."""
    share = _NOW.get()
    return rows if share is None else rows // (share.stop - share.start) * share.rows


def copies(rows: int) -> int | None:
    """How many copies of the batch so many rows are; None where they are no such copies, or nothing is shared."""
    share = _NOW.get()
    if share is None or rows % (share.stop - share.start):
        return None
    return rows // (share.stop - share.start)


def mine(noise: Tensor, each: int = 1) -> Tensor:
    """The part of noise `[rows of the whole batch · each, ...]` that belongs to the rows here; a row's lie together."""
    share = _NOW.get()
    return noise if share is None else noise[each * share.start : each * share.stop]


def randn(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard normal noise `[rows, ...]` for the rows here, or for copies of the batch one after another."""
    share = _NOW.get()
    if share is None or not copies(shape[0]):
        return posterior.randn(shape, like, generator)
    noise = posterior.randn((whole(shape[0]), *shape[1:]), like, generator)
    return noise.unflatten(0, (-1, share.rows))[:, share.start : share.stop].flatten(0, 1)
