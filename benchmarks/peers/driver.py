"""Many processes, one at work: contenders in different environments take turns, so that ratios are of one run."""

import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.environments import Unusable

ROOT = Path(__file__).parents[2]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
IMPORT = (
    "import time; a = time.process_time(); import torch; b = time.process_time(); import {}; "
    "c = time.process_time(); print(b - a, c - b)"
)


class Entry(NamedTuple):
    """Who takes part: a contender of a library, and the interpreter that runs it."""

    library: str
    contender: str
    method: str
    file: str
    python: Path

    @property
    def name(self) -> str:
        """As it stands in tables."""
        return f"{self.library}: {self.contender}"


class Worker:
    """A contender's process; `knows` are the things that can be asked of it."""

    def __init__(self, entry: Entry, *options: str) -> None:
        command = [str(entry.python), "-m", "benchmarks.peers.worker", entry.file, entry.contender, *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=environment()
        )
        self.knows: list[str] = []
        with _closing_on_failure(self):
            self.knows = self._reply()

    def ask(self, what: str, **how: Any) -> float:
        """A number: of `calls` calls the seconds of one, or with `memory` the MiB at the peak."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"what": what, **how}) + "\n")
        self.process.stdin.flush()
        return float(self._reply())

    def close(self) -> None:
        """End the process, which ends when it is asked no more."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def _reply(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Unusable(f"its process ended with code {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise Unusable(reply["error"])
        return reply["value"]


def environment() -> dict[str, str]:
    """One thread, and the benchmarks to be found."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)}


def start(entries: list[Entry]) -> tuple[dict[str, Worker], dict[str, str]]:
    """A process for each, and for those that cannot be started the reason."""
    workers, reasons = {}, {}
    for entry in entries:
        try:
            workers[entry.name] = Worker(entry)
        except Unusable as why:
            reasons[entry.name] = str(why)
    return workers, reasons


def alternate(
    workers: dict[str, Worker], whats: tuple[str, ...], rounds: int, calls: int
) -> dict[str, dict[str, list[float]]]:
    """Processor seconds of a call, by what and by name, a number a round; all take turns within a round."""
    asked = [(what, name) for what in whats for name, worker in workers.items() if what in worker.knows]
    seconds: dict[str, dict[str, list[float]]] = {what: {} for what in whats}
    for _ in range(rounds):
        for what, name in asked:
            seconds[what].setdefault(name, []).append(workers[name].ask(what, calls=calls))
    return seconds


def memory(entry: Entry, what: str = "fresh") -> float:
    """MiB at the peak of one call, above the level before it, in a fresh process that gives freed memory back."""
    worker = Worker(entry, "--memory")
    try:
        return worker.ask(what, memory=True)
    finally:
        worker.close()


def import_times(libraries: dict[str, tuple[Path, tuple[str, ...]]], rounds: int) -> dict[str, dict[str, float]]:
    """Processor seconds of importing a library behind torch, and with it, each time in a fresh process."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in libraries}
    for _ in range(rounds):
        for name, (python, modules) in libraries.items():
            command = [str(python), "-c", IMPORT.format(", ".join(modules))]
            done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment())
            torch, own = done.stdout.split()[-2:]
            found[name].append((float(torch), float(own)))
    return {
        name: {
            "seconds": statistics.median(own for _, own in times),
            "low": min(own for _, own in times),
            "high": max(own for _, own in times),
            "with_torch": statistics.median(torch + own for torch, own in times),
        }
        for name, times in found.items()
    }


@contextlib.contextmanager
def _closing_on_failure(worker: Worker) -> Iterator[None]:
    try:
        yield
    except BaseException:
        worker.close()
        raise
