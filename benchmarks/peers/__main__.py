"""Training steps, predictions, memory and import of other libraries beside posterity's, on one thread of a processor.

    python -m benchmarks.peers [--out FILE] [--envs FOLDER] [--rounds 15] [--calls 2] [--only blitz,vbll]

Every library is installed in an environment of its own, which sees the running interpreter's torch.
"""

import argparse
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import save
from benchmarks.peers import driver, results, task
from benchmarks.peers.contenders import FILES
from benchmarks.peers.contract import Contender, Library
from benchmarks.peers.environments import Unusable, python_of

FOLDER = Path("~/.cache/posterity-bench").expanduser()


def gather(files: Iterable[str], folder: Path) -> tuple[list[driver.Entry], dict[str, dict[str, Any]]]:
    """All contenders that can be run, and of every library its version, what was needed, or why it is left out."""
    entries: list[driver.Entry] = []
    libraries: dict[str, dict[str, Any]] = {}
    for file in files:
        module = importlib.import_module(file)
        library: Library = module.LIBRARY
        contenders: dict[str, Contender] = module.CONTENDERS
        about: dict[str, Any] = {"version": library.version, "note": library.note, "imports": library.imports}
        libraries[library.name] = about
        try:
            python = python_of(library, folder)
        except Unusable as why:
            about["error"] = str(why)
            continue
        about["python"] = python
        entries += [
            driver.Entry(library.name, name, contender.method, file, python) for name, contender in contenders.items()
        ]
    return entries, libraries


def measure(
    entries: list[driver.Entry], libraries: dict[str, dict[str, Any]], rounds: int, calls: int
) -> dict[str, Any]:
    """All that is measured, as plain values."""
    workers, reasons = driver.start(entries)
    try:
        seconds = driver.alternate(workers, results.WHATS, rounds, calls)
    finally:
        for worker in workers.values():
            worker.close()
    running = [entry for entry in entries if entry.name in workers]
    peaks = {entry.name: driver.memory(entry) for entry in running}
    usable = {name: about for name, about in libraries.items() if "python" in about}
    times = driver.import_times({name: (a.pop("python"), a.pop("imports")) for name, a in usable.items()}, rounds=5)
    for name, about in libraries.items():
        about.pop("imports", None)
        about["import"] = times.get(name)
    return {"libraries": libraries, "failed": reasons, **results.tables(running, seconds, peaks)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/peers.json"))
    parser.add_argument("--envs", type=Path, default=FOLDER)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2)
    parser.add_argument("--only", default=",".join(FILES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    files = dict.fromkeys(["own", *options.only.split(",")])
    entries, libraries = gather([f"benchmarks.peers.contenders.{file}" for file in files], options.envs.absolute())
    content = {
        "task": {"network": "-".join(map(str, task.SIZES)), "rows": task.ROWS, "draws": task.DRAWS},
        **measure(entries, libraries, options.rounds, options.calls),
    }
    print(results.text(content))
    save(options.out, content)


if __name__ == "__main__":
    main()
