"""Selection: how good are the answers that remain when the most uncertain are withheld?"""

import torch
from torch import Tensor

from posterity.errors import Error


def selective_mean(loss: Tensor, uncertainty: Tensor, fractions: Tensor) -> Tensor:
    """The mean loss of the most certain fraction of the data, for each fraction; [fractions].

    A fraction f keeps the ⌈f·batch⌉ data with the lowest uncertainty, and at least one. With 0/1 losses this
    is the risk-coverage curve (El-Yaniv and Wiener, 2010). Data of equal uncertainty count with their mean loss,
    so that their order means nothing and a constant uncertainty gives a flat line.

    Args:
        loss: [batch]
        uncertainty: [batch]
        fractions: [fractions], each in (0, 1]
    """
    if not len(loss):
        raise Error("Selection needs at least one datum.")
    loss = loss.double()
    _, group, counts = torch.unique(uncertainty, return_inverse=True, return_counts=True)
    shared = torch.zeros(len(counts), dtype=loss.dtype).index_add(0, group, loss) / counts
    running = shared.repeat_interleave(counts).cumsum(dim=0) / torch.arange(1, len(loss) + 1)
    # Less a hair, so that 0.3 · 10, which is 3.0000001 in floats, keeps three and not four.
    kept = torch.ceil(fractions.double() * len(loss) * (1 - 1e-6)).long().clamp(1, len(loss))
    return running[kept - 1]
