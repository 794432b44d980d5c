"""`posterity export`: a trained model as one file for other programs."""

from pathlib import Path
from typing import Annotated, Any

import typer

import posterity
from posterity.cli import options
from posterity.cli.console import Output
from posterity.errors import Error


def export(
    model: options.Model,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Where it goes: .onnx for any program, .pt2 for PyTorch without posterity."),
    ] = Path("model.onnx"),
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Functions in the file; 20 if left out (fewer for `map` and `ensemble`). Unless the method is `ibnn`, "
            "`dropout` or `map`, each adds a copy of the weights.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the draws: the same seed, the same file.")] = 0,
    unroll: Annotated[
        bool,
        typer.Option(
            "--unroll", help="Write the functions out one after the other: faster for images, but slower to export."
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Write a trained model, with its uncertainty, to one file that needs no posterity.

    Example: `posterity export demo/models/ibnn --out model.onnx`

    The file takes raw rows or images and any number of them: what was learned of columns and pixels is inside. It
    gives what `posterity predict` gives with the same number of functions and the same seed. It is run once to see
    that it does, and says itself, as metadata, what goes in and what comes out.
    """
    output = Output(json)
    with output.working():
        posterior = posterity.load(model)
        if posterior.preprocessing is None:
            raise Error(
                f"{model} was saved without its preprocessing, so it does not say what its inputs are: use "
                "posterity.export(posterior, file, example) from Python."
            )
        path, facts = posterity.export(posterior, out, samples=samples, seed=seed, unroll=unroll)
    size = path.stat().st_size
    functions = f"{facts['samples']} function{'s' if facts['samples'] > 1 else ''}"
    output.say(f"{path} holds {functions} of {facts['method']}: {_bytes(size)}, with {facts['holds']}.")
    taken = facts["inputs"]["input"]
    output.say(f"It takes {taken['type']} [{', '.join(map(str, taken['shape']))}]: {taken['meaning']}.")
    if "columns" in facts:
        output.say(f"The columns are {', '.join(column['name'] for column in facts['columns'])}.")
    output.say("\n" + snippet(path, facts))
    output.finish({"out": str(path), "bytes": size, **facts})


def snippet(path: Path, facts: dict[str, Any]) -> str:
    """Four lines of Python that use the file; they run as they are."""
    taken, given = facts["inputs"]["input"], ", ".join(facts["outputs"])
    kind, shape = taken["type"], (1, *taken["shape"][1:])
    if path.suffix.lower() == ".onnx":
        lines = [
            "import numpy, onnxruntime",
            f"session = onnxruntime.InferenceSession({str(path)!r})",
            f"rows = numpy.zeros({shape}, numpy.{kind})",
            f'{given} = session.run(None, {{"input": rows}})',
        ]
    else:
        lines = [
            "import torch",
            f"model = torch.export.load({str(path)!r}).module()",
            f"rows = torch.zeros({shape}, dtype=torch.{kind})",
            f"{given} = model(rows).values()",
        ]
    return "\n".join(lines)


def _bytes(size: int) -> str:
    """A size in the unit that suits it."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"
