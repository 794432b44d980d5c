"""Predictions as a table beside their inputs, in a CSV or Parquet file."""

from pathlib import Path
from typing import Any

from posterity import datasets
from posterity.datasets import folders, readers
from posterity.datasets.readers import PARQUET
from posterity.errors import Error, require
from posterity.evaluation.positions import is_regression
from posterity.prediction import PARTS

MOST_CLASSES = 20
"""Up to so many classes have a column of probabilities each."""


def check_output(path: Path, data: str) -> bool:
    """Refuse what could not or should not be written in the end, before any work is done.

    Earlier predictions may be replaced, as results are by every command; nothing else may, least of all the data.

    Returns: whether there are earlier predictions.
    """
    if path.suffix.lower() not in (".csv", *PARQUET):
        raise Error(f"{path} must end in .csv or .parquet.")
    require("pandas")
    if path.suffix.lower() in PARQUET:
        require("pyarrow")
    if not path.exists():
        return False
    source = Path(data).expanduser()
    if source.exists() and path.samefile(source):
        raise Error(f"{path} holds the data themselves: name another file for the predictions with --out.")
    if not {column.removesuffix("_0") for column in _columns(path)}.issuperset(PARTS):
        raise Error(f"{path} is there already, and does not hold predictions: name another file with --out.")
    return True


def _columns(path: Path) -> list[str]:
    """The names of a file's columns; none where it is no table."""
    try:
        if path.suffix.lower() in PARQUET:
            return list(require("pyarrow.parquet").read_schema(path).names)
        return list(require("pandas").read_csv(path, nrows=0).columns)
    except (OSError, ValueError):  # pandas and pyarrow raise kinds of these where a file is something else
        return []


def prediction_table(prediction: Any, preprocessing: Any, data: str, trained: Any = ()) -> Any:
    """A data frame with one row for each input: the input's own columns where it is a table, then the prediction.

    ``trained`` [n] marks the rows that trained the model, in a column of its own where there are any.
    """
    pandas = require("pandas")
    columns = _regression(prediction) if is_regression(prediction) else _classes(prediction, preprocessing.classes)
    columns |= _by_output({part: getattr(prediction, part) for part in PARTS})
    if any(trained):
        columns["in_training"] = trained
    inputs = _inputs(data, preprocessing)
    return pandas.DataFrame({_free(name, columns): values for name, values in inputs.items()} | columns)


def write_table(frame: Any, path: Path) -> None:
    """Write a data frame to a CSV or Parquet file, all at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        if path.suffix.lower() in PARQUET:
            frame.to_parquet(partial, index=False)
        else:
            frame.to_csv(partial, index=False)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _regression(prediction: Any) -> dict[str, Any]:
    low, high = prediction.interval(0.9)
    return _by_output({"mean": prediction.mean, "std": prediction.std, "low90": low, "high90": high})


def _by_output(values: dict[str, Any]) -> dict[str, Any]:
    """A column of each value, or with several targets one of each target: mean_0, mean_1."""
    columns: dict[str, Any] = {}
    for name, value in values.items():
        outputs = value.reshape(len(value), -1).cpu().numpy().T
        columns |= {name if len(outputs) == 1 else f"{name}_{i}": output for i, output in enumerate(outputs)}
    return columns


def _classes(prediction: Any, classes: list[str]) -> dict[str, Any]:
    probability, best = prediction.probs.max(dim=1)
    columns: dict[str, Any] = {
        "prediction": [classes[index] for index in best.tolist()],
        "probability": probability.cpu().numpy(),
    }
    if len(classes) <= MOST_CLASSES:
        columns |= {f"probability_{name}": prediction.probs[:, i].cpu().numpy() for i, name in enumerate(classes)}
    return columns


def _inputs(data: str, preprocessing: Any) -> dict[str, Any]:
    """What the file says of each row: a table's columns, or the names of images; nothing for arrays."""
    path = Path(data).expanduser()
    if data in datasets.names() or path.suffix.lower() == ".npz":
        return {}
    if preprocessing.kind == "images":
        files = [file for file, _ in folders.list_images(path)] if path.is_dir() else [path]
        return {"file": [str(file.relative_to(path) if path.is_dir() else file) for file in files]}
    return dict(readers.read_table(path, preprocessing.target))


def _free(name: str, taken: dict[str, Any]) -> str:
    """An input's name that is not a prediction's."""
    while name in taken:
        name = f"input_{name}"
    return name
