"""Winners: how often one is named where methods are equal, and where one is better by three standard errors.

Methods are equal in three ways. "Noise": predictions are the truth with noise of each method, row and seed. "Trained":
networks of one kind from different initialisations; with one seed two of them truly differ, and a claim about them is
false where the winner is no better on a population of rows. "Splits": the same, each seed with a split of its own.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.claims.rates import Rate, Simulation
from posterity import evaluation
from posterity.evaluation.differences import Design
from posterity.evaluation.scores import squared_distances
from posterity.prediction import CategoricalPrediction, GaussianPrediction
from posterity.report import Comparison
from posterity.report.comparison import SCORES

RUNS = 300
ROWS = 400
POWER_RUNS = 200
PILOT = 200
LEVEL, POWER = 0.05, 0.8

Found = tuple[dict[str, float], dict[str, list[np.ndarray]]]
"""Scores and evidence of one method and one seed."""


def assessed(prediction: Any, y: Tensor, outside: Any = None) -> Found:
    """Scores and evidence, as the command line takes them; the NLL after temperature scaling is left out."""
    rows = None
    if not evaluation.is_regression(prediction):
        seen = evaluation.observed(prediction, y)
        rows = {"error": seen.wrong, "nll": -prediction.log_prob(y), "brier": squared_distances(seen.probs, y)}
    found = evaluation.evidence(prediction, y, outside, rows)
    card = {name: float(samples[0].mean()) for name, samples in found.items()} | evaluation.score(prediction, y)
    if outside is not None:
        card["auroc_outside"] = 1 - card["auroc_outside"]
    return card, {score: [sample.numpy() for sample in samples] for score, samples in found.items()}


def comparison(task: str, methods: Sequence[Sequence[Found]], design: Design | None = None) -> Comparison:
    """Of methods, each of them with what was found with each seed."""
    seeds, values, evidence = len(methods[0]), {}, {}
    for number, found in enumerate(methods):
        scores = [card for card, _ in found]
        values[f"m{number}"] = {score: sum(card[score] for card in scores) / seeds for score in scores[0]}
        samples = found[0][1]
        evidence[f"m{number}"] = {score: {s: each[score] for s, (_, each) in enumerate(found)} for score in samples}
    return Comparison("", task, values, seeds=seeds, evidence=evidence, design=design or Design())


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def classes(truth: Tensor, generator: torch.Generator, noise: float = 1.0, scale: float = 1.0) -> CategoricalPrediction:
    """Two draws about true logits [rows, classes], with noise of each row, times a scale."""
    logs = F.log_softmax(scale * (truth + noise * normal(generator, 2, *truth.shape)), dim=2)
    return CategoricalPrediction(logs.logsumexp(0) - math.log(2), torch.special.entr(logs.exp()).sum(2).mean(0))


def numbers(truth: Tensor, generator: torch.Generator, noise: float = 0.3, scale: float = 1.0) -> GaussianPrediction:
    """Three draws about true means [rows, 1], with noise of each row in mean and log-variance; std times a scale."""
    means, logs = normal(generator, 2, 3, *truth.shape)
    return GaussianPrediction(truth + noise * means, scale**2 * (0.3 * logs).exp())


def class_rows(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of ten classes, the classes, and the logits of as many OOD rows."""
    logits, beyond = 2 * normal(generator, rows, 10), normal(generator, rows, 10)
    return logits, torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0], beyond


