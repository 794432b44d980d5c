"""Alternating measurements of contenders in one process: ratios with their spread, and where they were taken."""

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import posterity
from benchmarks.allocator import keep_memory as keep_memory


def alternate(contenders: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, list[float]]:
    """Processor seconds per call of each contender, one number a round; they take turns within a round."""
    for run in contenders.values():
        for _ in range(3):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.process_time()
            for _ in range(calls):
                run()
            seconds[name].append((time.process_time() - start) / calls)
    return seconds


def ratios(seconds: dict[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """Each contender's time over the base's: the median over rounds, with the quartiles, and its own milliseconds."""
    table = {}
    for name, values in seconds.items():
        over = [value / other for value, other in zip(values, seconds[base], strict=True)]
        low, middle, high = statistics.quantiles(over, n=4)
        table[name] = {"ratio": middle, "low": low, "high": high, "ms": 1000 * statistics.median(values)}
    return table


def report(title: str, table: dict[str, dict[str, float]], path: str | None = None) -> None:
    """Print a table of ratios, and write it as JSON with versions and machine."""
    print(title)
    for name, row in table.items():
        print(f"  {name:<28} {row['ratio']:6.2f}  ({row['low']:.2f}–{row['high']:.2f})   {row['ms']:8.2f} ms")
    if path is not None:
        save(path, {"title": title, "results": table})


def save(path: str | Path, content: dict[str, Any]) -> None:
    """Write results as JSON, with the command, versions and machine."""
    program = Path(sys.argv[0])
    module = program.parent.name if program.stem == "__main__" else program.stem
    command = " ".join([f"python -m benchmarks.{module}", *sys.argv[1:]])
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps({**content, "command": command, "machine": machine()}, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    return {
        "processor": name,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "posterity": posterity.__version__,
    }
