"""Random numbers that a network draws in evaluation mode: each drawn function keeps one stream of them.

`F.dropout(x, p)` drops in evaluation mode too, and a forward pass may call `torch.randn`. Such a network is seen by
torch's generator, which has moved on behind it; from then on every call of a function starts at the same place of its
own stream, and the global generators stay where they were.
"""

import contextlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from posterity import inputs
from posterity.interaction import close
from posterity.state import alone, random_states, seeded, set_random_states
from posterity.transforms import is_transformed

#: So many numbers of each tensor tell one drawn function from another.
LOOKED_AT = 1_000


def draws_random_numbers(run: Callable[[], Tensor], x: Any) -> tuple[bool, Tensor | None]:
    """Whether a network's outputs for x are random, by one run of it; and these outputs where they are not.

    Where they are, the generators are as they were.
    """
    if is_transformed():
        return False, run()
    with alone():
        before = random_states(x)
        result = run()
        if random_states(x) == before:
            return False, result
        if close(run(), result):  # another thread, or numbers that are not used
            return False, result
        set_random_states(before, x)
        return True, None


def warn() -> None:
    """Say what a random network's functions are, and how to make it a deterministic one."""
    warnings.warn(
        "The network draws random numbers in evaluation mode, as F.dropout(x, p) does: its outputs are random. Each "
        "drawn function keeps its stream of them, so that calls with the same rows repeat, but a row's output depends "
        "on the rows beside it. Pass training=self.training, or take posterity.MCDropout, which draws dropout masks.",
        stacklevel=3,
    )


def own_stream(weights: Mapping[str, Tensor], noise: Tensor | None, x: Any) -> contextlib.AbstractContextManager[None]:
    """Inside, torch's generators are those of the function with these weights and this noise."""
    tensors = [t.detach().reshape(-1)[:LOOKED_AT] for t in (*weights.values(), *([] if noise is None else [noise]))]
    return seeded(torch.Generator().manual_seed(int(inputs.fingerprint(tensors), 16) >> 1), x)
