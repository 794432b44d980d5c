"""Batches of data: from tensors, arrays, a Dataset or a DataLoader, in an order that is a function of a seed."""

import itertools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from posterity import inputs, interaction, shares
from posterity.batch_samplers import Cut, Joining, Start, length, loader_of, spans
from posterity.errors import Error
from posterity.randomness import turn
from posterity.readings import check_weights
from posterity.shares import Share
from posterity.streams import numpy_seed
from posterity.wording import number


class Batch(NamedTuple):
    """Inputs, answers and, where the data carry them, weights of the rows; and which rows these are, if not all."""

    x: Any
    y: Any = None
    weight: Tensor | None = None
    share: Share | None = None


class Batches:
    """Successive batches of data; an epoch's order depends on its seed alone.

    Args:
        data: `(x, y)` or `(x, y, weight)` of tensors or arrays, a Dataset of such items, or a DataLoader.
        batch_size: rows in a batch; a DataLoader has its own.
        shuffle: a new order every epoch.
        device: where the batches go.
        rank, processes: of several processes that share each batch, the number of this one, and how many there are.
    """

    def __init__(
        self,
        data: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        device: torch.device | None = None,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.device, self.shuffle, self.rank, self.processes = device, shuffle, rank, processes
        self.cut = self.whole = self.made = False
        self.memory: Batch | None = None
        self.loader: DataLoader[Any] | None = None
        self.size: int | None = None
        self.rows: int | None = None
        self.weighed = torch.zeros(2, dtype=torch.float64) if shuffle else None
        if isinstance(data, TensorDataset):
            data = data.tensors
        if isinstance(data, DataLoader):
            self.loader, self.whole = data, data.batch_sampler is None  # whole batches, of any number of rows
            self.size = None if self.whole else _size(data)
        elif isinstance(data, Dataset):
            self.size = length(data)
            self.batch_size = batch_size or default_batch_size(self.size or 10_000)
            self.loader, self.made, self.rows = loader_of(data, self.batch_size, shuffle), True, self.size
        elif isinstance(data, (tuple, list)) and len(data) in (2, 3):
            self.memory = _in_memory(data, device)
            self.size = self.rows = inputs.rows(self.memory.x) or 0
            self.batch_size = batch_size or default_batch_size(self.size or 1)
        else:
            kind = type(data).__name__
            raise Error(f"Data must be a pair (x, y) of tensors or arrays, a Dataset or a DataLoader; got {kind}.")

        if self.loader is not None and processes > 1:
            self._cut()

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        if rows := self.rows or (self.size if self.made else None):
            return len(spans(rows, self.batch_size))
        assert self.loader is not None
        try:
            return len(self.loader)
        except TypeError as error:
            if self.size and self.loader.batch_size:
                return -(-self.size // self.loader.batch_size)
            if self.size:
                what = "The loader gives whole batches, and how many is not known"
                raise Error(f"{what}: give its data set a length (__len__), the number of batches.") from error
            raise Error("The data have no length: give size=, the number of data in the training set.") from error

    def epoch(self, seed: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, without the first `skip` of them."""
        return self._from_loader(seed, skip) if self.memory is None else self._from_memory(self.memory, seed, skip)

    def _from_loader(self, seed: int, skip: int) -> Iterator[Batch]:
        assert self.loader is not None
        for own in _generators(self.loader):
            own.manual_seed(seed)
        with turn(seed=seed):
            iterator = iter(self.loader)
        # A sampler draws its order at the first `next`, a data set its augmentation at each: both are seeded.
        for index in itertools.count():
            with turn(seed=numpy_seed(seed, index)):
                item = next(iterator, None)
            if item is None:
                self._look_at_weights()
                return
            if index >= skip:
                batch = _as_batch(item)
                check_weights(batch.weight, least=-1.0)  # a batch of rows that do not count is none's fault
                if isinstance(batch.weight, Tensor) and self.weighed is not None:
                    self.weighed += torch.stack([batch.weight.sum(), batch.weight.count_nonzero()]).cpu()
                yield _to_device(self._part(batch, index), self.device)

    def _look_at_weights(self) -> None:
        """Once, after the first epoch of training: a loader's weights are known when all have come."""
        if self.weighed is not None:
            warn_of_weights(*self.weighed.tolist())
            self.weighed = None

    def _from_memory(self, memory: Batch, seed: int, skip: int) -> Iterator[Batch]:
        rows = self.rows or 0
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed)) if self.shuffle else None
        if order is not None and self.device is not None:
            order = order.to(self.device)  # at once, not batch by batch
        for start, stop in spans(rows, self.batch_size)[skip:]:
            share = self._share(stop - start)
            if share is not None:
                start, stop = start + share.start, start + share.stop
            if order is None:
                parts = [None if part is None else inputs.between(part, start, stop) for part in memory[:3]]
            else:
                chosen = order[start:stop]
                parts = [None if part is None else inputs.take(part, chosen) for part in memory[:3]]
            yield Batch(parts[0], parts[1], parts[2], share)

    def _share(self, rows: int) -> Share | None:
        return shares.of(self.rank, self.processes, rows) if self.processes > 1 else None

    def _cut(self) -> None:
        """Where a loader's batches can be foreseen, load the rows of this process alone."""
        loader: Any = self.loader
        batches: Any = loader.batch_sampler
        if getattr(_sampler(loader), "num_replicas", 1) > 1 or type(loader).__module__.startswith("accelerate."):
            raise Error(
                f"The loader gives each process rows of its own ({type(_sampler(loader)).__name__}), and fit would cut "
                "its batches a second time, so that most rows are left out: give a loader of all rows, without "
                "DistributedSampler or accelerator.prepare; each process then loads its part of every batch."
            )
        if type(batches) not in (BatchSampler, Joining) or length(batches.sampler) is None:
            return
        names = "num_workers collate_fn pin_memory timeout worker_init_fn multiprocessing_context generator"
        names += " prefetch_factor persistent_workers"
        options = {name: getattr(loader, name) for name in names.split()}
        self.cut, rows, self.batch_size = True, length(batches.sampler) or 0, batches.batch_size
        self.spans = spans(rows, self.batch_size, joined=type(batches) is Joining)
        options["worker_init_fn"] = Start(self.rank, options["worker_init_fn"])
        self.loader = DataLoader(loader.dataset, batch_sampler=Cut(batches, self.rank, self.processes), **options)

    def _part(self, batch: Batch, index: int) -> Batch:
        """The rows of this process, with their share of the batch that comes at this place."""
        if self.processes == 1:
            return batch
        if self.cut:
            start, stop = self.spans[index]
            return batch._replace(share=self._share(stop - start))
        share = self._share(inputs.rows(batch.x) or 1)
        assert share is not None
        x, y, weight = (None if p is None else inputs.between(p, share.start, share.stop) for p in batch[:3])
        return Batch(x, y, weight, share)


def _generators(loader: Any) -> list[torch.Generator]:
    """A loader's own generators, each once."""
    batches = getattr(loader, "batch_sampler", None)
    found = (getattr(o, "generator", None) for o in (loader, loader.sampler, getattr(batches, "sampler", None)))
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


def default_batch_size(size: int) -> int:
    """About a fortieth of the data, as a power of two from 16 to 128."""
    return 1 << max(4, min(7, (max(size, 1) // 40).bit_length()))


def _size(loader: DataLoader[Any]) -> int | None:
    """How many rows there are to learn from: those of a fixed choice, else all of the data set."""
    batches = loader.batch_sampler
    if isinstance(batches, (list, tuple)):
        return len({row for batch in batches for row in batch})
    sampler = _sampler(loader)
    fixed = isinstance(sampler, (SubsetRandomSampler, SequentialSampler, list, tuple, range, Tensor, np.ndarray))
    return len(sampler) if fixed else length(loader.dataset)


def _sampler(loader: DataLoader[Any]) -> Any:
    """What chooses a loader's rows."""
    return getattr(loader.batch_sampler, "sampler", loader.sampler)


def _in_memory(data: Any, device: torch.device | None) -> Batch:
    batch = Batch(*(inputs.as_tensors(part, device) for part in data))
    rows = inputs.rows(batch.x)
    if rows is None:
        raise Error("The inputs need the same number of rows on axis 0 of each tensor.")
    if rows == 0:
        raise Error("The data have no rows.")
    for name, part in (("answers", batch.y), ("weights", batch.weight)):
        if part is not None and inputs.rows(part) != rows:
            second = {tensor.shape[1] for tensor in inputs.tensors(batch.x) if tensor.dim() > 1} == {inputs.rows(part)}
            hint = (
                " Rows are on axis 0, of inputs too, where these have sequences: give x.transpose(0, 1)."
                if second
                else ""
            )
            raise Error(f"There are {rows} rows of inputs but {inputs.rows(part)} {name}: they must be as many.{hint}")
    check_weights(batch.weight)
    return batch


def warn_of_weights(total: float, rows: float) -> None:
    """Warn where the weights of those rows that count are far from 1 in the mean, for that is rarely meant."""
    if rows and not 0.1 <= total / rows <= 10:
        warnings.warn(
            f"The weights of {number(rows)} rows sum to {number(total)}. A row of weight 2 counts as two rows, so the "
            f"data weigh as much as {number(total)} rows against the prior: multiply the weights by "
            f"{number(rows / total)}, for a mean of 1, unless that is meant.",
            stacklevel=4,
        )


def _as_batch(item: Any) -> Batch:
    """What a DataLoader gives: (x, y), (x, y, weight), a mapping with labels, or x alone."""
    if isinstance(item, Mapping):
        rest = dict(item)
        for name in ("labels", "label", "y", "target"):
            if name in rest:
                y = rest.pop(name)
                return Batch(rest, y)
        return Batch(rest)
    if isinstance(item, (tuple, list)):
        if len(item) > 3:
            raise Error(f"A batch must be (x, y) or (x, y, weight); the loader gives {len(item)} parts.")
        return Batch(*item)
    return Batch(item)


def _to_device(batch: Batch, device: torch.device | None) -> Batch:
    x, y, weight = (inputs.as_tensors(part, device) for part in batch[:3])
    return Batch(x, y, weight, batch.share)


def rearranges(loader: DataLoader[Any]) -> bool:
    """Whether a loader gives other rows than its data has, or in another order."""
    rows, size, sampler = length(loader.sampler), loader.batch_size, _sampler(loader)
    random = isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler))
    return random or bool(loader.drop_last and rows and size and rows % size)


def input_batches(
    data: Any,
    batch_size: int | None,
    device: torch.device,
    functions: Any = None,
    default: int = 1024,
) -> Iterator[Any]:
    """The inputs of data that need no targets: a tensor, array, tuple or mapping (whole), a Dataset or a DataLoader.

    Without `batch_size`, batches have `default` rows, or all of them where rows interact in the functions' network.
    """
    if isinstance(data, (Dataset, DataLoader)):
        batches = (batch.x for batch in loaded(data, batch_size or default, device))
        first = list(itertools.islice(batches, 2))
        several = isinstance(data, Dataset) and not batch_size and functions is not None and len(first) > 1
        if several and inputs.rows(first[0]) and interaction.keeps_whole(functions, first[0]):
            first = [inputs.joined([*first, *batches])]
        yield from first
        yield from batches
        return
    x = inputs.as_tensors(data)
    if not isinstance(x, (Tensor, Mapping, tuple)):
        raise Error(f"Inputs must be tensors or arrays, a Dataset or a DataLoader; got {type(data).__name__}.")
    for part in [x] if functions is None else interaction.pieces(functions, x, batch_size, default):
        yield inputs.as_tensors(part, device)


def loaded(data: Any, batch_size: int | None, device: torch.device) -> Iterator[Batch]:
    """The batches of a DataLoader, or of a Dataset; torch's global generator is left as it was."""
    loader: Any = data if isinstance(data, DataLoader) else DataLoader(data, batch_size or 1024)
    with turn():
        iterator = iter(loader)
    while True:
        with turn():
            item = next(iterator, None)
        if item is None:
            return
        yield _to_device(_as_batch(item), device)


def check_finite(x: Any) -> bool:
    """Refuse inputs that hold NaN or infinities: no answer to them means anything.

    Where there are several, −∞ may be a mask's: then it is let through, and True is returned.
    """
    given = inputs.tensors(x)
    for tensor in given:
        if not tensor.is_floating_point():
            continue
        wrong = ~tensor.isfinite() if len(given) == 1 else tensor.isnan() | tensor.isposinf()
        if bool(wrong.any()):
            raise Error("The inputs hold NaN or infinite values: clean or fill them first.")
    return len(given) > 1 and any(t.is_floating_point() and bool(t.isneginf().any()) for t in given)
