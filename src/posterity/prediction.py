"""Predictions: the average over draws, with its uncertainty split into parts.

total = aleatoric + epistemic. For classes these are nats: the entropy of the mean, the mean of the entropies, and
their difference, which is the mutual information of the answer and the function (Depeweg et al. 2018). For real
numbers they are variances, by the law of total variance.
"""

import copy
import inspect
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from posterity import inputs, loading
from posterity.adaptive import Rounds
from posterity.errors import Error
from posterity.functions import Functions
from posterity.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from posterity.posterior import Posterior, as_generator, checked, count

#: Of the uncertainty.
PARTS = ("total", "aleatoric", "epistemic")


class Prediction:
    """What a posterior says of some rows. `total`, `aleatoric` and `epistemic` are `[batch, ...]`.

    That of classes has `probs` and `log_probs`, `[batch, classes, ...]`. That of yes and no has `probs` of the shape of
    the network's output. That of real numbers has `mean`, `std`, `interval(level)` and `quantile(q)`, `[batch, ...]`,
    and `means` and `variances` of each draw, `[draws, batch, ...]`.

    Example:
        >>> import posterity, torch
        >>> prediction = posterity.predict(posterity.IBNN(torch.nn.Linear(2, 3)), torch.randn(5, 2))
        >>> prediction.probs.shape, prediction.epistemic.shape
        (torch.Size([5, 3]), torch.Size([5]))
        >>> torch.equal(prediction.total, prediction.aleatoric + prediction.epistemic)
        True
        >>> len(prediction[:2])
        2
    """

    aleatoric: Tensor
    epistemic: Tensor
    #: With `samples="auto"`, how many draws each row took, `[batch]`.
    samples: Tensor | None = None
    #: What has an axis of draws before that of rows.
    by_draw: tuple[str, ...] = ()

    @property
    def total(self) -> Tensor:
        """All of the uncertainty."""
        return self.aleatoric + self.epistemic

    def __len__(self) -> int:
        return len(self.aleatoric)

    def __repr__(self) -> str:
        held = "probs" if hasattr(self, "probs") else "mean, std, interval"
        return f"{type(self).__name__} of {len(self)} row{'s' * (len(self) != 1)}: {held}, total, aleatoric, epistemic"

    def __getitem__(self, rows: Any) -> "Prediction":
        """The prediction of some rows: a number, a slice, numbers or a mask, as a tensor takes them."""
        numbers = torch.arange(len(self))[rows.cpu() if isinstance(rows, Tensor) else rows].reshape(-1)
        chosen = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                axis = int(name in self.by_draw)
                setattr(chosen, name, value.index_select(axis, numbers.to(value.device)))
        return chosen

    def log_prob(self, y: Tensor) -> Tensor:
        """Log predictive density or probability of y, `[batch]`, summed over what a datum holds."""
        raise NotImplementedError

    def to(self, device: torch.device | str) -> "Prediction":
        """The same prediction on another device."""
        moved = copy.copy(self)
        moved.__dict__.update({k: v.to(device) if isinstance(v, Tensor) else v for k, v in vars(self).items()})
        return moved

    def mixed(self, other: Any, share: float) -> "Prediction":
        """With a prediction of the same rows from other draws: `share` of all draws are those of this one."""
        raise NotImplementedError

    @staticmethod
    def from_probs(probs: Tensor) -> "CategoricalPrediction":
        """What any other model says of classes, for all that takes a prediction.

        Args:
            probs: `[batch, classes]`, or those of several draws (members, passes), `[draws, batch, classes, ...]`.

        Example:
            >>> import posterity, torch
            >>> from posterity import evaluation
            >>> members = torch.tensor([[[0.9, 0.1], [0.5, 0.5]], [[0.1, 0.9], [0.5, 0.5]]])
            >>> prediction = posterity.Prediction.from_probs(members)  # two members, two rows: they differ on the first
            >>> prediction.probs.tolist()
            [[0.5, 0.5], [0.5, 0.5]]
            >>> prediction.epistemic
            tensor([0.3681, 0.0000])
            >>> evaluation.score(prediction, torch.tensor([0, 0]))["error"]
            0.0
        """
        probs = torch.as_tensor(probs)
        if probs.dim() < 2 or not probs.is_floating_point():
            raise Error("Probabilities are [batch, classes], or of several draws [draws, batch, classes, ...].")
        if probs.dim() == 2:
            probs = probs.unsqueeze(0)
        if not bool((probs >= 0).all()) or not bool(((probs.sum(2) - 1).abs() < 1e-2).all()):
            raise Error("Probabilities of a row's classes must be at least 0 and sum to 1.")
        return CategoricalPrediction.gather([probs.log()], Categorical())

    @classmethod
    def gather(cls, parts: Iterable[Tensor], likelihood: Likelihood) -> "Prediction":
        """From the outputs `[some draws, batch, ...]` of the same rows, taken part by part."""
        raise NotImplementedError

    @classmethod
    def join(cls, predictions: Sequence[Any]) -> "Prediction":
        """Predictions of successive rows as one."""
        raise NotImplementedError


