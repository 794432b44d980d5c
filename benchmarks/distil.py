"""A LeNet of one pass in place of an IBNN: Fashion-MNIST, distilled from scratch and from the teacher's weights.

    python -m benchmarks.distil [--cache FOLDER] [--out FILE]

The teacher and its students see 55,000 training images. The settings below were chosen by the scores on the other
5,000; the test images are scored once, with them. FOLDER keeps the trained teacher.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import posterity
from benchmarks.measure import alternate, machine
from posterity import evaluation

HELD_OUT = 5_000
TEACHER: dict[str, Any] = {"epochs": 15, "batch_size": 128}
STUDENTS: dict[str, dict[str, Any]] = {
    "from the teacher's weights": {"epochs": 5, "batch_size": 128},
    "from scratch": {"epochs": 15, "batch_size": 128, "lr": 3e-3},
}
PARTS = ("total", "aleatoric", "epistemic")


def spearman(a: Tensor, b: Tensor) -> float:
    """Rank correlation; equal values share their mean rank."""

    def ranks(values: Tensor) -> Tensor:
        _, places, counts = values.double().unique(return_inverse=True, return_counts=True)
        return (counts.cumsum(0) - (counts - 1) / 2)[places]

    return float(torch.corrcoef(torch.stack([ranks(a), ranks(b)]))[0, 1])


def teacher(train: tuple[Tensor, Tensor], folder: Path, seed: int) -> tuple[Any, float]:
    """The trained IBNN, and the seconds that its training took: from the folder, where it is there."""
    path = folder / f"teacher_{seed}"
    if not path.exists():
        torch.manual_seed(seed)
        posterior, started = posterity.IBNN(posterity.networks.LeNet(), seed=seed), time.process_time()
        posterity.fit(posterior, train, posterity.Categorical(), seed=seed, device="cpu", **TEACHER)
        posterity.save(posterior, path)
        (path / "seconds.json").write_text(json.dumps(time.process_time() - started))
    return posterity.load(path), json.loads((path / "seconds.json").read_text())


def compare(mine: Any, yours: Any, y: Tensor) -> dict[str, Any]:
    """A student's prediction beside its teacher's."""
    scores = {name: evaluation.score(prediction, y) for name, prediction in (("student", mine), ("teacher", yours))}
    return {
        **{who: {key: round(found[key], 6) for key in ("error", "nll", "ece")} for who, found in scores.items()},
        "nll_ratio": round(scores["student"]["nll"] / scores["teacher"]["nll"], 5),
        "spearman": {part: round(spearman(getattr(mine, part), getattr(yours, part)), 5) for part in PARTS},
        "mean_epistemic": {"student": float(mine.epistemic.mean()), "teacher": float(yours.epistemic.mean())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("run/distil"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/distil.json"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, help="so many of each part of the data, to try it out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data: Any = posterity.datasets.load("fashion-mnist", seed=0)
    (x, y), (x_test, y_test), size = data.train, data.test, options.size
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    held, rows = order[:HELD_OUT][:size], order[HELD_OUT:][:size]
    posterior, seconds = teacher((x[rows], y[rows]), options.cache, options.seed)

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(options.seed + 1)

    sets = {"held_out": (x[held], y[held]), "test": (x_test[:size], y_test[:size])}
    said = {name: posterity.predict(posterior, inputs, generator=generator()) for name, (inputs, _) in sets.items()}
    results: dict[str, Any] = {"teacher": {"settings": TEACHER, "seconds": round(seconds, 1)}}
    students: dict[str, Any] = {}
    for name, settings in STUDENTS.items():
        torch.manual_seed(options.seed + 1)
        network = posterity.networks.LeNet()
        if name != "from scratch":
            network.load_state_dict(posterior.network.state_dict())
        started = time.process_time()
        students[name] = posterity.distil(posterior, network, x[rows], seed=options.seed, device="cpu", **settings)
        results[name] = {"settings": settings, "seconds": round(time.process_time() - started, 1)}
        for part, (inputs, answers) in sets.items():
            mine = posterity.predict(students[name], inputs, generator=generator())
            results[name][part] = compare(mine, said[part], answers)
        print(name, json.dumps(results[name], indent=1), flush=True)
    some = x_test[:1000]
    contenders = {
        "teacher": lambda: posterity.predict(posterior, some),
        "student": lambda: posterity.predict(students["from scratch"], some),
        "network alone": lambda: posterity.predict(posterity.MAP(students["from scratch"].network), some),
    }
    times = alternate(contenders, rounds=3, calls=1)
    content = {
        "title": "Fashion-MNIST, LeNet: an IBNN and networks of one pass that were distilled from it",
        "command": " ".join(["python -m benchmarks.distil", *sys.argv[1:]]),
        "seed": options.seed,
        "draws": {"teacher": posterior.draws, "student": students["from scratch"].draws},
        "results": results,
        "predict_1000_images_ms": {name: round(1000 * min(values), 1) for name, values in times.items()},
        "machine": machine(),
    }
    print(json.dumps(content["predict_1000_images_ms"]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
