"""Preprocessing as a part of the program: from raw rows and images to the inputs of a network."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posterity.datasets.columns import _CLIP, LARGEST, Column
from posterity.datasets.preprocessing import ImagePreprocessing, TablePreprocessing


class TableRows(nn.Module):
    """Rows of a table as numbers, float64 `[batch, columns]` → `[batch, features]`, as `Column.encode` has them.

    A feature is read off one column v, either as a value, (v − mean) / std with the median where v is missing, or as a
    flag: whether v is `code` or, where `absent`, missing.
    """

    meaning = (
        "one row of the table each, its columns as in 'columns': a number as it is, a date as days since 1970-01-01, a "
        "category as its place in the column's list, from 0, or -1 if it is not there; NaN where the value is missing"
    )
    source: Tensor
    mean: Tensor
    std: Tensor
    median: Tensor
    code: Tensor
    flag: Tensor
    absent: Tensor

    def __init__(self, preprocessing: TablePreprocessing, dtype: torch.dtype) -> None:
        super().__init__()
        self.columns, self.dtype = preprocessing.columns, dtype
        features = [(i, *feature) for i, column in enumerate(self.columns) for feature in _features(column)]
        kinds = {"source": torch.int64, "flag": torch.bool, "absent": torch.bool}
        names = ("source", "mean", "std", "median", "code", "flag", "absent")
        for name, values in zip(names, zip(*features, strict=True), strict=True):
            self.register_buffer(name, torch.tensor(values, dtype=kinds.get(name, torch.float64)))

    def forward(self, x: Tensor) -> Tensor:
        """The features of rows, `[batch, features]`."""
        v = x[:, self.source]
        gone = v.isnan() | (v.abs() > LARGEST)
        value = ((torch.where(gone, self.median, v) - self.mean) / self.std).clamp(-_CLIP, _CLIP)
        flag = (v == self.code) | (gone & self.absent)
        return torch.where(self.flag, flag.to(value.dtype), value).float().to(self.dtype)

    def example(self) -> tuple[Tensor, dict[str, np.ndarray]]:
        """A few rows, the last without any value: as the program takes them, and as `Preprocessing.inputs` does."""
        pairs = [_example(column) for column in self.columns]
        table = {column.name: known for column, (known, _) in zip(self.columns, pairs, strict=True)}
        return torch.from_numpy(np.stack([given for _, given in pairs], axis=1)), table

    def facts(self) -> dict[str, Any]:
        """What the columns are."""
        return {
            "columns": [
                {"name": column.name, "kind": column.kind}
                | ({"categories": list(column.categories)} if column.kind == "category" else {})
                for column in self.columns
            ]
        }


class ImageRows(nn.Module):
    """Images, float32 `[batch, channels, height, width]`, as `ImagePreprocessing` standardises them."""

    mean: Tensor
    std: Tensor

    def __init__(self, preprocessing: ImagePreprocessing, dtype: torch.dtype) -> None:
        super().__init__()
        self.scale, self.dtype = preprocessing.scale, dtype
        self.shape = (preprocessing.channels, *preprocessing.size)
        self.meaning = f"one image each, its numbers as they were read, of which {self.scale:g} stands for 1"
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(getattr(preprocessing, name))[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """The images, standardised."""
        return ((x / self.scale - self.mean) / self.std).to(self.dtype)

    def example(self) -> tuple[Tensor, np.ndarray]:
        """Three images, as the program takes them and as `Preprocessing.inputs` does."""
        ramp = torch.linspace(0, self.scale, math.prod(self.shape)).view(self.shape)
        images = torch.stack([ramp, self.scale - ramp, (ramp - self.scale / 2).abs()])
        return images, images.numpy()

    def facts(self) -> dict[str, Any]:
        """There is no more to say."""
        return {}


def rows(preprocessing: Any, dtype: torch.dtype) -> TableRows | ImageRows:
    """The preprocessing as a module, for a network of that type."""
    return (TableRows if isinstance(preprocessing, TablePreprocessing) else ImageRows)(preprocessing, dtype)


def _features(column: Column) -> Iterator[tuple[float, float, float, float, bool, bool]]:
    """What is read off a column: mean, std, median, code, whether it is a flag, whether a missing value raises it."""
    if column.kind == "category":
        for code, category in enumerate(column.categories):
            yield 0.0, 1.0, 0.0, code, True, category is None
        return
    yield column.mean, column.std, column.median, math.nan, False, False
    if column.indicator:
        yield 0.0, 1.0, 0.0, math.nan, True, True


def _example(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Values of a column as a file has them, and the numbers that stand for them; the last is missing."""
    if column.kind == "category":
        places = [i % len(column.categories) for i in range(4)]
        texts = [column.categories[i] for i in places]
        return np.array([*texts, None], dtype=object), np.array([*places, math.nan], dtype=np.float64)
    values = column.mean + column.std * np.array([0.0, -1.0, 1.5, 0.3])
    if column.kind == "number":
        values = np.append(values, math.nan)
        return values, values
    seconds = np.round(values * 86_400)
    days = np.append(seconds / 86_400, math.nan)
    return np.append(seconds.astype("datetime64[s]"), np.datetime64("NaT", "s")), days
