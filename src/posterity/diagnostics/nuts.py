"""The No-U-Turn Sampler: long chains from a posterior that is small enough for them, as the truth to compare with.

Multinomial NUTS (Hoffman & Gelman 2014, arXiv:1111.4246; Betancourt 2017, arXiv:1701.02434) with a diagonal mass matrix
and a step size that are adapted in the warm-up, in numpy and double precision. A step costs one gradient.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from posterity.errors import Error

Array = np.ndarray
Energy = Callable[[Array], tuple[float, Array]]
"""−log density up to a constant, and its gradient, of one point `[size]`."""
#: Where in the warm-up the mass matrix is taken from the draws since the last time.
WINDOWS = (0.15, 0.3, 0.5, 0.9)
DIVERGED = 1000.0


class Chains(NamedTuple):
    """Draws after the warm-up, and how the chains went."""

    draws: Array
    """`[chains, draws, size]`."""
    divergences: int
    steps: float
    """Gradients a draw, on average."""


class _State(NamedTuple):
    q: Array
    p: Array
    energy: float
    gradient: Array


class _Tree(NamedTuple):
    """States from `first` to `last` in the direction of growth, one of them chosen by its weight."""

    first: _State
    last: _State
    chosen: _State
    log_weight: float
    momentum: Array
    stop: bool
    accepted: float
    steps: int
    diverged: bool


def nuts(
    energy: Energy,
    start: Array,
    *,
    warmup: int = 1000,
    draws: int = 1000,
    seed: int = 0,
    accept: float = 0.8,
    depth: int = 10,
) -> Chains:
    """One chain from each row of `start`, `[chains, size]`.

    Args:
        energy: −log density and its gradient.
        start: where the chains begin.
        warmup: draws in which step size and masses are adapted, and which are left out.
        draws: kept, of each chain.
        seed: of all that is random.
        accept: the mean acceptance that the step size is adapted to.
        depth: a trajectory has at most 2^depth steps.
    """
    start = np.atleast_2d(np.asarray(start, dtype=np.float64))
    if warmup < 20 or draws < 1:
        raise Error("NUTS needs a warm-up of at least 20 draws, and one draw after it.")
    chains = [
        _Chain(energy, q, np.random.default_rng([seed, number]), accept, depth).run(warmup, draws)
        for number, q in enumerate(start)
    ]
    kept = np.stack([values for values, _, _ in chains])
    return Chains(kept, sum(bad for _, bad, _ in chains), float(np.mean([steps for _, _, steps in chains])))


def split_rhat(values: Array) -> Array:
    """Variance over halves of chains against that within, `[...]` of values `[chains, draws, ...]`; 1 where mixed.

    NaN where values are, and where chains have fewer than four draws, which say nothing.
    """
    half = values.shape[1] // 2
    if half < 2:
        return np.full(values.shape[2:], np.nan)
    parts = np.concatenate([values[:, :half], values[:, half : 2 * half]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where((between == 0) & (within == 0), 1 / half, between / within)  # 1 / half: nothing moves
    ratio: Array = np.sqrt((half - 1) / half + apart)
    return ratio


class _Chain:
    def __init__(self, energy: Energy, q: Array, random: np.random.Generator, accept: float, depth: int) -> None:
        self.energy, self.random, self.accept, self.depth = energy, random, accept, depth
        self.inverse_mass, self.q = np.ones_like(q), q
        value, gradient = energy(q)
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            raise Error("The density is not finite where a chain starts.")
        self.value, self.gradient = value, gradient

    def run(self, warmup: int, draws: int) -> tuple[Array, int, float]:
        """The draws `[draws, size]`, the number of divergences and the mean number of steps after the warm-up."""
        windows = {int(warmup * part) for part in WINDOWS}
        since: list[Array] = []
        self.step = self._first_step()
        self._restart()
        for i in range(warmup):
            if i in windows and len(since) > 4:
                n, variance = len(since), np.var(since, axis=0)
                self.inverse_mass, since = (n * variance + 5e-3) / (n + 5), []
                self.step = self._first_step()
                self._restart()
            tree = self._draw()
            since.append(self.q)
            self._adapt(tree.accepted / tree.steps)
        self.step = math.exp(self.average)
        kept, divergences, steps = np.empty((draws, len(self.q))), 0, 0
        for i in range(draws):
            tree = self._draw()
            kept[i], divergences, steps = self.q, divergences + tree.diverged, steps + tree.steps
        return kept, divergences, steps / draws

    def _restart(self) -> None:
        """Dual averaging from the present step size."""
        self.centre, self.sum, self.average, self.count = math.log(10 * self.step), 0.0, 0.0, 0

    def _adapt(self, accepted: float) -> None:
        self.count += 1
        self.sum += self.accept - accepted
        log_step = self.centre - math.sqrt(self.count) / 0.05 * self.sum / (self.count + 10)
        share = self.count**-0.75
        self.average = share * log_step + (1 - share) * self.average
        self.step = math.exp(log_step)

    def _first_step(self) -> float:
        """A step size whose acceptance is near a half."""
        state = _State(self.q, self._momentum(), self.value, self.gradient)
        step, total = 0.1, self._total(state)
        up = None
        for _ in range(50):
            gain = total - self._total(self._leap(state, step))
            now = math.isfinite(gain) and gain > math.log(0.5)
            if up is not None and now != up:
                break
            up = now
            step *= 2.0 if up else 0.5
        return step

    def _momentum(self) -> Array:
        momentum: Array = self.random.standard_normal(len(self.q)) / np.sqrt(self.inverse_mass)
        return momentum

    def _total(self, state: _State) -> float:
        return state.energy + 0.5 * float(state.p @ (self.inverse_mass * state.p))

    def _leap(self, state: _State, step: float) -> _State:
        p = state.p - 0.5 * step * state.gradient
        q = state.q + step * self.inverse_mass * p
        value, gradient = self.energy(q)
        return _State(q, p - 0.5 * step * gradient, value, gradient)

    def _draw(self) -> _Tree:
        """The next draw, kept in `q`, and its trajectory."""
        state = _State(self.q, self._momentum(), self.value, self.gradient)
        self.total = self._total(state)
        left = right = chosen = state
        log_weight, momentum, accepted, steps, diverged = 0.0, state.p, 0.0, 0, False
        for depth in range(self.depth):
            forward = self.random.random() < 0.5
            tree = self._grow(right if forward else left, self.step if forward else -self.step, depth)
            accepted, steps, diverged = accepted + tree.accepted, steps + tree.steps, tree.diverged
            if tree.stop:
                break
            if math.log(1 - self.random.random()) < tree.log_weight - log_weight:
                chosen = tree.chosen
            left, right = (left, tree.last) if forward else (tree.last, right)
            log_weight, momentum = float(np.logaddexp(log_weight, tree.log_weight)), momentum + tree.momentum
            if self._turned(momentum, left, right):
                break
        self.q, self.value, self.gradient = chosen.q, chosen.energy, chosen.gradient
        return _Tree(left, right, chosen, log_weight, momentum, True, accepted, steps, diverged)

    def _grow(self, state: _State, step: float, depth: int) -> _Tree:
        """2^depth states beyond one."""
        if depth == 0:
            new = self._leap(state, step)
            lost = self._total(new) - self.total
            lost = lost if math.isfinite(lost) else math.inf
            bad = lost > DIVERGED
            return _Tree(new, new, new, -lost, new.p, bad, math.exp(-max(lost, 0.0)), 1, bad)
        one = self._grow(state, step, depth - 1)
        if one.stop:
            return one
        two = self._grow(one.last, step, depth - 1)
        log_weight = float(np.logaddexp(one.log_weight, two.log_weight))
        takes = math.log(1 - self.random.random()) < two.log_weight - log_weight
        momentum = one.momentum + two.momentum
        stop = two.stop or self._turned(momentum, one.first, two.last)
        return _Tree(
            one.first,
            two.last,
            two.chosen if takes else one.chosen,
            log_weight,
            momentum,
            stop,
            one.accepted + two.accepted,
            one.steps + two.steps,
            two.diverged,
        )

    def _turned(self, momentum: Array, one: _State, other: _State) -> bool:
        along = self.inverse_mass * momentum
        return float(along @ one.p) <= 0 or float(along @ other.p) <= 0
