"""Images made different in every step, on the device: `fit(..., augment=posterity.augmentation.CropFlip(4))`.

An augmentation is any function of a batch of inputs; its random numbers come from torch's generators.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from posterity import shares
from posterity.errors import Error


class CropFlip:
    """Shift images `[batch, channels, height, width]` by up to `pixels` each way, and mirror half of them.

    Args:
        pixels: the largest shift; 0 leaves it out.
        flip: whether to mirror left and right.
        fill: what comes in at the border: a number, or one for each channel. Black is −mean / std where images are
            standardised.

    Example:
        >>> import torch
        >>> from posterity.augmentation import CropFlip
        >>> CropFlip(4)(torch.rand(8, 3, 32, 32)).shape
        torch.Size([8, 3, 32, 32])
    """

    def __init__(self, pixels: int = 4, flip: bool = True, fill: float | Sequence[float] = 0.0) -> None:
        self.pixels, self.flip = pixels, flip
        self.fill = [float(value) for value in (fill if isinstance(fill, Sequence) else [fill])]
        self._border: Tensor | None = None  # on the device, where a graph may be captured

    def __call__(self, x: Tensor) -> Tensor:
        """Other images of the same shape."""
        if x.dim() != 4:
            raise Error(f"CropFlip takes images [batch, channels, height, width]; got {tuple(x.shape)}.")
        n, channels, height, width = x.shape
        every = shares.whole(n)
        moves = torch.randint(-self.pixels, self.pixels + 1, (2, every, 1), device=x.device)
        down, right = (shares.part(move) for move in moves)
        rows = down + torch.arange(height, device=x.device)
        columns = right + torch.arange(width, device=x.device)
        if self.flip:
            turned = shares.part(torch.rand((every, 1), device=x.device)) < 0.5
            columns = torch.where(turned, columns.flip(1), columns)
        inside = _within(rows, height).unsqueeze(2) & _within(columns, width).unsqueeze(1)
        at = rows.clamp(0, height - 1).unsqueeze(2) * width + columns.clamp(0, width - 1).unsqueeze(1)
        moved = x.flatten(2).gather(2, at.view(n, 1, -1).expand(n, channels, -1)).view_as(x)
        if self._border is None or self._border.device != x.device or self._border.dtype != x.dtype:
            self._border = torch.tensor(self.fill).to(x).view(-1, 1, 1)
        return torch.where(inside.unsqueeze(1), moved, self._border)

    def __repr__(self) -> str:
        return f"CropFlip({self.pixels}, {self.flip}, {self.fill})"


def _within(index: Tensor, size: int) -> Tensor:
    return (index >= 0) & (index < size)
