"""As many draws as an input needs: rows leave once their answer and its uncertainty are settled.

One set of functions is drawn for all rows, and a row takes a prefix of it, so rows stay comparable with each other.
After a round of functions a quantity q of a row (a class's probability, an entropy, a mean) is known up to

    t · s(q) / √n,    t: Student's 97.5 % quantile,    s: standard deviation over the n draws and an imagined one.

Few draws miss what is rare, so their s is too small where draws differ much, and looking several times finds a small
one by luck. Against both the n draws are joined, in s alone, by an imagined draw that is three standard deviations
less sure of the leading class, in logits. Draws that are spread over the components of a mixture are counted as if
they were independent, which can only overstate the error.
"""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from posterity import inputs
from posterity.errors import Error
from posterity.functions import Functions
from posterity.interaction import keeps_whole
from posterity.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, wide
from posterity.logits import checked_outputs
from posterity.posterior import Posterior, positive, randperm

#: No row stops before so many draws: fewer say nothing of their spread.
LEAST = 8
#: How far off the imagined draw is, in standard deviations. With 3, at most 1 row in 20 stops further off than the
#: tolerance for normal log odds with means from 0 to 7 and spreads from 0.1 to 3; with 2, up to 1 in 4.
FAR = 3.0
#: So many numbers of outputs are kept at most for rows that go on.
LARGEST = 2**26


