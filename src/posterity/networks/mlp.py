"""Fully connected networks."""

from collections.abc import Sequence

from torch import Tensor, nn

from posterity.errors import Error, short
from posterity.networks.recipes import recipe

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}


class MLP(nn.Module):
    """A fully connected network; each input is flattened to `inputs` numbers first.

    It takes `[batch, ...]` and gives `[batch, outputs]`.

    Args:
        inputs: numbers in a row.
        outputs: numbers that come out for it.
        hidden: widths of the hidden layers.
        activation: "elu", "gelu", "leaky_relu", "relu", "silu", "softplus" or "tanh".
        dropout: the rate after every hidden activation; at 0 there are no dropout layers.
        bias: whether layers have one.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: Sequence[int] = (64, 64),
        activation: str = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.recipe = recipe("mlp", locals())
        if activation not in ACTIVATIONS:
            raise Error(f"There is no activation {short(activation)}; the names are {', '.join(ACTIVATIONS)}.")
        layers: list[nn.Module] = []
        width = inputs
        for size in hidden:
            layers += [nn.Linear(width, size, bias=bias), ACTIVATIONS[activation]()]
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = size
        self.layers = nn.Sequential(*layers, nn.Linear(width, outputs, bias=bias))

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, ...] with ``inputs`` numbers a row to [batch, outputs]."""
        return self.layers(x.flatten(1))
