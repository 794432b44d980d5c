"""The papers' architectures, and small ones for tables and images, by name.

Every network carries a ``recipe`` that JSON can hold, such as
``{"name": "lenet", "arguments": {"in_channels": 1, "classes": 10, "width": 1}}``.
``rebuild(recipe)`` makes the same architecture again, freshly initialised.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from posterity.errors import Error, short
from posterity.networks.convolutional import SmallConv
from posterity.networks.lenet import LeNet, LeNetCaffe
from posterity.networks.mlp import MLP
from posterity.networks.preact import PreActResNet
from posterity.networks.resnet import ResNet
from posterity.networks.resnet50 import ResNet50
from posterity.networks.vgg import VGG16
from posterity.networks.wideresnet import WideResNet

__all__ = [
    "MLP",
    "VGG16",
    "LeNet",
    "LeNetCaffe",
    "PreActResNet",
    "ResNet",
    "ResNet50",
    "SmallConv",
    "WideResNet",
    "create",
    "names",
    "rebuild",
]

_TABLE: dict[str, type[nn.Module]] = {
    "lenet": LeNet,
    "lenet-caffe": LeNetCaffe,
    "mlp": MLP,
    "preact-resnet": PreActResNet,
    "resnet": ResNet,
    "resnet50": ResNet50,
    "smallconv": SmallConv,
    "vgg16": VGG16,
    "wideresnet": WideResNet,
}
_LARGEST = 1_000_000  # of any one number in a recipe
_PARAMETERS = 2_000_000_000  # of a network that a recipe from a file may ask for


def names() -> dict[str, str]:
    """Return the short name of every network and a line about it.

    Example:
        >>> import posterity
        >>> list(posterity.networks.names())[:4]
        ['lenet', 'lenet-caffe', 'mlp', 'preact-resnet']
    """
    return {name: (inspect.getdoc(cls) or "").partition("\n")[0] for name, cls in _TABLE.items()}


def create(name: str, /, **arguments: Any) -> nn.Module:
    """Build a network by its short name.

    Args:
        name: one of `names()`.
        arguments: those of its class.

    Example:
        >>> import posterity, torch
        >>> network = posterity.networks.create("mlp", inputs=8, outputs=1, hidden=[16])
        >>> network(torch.randn(5, 8)).shape
        torch.Size([5, 1])
        >>> network.recipe["name"]
        'mlp'
    """
    cls = _TABLE.get(name) if isinstance(name, str) else None
    if cls is None:
        raise Error(f"There is no network named {short(name)}; the names are {', '.join(_TABLE)}.")
    signature = inspect.signature(cls)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise Error(f"The network {name!r} takes {signature}: {error}.") from error
    for key, value in arguments.items():
        for number in value if isinstance(value, list | tuple) else [value]:
            if isinstance(number, int | float) and not 0 <= number <= _LARGEST:
                raise Error(f"The network {name!r} cannot be built with {key}={short(value)}.")
    try:
        return cls(**arguments)
    except Error:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise Error(f"The network {name!r} cannot be built with {short(arguments)}: {error}.") from error


def recipe_of(network: nn.Module) -> dict[str, Any] | None:
    """The recipe of a network, if it builds this one: not where a subclass, or who has it, made another of it."""
    known: Any = getattr(network, "recipe", None)
    if not isinstance(known, Mapping) or type(network) is not _TABLE.get(str(known.get("name"))):
        return None
    with torch.device("meta"):
        outline = create(known["name"], **known["arguments"])
    return dict(known) if repr(outline) == repr(network) else None


def rebuild(recipe: Mapping[str, Any]) -> nn.Module:
    """Build the architecture that a network's `recipe` describes; anything else in it is an `Error`.

    Args:
        recipe: its `name` and `arguments`, as JSON holds them.
    """
    if not isinstance(recipe, Mapping) or set(recipe) != {"name", "arguments"}:
        raise Error("A network's recipe must hold a 'name' and its 'arguments', and nothing else.")
    arguments = recipe["arguments"]
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        raise Error("The 'arguments' of a network's recipe must be a mapping of names to values.")
    with torch.device("meta"):
        outline = create(recipe["name"], **arguments)
    if sum(parameter.numel() for parameter in outline.parameters()) > _PARAMETERS:
        raise Error(f"The network {recipe['name']!r} of this recipe is too large to build.")
    return create(recipe["name"], **arguments)
