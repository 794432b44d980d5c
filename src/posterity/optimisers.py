"""What moves the parameters in training: their groups, the optimiser, and the rate of each group."""

import inspect
from typing import Any

import torch

from posterity import schedules
from posterity.errors import Error, short
from posterity.posterior import Posterior

#: The likelihood's noise is one number that starts far from its value: at the network's rate it would lag behind.
NOISE_RATE = 10.0


def groups(posterior: Posterior, lr: float, lr_posterior: float | None, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: the network's, the likelihood's, and the posterior's own."""
    own = {id(p): p for p in posterior.variational()}
    noise = {id(p): p for p in posterior.likelihood.parameters()}
    rest = [p for p in posterior.parameters() if id(p) not in own and id(p) not in noise]
    kinds = [
        (rest, lr, weight_decay),
        (list(noise.values()), NOISE_RATE * lr, 0.0),
        (list(own.values()), lr * posterior.relative_rate if lr_posterior is None else lr_posterior, 0.0),
    ]
    found = [
        {"params": trained, "lr": rate, "weight_decay": decay}
        for parameters, rate, decay in kinds
        if (trained := [p for p in parameters if p.requires_grad])
    ]
    if not found:
        raise Error("There is nothing to train: no parameter requires a gradient.")
    return found


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