class CategoricalPrediction(Prediction):
    """Probabilities of classes: `probs` and `log_probs` are `[batch, classes, ...]`."""

    def __init__(self, log_probs: Tensor, aleatoric: Tensor, ignore: int = -100) -> None:
        self.ignore = ignore
        self.log_probs = log_probs
        self.aleatoric = aleatoric
        self.epistemic = (_entropy(log_probs, axis=1) - aleatoric).clamp(min=0)

    @property
    def probs(self) -> Tensor:
        """Mean probability of each class over draws, `[batch, classes, ...]`."""
        return self.log_probs.exp()

    def log_prob(self, y: Tensor) -> Tensor:
        """Log probability of the observed classes."""
        return Categorical(ignore=self.ignore).log_prob(self.log_probs.unsqueeze(0), y).squeeze(0)

    def mixed(self, other: "CategoricalPrediction", share: float) -> "CategoricalPrediction":
        """With a prediction of the same rows from other draws."""
        log_probs = torch.logaddexp(self.log_probs + math.log(share), other.log_probs + math.log1p(-share))
        aleatoric = torch.lerp(other.aleatoric, self.aleatoric, share)
        both = copy.copy(self)
        vars(both).update(vars(CategoricalPrediction(log_probs, aleatoric, self.ignore)))
        return both

    @classmethod
    def gather(cls, parts: Iterable[Tensor], likelihood: Likelihood) -> "CategoricalPrediction":
        """Streams: keeps the log of the summed probabilities and the summed entropies."""
        log_sum = aleatoric = None
        draws = 0
        for outputs in parts:
            if outputs.dim() < 3:
                raise Error(
                    f"Outputs of shape {tuple(outputs.shape)} have no class axis; [draws, batch, classes, ...] needed. "
                    "For one logit use Bernoulli(), for real numbers Gaussian()."
                )
            log_probs = F.log_softmax(outputs.float() if outputs.dtype != torch.float64 else outputs, dim=2)
            part, entropy = log_probs.logsumexp(0), _entropy(log_probs, axis=2).sum(0)
            log_sum = part if log_sum is None else torch.logaddexp(log_sum, part)
            aleatoric = entropy if aleatoric is None else aleatoric + entropy
            draws += len(outputs)
        if log_sum is None or aleatoric is None:
            raise Error("A prediction needs at least one draw.")
        return cls(log_sum - math.log(draws), aleatoric / draws, getattr(likelihood, "ignore", -100))

    @classmethod
    def join(cls, predictions: Sequence["CategoricalPrediction"]) -> "CategoricalPrediction":
        """Predictions of successive rows as one."""
        return cls(_cat(predictions, "log_probs"), _cat(predictions, "aleatoric"), predictions[0].ignore)


