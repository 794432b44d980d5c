"""Networks whose outputs are probabilities, where a likelihood takes logits: they train badly, without an error."""

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from posterity import inputs
from posterity.device_checks import is_recorded
from posterity.errors import Error
from posterity.likelihoods import Bernoulli, Categorical, Likelihood
from posterity.posterior import Posterior
from posterity.transforms import plain

#: Nodes of a graph that choose and shape, and change no value.
SHAPES = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "Select")


@contextlib.contextmanager
def watched(posterior: Posterior) -> Iterator[None]:
    """Warn, once, where the network's outputs in here are probabilities."""
    warned = False

    def look(network: Any, given: Any, result: Any) -> None:
        nonlocal warned
        if warned or torch.compiler.is_compiling():
            return
        try:
            outputs = plain(inputs.output(result, posterior.output))
        except Error:  # there is no such output, which the loss says
            return
        warning = "" if is_recorded(outputs) else _warning(outputs, posterior.likelihood, 1)
        if warning:
            warned = True
            warnings.warn(warning, stacklevel=2)

    hook = posterior.network.register_forward_hook(look)
    try:
        yield
    finally:
        hook.remove()


def looked_at(parts: Iterable[Tensor], likelihood: Likelihood) -> Iterator[Tensor]:
    """The same outputs `[draws, batch, ...]`, with a warning where the first ones are probabilities of classes."""
    for number, outputs in enumerate(parts):
        if not number and (warning := _warning(outputs, likelihood, 2)):
            warnings.warn(warning, stacklevel=2)
        yield outputs


def _warning(outputs: Tensor, likelihood: Likelihood, axis: int) -> str:
    """A sentence where outputs are probabilities, with the classes along an axis; else nothing."""
    if isinstance(likelihood, Categorical) and _sum_to_one(outputs.detach(), axis):
        return (
            "The network's outputs are probabilities: none is negative, and they sum to 1 over the classes. "
            "Categorical takes logits and applies the softmax itself, so the network trains badly and its "
            "predictions are never certain: leave its last Softmax out (a LogSoftmax may stay)."
        )
    if isinstance(likelihood, Bernoulli) and _is_sigmoid(outputs):
        return (
            "The network ends in a sigmoid, which Bernoulli applies itself to the logits that it takes, so the network "
            "trains badly and its predictions are never certain: leave the Sigmoid out."
        )
    return ""


def _sum_to_one(outputs: Tensor, axis: int) -> bool:
    if not outputs.is_floating_point() or outputs.dim() <= axis or not outputs.numel() or outputs.shape[axis] < 2:
        return False
    return bool((outputs >= 0).all() & ((outputs.float().sum(axis) - 1).abs() < 1e-2).all())


def _is_sigmoid(outputs: Tensor) -> bool:
    """Whether a sigmoid made these outputs, as their graph says."""
    node = outputs.grad_fn
    while node is not None and node.name().rstrip("0123456789").removesuffix("Backward") in SHAPES:
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith("SigmoidBackward")
