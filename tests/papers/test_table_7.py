"""Table 7: a trained network, its recipe, and an ImageNet folder of twenty images."""

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import posterity
from posterity.papers import Bench, trained


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """A data folder with twenty images of two classes, which differ in colour, and weights of a ResNet-50."""
    monkeypatch.delenv("POSTERITY_DATA", raising=False)
    generator = np.random.default_rng(0)
    for part, count in (("train", 6), ("val", 4)):
        for name, channel in (("n01", 0), ("n02", 2)):
            folder = tmp_path / "imagenet" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = generator.integers(0, 60, (80, 100, 3), dtype=np.uint8)
                pixels[..., channel] += 150
                Image.fromarray(pixels).save(folder / f"{i}.jpeg")
    (tmp_path / "pretrained").mkdir()
    torch.manual_seed(0)
    save_file(posterity.networks.ResNet50(classes=2).state_dict(), tmp_path / "pretrained" / "resnet50.safetensors")
    return tmp_path


def test_an_imagenet_folder(imagenet, tmp_path):
    outcome = trained.table_7(Bench(tmp_path / "out", "smoke", data_dir=imagenet))
    found = outcome.numbers["ResNet-50, ImageNet"]
    assert set(found) == {"SGD", "iBNN-4"}
    assert all(np.isfinite(scores["nll"]) for scores in found.values())
    published = [row for row in outcome.tables[0].rows if row[0] == "ResNet-50, ImageNet"]
    assert published[0][3] == "23.87"


def test_pictures(imagenet):
    test = trained.Pictures(imagenet / "imagenet" / "val", 64, changed=False)
    assert len(test) == 8
    assert test.labels == [0] * 4 + [1] * 4
    x, y = test[0]
    assert x.shape == (3, 64, 64)
    assert y == 0
    assert x[0].mean() > 0.5 > x[2].mean()  # red, in deviations of ImageNet's red
    assert torch.equal(x, test[0][0])
    train = trained.Pictures(imagenet / "imagenet" / "train", 64, changed=True)
    torch.manual_seed(0)
    first, second = train[0][0], train[0][0]
    assert not torch.equal(first, second)


def test_parts_of_pictures_lie_inside():
    torch.manual_seed(0)
    for _ in range(200):
        left, top, right, bottom = trained.Pictures._random(100, 60)
        assert 0 <= left < right <= 100.0001
        assert 0 <= top < bottom <= 60.0001
    assert trained.Pictures._middle(256, 512) == (16.0, 144.0, 240.0, 368.0)


def test_findings_follow_the_numbers():
    def scores(value):
        return dict.fromkeys(trained.SCORES, value)

    lines = trained._findings("x", {"SGD": scores(1.0), "iBNN-4": scores(0.5), "iBNN-8": scores(2.0)})
    assert lines[0] == "x: error is lower than the trained network's with iBNN-4 of iBNN-4, iBNN-8."


def test_without_weights_it_says_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.delenv("POSTERITY_DATA", raising=False)
    with pytest.raises(posterity.Error, match="cifar10_resnet20"):
        trained.table_7(Bench(tmp_path, "small", data_dir=tmp_path))
