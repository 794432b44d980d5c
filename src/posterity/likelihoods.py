"""Likelihoods: how a network's output becomes a distribution of the answer.

A likelihood takes the outputs of several draws, `[draws, batch, ...]`, and gives `[draws, batch]`: the
log-likelihood of each datum, summed over what a datum holds (pixels, labels, outputs). The class axis of a
network's output is 1, so `[draws, batch, classes, ...]`.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posterity import inputs
from posterity.device_checks import can_check, is_recorded
from posterity.errors import Error


class Likelihood(nn.Module):
    """p(y | f(x)), with its own parameters where it has any."""

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """log p(y | outputs) of each datum: outputs `[draws, batch, ...]`, y `[batch, ...]` → `[draws, batch]`."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {}


class Categorical(Likelihood):
    """One of C classes; outputs are logits `[batch, C, ...]`, y holds class indices `[batch, ...]`.

    Args:
        weight: one weight per class, which multiplies the log-likelihood of that class.
        ignore: label of what is not observed (a padded token, an unlabelled pixel): it contributes nothing.

    Example:
        >>> import posterity, torch
        >>> logits = torch.tensor([[[0.25, 0.75], [0.5, 0.5]]]).log()  # one draw, two data, two classes
        >>> posterity.Categorical().log_prob(logits, torch.tensor([1, -100])).exp()
        tensor([[0.7500, 1.0000]])
    """

    weight: Tensor | None

    def __init__(self, weight: Tensor | list[float] | None = None, ignore: int = -100) -> None:
        super().__init__()
        weight = None if weight is None else torch.as_tensor(weight, dtype=torch.get_default_dtype())
        if weight is not None and (weight.dim() != 1 or not bool((weight >= 0).all())):
            raise Error("weight must hold one number per class, none of them negative.")
        self.register_buffer("weight", weight)
        self.ignore = ignore

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """log softmax(outputs)[y], summed over the positions of a datum."""
        if outputs.dim() > 2:
            class_count(outputs)
        return self.log_prob_of(outputs, y)

    def log_prob_of(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The same, of one class too, whose probability is 1."""
        if y.is_floating_point():
            raise Error("Categorical needs class indices (integers) as y; for real numbers use Gaussian().")
        if outputs.dim() < 3 or outputs.shape[1:2] + outputs.shape[3:] != y.shape:
            raise _mismatch(outputs, y, "[draws, batch, classes, ...] and [batch, ...]")
        y, classes = y.long(), outputs.shape[2]
        if can_check(y):
            outside = y[(y != self.ignore) & ((y < 0) | (y >= classes))]
            if len(outside):
                raise Error(
                    f"y holds the class {int(outside[0])}, but the network's output has {classes} classes "
                    f"(0 to {classes - 1}); what is not observed carries the label {self.ignore}."
                )
        known = (y == self.ignore) | ((y >= 0) & (y < classes)) if is_recorded(y) else None
        if known is not None:  # a replay cannot raise: a label out of range makes the loss NaN, which training finds
            y = y.where(known, 0)
        if self.weight is not None and len(self.weight) != classes:
            raise Error(f"weight holds {len(self.weight)} numbers, but the network's output has {classes} classes.")
        weight = None if self.weight is None else self.weight.to(outputs.device, wide(outputs).dtype)
        target = y.expand(outputs.shape[0], *y.shape).flatten(0, 1)
        losses = F.cross_entropy(
            wide(outputs).flatten(0, 1), target, weight, ignore_index=self.ignore, reduction="none"
        ).view(*outputs.shape[:2], *y.shape[1:])
        return -_per_datum(losses if known is None else losses.where(known, math.nan))

    def by_class(self, outputs: Tensor) -> Tensor:
        """Outputs `[draws, batch, ...]` with the classes along axis 2."""
        return outputs

    def labels(self, y: Tensor) -> Tensor:
        """The label that each output of a datum is compared with, `[batch, ...]`; `ignore` where there is none."""
        return y if y.is_floating_point() else y.long()  # a byte cannot be −100: 156 would be

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {"weight": None if self.weight is None else self.weight.tolist(), "ignore": self.ignore}


def class_count(outputs: Tensor) -> int:
    """The number of classes of outputs `[draws, batch, classes, ...]`: at least two, for one would be certain."""
    if outputs.shape[2] > 1:
        return outputs.shape[2]
    raise Error(
        "The network has one output, whose probability as the only class of Categorical is 1 whatever it is. The "
        "likelihood of two classes (y of 0 and 1) from one output is posterity.Bernoulli(), that of real numbers "
        "posterity.Gaussian(): give it to fit, or set posterior.likelihood."
    )


class Bernoulli(Likelihood):
    """Yes or no, for one label or many independent ones; outputs are logits of the shape of y.

    Example:
        >>> import posterity, torch
        >>> logits = torch.zeros(1, 2, 3)  # one draw, two data, three labels each
        >>> posterity.Bernoulli().log_prob(logits, torch.ones(2, 3)).exp()  # (1/2)³
        tensor([[0.1250, 0.1250]])
    """

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """y log σ(outputs) + (1 − y) log(1 − σ(outputs)), summed over labels."""
        outputs = _aligned(outputs, y)
        if can_check(y) and bool(((y < 0) | (y > 1)).any()):
            raise Error("Bernoulli needs y between 0 and 1; for more than two classes use Categorical().")
        logits = wide(outputs)
        losses = F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype).expand_as(logits), reduction="none")
        return -_per_datum(losses)


class Gaussian(Likelihood):
    """Real numbers with Gaussian noise; outputs are means `[batch, outputs, ...]`, y is of the same shape.

    Args:
        std: the noise's standard deviation, where it is known: a number, or one for each output.
        heteroscedastic: the network gives it: the second half of its outputs (axis 1) is log σ.
        initial: with neither, one standard deviation is learned, from here on: a number, or one for each output.

    Example:
        >>> import posterity, torch
        >>> means = torch.zeros(1, 2, 1)  # one draw, two data, one output
        >>> y = torch.tensor([[0.0], [2.0]])
        >>> posterity.Gaussian(std=2.0).log_prob(means, y)  # −½ (y / 2)² − log 2 − ½ log 2π
        tensor([[-1.6121, -2.1121]])
    """

    log_std: Tensor

    def __init__(
        self,
        std: float | Tensor | list[float] | None = None,
        heteroscedastic: bool = False,
        initial: float | Tensor | list[float] = 1.0,
    ) -> None:
        super().__init__()
        if std is not None and heteroscedastic:
            raise Error("Give either std= (the noise is known) or heteroscedastic=True (the network gives it).")
        value = inputs.numbers(initial if std is None else std, dtype=torch.get_default_dtype())
        if not bool((value > 0).all()) or not bool(value.isfinite().all()):
            raise Error("The noise's standard deviation must be a positive number.")
        self.heteroscedastic = heteroscedastic
        self.learned = std is None and not heteroscedastic
        if self.learned:
            self.log_std = nn.Parameter(value.log())
        elif not heteroscedastic:
            self.register_buffer("log_std", value.log())

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of y, `[draws, batch, ...]` each."""
        outputs = wide(outputs)
        if not self.heteroscedastic:
            log_std = self.log_std.to(outputs)
            if log_std.dim() == 1 and outputs.dim() > 3:
                log_std = log_std.view(-1, *(1,) * (outputs.dim() - 3))
            return outputs, log_std.expand_as(outputs)
        if outputs.dim() < 3 or outputs.shape[2] % 2:
            raise Error("A heteroscedastic network needs an even number of outputs: means, then log deviations.")
        mean, log_std = outputs.chunk(2, dim=2)
        # The gradient goes on through the bounds: from beyond them σ could not come back.
        return mean, log_std.detach().clamp(-10.0, 20.0) + (log_std - log_std.detach()).nan_to_num()

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """−½ ((y − μ)/σ)² − log σ − ½ log 2π, summed over outputs."""
        mean, log_std = self.moments(outputs)
        mean, log_std = _aligned(mean, y), _aligned(log_std, y)
        z = (y.to(mean.dtype) - mean) * torch.exp(-log_std)
        return _per_datum(-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        std = None if self.learned or self.heteroscedastic else self.log_std.exp().tolist()
        each = {"initial": [1.0] * len(self.log_std)} if self.learned and self.log_std.dim() else {}
        return {"std": std, "heteroscedastic": self.heteroscedastic, **each}


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
}


def _aligned(outputs: Tensor, y: Tensor) -> Tensor:
    """Outputs `[draws, batch, ...]` that meet y one to one; `[draws, batch, 1]` also meets y of shape `[batch]`.

    Without this check `[batch, 1]` against `[batch]` would broadcast to `[batch, batch]` in silence.
    """
    if outputs.shape[1:] == y.shape:
        return outputs
    if outputs.shape[1:] == (*y.shape, 1):
        return outputs.squeeze(-1)
    if (*outputs.shape[1:], 1) == y.shape:
        return outputs.unsqueeze(-1)
    raise _mismatch(outputs, y, "[draws, batch, ...] and [batch, ...]")


def _per_datum(values: Tensor) -> Tensor:
    """Sum over what belongs to one datum: `[draws, batch, ...]` → `[draws, batch]`."""
    return values.reshape(*values.shape[:2], -1).sum(-1)


def _mismatch(outputs: Tensor, y: Tensor, expected: str) -> Error:
    return Error(
        f"Outputs of shape {tuple(outputs.shape)} do not fit answers of shape {tuple(y.shape)}: expected {expected}."
    )


def wide(values: Tensor) -> Tensor:
    """At least float32: a long sum in half precision loses its digits."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
