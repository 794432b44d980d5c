"""A page of the documentation from recorded results, so that no number is typed by hand.

    python -m posterity.papers.page PAPER RESULTS PAGE

RESULTS is a folder that `posterity reproduce` wrote. Pictures are copied beside the page, into `images/`.
"""

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from posterity.cli.folder import read
from posterity.errors import Error
from posterity.papers import SIZES, entries
from posterity.papers.words import PAPERS

SHOWN = ("full", "small")


def page(paper: str, results: Path, target: Path) -> None:
    """Write the page of a paper."""
    if paper not in PAPERS:
        raise Error(f"There is no paper {paper!r}; there are {', '.join(PAPERS)}.")
    title, words, notes = PAPERS[paper]
    lines = [f"# {title}", "", words.strip(), ""]
    for entry in entries().values():
        if not entry.name.startswith(f"{paper}-"):
            continue
        found = {size: read(results / size / f"{entry.name}.json") for size in SHOWN}
        lines += [f"## {_number(entry.name, paper)}: {_inside(entry.title)}", ""]
        lines += [notes[entry.name].strip(), ""] if entry.name in notes else []
        if not any(found.values()):
            lines += ["Not run yet.", ""]
        for size, record in found.items():
            if record is not None:
                lines += _section(size, record, results, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _number(name: str, paper: str) -> str:
    """ "ibnn-table-3" as "Table 3"."""
    return name.removeprefix(f"{paper}-").replace("-", " ").capitalize()


def _inside(title: str) -> str:
    """A title as it stands within a line: "The number" is "the number", but "MNIST" stays."""
    return title if title[:2].isupper() else title[0].lower() + title[1:]


def _section(size: str, record: dict[str, Any], results: Path, target: Path) -> list[str]:
    """One size of one table or figure."""
    lines = [f"**Size {size}** ({SIZES[size].partition(':')[0]})", ""]
    made = results / size / f"{record['entry']}.png"
    shown = target.parent / "images" / f"{size}-{made.name}"
    if made.is_file():
        shown.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, shown)
    if record["picture"] and shown.is_file():
        lines += [f"![{_cell(record['picture'])}](images/{shown.name})", ""]
    for table in record["tables"]:
        if not table["rows"]:
            lines += [f"{table['title']}: not run yet.", ""]
            continue
        lines += [f"{table['title']}:", "", _row(table["columns"]), "|---" * len(table["columns"]) + "|"]
        lines += [_row(row) for row in table["rows"]] + [""]
    lines += [f"- {finding}" for finding in record["findings"]] + [""] * bool(record["findings"])
    return [*lines, _facts(size, record, results), ""]


def _row(values: list[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"


def _cell(text: str) -> str:
    """Words that cannot end the brackets they stand in."""
    return text.replace("[", "(").replace("]", ")")


def _facts(size: str, record: dict[str, Any], results: Path) -> str:
    """Command, seeds, versions, machine and time of the entry and of the networks it rests on."""
    cells = [cell for name in record["cells"] if (cell := read(results / size / "cells" / f"{name}.json"))]
    seconds = sum(cell["seconds"] for cell in cells) if cells else record["seconds"]
    machines = Counter(_machine(one) for one in cells or [record])
    where = [f"{n} on {machine}" if len(machines) > 1 else machine for machine, n in machines.items()]
    networks = f"{len(cells)} trained network{'s' * (len(cells) > 1)}, " if cells else ""
    several = f" --seeds {len(record['seeds'])}" if len(record["seeds"]) > 1 else ""
    return (
        f"<small>`posterity reproduce {record['entry']} --size {size}{several}`; {networks}{_time(seconds)} in all; "
        f"seeds {', '.join(map(str, record['seeds']))}; {'; '.join(where)}.</small>"
    )


def _machine(record: dict[str, Any]) -> str:
    machine = record["machine"]
    where = machine["gpu"] or f"{machine['processor']}, {machine['threads']} thread{'s' * (machine['threads'] > 1)}"
    return f"{where}, torch {record['versions']['torch']}, posterity {record['versions']['posterity']}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    page(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
