"""What the commands print: tables for people, or one JSON object for programs."""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from posterity.report.comparison import SCORES, Comparison
from posterity.report.words import verdict

WIDTH = 160
"""Columns of a table that is written to a file or a pipe."""


class Output:
    """Standard output for results, standard error for progress; with `json`, only the object on the former."""

    def __init__(self, json: bool = False) -> None:
        self.json = json
        self._progress = Console(stderr=True)
        self._results = self._progress if json else Console()
        if not (sys.stderr if json else sys.stdout).isatty():
            # In a file or a pipe nothing limits a line, and a wrapped table cannot be read.
            self._results = Console(stderr=json, width=WIDTH)

    @property
    def interactive(self) -> bool:
        """Whether someone watches the progress."""
        return sys.stderr.isatty()

    @contextmanager
    def working(self) -> Iterator[None]:
        """While other code works: with `json`, whatever it prints goes to standard error."""
        if not self.json:
            yield
            return
        with redirect_stdout(sys.stderr):
            yield

    def step(self, text: str) -> None:
        """A line about what happens now."""
        self._progress.print(Text(printable(text)), soft_wrap=True)

    @contextmanager
    def stage(self, text: str, own_bar: bool = False) -> Iterator[None]:
        """While something is done: its name, and for who watches the seconds that it takes; one line elsewhere.

        With `own_bar` what is done shows its own progress.
        """
        if not self.interactive or own_bar:
            self.step(f"{text} …")
            yield
            return
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        with Progress(*columns, console=self._progress, transient=True) as shown:
            shown.add_task(printable(text), total=None)
            yield

    def say(self, text: str = "") -> None:
        """A line of the result."""
        self._results.print(Text(printable(text)), soft_wrap=True)

    def table(self, columns: list[str], rows: list[list[str | Text]], numbers: bool = False) -> None:
        """A table; with `numbers`, every column but the first is aligned to the right."""
        table = Table(box=SIMPLE_HEAD, header_style="bold", border_style="dim")
        for index, column in enumerate(columns):
            table.add_column(Text(column), justify="right" if numbers and index else "left")
        for row in rows:
            table.add_row(*[Text(printable(cell)) if isinstance(cell, str) else cell for cell in row])
        self._results.print(table)

    def scores(self, comparison: Comparison) -> None:
        """The table of a comparison with the best values bold, and what it means."""
        names = comparison.scores(short=True)
        best = {score: comparison.best(score) for score in names}
        rows: list[list[str | Text]] = [
            [
                method,
                *(
                    Text(comparison.written(method, score), style="bold green" if method in best[score] else "")
                    for score in names
                ),
            ]
            for method in comparison.methods
        ]
        self.table(["method", *(SCORES[score].label for score in names)], rows, numbers=True)
        self.say(" ".join(verdict(comparison)))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Print the result as JSON where that was asked for."""
        if self.json:
            print(json.dumps(plain(result), indent=2, allow_nan=False))


class Stages:
    """The stages of one run, each with the run's name before its own."""

    def __init__(self, output: Output, run: str = "") -> None:
        self._output, self._run = output, run

    def __call__(self, name: str, own_bar: bool = False) -> AbstractContextManager[None]:
        """Enter a stage."""
        text = f"{self._run}: {name}" if self._run else name[:1].upper() + name[1:]
        return self._output.stage(text, own_bar)


def printable(text: str) -> str:
    """The text without characters that steer a terminal: names come from files."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def plain(value: Any) -> Any:
    """The value with what JSON does not have, such as NaN, as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
