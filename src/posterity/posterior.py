"""The contract: a posterior is a distribution over functions.

A method answers three questions: what to minimise (`loss`), how far it is from its prior (`divergence`), and n
functions (`draw`). All that follows training (prediction, evaluation, plots, export) is written on `draw` alone.
"""

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from posterity import inputs
from posterity.errors import Error, short
from posterity.functions import Functions
from posterity.likelihoods import Categorical, Likelihood
from posterity.parameter_groups import ParameterGroup, parameter_groups
from posterity.state import ONE_AT_A_TIME, home, led, unchanged
from posterity.streams import stream
from posterity.wording import did_you_mean

#: Ranges for `Posterior.space`.
RATE = ("fit", "lr", 1e-4, 1e-2)
DECAY = ("fit", "weight_decay", 1e-6, 1e-1)
#: A smaller standard deviation has a square that single precision does not hold.
SMALLEST = 1e-18
#: Draws in a training step: more are a mistake, and a file of a stranger may not ask for them.
MOST_DRAWS = 100_000


class Entry(NamedTuple):
    """One line of a description: a layer or a parameter, whether it is uncertain, and why."""

    name: str
    kind: str
    uncertain: bool
    reason: str


class Description(list[Entry]):
    """What is uncertain in a network and what is not; prints as a table."""

    @property
    def uncertain(self) -> list[str]:
        """The names of what is uncertain."""
        return [entry.name for entry in self if entry.uncertain]

    @property
    def fixed(self) -> dict[str, str]:
        """The names of what is not uncertain, with the reason."""
        return {entry.name: entry.reason for entry in self if not entry.uncertain}

    def __str__(self) -> str:
        width = max((len(entry.name) for entry in self), default=0)
        kind = max((len(entry.kind) for entry in self), default=0)
        return "\n".join(
            f"{'~' if e.uncertain else ' '} {e.name or '(network)':<{width}}  {e.kind:<{kind}}  {e.reason}"
            for e in self
        )


