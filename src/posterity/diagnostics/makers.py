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
Parts = tuple[Tensor, ...]


class Draws:
    """What drawn functions say, one function after the other: new ones as long as there are any, else the same again.

    Args:
        parts: what some functions say, `[draws, ...]` each.
        more: draws as many functions anew; None where these are all.
    """

    def __init__(self, parts: Parts, more: Callable[[], Parts] | None = None) -> None:
        self.parts, self.more, self.place = parts, more, 0
        self.functions = None if more else len(parts[0])

    def next(self) -> Parts:
        """What the next function says, `[...]` each."""
        if self.place == len(self.parts[0]):
            self.place = 0
            self.parts = self.more() if self.more else self.parts
        self.place += 1
        return tuple(part[self.place - 1] for part in self.parts)


class Numbers:
    """Real numbers: means and standard deviations of each draw, `[draws, batch, ...]`."""

    def __init__(self, draws: Draws, centre: Tensor, y: Any) -> None:
        self.y = _fitting(as_array(y, "y"), centre.shape)
        self.draws, self.centre = draws, centre.reshape(self.y.shape)

    def replicate(self, generator: torch.Generator | None) -> Tensor:
        """Targets of the next function for all rows."""
        mean, std = (part.reshape(self.y.shape) for part in self.draws.next())
        return mean + std * randn(self.y.shape, self.centre, generator)

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

    def __init__(self, draws: Draws, y: Tensor, ignore: int) -> None:
        probs = draws.parts[0]
        self.draws, self.classes = draws, probs.shape[2]
        shape = probs.shape[1:2] + probs.shape[3:]
        self.y = _fitting(y, shape).reshape(shape)
        self.hidden = self.y == ignore
        seen = self.y[~self.hidden]
        if not len(seen) or bool((seen < 0).any()) or bool((seen >= self.classes).any()):
            raise Error(f"y must hold classes from 0 to {self.classes - 1}, what is not observed the label {ignore}.")

    def replicate(self, generator: torch.Generator | None) -> Tensor:
        """Classes of the next function for all rows; what was not observed stays so."""
        ends = self.draws.next()[0].movedim(1, -1).cumsum(-1)[..., :-1]
        made = (ends < _uniform(self.y.shape, generator).unsqueeze(-1)).sum(-1)
        return torch.where(self.hidden, self.y, made)

    def defaults(self) -> dict[str, Statistic]:
        """The share of each class."""
        return {f"share of class {c}": partial(_share, c, ~self.hidden) for c in range(self.classes)}


class Labels:
    """Yes or no: probabilities of each draw, `[draws, batch, ...]`."""

    def __init__(self, draws: Draws, y: Any) -> None:
        self.draws, self.y = draws, _fitting(as_array(y, "y"), draws.parts[0].shape[1:])

    def replicate(self, generator: torch.Generator | None) -> Tensor:
        """Labels of the next function for all rows."""
        return (_uniform(self.y.shape, generator) < self.draws.next()[0].reshape(self.y.shape)).double()

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
        n = source.distinct or source.draws
        if isinstance(likelihood, Categorical):
            draws = _drawn(source, lambda: (likelihood.by_class(outputs(source.draw(n, generator), rows)).softmax(2),))
            return Classes(draws, likelihood.labels(_labels(y)), likelihood.ignore)
        if isinstance(likelihood, Bernoulli):
            return Labels(_drawn(source, lambda: (outputs(source.draw(n, generator), rows).sigmoid(),)), y)
        # The centre is of other draws than the replicated data sets: else these would lie nearer to it than y.
        centre = predict(source, x, generator=generator).mean.double().cpu()
        return Numbers(_drawn(source, lambda: _moments(predict(source, x, n, generator))), centre, y)
    if isinstance(source, GaussianPrediction):
        return Numbers(Draws(_moments(source)), source.means.double().cpu().mean(0), y)
    if isinstance(source, CategoricalPrediction):
        return Classes(Draws((source.probs.double().cpu().unsqueeze(0),)), source.labels(_labels(y)), source.ignore)
    if isinstance(source, BernoulliPrediction):
        return Labels(Draws((source.probs.double().cpu().unsqueeze(0),)), y)
    raise Error(f"A posterior or a prediction is needed; got {type(source).__name__}.")


def _drawn(source: Posterior, more: Callable[[], Parts]) -> Draws:
    return Draws(more(), None if source.distinct else more)


def _moments(prediction: Any) -> Parts:
    """Means and standard deviations of each function, `[draws, batch, ...]`, double precision on the processor."""
    return prediction.means.double().cpu(), prediction.variances.double().cpu().sqrt()


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
