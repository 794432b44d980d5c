"""`posterity predict` and `evaluate`: what a trained model says of new data, and how well."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import posterity
from posterity import datasets, report
from posterity.cli import options
from posterity.cli.console import Output, Stages
from posterity.cli.facts import described, facts
from posterity.cli.folder import write
from posterity.cli.provenance import Provenance
from posterity.cli.runs import assess, judged
from posterity.cli.study import FAR_AWAY, shown
from posterity.cli.tables import check_output, prediction_table, write_table
from posterity.datasets.data import far_away
from posterity.errors import Error, require
from posterity.evaluation.positions import is_regression
from posterity.prediction import PARTS
from posterity.report import Comparison
from posterity.wording import number

Split = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        help="Of the draws, and of the split of built-in data that the model was not trained on.",
    ),
]


def predict(
    model: options.Model,
    data: options.Data,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the predictions go: a .csv or a .parquet file.")
    ] = Path("predictions.csv"),
    samples: options.Samples = None,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    seed: Split = 0,
    json: options.Json = False,
) -> None:
    """Predict new data with a trained model, each row with its uncertainty.

    Example: `posterity predict model new.csv --out predictions.csv`

    Beside each row of a table it writes `total`, `aleatoric` (noise that no amount of data removes) and
    `epistemic` (what more data would remove). Classes: `prediction`, `probability`, and one column a class (up
    to 20). Numbers: `mean`, `std`, `low90`, `high90`, in the target's units; the three parts are variances. Of
    built-in data, the test part is predicted. Where a file holds rows that trained the model, the column
    `in_training` marks them. Earlier predictions in the same file are replaced; a file that holds
    anything else is left alone.
    """
    output = Output(json)
    replaced = check_output(out, data)
    with output.working():
        posterior, provenance = _load(model, device), Provenance.of(model)
        with output.stage(f"Reading {data}"):
            x = _data(data, posterior.preprocessing, provenance, seed, data_dir, held_out=False).x
        trained = provenance.trained(x)
        if trained.any():
            provenance.warn(data, trained, "their uncertainty is that of rows the model knows; see `in_training`.")
        with output.stage("Predicting"):
            prediction, _ = judged(posterior, x, None, posterior.preprocessing, samples, seed)
        with output.stage(f"Writing {out}"):
            write_table(prediction_table(prediction, posterior.preprocessing, data, trained), out)
    parts = {part: float(getattr(prediction, part).mean()) for part in PARTS}
    real = is_regression(prediction)  # whose parts are variances: their roots are in the target's units
    said = ", ".join(f"{part} {number(value**0.5 if real else value)}" for part, value in parts.items())
    unit = "as standard deviations" if real else "in nats"
    where = f"{out}, in place of those that were there" if replaced else out
    output.say(f"{len(prediction):,} predictions are in {where}. Their mean uncertainty, {unit}: {said}.")
    output.finish({"rows": len(prediction), "out": str(out), "mean": parts})


def evaluate(
    model: options.Model,
    data: options.Data,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report and the scores go.")] = Path(
        "evaluation"
    ),
    samples: options.Samples = None,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    seed: Split = 0,
    json: options.Json = False,
) -> None:
    """Score a trained model on data with known targets, and write a report.

    Example: `posterity evaluate model new.csv`

    Use data that the model was not trained on: on others its scores flatter it. Of the data that it was trained on,
    the rows that were held out are used, of other built-in data the test part. The folder then holds `report.html`
    (open it in a browser) and `metrics.json` (the scores).
    """
    output = Output(json)
    require("matplotlib")
    if out.exists() and not out.is_dir():
        raise Error(f"{out} is a file: name a folder for the results with --out.")
    with output.working():
        posterior, provenance = _load(model, device), Provenance.of(model)
        with output.stage(f"Reading {data}"):
            found = _data(data, posterior.preprocessing, provenance, seed, data_dir)
        if found.y is None:
            raise Error(
                f"{data} has no targets to compare with: it needs a value of "
                f"{posterior.preprocessing.target!r} in every row. Without targets, use  posterity predict."
            )
        if found.held_out:
            output.step(f"The model was trained on rows of {data}: the {len(found.y):,} that were held out are scored.")
        else:
            provenance.warn(data, provenance.trained(found.x), "on these its scores flatter it; leave them out.")
        scores, summary = assess(posterior, found.x, found.y, found.outside, samples, seed, Stages(output))
        task = "classification" if posterior.preprocessing.classes else "regression"
        name = {cls: name for name, cls in posterity.methods().items()}[type(posterior)]
        made = facts()
        result = {"data": data, "model": str(model), "method": name, "rows": len(found.y), "scores": scores}
        result["held_out"] = found.held_out
        comparison = Comparison(
            title=data,
            task=task,
            methods={name: scores},
            data={"rows to test on": f"{len(found.y):,}", "model": str(model)},
            facts=described(made) | {"seed": seed},
            summaries={name: summary},
            classes=tuple(posterior.preprocessing.classes or ()),
            target=posterior.preprocessing.target,
            outside=found.outside_name,
            folder=str(model),
            **shown(found.x, posterior.preprocessing),
        )
        write(out / "metrics.json", result | made)
        with output.stage("Drawing the report"):
            report.write(comparison, out / "report.html")
    output.scores(comparison)
    output.say(f"The whole report: {out / 'report.html'}")
    output.finish(result)


def _load(folder: Path, device: str) -> Any:
    posterior = posterity.load(folder)
    if posterior.preprocessing is None:
        raise Error(
            f"{folder} was saved without its preprocessing, so files cannot be read for it: use it from Python, or "
            "train with  posterity train."
        )
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return posterior.to(device)
    except (RuntimeError, AssertionError) as error:
        raise Error(f"The device {device!r} cannot be used: {str(error).splitlines()[0]}") from error


@dataclass(frozen=True)
class Rows:
    """Inputs as the model takes them; where known, targets; and inputs unlike any it was trained on."""

    x: Tensor
    y: Tensor | None
    outside: Tensor | None = None
    outside_name: str = ""
    held_out: bool = False
    """Whether these are what was held out of the data that the model was trained on."""


def _data(
    data: str, preprocessing: Any, provenance: Provenance, seed: int, data_dir: Path | None, held_out: bool = True
) -> Rows:
    """Of a file, of what was held out of it in training where that is asked for, or of a built-in set's test part."""
    own = provenance.same_data(data, preprocessing, data_dir) if held_out or data in datasets.names() else None
    if own is not None:
        name = {"far away": FAR_AWAY}.get(own.outside_name, own.outside_name)
        return Rows(*own.test, own.outside, name, held_out=True)
    if data not in datasets.names():
        x, y = datasets.read_inputs(data, preprocessing)
        if preprocessing.kind == "table":
            return Rows(x, y, far_away(x, seed), FAR_AWAY)
        return Rows(x, y)
    found = datasets.load(data, seed=seed, data_dir=data_dir)
    x, y = found.test
    name = {"far away": FAR_AWAY}.get(found.outside_name, found.outside_name)
    if found.preprocessing.to_dict() == preprocessing.to_dict():
        return Rows(x, y, found.outside, name, held_out=True)
    theirs: Any = found.preprocessing
    if not (preprocessing.kind == theirs.kind == "images"):
        raise Error(
            f"The model was trained on other data than this split of {data}: give the --seed that it was trained "
            "with, or a file with the columns that it knows."
        )

    def again(images: Tensor) -> Tensor:
        shape = (1, -1, 1, 1)
        raw = (images * torch.tensor(theirs.std).view(shape) + torch.tensor(theirs.mean).view(shape)) * theirs.scale
        scaled: Tensor = preprocessing.inputs(raw / theirs.scale * preprocessing.scale)
        return scaled

    same = theirs.classes == preprocessing.classes
    outside = None if found.outside is None else again(found.outside)
    return Rows(again(x), y if same else None, outside, name)
