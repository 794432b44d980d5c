"""Noise on the weights in place of the inputs: W (z ∘ x) = (W diag z) x.

With many rows and one function at a time the product with the weights is done once, the one with the inputs for every
row: a convolution's inputs are many times its weights.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs, rows
from posterity.layers import is_plain, select
from posterity.nodes import Bare, Site
from posterity.sites import Sites
from posterity.state import untouched

#: With more drawn weights than this, or weights of more convolutions, functions are faster one by one.
TOGETHER = {"cpu": 100_000, "cuda": 1_000_000}
FEW = 4
#: With fewer weights, from so many rows on a processor: with convolutions, and without.
ROWS = 64, 384
#: A product that is made for one function costs about this many times one with inputs that are at hand.
WORTH = 2.0
#: With fewer numbers to multiply than this, calling one function after the other costs more than it saves.
LEAST = {"cpu": 200_000, "cuda": 10_000_000}


def worth_from(network: nn.Module, sites: Sites, x: Any, noise: Tensor) -> float:
    """From how many rows on folding is the faster way; infinite where the two ways differ, or draws share a beginning.

    What comes before the first noise is computed once for all functions if these run together: then they should.
    """
    own = list(sites)
    first = next((name for name, reason in select(network, "first").items() if reason is None), None)
    if not inputs.rows(x) or first != own[0].name or not all(_able(network, site) for site in own):
        return math.inf
    pair, device = rows.first_rows(x, 2), noise.device.type
    try:
        with untouched(network, pair), torch.no_grad(), torch.autocast(device, enabled=False):
            seen = rows.watch(own, network, pair)
            on_inputs = inputs.results(sites.run(network, pair, noise))
            on_weights = inputs.results(inputs.call(network, pair, sites.products(network, noise), ties=False))
        same = all(map(_close, on_inputs, on_weights))
    except rows.FAILURES:
        return math.inf
    values = sum(math.prod(shape) for calls in seen for call in calls for shape in call.values()) / 2
    weights = sum(network.get_submodule(site.name).get_parameter("weight").numel() for site in own)
    return max(WORTH * weights, LEAST.get(device, LEAST["cuda"])) / values if values and same else math.inf


def from_the_start(network: nn.Module, names: list[str]) -> bool:
    """Whether a network's first parameter is among the named ones: functions then share no beginning."""
    return bool(names) and next(network.named_parameters(), ("",))[0] in names


def alone_from(network: nn.Module, names: list[str]) -> float:
    """From how many rows on functions that differ in the named parameters are faster one by one.

    From any number where the parameters are many; never where functions share a beginning, and should run together.
    """
    parameters = dict(network.named_parameters())
    if not from_the_start(network, names):
        return math.inf
    size = sum(parameters[name].numel() for name in names if name in parameters)
    convolutions = [
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.modules.conv._ConvNd) and f"{name}.weight" in names
    ]
    device = next(iter(parameters.values())).device.type
    many = len(convolutions) > FEW or size > TOGETHER.get(device, TOGETHER["cuda"])
    return 0 if many else ROWS[not convolutions] if device == "cpu" else math.inf


def _close(a: Tensor, b: Tensor) -> bool:
    """Equal but for rounding: noise that is missing somewhere makes a difference of several percent."""
    return bool((a - b).abs().max() <= 1e-3 * a.abs().max())


def _able(network: nn.Module, site: Site) -> bool:
    """Whether a site's layer is linear, called as such, and holds a weight of full precision of its own."""
    if isinstance(site, Bare) or site.direct or site.inner or not site.facts.linear:
        return False
    layer = network.get_submodule(site.name)
    weight = layer._parameters.get("weight")
    return is_plain(layer) and weight is not None and weight.dtype in (torch.float32, torch.float64)