class BernoulliPrediction(Prediction):
    """Probabilities of yes; `probs` and each uncertainty have the shape of the network's output."""

    def __init__(self, probs: Tensor, aleatoric: Tensor, logits: Tensor | None = None) -> None:
        self.probs = probs
        self.aleatoric = aleatoric
        self.epistemic = (_binary_entropy(probs) - aleatoric).clamp(min=0)
        self.logits = torch.logit(probs, eps=1e-12) if logits is None else logits

    def log_prob(self, y: Tensor) -> Tensor:
        """Log probability of the observed labels."""
        return Bernoulli().log_prob(self.logits.unsqueeze(0), y).squeeze(0)

    def mixed(self, other: "BernoulliPrediction", share: float) -> "BernoulliPrediction":
        """With a prediction of the same rows from other draws."""
        mine, yours = (F.logsigmoid(torch.stack([p.logits, -p.logits])) for p in (self, other))
        yes, no = torch.logaddexp(mine + math.log(share), yours + math.log1p(-share))
        return BernoulliPrediction(yes.exp(), torch.lerp(other.aleatoric, self.aleatoric, share), yes - no)

    @classmethod
    def gather(cls, parts: Iterable[Tensor], likelihood: Likelihood) -> "BernoulliPrediction":
        """Streams: keeps the logarithms of the summed probabilities, and the summed entropies, in double precision."""
        log_sums = aleatoric = None
        draws = 0
        for outputs in parts:
            outputs = outputs.double()
            part = F.logsigmoid(torch.stack([outputs, -outputs])).logsumexp(1)
            entropy = _binary_entropy(outputs.sigmoid()).sum(0)
            log_sums = part if log_sums is None else torch.logaddexp(log_sums, part)
            aleatoric = entropy if aleatoric is None else aleatoric + entropy
            draws += len(outputs)
        if log_sums is None or aleatoric is None:
            raise Error("A prediction needs at least one draw.")
        yes, no = log_sums
        return cls((yes - math.log(draws)).exp(), aleatoric / draws, yes - no)

    @classmethod
    def join(cls, predictions: Sequence["BernoulliPrediction"]) -> "BernoulliPrediction":
        """Predictions of successive rows as one."""
        return cls(*(_cat(predictions, name) for name in ("probs", "aleatoric", "logits")))


class GaussianPrediction(Prediction):
    """A mixture of one Gaussian per draw: `means` and `variances` are `[draws, batch, ...]`."""

    by_draw = ("means", "variances")

    def __init__(self, means: Tensor, variances: Tensor) -> None:
        self.means = means
        self.variances = variances
        self.aleatoric = variances.mean(0)
        self.epistemic = means.var(0, correction=0)

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, `[batch, ...]`."""
        return self.means.mean(0)

    @property
    def std(self) -> Tensor:
        """Standard deviation of the mixture, `[batch, ...]`."""
        return self.total.sqrt()

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y ≤ y), of the shape of `mean`."""
        z = (self._like_mean(y) - self.means) / self.variances.sqrt()
        return torch.special.ndtr(z).mean(0)

    def quantile(self, q: float) -> Tensor:
        """The q-quantile of the mixture, by bisection, of the shape of `mean`."""
        if not 0 < q < 1:
            raise Error(f"A quantile lies between 0 and 1; got {q}.")
        reach = self.variances.sqrt() * (abs(_normal_quantile(q)) + 1)
        low, high = (self.means - reach).amin(0), (self.means + reach).amax(0)
        for _ in range(50):
            middle = (low + high) / 2
            below = self.cdf(middle) < q
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """The central interval that holds `level` of the mixture's mass: lower and upper ends."""
        if not 0 < level < 1:
            raise Error(f"An interval's level lies between 0 and 1; got {level}.")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def log_prob(self, y: Tensor) -> Tensor:
        """log (1/n) Σ_s Π_outputs N(y; mean_s, variance_s): a datum's outputs belong to the same draw."""
        z = (self._like_mean(y) - self.means) ** 2 / self.variances
        terms = -0.5 * (z + self.variances.log() + math.log(2 * math.pi))
        return terms.reshape(*terms.shape[:2], -1).sum(2).logsumexp(0) - math.log(len(self.means))

    def rescale(self, mean: float | Tensor, std: float | Tensor) -> "GaussianPrediction":
        """The prediction of mean + std · y: back to the units of a target that was standardised."""
        mean, scale = (torch.as_tensor(v, dtype=torch.float64, device=self.means.device) for v in (mean, std))
        scaled = GaussianPrediction(mean + scale * self.means.double(), scale**2 * self.variances.double())
        scaled.samples = self.samples
        return scaled

    def _like_mean(self, y: Tensor) -> Tensor:
        shape = self.means.shape[1:]
        if [n for n in y.shape if n != 1] != [n for n in shape if n != 1]:
            raise Error(f"y has shape {tuple(y.shape)}, the prediction {tuple(shape)}: they must be the same.")
        return y.reshape(shape).to(self.means)

    def mixed(self, other: "GaussianPrediction", share: float) -> "GaussianPrediction":
        """With a prediction of the same rows from other draws, all of which weigh the same."""
        return GaussianPrediction(torch.cat([self.means, other.means]), torch.cat([self.variances, other.variances]))

    @classmethod
    def gather(cls, parts: Iterable[Tensor], likelihood: Likelihood) -> "GaussianPrediction":
        """Keeps every draw: quantiles and scores are those of the mixture."""
        if not isinstance(likelihood, Gaussian):
            raise Error("A Gaussian prediction needs a Gaussian likelihood.")
        moments = [likelihood.moments(outputs) for outputs in parts]
        return cls(torch.cat([mean for mean, _ in moments]), torch.cat([(2 * s).exp() for _, s in moments]))

    @classmethod
    def join(cls, predictions: Sequence["GaussianPrediction"]) -> "GaussianPrediction":
        """Predictions of successive rows as one."""
        return cls(_cat(predictions, "means", 1), _cat(predictions, "variances", 1))


