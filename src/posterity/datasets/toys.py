"""The papers' one-dimensional regressions, in their own units; ``load`` standardises them.

Every function returns raw float64 arrays: x [n, 1] and y [n] for training, the same for test, drawn afresh
from the same law, and x outside the data: the gaps and what lies beyond, over the range that the paper plots.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from posterity.datasets.data import Data, random
from posterity.datasets.tables import assemble, choose_rows

_TEST_POINTS = 200


@dataclass(frozen=True)
class Toy:
    """Raw points of a toy regression."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    outside: np.ndarray


def cubic(seed: int = 0, points: int = 30, noise: float = 2.0) -> Toy:
    """Return y = x³ + noise · ε on 1 ≤ |x| ≤ 3: the iBNN paper's figure 1.

    Its text has 30 points, its code 400 and noise 2 for iBNN (1 for mean field); plotted over [−5, 5].
    """

    def inputs(n: int, generator: np.random.Generator) -> np.ndarray:
        x = np.linspace(1, 3, (n + 1) // 2)
        return np.concatenate([-x[::-1], x])[:n]

    return _draw(lambda x: x**3, inputs, points, noise, seed, plotted=5)


def cubic_uniform(seed: int = 0, points: int = 20, noise: float = 9.0) -> Toy:
    """Return y = x³ + noise · ε with x ~ U(−4, 4), 20 points; plotted over [−6, 6].

    The noise is 9 in Bayes by Hypernet and 3 in MNF and probabilistic backpropagation.
    """

    def inputs(n: int, generator: np.random.Generator) -> np.ndarray:
        return generator.uniform(-4, 4, n)

    return _draw(lambda x: x**3, inputs, points, noise, seed, plotted=6, inside=lambda x: np.abs(x) <= 4)


def sinusoids(seed: int = 0, noise: float = 0.3) -> Toy:
    """Return y = x + 0.8 sin 2πx + 0.8 sin 4πx + 0.3 ε in two clusters, 38 and 32 points: LIVI's toy.

    x ∈ [−1.28, −0.61] ∪ [0.61, 1.28], then divided by 1.28, its largest; plotted over [−2, 2] before that.
    """

    def inputs(n: int, generator: np.random.Generator) -> np.ndarray:
        left = round(n * 38 / 70)
        return np.concatenate([generator.uniform(-1.28, -0.61, left), generator.uniform(0.61, 1.28, n - left)])

    def function(x: np.ndarray) -> np.ndarray:
        return x + 0.8 * np.sin(2 * np.pi * x) + 0.8 * np.sin(4 * np.pi * x)

    def inside(x: np.ndarray) -> np.ndarray:
        return (np.abs(x) >= 0.61) & (np.abs(x) <= 1.28)

    toy = _draw(function, inputs, 70, noise, seed, plotted=2, inside=inside)
    (x, y), (x_test, y_test) = toy.train, toy.test
    return Toy((x / 1.28, y), (x_test / 1.28, y_test), toy.outside / 1.28)


def _draw(
    function: Callable[[np.ndarray], np.ndarray],
    inputs: Callable[[int, np.random.Generator], np.ndarray],
    points: int,
    noise: float,
    seed: int,
    plotted: float,
    inside: Callable[[np.ndarray], np.ndarray] = lambda x: (np.abs(x) >= 1) & (np.abs(x) <= 3),
) -> Toy:
    generator = random(seed)
    parts = []
    for n in (points, _TEST_POINTS):
        x = inputs(n, generator)
        parts.append((x[:, None], function(x) + noise * generator.standard_normal(n)))
    grid = np.linspace(-plotted, plotted, 501)
    return Toy(parts[0], parts[1], grid[~inside(grid), None])


TOYS: dict[str, Callable[[int], Toy]] = {
    "toy/cubic": lambda seed: cubic(seed),
    "toy/cubic-400": lambda seed: cubic(seed, points=400),
    "toy/cubic-bbh": lambda seed: cubic_uniform(seed),
    "toy/cubic-mnf": lambda seed: cubic_uniform(seed, noise=3.0),
    "toy/sinusoids": lambda seed: sinusoids(seed),
}


def load(name: str, seed: int = 0) -> Data:
    """Return a toy as ``Data``, standardised like every regression."""
    toy = TOYS[name](seed)
    columns = {"x": np.concatenate([toy.train[0], toy.test[0]])[:, 0]}
    y = np.concatenate([toy.train[1], toy.test[1]])
    test = np.arange(len(y)) >= len(toy.train[1])
    data = assemble(name, columns, choose_rows(y, "y", "regression", seed, test), seed)
    data.outside = data.preprocessing.inputs(toy.outside)
    data.outside_name = "beyond the data"
    return data
