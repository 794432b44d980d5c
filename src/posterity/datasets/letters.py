"""notMNIST's small set from its official archive, which holds one PNG file for each letter."""

import gzip
import hashlib
import io
import re
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np

from posterity.datasets import files
from posterity.errors import Error, require

CLASSES = list("ABCDEFGHIJ")
MEMBERS = ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz")
_LARGEST = 100_000  # bytes of one letter, and the number of letters

# The source publishes no hash; this one, of each letter's label and pixels, sorted, is of the letters that the
# recorded results were run on.
_SHA256 = "bb8f7e0fa16b814e943e8f21aa083e21d1521310c15e7c63fd13e1c68f437206"


def convert(source: Path, folder: Path) -> None:
    """Write the two idx files from the archive, the letters in the order of their files' names."""
    found = sorted(_read(source).items())
    if _hash([record for _, record in found]) != _SHA256:
        raise Error(f"The archive {source.name} holds other letters than notMNIST's small set.")
    records = np.frombuffer(b"".join(record for _, record in found), dtype=np.uint8).reshape(len(found), 785)
    for name, array in zip(MEMBERS, (records[:, 1:].reshape(-1, 28, 28), records[:, 0]), strict=True):
        header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        (folder / name).write_bytes(gzip.compress(header + array.tobytes(), mtime=0))


def _read(source: Path) -> dict[str, bytes]:
    """Return each readable letter by its file's name: a byte for the class, then 28 × 28 pixels."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(source, "r:gz") as tar:
            for number, member in enumerate(tar):
                if number > _LARGEST or member.size > _LARGEST:
                    raise Error(f"The archive {source.name} holds more than letters.")
                letter = re.fullmatch(r"notMNIST_small/([A-J])/[^/]+\.png", member.name)
                file = tar.extractfile(member) if letter and member.isreg() else None
                pixels = _pixels(file.read()) if file else None
                if letter and pixels is not None:
                    found[member.name] = bytes([CLASSES.index(letter[1])]) + pixels
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise Error(f"The archive {source.name} is damaged: {error}.") from error
    return found


def _pixels(content: bytes) -> bytes | None:
    """Return an image's 28 × 28 grey pixels, or None: two of the archive's files are no images."""
    try:
        with require("PIL.Image").open(io.BytesIO(content), formats=("PNG",)) as picture:
            return bytes(picture.tobytes()) if (picture.size, picture.mode) == ((28, 28), "L") else None
    except (OSError, SyntaxError, ValueError):
        return None


def _hash(records: list[bytes]) -> str:
    return hashlib.sha256(b"".join(sorted(records))).hexdigest()


COLLECTION = files.Collection(
    "notmnist",
    "notMNIST_small",
    MEMBERS,
    downloads=(
        files.Download(
            "notMNIST_small.tar.gz",
            (
                "http://yaroslavvb.com/upload/notMNIST/notMNIST_small.tar.gz",
                "https://commondatastorage.googleapis.com/books1000/notMNIST_small.tar.gz",
            ),
            limit=20_000_000,
        ),
    ),
    convert=convert,
)
