"""Scikit-learn's bundled handwritten digits, with patches of its bundled photographs outside."""

from importlib import resources

import numpy as np

from posterity.datasets.data import Data, random, split
from posterity.datasets.images import assemble
from posterity.errors import require

_PATCHES = 1_000


def load(seed: int = 0) -> Data:
    """Return the 1,797 digits of 8 × 8 pixels, split 80/20 within each class by ``seed``."""
    bundle = require("sklearn.datasets").load_digits()
    x = np.asarray(bundle.images, dtype=np.float32)[:, None]
    y = np.asarray(bundle.target, dtype=np.int64)
    train, test = split(len(y), seed, labels=y)
    return assemble(
        "digits",
        (x[train], y[train]),
        (x[test], y[test]),
        list("0123456789"),
        outside=patches() * 16,
        outside_name="patches of photographs",
        scale=16.0,
    )


def patches(count: int = _PATCHES) -> np.ndarray:
    """Cut squares of 8 to 256 pixels out of two photographs and shrink them: [count, 1, 8, 8] in [0, 1]."""
    image = require("PIL.Image")
    generator = random(0)
    result = np.empty((count, 1, 8, 8), dtype=np.float32)
    photographs = []
    for name in ("china.jpg", "flower.jpg"):
        with resources.files("sklearn.datasets.images").joinpath(name).open("rb") as file:
            photographs.append(image.open(file).convert("L"))
    for i in range(count):
        photograph = photographs[i % 2]
        side = int(generator.integers(8, 257))
        left = int(generator.integers(photograph.width - side + 1))
        top = int(generator.integers(photograph.height - side + 1))
        patch = photograph.crop((left, top, left + side, top + side)).resize((8, 8), image.Resampling.BOX)
        result[i, 0] = np.asarray(patch, dtype=np.float32) / 255
    return result
