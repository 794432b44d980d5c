"""What a table or a figure is when it is run again: its sizes, its parts, and what is written of it.

A result folder holds, for each size,

    SIZE/cells/NAME.json     one trained network each: its settings, its scores, command, versions, machine and time
    SIZE/ENTRY.json          a table or figure: its numbers, its tables, what they say
    SIZE/ENTRY.png           its picture, where it has one

A cell is made once. Tables that share it read it, and a run that was stopped goes on with those that are missing.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posterity.cli.console import plain
from posterity.cli.facts import facts
from posterity.cli.folder import read, write
from posterity.errors import Error, short
from posterity.training import find_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = {
    "smoke": "seconds: shows that it runs",
    "small": "minutes on two cores, on real data",
    "full": "the published setting: hours on a GPU, days without",
}
#: Scores that differ by less than so many standard errors are not called different.
DEVIATIONS = 2.0


def verdict(held: bool, clear: bool) -> str:
    """What is said of a claim."""
    return ("held" if held else "did not hold") + ("" if clear else ", within chance")


@dataclass(frozen=True)
class Table:
    """A table in words: what was found beside what was published."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass
class Outcome:
    """What a table or figure came to."""

    numbers: dict[str, Any]
    """All that was found, as JSON has it."""
    tables: list[Table] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    """What that says of the paper's claims, in plain words."""
    figure: "Figure | None" = None


@dataclass(frozen=True)
class Entry:
    """A table or figure of a paper, by name."""

    name: str
    title: str
    run: Callable[["Bench"], Outcome]


class Bench:
    """Where an entry works: the size, the seeds, and the folder of results.

    Args:
        folder: of results.
        size: one of `SIZES`.
        seeds: one trained network each.
        device: of the training.
        data_dir: where data are sought first.
        recorded: use what the folder holds and train nothing.
        only: train no cell whose name does not contain this.
        say: takes a line about what happens now.
        progress: whether a progress bar is wanted.
    """

    def __init__(
        self,
        folder: Path,
        size: str = "smoke",
        seeds: Sequence[int] = (0,),
        *,
        device: str = "auto",
        data_dir: Path | None = None,
        recorded: bool = False,
        only: str = "",
        say: Callable[[str], None] = lambda _: None,
        progress: bool = False,
    ) -> None:
        if size not in SIZES:
            raise Error(f"The size must be one of {', '.join(SIZES)}, not {short(size)}.")
        self.folder, self.size, self.seeds, self.device = folder / size, size, list(seeds), device
        self.data_dir, self.recorded, self.only, self.say, self.progress = data_dir, recorded, only, say, progress
        self.asked: list[str] = []
        self.used: list[str] = []

    def pick(self, **choices: Any) -> Any:
        """The choice for this size: `pick(smoke=1, small=10, full=300)`."""
        return choices[self.size]

    def cell(
        self, name: str, settings: dict[str, Any], make: Callable[[int, Path], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The records of a cell, one for each seed: read where they were made with these settings, else made now.

        Args:
            name: of the cell.
            settings: all that its result depends on besides the seed.
            make: takes a seed and a folder for checkpoints, and returns what was found.
        """
        settings = plain(settings)
        self.asked.append(name)
        found = []
        for seed in self.seeds:
            path = self.folder / "cells" / f"{name}-{seed}.json"
            record = read(path)
            if record is None or record.get("settings") != settings:
                if self.recorded or self.only not in name:
                    continue
                record = self._made(path, name, seed, settings, make)
            self.used.append(path.stem)
            found.append(record)
        return found

    def _made(self, path: Path, name: str, seed: int, settings: dict[str, Any], make: Any) -> dict[str, Any]:
        self.say(f"{name}, seed {seed} …")
        checkpoint, began = self.folder / "checkpoints" / path.stem, time.perf_counter()
        note = checkpoint.with_name(f"{path.stem}.json")  # names have dots, so that it is no other suffix
        if read(note) != settings:
            shutil.rmtree(checkpoint, ignore_errors=True)
            write(note, settings)
        made = make(seed, checkpoint)
        seconds = max(time.perf_counter() - began, made.get("train_seconds", 0.0))  # one that went on began earlier
        write(path, {"name": name, "seed": seed, "settings": settings, **made, "seconds": seconds, **facts()})
        shutil.rmtree(checkpoint, ignore_errors=True)
        note.unlink(missing_ok=True)
        return read(path) or {}


def reproduce(entry: Entry, bench: Bench) -> Outcome:
    """Run an entry, and write what it came to into the folder."""
    began = time.perf_counter()
    if not bench.recorded:
        find_device(bench.device)
    outcome = entry.run(bench)
    if bench.asked and not any(bench.only in name for name in bench.asked):
        names = ", ".join(dict.fromkeys(bench.asked))
        raise Error(f"No network of {entry.name} has {bench.only!r} in its name. There are {names}.")
    if bench.asked and not bench.used:
        raise Error(f"Nothing of {entry.name} is recorded in {bench.folder}: without --recorded it is trained.")
    if bench.size == "smoke":
        outcome.findings.insert(0, "This size shows that it runs; what it finds is no evidence.")
    record = {
        "entry": entry.name,
        "title": entry.title,
        "size": bench.size,
        "seeds": bench.seeds,
        "numbers": outcome.numbers,
        "tables": [asdict(table) for table in outcome.tables],
        "findings": outcome.findings,
        "picture": None if outcome.figure is None else outcome.figure.get_label(),
        "cells": list(dict.fromkeys(bench.used)),
        "seconds": time.perf_counter() - began,
        **facts(),
    }
    write(bench.folder / f"{entry.name}.json", record)
    if outcome.figure is not None:
        outcome.figure.savefig(bench.folder / f"{entry.name}.png", dpi=110)
    return outcome
