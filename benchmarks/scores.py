"""The cost of scoring 10,000 predictions of 1,000 classes, on one thread: all together, and each score by itself.

python -m benchmarks.scores [folder of results]
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.measure import alternate, keep_memory, ratios, report
from posterity import evaluation
from posterity.prediction import CategoricalPrediction

ROWS, CLASSES = 10_000, 1_000
TOGETHER = "all together"


def prediction() -> tuple[CategoricalPrediction, torch.Tensor]:
    """Logits with one class ahead of the rest, and answers that agree with it in most rows."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(ROWS, CLASSES, generator=generator)
    ahead = torch.randint(CLASSES, (ROWS,), generator=generator)
    logits[torch.arange(ROWS), ahead] += 10 * torch.rand(ROWS, generator=generator)
    other = torch.randint(CLASSES, (ROWS,), generator=generator)
    y = torch.where(torch.rand(ROWS, generator=generator) < 0.75, ahead, other)
    log_probs = torch.log_softmax(logits, dim=1)
    return CategoricalPrediction(log_probs, torch.zeros(ROWS)), y


def scores(p: CategoricalPrediction, y: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Each score as a function of nothing; probabilities are taken anew, as `score` does."""
    seen = evaluation.observed(p, y)
    wrong = seen.wrong
    return {
        "error": lambda: evaluation.error(seen.probs, y),
        "nll": lambda: evaluation.nll(p, y),
        "brier": lambda: evaluation.brier(seen.probs, y),
        "ece": lambda: evaluation.ece(seen.probs, y),
        "adaptive ece": lambda: evaluation.adaptive_ece(seen.probs, y),
        "class-wise ece": lambda: evaluation.classwise_ece(seen.probs, y),
        "aurc": lambda: evaluation.aurc(wrong, seen.total),
        "auroc": lambda: evaluation.auroc(seen.total[wrong == 0], seen.total[wrong == 1]),
    }


def together(p: CategoricalPrediction, y: torch.Tensor) -> None:
    """All of them, from the prediction on."""
    for run in scores(p, y).values():
        run()


def main() -> None:
    torch.set_num_threads(1)
    keep_memory()
    p, y = prediction()
    contenders = {TOGETHER: lambda: together(p, y), **scores(p, y)}
    folder = sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"
    table = ratios(alternate(contenders, rounds=7, calls=1), TOGETHER)
    title = f"Scores of {ROWS:,} predictions of {CLASSES:,} classes, one thread: share of the time of all together"
    report(title, table, f"{folder}/scores.json")


if __name__ == "__main__":
    main()
