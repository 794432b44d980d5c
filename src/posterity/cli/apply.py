"""`posterity predict` and `evaluate`: what a trained model says of new data, and how well."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import posterity
from posterity import datasets, evaluation
from posterity.cli import options
from posterity.cli.console import Output
from posterity.cli.runs import judged
from posterity.cli.tables import check_output, prediction_table, write_table
from posterity.errors import Error
from posterity.report import Comparison

Split = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Of the draws, and of the split of built-in data.")
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
    built-in data, the test part is predicted.
    """
    output = Output(json)
    check_output(out)
    with output.working():
        posterior = _load(model, device)
        x, _ = _rows(data, posterior.preprocessing, seed, data_dir)
        prediction, _ = judged(posterior, x, None, posterior.preprocessing, samples, seed)
        write_table(prediction_table(prediction, posterior.preprocessing, data), out)
    parts = {part: float(getattr(prediction, part).mean()) for part in ("total", "aleatoric", "epistemic")}
    said = ", ".join(f"{part} {value:.4g}" for part, value in parts.items())
    output.say(f"{len(prediction):,} predictions are in {out}. Their mean uncertainty: {said}.")
    output.finish({"rows": len(prediction), "out": str(out), "mean": parts})


def evaluate(
    model: options.Model,
    data: options.Data,
    samples: options.Samples = None,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    seed: Split = 0,
    json: options.Json = False,
) -> None:
    """Score a trained model on data with known targets.

    Example: `posterity evaluate model new.csv`

    Use data that the model was not trained on: on others its scores flatter it. Of built-in data, the test part
    is used.
    """
    output = Output(json)
    with output.working():
        posterior = _load(model, device)
        x, y = _rows(data, posterior.preprocessing, seed, data_dir)
        if y is None:
            raise Error(
                f"{data} has no targets to compare with: it needs a value of "
                f"{posterior.preprocessing.target!r} in every row. Without targets, use  posterity predict."
            )
        prediction, y = judged(posterior, x, y, posterior.preprocessing, samples, seed)
        scores = evaluation.scorecard(prediction, y)
    task = "regression" if evaluation.is_regression(prediction) else "classification"
    name = {cls: name for name, cls in posterity.methods().items()}[type(posterior)]
    output.scores(Comparison(data, task, {name: scores}))
    output.finish({"data": data, "model": str(model), "method": name, "rows": len(y), "scores": scores})


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


def _rows(data: str, preprocessing: Any, seed: int, data_dir: Path | None) -> tuple[Tensor, Tensor | None]:
    """Inputs as the model takes them and, where known, targets: of a file, or of a built-in set's test part."""
    if data not in datasets.names():
        return datasets.read_inputs(data, preprocessing)
    found = datasets.load(data, seed=seed, data_dir=data_dir)
    x, y = found.test
    if found.preprocessing.to_dict() == preprocessing.to_dict():
        return x, y
    theirs: Any = found.preprocessing
    if not (preprocessing.kind == theirs.kind == "images"):
        raise Error(
            f"The model was trained on other data than this split of {data}: give the --seed that it was trained "
            "with, or a file with the columns that it knows."
        )
    shape = (1, -1, 1, 1)
    raw = (x * torch.tensor(theirs.std).view(shape) + torch.tensor(theirs.mean).view(shape)) * theirs.scale
    same = theirs.classes == preprocessing.classes
    return preprocessing.inputs(raw / theirs.scale * preprocessing.scale), y if same else None