class Posterior(nn.Module):
    """A distribution over functions, built around a network.

    `posterior(x)` is no prediction: it is a fresh random draw of training, in evaluation mode too (see `forward`). Use
    `posterity.predict(posterior, x)`, or `draw` for functions that are the same in every call.

    Args:
        network: any module; its parameters keep their names.
        samples: training draws per datum (S).
        output: which part of the network's result is the answer, where it returns several.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.BayesByBackprop(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)))
        >>> posterior.describe().uncertain
        ['0.weight', '0.bias', '2.weight', '2.bias']
        >>> x, y = torch.randn(5, 2), torch.tensor([0, 1, 2, 0, 1])
        >>> loss = posterior.loss(x, y, size=1000)  # five of a thousand data
        >>> loss.shape
        torch.Size([])
    """

    #: Functions that `predict` draws where it is not told how many.
    draws: int = 100
    #: How many different functions `draw` can give; None where each draw is a new one.
    distinct: int | None = None
    #: `lr_posterior` over `lr`, where only the latter is given.
    relative_rate: float = 1.0
    #: Networks that are trained side by side: the loss is the sum over them.
    models: int = 1
    #: What `posterity tune` varies: where an argument goes ("fit" or "posterior"), its name, and its range, which is
    #: searched on a logarithmic scale, or the list of its choices.
    space: tuple[tuple[Any, ...], ...] = (RATE,)
    #: The same under SGD, whose steps follow the scale of the gradient.
    sgd_rate: float = 1.0
    #: Factor on the posterior's learning rate under SGD, with `lr_posterior` too.
    rate: float = 1.0
    #: Whether log-likelihood − `divergence` is a lower bound of the log evidence, by which models may be compared.
    bounds_evidence: bool = False
    #: Whether the running statistics of batch normalisation, which mix those of all draws, suit every draw.
    shares_statistics: bool = True
    #: N, the number of data in the training set of the last `fit`; None before one.
    training_size: int | None = None
    #: Own parameters, by name, that start at the network's weights: their rate follows a low `lr`, as the network's.
    at_weights: tuple[str, ...] = ()
    #: Steps over which β grows by default where held-out rows choose the epoch, which is one of the rest, if early
    #: epochs are the best; None, or more than two thirds of training, for the usual two thirds.
    validation_ramp: int | None = None
    #: β · penalty / N of the last `loss`: what `fit` takes from it to tell of the likelihood.
    weighed: Tensor | None = None

    def __init__(self, network: nn.Module, *, samples: int = 1, output: str | int | None = None) -> None:
        super().__init__()
        if not isinstance(network, nn.Module):
            raise Error(f"The network must be a torch.nn.Module; got {type(network).__name__}.")
        if isinstance(network, Posterior):
            raise Error("The network is a posterior already: give the network that it was made of.")
        if isinstance(network, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            raise Error("The network is wrapped for several devices: give network.module; fit shares the work itself.")
        if output is not None and not isinstance(output, (str, int)):
            raise Error(f"output must be the name or the number of what the network returns; got {short(output)}.")
        self.network = network
        self.samples = count(samples, "samples", most=MOST_DRAWS)
        self.output = output
        self.likelihood: Likelihood = Categorical()
        self.preprocessing: Any = None

    @property
    def turn(self) -> int | None:
        """How many functions `predict` holds at a time, where `draw` in turns gives those of one `draw`; else None."""
        return None

    def __call__(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """`forward`; what is random in the network itself follows the generator too."""
        with self._led(generator, x):
            return super().__call__(x, generator)  # type: ignore[no-any-return]

    def _led(self, generator: torch.Generator | None, x: Any) -> contextlib.AbstractContextManager[None]:
        """What is random in a network follows the generator, where there is one."""
        return contextlib.nullcontext() if generator is None else led(generator, x)

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under fresh training draws, `[samples, batch, ...]`; gradients flow.

        They are draws of training in evaluation mode too: another call gives other outputs, and rows may have draws of
        their own. A loss is made of them, that of a differential equation for example. Predictions are those of
        `posterity.predict(posterior, x)`; functions that stay are drawn by `draw`.
        """
        raise NotImplementedError

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """How far the posterior is from the prior, in nats, for the whole network: a 0-d tensor."""
        raise NotImplementedError

    def draw(self, n: int, generator: torch.Generator | None = None) -> Functions:
        """n functions, each fixed until drawn again: called with x on their device, they give `[n, batch, ...]`.

        Args:
            n: how many.
            generator: of the draws; without one, torch's global generator is used.

        Example:
            >>> import posterity, torch
            >>> from torch import nn
            >>> posterior = posterity.IBNN(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)))
            >>> functions = posterior.draw(10)
            >>> x = torch.randn(5, 2)
            >>> functions(x).shape
            torch.Size([10, 5, 3])
            >>> torch.equal(functions(x), functions(x))
            True
        """
        raise NotImplementedError

    def mean(self) -> Functions:
        """One undisturbed function, where the method has one: `len(mean()) == 1`."""
        raise Error(f"{type(self).__name__} has no mean function: draw functions and average what they say.")

    def describe(self) -> Description:
        """Every layer and parameter that is uncertain, every one that is not, and why."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values: what `load` needs to build the same posterior."""
        raise NotImplementedError

    def variational(self) -> Iterator[nn.Parameter]:
        """The parameters of the posterior itself: they take `lr_posterior` and no weight decay."""
        return iter(())

    def own_rates(self, size: int | None = None) -> dict[str, float]:
        """Own parameters, by name, whose rate is not `relative_rate`, with that rate over `lr`; `size` is N."""
        return {}

    def parameter_groups(self, size: int | None = None) -> list[ParameterGroup]:
        """What is trained, in named groups with their rates: what `fit` and loops of one's own make optimisers of.

        Args:
            size: N, on which the rate of standard deviations depends.

        Example:
            >>> import posterity
            >>> from torch import nn
            >>> posterior = posterity.IBNN(nn.Linear(2, 3))
            >>> [(group.name, group.rate) for group in posterior.parameter_groups(size=1000)]
            [('network', 1.0), ('posterior', 10.0)]
        """
        return parameter_groups(self, size)

    def clip_gradients(self, norm: float) -> None:
        """Scale the gradient of all parameters down to this norm, where it is larger."""
        nn.utils.clip_grad_norm_(self.parameters(), norm)

    def penalty(self, generator: torch.Generator | None = None) -> Tensor:
        """What `loss` weighs against the likelihood, in nats: the divergence, unless a method adds to it."""
        return self.divergence(generator)

    def terms(
        self, x: Any, y: Tensor, likelihood: Likelihood, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """What `loss` weighs: log-likelihoods `[samples, batch]` and the penalty. Override it to share draws."""
        return likelihood.log_prob(self(x, generator), y), self.penalty(generator)

    def loss(
        self,
        x: Any,
        y: Tensor,
        likelihood: Likelihood | None = None,
        *,
        size: int,
        beta: float | Tensor = 1.0,
        weight: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """−E log p(y|x) per datum + β · divergence / N: a 0-d tensor.

        Args:
            x: inputs of the batch.
            y: answers, `[batch, ...]`.
            likelihood: by default the one that `fit` attached.
            size: N, the number of data in the whole training set (not in the batch).
            beta: weight of the divergence.
            weight: of each datum, `[batch]`.
            generator: of the draws.
        """
        count(size, "size")
        likelihood = self.likelihood if likelihood is None else likelihood
        if not isinstance(likelihood, Likelihood) or isinstance(beta, str):
            raise Error(
                "loss takes a likelihood such as posterity.Categorical() and a number beta; schedules go to fit."
            )
        y = y if isinstance(y, Tensor) else inputs.as_tensors(y)
        if inputs.rows(x) == 0:
            raise Error("The batch has no rows: leave it out.")
        with self._led(generator, x):
            log_prob, penalty = self.terms(x, y, likelihood, generator)
        if weight is not None:
            weight = torch.as_tensor(weight, dtype=log_prob.dtype, device=log_prob.device)
            if weight.numel() != log_prob.shape[1]:
                raise Error(f"weight must hold one number per datum: {log_prob.shape[1]}, not {tuple(weight.shape)}.")
            log_prob = log_prob * weight.reshape(-1)
        weighed = beta * penalty / size
        self.weighed = torch.as_tensor(weighed).detach()
        return -self.models * log_prob.mean() + weighed


def attempt(network: nn.Module, function: Callable[[], Any]) -> Any:
    """What a vectorised call of a network gives; None where torch cannot vectorise it.

    The network keeps nothing of it, and torch's generator is as it was where it failed.
    """
    if torch.compiler.is_compiling():
        return function()
    with ONE_AT_A_TIME:
        state = torch.get_rng_state()
        try:
            with unchanged(network):
                return function()
        except torch.OutOfMemoryError:
            raise
        except Exception:
            torch.set_rng_state(state)
            return None


def count(value: int, name: str, least: int = 1, most: int | None = None) -> int:
    """A whole number that is large enough, and not too large, or an error that names the argument."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:  # of anything that is no whole number, such as a tensor that holds 2.5
        number = least - 1
    if number < least:
        raise Error(f"{name} must be a whole number of at least {least}; got {short(value)}.")
    if most is not None and number > most:
        raise Error(f"{name} must be at most {most:,}; got {short(value)}.")
    return number


def counts(value: Any, name: str) -> list[int]:
    """One or more whole numbers of at least 1, or an error that names the argument."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise Error(f"{name} must be a list of whole numbers, such as [64, 64]; got {short(value)}.")
    return [count(one, name) for one in value]


def one_of(value: str, choices: tuple[str, ...], name: str) -> str:
    """One of the choices, or an error that names the argument."""
    if value not in choices:
        hint = did_you_mean(value, choices, write=repr)
        raise Error(f"{name} must be one of {', '.join(map(repr, choices))}; got {short(value)}.{hint}")
    return value


def flag(value: Any, name: str) -> bool:
    """True or False, or an error that names the argument: the word "False" is neither."""
    if not isinstance(value, bool):
        raise Error(f"{name} must be True or False; got {short(value)}.")
    return value


def inverse_softplus(value: Tensor) -> Tensor:
    """x with log(1 + exp x) = value, for any size of a positive value."""
    return value + torch.log(-torch.expm1(-value))


def positive(value: Any, name: str, zero: bool = False) -> float:
    """A finite number above zero (or from zero on), or an error that names the argument."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise Error(f"{name} must be a finite number {'of at least' if zero else 'above'} 0; got {short(value)}.")
    return number


def deviation(value: Any, name: str, zero: bool = False) -> float:
    """A standard deviation whose square is a number too, or an error that names the argument."""
    number = positive(value, name, zero)
    if 0 < number < SMALLEST:
        raise Error(f"{name} must be at least {SMALLEST:g}, or its square is lost in rounding; got {short(value)}.")
    return number


def standard_deviations(value: Any, like: Tensor, size: int, each: str) -> Tensor:
    """`prior_std` of the type and device of `like`: a number, or `[size]` of them, one for each node or weight."""
    stds = inputs.numbers(value, dtype=like.dtype, device=like.device)
    if stds.shape not in ((), (size,)) or not bool(((stds >= SMALLEST) & stds.isfinite()).all()):
        least = f"at least {SMALLEST:g}, whose square is not lost in rounding"
        raise Error(f"prior_std must be a positive number or {size} of them, one for each {each}, of {least}.")
    return stds


def randn(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard normal numbers of the type and device of `like`; the generator may live on another device."""
    if generator is None:
        return torch.randn(shape, device=like.device, dtype=like.dtype)
    return torch.randn(shape, generator=generator, device=home(generator), dtype=like.dtype).to(like.device)


def randperm(n: int, generator: torch.Generator | None = None) -> Tensor:
    """A random order of 0 … n − 1."""
    return torch.randperm(n, generator=generator, device=home(generator))


def as_generator(
    seed: int | None, generator: torch.Generator | None, purpose: str | None = None
) -> torch.Generator | None:
    """The generator that `seed=` or `generator=` asks for; None stands for torch's global one.

    A seed gives every purpose, such as "draws", a stream of its own; that of a constructor has no name.
    """
    if seed is not None and generator is not None:
        raise Error("Give seed= or generator=, not both.")
    home(generator)
    if seed is None:
        return generator
    seed = whole_seed(seed)
    return torch.Generator().manual_seed(seed) if purpose is None else stream(seed, purpose)


def whole_seed(seed: int) -> int:
    """A seed that every generator takes, or an error."""
    if count(seed, "seed", least=0) >= 2**63:
        raise Error(f"seed must be below 2**63; got {seed}.")
    return operator.index(seed)


def checked(posterior: Any) -> None:
    """An error where something else was given for a posterior, such as the network itself."""
    if not isinstance(posterior, Posterior):
        hint = ": make one of it first, as in posterity.IBNN(network)" if isinstance(posterior, nn.Module) else ""
        raise Error(f"A posterior is needed; got {type(posterior).__name__}{hint}.")
