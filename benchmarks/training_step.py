"""The cost of iBNN's training step over MAP's at the same number of rows, and of 80 draws over 80 plain passes.

python -m benchmarks.training_step [folder of results]
"""

import sys
from collections.abc import Callable

import torch

import posterity
from benchmarks.measure import alternate, keep_memory, ratios, report

ROWS, DRAWS, IMAGES = 128, 80, 250


def step(posterior: posterity.Posterior, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """One step of SGD on a fixed batch."""
    optimizer = torch.optim.SGD(posterior.parameters(), lr=1e-3)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        posterior.loss(x, y, size=60_000).backward()
        optimizer.step()

    return run


def training_steps() -> dict[str, Callable[[], None]]:
    """A step of MAP, and of iBNN with few and with many components, on the same rows."""
    x, y = torch.randn(ROWS, 1, 28, 28), torch.randint(10, (ROWS,))
    return {
        "map": step(posterity.MAP(posterity.networks.LeNet()), x, y),
        "ibnn, K=16": step(posterity.IBNN(posterity.networks.LeNet(), 16), x, y),
        "ibnn, K=4": step(posterity.IBNN(posterity.networks.LeNet(), 4), x, y),
    }


def draws() -> dict[str, Callable[[], None]]:
    """As many plain eager passes as draws, and the draws: eager, and any other way that they can run."""
    network = posterity.networks.LeNet().eval()
    posterior = posterity.IBNN(network, 16, seed=0)
    functions, compiled = posterior.draw(DRAWS), posterior.draw(DRAWS)
    compiled.compile()
    images = torch.randn(IMAGES, 1, 28, 28)

    @torch.no_grad()
    def passes() -> None:
        for _ in range(DRAWS):
            network(images)

    @torch.no_grad()
    def eager() -> None:
        functions(images)

    @torch.no_grad()
    def fast() -> None:
        compiled(images)

    return {"plain passes": passes, "draws": eager, "draws, compiled": fast}


def main() -> None:
    torch.set_num_threads(1)
    keep_memory()
    torch.manual_seed(0)
    folder = sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"
    table = ratios(alternate(training_steps(), rounds=25, calls=20), "map")
    report(f"Training step, LeNet, {ROWS} rows, one thread: time over MAP's", table, f"{folder}/training_step.json")
    table = ratios(alternate(draws(), rounds=7, calls=1), "plain passes")
    title = f"{DRAWS} draws of LeNet on {IMAGES} images, one thread: time over as many plain passes"
    report(title, table, f"{folder}/draws.json")


if __name__ == "__main__":
    main()