class Rounds:
    """One set of functions in rounds, and which rows go on to the next.

    Args:
        posterior: its `draws` are the most that a row takes.
        tolerance: see `posterity.predict`.
        generator: of the draws.
    """

    def __init__(self, posterior: Posterior, tolerance: float, generator: torch.Generator | None = None) -> None:
        self.tolerance = positive(tolerance, "tolerance")
        self.likelihood = posterior.likelihood
        self.width = _width(posterior.likelihood)
        # An ensemble has as many functions as networks: each is used once.
        most = min(posterior.draws, posterior.models) if posterior.models > 1 else posterior.draws
        functions = posterior.draw(most, generator)
        self.numbers = looks(functions.count if functions.perturbed else 1)
        order = _order(posterior, self.numbers[-1], generator)
        self.sets = [_some(functions, order[a:b]) for a, b in zip([0, *self.numbers], self.numbers, strict=False)]

    def parts(self, x: Any) -> Iterator[Any]:
        """x in parts of as many rows as the first round can take together."""
        return self.sets[0].parts(x)

    def predict(self, x: Any, kind: Any) -> Any:
        """A prediction of the given kind for the rows of x; its `samples` are the draws that each took, `[batch]`."""
        done, places = [], []
        for outputs, place in self._settle(x):
            # Every row of a mixture needs as many parts: a prefix that is repeated is the same mixture.
            often = self.numbers[-1] // len(outputs) if kind.by_draw else 1
            done.append(kind.gather(checked_outputs([outputs] * often, self.likelihood), self.likelihood))
            done[-1].samples = torch.full((len(place),), len(outputs))
            places.append(place)
        prediction = kind.join(done)
        prediction.samples = torch.cat([part.samples for part in done])
        return prediction[torch.cat(places).argsort()]

    def _settle(
        self, x: Any, stage: int = 0, kept: Tensor | None = None, place: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs `[draws, some, ...]` of rows that are settled, round by round, and their places among all."""
        fresh = torch.cat(list(self.sets[stage].stream(x)))
        kept = fresh if kept is None else torch.cat([kept, fresh])
        place = torch.arange(kept.shape[1]) if place is None else place
        if stage == len(self.sets) - 1:
            yield kept, place
            return
        settled = (self.width(kept, self.likelihood) <= self.tolerance).cpu()
        apart = inputs.rows(x) == len(settled) and not keeps_whole(self.sets[0], x)
        if not apart:  # rows interact, or those of x are not those of the outputs: all stop, or none
            settled = settled.all().expand(len(settled))
        if bool(settled.any()):
            yield kept[:, settled.to(kept.device)], place[settled]
        at_once = max(1, LARGEST // max(1, self.numbers[-1] * kept[0, :1].numel())) if apart else len(settled)
        for some in (~settled).nonzero().squeeze(1).split(at_once):
            if len(some):
                rest = kept[:, some.to(kept.device)]
                yield from self._settle(inputs.take(x, some) if apart else x, stage + 1, rest, place[some])


def looks(draws: int) -> list[int]:
    """The numbers of draws at which rows may stop: 8, 16, 40, 80 of 80; 10, 20, 50, 100 of 100.

    They divide the last, so that a mixture of fewer draws can be written as one of all with equal weights.
    """
    numbers: list[int] = []
    for n in range(min(LEAST, draws), draws + 1):
        if n == draws or (draws % n == 0 and (not numbers or 2 * n >= 3 * numbers[-1])):
            numbers.append(n)
    return numbers


def of_classes(outputs: Tensor, likelihood: Likelihood) -> Tensor:
    """How far a row is from settled, `[batch]`, of outputs `[draws, batch, classes, ...]`.

    The largest half-width of the intervals of the classes' probabilities, of the total and of the epistemic
    uncertainty, in nats; 1 where the leading class may not be the first. Of maps, the mean over positions.
    """
    if outputs.dim() < 3:
        return outputs.new_zeros(outputs.shape[1])  # `gather` says what is wrong
    outputs = likelihood.by_class(outputs) if isinstance(likelihood, Categorical) else outputs
    log_probs = F.log_softmax(wide(outputs), dim=2).clamp(min=-100.0)
    mean = log_probs.logsumexp(0) - math.log(len(log_probs))
    best = mean.topk(min(2, mean.shape[1]), dim=1).indices
    first, second = best[:, :1], best[:, -1:]
    every = torch.cat([log_probs, _less_sure(log_probs, first, second).unsqueeze(0)])
    probs = every.exp()
    cross = -(probs * mean).sum(2, keepdim=True)
    own = -(probs * every).sum(2, keepdim=True)
    lead = _of(probs, first) - _of(probs, second)
    unsure = (lead[:-1].mean(0) < _half(lead)).to(probs.dtype)
    return _worst(torch.cat([_half(probs), _half(cross), _half(cross - own), unsure], dim=1))


def of_labels(outputs: Tensor, likelihood: Likelihood) -> Tensor:
    """The same for yes or no, outputs `[draws, batch, labels, ...]`: of the worst label."""
    each = outputs.unsqueeze(2) if outputs.dim() < 3 else outputs
    two = torch.stack([each.flatten(1, 2), torch.zeros_like(each).flatten(1, 2)], dim=2)
    return of_classes(two, likelihood).unflatten(0, each.shape[1:3]).amax(1)


def of_numbers(outputs: Tensor, likelihood: Likelihood) -> Tensor:
    """The same for real numbers, in units of the predictive standard deviation: of the mean, of the standard deviation
    and of its epistemic part; of the worst output, and of maps the mean over positions.
    """
    assert isinstance(likelihood, Gaussian)
    mean, log_std = likelihood.moments(outputs)
    mean, variance = wide(mean), (2 * wide(log_std)).exp()
    mean, variance = (torch.cat([v, (v.mean(0) + FAR * v.std(0)).unsqueeze(0)]) for v in (mean, variance))
    square = (mean - mean[:-1].mean(0)).square()
    total = (variance + square)[:-1].mean(0)
    std = total.sqrt().clamp(min=torch.finfo(total.dtype).tiny)
    parts = (_half(mean) / std, _half(variance + square) / (2 * std**2), _half(square) / (2 * std**2))
    return _worst(torch.cat([p.unsqueeze(1) if p.dim() < 2 else p for p in parts], dim=1))


RULES: dict[type[Likelihood], Callable[[Tensor, Likelihood], Tensor]] = {
    Categorical: of_classes,
    Bernoulli: of_labels,
    Gaussian: of_numbers,
}


def _width(likelihood: Likelihood) -> Callable[[Tensor, Likelihood], Tensor]:
    for base in type(likelihood).__mro__:
        if base in RULES:
            return RULES[base]
    raise Error(f'samples="auto" knows no rule for the likelihood {type(likelihood).__name__}: give a number.')


def _order(posterior: Posterior, n: int, generator: torch.Generator | None) -> Tensor:
    """An order in which every prefix is spread over a mixture's components, none of which comes first by rule."""
    size = getattr(posterior, "components", 1)
    if size < 2:
        return torch.arange(n)
    return torch.cat([at + randperm(min(size, n - at), generator).cpu() for at in range(0, n, size)])


def _some(functions: Functions, chosen: Tensor) -> Functions:
    """The chosen ones of drawn functions, which share the network with the rest."""
    if len(chosen) == functions.count and bool((chosen == torch.arange(len(chosen))).all()):
        return functions
    part = copy.copy(functions)
    part._buffers = {
        name: None if value is None else value[chosen.to(value.device)] for name, value in functions._buffers.items()
    }
    part.count = len(chosen)
    return part


def _less_sure(log_probs: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """A draw whose log odds of the two leading classes are `FAR` standard deviations lower, `[batch, classes, ...]`.

    The other classes move with these as they do over the draws.
    """
    odds = _of(log_probs, first) - _of(log_probs, second)
    odds = odds - odds.mean(0)
    std = odds.square().mean(0).sqrt().clamp(min=1e-12)
    step = (odds * (log_probs - log_probs.mean(0))).mean(0) / std
    scale = math.sqrt(len(log_probs) / (len(log_probs) - 1))
    return (log_probs.mean(0) - FAR * scale * step).log_softmax(1).clamp(min=-100.0)


def _of(values: Tensor, index: Tensor) -> Tensor:
    """The class `[batch, 1, ...]` of each draw `[draws, batch, classes, ...]`."""
    return values.gather(2, index.expand(len(values), *index.shape))


def _half(values: Tensor) -> Tensor:
    """Half the interval's width of the mean of draws, of which the last is imagined: `[draws + 1, ...]`."""
    n = len(values) - 1
    return _student(n - 1) / math.sqrt(n) * values.std(0)


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, by its expansion around the normal one: to 0.001 from 7 on."""
    z, f = 1.959963985, freedom
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / f + second / f**2 + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / f**3


def _worst(widths: Tensor) -> Tensor:
    """`[batch]` of `[batch, quantities, ...]`: the mean over positions, and of that the largest."""
    return (widths.flatten(2).mean(2) if widths.dim() > 2 else widths).amax(1)
