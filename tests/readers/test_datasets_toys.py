import subprocess
import sys

import numpy as np
import pytest
import torch

from posterity import datasets
from posterity.datasets import toys

TRUTH = {
    "toy/cubic": (30, 2.0, lambda x: x**3),
    "toy/cubic-400": (400, 2.0, lambda x: x**3),
    "toy/cubic-bbh": (20, 9.0, lambda x: x**3),
    "toy/cubic-mnf": (20, 3.0, lambda x: x**3),
    "toy/sinusoids": (
        70,
        0.3,
        lambda x: 1.28 * x + 0.8 * np.sin(2.56 * np.pi * x) + 0.8 * np.sin(5.12 * np.pi * x),
    ),
}


@pytest.mark.parametrize("name", toys.TOYS)
def test_toys_have_the_papers_points_and_noise(name):
    points, noise, function = TRUTH[name]
    toy = toys.TOYS[name](0)
    assert toy.train[0].shape == (points, 1)
    x, y = toy.test
    residual = y - function(x[:, 0])
    # Four standard errors of a standard deviation from 200 points.
    assert residual.std() == pytest.approx(noise, rel=4 / 20)
    assert abs(residual.mean()) < 4 * noise / 200**0.5


@pytest.mark.parametrize(
    ("toy", "name"),
    [(toys.cubic, "toy/cubic"), (toys.cubic_uniform, "toy/cubic-bbh"), (toys.sinusoids, "toy/sinusoids")],
)
def test_toys_without_noise_are_the_papers_functions(toy, name):
    for x, y in (toy(noise=0.0).train, toy(noise=0.0).test):
        assert np.allclose(y, TRUTH[name][2](x[:, 0]))


@pytest.mark.parametrize("name", toys.TOYS)
def test_toys_follow_the_seed_and_are_standardised(name):
    data, again, other = (datasets.load(name, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(data.train[1], again.train[1])
    assert not torch.equal(data.train[1], other.train[1])
    assert data.task == "regression"
    assert data.train[1].std(correction=0).item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", toys.TOYS)
def test_outside_lies_beyond_every_point(name):
    data = datasets.load(name)
    gap = (data.outside - data.train[0].T).abs().min()
    assert gap > 0
    assert data.outside.abs().max() > data.train[0].abs().max()


def test_the_ibnn_toy_has_a_gap_and_livis_two_clusters_of_38_and_32():
    assert np.abs(toys.cubic().train[0]).min() == 1
    x = toys.sinusoids().train[0]
    assert ((x < 0).sum(), (x > 0).sum()) == (38, 32)
    assert 0.61 / 1.28 <= np.abs(x).min() < np.abs(x).max() <= 1


def test_every_name_has_a_description():
    assert {"digits", "mnist", "cifar5", "uci/boston", "toy/sinusoids"} <= set(datasets.names())
    assert all(datasets.names().values())


def test_importing_loads_neither_pandas_nor_sklearn_nor_pillow():
    optional = "{'pandas', 'sklearn', 'PIL', 'pyarrow'}"
    code = f"import sys, posterity.datasets, posterity.networks; print({{*sys.modules}} & {optional})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
