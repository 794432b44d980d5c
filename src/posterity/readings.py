"""Data of three parts: inputs, targets and weights of the rows, or two inputs and targets?"""

import inspect
from typing import Any

from torch import Tensor, nn

from posterity.errors import Error

BOTH = (
    "Data of three parts are (x, y, weight), with one weight for each row, of shape [rows]; two inputs and their "
    "targets are given as ((x1, x2), y)."
)


def check_weights(weight: Any, least: float = 0.0) -> None:
    """Reject weights that are none, such as numbers of patients in the third place; their sum must be above `least`."""
    if isinstance(weight, Tensor) and weight.numel():
        if not weight.is_floating_point():
            raise Error(
                f"The third part of the data is taken as weights of the rows, and it holds {weight.dtype}: leave it "
                f"out, or give weights as floating-point numbers. {BOTH}"
            )
        if not bool((weight >= 0).all() & (weight.sum() > least) & weight.isfinite().all()):
            raise Error(f"Weights of rows must be finite, not negative, and not all zero. {BOTH}")


def check_parts(x: Any, y: Any, weight: Any, network: nn.Module) -> None:
    """Reject three parts of which the second may be inputs and the third targets."""
    if weight is None or not isinstance(y, Tensor):
        return
    needed = _needed(network)
    if isinstance(x, Tensor) and len(needed) > 1:
        why = f"the network takes {len(needed)} inputs, {', '.join(needed)}"
    elif weight.dim() != 1 and (weight.numel() != len(weight) or y.is_floating_point()):
        why = f"the third, of shape {tuple(weight.shape)}, may be targets"
    else:
        return
    raise Error(f"The data have three parts, and {why}. {BOTH}")


def _needed(network: nn.Module) -> list[str]:
    """The positional arguments that a network's forward needs, by name."""
    try:
        parameters = inspect.signature(network.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty]
