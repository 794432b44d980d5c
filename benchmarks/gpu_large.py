"""Large networks on a CUDA device: iBNN's step and draws over the plain network's, and a whole run on CIFAR-10.

    python -m benchmarks.gpu_large step --out FILE       WideResNet-28x10, 512 rows: compiled steps, taking turns
    python -m benchmarks.gpu_large predict --out FILE    VGG-16, 10,000 images: 80 draws and 80 plain passes, taking turns

Times are those of CUDA events around some calls, in bfloat16 with channels last. The whole run on CIFAR-10 is that of
`posterity reproduce ibnn-table-3 --size full --only vgg16-cifar10-ibnn-16`.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import posterity
from benchmarks.measure import ratios
from posterity import processes, running, schedules
from posterity.loading import Batch

DEVICE = torch.device("cuda", 0)
WHOLE = Path(__file__).parents[1] / "reproductions" / "full" / "cells" / "vgg16-cifar10-ibnn-16-0.json"


def alternate(contenders: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds per call on the device, one number a round; the contenders take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(calls):
                run()
            stop.record()
            torch.cuda.synchronize()
            if turn:
                seconds[name].append(start.elapsed_time(stop) / 1000 / calls)
    return seconds


def wide_step(options: argparse.Namespace) -> dict[str, Any]:
    """A compiled training step of WideResNet-28x10 as `fit` does it: MAP's and iBNN's."""
    rows, steps = 512, {}
    x, y = torch.randn(rows, 3, 32, 32, device=DEVICE), torch.randint(10, (rows,), device=DEVICE)
    for name, make in {
        "map": posterity.MAP,
        "ibnn, K=16": lambda network: posterity.IBNN(network, 16, kl="mixture_mean", gamma=0.0, seed=0),
    }.items():
        torch.manual_seed(0)
        posterior = make(posterity.networks.WideResNet(28, 10))
        settings = running.Settings(
            **dict.fromkeys(running.Settings.__dataclass_fields__, None)  # type: ignore[arg-type]
            | {"epochs": 1, "steps": 1_000, "size": 50_000, "seed": 0}
            | {"lr": 1e-3, "weight_decay": 5e-4, "optimizer": "sgd", "precision": "bf16"}
        )
        with processes.accelerate(DEVICE, "bf16") as accelerator:
            constant = schedules.constant
            run = running.Run(
                posterior, settings, DEVICE, accelerator, (constant, constant), constant, True, True, optimizer="sgd"
            )
            posterior.train()
            began = time.perf_counter()
            for _ in range(6):
                run.step(Batch(x, y))
            torch.cuda.synchronize()
            print(f"{name}: compiled in {time.perf_counter() - began:.0f} s", flush=True)
        steps[name] = lambda run=run: run.step(Batch(x, y))
    table = ratios(alternate(steps, options.rounds, 10), "map")
    return {
        "title": f"A training step of WideResNet-28x10, {rows} rows, bfloat16, compiled: time over MAP's",
        "results": table,
    }


def predictions(options: argparse.Namespace) -> dict[str, Any]:
    """80 draws on 10,000 images by `predict`, and as many eager passes in batches of as many rows."""
    images = 10_000
    network = posterity.networks.VGG16().to(DEVICE, memory_format=torch.channels_last).eval()
    x = torch.randn(images, 3, 32, 32, device=DEVICE).to(memory_format=torch.channels_last)
    posterior = posterity.IBNN(network, 16, seed=0)

    @torch.no_grad()
    def passes() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for part in x.split(5_000):
                for _ in range(80):
                    network(part)

    def draws(**options: Any) -> Callable[[], None]:
        def run() -> None:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                posterity.predict(posterior, x, 80, torch.Generator(DEVICE).manual_seed(0), **options)

        return run

    contenders = {"plain passes": passes, "draws": draws()}
    table = ratios(alternate(contenders, options.rounds, 1), "plain passes")
    return {"title": "80 draws of VGG-16 on 10,000 images, bfloat16: time over as many plain passes", "results": table}


def section(content: dict[str, Any]) -> str:
    """The results as a page's section."""
    lines = ["## Large networks on a GPU"]
    for found in (content[key] for key in ("step", "predict") if key in content):
        lines += ["", f"{found['title']}.", "", "| | ratio | quartiles | ms |", "|---|---|---|---|"]
        lines += [
            f"| {name} | {row['ratio']:.3f} | {row['low']:.3f} – {row['high']:.3f} | {row['ms']:.2f} |"
            for name, row in found["results"].items()
        ]
    if WHOLE.exists():
        found = json.loads(WHOLE.read_text())
        scores, epochs = found["scores"], found["settings"]["fit"]["epochs"]
        lines += [
            "",
            f"iBNN-16, VGG-16, CIFAR-10, the paper's recipe ({epochs} epochs, bfloat16, one CUDA graph a step, compiled): "
            f"**{found['train_seconds']:.0f} s**",
            f"of training, compilation included; **{found['seconds']:.0f} s** from the data on the disk to the scores, with 80 draws on",
            "10,000 images and on 22 disturbed sets of 1,000: "
            f"error {scores['error']:.2%}, NLL {scores['nll']:.4f}, ECE {scores['ece']:.4f} (one seed).",
        ]
    commands = ", ".join(f"`{content[key]['command']}`" for key in content)
    facts = ", ".join(f"{key} {value}" for key, value in next(iter(content.values()))["machine"].items())
    return "\n".join([*lines, "", f"{facts}; {commands}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("step", "predict"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    found = {"step": wide_step, "predict": predictions}[options.command](options)
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "python": platform.python_version()}
    found |= {"machine": facts, "command": " ".join(["python -m benchmarks.gpu_large", *sys.argv[1:]])}
    print(json.dumps(found, indent=1))
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    options.out.write_text(json.dumps(known | {options.command: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
