"""Predictions: the average over draws, with its uncertainty split into parts.

total = aleatoric + epistemic. For classes these are nats: the entropy of the mean, the mean of the entropies, and
their difference, which is the mutual information of the answer and the function (Depeweg et al. 2018). For real
numbers they are variances, by the law of total variance.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from posterity import inputs
from posterity.errors import Error, short
from posterity.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood

#: Of the uncertainty.
PARTS = ("total", "aleatoric", "epistemic")
_MOST_HALVINGS = 1_200  # of the range of a quantile; all that double precision has


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
        return Categorical(ignore=self.ignore).log_prob_of(self.log_probs.unsqueeze(0), y).squeeze(0)

    def labels(self, y: Tensor) -> Tensor:
        """The label that the probabilities at each position are compared with; `ignore` where there is none."""
        return Categorical(ignore=self.ignore).labels(y)

    def with_probs(self, log_probs: Tensor, aleatoric: Tensor) -> "CategoricalPrediction":
        """The same with other probabilities and another aleatoric uncertainty."""
        other = copy.copy(self)
        vars(other).update(vars(CategoricalPrediction(log_probs, aleatoric, self.ignore)))
        return other

    def mixed(self, other: "CategoricalPrediction", share: float) -> "CategoricalPrediction":
        """With a prediction of the same rows from other draws."""
        log_probs = torch.logaddexp(self.log_probs + math.log(share), other.log_probs + math.log1p(-share))
        return self.with_probs(log_probs, torch.lerp(other.aleatoric, self.aleatoric, share))

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
        self.logits = torch.logit(probs.double(), eps=1e-12) if logits is None else logits

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
        q = _part(q, "A quantile")
        means, stds = self.means.double(), self.variances.double().sqrt()  # tails are lost in single precision
        reach = stds * (abs(_normal_quantile(q)) + 1)
        low, high = (means - reach).amin(0), (means + reach).amax(0)
        close = 1e-13 * stds.amin(0).clamp(min=1e-60)
        # A draw far from the others makes the first range wide, and each halving is one bit of it.
        for tried in range(_MOST_HALVINGS):
            middle = (low + high) / 2
            within = (low < middle) & (middle < high) & (high - low > close)  # else there is no number between
            if tried % 8 == 0 and not bool(within.any()):
                break
            below = torch.special.ndtr((middle - means) / stds).mean(0) < q
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return ((low + high) / 2).to(self.means)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """The central interval that holds `level` of the mixture's mass: lower and upper ends."""
        level = _part(level, "An interval's level")
        if (1 + level) / 2 == 1:
            raise Error(
                f"An interval's level must be further from 1, for its ends are then at infinity; got {short(level)}."
            )
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
        return inputs.shaped(y, self.means.shape[1:]).to(self.means)

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


def _part(value: Any, what: str) -> float:
    """A number between 0 and 1."""
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not 0 < number < 1:
        raise Error(f"{what} is one number between 0 and 1; got {short(value)}.")
    return number


def _normal_quantile(q: float) -> float:
    return float(torch.special.ndtri(torch.tensor(q, dtype=torch.float64)))


def _cat(predictions: Sequence[Any], name: str, axis: int = 0) -> Tensor:
    return torch.cat([getattr(prediction, name) for prediction in predictions], axis)
