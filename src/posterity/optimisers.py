"""What moves the parameters in training: their groups, the optimiser, and the rate of each group."""

import inspect
import warnings
from typing import Any

import torch

from posterity import schedules
from posterity.errors import Error, short
from posterity.parameter_groups import LR
from posterity.posterior import Posterior

#: SGD hardly moves what training alone sets where `lr` is this part of its default.
LOW = 0.1


def groups(
    posterior: Posterior, lr: float, lr_posterior: float | None, weight_decay: float, size: int, sgd: bool = False
) -> list[dict[str, Any]]:
    """The optimiser's groups: those of the posterior, each with its rate and its decay."""
    found = posterior.parameter_groups(size)
    if not found:
        raise Error("There is nothing to train: no parameter requires a gradient.")
    if sgd and lr_posterior is None and lr < LOW * LR["sgd"] and any(g.variational and g.untrained for g in found):
        warnings.warn(
            f"SGD moves the posterior's own parameters at lr={lr:g} too, which leaves them near their random start: "
            "give lr_posterior.",
            stacklevel=4,
        )
    return [
        {
            "params": group.parameters,
            "lr": group.learning_rate(lr, lr_posterior, sgd),
            "weight_decay": weight_decay if group.decay else 0.0,
        }
        for group in found
    ]


def optimizer_of(kind: Any, groups: list[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
    """The optimiser of these groups; one of the user's own must hold the same parameters."""
    given = {id(p) for group in groups for p in group["params"]}
    # Not on a processor, where rounding would depend on a number's place, and strided parameters come out wrong.
    fused = groups[0]["params"][0].device.type == "cuda"
    name = kind if isinstance(kind, str) else ""
    if name == "adam":
        return torch.optim.AdamW(groups, fused=fused)
    if name == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, nesterov=True, fused=fused)
    if not callable(kind):
        raise Error(f"optimizer must be 'adam', 'sgd', or a function of groups that makes one; got {short(kind)}.")
    made = kind(groups)
    if not isinstance(made, torch.optim.Optimizer):
        raise Error(f"The function given as optimizer must return one of torch's; it returned {type(made).__name__}.")
    if isinstance(made, torch.optim.LBFGS):
        raise Error("LBFGS evaluates the loss several times a step, which fit does not: take another optimizer.")
    if {id(p) for group in made.param_groups for p in group["params"]} != given:
        raise Error("The optimizer must hold the parameters of the groups that it was given, and no others.")
    usual = inspect.signature(type(made)).parameters.get("lr")
    own = made.defaults.get("lr")
    if usual is not None and own not in (usual.default, lr) and all(group["lr"] != own for group in made.param_groups):
        raise Error(f"The groups have their rates, so that the optimizer's own is not used: give fit lr={own}.")
    return made


def rates_of(
    posterior: Posterior, optimizer: torch.optim.Optimizer, rates: tuple[schedules.Schedule, schedules.Schedule]
) -> list[tuple[float, schedules.Schedule]]:
    """The rate of each group of the optimiser and its schedule; the posterior's own has another under SGD."""
    own = {id(p) for p in posterior.variational()}
    found = []
    for group in optimizer.param_groups:
        is_own = {id(p) in own for p in group["params"]}
        if len(is_own) > 1:
            raise Error("The optimizer must keep the posterior's parameters in a group of their own, as it got them.")
        factor = posterior.rate if isinstance(optimizer, torch.optim.SGD) and True in is_own else 1.0
        found.append((factor * float(group["lr"]), rates[True in is_own]))
    return found


def described(optimizer: torch.optim.Optimizer) -> str:
    """What a checkpoint remembers of an optimiser of the user's own."""
    plain = {k: v for k, v in sorted(optimizer.defaults.items()) if v and isinstance(v, (bool, int, float, str, tuple))}
    return f"{type(optimizer).__qualname__}({', '.join(f'{name}={value!r}' for name, value in plain.items())})"
