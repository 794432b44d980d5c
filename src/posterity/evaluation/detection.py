"""Detection: does uncertainty rise where the data end?"""

import torch
from torch import Tensor

from posterity.errors import Error


def auroc(inside: Tensor, outside: Tensor) -> float:
    """The chance that a datum from outside scores higher than one from inside; ties count half.

    P(outside > inside) + ½ P(outside = inside): the area under the ROC curve, by ranks (Mann and
    Whitney, 1947). 1 separates perfectly, ½ is no better than a coin.

    Args:
        inside: scores, such as `prediction.epistemic`, of data like those trained on, any shape
        outside: the same score of other data, any shape
    """
    inside, outside = inside.flatten().double(), outside.flatten().double()
    if not len(inside) or not len(outside):
        raise Error("Detection needs at least one score from inside the data and one from outside.")
    if torch.isnan(inside).any() or torch.isnan(outside).any():
        raise Error("Detection cannot rank scores that are not numbers (NaN): did training diverge?")
    ordered = inside.sort().values
    below = torch.searchsorted(ordered, outside, side="left")
    not_above = torch.searchsorted(ordered, outside, side="right")
    return float((below + not_above).double().mean() / (2 * len(inside)))
