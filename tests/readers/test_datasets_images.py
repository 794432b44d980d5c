import gzip
import json
import struct

import numpy as np
import pytest
import torch
from official_formats import write_cifar, write_cifar10, write_idx, write_mnist

from posterity import datasets
from posterity.datasets import images
from posterity.datasets.preprocessing import ImagePreprocessing, Preprocessing
from posterity.errors import Error


@pytest.fixture
def mnist(tmp_path):
    write_mnist(tmp_path / "MNIST" / "raw")
    return tmp_path


def test_mnist_is_standardised_by_its_training_part(mnist):
    data = datasets.load("mnist", data_dir=mnist, download=False)
    x, y = data.train
    assert x.shape == (40, 1, 28, 28)
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    assert y.tolist() == [i % 10 for i in range(40)]
    assert data.test[0].shape == (20, 1, 28, 28)
    assert x.mean().item() == pytest.approx(0, abs=1e-5)
    assert x.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert abs(data.test[0].mean().item()) > 1e-5
    assert data.outputs == 10
    assert (data.task, data.outside, data.outside_name) == ("classification", None, "")


def test_pixels_come_back_from_the_standardised_ones(mnist):
    data = datasets.load("mnist", data_dir=mnist, download=False)
    raw = images.read_idx(mnist / "MNIST/raw/t10k-images-idx3-ubyte.gz")
    p = data.preprocessing
    assert torch.allclose((data.test[0] * p.std[0] + p.mean[0]) * 255, torch.tensor(raw[:, None]).float(), atol=1e-3)


def test_notmnist_lies_outside_mnist_and_the_reverse(mnist):
    generator = np.random.default_rng(1)
    write_idx(mnist / "notMNIST_small/images-idx3-ubyte.gz", generator.integers(0, 256, (100, 28, 28)))
    write_idx(mnist / "notMNIST_small/labels-idx1-ubyte.gz", np.repeat(np.arange(10), 10))
    inside = datasets.load("mnist", data_dir=mnist, download=False)
    assert (inside.outside.shape, inside.outside_name) == ((20, 1, 28, 28), "notmnist")
    letters = datasets.load("notmnist", data_dir=mnist, download=False, seed=3)
    assert (len(letters.train[1]), len(letters.test[1])) == (90, 10)
    assert letters.test[1].tolist() == list(range(10))
    assert letters.preprocessing.classes == list("ABCDEFGHIJ")
    assert letters.outside_name == "mnist"
    assert torch.equal(letters.test[0], datasets.load("notmnist", data_dir=mnist, seed=4).test[0])


def test_the_first_images_outside_are_of_all_kinds(mnist):
    write_idx(
        mnist / "notMNIST_small/images-idx3-ubyte.gz",
        np.repeat(np.arange(0, 250, 25), 10 * 28 * 28).reshape(-1, 28, 28),
    )
    write_idx(mnist / "notMNIST_small/labels-idx1-ubyte.gz", np.repeat(np.arange(10), 10))
    outside = datasets.load("mnist", data_dir=mnist, download=False).outside
    assert len(outside[:10, 0, 0, 0].unique()) > 4
    assert torch.equal(outside, datasets.load("mnist", data_dir=mnist, download=False).outside)


def test_the_environment_names_the_data_folder(mnist, monkeypatch):
    monkeypatch.setenv("POSTERITY_DATA", str(mnist))
    assert len(datasets.load("mnist", download=False).train[1]) == 40


def test_fashion_mnist_lies_where_debian_puts_it(mnist, tmp_path, monkeypatch):
    write_mnist(tmp_path / "debian", train=30, test=10)
    assert images.FASHION.places == ("/usr/share/datasets/fashion-mnist",)
    changed = images.files.Collection("fashion-mnist", "x", images.FASHION.members, places=(str(tmp_path / "debian"),))
    monkeypatch.setattr(images, "FASHION", changed)
    data = datasets.load("fashion-mnist", data_dir=mnist, download=False)
    assert len(data.train[1]) == 30
    assert data.preprocessing.classes[9] == "Ankle boot"
    assert (len(data.outside), data.outside_name) == (10, "mnist")


def test_cifar10_reads_five_batches_in_order(tmp_path):
    raw = write_cifar10(tmp_path / "cifar-10-batches-bin")
    data = datasets.load("cifar10", data_dir=tmp_path, download=False)
    assert data.train[0].shape == (50, 3, 32, 32)
    assert data.train[1].tolist() == 5 * list(range(10))
    assert data.train[0].mean((0, 2, 3)).abs().max() < 1e-5
    assert torch.equal(data.test[0], data.preprocessing.inputs(raw))
    assert data.preprocessing.classes[-1] == "truck"


def test_cifar5_keeps_the_other_five_classes_outside(tmp_path):
    raw = write_cifar10(tmp_path / "cifar-10-batches-bin")
    data = datasets.load("cifar5", data_dir=tmp_path, download=False)
    assert sorted(set(data.train[1].tolist())) == [0, 1, 2, 3, 4]
    assert data.outputs == 5
    assert torch.equal(data.outside, data.preprocessing.inputs(raw[5:]))


