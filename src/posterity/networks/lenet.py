"""LeNets for images of 28 × 28 pixels."""

from torch import Tensor, nn

from posterity.networks.recipes import recipe


class LeNet(nn.Module):
    """The LeNet of the iBNN paper: 6-16-120-64-10, 41,806 parameters; images [batch, in_channels, 28, 28].

    Args:
        in_channels: 1 for grey images, 3 for colour.
        classes: how many; outputs are logits `[batch, classes]`.
        width: multiplies every hidden width: 1, 2, 4, 8 are the paper's networks of about 1, 4, 16 and 64 times the
            parameters (Trinh, Kaski, Heinonen 2020, figure 4).
    """

    def __init__(self, in_channels: int = 1, classes: int = 10, width: int = 1) -> None:
        super().__init__()
        self.recipe = recipe("lenet", locals())
        self.conv1 = nn.Conv2d(in_channels, 6 * width, 5)
        self.conv2 = nn.Conv2d(6 * width, 16 * width, 5)
        self.conv3 = nn.Conv2d(16 * width, 120 * width, 4)
        self.fc1 = nn.Linear(120 * width, 64 * width)
        self.fc2 = nn.Linear(64 * width, classes)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, in_channels, 28, 28] to logits [batch, classes]."""
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.relu(self.conv3(x)).flatten(1)
        return self.fc2(self.relu(self.fc1(x)))


class LeNetCaffe(nn.Module):
    """The LeNet of the MNF and Bayes by Hypernet papers: 20-50-500-10, 431,080 parameters.

    It takes images `[batch, in_channels, 28, 28]`.

    Args:
        in_channels: 1 for grey images, 3 for colour.
        classes: how many; outputs are logits `[batch, classes]`.
        dropout: the rate after the ReLU of both convolutions, before the pooling, and of the first linear layer, as
            Bayes by Hypernet's row of MC-dropout has it.
    """

    def __init__(self, in_channels: int = 1, classes: int = 10, dropout: float = 0.0) -> None:
        super().__init__()
        self.recipe = recipe("lenet-caffe", locals())
        self.conv1 = nn.Conv2d(in_channels, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, classes)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map images [batch, in_channels, 28, 28] to logits [batch, classes]."""
        x = self.pool(self.dropout(self.relu(self.conv1(x))))
        x = self.pool(self.dropout(self.relu(self.conv2(x))))
        return self.fc2(self.dropout(self.relu(self.fc1(x.flatten(1)))))
