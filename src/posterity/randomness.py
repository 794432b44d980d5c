"""The generators that all threads of a process share."""

import contextlib

import torch


def reseed(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` for the processor and one device.

    The original seeds every device there could be and, where CUDA was not started, takes more time than a small step.
    """
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(seed)


def generators(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Leaves the global generators as they were found."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
