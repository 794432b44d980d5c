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
_COPIES: contextvars.ContextVar[int] = contextvars.ContextVar("posterity_copies", default=1)


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


def copied(times: int) -> contextlib.AbstractContextManager[None]:
    """Inside, so many whole copies of the batch follow one another; else what comes of a row lies together."""
    return contextlib.nullcontext() if _NOW.get() is None else _copied(times)


@contextlib.contextmanager
def _copied(times: int) -> Iterator[None]:
    token = _COPIES.set(times)
    try:
        yield
    finally:
        _COPIES.reset(token)


def part(noise: Tensor) -> Tensor:
    """The part of noise for the whole batch, or for several rows of each of its rows, that belongs to the rows here."""
    share = _NOW.get()
    if share is None:
        return noise
    times = _COPIES.get()
    times = times if len(noise) % (times * share.rows) == 0 else 1
    rows = noise.unflatten(0, (times, share.rows, -1))
    return rows.narrow(1, share.start, share.stop - share.start).flatten(0, 2)


def here(row: int) -> int:
    """A row of the whole batch as one of those here, or as the end that is nearest to it."""
    share = _NOW.get()
    return row if share is None else min(max(row, share.start), share.stop) - share.start


def randn(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard normal noise `[rows, ...]` for the rows here, or for several of each of them (see `copied`)."""
    share = _NOW.get()
    if share is None or not copies(shape[0]):
        return posterior.randn(shape, like, generator)
    return part(posterior.randn((whole(shape[0]), *shape[1:]), like, generator))
