"""Noise in pairs ε and −ε: what is odd in it cancels in averages (antithetic variates, Hammersley & Morton 1956).

Each draw has the same distribution as ever, so averages over draws have the same expectation. Draws of a pair are not
independent: the mean over functions that are nearly linear in their noise is far closer to its limit, the spread over
them is known as if from half as many.
"""

import torch
from torch import Tensor


def mirrored(noise: Tensor, block: int = 1) -> Tensor:
    """Noise `[n, ...]` with every second block of rows the negative of the one before it."""
    before = torch.arange(len(noise), device=noise.device)
    second = (before // block) % 2 == 1
    sign = torch.where(second, -1.0, 1.0).to(noise.dtype)
    return noise[before - block * second.long()] * sign.view(-1, *(1,) * (noise.dim() - 1))
