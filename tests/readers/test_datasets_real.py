import os

import numpy as np
import pytest
import torch

from posterity import datasets
from posterity.datasets import files, images, letters, uci

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not os.environ.get("POSTERITY_DATA"), reason="needs POSTERITY_DATA"),
]


@pytest.mark.parametrize(
    ("name", "train", "test", "outside", "mean", "std"),
    [
        ("mnist", 60_000, 10_000, "notmnist", [0.1307], [0.3081]),
        ("fashion-mnist", 60_000, 10_000, "mnist", [0.2860], [0.3530]),
        ("notmnist", 16_854, 1_870, "mnist", None, None),
        ("cifar10", 50_000, 10_000, "cifar100", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
        ("cifar100", 50_000, 10_000, "cifar10", [0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]),
        ("cifar5", 25_000, 5_000, "cifar10's other classes", None, None),
    ],
)
def test_images_have_their_known_sizes_and_statistics(name, train, test, outside, mean, std):
    data = datasets.load(name, download=False)
    assert (len(data.train[1]), len(data.test[1]), data.outside_name) == (train, test, outside)
    assert torch.bincount(data.train[1]).numel() == data.outputs
    if mean is not None:
        assert data.preprocessing.mean == pytest.approx(mean, abs=1e-4)
        assert data.preprocessing.std == pytest.approx(std, abs=2e-4)


def test_mnist_files_have_the_published_hashes():
    folder = files.find(images.MNIST)
    for item in images.MNIST.downloads:
        assert files._md5(folder / item.name) == item.md5


@pytest.mark.parametrize(
    ("name", "train", "test", "features", "splits"),
    [
        ("boston", 455, 51, 13, 20),
        ("concrete", 927, 103, 8, 20),
        ("energy", 691, 77, 8, 20),
        ("naval", 10_741, 1_193, 14, 20),
        ("protein", 41_157, 4_573, 9, 5),
        ("wine-red", 1_439, 160, 11, 20),
    ],
)
def test_uci_tables_have_their_known_sizes(name, train, test, features, splits):
    first, last, again = (datasets.load(f"uci/{name}", seed=seed) for seed in (0, splits - 1, splits))
    assert first.train[0].shape == (train, features)
    assert first.test[0].shape == (test, features)
    assert torch.equal(first.test[0], again.test[0])
    assert not torch.equal(first.test[1], last.test[1])
    assert torch.isfinite(first.train[0]).all()


@pytest.mark.parametrize("name", uci._TABLES)
def test_uci_tables_and_splits_are_those_that_a_download_makes(name):
    _, _, splits, published = uci._TABLES[name]
    with np.load(files.find(uci.collection(name)) / f"{name}.npz") as stored:
        assert uci._hash(np.column_stack([stored["x"], stored["y"]])) == published
        assert np.array_equal(stored["test"], uci.standard_splits(splits, len(stored["y"])))


def test_notmnist_is_what_a_download_makes():
    x, y = images._read(images.NOTMNIST, files.find(images.NOTMNIST), "test")
    assert (
        letters._hash([bytes([label]) + image.tobytes() for image, label in zip(x, y, strict=True)]) == letters._SHA256
    )
