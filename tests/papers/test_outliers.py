"""Attacks, outliers, weights and crops of the Bayes by Hypernet comparison."""

import math

import pytest
import torch

import posterity
from posterity import networks
from posterity.papers import Bench
from posterity.papers.cells import Cell
from posterity.papers.outliers import Crops, outlier_scores, standardised, under_both_attacks, weight_summary


def trained(build):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 1, 8, 8, generator=generator)
    y = (x.mean((1, 2, 3)) > 0.5).long() + 2 * (x[:, 0, 0, 0] > 0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = networks.MLP(64, 4, [16], activation="tanh")
    posterior = build(network)
    posterity.fit(posterior, (x, y), epochs=20, lr=0.01, seed=0, device="cpu", progress=False)
    return posterior, x, y


def test_all_methods_meet_the_same_attack_when_it_is_full():
    """Under the slides' protocol a stochastic method meets less of ε than MAP, under the full one as much."""
    point, x, y = trained(posterity.MAP)
    mixed, _, _ = trained(lambda network: posterity.DeepEnsemble(network, 5, seed=1))
    of_map, of_mixed = (under_both_attacks(p, x, y, None, 0) for p in (point, mixed))
    assert of_map["slides"]["moved"] == pytest.approx(1, abs=1e-5)
    assert of_map["expected"]["moved"] == of_mixed["expected"]["moved"] == pytest.approx(1, abs=1e-5)
    assert of_mixed["slides"]["moved"] < 0.9
    assert [line["eps"] for line in of_map["slides"]["lines"]] == pytest.approx([i * 0.05 for i in range(9)])
    for curves in (of_map, of_mixed):
        lines = curves["expected"]["lines"]
        assert lines[-1]["nll"] > lines[0]["nll"]
    assert of_map["slides"]["lines"] == of_map["expected"]["lines"]


def test_the_curve_is_that_of_the_evaluation():
    posterior, x, y = trained(lambda network: posterity.DeepEnsemble(network, 3, seed=1))
    lines = under_both_attacks(posterior, x, y, None, 0)["expected"]["lines"]
    known = posterity.evaluation.under_attack(posterior, x, y, [0.2])[0]
    assert lines[4]["nll"] == pytest.approx(known["nll"], rel=1e-4)


def test_the_slides_area_is_the_mean_entropy():
    posterior, x, y = trained(lambda network: posterity.DeepEnsemble(network, 3, seed=1))
    inside, outside = posterity.predict(posterior, x), posterity.predict(posterior, 3 * torch.randn_like(x))
    found = outlier_scores(inside, outside, y)
    points = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    area = torch.trapezoid(posterity.evaluation.entropy_cdf(inside, points), points)
    assert found["inside_auc"] == pytest.approx(float(area), abs=1e-3)
    assert found["inside_auc"] == pytest.approx(1 - float(inside.total.mean()) / math.log(4), abs=1e-6)
    assert found["auroc_total"] == pytest.approx(posterity.evaluation.auroc(inside.total, outside.total))


def test_weights_are_summarised_as_they_are():
    """A mean field has no correlations beyond chance, one noise variable for all weights nothing but."""
    network = networks.MLP(4, 2, [3])
    field = posterity.BayesByBackprop(network, prior_std=1.0, init_std=0.5)
    kept = weight_summary(field, 400, 0)
    assert list(kept["layers"]) == ["layers.0.weight", "layers.2.weight"]
    assert kept["layers"]["layers.0.weight"]["spread"] == pytest.approx(0.5, rel=0.1)
    assert max(kept["within"], kept["between"]) < 3 * math.sqrt(2 / (math.pi * 400))
    layer = kept["layers"]["layers.2.weight"]
    assert sum(layer["density"]) * 2 * layer["reach"] / len(layer["density"]) == pytest.approx(1, abs=0.02)
    assert weight_summary(posterity.MAP(network), 10, 0) is None
    tight = posterity.BayesByHypernet(network, noise=1, jitter=1e-6, spread=1.0, seed=0)
    assert weight_summary(tight, 100, 0)["between"] > 0.5


def test_crops_are_squares_of_the_image_each_standardised():
    torch.manual_seed(0)
    image = torch.arange(64.0).view(1, 1, 8, 8) / 64
    out = Crops(8, border=0)(image.expand(20, 1, 8, 8))
    assert out.shape == (20, 1, 8, 8)
    whole = standardised(image)[0]
    plain = [bool(torch.allclose(one, whole, atol=1e-5)) for one in out]
    mirrored = [bool(torch.allclose(one, whole.flip(2), atol=1e-5)) for one in out]
    assert all(a or b for a, b in zip(plain, mirrored, strict=True))
    assert Crops(4)(torch.rand(2, 3, 8, 8)).is_contiguous(memory_format=torch.channels_last)
    assert 2 < sum(plain) < 18
    moved = Crops(4)(image.expand(50, 1, 8, 8))
    assert torch.allclose(moved.mean((1, 2, 3)), torch.zeros(50), atol=1e-5)
    assert len({tuple(one.flatten().tolist()) for one in moved}) > 20


def test_standardising_undoes_brightness_but_not_the_contrast_of_each_channel():
    image = torch.rand(3, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(standardised(0.4 * image + 0.2), standardised(image), atol=1e-4)
    mean = image.mean((2, 3), keepdim=True)
    assert not torch.allclose(standardised(0.4 * (image - mean) + mean), standardised(image), atol=0.05)


def test_cells_show_pixels_and_outliers(tmp_path):
    cell = Cell("digits", {}, "map", images=20, tested=10, outside=30, standard="pixels", augment=False)
    bench = Bench(tmp_path, "smoke")
    (x, _), (test, _), black = cell.parts(bench)
    assert black == [0.0]
    for part in (x, test, cell.beyond(bench)):
        assert -1e-5 < float(part.min()) < 0.1
        assert 0.9 < float(part.max()) <= 1 + 1e-5
    assert len(cell.beyond(bench)) == 30
    crops = Cell("digits", {}, "map", images=20, tested=10, standard="pixels", enlarge=4, crops=24)
    (x, _), (test, _), _ = crops.parts(bench)
    assert (x.shape[-1], test.shape[-1]) == (32, 24)
    assert test.mean((1, 2, 3)) == pytest.approx(torch.zeros(10), abs=1e-5)
