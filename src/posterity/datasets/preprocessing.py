"""From raw rows and images to the tensors a network was trained on; kept as JSON beside the model."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from posterity.datasets import checks, formats
from posterity.datasets.columns import Column, labels, missing, numbers, place_numbers
from posterity.errors import Error, short

MOST_COLUMNS = 10_000
_MOST_CLASSES = 100_000
LARGEST_SIDE = 4_096
MOST_CHANNELS = 64


@dataclass(frozen=True, kw_only=True)
class Preprocessing(ABC):
    """What new inputs and targets need; a table's or images'. For regression, targets are (value − mean) / std."""

    kind: ClassVar[str]
    """Either "table" or "images"."""
    target: str = "y"
    """The target column."""
    classes: list[str] | None = None
    """For classification, the class names in the order of the network's outputs; else None."""
    target_mean: float | list[float] = 0.0
    """Of the training targets, for regression; a list where rows have several."""
    target_std: float | list[float] = 1.0
    """Of the training targets, for regression; a list where rows have several."""
    target_format: str = ""
    """The decimal mark of the training targets, "." or ","; "" where they did not show it."""

    @abstractmethod
    def inputs(self, raw: Any) -> Tensor:
        """Turn raw inputs into the float32 tensor the network takes."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold and ``from_dict`` reads."""
        return {"kind": self.kind, **json.loads(json.dumps(asdict(self)))}

    def targets(self, raw: Any, form: str | None = None) -> Tensor:
        """Turn raw targets [n] into class numbers, int64 [n], or standardised values, float32 [n, 1].

        Several targets per row, [n, targets], become float32 [n, targets].

        ``form`` is the decimal mark of texts, by default that of training.
        """
        if isinstance(self.target_mean, list):
            return self._several(raw)
        values = np.asarray(raw)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise Error(f"The target {self.target!r} must be one column, not an array of {values.shape}.")
        if missing(values).any():
            raise Error(f"The target {self.target!r} has missing values: leave those rows out.")
        if form is None:
            form = formats.marks({self.target: (values, self.target_format)})[self.target]
        if self.classes is not None:
            return self._class_numbers(values, form)
        value = numbers(values, form)
        if not np.isfinite(value).all():
            example = values[~np.isfinite(value)][0]
            raise Error(f"The target {self.target!r} holds {short(example)}, which is no finite number.")
        value = (value - self.target_mean) / self.target_std
        return torch.from_numpy(value.astype(np.float32))[:, None]

    def _several(self, raw: Any) -> Tensor:
        values = numeric(raw)
        count = len(np.atleast_1d(self.target_mean))
        if values.ndim != 2 or values.shape[1] != count or not np.isfinite(values).all():
            raise Error(f"The targets must be finite numbers of shape [n, {count}]; got {list(values.shape)}.")
        return torch.from_numpy(((values - self.target_mean) / np.asarray(self.target_std)).astype(np.float32))

    def _class_numbers(self, values: np.ndarray, form: str) -> Tensor:
        assert self.classes is not None
        names = self.classes
        if values.dtype.kind in "iu" and not any(name.lstrip("-").isdigit() for name in self.classes):
            names = [str(i) for i in range(len(self.classes))]
        found = place_numbers(values, names, form)
        if unknown := sorted({str(name) for name, place in zip(labels(values), found, strict=True) if place is None}):
            raise Error(
                f"The target {self.target!r} holds {', '.join(map(repr, unknown[:5]))}, which the model does not "
                f"know; it was trained on {', '.join(map(repr, self.classes[:20]))}."
            )
        return torch.tensor(found, dtype=torch.int64)

    @staticmethod
    def from_dict(value: object) -> "Preprocessing":
        """Rebuild what ``to_dict`` wrote; anything else is an ``Error``."""
        kind = value.get("kind") if isinstance(value, Mapping) else None
        cls: type[TablePreprocessing] | type[ImagePreprocessing]
        if kind == "table":
            cls = TablePreprocessing
        elif kind == "images":
            cls = ImagePreprocessing
        else:
            raise Error("The preprocessing of this model is damaged: its kind must be 'table' or 'images'.")
        entry = checks.mapping(value, {"kind", *cls.__dataclass_fields__}, "the preprocessing", {"target_format": ""})
        classes = entry["classes"]
        target = {
            "target": checks.text(entry["target"], "target"),
            "classes": None if classes is None else checks.texts(classes, "classes", most=_MOST_CLASSES),
            **_moments(entry["target_mean"], entry["target_std"]),
            "target_format": checks.one_of(entry["target_format"], "target_format", ("", *formats.MARKS)),
        }
        return cls._read(entry, target)

    @classmethod
    @abstractmethod
    def _read(cls, entry: Mapping[str, Any], target: dict[str, Any]) -> "Preprocessing": ...


