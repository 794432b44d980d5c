"""What makes data like those observed: one kind for each likelihood."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from posterity import inputs
from posterity.diagnostics.arrays import as_array
from posterity.errors import Error
from posterity.likelihoods import Bernoulli, Categorical, Gaussian
from posterity.outputs import outputs
from posterity.posterior import Posterior, randn
from posterity.predicting import predict
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction, Prediction
from posterity.preparing import is_raw, prepared
from posterity.state import home

Statistic = Callable[[Tensor], Any]


class Numbers:
    """Real numbers: means and variances of each draw, `[draws, batch, ...]`."""

    def __init__(self, means: Tensor, variances: Tensor, y: Any) -> None:
        self.y = _fitting(as_array(y, "y"), means.shape[1:])
        self.means = means.double().cpu().reshape(-1, *self.y.shape)
        self.std = variances.double().cpu().sqrt().reshape(-1, *self.y.shape)
        self.centre = self.means.mean(0)

    def replicate(self, i: int, generator: torch.Generator | None) -> Tensor:
        """Answers of the i-th draw for all rows."""
        draw = i % len(self.means)
        return self.means[draw] + self.std[draw] * randn(self.y.shape, self.centre, generator)

    def defaults(self) -> dict[str, Statistic]:
        """Moments and extremes, and what is left over the predicted mean; for each output."""
        if len(self.y) < 3:
            raise Error(f"The statistics need at least 3 rows; got {len(self.y)}.")
        found: dict[str, Statistic] = {}
        for c, of in enumerate(_columns(self.y, "output")):
            found |= {name + of: partial(_at, c, statistic, 0) for name, statistic in _OF_NUMBERS.items()}
            found |= {name + of: partial(_at, c, statistic, self.centre) for name, statistic in _OF_RESIDUALS.items()}
        return found


def _neighbours(residuals: Tensor) -> Tensor:
    """Correlation of successive rows."""
    centred = residuals - residuals.mean()
    return (centred[1:] * centred[:-1]).sum() / centred.square().sum().clamp(min=torch.finfo(torch.float64).tiny)


_OF_NUMBERS: dict[str, Statistic] = {"mean": torch.mean, "std": torch.std, "min": torch.amin, "max": torch.amax}
_OF_RESIDUALS: dict[str, Statistic] = {"residual std": torch.std, "residual lag 1": _neighbours}


def _columns(y: Tensor, kind: str) -> list[str]:
    """What to add to a name for each column of y `[batch, ...]`: nothing where there is one."""
    columns = y[0].numel()
    return [f" of {kind} {c}" for c in range(columns)] if columns > 1 else [""]


def _at(column: int, statistic: Statistic, centre: Tensor | float, y: Tensor) -> Any:
    """A statistic of one column of y − centre."""
    return statistic((y - centre).reshape(len(y), -1)[:, column])


def _share(label: int, seen: Tensor, y: Tensor) -> Tensor:
    """How much of what is seen carries the label."""
    return (y[seen] == label).double().mean()


class Classes:
    """One of C classes: probabilities of each draw, `[draws, batch, C, ...]`."""

    def __init__(self, probs: Tensor, y: Tensor, ignore: int) -> None:
        self.classes = probs.shape[2]
        shape = probs.shape[1:2] + probs.shape[3:]
        self.y = _fitting(y, shape).reshape(shape)
        self.hidden = self.y == ignore
        seen = self.y[~self.hidden]
        if not len(seen) or bool((seen < 0).any()) or bool((seen >= self.classes).any()):
            raise Error(f"y must hold classes from 0 to {self.classes - 1}, what is not observed the label {ignore}.")
        self.ends = probs.double().cpu().movedim(2, -1).cumsum(-1)[..., :-1]

    def replicate(self, i: int, generator: torch.Generator | None) -> Tensor:
        """Classes of the i-th draw for all rows; what was not observed stays so."""
        places = _uniform(self.y.shape, generator).unsqueeze(-1)
        made = (self.ends[i % len(self.ends)] < places).sum(-1)
        return torch.where(self.hidden, self.y, made)

    def defaults(self) -> dict[str, Statistic]:
        """The share of each class."""
        return {f"share of class {c}": partial(_share, c, ~self.hidden) for c in range(self.classes)}


class Labels:
    """Yes or no: probabilities of each draw, `[draws, batch, ...]`."""

    def __init__(self, probs: Tensor, y: Any) -> None:
        self.y = _fitting(as_array(y, "y"), probs.shape[1:])
        self.probs = probs.double().cpu().reshape(-1, *self.y.shape)

    def replicate(self, i: int, generator: torch.Generator | None) -> Tensor:
        """Labels of the i-th draw for all rows."""
        return (_uniform(self.y.shape, generator) < self.probs[i % len(self.probs)]).double()

    def defaults(self) -> dict[str, Statistic]:
        """The share of yes, for each label."""
        return {f"share of yes{of}": partial(_at, c, torch.mean, 0) for c, of in enumerate(_columns(self.y, "label"))}


def maker(
    source: Posterior | Prediction, x: Any, y: Any, generator: torch.Generator | None
) -> Numbers | Classes | Labels:
    """What makes data by a posterior at x, or by a prediction."""
    if isinstance(source, Posterior):
        if x is None:
            raise Error("A posterior is checked on the inputs of y: give x.")
        likelihood, rows = source.likelihood, prepared(source, x)
        if is_raw(source, x) and not isinstance(y, Tensor) and not isinstance(likelihood, Gaussian):
            y = source.preprocessing.targets(y)  # names of classes; numbers are predicted in their own units
        if isinstance(likelihood, Categorical):
            found = outputs(source.draw(source.draws, generator), rows)
            return Classes(likelihood.by_class(found).softmax(2), likelihood.labels(_labels(y)), likelihood.ignore)
        if isinstance(likelihood, Bernoulli):
            return Labels(outputs(source.draw(source.draws, generator), rows).sigmoid(), y)
        source = predict(source, x, generator=generator)
    if isinstance(source, GaussianPrediction):
        return Numbers(source.means, source.variances, y)
    if isinstance(source, CategoricalPrediction):
        return Classes(source.probs.unsqueeze(0), source.labels(_labels(y)), source.ignore)
    if isinstance(source, BernoulliPrediction):
        return Labels(source.probs.unsqueeze(0), y)
    raise Error(f"A posterior or a prediction is needed; got {type(source).__name__}.")


def _labels(y: Any) -> Tensor:
    return as_array(y, "y").long()


def _fitting(y: Tensor, shape: torch.Size) -> Tensor:
    """y, if it has one answer for each that is predicted."""
    if y.dim() < 1 or not y.numel() or len(y) != shape[0] or not inputs.alike(y.shape, shape):
        raise Error(f"y of shape {tuple(y.shape)} does not fit predictions of shape {tuple(shape)}.")
    return y


def _uniform(shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers on the processor, wherever the generator lives."""
    return torch.rand(shape, generator=generator, device=home(generator), dtype=torch.float64).cpu()
