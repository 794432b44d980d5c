"""A lead of three standard errors: how often it is named with several seeds, and among several methods."""

import numpy as np

from benchmarks.claims.comparisons import LEVEL, POWER, plural
from benchmarks.claims.rates import Rate, Simulation
from posterity.evaluation.differences import Design
from posterity.report import Comparison

RUNS, ROWS = 1000, 300
LEAD = 3.0
"""Standard errors of the difference."""
SOURCES = {
    "rows are harder for one method than for the other": (1.0, 0.0, 0.0),
    "rows and trainings vary alike": (0.5, 0.0, 0.5),
    "trainings vary": (0.0, 0.0, 1.0),
    "each row varies with each training": (0.0, 1.0, 0.0),
}
"""Shares of the variance of a mean difference: of rows, of rows within a training, of trainings."""


def compared(
    leads: list[float], seeds: int, shares: tuple[float, float, float], random: np.random.Generator
) -> Comparison:
    """Methods whose NLL is behind the first one's by so many standard errors of a difference, on the same rows."""
    of_rows, within, of_trainings = (np.sqrt(share / 2) for share in shares)
    losses = {}
    for number, lead in enumerate(leads):
        hard = of_rows * np.sqrt(ROWS) * random.standard_normal(ROWS)
        own = within * np.sqrt(ROWS * seeds) * random.standard_normal((seeds, ROWS))
        trainings = of_trainings * np.sqrt(seeds) * random.standard_normal((seeds, 1))
        losses[f"m{number}"] = 100 + lead + hard + own + trainings
    methods = {name: {"nll": float(each.mean())} for name, each in losses.items()}
    evidence = {name: {"nll": {s: [row] for s, row in enumerate(each)}} for name, each in losses.items()}
    return Comparison("", "classification", methods, seeds=seeds, evidence=evidence, design=Design())


def over_seeds(seed: int) -> list[Rate]:
    """Of two methods, the better: with few seeds and trainings that vary, Student's t allows no more."""
    rates = []
    for source, shares in SOURCES.items():
        for seeds in (1, 2, 3, 5, 10):
            if seeds == 1 and shares[2]:
                continue
            random = np.random.default_rng(seed)
            equal = [compared([0, 0], seeds, shares, random).best("nll") for _ in range(RUNS)]
            ahead = [compared([0, LEAD], seeds, shares, random).best("nll") == {"m0"} for _ in range(RUNS)]
            rates.append(Rate.of(f"one of two equal methods is named, {plural(seeds)}: {source}", equal, LEVEL))
            level = POWER if shares[0] == 1 else None
            rates.append(Rate.of(f"the better is named, {plural(seeds)}: {source}", ahead, level, at_least=True))
    return rates


def among_many(seed: int) -> list[Rate]:
    """The best of several methods, one seed: the others as near as three standard errors, or but one of them far."""
    rates = []
    for methods in (2, 3, 8):
        random = np.random.default_rng(seed)
        fields = {
            "the others far behind": [0, LEAD, *[10.0] * (methods - 2)],
            "all others alike": [0, *[LEAD] * (methods - 1)],
        }
        for field, leads in fields.items():
            named = [compared(leads, 1, (1, 0, 0), random).best("nll") == {"m0"} for _ in range(RUNS)]
            level = POWER if field == "the others far behind" else None
            rates.append(Rate.of(f"the best of {methods} is named, {field}", named, level, at_least=True))
        ties = {
            "two equal ones": [0, 0, *[10.0] * (methods - 2)],
            "two equal ones, the others near": [0, 0, *[2.0] * (methods - 2)],
        }
        for tie, leads in ties.items():
            found = [compared(leads, 1, (1, 0, 0), random).best("nll") for _ in range(RUNS)]
            wrong = [bool(best) and not {"m0", "m1"} <= best for best in found]
            rates.append(Rate.of(f"one of the best is left out, {methods} methods, {tie}", wrong, LEVEL))
    return rates


SIMULATIONS: tuple[Simulation, ...] = (over_seeds, among_many)
