"""The options that commands share, each explained once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Task(StrEnum):
    """What is predicted."""

    classification = "classification"
    regression = "regression"


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A built-in name (see `posterity data`), a CSV, Parquet or NPZ file, or a folder of images.",
        show_default=False,
    ),
]
Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A model folder, as `train` and `compare` write them.", show_default=False),
]
Target = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The column to predict (needed for tables).", show_default=False),
]
TaskOption = Annotated[
    Task | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="`classification` or `regression`; guessed from the target if left out.",
        show_default=False,
    ),
]
Methods = Annotated[
    str,
    typer.Option(metavar="A,B,…", help="Which methods, separated by commas (see `posterity methods`)."),
]
Seeds = Annotated[int, typer.Option(metavar="N", min=1, help="How many times to repeat, each with another seed.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="The first seed; the same seed gives the same result.")]
Epochs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Passes through the training data; chosen by their number if left out.",
        show_default=False,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Rows per step; chosen by their number if left out.", show_default=False),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--lr", metavar="RATE", help="Learning rate; a default that suits the method if left out.", show_default=False
    ),
]


def number_of_draws(text: str) -> int | str:
    """A whole number above 0, or "auto"."""
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is neither a whole number above 0 nor auto.")
    return int(text)


Samples = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        parser=number_of_draws,
        help="Functions to draw for a prediction; the method's own number if left out. `auto` stops sooner for rows "
        "whose answer is settled.",
        show_default=False,
    ),
]
HoldOut = Annotated[
    bool,
    typer.Option(
        "--hold-out/--no-hold-out",
        help="Hold a tenth of the training rows out (of fewer than 500, 50 or a fifth) and keep the epoch that "
        "predicts them best; or train on all of them, to the end.",
    ),
]
VaryingNoise = Annotated[
    bool,
    typer.Option(
        "--varying-noise",
        help="Where numbers are predicted, learn how noisy each row is; by default one noise is learned for all.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Where files of the built-in data lie; downloads go to a cache.", show_default=False
    ),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="`cpu`, `cuda`, or `auto` for a GPU where there is one.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output; all else goes to standard error.")
]
