"""Batch normalisation whose statistics belong to each drawn function.

In training a draw meets the statistics of its own batch. The running statistics mix those of all draws, and suit none
where draws differ: a hypernet's functions, or LIVI's, then answer almost at random. Measured anew for each function on
some inputs, the statistics are again those that it was trained with.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from posterity import inputs, loading
from posterity.errors import Error
from posterity.explaining import explained
from posterity.functions import Functions
from posterity.interaction import keeps_whole
from posterity.likelihoods import Likelihood
from posterity.posterior import Description, Posterior
from posterity.preparing import prepared

#: Inputs that a function meets at a time while it is measured: each such batch has statistics of its own.
BATCH = 1_000


class Normalised(Posterior):
    """A posterior whose drawn functions have batch statistics of their own, measured on `data` when they are drawn.

    It stands for the posterior wherever functions are drawn: in `predict`, evaluation, plots and export. It costs each
    function one pass over the data, of which a thousand rows are enough; train and save the posterior itself. Where
    the network has no batch normalisation nothing changes.

    Args:
        posterior: any trained posterior.
        data: inputs, best those that it was trained on, as `predict` takes them.
    """

    def __init__(self, posterior: Posterior, data: Any) -> None:
        nn.Module.__init__(self)
        if not isinstance(posterior, Posterior):
            raise Error(f"Normalised takes a posterior; got {type(posterior).__name__}.")
        self.posterior, self.data = posterior, prepared(posterior, data)
        self.draws, self.models, self.samples = posterior.draws, posterior.models, posterior.samples
        self.distinct = posterior.distinct
        self.output, self.preprocessing = posterior.output, posterior.preprocessing

    @property
    def network(self) -> nn.Module:  # type: ignore[override]
        """The posterior's."""
        return self.posterior.network

    @property
    def likelihood(self) -> Likelihood:  # type: ignore[override]
        """The posterior's."""
        return self.posterior.likelihood

    @property
    def training_size(self) -> int | None:  # type: ignore[override]
        """The posterior's."""
        return self.posterior.training_size

    @property
    def turn(self) -> int | None:
        """The posterior's."""
        return self.posterior.turn

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under fresh training draws, `[samples, batch, ...]`: the posterior's."""
        return self.posterior(x, generator)  # type: ignore[no-any-return]

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """The posterior's."""
        return self.posterior.divergence(generator)

    def draw(self, n: int, generator: torch.Generator | None = None, **options: Any) -> Functions:
        """n functions, each with statistics of its own."""
        return measure(self.posterior.draw(n, generator, **options), self.data)

    def mean(self) -> Functions:
        """The undisturbed function, with statistics of its own."""
        return measure(self.posterior.mean(), self.data)

    def describe(self) -> Description:
        """The posterior's."""
        return self.posterior.describe()

    def config(self) -> dict[str, Any]:
        """The posterior's; this holds data, and is not saved itself."""
        return self.posterior.config()


def trained_norms(posterior: Posterior) -> list[_NormBase]:
    """The layers of batch normalisation that are not frozen.

    One is frozen where none of its parameters is trained, or drawn around means that are (where it has none: none of
    the network's at all).
    """
    means = getattr(posterior, "means", None)
    still = isinstance(means, Tensor) and not means.requires_grad
    drawn = {} if still else getattr(getattr(posterior, "weights", None), "shapes", {})
    moving = {name for name, p in posterior.network.named_parameters() if p.requires_grad or name in drawn}
    found = []
    for name, module in posterior.network.named_modules():
        own = {f"{name}.{key}".lstrip(".") for key, _ in module.named_parameters(recurse=False)}
        if isinstance(module, _NormBase) and (own & moving if own else moving):
            found.append(module)
    return found


