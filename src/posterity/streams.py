"""Streams of random numbers: one seed gives every purpose a stream of its own.

Else the draws of `predict(posterior, x, seed=0)` would be the numbers that initialised `IBNN(network, seed=0)`.
"""

import numpy as np
import torch


def numpy_seed(*parts: int) -> int:
    """One seed from several numbers, well mixed: the same everywhere, for ever."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


def seed_of(seed: int, purpose: str) -> int:
    """The seed of a purpose, such as "draws", that a seed stands for."""
    return numpy_seed(seed, *purpose.encode())


def stream(seed: int, purpose: str) -> torch.Generator:
    """The generator of a purpose that a seed stands for."""
    return torch.Generator().manual_seed(seed_of(seed, purpose))
