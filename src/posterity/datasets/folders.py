"""Folders of images, one subfolder a class, and arrays of images."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posterity.datasets.data import Data
from posterity.datasets.preprocessing import ImagePreprocessing, Preprocessing
from posterity.datasets.readers import guard
from posterity.datasets.tables import Rows, choose_rows
from posterity.errors import Error, require, short

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
_LARGEST_SIDE = 64
_SMALLEST_SIDE = 4
_MOST_PIXELS = 100_000_000
_DEEP = 65_535 / 255  # the grey levels of 16 bits to each of 8
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B")


def list_images(folder: Path) -> list[tuple[Path, str | None]]:
    """Return the images in a folder and the class of each: its subfolder's name, else None."""
    classes = [(path, path.name) for path in _subfolders(folder)]
    found: list[tuple[Path, str | None]] = [(file, name) for path, name in classes for file in _images(path)]
    return found or [(file, None) for file in _images(folder)]


def load(name: str, folder: Path, task: str | None, seed: int) -> Data:
    """Return ``Data`` from folder/class/image, or from folder/train/class/image and folder/test/class/image.

    All images get one size, the median of height and of width, at most 64; they are grey if all files are.
    """
    if task not in (None, "classification"):
        raise Error(f"A folder of images can only be classified; the task cannot be {short(task)}.")
    parts = [folder / "train", folder / "test"]
    if all(_subfolders(part) for part in parts if part.is_dir()) and all(part.is_dir() for part in parts):
        listed = [list_images(part) for part in parts]
        test = np.arange(sum(map(len, listed))) >= len(listed[0])
        files = listed[0] + listed[1]
    else:
        files, test = list_images(folder), None
    if not files or files[0][1] is None:
        raise Error(
            f"{folder} must hold one folder for each class with images in it "
            f"({', '.join(SUFFIXES)}): {folder.name}/cat/1.png, {folder.name}/dog/2.png and so on."
        )
    y = np.array([label for _, label in files], dtype=object)
    rows = choose_rows(y, "folder", "classification", seed, test)
    size, channels = _common([path for path, _ in files])
    raw = np.stack([read_image(path, size, channels) for path, _ in files])
    return assemble(name, raw, rows, scale=255.0)


def assemble(name: str, raw: np.ndarray, rows: Rows, scale: float) -> Data:
    """Return ``Data`` from images [n, channels, height, width], standardised by the training rows."""
    raw = raw[rows.keep]
    preprocessing = ImagePreprocessing.fit(raw[rows.train], scale=scale, **rows.target)
    x, y = preprocessing.inputs(raw), preprocessing.targets(rows.y)
    train, test = torch.from_numpy(rows.train), torch.from_numpy(rows.test)
    return Data(name, rows.task, (x[train], y[train]), (x[test], y[test]), preprocessing)


def read(path: Path, preprocessing: Preprocessing) -> tuple[Tensor, np.ndarray | None]:
    """Read an image, or a folder of them, for a trained model; with subfolders also each image's class."""
    assert isinstance(preprocessing, ImagePreprocessing)
    files = list_images(path) if path.is_dir() else [(path, None)]
    if not files:
        raise Error(f"{path} holds no images ({', '.join(SUFFIXES)}).")
    if preprocessing.channels not in (1, 3) or preprocessing.scale != 255:
        raise Error("The model was trained on arrays, not on image files: give it an NPZ file with x.")
    raw = np.stack([read_image(file, preprocessing.size, preprocessing.channels) for file, _ in files])
    labelled = files[0][1] is not None
    return preprocessing.inputs(raw), np.array([y for _, y in files], dtype=object) if labelled else None


def read_image(path: Path, size: tuple[int, int], channels: int) -> np.ndarray:
    """Read one image [channels, height, width] of values from 0 to 255, resized to ``size`` (height, width).

    It is uint8, or float32 where the file has grey levels of 16 bits, all of which are kept.
    """
    image = require("PIL.Image")
    turned = require("PIL.ImageOps").exif_transpose

    def read(file: Any) -> np.ndarray:
        with image.open(file, formats=FORMATS) as picture:
            check_pixels(path, picture)
            picture.load()
            turned(picture, in_place=True)
            deep = picture.mode.startswith("I")  # 16 bits, which PIL would clip
            if deep:
                picture = image.fromarray(np.asarray(picture).astype(np.float32) / _DEEP)
            else:
                picture = picture.convert("L" if channels == 1 else "RGB")
            picture = picture.resize((size[1], size[0]), image.Resampling.BILINEAR)
            if deep:
                return np.repeat(np.asarray(picture, dtype=np.float32)[None], channels, axis=0)
            return np.asarray(picture, dtype=np.uint8).reshape(*size, channels).transpose(2, 0, 1)

    return guard(path, read)


def _common(paths: list[Path]) -> tuple[tuple[int, int], int]:
    """Return the size (height, width) and the number of channels that suit all images."""
    image = require("PIL.Image")

    def header(path: Path) -> tuple[int, int, bool]:
        def read(file: Any) -> tuple[int, int, bool]:
            with image.open(file, formats=FORMATS) as picture:
                check_pixels(path, picture)
                return picture.height, picture.width, picture.mode in _GREY

        return guard(path, read)

    headers = [header(path) for path in paths]
    height, width = (float(np.median([h[axis] for h in headers])) for axis in (0, 1))
    shrink = min(1.0, _LARGEST_SIDE / max(height, width))
    size = (max(round(height * shrink), _SMALLEST_SIDE), max(round(width * shrink), _SMALLEST_SIDE))
    return size, 1 if all(grey for _, _, grey in headers) else 3


def check_pixels(path: Path, picture: Any) -> None:
    """Raise an Error where an image has too many pixels."""
    if picture.width * picture.height > _MOST_PIXELS:
        raise Error(f"{path} has {picture.width} × {picture.height} pixels, which is too many: shrink it.")


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")
    for path in found:
        if not _images(path) and not any(child.is_dir() for child in path.iterdir()):
            warnings.warn(f"The folder {path} holds no images and is left out.")
    return found


def _images(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
    )
