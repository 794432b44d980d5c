"""Table 1 of the iBNN paper: how many weights a network has, and how many nodes (Trinh, Kaski & Heinonen 2020).

A node is an input feature of a linear layer or an input channel of a convolution: what iBNN puts noise on. Networks are
built without memory for their weights (torch's "meta" device) and counted by the rule that `posterity.IBNN` follows.
"""

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import nn

from posterity import networks
from posterity.papers.reproduction import Bench, Outcome, Table
from posterity.sites import Sites, select

#: The table as printed: layers, weights (rounded), nodes, weights for each node (rounded).
PUBLISHED = {
    "LeNet": (5, 42e3, 23, 1800),
    "AlexNet": (8, 61e6, 18_307, 3300),
    "VGG16-small": (16, 15e6, 5_251, 2900),
    "VGG16-large": (16, 138e6, 36_995, 3700),
    "ResNet50": (50, 26e6, 24_579, 1000),
    "WideResNet-28x10": (28, 36e6, 9_475, 3800),
}
#: Convolutions (outputs, kernel) and widths of the linear layers of torchvision's `alexnet` and `vgg16`.
ALEXNET = ([(64, 11), (192, 5), (384, 3), (256, 3), (256, 3)], [9216, 4096, 4096, 1000])
VGG16_LARGE = (
    [(width, 3) for width in (64, 64, 128, 128, 256, 256, 256, *(512,) * 6)],
    [25_088, 4096, 4096, 1000],
)
#: Printed ratios are rounded down to hundreds.
ROUNDING = 100


def table_1(bench: Bench) -> Outcome:
    """Count weights and nodes of the six networks; it takes a second and is the same at every size."""
    counted = {name: count(build) for name, build in _builders().items()}
    numbers = {
        name: {
            **found,
            "published": dict(zip(("layers", "weights", "nodes", "ratio"), PUBLISHED[name], strict=True)),
        }
        for name, found in counted.items()
    }
    return Outcome(numbers, [_table(counted)], findings(counted))


def count(build: Callable[[], nn.Module]) -> dict[str, int]:
    """Parameters, layers with noise and nodes of a network, which is built without memory."""
    with torch.device("meta"):
        network = build()
    names = [name for name, reason in select(network, None).items() if reason is None]
    sites = Sites(network, ("input",), names)
    return {
        "weights": sum(parameter.numel() for parameter in network.parameters()),
        "noisy_layers": len(sites.names),
        "nodes": sites.size,
    }


def findings(counted: dict[str, dict[str, int]]) -> list[str]:
    """Where the count agrees with the table as printed, and where it does not."""
    said, agree = [], []
    for name, found in counted.items():
        _, weights, nodes, ratio = PUBLISHED[name]
        wrong = [
            f"{published:,.0f} {what} printed, {ours:,.0f} counted"
            for what, published, ours, same in (
                ("weights", weights, found["weights"], _rounded(found["weights"], weights) == weights),
                ("nodes", nodes, found["nodes"], nodes == found["nodes"]),
                ("weights a node", ratio, _ratio(found), abs(_ratio(found) - ratio) < ROUNDING),
            )
            if not same
        ]
        if wrong:
            said.append(f"{name} differs from the paper: {'; '.join(wrong)}.")
        else:
            agree.append(name)
    if agree:
        said.insert(0, f"As printed, to the paper's rounding: {', '.join(agree)}.")
    most = max(counted, key=lambda name: _ratio(counted[name]))
    said.append(
        f"The most weights a node has {most}, {_ratio(counted[most]):,.0f}; the paper says up to "
        f"{max(row[3] for row in PUBLISHED.values()):,}."
    )
    return said


def _ratio(found: dict[str, int]) -> float:
    return found["weights"] / found["nodes"]


def _rounded(value: int, like: float) -> float:
    """A count in whole thousands or millions, as the printed one is."""
    unit = 1e6 if like >= 1e6 else 1e3
    return round(value / unit) * unit


def _table(counted: dict[str, dict[str, int]]) -> Table:
    rows = []
    for name, found in counted.items():
        layers, weights, nodes, ratio = PUBLISHED[name]
        short = f"{weights / 1e6:.0f}M" if weights >= 1e6 else f"{weights / 1e3:.0f}K"
        rows.append(
            [
                name,
                str(layers),
                str(found["noisy_layers"]),
                short,
                f"{found['weights']:,}",
                f"{nodes:,}",
                f"{found['nodes']:,}",
                f"{ratio}×",
                f"{_ratio(found):,.0f}×",
            ]
        )
    columns = ["network", "layers (paper)", "layers with noise", "weights (paper)", "weights"]
    columns += ["nodes (paper)", "nodes", "ratio (paper)", "ratio"]
    return Table("Weights and nodes", columns, rows)


def _builders() -> dict[str, Callable[[], nn.Module]]:
    return {
        "LeNet": networks.LeNet,
        "AlexNet": lambda: _plain(*ALEXNET),
        "VGG16-small": networks.VGG16,
        "VGG16-large": lambda: _plain(*VGG16_LARGE),
        "ResNet50": networks.ResNet50,
        "WideResNet-28x10": networks.WideResNet,
    }


def _plain(convolutions: Sequence[tuple[int, int]], linear: Sequence[int]) -> nn.Module:
    """The layers of a plain network of colour images, to be counted and not to be run."""
    channels = [3, *(outputs for outputs, _ in convolutions)]
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel)
        for inputs, (outputs, kernel) in zip(channels[:-1], convolutions, strict=True)
    ]
    layers += [nn.Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(linear)]
    return nn.Sequential(*layers)
