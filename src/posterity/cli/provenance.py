"""Which rows a model was trained on: kept in its folder, and found again in the data that it is given later."""

import contextlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from posterity import datasets
from posterity.cli.folder import read
from posterity.cli.runs import fingerprint
from posterity.datasets.fingerprints import fingerprints
from posterity.datasets.readers import read_npz
from posterity.errors import Error

NOTE = "arguments.json"
"""In a model's folder: of which run it is, with its data, target and seed."""
ROWS = "training_rows.npz"
"""In a model's folder: the fingerprints of the rows that it was trained on, and the share of test rows alike."""


def write(folder: Path, data: datasets.Data) -> None:
    """Keep the fingerprints of the training rows beside a model."""
    rows = np.sort(fingerprints(data.train[0]))
    alike = np.isin(fingerprints(data.test[0]), rows).mean()
    partial = folder / f".{ROWS}.partial"
    with partial.open("wb") as file:
        np.savez(file, rows=rows, alike=alike)
    partial.replace(folder / ROWS)


@dataclass(frozen=True)
class Provenance:
    """Of a model: its data and split, as far as its folder says."""

    run: dict[str, Any] | None
    """As `Folder.run` has it."""
    rows: np.ndarray | None
    """The fingerprints of the training rows, uint64 [n]."""
    alike: float
    """The share of its test rows whose inputs are also those of a training row."""

    @classmethod
    def of(cls, folder: Path) -> "Provenance":
        """What a model's folder says; of one that says nothing, nothing."""
        run = read(folder / NOTE)
        if not (folder / ROWS).is_file():
            return cls(run, None, 0.0)
        arrays = read_npz(folder / ROWS, ["rows", "alike"])
        if set(arrays) != {"rows", "alike"} or arrays["rows"].dtype != np.uint64 or arrays["alike"].shape != ():
            raise Error(f"{folder / ROWS} is corrupt: copy or train the model again.")
        return cls(run, arrays["rows"].ravel(), float(arrays["alike"]))

    def same_data(self, data: str, preprocessing: Any, data_dir: Path | None) -> datasets.Data | None:
        """The data split as for the model, where they are those that it was trained on; else None."""
        run = self.run or {}
        content = run.get("content")
        if run.get("data") != data if data in datasets.names() else not content or fingerprint(Path(data)) != content:
            return None
        with warnings.catch_warnings(), contextlib.suppress(Error):
            warnings.simplefilter("ignore")  # all was said in training
            found = datasets.load(
                data, target=run.get("target"), task=run.get("task"), seed=run.get("seed", 0), data_dir=data_dir
            )
            if _learned(found.preprocessing) == _learned(preprocessing):
                return found
        return None

    def trained(self, x: Tensor) -> np.ndarray:
        """Which rows have the inputs of a training row, bool [n]; as far as is known, none."""
        return np.zeros(len(x), dtype=bool) if self.rows is None else np.isin(fingerprints(x), self.rows)

    def warn(self, data: str, trained: np.ndarray, then: str) -> None:
        """Say how many rows are training rows, unless as many new ones could be alike; or that this is not known."""
        if self.rows is None:
            warnings.warn(f"The model does not say on which rows it was trained: if some of {data} are, {then}")
            return
        n, count = len(trained), int(trained.sum())
        if count > n * self.alike + 3 * (n * self.alike * (1 - self.alike)) ** 0.5:
            warnings.warn(f"{count:,} of {n:,} rows of {data} have the inputs of rows that trained the model: {then}")


def _learned(preprocessing: Any) -> dict[str, Any]:
    """What was learned of the training rows; how texts are read is left out, which older models do not say."""
    held = preprocessing.to_dict() | {"target_format": ""}
    return held | {"columns": [column | {"format": ""} for column in held.get("columns", ())]}
