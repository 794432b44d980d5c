"""Time per training step over MAP's, every method by the same `fit`, on a CUDA device.

    python -m benchmarks.gpu --out FILE [--epochs 12] [--modes eager,graph,compiled] [--methods map,bbb]

The network is that of the Bayes by Hypernet slides (LeNet, 20-50-500), the batch has 100 rows. A time is the median over
epochs of 100 steps, the first two left out; the quartiles stand beside it.
"""

import argparse
import json
import platform
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import posterity

ROWS, STEPS = 100, 100
MODES: dict[str, dict[str, Any]] = {
    "eager": {},
    "graph": {"graph": True},
    "compiled": {"graph": True, "compile": True},
}


def measure(name: str, mode: str, epochs: int) -> dict[str, Any]:
    """Milliseconds of a step (median and quartiles over epochs), and the seconds of 100 draws on 10,000 images."""
    generator = torch.Generator().manual_seed(0)
    x, y = (
        torch.randn(ROWS * STEPS, 1, 28, 28, generator=generator),
        torch.randint(10, (ROWS * STEPS,), generator=generator),
    )
    torch.manual_seed(0)
    posterior = posterity.methods()[name](posterity.networks.LeNetCaffe(), seed=0)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        history = posterity.fit(
            posterior, (x, y), epochs=epochs, batch_size=ROWS, seed=0, device="cuda", progress=False, **MODES[mode]
        )
    whole = time.perf_counter() - started
    times = [1e3 * record["seconds"] / STEPS for record in list(history)[2:]]
    low, middle, high = statistics.quantiles(times, n=4)
    torch.cuda.synchronize()
    started = time.perf_counter()
    posterity.predict(posterior, x.cuda(), 100)
    torch.cuda.synchronize()
    return {
        "ms": middle,
        "low": low,
        "high": high,
        "fit": whole,
        "predict": time.perf_counter() - started,
        "loss": history[-1]["loss"],
        "warnings": sorted({str(warning.message)[:200] for warning in said}),
    }


def lines(content: dict[str, Any]) -> list[str]:
    """The results as a page's section."""
    results, machine = content["results"], content["machine"]
    table = [
        "",
        "## A training step on a GPU, over MAP's",
        "",
        f"LeNet (20-50-500), {ROWS} rows, every method by the same `fit` with its defaults: milliseconds a step, and the",
        "ratio to MAP's in the same mode: " + ", ".join(f"*{mode}* is `fit({_words(mode)})`" for mode in results) + ".",
        "The last column is the time of 100 draws on 10,000 images.",
        "",
        f"| | {' | '.join(f'{mode}, ms | ratio' for mode in results)} | 100 draws, s |",
        "|---|" + "---|" * (2 * len(results) + 1),
    ]
    for name in next(iter(results.values())):
        cells = [f"{rows[name]['ms']:.2f} | {rows[name]['ms'] / rows['map']['ms']:.2f}" for rows in results.values()]
        draws = min(rows[name]["predict"] for rows in results.values())
        table.append(f"| {name} | {' | '.join(cells)} | {draws:.2f} |")
    return [*table, "", ", ".join(f"{key} {value}" for key, value in machine.items()) + "."]


def _words(mode: str) -> str:
    return ", ".join(f"{name}={value}" for name, value in MODES[mode].items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--methods", default=",".join(posterity.methods()))
    options = parser.parse_args()
    machine = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": " ".join(["python -m benchmarks.gpu", *sys.argv[1:]]),
    }
    results: dict[str, dict[str, Any]] = {}
    for mode in options.modes.split(","):
        for name in options.methods.split(","):
            try:
                results.setdefault(mode, {})[name] = measure(name, mode, options.epochs)
                row, base = results[mode][name], results[mode].get("map", {"ms": float("nan")})["ms"]
                print(
                    f"{mode:>9} {name:<9} {row['ms']:.3f} ms ({row['low']:.3f} to {row['high']:.3f}) "
                    f"ratio {row['ms'] / base:.2f}  fit {row['fit']:.1f} s  100 draws {row['predict']:.2f} s  "
                    f"loss {row['loss']:.4f} {row['warnings']}",
                    flush=True,
                )
            except Exception as error:
                print(f"{mode:>9} {name:<9} failed: {type(error).__name__}: {str(error)[:300]}", flush=True)
            options.out.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
