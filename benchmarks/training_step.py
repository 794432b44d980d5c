"""The cost of iBNN's training step over MAP's at the same number of rows, and of 80 draws over 80 plain passes.

python -m benchmarks.training_step [results.json]
"""

import sys
from collections.abc import Callable

import torch

import posterity
from benchmarks.measure import alternate, ratios, report

ROWS, DRAWS, IMAGES = 128, 80, 250


def step(posterior: posterity.Posterior, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """One step of SGD on a fixed batch."""
    optimizer = torch.optim.SGD(posterior.parameters(), lr=1e-3)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        posterior.loss(x, y, size=60_000).backward()
        optimizer.step()

    return run


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, 1, 28, 28), torch.randint(10, (ROWS,))
    contenders = {
        "map": step(posterity.MAP(posterity.networks.LeNet()), x, y),
        "ibnn, K=16": step(posterity.IBNN(posterity.networks.LeNet(), 16), x, y),
        "ibnn, K=4": step(posterity.IBNN(posterity.networks.LeNet(), 4), x, y),
    }
    folder = sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"
    table = ratios(alternate(contenders, rounds=25, calls=20), "map")
    report(f"Training step, LeNet, {ROWS} rows, one thread: time over MAP's", table, f"{folder}/training_step.json")

    network = posterity.networks.LeNet().eval()
    functions = posterity.IBNN(network, 16).draw(DRAWS)
    images = torch.randn(IMAGES, 1, 28, 28)

    def passes() -> None:
        with torch.no_grad():
            for _ in range(DRAWS):
                network(images)

    def draws() -> None:
        with torch.no_grad():
            functions(images)

    table = ratios(alternate({"plain passes": passes, "draws": draws}, rounds=7, calls=1), "plain passes")
    report(
        f"{DRAWS} draws of LeNet on {IMAGES} images, one thread: time over as many plain passes",
        table,
        f"{folder}/draws.json",
    )


if __name__ == "__main__":
    main()
