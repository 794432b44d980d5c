"""Guarantees of the method that the reader picks from the table, where all methods are equally good."""

import math

import torch

from benchmarks.claims.rates import Rate, Simulation
from posterity.evaluation import promises
from posterity.prediction import CategoricalPrediction, GaussianPrediction

RUNS, METHODS, ROWS = 500, 8, 1000
WRONG, RISK = 0.055, 0.05
NOISE = 0.5
"""Standard deviation of a method's mean about the truth's, in units of the noise of a target."""


def chosen_abstention(seed: int) -> list[Rate]:
    """Whether a share of 5 % wrong is promised where 5.5 % are wrong at every threshold."""
    generator = torch.Generator().manual_seed(seed)

    def found(among: int) -> dict[str, float]:
        """Of a method whose errors have nothing to do with its uncertainty."""
        sure = 0.6 + 0.39 * torch.rand(ROWS, generator=generator, dtype=torch.float64)
        y = (torch.rand(ROWS, generator=generator) < WRONG).long()
        prediction = CategoricalPrediction(torch.stack([sure, 1 - sure], dim=1).log(), torch.zeros(ROWS))
        return next(entry for entry in promises(prediction, y, among=among)["abstention"] if entry["risk"] == RISK)

    rates = []
    for words, methods, among, level in (
        ("one method", 1, 1, 0.05),
        (f"the one of {METHODS} that keeps most, each by itself (as it was)", METHODS, 1, None),
        (f"the one of {METHODS} that keeps most", METHODS, METHODS, 0.05),
    ):
        kept = [max(found(among)["kept"] for _ in range(methods)) for _ in range(RUNS)]
        rates.append(Rate.of(f"at most 5 % wrong is promised and false: {words}", [share > 0 for share in kept], level))
    return rates


def chosen_intervals(seed: int) -> list[Rate]:
    """The share of new targets outside the intervals of 90 % of a method, and of the one with the narrowest."""
    generator = torch.Generator().manual_seed(seed)

    def missed(methods: int, among: int) -> float:
        narrowest = math.inf
        truth = torch.randn(ROWS, 1, generator=generator, dtype=torch.float64)
        for _ in range(methods):
            mean = NOISE * torch.randn(ROWS, 1, generator=generator, dtype=torch.float64)
            prediction = GaussianPrediction(mean[None], torch.ones(1, ROWS, 1))
            narrowest = min(narrowest, promises(prediction, truth, among=among)["intervals"]["width"])
        return math.erfc(narrowest / 2 / math.sqrt(2 * (1 + NOISE**2)))

    rates = []
    for words, methods, among, level in (
        ("one method", 1, 1, 0.1),
        (f"the narrowest of {METHODS}, each by itself (as it was)", METHODS, 1, None),
        (f"the narrowest of {METHODS}", METHODS, METHODS, 0.1),
    ):
        shares = torch.tensor([missed(methods, among) for _ in range(RUNS)])
        error = float(shares.std()) / math.sqrt(RUNS)
        rates.append(Rate(f"a target is outside the 90 % interval: {words}", float(shares.mean()), error, RUNS, level))
    return rates


SIMULATIONS: tuple[Simulation, ...] = (chosen_abstention, chosen_intervals)
