"""VGG-16 for images of 32 × 32 pixels."""

from torch import Tensor, nn

from posterity.networks.recipes import recipe

_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    """VGG-16 without BatchNorm, as in the iBNN paper: 13 convolutions and 512-512-classes.

    15,245,130 parameters for 10 classes. It takes images `[batch, in_channels, 32, 32]`.

    Args:
        classes: how many; outputs are logits `[batch, classes]`.
        in_channels: 1 for grey images, 3 for colour.
        dropout: the rate before the two hidden linear layers: 0 for iBNN, 0.5 for the paper's SGD and MC-dropout rows.
        width: multiplies the widths of all hidden layers: 0.25 is a network of a sixteenth of the size.
    """

    def __init__(self, classes: int = 10, in_channels: int = 3, dropout: float = 0.0, width: float = 1.0) -> None:
        super().__init__()
        self.recipe = recipe("vgg16", locals())
        scaled = [[max(1, round(width * size)) for size in stage] for stage in _STAGES]
        hidden = scaled[-1][-1]
        layers: list[nn.Module] = []
        channels = in_channels
        for stage in scaled:
            for size in stage:
                layers += [nn.Conv2d(channels, size, 3, padding=1), nn.ReLU()]
                channels = size
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        head: list[nn.Module] = []
        for _ in range(2):
            head += [nn.Dropout(dropout)] if dropout else []
            head += [nn.Linear(hidden, hidden), nn.ReLU()]
        self.classifier = nn.Sequential(*head, nn.Linear(hidden, classes))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw convolutions from N(0, 2 / (k² · out_channels)), biases zero; linear layers as torch does."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                module.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, in_channels, 32, 32] to logits [batch, classes]."""
        return self.classifier(self.features(x).flatten(1))
