"""Guarantees of the method that the reader picks from the table, where all methods are equally good."""

import torch
from torch import Tensor

from benchmarks.claims.rates import Rate, Simulation
from posterity.evaluation import promises
from posterity.prediction import CategoricalPrediction

RUNS, METHODS, ROWS = 300, 8, 1000
POPULATION = 400_000
SIGNAL, NOISE = 3.0, 1.0
"""Standard deviations of the true logit, and of a method's own about it."""


def equal_methods(rows: int, methods: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Log-probabilities of two classes, [methods, rows, 2], and classes [rows]: the truth with noise of each method."""
    logit = SIGNAL * torch.randn(rows, generator=generator, dtype=torch.float64)
    y = (torch.rand(rows, generator=generator, dtype=torch.float64) < logit.sigmoid()).long()
    seen = logit + NOISE * torch.randn(methods, rows, generator=generator, dtype=torch.float64)
    return torch.nn.functional.logsigmoid(torch.stack([-seen, seen], dim=2)), y


def abstention(seed: int) -> list[Rate]:
    """Whether the true risk exceeds the stated one: of a method fixed beforehand, and of the one that keeps most."""
    generator = torch.Generator().manual_seed(seed)
    log_probs, y = equal_methods(POPULATION, 1, generator)
    entropy = CategoricalPrediction(log_probs[0], torch.zeros(POPULATION)).total
    order = entropy.argsort()
    kept = torch.arange(1, POPULATION + 1) / POPULATION
    risk = (log_probs[0].argmax(1) != y)[order].double().cumsum(0) / torch.arange(1, POPULATION + 1)
    fixed, picked = [], []
    for _ in range(RUNS):
        log_probs, y = equal_methods(ROWS, METHODS, generator)
        found = [promises(CategoricalPrediction(each, torch.zeros(ROWS)), y)["abstention"][1] for each in log_probs]
        most = max(found, key=lambda entry: entry["kept"])
        for where, entry in ((fixed, found[0]), (picked, most)):
            place = torch.searchsorted(kept, torch.tensor(entry["kept"])).clamp(max=POPULATION - 1)
            where.append(entry["kept"] > 0 and float(risk[place]) > entry["risk"])
    return [
        Rate.of(f"at most 5 % wrong does not hold: one method, {ROWS} rows", fixed, 0.05),
        Rate.of(f"at most 5 % wrong does not hold: the one of {METHODS} that keeps most", picked, 0.05),
    ]


SIMULATIONS: tuple[Simulation, ...] = (abstention,)
