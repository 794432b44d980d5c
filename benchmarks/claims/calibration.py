"""Claims about one method: its confidence, its intervals, its temperature, and predictive checks of a posterior."""

import math

import torch
from torch import Tensor, nn

from benchmarks.claims.rates import Rate, Simulation
from posterity import DeepEnsemble, Functions, Gaussian, Posterior
from posterity.diagnostics import predictive_check
from posterity.evaluation import (
    auroc_limit,
    binomial_cdf,
    calibrated_ece,
    calibrated_nll,
    coverage_range,
    ece,
    nll,
)
from posterity.prediction import CategoricalPrediction
from posterity.report import Comparison
from posterity.report.words import verdict

RUNS = 600
ROWS = (20, 50, 360, 2000)
SHARPNESS = 2.0
"""Standard deviation of the true logits of three classes: the best possible error is 26 %."""
OVERCONFIDENT = {"26 % error": (3, 2.0), "14 % error": (3, 4.0), "5 % error": (2, 8.0)}
METHODS = 8
FEW, DRAWS = 5, 100


def labelled(rows: int, classes: int, sharpness: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """True logits [rows, classes] and classes drawn from them."""
    logits = sharpness * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]


def card(logits: Tensor, y: Tensor, seed: int) -> dict[str, float]:
    """The scores that the sentences on confidence read."""
    probs = logits.softmax(1)
    chance = calibrated_ece(probs, seed=seed)
    loss = -float(logits.log_softmax(1).gather(1, y[:, None]).mean())
    return {"ece": ece(probs, y), "ece_expected": chance.expected, "ece_limit": chance.limit, "nll": loss}


def blamed(words: str, task: str, methods: dict[str, dict[str, float]]) -> bool:
    """Whether the report says it of the method that it names."""
    return words in " ".join(verdict(Comparison("", task, methods)))


def off(*cards: dict[str, float]) -> bool:
    """Whether a report of these methods, or of one and a worse one, says that a confidence is off."""
    methods = {f"method {place}": found for place, found in enumerate(cards)}
    worse = {"worse": cards[0] | {"nll": cards[0]["nll"] + 10}} if len(cards) == 1 else {}
    return blamed("do not take it as a rate", "classification", methods | worse)


