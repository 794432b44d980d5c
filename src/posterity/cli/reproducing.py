"""`posterity reproduce`: a paper's table or figure, run again."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from posterity.cli import options
from posterity.cli.console import Output


class Size(StrEnum):
    """How much of the published setting is run."""

    smoke = "smoke"
    small = "small"
    full = "full"


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A table or figure; without one, all are listed.", show_default=False),
    ] = None,
    size: Annotated[
        Size,
        typer.Option(
            help="`smoke`: seconds, shows that it runs; `small`: minutes on two cores, on real data; `full`: the "
            "published setting: hours on a GPU, days without."
        ),
    ] = Size.small,
    seeds: options.Seeds = 1,
    seed: options.Seed = 0,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Train only networks whose name has this in it.", show_default=False)
    ] = "",
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Train nothing: make the table of what the folder holds.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of results.")] = Path("reproductions"),
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Run a paper's table or figure again, and set what comes out beside what was published.

    Example: `posterity reproduce ibnn-figure-1 --size smoke`

    Trained networks are kept: a command that was stopped goes on when it is started again, and tables that share
    networks train them once.
    """
    from posterity import papers

    output = Output(json)
    if name is None:
        found = papers.entries()
        output.table(["name", "what it is"], [[entry.name, entry.title] for entry in found.values()])
        output.finish({key: entry.title for key, entry in found.items()})
        return
    entry = papers.find(name)
    bench = papers.Bench(
        out,
        size.value,
        range(seed, seed + seeds),
        device=device,
        data_dir=data_dir,
        recorded=recorded,
        only=only,
        say=output.step,
        progress=output.interactive,
    )
    with output.working():
        outcome = papers.reproduce(entry, bench)
    for table in outcome.tables:
        output.say(f"{entry.title}. {table.title}")
        rows: list[Any] = table.rows
        output.table(table.columns, rows, numbers=True)
    for line in outcome.findings:
        output.say(line)
    output.say(f"Written to {bench.folder / entry.name}.json" + (" and .png." if outcome.figure else "."))
    output.finish(
        {
            "numbers": outcome.numbers,
            "tables": [asdict(table) for table in outcome.tables],
            "findings": outcome.findings,
            "seeds": bench.seeds,
        }
    )
