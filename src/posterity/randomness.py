"""The generators that all threads of a process share: they take turns with them, and leave them as they were."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from posterity.state import ONE_AT_A_TIME


@contextlib.contextmanager
def turn(device: torch.device | None = None, seed: int | None = None) -> Iterator[None]:
    """In here this thread alone draws from torch's generators, which are then what they were before.

    Args:
        device: whose generator is used, beside that of the processor.
        seed: of them all in here, and of those of Python and numpy, which stay as they are then (see `leave_as_found`).
    """
    with ONE_AT_A_TIME:
        own = _generators(device)
        before = [generator.get_state() for generator in own]
        try:
            if seed is not None:
                reseed(seed, device)
            yield
        finally:
            for generator, state in zip(own, before, strict=True):
                generator.set_state(state)


def reseed(seed: int, device: torch.device | None = None) -> None:
    """Seed torch's generators for the processor and one device, and those of Python and numpy.

    `torch.manual_seed` seeds every device there could be and, where CUDA was not started, takes more time than a step.
    """
    if device is not None and device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
    for generator in _generators(device):
        generator.manual_seed(seed)
    random.seed(seed)
    with contextlib.suppress(TypeError):  # where numpy's generator was replaced by one of another kind
        np.random.seed(seed % 2**32)


def _generators(device: torch.device | None) -> list[torch.Generator]:
    if device is None or device.type != "cuda":
        return [torch.default_generator]
    torch.cuda.init()
    return [torch.default_generator, torch.cuda.default_generators[device.index or 0]]


class _Found:
    """The state of Python's and numpy's generators before the first of those runs that are under way."""

    runs = 0
    state: Any = None


@contextlib.contextmanager
def leave_as_found() -> Iterator[None]:
    """Python's and numpy's generators are afterwards what they were: their states are slow to keep at every step."""
    with ONE_AT_A_TIME:
        if not _Found.runs:
            _Found.state = random.getstate(), np.random.get_state()
        _Found.runs += 1
    try:
        yield
    finally:
        with ONE_AT_A_TIME:
            _Found.runs -= 1
            if not _Found.runs:
                random.setstate(_Found.state[0])
                np.random.set_state(_Found.state[1])
