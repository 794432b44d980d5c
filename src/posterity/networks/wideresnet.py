"""Wide residual networks for CIFAR (Zagoruyko & Komodakis 2016), as the iBNN paper builds them."""

from torch import Tensor, nn

from posterity.errors import Error
from posterity.networks.recipes import recipe


class WideBlock(nn.Module):
    """BatchNorm, ReLU, convolution, twice, plus the block's raw input or its 1 × 1 convolution."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, stride_on_first: bool, dropout: float, bias: bool
    ) -> None:
        super().__init__()
        first, second = (stride, 1) if stride_on_first else (1, stride)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=first, padding=1, bias=bias)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride=second, padding=1, bias=bias)
        self.relu = nn.ReLU()
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=bias)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, inputs, height, width] to [batch, outputs, height / stride, width / stride]."""
        h = self.dropout(self.conv1(self.relu(self.bn1(x))))
        return self.conv2(self.relu(self.bn2(h))) + self.shortcut(x)


class WideResNet(nn.Module):
    """WRN-depth-width with biases, as in the iBNN paper: WRN-28-10 has 36,489,290 parameters.

    It takes images `[batch, in_channels, height, width]`. BatchNorm has torch's momentum of 0.1 everywhere.

    Args:
        depth: 6n + 4: 16, 22, 28, 40, …
        width: of the three stages, in units of 16, 32 and 64 channels.
        classes: how many; outputs are logits `[batch, classes]`.
        in_channels: 1 for grey images, 3 for colour.
        dropout: the rate between a block's two convolutions.
        bias: whether convolutions have one.
        stride_on_first: put the stride on a block's first convolution, the more usual and faster place; the authors
            put it on the second.
    """

    def __init__(
        self,
        depth: int = 28,
        width: int = 10,
        classes: int = 10,
        in_channels: int = 3,
        dropout: float = 0.0,
        bias: bool = True,
        stride_on_first: bool = False,
    ) -> None:
        super().__init__()
        self.recipe = recipe("wideresnet", locals())
        blocks, rest = divmod(depth - 4, 6)
        if rest or not 1 <= blocks <= 200:
            raise Error(f"The depth of a WideResNet is 6n + 4 (16, 22, 28, 40, ...), not {depth}.")
        self.conv = nn.Conv2d(in_channels, 16, 3, padding=1, bias=bias)
        layers: list[nn.Module] = []
        channels = 16
        for stage, outputs in enumerate((16 * width, 32 * width, 64 * width)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(WideBlock(channels, outputs, stride, stride_on_first, dropout, bias))
                channels = outputs
        self.blocks = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, in_channels, height, width] to logits [batch, classes]."""
        x = self.relu(self.bn(self.blocks(self.conv(x))))
        return self.linear(self.pool(x).flatten(1))