KINDS: dict[type[Likelihood], type[Prediction]] = {
    Categorical: CategoricalPrediction,
    Bernoulli: BernoulliPrediction,
    Gaussian: GaussianPrediction,
}


def kind(likelihood: Likelihood) -> type[Prediction]:
    """The class of predictions that belongs to a likelihood."""
    for base in type(likelihood).__mro__:
        if base in KINDS:
            return KINDS[base]
    raise Error(f"No kind of prediction is known for the likelihood {type(likelihood).__name__}.")


def _entropy(log_probs: Tensor, axis: int) -> Tensor:
    return -(log_probs.exp() * log_probs.clamp(min=torch.finfo(log_probs.dtype).min)).sum(axis)


def _binary_entropy(p: Tensor) -> Tensor:
    return -(torch.xlogy(p, p) + torch.special.xlog1py(1 - p, -p))


def _normal_quantile(q: float) -> float:
    return float(torch.special.ndtri(torch.tensor(q, dtype=torch.float64)))


def _cat(predictions: Sequence[Any], name: str, axis: int = 0) -> Tensor:
    return torch.cat([getattr(prediction, name) for prediction in predictions], axis)


@torch.no_grad()
def predict(
    posterior: Posterior,
    data: Any,
    samples: int | str | None = None,
    generator: torch.Generator | None = None,
    *,
    seed: int | None = None,
    batch_size: int | None = None,
    tolerance: float = 0.05,
    pairs: bool = False,
    compile: bool = False,
) -> Any:
    """What a posterior says of some rows: the average over `samples` drawn functions, with its uncertainty.

    What comes back is a `Prediction`; which numbers it has beside its uncertainties depends on the likelihood.

    Args:
        posterior: a trained posterior; nothing of it changes.
        data: inputs as a tensor, array, tuple or mapping, or a Dataset or DataLoader (answers in it are left out). For
            a posterior that keeps its preprocessing, as those of the command line do, also a data frame, or the path of
            a table or of images, as they are: the prediction is then in the target's own units.
        samples: how many functions; by default what suits the method (one for MAP, 5 per component for IBNN but at
            least 40). With "auto" that is the most, and a row stops at a part of them (a tenth, a fifth, a half) once
            it is settled; `prediction.samples` then says how many each took.
        generator: of the draws; without one, torch's global generator is used.
        seed: in place of a generator.
        batch_size: rows at a time; by default what suits the machine.
        tolerance: with "auto", a row is settled when the 95 % intervals of every class's probability and of its total
            and epistemic uncertainty (nats) are within ± tolerance and the leading class is the first beyond its
            interval. Of real numbers: those of mean, standard deviation and its epistemic part, in units of the
            predictive standard deviation. Of maps, the mean over positions.
        pairs: draw noise in pairs of opposite sign, for IBNN (best with a multiple of 2 · components) and
            BayesByBackprop: means are then far closer to their limit, spreads known as from half as many draws.
        compile: compile what is done with a part of the rows, which takes seconds and makes the rest about twice as
            fast: for tens of thousands of rows. To use the same functions again and again, call `functions.compile()`
            on drawn ones.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.DeepEnsemble(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)))
        >>> posterior.likelihood = posterity.Gaussian(std=0.1)  # else `fit` attaches it
        >>> prediction = posterity.predict(posterior, torch.randn(8, 2))
        >>> prediction.mean.shape, prediction.means.shape  # of five members
        (torch.Size([8, 1]), torch.Size([5, 8, 1]))
        >>> low, high = prediction.interval(0.9)
        >>> bool((low < high).all())
        True
    """
    checked(posterior)
    generator = as_generator(seed, generator)
    batch_size = None if batch_size is None else count(batch_size, "batch_size")
    if isinstance(data, (str, os.PathLike)) or (posterior.preprocessing is not None and _is_frame(data)):
        said = predict(
            posterior,
            _read(posterior, data),
            samples,
            generator,
            batch_size=batch_size,
            tolerance=tolerance,
            pairs=pairs,
            compile=compile,
        )
        known = posterior.preprocessing
        return said.rescale(known.target_mean, known.target_std) if isinstance(said, GaussianPrediction) else said
    if isinstance(data, DataLoader) and loading.rearranges(data):
        warnings.warn(
            "The loader shuffles its rows or drops the last: the prediction has those that it gives, in its order.",
            stacklevel=3,
        )
    if samples == "auto":
        if pairs or compile:
            why = "needs independent draws" if pairs else "runs on ever fewer rows, each time with other shapes"
            raise Error(f'samples="auto" {why}: give a number of samples for that.')
        return _of_rows(posterior, Rounds(posterior, tolerance, generator), data, batch_size)
    prediction, drawn = None, 0
    once = compile or isinstance(data, (Dataset, DataLoader))  # which may give other rows another time
    for n in _turns(posterior, posterior.draws if samples is None else samples, once):
        part = _of_rows(posterior, _draw(posterior, n, generator, pairs, compile), data, batch_size)
        prediction = part if prediction is None else prediction.mixed(part, drawn / (drawn + n))
        drawn += n
    return prediction


