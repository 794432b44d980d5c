"""Training data taken apart into rows to learn from and rows held out."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from posterity import inputs
from posterity.errors import Error, short
from posterity.loading import Batch, Batches, _as_batch
from posterity.streams import numpy_seed


def as_pair(data: Any) -> Any:
    """A mapping in memory as (x, y); anything else unchanged."""
    if not isinstance(data, Mapping):
        return data
    batch = _as_batch(data)
    if batch.y is None:
        raise Error('The mapping holds no answers: give them as "labels", or data as a pair (x, y).')
    return batch.x, batch.y


def first_rows(memory: Batch) -> tuple[Any, Any]:
    """Two rows of data in memory, and their targets."""
    return inputs.between(memory.x, 0, 2), inputs.between(memory.y, 0, 2)


def hold_out(
    data: Any,
    share: float | str,
    seed: int,
    stratified: bool = True,
    interact: Callable[[Any], bool] = lambda x: False,
) -> tuple[Any, Any]:
    """Split data in memory into a training and a validation part; data that are too few for "auto" stay whole.

    Where rows interact both parts have the same inputs, all of them, and weights say which rows count; those of weight
    0, as nodes without a label, are in neither part.

    Args:
        data: in memory.
        share: of the rows, or "auto": a tenth, of fewer than 500 rows 50 or a fifth.
        seed: of the choice.
        stratified: whether the held-out rows have their part of each class, or of each range of a single real target.
        interact: whether rows of these inputs interact.
    """
    everything = Batches(data, 1)
    memory, rows = everything.memory, everything.size
    if memory is None or rows is None:
        raise Error("A share can be held out of data in memory only: give validation data of their own.")
    weight = None
    generator = torch.Generator().manual_seed(numpy_seed(seed, 4))
    order = torch.randperm(rows, generator=generator)
    if interact(memory.x):
        weight = torch.ones(rows) if memory.weight is None else memory.weight.flatten()
        order = order[weight.detach().cpu()[order] > 0]
    count = len(order)
    if share == "auto":
        share = max(count // 10, min(count // 5, 50)) / count
        if not share:
            return data, None
    if isinstance(share, str) or not 0 < share < 1:
        raise Error(f"validation must be data, 'auto', or a share between 0 and 1; got {short(share)}.")
    held = max(1, round(share * count))
    if held >= count:
        raise Error(f"{count} rows are too few to hold out {share:.0%} of them.")
    y = memory.y
    if stratified and isinstance(y, Tensor) and y.numel() == rows:
        order = _evenly(order, y.detach().reshape(-1).cpu(), held, generator)
    if weight is not None:
        split = order[held:].to(weight.device), order[:held].to(weight.device)
        weights = [rows / len(part) * torch.zeros_like(weight).index_copy(0, part, weight[part]) for part in split]
        return (memory.x, y, weights[0]), (memory.x, y, weights[1])
    parts = [part for part in memory if part is not None]
    rest, chosen = (tuple(inputs.take(part, numbers) for part in parts) for numbers in (order[held:], order[:held]))
    return rest, chosen


def _evenly(order: Tensor, y: Tensor, held: int, generator: torch.Generator) -> Tensor:
    """A random order in which the first `held` rows are spread evenly over the values of y.

    They are every so manieth of the rows in the order of y, in which equal values come in random order. A class keeps a
    row to learn from, if there are enough others.
    """
    by_value = order[torch.argsort(y[order], stable=True)]
    if not y.is_floating_point():
        values = y[by_value]
        again = torch.cat([torch.tensor([False]), values[1:] == values[:-1]])
        by_value = by_value[again] if int(again.sum()) >= held else by_value
    start = float(torch.rand((), generator=generator, dtype=torch.float64))
    places = ((torch.arange(held, dtype=torch.float64) + start) * len(by_value) / held).long()
    chosen = by_value[places.clamp(max=len(by_value) - 1)]
    rest = torch.ones(len(y), dtype=torch.bool).index_fill(0, chosen, False)
    return torch.cat([chosen, order[rest[order]]])
