"""Table 7: a trained network made Bayesian in 15 epochs.

The paper's network is ResNet-50 on ImageNet, which runs where a data folder holds `imagenet/train/CLASS/IMAGE`,
`imagenet/val/CLASS/IMAGE` and `pretrained/resnet50.safetensors`. The same recipe runs on CIFAR-10, where a data folder
holds `pretrained/cifar10_resnet20.safetensors` or `cifar10_resnet56.safetensors` (the networks of He et al. 2016).

The paper does not say how far apart the components start, nor how many samples a datum has: here they start at the
prior's deviation, and one. Its rates are for the sum over components.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import posterity
from posterity.datasets import files, folders, readers
from posterity.errors import Error, require
from posterity.papers import published
from posterity.papers.cells import STANDARDS, Cell
from posterity.papers.reproduction import Bench, Outcome, Table

COMPONENTS = (4, 8, 16)
SCORES = ("error", "nll", "ece")
STARTS = {20: "cifar10_resnet20.safetensors", 56: "cifar10_resnet56.safetensors"}


def table_7(bench: Bench) -> Outcome:
    """The trained network's scores, and those of iBNN with 4, 8 and 16 components."""
    numbers: dict[str, dict[str, Any]] = {}
    rows, findings = [], []
    for title, (name, make) in _networks(bench).items():
        found = numbers[title] = {}
        for k in bench.pick(smoke=(4,), small=(4, 16), full=COMPONENTS):
            records = make(k).records(bench, f"{name}-ibnn-{k}")
            if records:
                found.setdefault("SGD", records[0]["start"]["scores"])
                found[f"iBNN-{k}"] = {
                    score: float(np.mean([record["scores"][score] for record in records])) for score in SCORES
                }
        for method, scores in found.items():
            known = published.IBNN_PRETRAINED[method] if title == "ResNet-50, ImageNet" else ("–", "–", "–")
            mine = [f"{100 * scores['error']:.2f}", f"{scores['nll']:.4f}", f"{scores['ece']:.4f}"]
            rows.append([title, method, *(str(v) for pair in zip(mine, known, strict=True) for v in pair)])
        findings += _findings(title, found)
    numbers = {title: found for title, found in numbers.items() if found}
    columns = ["", "method", "error, %", "published", "NLL", "published", "ECE", "published"]
    return Outcome(numbers, [Table("Trained networks made Bayesian in 15 epochs", columns, rows)], findings)


def _findings(title: str, found: dict[str, Any]) -> list[str]:
    """Whether each score is better than the trained network's, with every number of components."""
    bayesian = {method: scores for method, scores in found.items() if method != "SGD"}
    lines = []
    for score in SCORES if bayesian else ():
        better = [method for method, scores in bayesian.items() if scores[score] < found["SGD"][score]]
        which = "all" if len(better) == len(bayesian) else ", ".join(better) or "none"
        lines.append(f"{title}: {score} is lower than the trained network's with {which} of {', '.join(bayesian)}.")
    return lines


def _networks(bench: Bench) -> dict[str, tuple[str, Callable[[int], Cell]]]:
    """Title, name, and the cell by the number of components, of each trained network that is at hand."""
    found: dict[str, tuple[str, Callable[[int], Cell]]] = {}
    if bench.size == "smoke":
        _smoke_start(bench)
        found["ResNet-8, digits"] = "resnet8-digits", lambda k: _cifar(bench, 8, "start.safetensors", k)
    for depth, file in STARTS.items() if bench.size != "smoke" else ():
        if bench.recorded or files.find(files.Collection("", "pretrained", (file,)), bench.data_dir):
            make = lambda k, depth=depth, file=file: _cifar(bench, depth, file, k)  # noqa: E731
            found[f"ResNet-{depth}, CIFAR-10"] = f"resnet{depth}-cifar10", make
    if imagenet(bench.data_dir) is not None:
        found["ResNet-50, ImageNet"] = "resnet50-imagenet", lambda k: _imagenet(bench, k)
    if not found:
        raise Error(
            "Table 7 needs trained weights: put cifar10_resnet20.safetensors, or ImageNet's images and "
            "resnet50.safetensors, below a data folder as pretrained/FILE (imagenet/train, imagenet/val), and name "
            "that folder by --data-dir."
        )
    return found


def _recipe(k: int, epochs: int) -> dict[str, Any]:
    """The paper's 15 epochs, as arguments of a cell."""
    return {
        "method": "ibnn",
        "posterior": {
            "components": k,
            "prior_std": 0.1,
            "init_std": 0.1,
            "kl": "mixture_mean",
            "gamma": 0.0,
            "assignment": "authors",
        },
        "fit": {
            "epochs": epochs,
            "batch_size": 256,
            "optimizer": "sgd",
            "lr": 1e-4,
            "schedule": "constant",
            "lr_posterior": 0.2 / k,
            "schedule_posterior": "table 7",
            "weight_decay": 1e-4,
        },
        "draws": 5 * k,
    }


