"""A small convolutional network for images of any size."""

from collections.abc import Sequence

from torch import Tensor, nn

from posterity.networks.recipes import recipe


class SmallConv(nn.Module):
    """Three 3 × 3 convolutions and two linear layers, for images of any size from 4 × 4.

    It takes images `[batch, in_channels, height, width]`. There is no BatchNorm, so each row is processed by itself.

    Args:
        in_channels: 1 for grey images, 3 for colour.
        classes: how many; outputs are logits `[batch, classes]`.
        size: the side, or (height, width), that it is made for: a convolution is followed by pooling while the shorter
            side is at least 8. Adaptive pooling to 4 × 4 then accepts every size.
    """

    def __init__(self, in_channels: int = 3, classes: int = 10, size: int | Sequence[int] = 32) -> None:
        super().__init__()
        self.recipe = recipe("smallconv", locals())
        side = size if isinstance(size, int) else min(size)
        layers: list[nn.Module] = []
        channels = in_channels
        for width in (32, 64, 32):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            if side >= 8:
                layers.append(nn.MaxPool2d(2))
                side //= 2
            channels = width
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(16 * channels, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, in_channels, height, width] to logits [batch, classes]."""
        return self.head(self.features(x))