@dataclass(frozen=True, kw_only=True)
class TablePreprocessing(Preprocessing):
    """Of tables: ``features`` are the input columns of the file in order, ``columns`` those in use."""

    kind: ClassVar[str] = "table"
    features: list[str]
    columns: list[Column]

    def inputs(self, raw: Any) -> Tensor:
        """Turn a table into float32 [n, features of the network].

        ``raw`` is a data frame, a mapping of names to columns or a list of rows that map names to values, which
        may hold further columns, or an array [n, features] with all columns of the training file but the target, in
        its order.
        """
        if hasattr(raw, "columns") and hasattr(raw, "iloc"):
            from posterity.datasets.readers import from_frame

            raw = from_frame(raw)
        elif hasattr(raw, "columns") and hasattr(raw, "to_numpy"):
            raw = {str(name): np.asarray(raw[name]) for name in raw.columns}
        if isinstance(raw, list) and raw and all(isinstance(row, Mapping) for row in raw):
            names = dict.fromkeys(name for row in raw for name in row)
            raw = {name: np.array([row.get(name) for row in raw], dtype=object) for name in names}
        table = raw if isinstance(raw, Mapping) else self._named(raw)
        return self.encode(table, self.marks(table))

    def marks(self, table: Mapping[str, Any]) -> dict[str, str]:
        """The decimal mark by which each column of a table is read; an unseen target's is left out."""
        known = {column.name: column.format for column in self.columns if column.kind != "date"}
        known |= {self.target: self.target_format}
        columns = {name: (np.asarray(table[name]), mark) for name, mark in known.items() if name in table}
        return formats.marks(columns, getattr(table, "decimal", ""))

    def encode(self, table: Mapping[str, Any], marks: Mapping[str, str]) -> Tensor:
        """Turn raw columns by name into float32 [n, features of the network], read by these decimal marks."""
        absent = [column.name for column in self.columns if column.name not in table]
        if absent:
            raise Error(f"These columns, on which the model was trained, are not there: {', '.join(absent[:20])}.")
        parts = [column.encode(np.asarray(table[column.name]), marks.get(column.name)) for column in self.columns]
        if len({len(part) for part in parts}) != 1:
            raise Error("The columns of the table differ in length.")
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def decode(self, x: Tensor) -> list[dict[str, str]]:
        """Write inputs [n, features of the network] as text: for each row, its columns by name."""
        parts = np.split(x.cpu().numpy(), np.cumsum([column.width for column in self.columns])[:-1], axis=1)
        texts = [column.decode(part) for column, part in zip(self.columns, parts, strict=True)]
        return [dict(zip((c.name for c in self.columns), row, strict=True)) for row in zip(*texts, strict=True)]

    def _named(self, raw: Any) -> dict[str, np.ndarray]:
        array = as_array(raw, object if isinstance(raw, list) else None)
        array = array if array.dtype.kind in "OUT" else numeric(array)
        if array.ndim == 1 and len(self.features) == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != len(self.features):
            raise Error(f"The inputs must be of shape [n, {len(self.features)}], not {list(array.shape)}.")
        return dict(zip(self.features, array.T, strict=True))

    @classmethod
    def _read(cls, entry: Mapping[str, Any], target: dict[str, Any]) -> "TablePreprocessing":
        features = checks.texts(entry["features"], "features", most=MOST_COLUMNS)
        columns = [Column.from_dict(c) for c in checks.sequence(entry["columns"], "columns", most=MOST_COLUMNS)]
        checks.texts([column.name for column in columns], "columns", most=MOST_COLUMNS)
        if not {column.name for column in columns} <= set(features):
            raise Error("The preprocessing of this model is damaged: it uses columns that it does not name.")
        return cls(features=features, columns=columns, **target)


