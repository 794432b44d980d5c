"""A second head beside the last layer of a network, which stays as it is."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs
from posterity.errors import Error
from posterity.likelihoods import wide
from posterity.state import untouched


def beside(layer: nn.Module) -> nn.Module:
    """A layer of the same kind and size, whose output is zero at first."""
    head = copy.deepcopy(layer)
    head._forward_pre_hooks.clear()
    head._forward_hooks.clear()
    for parameter in head.parameters():
        nn.init.zeros_(parameter.requires_grad_(True))
    return head


def both(network: nn.Module, head: nn.Module, layer: str, output: str | int | None, x: Any) -> tuple[Tensor, Tensor]:
    """The network's answer, and that of the head, of the same shape: it takes what the last layer takes."""
    said: list[Tensor] = []
    hook = network.get_submodule(layer).register_forward_hook(
        lambda _, args, kwargs, out: said.append(head(*args, **kwargs)), with_kwargs=True
    )
    try:
        answer = wide(inputs.output(inputs.call(network, x), output))
    finally:
        hook.remove()
    return answer, wide(said[-1]).reshape(answer.shape)


def last(network: nn.Module, x: Any, output: str | int | None, shape: torch.Size) -> tuple[str, int]:
    """The name of the last layer of a network, and the size of axis 1 of its answer.

    It is the last that is called of those whose output has the shape of the answer, axes of size 1 apart: what follows
    it (a softmax, a squeeze) has no parameters.

    Args:
        network: any module.
        x: a few rows.
        output: which part of the network's result is the answer.
        shape: what the answer's must be, rows apart.
    """
    calls: list[tuple[str, list[int]]] = []
    hooks = [
        module.register_forward_hook(lambda _, args, out, name=name: calls.append((name, _sizes(out))))  # type: ignore[misc]
        for name, module in network.named_modules()
        if not list(module.children()) and list(module.parameters())
    ]
    like, mode = inputs.like(network), network.training
    x = inputs.apply(inputs.as_tensors(x, like.device), lambda t: t.to(like.dtype) if t.is_floating_point() else t)
    try:
        with torch.no_grad(), untouched(network, x):
            answer = inputs.output(inputs.call(network.eval(), x), output)
    finally:
        network.train(mode)
        for hook in hooks:
            hook.remove()
    if answer.shape[1:] != shape:
        raise Error(
            f"The student answers {len(answer)} rows with the shape {tuple(answer.shape)}, the posterior with "
            f"{(len(answer), *shape)}: give a student with the posterior's outputs."
        )
    fitting = [name for name, sizes in calls if sizes == _sizes(answer)]
    if not fitting:
        raise Error(
            "The student must end in a layer (linear, convolution, …) that gives the shape of its answer, "
            f"{tuple(answer.shape)}: a second head goes beside it."
        )
    return fitting[-1], answer.shape[1] if answer.dim() > 1 else 1


def _sizes(result: Any) -> list[int]:
    return [size for size in result.shape if size != 1] if isinstance(result, Tensor) else [-1]