def test_cifar100_takes_the_fine_label_and_its_names(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    write_cifar(folder / "train.bin", range(100), label_bytes=2)
    write_cifar(folder / "test.bin", [99, 3], label_bytes=2)
    assert datasets.load("cifar100", data_dir=tmp_path, download=False).preprocessing.classes[3] == "3"
    (folder / "fine_label_names.txt").write_text("\n".join(f"thing{i}" for i in range(100)))
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    data = datasets.load("cifar100", data_dir=tmp_path, download=False)
    assert data.train[1].tolist() == list(range(100))
    assert data.test[1].tolist() == [99, 3]
    assert data.preprocessing.classes[3] == "thing3"
    assert (data.outside_name, len(data.outside)) == ("cifar10", 2)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x09\x01\0\0\0\x01a",
        b"\0\0\x08\x01\0\0\0\x05abc",
        b"\0\0\x08\x01\0\0\0\x02abc",
        b"\0\0\x08\x03" + b"\xff" * 12,
    ],
    ids=["empty", "cut header", "floats", "cut", "too long", "too large"],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_a_bad_idx_file_is_an_error(tmp_path, content, zipped):
    path = tmp_path / ("a.gz" if zipped else "a")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(Error, match="a"):
        images.read_idx(path)


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(bytes(1000), mtime=0)[:-15], b"\x1f\x8b\x08\0" + bytes(20)]
)
def test_a_bad_gzip_file_is_an_error(tmp_path, content):
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(Error):
        images.read_idx(tmp_path / "a.gz")


def test_an_idx_bomb_is_not_unpacked(tmp_path):
    header = struct.pack(">HBB1I", 0, 8, 1, 10)
    (tmp_path / "a.gz").write_bytes(gzip.compress(header + bytes(50_000_000)))
    with pytest.raises(Error, match="declares 10"):
        images.read_idx(tmp_path / "a.gz")


def test_labels_of_another_length_are_an_error(mnist):
    write_idx(mnist / "MNIST/raw/train-labels-idx1-ubyte.gz", np.zeros(39))
    with pytest.raises(Error, match="belong together"):
        datasets.load("mnist", data_dir=mnist, download=False)


@pytest.mark.parametrize("size", [0, 3072, 3074])
def test_a_cifar_file_of_odd_length_is_an_error(tmp_path, size):
    (tmp_path / "a.bin").write_bytes(bytes(size))
    with pytest.raises(Error, match="3073"):
        images.read_cifar(tmp_path / "a.bin", 1)


def test_cifar_labels_out_of_range_are_an_error(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    write_cifar(tmp_path / "cifar-10-batches-bin/data_batch_3.bin", [10])
    with pytest.raises(Error, match="labels from 10"):
        datasets.load("cifar10", data_dir=tmp_path, download=False)


def test_digits_are_split_within_each_class_by_the_seed():
    data, again, other = (datasets.load("digits", seed=seed) for seed in (0, 0, 1))
    assert data.train[0].shape[1:] == (1, 8, 8)
    assert len(data.train[1]) + len(data.test[1]) == 1797
    assert all(34 <= (data.test[1] == k).sum() <= 37 for k in range(10))
    assert torch.equal(data.test[0], again.test[0])
    assert not torch.equal(data.test[0], other.test[0])
    assert data.train[0].std(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_digits_have_patches_of_photographs_outside():
    data = datasets.load("digits")
    assert data.outside.shape == (1000, 1, 8, 8)
    p = data.preprocessing
    pixels = data.outside * p.std[0] + p.mean[0]
    assert pixels.min() >= -1e-5
    assert pixels.max() <= 1 + 1e-5
    assert pixels.std(dim=(1, 2, 3)).unique().numel() > 900
    assert torch.equal(data.outside[:5], datasets.load("digits").outside[:5])


def test_a_channel_that_never_changes_does_not_divide_by_zero():
    p = ImagePreprocessing.fit(np.full((3, 2, 4, 4), 7, np.uint8), classes=["a", "b"])
    assert torch.equal(p.inputs(np.full((3, 2, 4, 4), 7, np.uint8)).round(decimals=5), torch.zeros(3, 2, 4, 4))


def test_image_preprocessing_survives_json():
    raw = np.random.default_rng(0).integers(0, 256, (6, 3, 5, 4), dtype=np.uint8)
    p = ImagePreprocessing.fit(raw, classes=["a", "b"])
    again = Preprocessing.from_dict(json.loads(json.dumps(p.to_dict())))
    assert again == p
    assert torch.equal(again.inputs(raw), p.inputs(raw.transpose(0, 2, 3, 1)))
    assert again.targets(["b", "a"]).tolist() == again.targets(np.array([1, 0])).tolist() == [1, 0]


@pytest.mark.parametrize(
    "raw",
    [
        np.zeros((2, 3, 5, 5)),
        np.zeros((2, 1, 5, 4)),
        np.zeros((2, 5)),
        np.zeros((2, 3, 5, 4), complex),
        np.full((1, 3, 5, 4), np.nan),
        np.array(["a"]),
        "file",
        None,
    ],
)
def test_images_of_another_shape_are_an_error(raw):
    p = ImagePreprocessing.fit(np.zeros((6, 3, 5, 4), np.uint8), classes=["a", "b"])
    with pytest.raises(Error):
        p.inputs(raw)
