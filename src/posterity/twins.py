"""The copy of a network that drawn functions run."""

from typing import Any

from torch import nn

from posterity.nodes import Site
from posterity.rows import encoders
from posterity.state import duplicate, kept


def twin(network: nn.Module) -> nn.Module:
    """A copy of a network that carries none of our hooks, and shares the storage of its frozen parameters.

    The parameters are other objects, frozen, so that moving or converting the copy leaves the network as it is.
    """
    own = {id(p): kept(p) if p.requires_grad else p.detach() for p in network.parameters()}
    copy = duplicate(network, {key: nn.Parameter(value, requires_grad=False) for key, value in own.items()})
    for encoder in encoders(copy):
        encoder.use_nested_tensor = False
    for module in copy.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if isinstance(getattr(hook, "__self__", None), Site)]:
                del hooks[key]
        module._forward_pre_hooks_with_kwargs = type(module._forward_pre_hooks_with_kwargs)(
            (key, value)
            for key, value in module._forward_pre_hooks_with_kwargs.items()
            if key in module._forward_pre_hooks
        )
    return copy


def keep_apart(network: nn.Module) -> None:
    """Let torch's attention take its plain path: the fast one calls no layer and has no rule for vmap."""
    for module in network.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.register_forward_pre_hook(_other_key, with_kwargs=True)


def _other_key(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
    """Query and key as two tensors: torch looks whether they are one."""
    if len(args) > 1:
        return (args[0], args[1].view_as(args[1]), *args[2:]), kwargs
    return args, {**kwargs, "key": kwargs["key"].view_as(kwargs["key"])}
