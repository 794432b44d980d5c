"""What drawn functions say of some rows, kept draw by draw."""

from typing import Any

import torch
from torch import Tensor

from posterity import inputs, loading
from posterity.errors import Error
from posterity.explaining import explained
from posterity.functions import Functions


@torch.no_grad()
def outputs(functions: Functions, x: Any) -> Tensor:
    """All outputs of all functions, `[n, batch, ...]`, in double precision on the processor.

    Args:
        functions: n drawn functions.
        x: inputs as a tensor, array, tuple or mapping, or a Dataset or DataLoader.
    """
    like = inputs.like(functions)
    parts = []
    for batch in loading.input_batches(x, None, like.device, functions):
        loading.check_finite(batch)
        batch = inputs.apply(batch, lambda t: t.to(like.dtype) if t.is_floating_point() else t)
        with explained(functions.network, batch):
            parts.append(functions(batch).cpu().double())
    if not parts:
        raise Error("There is nothing to look at: the data have no rows.")
    return torch.cat(parts, 1)
