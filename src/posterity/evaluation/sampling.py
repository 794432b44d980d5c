"""A part of the test rows that stands for all of them."""

import torch
from torch import Tensor

from posterity.streams import stream


def representative_rows(y: Tensor, n: int, seed: int = 0) -> Tensor:
    """Numbers of n rows whose targets are spread as those of all rows are, `[n]`, ascending; all where there are fewer.

    A systematic sample: rows in a random order are sorted by their target, and every (rows/n)-th is taken from a random
    start on. Each row has the same chance n/rows, a class gets its share to within one row, and so does each part of a
    target's range. It does not depend on the order of the rows, such as a file that is sorted by class. Where a row has
    several targets it is a simple random sample.

    Args:
        y: targets, `[rows, ...]`.
        n: how many rows.
        seed: of the order and the start.

    Example:
        >>> import torch
        >>> from posterity.evaluation.sampling import representative_rows
        >>> y = torch.tensor([0] * 60 + [1] * 40)  # sorted by class
        >>> torch.bincount(y[representative_rows(y, 10)]).tolist()
        [6, 4]
    """
    rows = len(y)
    generator = stream(seed, "rows")
    order = torch.randperm(rows, generator=generator)
    if n >= rows:
        return torch.arange(rows)
    if y.numel() == rows:
        order = order[y.detach().cpu().reshape(rows)[order].argsort(stable=True)]
    start = torch.rand((), generator=generator, dtype=torch.float64)
    places = ((torch.arange(n) + start) * rows / n).long().clamp(max=rows - 1)
    return order[places].sort().values
