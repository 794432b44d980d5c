"""The peak of memory of 1,000 draws over that of 10, by `posterity.predict`: draws are streamed, so it should be 1.

    python -m benchmarks.predict_memory [folder of results]

LeNet on 1,000 images of the size of MNIST's. Every number is of a fresh process, in which freed memory goes back at once:
resident memory at its highest during the call, above the level before it.
"""

import json
import subprocess
import sys

import torch

import posterity
from benchmarks.allocator import peak, return_memory
from benchmarks.measure import save

METHODS, FEW, MANY, IMAGES, MOST = ("ibnn", "dropout", "bbb"), 10, 1_000, 1_000, 1.1


def measure(method: str, draws: int) -> float:
    """MiB of one call in this process."""
    torch.set_num_threads(1)
    return_memory()
    torch.manual_seed(0)
    posterior = posterity.methods()[method](posterity.networks.LeNet()).eval()
    images = torch.randn(IMAGES, 1, 28, 28)
    posterity.predict(posterior, images, 2)
    return peak(lambda: posterity.predict(posterior, images, draws))


def in_fresh_process(method: str, draws: int) -> float:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.predict_memory", method, str(draws)]
    return float(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
        return
    results = {}
    for method in METHODS:
        few, many = (in_fresh_process(method, draws) for draws in (FEW, MANY))
        results[method] = {"few": few, "many": many, "ratio": many / few}
        print(
            f"{method:<10} {FEW} draws {few:7.1f} MiB   {MANY} draws {many:7.1f} MiB   ratio {many / few:.2f}",
            flush=True,
        )
    folder = sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"
    save(f"{folder}/predict_memory.json", {"draws": [FEW, MANY], "images": IMAGES, "most": MOST, "results": results})


if __name__ == "__main__":
    main()