def _is_frame(data: Any) -> bool:
    """Whether it is a data frame of pandas, which need not be there."""
    return hasattr(data, "columns") and hasattr(data, "iloc")


def _read(posterior: Posterior, source: Any) -> Tensor:
    """The inputs in a file, folder or data frame, prepared as the posterior's own were."""
    from posterity import datasets

    known = posterior.preprocessing
    if known is None:
        raise Error("This posterior keeps no preprocessing to read files with: give the inputs as a tensor.")
    read: Tensor = known.inputs(source) if _is_frame(source) else datasets.read_inputs(source, known)[0]
    return read


def _turns(posterior: Posterior, samples: Any, once: bool) -> list[int]:
    """How many functions to draw and to hold, turn by turn."""
    samples = count(samples, "samples")
    turn = samples if once or posterior.turn is None else posterior.turn
    return [min(turn, samples - start) for start in range(0, samples, turn)]


def _of_rows(posterior: Posterior, functions: Any, data: Any, batch_size: int | None) -> Any:
    """What functions, or rounds of them, say of the data."""
    like, make = next(posterior.parameters(), torch.zeros(())), kind(posterior.likelihood)
    home = data.device if isinstance(data, Tensor) else torch.device("cpu")
    parts = []
    for x in loading.input_batches(data, batch_size or (8192 if like.is_cuda else 1024), like.device):
        loading.check_finite(x)
        x = inputs.apply(x, lambda t: t.to(like.dtype) if t.is_floating_point() else t)
        for part in functions.parts(x):
            if isinstance(functions, Rounds):
                parts.append(functions.predict(part, make).to(home))
            else:
                parts.append(make.gather(functions.stream(part), posterior.likelihood).to(home))
    if not parts:
        raise Error("There is nothing to predict: the data have no rows.")
    prediction = make.join(parts)
    if isinstance(functions, Rounds):
        prediction.samples = torch.cat([part.samples for part in parts])
    return prediction


def _draw(posterior: Any, n: int, generator: torch.Generator | None, pairs: bool, compile: bool) -> Functions:
    if pairs and "pairs" not in inspect.signature(posterior.draw).parameters:
        raise Error(f"{type(posterior).__name__} has no noise to draw in pairs: leave pairs out.")
    functions: Functions = posterior.draw(n, generator, **({"pairs": True} if pairs else {}))
    if compile:
        functions.compile()
    return functions
