"""What `fit` checks before the first step and after the last one."""

from typing import Any

import torch

from posterity import inputs
from posterity.errors import Error
from posterity.likelihoods import Gaussian
from posterity.posterior import Posterior

HALF = {torch.float16: ("float16", "fp16"), torch.bfloat16: ("bfloat16", "bf16")}


def check_precision(posterior: Posterior) -> None:
    """Raise an Error where numbers are trained that cannot hold a step of the optimiser."""
    for p in posterior.parameters():
        if p.dtype in HALF and (p.requires_grad or p.dtype == torch.float16):
            name, precision = HALF[p.dtype]
            raise Error(
                f"A network in {name} cannot be trained, whose parameters lose small steps in rounding: give "
                f'network.float(), and precision="{precision}" to fit.'
            )


@torch.no_grad()
def check_outcome(posterior: Posterior, x: Any, generator: torch.Generator) -> None:
    """Raise an Error where training ended in parameters, a noise or predictions for x that are no finite numbers."""
    what = next((name for name, p in posterior.named_parameters() if not bool(p.isfinite().all())), None)
    noise = posterior.likelihood
    if what is None and isinstance(noise, Gaussian) and noise.learned:
        std = noise.log_std.exp()
        what = None if bool((std.isfinite() & (std > 0)).all()) else "the learned noise"
    if what is None and x is not None:
        x = inputs.apply(x, lambda t: t.to(inputs.like(posterior).dtype) if t.is_floating_point() else t)
        outputs = posterior(x, generator)
        if bool((outputs.isnan() | outputs.isposinf()).any()):
            what = "the network's output"
    if what is not None:
        raise Error(f"Training has diverged: {what} is no finite number at its end. Lower lr, or give clip=1.0.")