def number_rows(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Means, targets with noise of one, and the means of as many OOD rows."""
    mean, noise, beyond = normal(generator, 3, rows, 1)
    return mean, mean + noise, beyond


TASKS = {
    "classification": (class_rows, classes, ("nll", "error", "brier", "ece", "aurc", "auroc_outside")),
    "regression": (number_rows, numbers, ("nll", "rmse", "crps", "coverage90", "interval_score90", "auroc_outside")),
}


def noisy(task: str, methods: int, seeds: int, generator: torch.Generator) -> Comparison:
    """Equal methods, whose predictions are the truth with noise of their own."""
    rows, predict, _ = TASKS[task]
    truth, y, beyond = rows(ROWS, generator)
    found = [
        [assessed(predict(truth, generator), y, predict(beyond, generator)) for _ in range(seeds)]
        for _ in range(methods)
    ]
    return comparison(task, found)


def false_winners(seed: int) -> list[Rate]:
    """Of equal methods, how often one is marked in a column."""
    rates = []
    for task, (_, _, scores) in TASKS.items():
        for methods, seeds in ((2, 1), (3, 1), (8, 1), (2, 2), (3, 3)):
            generator = torch.Generator().manual_seed(seed)
            found = [noisy(task, methods, seeds, generator) for _ in range(RUNS if methods * seeds < 8 else RUNS // 2)]
            for score in scores:
                name = f"{SCORES[score].label} wins, {task}: {methods} equal methods, {plural(seeds)}"
                rates.append(Rate.of(name, (each.best(score) for each in found), LEVEL))
    return rates


def calibrated(seed: int) -> list[Rate]:
    """Of two calibrated predictions, one unsure, how often the ECE marks one: neither has any calibration error."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(RUNS):
        logits = 3 * normal(generator, ROWS, 2)
        y = torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]
        # The second knows the logits up to a coin that turns half of them round: its probabilities are the means.
        sure = logits.softmax(dim=1)
        unsure = 0.75 * sure + 0.25 * sure.flip(1)
        coin = torch.rand(ROWS, 1, generator=generator) < 0.75
        target = torch.where(coin[:, 0], y, 1 - y)
        found.append(
            comparison(
                "classification",
                [
                    [assessed(CategoricalPrediction(p.log(), torch.zeros(ROWS)), t)]
                    for p, t in ((sure, y), (unsure, target))
                ],
            )
        )
    return [
        Rate.of(
            "ECE wins: two calibrated predictions, one of them unsure, 1 seed", (f.best("ece") for f in found), LEVEL
        )
    ]


WORSE = {"classification": (1.0, 1.5, 1.3), "regression": (0.3, 0.6, 0.8)}
"""The noise of the better method and of the worse, and the scale of the worse."""


def unequal(task: str, count: int, generator: torch.Generator) -> Comparison:
    """Two methods, of which the first is better in every score."""
    rows, predict, _ = TASKS[task]
    low, high, scale = WORSE[task]
    truth, y, beyond = rows(count, generator)
    better = assessed(predict(truth, generator, low), y, predict(beyond, generator, 1.5 * low))
    worse = assessed(predict(truth, generator, high, scale), y, predict(beyond, generator, 1.2 * high, scale))
    return comparison(task, [[better], [worse]])


def true_winners(seed: int) -> list[Rate]:
    """How often the better of two is marked, with as many rows as make its lead three standard errors."""
    rates = []
    for task, (_, _, scores) in TASKS.items():
        generator = torch.Generator().manual_seed(seed)
        pilot = [unequal(task, ROWS, generator) for _ in range(PILOT)]
        for score in scores:
            evidence = (SCORES[score].evidence or (score,))[0]
            gaps = np.array([each.difference("m0", "m1", evidence).gap for each in pilot])
            count = max(30, round(ROWS * (3 * gaps.std(ddof=1) / gaps.mean()) ** 2))
            named = [unequal(task, count, generator).best(score) == {"m0"} for _ in range(POWER_RUNS)]
            name = f"{SCORES[score].label} names the better of two, {task}, {count} rows, 1 seed"
            rates.append(Rate.of(name, named, POWER, at_least=True))
    return rates


def plural(seeds: int) -> str:
    return f"{seeds} seed{'s' * (seeds > 1)}"


SIMULATIONS: tuple[Simulation, ...] = (false_winners, calibrated, true_winners)
