"""The same network trained twice from different initialisations: which claims are made, and which are false.

A false claim names a method: the two are one. With one seed a claim is about two trained networks, which do differ; it
is false where the network that is named is no better on a population of rows.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.claims.comparisons import LEVEL, assessed, comparison, plural
from benchmarks.claims.rates import Rate, Simulation
from posterity.evaluation.differences import Design
from posterity.prediction import CategoricalPrediction
from posterity.report import Comparison
from posterity.report.words import verdict

RUNS, STEPS, LR = 250, 150, 0.02
INPUTS, HIDDEN = 4, 16
TRAIN, TEST, TABLE = 200, 1000, 500
POPULATION = 20_000
SCORES = ("nll", "error", "brier", "ece", "aurc")
SEEDS = (1, 2, 3)


def population(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs [rows, inputs] and two classes that a curved function of them makes likely."""
    x = torch.randn(rows, INPUTS, generator=generator)
    logit = 2 * torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    return x, (torch.rand(rows, generator=generator) < logit.sigmoid()).long()


def trained(x: Tensor, y: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Weights of one network for each of the data sets x [networks, rows, inputs], y [networks, rows], by Adam."""
    sizes = ((INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 2))
    weights = []
    for before, after in sizes:
        weights.append((torch.randn(len(x), before, after, generator=generator) / before**0.5).requires_grad_())
        weights.append(torch.zeros(len(x), 1, after, requires_grad=True))
    optimizer = torch.optim.Adam(weights, LR, foreach=True)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(outputs(weights, x).flatten(0, 1), y.flatten(), reduction="sum") / x.shape[1]
        loss.backward()
        optimizer.step()
    return [weight.detach() for weight in weights]


def outputs(weights: list[Tensor], x: Tensor) -> Tensor:
    """[networks, rows, 2]"""
    for index in range(0, len(weights), 2):
        x = torch.baddbmm(weights[index + 1], x, weights[index])
        x = x.tanh() if index + 2 < len(weights) else x
    return x


def predicted(logits: Tensor) -> CategoricalPrediction:
    logs = F.log_softmax(logits.double(), dim=1)
    return CategoricalPrediction(logs, torch.special.entr(logs.exp()).sum(1))


@cache
def twice(seed: int, seeds: int, splits: bool) -> tuple[list[Comparison], list[dict[str, float]]]:
    """Comparisons of a method with itself, and of the first seed's networks the true differences of the scores."""
    generator = torch.Generator().manual_seed(seed)
    shape = (RUNS, 2, seeds)
    train, test = [], []
    for _ in range(RUNS):
        x, y = population(TABLE if splits else TRAIN + TEST, generator)
        size = TABLE // 5 if splits else TEST
        orders = [torch.randperm(len(x), generator=generator) if splits else torch.arange(len(x)) for _ in range(seeds)]
        train.append([(x[order[size:]], y[order[size:]]) for order in orders])
        test.append([(x[order[:size]], y[order[:size]]) for order in orders])
    x, y = (torch.stack([torch.stack([pair[k] for pair in run]) for run in train]) for k in (0, 1))
    x, y = (part[:, None].expand(RUNS, 2, *part.shape[1:]).flatten(0, 2) for part in (x, y))
    weights = [weight.unflatten(0, shape) for weight in trained(x, y, generator)]
    everyone, classes = population(POPULATION, generator)
    found, truths = [], []
    for run in range(RUNS):
        methods = []
        for method in range(2):
            each = zip(range(seeds), test[run], strict=True)
            methods.append(
                [
                    assessed(predicted(outputs([w[run, method, s, None] for w in weights], x[None])[0]), y)
                    for s, (x, y) in each
                ]
            )
        found.append(comparison("classification", methods, Design(not splits, 0.25)))
        whole = [predicted(outputs([w[run, m, 0, None] for w in weights], everyone[None])[0]) for m in range(2)]
        first, second = (assessed(prediction, classes)[0] for prediction in whole)
        truths.append({score: second[score] - first[score] for score in SCORES})
    return found, truths


def claimed(compared: Comparison) -> bool:
    """Whether the summary says that a method fits best, makes the fewest mistakes, or notices most."""
    return any(word in " ".join(verdict(compared)) for word in ("the truth best", "fewest mistakes", "notices"))


def the_same_twice(seed: int) -> list[Rate]:
    """Claims about one method against itself."""
    rates = []
    for splits in (False, True):
        where = "a split per seed" if splits else "fixed test rows"
        for seeds in SEEDS:
            found, truths = twice(seed, seeds, splits)
            for score in SCORES:
                named = [each.best(score) for each in found]
                what = f"{score}: {plural(seeds)}, {where}"
                if seeds > 1:
                    rates.append(Rate.of(f"a method beats itself, {what}", named, LEVEL))
                    continue
                wrong = [
                    (best == {"m0"} and t[score] <= 0) or (best == {"m1"} and t[score] >= 0)
                    for best, t in zip(named, truths, strict=True)
                ]
                rates.append(
                    Rate.of(f"one of two trained networks is named that is not the better, {what}", wrong, LEVEL)
                )
                rates.append(Rate.of(f"(one of two trained networks is named, {what})", named))
            if seeds > 1:
                rates.append(
                    Rate.of(
                        f"the summary says that a method beats itself in anything, {plural(seeds)}, {where}",
                        map(claimed, found),
                        2 * LEVEL,
                    )
                )
    return rates


SIMULATIONS: tuple[Simulation, ...] = (the_same_twice,)