def shared_statistics(posterior: Posterior) -> str:
    """A sentence where functions are drawn with running statistics that suit none of them, else nothing.

    Those of a layer that comes before all drawn ones suit every function.
    """
    if posterior.shares_statistics:
        return ""
    drawn, behind = getattr(getattr(posterior, "weights", None), "shapes", {}), False
    trained = {id(norm) for norm in trained_norms(posterior)}
    for name, module in posterior.network.named_modules():
        tracked = getattr(module, "num_batches_tracked", None)
        if behind and id(module) in trained and tracked is not None and bool(tracked > 0):
            return (
                "The network's batch normalisation has running statistics that mix those of all draws, and functions "
                f"drawn from {type(posterior).__name__} differ too much for that: predictions may be far off. Predict "
                "with posterity.Normalised(posterior, x), x being training inputs, which measures them by function."
            )
        own = (f"{name}.{key}".lstrip(".") for key, _ in module.named_parameters(recurse=False))
        behind = behind or any(key in drawn for key in own)
    return ""


def normalised(functions: Functions) -> dict[str, _BatchNorm]:
    """The layers of batch normalisation that have running statistics, by name."""
    return {
        name: module
        for name, module in functions.network.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None and not functions.one_pass
    }


@torch.no_grad()
def measure(functions: Functions, data: Any) -> Functions:
    """Measure the statistics of batch normalisation for each of the functions, which keep them."""
    norms = normalised(functions)
    if not norms:
        return functions
    like = inputs.like(functions.network)
    parts = [
        inputs.apply(x, lambda t: t.to(like.dtype) if t.is_floating_point() else t)
        for x in loading.input_batches(data, None, like.device, functions, BATCH)
    ]
    if len(parts) > 1 and inputs.rows(parts[-1]) == 1:  # one row has no statistics
        parts[-2:] = [inputs.joined(parts[-2:])]
    found = []
    with explained(functions.network, parts[0]):  # what functions must find out of the network, they find out here
        functions(parts[0] if keeps_whole(functions, parts[0]) else inputs.between(parts[0], 0, 1))
    for function in functions.each():
        with _meters(norms) as meters:
            for x in parts:
                function(inputs.apply(x, Tensor.clone))  # a network may write into its inputs
        found.append({name: meter.statistics() for name, meter in meters.items() if meter.count})
    for name in found[0]:
        for at, key in enumerate(("running_mean", "running_var")):
            functions.replace(f"{name}.{key}", torch.stack([one[name][at] for one in found]))
    return functions


class Meter:
    """Sums over what a layer of batch normalisation is given."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: tuple[Tensor, Tensor] | None = None
        self.dtype = torch.float32

    def __call__(self, module: nn.Module, given: tuple[Tensor, ...]) -> None:
        """Take one batch `[batch, channels, ...]`."""
        x = given[0].detach().transpose(0, 1).flatten(1).double()
        sums = x.sum(1), x.square().sum(1)
        self.sums = sums if self.sums is None else (self.sums[0] + sums[0], self.sums[1] + sums[1])
        self.count += x.shape[1]

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of each channel, `[channels]`."""
        assert self.sums is not None
        mean = self.sums[0] / self.count
        variance = (self.sums[1] / self.count - mean**2).clamp(min=0) * self.count / max(1, self.count - 1)
        return mean.to(self.dtype), variance.to(self.dtype)


@contextlib.contextmanager
def _meters(norms: dict[str, _BatchNorm]) -> Iterator[dict[str, Meter]]:
    """The layers normalise by their batch in here, leave their running statistics alone, and are measured."""
    meters = {name: Meter() for name in norms}
    hooks = [norms[name].register_forward_pre_hook(meter) for name, meter in meters.items()]
    for name, module in norms.items():
        meters[name].dtype = module.weight.dtype if module.running_mean is None else module.running_mean.dtype
        module.training, module.track_running_stats = True, False
    try:
        yield meters
    finally:
        for module in norms.values():
            module.training, module.track_running_stats = False, True
        for hook in hooks:
            hook.remove()
