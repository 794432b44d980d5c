"""What attacks and corruptions share."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from posterity.errors import Error
from posterity.evaluation.scores import score
from posterity.prediction import PARTS
from posterity.state import home

Channels = float | Sequence[float] | Tensor
"""One number, or one for each channel."""


def measured(prediction: Any, y: Tensor) -> dict[str, float]:
    """Scores, and the means of the three uncertainties."""
    prediction, parts = prediction.to("cpu"), PARTS
    return score(prediction, torch.as_tensor(y).cpu()) | {
        part: float(getattr(prediction, part).double().mean()) for part in parts
    }


def seeds(n: int, generator: torch.Generator | None) -> list[int]:
    """n whole numbers from which the same random numbers can be drawn again and again."""
    return torch.randint(2**62, (n,), generator=generator, device=home(generator)).tolist()


def per_channel(value: Channels, x: Tensor, name: str) -> Tensor:
    """One number, or one for each channel of x `[n, channels, ...]`, in a shape that meets x."""
    numbers = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if numbers.dim() > 1 or (numbers.dim() == 1 and len(numbers) not in (1, *x.shape[1:2])):
        raise Error(
            f"{name} must be one number or one for each channel: its shape {tuple(numbers.shape)} does not fit "
            f"inputs of shape {tuple(x.shape)}."
        )
    return numbers.reshape(-1, *(1,) * max(0, x.dim() - 2))