def _cifar(bench: Bench, depth: int, file: str, k: int) -> Cell:
    smoke = bench.size == "smoke"
    arguments = {"depth": depth, "classes": 10, "in_channels": 1 if smoke else 3}
    return Cell(
        "digits" if smoke else "cifar10",
        {"name": "resnet", "arguments": arguments},
        standard=None if smoke else "imagenet",
        images=bench.pick(smoke=100, small=5_000, full=None),
        tested=bench.pick(smoke=50, small=2_000, full=None),
        start=file,
        **_recipe(k, bench.pick(smoke=1, small=15, full=15)),
    )


def _smoke_start(bench: Bench) -> None:
    """A network that is hardly trained, in place of trained weights."""
    path = bench.folder / "start.safetensors"
    if path.is_file():
        return
    train, _, _ = _cifar(bench, 8, path.name, 4).parts(bench)
    network = posterity.networks.ResNet(8, in_channels=1)
    posterity.fit(posterity.MAP(network), train, epochs=2, seed=0, device="cpu", progress=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(network.state_dict(), path)


def imagenet(data_dir: Path | None) -> Path | None:
    """The folder `imagenet` with `train` and `val`, below a data folder."""
    roots = [Path(root).expanduser() for root in (data_dir, os.environ.get("POSTERITY_DATA")) if root]
    found = (root / "imagenet" for root in roots)
    return next((path for path in found if (path / "train").is_dir() and (path / "val").is_dir()), None)


def _imagenet(bench: Bench, k: int) -> "Folder":
    folder = imagenet(bench.data_dir)
    assert folder is not None
    classes = len([path for path in (folder / "train").iterdir() if path.is_dir()])
    return Folder(
        "imagenet",
        {"name": "resnet50", "arguments": {"classes": classes}},
        standard="imagenet",
        augment=False,
        crop=bench.pick(smoke=64, small=224, full=224),
        start="resnet50.safetensors",
        **_recipe(k, bench.pick(smoke=1, small=15, full=15)),
    )


@dataclass(frozen=True)
class Folder(Cell):
    """A cell whose images are read from a folder as they are needed."""

    def parts(self, bench: Bench) -> tuple[Any, tuple[Any, Tensor], list[float]]:
        """Loaders of the training and of the test images."""
        folder = imagenet(bench.data_dir)
        assert folder is not None
        assert self.crop is not None
        workers = 0 if bench.size == "smoke" else min(16, os.cpu_count() or 1)
        train = Pictures(folder / "train", self.crop, changed=True)
        test = Pictures(folder / "val", self.crop, changed=False)
        loaders = [
            DataLoader(part, self.fit["batch_size"], shuffle=part is train, num_workers=workers)
            for part in (train, test)
        ]
        return loaders[0], (loaders[1], torch.tensor(test.labels)), []


class Pictures(Dataset[tuple[Tensor, int]]):
    """Images in a folder for each class: a random part, mirrored or not, for training; the middle for a test.

    Args:
        folder: of folders.
        pixels: each way.
        changed: whether the part is random (Szegedy et al. 2015: 8 to 100 % of the area, 3 : 4 to 4 : 3).
    """

    def __init__(self, folder: Path, pixels: int, changed: bool) -> None:
        found = folders.list_images(folder)
        if not found or found[0][1] is None:
            raise Error(f"{folder} must hold one folder for each class with images in it.")
        classes = {name: number for number, name in enumerate(sorted({name for _, name in found if name}))}
        self.files = [path for path, _ in found]
        self.labels = [classes[name] for _, name in found if name]
        self.pixels, self.changed = pixels, changed
        mean, std = STANDARDS["imagenet"]
        self.mean, self.std = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = require("PIL.Image")

        def read(file: Any) -> np.ndarray:
            with image.open(file, formats=folders.FORMATS) as picture:
                folders.check_pixels(self.files[index], picture)
                picture = picture.convert("RGB")
                box = self._random(*picture.size) if self.changed else self._middle(*picture.size)
                size = (self.pixels, self.pixels)
                return np.asarray(picture.resize(size, image.Resampling.BILINEAR, box=box), dtype=np.float32)

        x = torch.from_numpy(readers.guard(self.files[index], read).copy()).permute(2, 0, 1) / 255
        if self.changed and float(torch.rand(())) < 0.5:
            x = x.flip(2)
        return (x - self.mean) / self.std, self.labels[index]

    @staticmethod
    def _middle(width: int, height: int) -> tuple[float, float, float, float]:
        """The middle seven eighths of the shorter side, which is 224 of 256 pixels."""
        side = min(width, height) * 224 / 256
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    @staticmethod
    def _random(width: int, height: int) -> tuple[float, float, float, float]:
        """A random part of the image."""
        share, shape, right, down = torch.rand(4).tolist()
        area, ratio = width * height * (0.08 + 0.92 * share), (3 / 4) ** (1 - 2 * shape)
        across, along = min(width, (area * ratio) ** 0.5), min(height, (area / ratio) ** 0.5)
        left, top = right * (width - across), down * (height - along)
        return left, top, left + across, top + along
