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
from posterity.likelihoods import Bernoulli, Categorical, Likelihood, class_count
from posterity.posterior import Posterior
from posterity.transforms import plain

#: Nodes of a graph that choose and shape, and change no value.
SHAPES = ("View", "Unsqueeze", "UnsafeView", "ReshapeAlias", "Squeeze", "Alias", "Select")


@contextlib.contextmanager
def probability_warnings(posterior: Posterior) -> Iterator[None]:
    """Warn, once, where the network's outputs in here are probabilities."""
    warned = False

    def look(network: Any, given: Any, result: Any) -> None:
        nonlocal warned
        if warned or torch.compiler.is_compiling():
            return
        try:
            outputs = plain(inputs.output(result, posterior.output)).unsqueeze(0)
        except Error:  # there is no such output, which the loss says
            return
        warning = "" if is_recorded(outputs) else _warning(outputs, posterior.likelihood)
        if warning:
            warned = True
            warnings.warn(warning, stacklevel=2)

    hook = posterior.network.register_forward_hook(look)
    try:
        yield
    finally:
        hook.remove()


def checked_outputs(parts: Iterable[Tensor], likelihood: Likelihood) -> Iterator[Tensor]:
    """The same outputs `[draws, batch, ...]`; a single class raises, and probabilities of classes are warned of."""
    for number, outputs in enumerate(parts):
        if not number and isinstance(likelihood, Categorical) and outputs.dim() > 2:
            class_count(likelihood.by_class(outputs))
            if warning := _warning(outputs, likelihood):
                warnings.warn(warning, stacklevel=2)
        yield outputs


def _warning(outputs: Tensor, likelihood: Likelihood) -> str:
    """A sentence where outputs `[draws, batch, ...]` are probabilities; else nothing."""
    if isinstance(likelihood, Categorical) and outputs.dim() > 2 and _sum_to_one(likelihood.by_class(outputs.detach())):
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


def _sum_to_one(outputs: Tensor) -> bool:
    """Whether outputs `[draws, batch, classes, ...]` are none negative, and sum to 1 over the classes: some of many."""
    outputs = outputs[:4, :256]
    if not outputs.is_floating_point() or not outputs.numel() or outputs.shape[2] < 2:
        return False
    rounding = max(1e-4, 2 * torch.finfo(outputs.dtype).eps)  # logits of a single row may sum to 1 by chance
    return bool((outputs >= 0).all() & ((outputs.float().sum(2) - 1).abs() < rounding).all())


def _is_sigmoid(outputs: Tensor) -> bool:
    """Whether a sigmoid made these outputs, as their graph says."""
    node = outputs.grad_fn
    while node is not None and node.name().rstrip("0123456789").removesuffix("Backward") in SHAPES:
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith("SigmoidBackward")