def confidence(seed: int) -> list[Rate]:
    """Of calibrated models, and of those whose logits are twice the right ones."""
    generator, found = torch.Generator().manual_seed(seed), []
    for rows in ROWS:
        cards = [card(*labelled(rows, 3, SHARPNESS, generator), run) for run in range(RUNS)]
        found += [
            Rate.of(f"an ECE above 0.05: calibrated, {rows} rows", [each["ece"] > 0.05 for each in cards]),
            Rate.of(f"the confidence is off: calibrated, {rows} rows", [off(each) for each in cards], 0.05),
        ]
    chosen = []
    for run in range(RUNS):
        logits, y = labelled(360, 3, SHARPNESS, generator)
        # Calibrated too: each sees the logits of the truth with some of them hidden, which leaves the prior's mean.
        hidden = torch.rand(METHODS, 360, generator=generator) < 0.1
        seen = torch.where(hidden[..., None], torch.zeros(()).double(), logits)
        chosen.append(off(*(card(each, y, run) for each in seen)))
    found.append(Rate.of(f"the confidence is off: the best of {METHODS} calibrated ones, 360 rows", chosen, 0.05))
    for name, (classes, sharpness) in OVERCONFIDENT.items():
        said = []
        for run in range(RUNS // 3):
            logits, y = labelled(500, classes, sharpness, generator)
            said.append(off(card(2 * logits, y, run)))
        found.append(Rate.of(f"the confidence is off: twice the right logits, 500 rows, {name}", said, 0.8, True))
    return found


def intervals(seed: int) -> list[Rate]:
    """Of exact intervals, summed over all numbers of rows that they may hold; and of those of half the width."""
    found = []
    for rows in (10, 20, 50, 200, 1000):
        low, high = coverage_range(rows)
        for right, level, above in ((0.9, 0.05, False), (math.erf(0.5 * 1.6448536 / math.sqrt(2)), 0.8, True)):
            old = new = 0.0
            for k in range(rows + 1):
                chance = binomial_cdf(k, rows, right) - binomial_cdf(k - 1, rows, right)
                scores = {"nll": 0.0, "coverage90": k / rows, "coverage90_low": low, "coverage90_high": high}
                old += chance * (k / rows < 0.85)
                if chance > 1e-9:
                    both = {"a": scores, "b": scores | {"nll": 9.0}}
                    new += chance * blamed("too narrow", "regression", both)
            name = "half as wide" if above else "exact"
            exact = (0.0, 0)  # no simulation: a sum
            found.append(Rate(f"less than 85 % held: {name}, {rows} rows", old, *exact))
            if not above or rows >= 50:
                found.append(Rate(f"too narrow: {name}, {rows} rows", new, *exact, level, above))
    return found


def detection(seed: int) -> list[Rate]:
    """An upper bound of the AUROC below its true value of 0.8."""
    generator, found = torch.Generator().manual_seed(seed), []
    shift = math.sqrt(2) * float(torch.special.ndtri(torch.tensor(0.8, dtype=torch.float64)))
    for rows in (10, 30, 200):
        pairs = torch.randn(2 * RUNS, 2, rows, generator=generator, dtype=torch.float64)
        said = [auroc_limit(inside, outside + shift) < 0.8 for inside, outside in pairs]
        found.append(Rate.of(f"does not reliably notice, though the AUROC is 0.8: {rows} rows of each", said, 0.05))
    return found


def temperatures(seed: int) -> list[Rate]:
    """Cross-fitted calibration of few rows that does harm: the NLL grows by half."""
    generator, found = torch.Generator().manual_seed(seed), []
    for rows in (15, 30, 100):
        harm = []
        for _ in range(RUNS // 2):
            logits, y = labelled(rows, 3, 8.0, generator)
            prediction = CategoricalPrediction(logits.log_softmax(1), torch.zeros(rows))
            harm.append(calibrated_nll(prediction, y) > 1.5 * nll(prediction, y))
        found.append(
            Rate.of(f"the calibrated NLL is half as much again: calibrated, 7 % error, {rows} rows", harm, 0.02)
        )
    return found


class Line(Posterior):
    """The exact posterior of a line through known noise: weight and bias are N(mean, covariance)."""

    def __init__(self, draws: int, mean: Tensor, covariance: Tensor, std: float) -> None:
        super().__init__(nn.Linear(1, 1))
        self.draws, self.location, self.root = draws, mean, torch.linalg.cholesky(covariance)
        self.likelihood = Gaussian(std=std)

    def draw(self, n: int, generator: torch.Generator | None = None) -> Functions:
        """n lines."""
        both = self.location + torch.randn(n, 2, generator=generator) @ self.root.T
        return Functions(self.network, n, weights={"weight": both[:, :1, None], "bias": both[:, 1:]})


def posterior_of(x: Tensor, y: Tensor, std: float) -> tuple[Tensor, Tensor]:
    """Mean and covariance of weight and bias given data, prior N(0, 1)."""
    design = torch.cat([x, torch.ones_like(x)], 1)
    covariance = torch.linalg.inv(torch.eye(2) + design.T @ design / std**2)
    return covariance @ design.T @ y[:, 0] / std**2, covariance


def predictive_checks(seed: int) -> list[Rate]:
    """New data of a line that is drawn from its exact posterior, of which a check takes a few functions at a time."""
    generator, std, found = torch.Generator().manual_seed(seed), 0.3, []
    x = torch.linspace(-1, 1, 30)[:, None]
    for kind in (f"{FEW} functions at a time", f"{DRAWS} functions at a time", f"an ensemble of {FEW} draws"):
        said = []
        for _ in range(RUNS // 4):
            theirs = torch.randn(2, 1, generator=generator)
            y = theirs * torch.randn((), generator=generator) + std * torch.randn(2, 1, generator=generator)
            source: Posterior = Line(DRAWS if str(DRAWS) in kind else FEW, *posterior_of(theirs, y, std), std)
            truth = source.draw(1, generator)(x)[0]
            if "ensemble" in kind:
                source = ensemble(source, generator)
            y = truth + std * torch.randn(30, 1, generator=generator)
            said.append(bool(predictive_check(source, y, x, generator=generator).strange))
        level = None if "ensemble" in kind else 0.01
        found.append(Rate.of(f"the model does not reproduce the data, though it made them: {kind}", said, level))
    return found


def ensemble(source: Posterior, generator: torch.Generator) -> DeepEnsemble:
    """An ensemble whose members are draws of a posterior."""
    members = DeepEnsemble(nn.Linear(1, 1), members=FEW)
    drawn = source.draw(FEW, generator)
    points = torch.tensor([[0.0], [1.0]])
    at = drawn(points)[:, :, 0]
    members.flat.data = torch.stack([at[:, 1] - at[:, 0], at[:, 0]], 1)
    members.likelihood = source.likelihood
    return members


SIMULATIONS: tuple[Simulation, ...] = (confidence, intervals, detection, temperatures, predictive_checks)
