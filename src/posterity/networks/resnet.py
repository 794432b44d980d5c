"""Residual networks for CIFAR (He et al. 2016, section 4.2)."""

from torch import Tensor, nn
from torch.nn import functional as F

from posterity.errors import Error
from posterity.networks.recipes import recipe


class Block(nn.Module):
    """Two 3 × 3 convolutions with BatchNorm; option A's shortcut: subsampled, padded with zero channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.stride = stride
        self.padding = (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, inputs, height, width] to [batch, outputs, height / stride, width / stride]."""
        h = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.padding:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        return self.relu(h + x)


class ResNet(nn.Module):
    """The CIFAR ResNet of 6n + 2 layers with widths 16, 32, 64: ResNet-20 has 269,722 parameters.

    It takes images `[batch, in_channels, height, width]`.

    Args:
        depth: 6n + 2: 20, 32, 44, 56, 110, …
        classes: how many; outputs are logits `[batch, classes]`.
        in_channels: 1 for grey images, 3 for colour.
    """

    def __init__(self, depth: int = 20, classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        self.recipe = recipe("resnet", locals())
        blocks, rest = divmod(depth - 2, 6)
        if rest or not 1 <= blocks <= 200:
            raise Error(f"The depth of a CIFAR ResNet is 6n + 2 (20, 32, 44, 56, 110, ...), not {depth}.")
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.layer1 = _stage(16, 16, blocks)
        self.layer2 = _stage(16, 32, blocks)
        self.layer3 = _stage(32, 64, blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(64, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw convolutions and the linear weight from N(0, 2 / fan_in), as He et al. do."""
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d | nn.Linear):
                module.reset_parameters()
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, in_channels, height, width] to logits [batch, classes]."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(self.pool(x).flatten(1))


def _stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
    first = Block(inputs, outputs, stride=1 if inputs == outputs else 2)
    return nn.Sequential(first, *(Block(outputs, outputs, stride=1) for _ in range(blocks - 1)))
