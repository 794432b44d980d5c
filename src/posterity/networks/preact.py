"""The residual network of the Bayes by Hypernet paper (Pawlowski et al. 2017, arXiv:1711.01297)."""

from torch import Tensor, nn
from torch.nn import functional as F

from posterity.errors import Error
from posterity.networks.recipes import recipe


class Unit(nn.Module):
    """BatchNorm, ReLU, convolution, twice; the shortcut is averaged over the stride and padded with zero channels."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.relu = nn.ReLU()
        self.pool = nn.AvgPool2d(stride, ceil_mode=True) if stride > 1 else nn.Identity()
        self.padding = (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, inputs, height, width] to [batch, outputs, height / stride, width / stride]."""
        h = self.conv1(self.relu(self.bn1(x)))
        h = self.conv2(self.relu(self.dropout(self.bn2(h))))
        x = self.pool(x)
        return h + (F.pad(x, (0, 0, 0, 0, self.padding, self.padding)) if self.padding else x)


class PreActResNet(nn.Module):
    """A pre-activation ResNet of 6n + 2 layers, widths 16, 32, 64, for small images: strides of 2 in all three stages.

    ResNet-32 with 5 classes has 462,693 weights besides those of BatchNorm; convolutions have biases. It takes images
    `[batch, in_channels, height, width]`.

    Args:
        depth: 6n + 2: 14, 20, 32, …
        classes: how many; outputs are logits `[batch, classes]`.
        in_channels: 1 for grey images, 3 for colour.
        dropout: the rate between a unit's second BatchNorm and its ReLU.
    """

    def __init__(self, depth: int = 32, classes: int = 5, in_channels: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.recipe = recipe("preact-resnet", locals())
        units, rest = divmod(depth - 2, 6)
        if rest or not 1 <= units <= 200:
            raise Error(f"The depth of a pre-activation ResNet is 6n + 2 (14, 20, 32, ...), not {depth}.")
        self.conv = nn.Conv2d(in_channels, 16, 3, padding=1)
        stages, channels = [], 16
        for outputs in (16, 32, 64):
            for unit in range(units):
                stages.append(Unit(channels, outputs, 1 if unit else 2, dropout))
                channels = outputs
        self.units = nn.Sequential(*stages)
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(channels, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw convolutions and the linear weight from N(0, 2 / fan_in), biases zero."""
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()
            elif isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, in_channels, height, width] to logits [batch, classes]."""
        x = self.relu(self.bn(self.units(self.conv(x))))
        return self.linear(self.pool(x).flatten(1))
