"""What is trained for the tables of Bayes by Hypernet: the settings of the slides, the generators, the networks."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import posterity
from posterity import networks
from posterity.papers import Bench, bbh_cells, bbh_toy
from posterity.papers.cells import BETAS, METHODS, OPTIMIZERS

FULL = Bench(Path(), "full")


@pytest.mark.parametrize(
    ("method", "posterior"),
    [
        ("MAP", {}),
        ("ensemble", {"members": 10, "adversarial": 0.01}),
        (
            "BbB",
            {
                "prior_std": 1.0,
                "init_std": math.exp(-4.5),
                "parametrisation": "log_variance",
                "estimator": "weights",
            },
        ),
        ("MC-dropout", {}),
        (
            "MNF",
            {
                "r": "paper",
                "prior_std": math.exp(0.5),
                "init_std": math.exp(-9.5),
                "init_noise": math.sqrt(0.1),
            },
        ),
        (
            "BbH",
            {
                "layout": "tensor",
                "divergence": "nearest",
                "neighbours": 5,
                "centre": False,
                "jitter": 0.0,
                "prior_std": 1.0,
                "hidden": [64, 256, 512],
            },
        ),
    ],
)
def test_the_full_setting_is_the_slides(method, posterior):
    cell = bbh_cells.cell(FULL, "mnist", "published", method)
    assert cell.posterior == posterior
    assert (cell.fit["epochs"], cell.fit["batch_size"]) == (100, 100)
    assert cell.fit["lr"] == (1e-4 if method == "BbH" else 1e-3)
    assert cell.fit["schedule"] == "constant"
    assert cell.fit["beta"] == ("bbh mnist" if method in ("MNF", "BbH") else 1.0)
    assert cell.draws == (None if method in ("MAP", "ensemble") else 100)
    assert (cell.standard, cell.augment, cell.images, cell.outside) == ("pixels", False, 55_000, 10_000)
    assert cell.network["name"] == "lenet-caffe"
    assert cell.network["arguments"]["dropout"] == (0.5 if method == "MC-dropout" else 0.0)
    assert (cell.attacked, cell.gpu) == (100, "float32")


def test_cifar5_at_full_size():
    cell = bbh_cells.cell(FULL, "cifar5", "published", "BbB")
    assert cell.posterior["init_std"] == pytest.approx(math.exp(-30 / 2))
    assert cell.posterior["parametrisation"] == "log_variance"
    assert cell.posterior["layers"] == ["*conv*", "linear"]
    assert cell.fit["epochs"] == 200
    assert cell.network == {"name": "preact-resnet", "arguments": {"depth": 32, "dropout": 0.0, "classes": 5}}
    assert (cell.crops, cell.images) == (24, None)
    assert cell.fit["beta"] == 1.0
    assert bbh_cells.cell(FULL, "cifar5", "published", "MNF").fit["beta"] == "bbh cifar"
    assert bbh_cells.cell(FULL, "cifar5", "published", "ensemble").posterior["members"] == 5
    assert bbh_cells.cell(FULL, "cifar5", "published", "BbH").fit["beta"] == "bbh cifar"


def test_fair_is_the_librarys_defaults():
    for method in bbh_cells.METHODS:
        cell = bbh_cells.cell(FULL, "mnist", "fair", method)
        assert cell.posterior == {}
        assert cell.fit == {"epochs": 100, "batch_size": 100}


def test_the_optimisers_are_those_of_the_code():
    """Adam's ε stands beside the root, that of TensorFlow's RMSProp below it; decay goes into the gradient."""
    for method in bbh_cells.SLIDES:
        fit = bbh_cells.cell(FULL, "mnist", "published", method).fit
        assert fit["optimizer"] == ("rmsprop 1e-5" if method == "BbH" else "adam 1e-5")
        assert fit["weight_decay"] == (1 / 55_000 if method in ("MAP", "MC-dropout") else 0)
    for name, first in (("adam 1e-5", 1 / (1 + 1e-5 / 1e-4)), ("rmsprop 1e-5", 1e-4 / math.sqrt(0.1 * 1e-8 + 1e-5))):
        p = nn.Parameter(torch.zeros(()))
        optimizer = OPTIMIZERS[name]([{"params": [p], "lr": 1.0, "weight_decay": 0.0}])
        p.grad = torch.tensor(1e-4)
        optimizer.step()
        assert -p.item() == pytest.approx(first, rel=0.02), name


def test_other_settings():
    for method, ending in (("BbB", "bbb"), ("MNF", "mnf"), ("LIVI", "livi"), ("BbH", "bbh-tenth")):
        name, cell = bbh_cells.other(FULL, "mnist", method, ending)
        assert name == f"bbh-mnist-other-{ending}"
        assert cell == replace(
            bbh_cells.cell(FULL, "mnist", "fair", method), fit={"epochs": 100, "batch_size": 100, "beta": "a tenth"}
        )
    assert [BETAS["a tenth"](t) for t in (0, 1 / 3, 2 / 3, 1)] == pytest.approx([0, 0.05, 0.1, 0.1])
    fair = bbh_cells.cell(FULL, "mnist", "fair", "BbH")
    assert bbh_cells.other(FULL, "mnist", "BbH", "bbh-fan-in")[1] == replace(fair, posterior={"prior_std": None})
    published = bbh_cells.cell(FULL, "mnist", "published", "BbH")
    assert "samples" not in published.posterior
    for ending, shared, last in (("bbh-shared", True, 64), ("bbh-own", False, 64), ("bbh-wide", False, 256)):
        _, cell = bbh_cells.other(FULL, "mnist", "BbH", ending)
        assert (cell.fit["schedule"], cell.posterior["samples"], cell.fit["beta"]) == ("cosine", 5, "bbh mnist")
        assert (cell.posterior["shared"], cell.posterior["hidden"]) == (shared, [64, 256, last])
    assert len({name for name, _ in bbh_cells.others(FULL, "mnist").values()}) == 10
    whole = bbh_cells.others(FULL, "mnist")["MNF, as published, with all of its divergence"]
    assert whole == ("bbh-mnist-published-mnf", bbh_cells.cell(FULL, "mnist", "published", "MNF"))


def test_other_settings_of_cifar5():
    others = bbh_cells.others(FULL, "cifar5")
    for method, ending in (("BbB", "bbb"), ("MNF", "mnf"), ("BbH", "bbh"), ("LIVI", "livi")):
        name, cell = others[f"{method}, a tenth of the divergence"]
        fair = bbh_cells.cell(FULL, "cifar5", "fair", method)
        assert (name, cell) == (
            f"bbh-cifar5-other-{ending}-tenth",
            replace(fair, fit=fair.fit | {"beta": "a tenth"}),
        )
    assert len({name for name, _ in others.values()}) == 6
    small = bbh_cells.others(Bench(Path(), "small"), "cifar5")
    assert not any(name.startswith("MNF") for name in small)  # which is not trained at that size


@pytest.mark.parametrize("place", ["mnist", "cifar5"])
def test_what_the_authors_mnf_forgets_is_its_convolutions(place):
    name, cell = bbh_cells.contenders(FULL, place, "published")["MNF"]
    whole = bbh_cells.cell(FULL, place, "published", "MNF")
    assert name == f"bbh-{place}-other-forgetful-mnf"
    assert cell == replace(whole, method="forgetful-mnf", posterior=whole.posterior | {"forgotten": "*conv*"})
    posterior = METHODS[cell.method](networks.rebuild(cell.network), seed=0, **cell.posterior)
    counted = ["linear.weight", "linear.bias"] if place == "cifar5" else ["fc1.weight", "fc1.bias"]
    assert posterior.counted.weights.names[:2] == counted
    assert all("conv" in name for name in posterior.uncounted.weights.names)
    drawn = posterity.MNF(networks.rebuild(cell.network), layers=cell.posterior.get("layers")).weights.names
    assert sorted(posterior.weights.names) == sorted(drawn)


def test_livi_stands_beside_the_generators_with_their_network_and_epochs():
    assert bbh_cells.livi(FULL) == ("bbh-mnist-fair-livi", bbh_cells.cell(FULL, "mnist", "fair", "LIVI"))
    small = Bench(Path("nowhere"), "small")
    beside, (name, made) = bbh_cells.layout(small, "single", False)[1], bbh_cells.livi(small)
    assert (name, made.network, made.fit["epochs"]) == ("bbh-mnist-livi", beside.network, beside.fit["epochs"])
    assert bbh_cells.one_number(FULL)[1].posterior["noise"] == 1


def test_kinds_of_generators_by_the_defaults_differ_in_the_generator_alone():
    fair = bbh_cells.cell(FULL, "mnist", "fair", "BbH")
    assert bbh_cells.bound(FULL, "chunked") == ("bbh-mnist-fair-bbh", fair)
    for kind, own in (("sliced", {"layout": "sliced"}), ("single", {"layout": "single", "chunk": 3_316})):
        name, made = bbh_cells.bound(FULL, kind)
        assert name == f"bbh-mnist-{kind}-bound"
        posterior = own | {"hidden": bbh_cells.EQUAL["full"][kind]}
        assert made == replace(fair, posterior=posterior, attacked=0, weighed=0)
    small = Bench(Path(), "small")
    _, made = bbh_cells.bound(small, "chunked")
    assert made.network == bbh_cells.layout(small, "sliced", True)[1].network
    assert (made.fit, made.posterior) == ({"epochs": 20, "batch_size": 100}, {})


def test_the_annealing_is_the_slides():
    """Epoch by epoch: 0 until the fifth of 100, all of it from the twentieth; on CIFAR5 the 20th and 35th of 200."""
    assert [BETAS["bbh mnist"](epoch / 100) for epoch in (0, 5, 12.5, 20, 100)] == pytest.approx([0, 0, 0.5, 1, 1])
    assert [BETAS["bbh cifar"](epoch / 200) for epoch in (0, 20, 27.5, 35, 200)] == pytest.approx([0, 0, 0.5, 1, 1])
    assert [BETAS["bbh first 20"](epoch / 20) for epoch in (0, 5, 12.5, 20)] == pytest.approx([0, 0, 0.5, 1])
    weights = [bbh_toy.beta("published", 200)(i / 200) for i in range(12)]
    assert weights == pytest.approx([1, 1, 1, 1, 1, 10 / 6 - 1, 10 / 7 - 1, 0.25, 10 / 9 - 1, 0, 0, 0])
    assert bbh_toy.beta("fair", 200)(1.0) == 1


def size(kind, equal, bench=FULL):
    _, cell = bbh_cells.layout(bench, kind, equal)
    posterior = posterity.BayesByHypernet(networks.rebuild(cell.network), seed=0, **cell.posterior)
    return sum(p.numel() for p in posterior.generator.parameters())


@pytest.mark.parametrize(("kind", "millions"), [("single", 1.86), ("sliced", 2.46)])
def test_published_generators_have_as_many_parameters_as_in_the_code(kind, millions):
    assert size(kind, equal=False) / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize("bench", [FULL, Bench(Path(), "small")], ids=["full", "small"])
def test_equal_generators_are_equal(bench):
    sizes = [size(kind, equal=True, bench=bench) for kind in bbh_cells.LAYOUTS]
    assert max(sizes) / min(sizes) < 1.1


def test_the_small_size_keeps_the_published_weight_of_the_divergence():
    """Table 1 keeps it by its network: as many weights an image as published, to a tenth."""
    small = Bench(Path(), "small")
    for method in ("BbB", "MNF", "BbH"):
        assert bbh_cells.cell(small, "mnist", "published", method).fit["size"] == 55_000
        assert "size" not in bbh_cells.cell(FULL, "mnist", "published", method).fit
        assert "size" not in bbh_cells.cell(small, "mnist", "fair", method).fit
    _, cell = bbh_cells.layout(small, "single", False)
    weights = sum(p.numel() for p in networks.rebuild(cell.network).parameters())
    assert "size" not in cell.fit
    assert weights / cell.images == pytest.approx(431_080 / 55_000, rel=0.1)


def test_the_resnet_has_the_papers_weights():
    network = networks.create("preact-resnet")
    own = {name: p for name, p in network.named_parameters() if "bn" not in name}
    assert sum(p.numel() for p in own.values()) == 462_693
    posterior = posterity.BayesByBackprop(network, layers=bbh_cells.DRAWN)
    assert set(posterior.weights.names) == set(own)


def test_the_resnet_halves_its_images_in_every_stage():
    network, sides = networks.create("preact-resnet", depth=8), []
    for unit in network.units:
        unit.register_forward_hook(lambda *args: sides.append(args[2].shape[-1]))
    network(torch.zeros(2, 3, 24, 24))
    assert sides == [12, 6, 3]


def test_the_shortcut_is_averaged_and_padded():
    unit = networks.create("preact-resnet", depth=8).units[1]
    torch.nn.init.zeros_(unit.conv2.weight)
    x = torch.randn(2, 16, 4, 4, generator=torch.Generator().manual_seed(0))
    out = unit(x)
    assert torch.allclose(out[:, 8:24], torch.nn.functional.avg_pool2d(x, 2))
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


def test_lenets_dropout_comes_before_the_pooling():
    network = networks.create("lenet-caffe", dropout=0.5)
    seen = []
    network.dropout.register_forward_hook(lambda *args: seen.append(tuple(args[2].shape[1:])))
    network(torch.zeros(1, 1, 28, 28))
    assert seen == [(20, 24, 24), (50, 8, 8), (500,)]
