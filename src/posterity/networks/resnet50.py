"""ResNet-50 for images of ImageNet's size (He et al. 2016), with the parameter names of torchvision's."""

from torch import Tensor, nn

_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride
_EXPANSION = 4


class Bottleneck(nn.Module):
    """Convolutions 1 × 1, 3 × 3 and 1 × 1, each with BatchNorm, plus the input or its 1 × 1 convolution.

    The stride is on the 3 × 3 convolution ("V1.5"), as in torchvision; He et al. had it on the first.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = _EXPANSION * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, inputs, height, width] to [batch, 4 · width, height / stride, width / stride]."""
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.relu(self.bn2(self.conv2(h)))
        return self.relu(self.bn3(self.conv3(h)) + self.downsample(x))


class ResNet50(nn.Module):
    """ResNet-50 for ImageNet, 25,557,032 parameters; torchvision's published weights load by name.

    It takes images `[batch, 3, height, width]`.

    Args:
        classes: how many; outputs are logits `[batch, classes]`.
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.recipe = {"name": "resnet50", "arguments": {"classes": classes}}
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1, self.layer2, self.layer3, self.layer4 = self._stages(64)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(_EXPANSION * _STAGES[-1][0], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stages(channels: int) -> list[nn.Sequential]:
        stages = []
        for width, blocks, stride in _STAGES:
            layers = []
            for block in range(blocks):
                layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
                channels = _EXPANSION * width
            stages.append(nn.Sequential(*layers))
        return stages

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, 3, height, width] to logits [batch, classes]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))