@dataclass(frozen=True, kw_only=True)
class ImagePreprocessing(Preprocessing):
    """Of images of one ``size`` (height, width): divided by ``scale``, then standardised per channel."""

    kind: ClassVar[str] = "images"
    channels: int
    size: tuple[int, int]
    scale: float
    mean: list[float]
    std: list[float]

    def inputs(self, raw: Any) -> Tensor:
        """Turn images, [n, channels, height, width] or [n, height, width(, channels)], into float32."""
        array = numeric(raw)
        if array.ndim == 3:
            array = array[:, None]
        if array.shape[1:] == (*self.size, self.channels) != (self.channels, *self.size):
            array = array.transpose(0, 3, 1, 2)
        x = torch.from_numpy(array.astype(np.float32)).div_(self.scale)
        if x.shape[1:] != (self.channels, *self.size):
            raise Error(
                f"The images must be of {self.channels} channels and {self.size[0]} × {self.size[1]} pixels, "
                f"not {list(x.shape[1:])}."
            )
        if not torch.isfinite(x).all():
            raise Error("The images hold values that are not finite.")
        return x.sub_(torch.tensor(self.mean)[:, None, None]).div_(torch.tensor(self.std)[:, None, None])

    @classmethod
    def fit(cls, raw: np.ndarray, *, scale: float = 255.0, **target: Any) -> "ImagePreprocessing":
        """Learn the mean and spread of each channel from training images [n, channels, height, width]."""
        channels, height, width = raw.shape[1:]
        if channels > MOST_CHANNELS or max(height, width) > LARGEST_SIDE or not raw.size:
            raise Error(f"Images of {channels} channels and {height} × {width} pixels cannot be used.")
        if raw.dtype.kind == "f" and not (np.abs(raw) < 1e30).all():
            raise Error("The images hold values that are not finite.")
        mean, std = [], []
        for channel in range(channels):
            values = raw[:, channel].astype(np.float32)
            mean.append(float(values.mean(dtype=np.float64)) / scale)
            # A channel that never changes is only centred.
            std.append(float(values.std(dtype=np.float64)) / scale or 1.0)
        return cls(channels=channels, size=(height, width), scale=scale, mean=mean, std=std, **target)

    @classmethod
    def _read(cls, entry: Mapping[str, Any], target: dict[str, Any]) -> "ImagePreprocessing":
        channels = checks.whole(entry["channels"], "channels", most=MOST_CHANNELS)
        sides = [checks.whole(n, "size", most=LARGEST_SIDE) for n in checks.sequence(entry["size"], "size", most=2)]
        mean = [checks.number(m, "mean") for m in checks.sequence(entry["mean"], "mean", most=MOST_CHANNELS)]
        std = [checks.number(s, "std", positive=True) for s in checks.sequence(entry["std"], "std", most=MOST_CHANNELS)]
        if len(sides) != 2 or not len(mean) == len(std) == channels:
            raise Error("The preprocessing of this model is damaged: sizes and channels do not agree.")
        scale = checks.number(entry["scale"], "scale", positive=True)
        return cls(channels=channels, size=(sides[0], sides[1]), scale=scale, mean=mean, std=std, **target)


def _moments(mean: object, std: object) -> dict[str, Any]:
    """Mean and standard deviation of the targets, a number each or, for several targets, lists of the same length."""
    if not isinstance(mean, list):
        return {
            "target_mean": checks.number(mean, "target_mean"),
            "target_std": checks.number(std, "target_std", positive=True),
        }
    means = [checks.number(m, "target_mean") for m in checks.sequence(mean, "target_mean", most=_MOST_CLASSES)]
    stds = checks.sequence(std, "target_std", most=_MOST_CLASSES)
    if len(means) != len(stds):
        raise Error("The preprocessing of this model is damaged: the targets' means and deviations do not agree.")
    return {"target_mean": means, "target_std": [checks.number(s, "target_std", positive=True) for s in stds]}


def as_array(raw: Any, dtype: Any = None) -> np.ndarray:
    """Return an array, or raise an ``Error`` where rows differ in length or values are hidden."""
    if np.ma.is_masked(raw):
        raise Error("A masked array hides some of its values: fill them first.")
    try:
        return raw.detach().cpu().numpy() if isinstance(raw, Tensor) else np.asarray(raw, dtype)
    except ValueError as error:
        raise Error("The rows must be of the same length, and images of the same size.") from error


def numeric(raw: Any) -> np.ndarray:
    """Return an array of real numbers, or raise an ``Error``."""
    array = as_array(raw)
    if array.dtype.kind not in "bfiu":
        raise Error(f"The inputs must be an array of numbers, not of {array.dtype}.")
    return array


def channels_first(array: np.ndarray) -> np.ndarray:
    """Return images as [n, channels, height, width]; 1, 3 or 4 at either end count as channels."""
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 4 and array.shape[1] not in (1, 3, 4) and array.shape[3] in (1, 3, 4):
        return array.transpose(0, 3, 1, 2)
    if array.ndim != 4:
        raise Error(f"Images must be an array [n, channels, height, width], not of shape {list(array.shape)}.")
    return array
