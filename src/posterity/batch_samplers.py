"""Which rows make a batch: a lone last one joins those before it, and processes share each."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from posterity import shares
from posterity.randomness import reseed
from posterity.streams import numpy_seed


class Joining(BatchSampler):
    """Batches of a sampler's rows, of which a lone last one joins the batch before it."""

    def __iter__(self) -> Iterator[list[int]]:
        order = list(self.sampler)
        for start, stop in spans(len(order), self.batch_size):
            yield order[start:stop]

    def __len__(self) -> int:
        return len(spans(length(self.sampler) or 0, self.batch_size))


class JoiningStream(IterableDataset[Any]):
    """The same of the rows of a stream, whose end is not known before it comes."""

    def __init__(self, data: Any, batch_size: int) -> None:
        self.data, self.batch_size = data, batch_size

    def __iter__(self) -> Iterator[Any]:
        rows: list[Any] = []
        for row in self.data:
            rows.append(row)
            if len(rows) == self.batch_size + 2:
                yield default_collate(rows[: self.batch_size])
                rows = rows[self.batch_size :]
        for start, stop in spans(len(rows), self.batch_size):
            yield default_collate(rows[start:stop])


def spans(rows: int, batch_size: int, joined: bool = True) -> list[tuple[int, int]]:
    """Where batches start and stop; a last one of one row joins the one before it (batch statistics need two)."""
    starts = list(range(0, rows, batch_size))
    if joined and len(starts) > 1 and rows - starts[-1] == 1:
        del starts[-1]
    return list(zip(starts, [*starts[1:], rows], strict=bool(starts)))


def loader_of(data: Dataset[Any], batch_size: int, shuffle: bool) -> DataLoader[Any]:
    """A loader of a data set's rows, of which those of a stream come as they come."""
    if isinstance(data, IterableDataset):
        return DataLoader(JoiningStream(data, batch_size), batch_size=None)
    sampler: Any = RandomSampler if shuffle and length(data) is not None else SequentialSampler
    return DataLoader(data, batch_sampler=Joining(sampler(data), batch_size, drop_last=False))


class Cut:
    """The batches of a sampler, each cut to the rows of one process."""

    def __init__(self, batches: BatchSampler, rank: int, processes: int) -> None:
        self.batches, self.rank, self.processes = batches, rank, processes

    @property
    def sampler(self) -> Any:
        """That of the batches, whose generator is seeded every epoch."""
        return self.batches.sampler

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self.batches:
            share = shares.of(self.rank, self.processes, len(rows))
            _draw_apart(self.rank)  # the order is drawn; what the data set draws comes next
            yield rows[share.start : share.stop]

    def __len__(self) -> int:
        return len(self.batches)


class Start:
    """Starts a worker: what is random in it differs from process to process."""

    def __init__(self, rank: int, then: Callable[[int], Any] | None) -> None:
        self.rank, self.then = rank, then

    def __call__(self, worker: int) -> None:
        """Seed the worker of this number, and start it as asked."""
        _draw_apart(self.rank)
        if self.then is not None:
            self.then(worker)


def length(dataset: Any) -> int | None:
    """Of a data set or sampler, where it has one."""
    try:
        return len(dataset)
    except TypeError:
        return None


def _draw_apart(rank: int) -> None:
    """Let what is random in a process differ from that in the first one, which stays as it is."""
    if rank:
        reseed(numpy_seed(torch.initial_seed(), rank))
