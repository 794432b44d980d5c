"""The papers' image sets in their official binary formats: MNIST's idx and CIFAR's records."""

import contextlib
import gzip
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from posterity.datasets import files, letters
from posterity.datasets.data import Data, random, split
from posterity.datasets.preprocessing import ImagePreprocessing
from posterity.errors import Error

Folder = str | os.PathLike[str] | None
Images = tuple[np.ndarray, np.ndarray]  # uint8 [n, channels, height, width] and int64 [n]

_LIMIT = 160_000_000  # bytes of one unpacked file: CIFAR-100's are the largest
_IDX = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


def _idx_downloads(addresses: tuple[str, ...], md5: tuple[str, ...]) -> tuple[files.Download, ...]:
    return tuple(
        files.Download(name, tuple(address + name for address in addresses), digest)
        for name, digest in zip(_IDX, md5, strict=True)
    )


MNIST = files.Collection(
    "mnist",
    "MNIST/raw",
    _IDX,
    downloads=_idx_downloads(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
)
FASHION = files.Collection(
    "fashion-mnist",
    "FashionMNIST/raw",
    _IDX,
    places=("/usr/share/datasets/fashion-mnist",),  # Debian's package dataset-fashion-mnist
    downloads=_idx_downloads(
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
)
NOTMNIST = letters.COLLECTION
CIFAR10 = files.Collection(
    "cifar10",
    "cifar-10-batches-bin",
    (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
    downloads=(
        files.Download(
            "cifar-10-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            "c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
)
CIFAR100 = files.Collection(
    "cifar100",
    "cifar-100-binary",
    ("train.bin", "test.bin"),
    extras=("fine_label_names.txt",),
    downloads=(
        files.Download(
            "cifar-100-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
            "03b5dce01913d631647c71ecec9e9cb8",
        ),
    ),
)

_DIGITS = list("0123456789")
_CLOTHES = [
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
]
_THINGS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def read_idx(path: Path) -> np.ndarray:
    """Read an idx file of bytes, gzipped or not, into a uint8 array of the shape that it declares."""
    if not path.is_file() and path.suffix == ".gz":
        path = path.with_suffix("")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            zeros, kind, axes = struct.unpack(">HBB", file.read(4))
            if zeros or kind != 8 or not 1 <= axes <= 4:
                raise Error(f"{path} is no idx file of bytes.")
            shape = struct.unpack(f">{axes}I", file.read(4 * axes))
            size = int(np.prod(shape, dtype=object))
            if not 0 < size <= _LIMIT:
                raise Error(f"{path} declares {size:,} bytes, which is {'too much' if size else 'nothing'}.")
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise Error(f"{path} cannot be read: {error}.") from error
    if len(content) != size:
        raise Error(f"{path} holds {len(content):,} bytes or more where its header declares {size:,}.")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def read_cifar(path: Path, label_bytes: int) -> Images:
    """Read CIFAR's records of labels and 3 × 32 × 32 bytes; the last label is the finest."""
    try:
        if path.stat().st_size > _LIMIT:
            raise Error(f"{path} is larger than {_LIMIT:,} bytes.")
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise Error(f"{path} cannot be read: {error}.") from error
    record = label_bytes + 3072
    if not len(content) or len(content) % record:
        raise Error(f"{path} is no file of records of {record} bytes: copy or load it again.")
    rows = content.reshape(-1, record)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64)


def _idx_pair(images: Path, labels: Path) -> Images:
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y) or not len(x) or y.max() >= 10:
        raise Error(f"{images} and {labels} do not belong together: copy or load them again.")
    return x[:, None], y.astype(np.int64)


def _read(collection: files.Collection, folder: Path, part: str) -> Images:
    """Read the part "train" or "test" of a collection; notMNIST has but one, which is both."""
    members = [folder / member for member in collection.members]
    if collection in (MNIST, FASHION, NOTMNIST):
        first = 2 if part == "test" and collection is not NOTMNIST else 0
        return _idx_pair(members[first], members[first + 1])
    label_bytes, classes = (1, 10) if collection is CIFAR10 else (2, 100)
    pairs = [read_cifar(path, label_bytes) for path in (members[:-1] if part == "train" else members[-1:])]
    x, y = np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])
    if y.max() >= classes:
        raise Error(f"The files in {folder} hold labels from {classes} on: copy or load them again.")
    return x, y


def _both(collection: files.Collection, data_dir: Folder, download: bool) -> tuple[Images, Images]:
    folder = files.get(collection, data_dir, download)
    return _read(collection, folder, "train"), _read(collection, folder, "test")


def _outside(collection: files.Collection, data_dir: Folder, most: int) -> np.ndarray | None:
    """Return at most ``most`` images of another set, or None if it is not found.

    They are always the same, in an order in which the first ones are of all kinds, however the file is sorted.
    """
    folder = files.find(collection, data_dir)
    if folder is None:
        return None
    x, _ = _read(collection, folder, "test")
    return x[random(0).permutation(len(x))[:most]]


def assemble(
    name: str,
    train: Images,
    test: Images,
    classes: list[str],
    outside: np.ndarray | None = None,
    outside_name: str = "",
    **options: Any,
) -> Data:
    """Standardise images by the training part; ``options`` go to ``ImagePreprocessing.fit``."""
    preprocessing = ImagePreprocessing.fit(train[0], classes=classes, **options)
    return Data(
        name=name,
        task="classification",
        train=(preprocessing.inputs(train[0]), torch.from_numpy(train[1])),
        test=(preprocessing.inputs(test[0]), torch.from_numpy(test[1])),
        preprocessing=preprocessing,
        outside=None if outside is None else preprocessing.inputs(outside),
        outside_name=outside_name if outside is not None else "",
    )


def mnist(data_dir: Folder = None, download: bool = True) -> Data:
    """Handwritten digits, with notMNIST's letters outside where they are found."""
    train, test = _both(MNIST, data_dir, download)
    outside = _outside(NOTMNIST, data_dir, len(test[1]))
    return assemble("mnist", train, test, _DIGITS, outside, "notmnist")


def fashion_mnist(data_dir: Folder = None, download: bool = True) -> Data:
    """Pictures of clothes, with MNIST's digits outside where they are found."""
    train, test = _both(FASHION, data_dir, download)
    outside = _outside(MNIST, data_dir, len(test[1]))
    return assemble("fashion-mnist", train, test, _CLOTHES, outside, "mnist")


def notmnist(data_dir: Folder = None, download: bool = True) -> Data:
    """Letters A to J, split 90/10 once and for all, with MNIST's digits outside where they are found."""
    x, y = _read(NOTMNIST, files.get(NOTMNIST, data_dir, download), "train")
    train, test = split(len(y), 0, labels=y, part=0.1)
    outside = _outside(MNIST, data_dir, len(test))
    return assemble("notmnist", (x[train], y[train]), (x[test], y[test]), letters.CLASSES, outside, "mnist")


def cifar10(data_dir: Folder = None, download: bool = True) -> Data:
    """Photographs of ten things, with CIFAR-100 outside where it is found."""
    train, test = _both(CIFAR10, data_dir, download)
    outside = _outside(CIFAR100, data_dir, len(test[1]))
    return assemble("cifar10", train, test, _THINGS, outside, "cifar100")


def cifar100(data_dir: Folder = None, download: bool = True) -> Data:
    """Photographs of a hundred things, with CIFAR-10 outside where it is found."""
    folder = files.get(CIFAR100, data_dir, download)
    train, test = _read(CIFAR100, folder, "train"), _read(CIFAR100, folder, "test")
    names, classes = folder / "fine_label_names.txt", []
    with contextlib.suppress(OSError):
        if names.stat().st_size < 100_000 and names.is_file():
            classes = names.read_text("utf-8", "replace").split()
    if len(set(classes)) != 100:
        classes = [str(i) for i in range(100)]
    outside = _outside(CIFAR10, data_dir, len(test[1]))
    return assemble("cifar100", train, test, classes, outside, "cifar10")


def cifar5(data_dir: Folder = None, download: bool = True) -> Data:
    """CIFAR-10's first five classes, with the test images of the last five outside."""
    (x, y), (x_test, y_test) = _both(CIFAR10, data_dir, download)
    train, test = y < 5, y_test < 5
    return assemble(
        "cifar5",
        (x[train], y[train]),
        (x_test[test], y_test[test]),
        _THINGS[:5],
        x_test[~test],
        "cifar10's other classes",
    )
