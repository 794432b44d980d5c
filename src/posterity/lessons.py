"""Lessons: what a teacher's functions say of each input, in two numbers an output, and how far a student is from it.

Mean and spread: for real numbers, and logits of yes or no, the functions' mean and standard deviation. For classes, the
logarithm of the mean probability and the standard deviation of the log-probabilities, both corrected in a few steps so
that the student's noise, which is independent from class to class, gives that mean and the same mutual information.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from posterity import inputs, loading
from posterity.errors import Error
from posterity.explaining import explained
from posterity.functions import Functions
from posterity.interaction import pieces
from posterity.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from posterity.posterior import Posterior
from posterity.prediction import CategoricalPrediction
from posterity.progress import Bar
from posterity.state import home

#: Rows that a teacher is asked about at a time.
ROWS = 256
#: Weights of what the prediction itself hardly shows: logarithms of the spread, and of the entropy of sure answers.
SPREAD, ENTROPY = 0.5, 0.01
#: The logarithm of a ratio of variances beyond which the ratio goes on as a straight line.
LARGE = 4.0
#: Steps in which the noise of classes is fitted to a teacher's mean and information.
STEPS = 4
#: Points at which a Bernoulli's mean over functions is taken.
NODES = 16


def everything(data: Any) -> tuple[Any, Tensor | None]:
    """All inputs of data in memory, as tensors, and the weights of the rows where there are any."""
    if isinstance(data, (Dataset, DataLoader)):
        parts = list(loading.loaded(data, None, torch.device("cpu")))
        x = inputs.joined([part.x for part in parts]) if parts else torch.zeros(0)
        weights = [part.weight for part in parts if part.weight is not None]
        weight = torch.cat(weights) if weights else None
    else:
        batch = loading._as_batch(data)
        x, weight = inputs.as_tensors(batch.x), inputs.as_tensors(batch.weight)
    if not inputs.tensors(x):
        raise Error(f"Inputs must be tensors or arrays, a Dataset or a DataLoader; got {type(data).__name__}.")
    if not inputs.rows(x):
        raise Error("There is nothing to learn from: inputs need rows, as many on axis 0 of each tensor.")
    return x, weight


@torch.no_grad()
def lessons(posterior: Posterior, functions: Functions, x: Any, shown: bool) -> tuple[Tensor, Tensor]:
    """Mean and spread of the functions for all rows, `[rows, ...]` each, in double precision."""
    like = inputs.like(posterior)
    found, some = [], list(pieces(functions, x, default=ROWS))
    with Bar(len(some), shown) as bar:
        for rows in some:
            rows = inputs.as_tensors(rows, like.device)
            loading.check_finite(rows)
            rows = inputs.apply(rows, lambda tensor: tensor.to(like.dtype) if tensor.is_floating_point() else tensor)
            with explained(functions.network, rows):
                parts = list(functions.parts(rows))
                found += [[v.cpu() for v in lesson(functions.stream(part), posterior.likelihood)] for part in parts]
            bar.update()
    mean, spread = (torch.cat(values) for values in zip(*found, strict=True))
    return mean, spread


def lesson(parts: Iterable[Tensor], likelihood: Likelihood) -> tuple[Tensor, Tensor]:
    """The same for some rows, from outputs `[some, batch, ...]` part by part: memory does not grow with the draws."""
    moments = _Moments()
    if not isinstance(likelihood, Categorical):
        for outputs in parts:
            moments.add(outputs.double())
        return moments.mean, moments.std
    said = CategoricalPrediction.gather((moments.classes(outputs) for outputs in parts), likelihood)
    mean, spread = said.log_probs, moments.std
    noise = spread_out(64, spread.shape[1], torch.Generator().manual_seed(0)).to(spread)
    for _ in range(STEPS):
        drawn = (noisy(mean, spread, aligned(some, spread), True) for some in noise.split(8))
        found = CategoricalPrediction.gather(drawn, likelihood)
        mean = mean + said.log_probs - found.log_probs
        factor = ((said.epistemic + 1e-12) / (found.epistemic + 1e-12)).sqrt()  # about quadratic in the spread
        spread = spread * factor.clamp(0.5, 2).unsqueeze(1)
    return mean.log_softmax(1), spread


class _Moments:
    """Mean and standard deviation over draws, around the first of them, so that equal draws have none."""

    def __init__(self) -> None:
        self.count = 0
        self.first = self.sum = self.squares = torch.zeros(())

    def add(self, values: Tensor) -> Tensor:
        """Some more draws, `[some, ...]`, which it hands back."""
        self.first = self.first if self.count else values[0]
        away = values - self.first
        self.sum, self.squares = self.sum + away.sum(0), self.squares + (away**2).sum(0)
        self.count += len(values)
        return values

    def classes(self, outputs: Tensor) -> Tensor:
        """The log-probabilities of some more draws, where there are classes."""
        return self.add(outputs.double().log_softmax(2)) if outputs.dim() > 2 else outputs

    @property
    def mean(self) -> Tensor:
        return self.first + self.sum / self.count

    @property
    def std(self) -> Tensor:
        return (self.squares / self.count - (self.sum / self.count) ** 2).clamp(min=0).sqrt()


def spread_out(n: int, outputs: int, generator: torch.Generator | None) -> Tensor:
    """Normal numbers `[n, outputs]`: each row a draw, all of them evenly spread (a scrambled Sobol sequence)."""
    seed = int(torch.randint(2**31, (), generator=generator, device=home(generator)))
    if outputs > torch.quasirandom.SobolEngine.MAXDIM:
        return torch.randn(n, outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    even = torch.quasirandom.SobolEngine(outputs, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    return torch.special.ndtri(even.clamp(1e-9, 1 - 1e-9))


def aligned(values: Tensor, like: Tensor) -> Tensor:
    """`[..., outputs]` to go with `[batch, outputs, ...]`, or, where outputs is 1, with `[batch]`."""
    return values if like.dim() == 1 else values.unsqueeze(-2)[(..., *(None,) * (like.dim() - 2))]


def noisy(z: Tensor, spread: Tensor, noise: Tensor, classes: bool) -> Tensor:
    """z + s ε, and for classes − ½ s²: `[n, batch, ...]`."""
    return (z - spread**2 / 2 if classes else z) + spread * noise


def misfit(likelihood: Likelihood, own: tuple[Tensor, Tensor], told: tuple[Tensor, Tensor], spread: Tensor) -> Tensor:
    """How far a student is from its teacher, in nats, `[batch]`.

    Args:
        likelihood: what turns outputs into predictions.
        own: the student's z and log(s + floor), `[batch, ...]`.
        told: the teacher's mean and log(spread + floor).
        spread: the teacher's spread.

    Of the spread it is KL(N(0, spread²) ‖ N(0, s²)), with the floor added to both. Over inputs that a student cannot
    tell apart, that is least at their mean variance; the squared gap of the logarithms would be so at a lower one.
    """
    far = distance(likelihood, own[0], told[0], spread)
    gap = 2 * (told[1] - own[1])
    ratio = gap.clamp(max=LARGE).exp() * (1 + (gap - LARGE).clamp(min=0))
    off = (ratio - 1 - gap) / (2 * gap.shape[1] if isinstance(likelihood, Categorical) else 2)
    return far.reshape(len(far), -1).sum(1) + SPREAD * off.reshape(len(off), -1).sum(1)


def distance(likelihood: Likelihood, z: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """How far a student's prediction is from its teacher's mean and spread: nats, for each row and what it holds."""
    if isinstance(likelihood, Categorical):
        log_probs = z.log_softmax(1)
        gap = _log_entropy(mean) - _log_entropy(log_probs)
        return (mean.exp() * (mean - log_probs)).sum(1) + ENTROPY * gap**2
    if isinstance(likelihood, Bernoulli):
        nodes = torch.special.ndtri((torch.arange(NODES, device=z.device, dtype=z.dtype) + 0.5) / NODES)
        points = spread * nodes.view(-1, *(1,) * z.dim())
        told, own = _yes_or_no(mean + points), _yes_or_no(z + points)
        return (told.exp() * (told - own)).sum(0) + ENTROPY * (mean - z) ** 2
    if isinstance(likelihood, Gaussian):
        noise = (2 * likelihood.moments(mean.unsqueeze(0))[1].squeeze(0)).exp()
        if not likelihood.heteroscedastic:
            return (mean - z) ** 2 / (2 * (spread**2 + noise))
        (off, off_noise), spread = (mean - z).chunk(2, 1), spread.chunk(2, 1)[0]
        return off**2 / (2 * (spread**2 + noise)) + off_noise**2
    raise Error(f"distil knows Categorical, Bernoulli and Gaussian likelihoods, not {type(likelihood).__name__}.")


def _log_entropy(log_probs: Tensor) -> Tensor:
    return (-(log_probs.exp() * log_probs).sum(1) + 1e-7).log()


def _yes_or_no(logits: Tensor) -> Tensor:
    """Log-probabilities of yes and of no, `[2, ...]`, means over axis 0 of the logits."""
    return F.logsigmoid(torch.stack([logits, -logits])).logsumexp(1) - math.log(NODES)
