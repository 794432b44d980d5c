"""The iBNN paper's tables at their smallest, and what they say of the numbers they are given."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from posterity import papers
from posterity.cli.app import app
from posterity.papers import Bench, ibnn, ibnn_cells, published, reproduce
from posterity.papers.page import page

TABLES = ("table-3", "table-4", "table-5", "figure-5", "table-6", "figure-6", "figure-7", "figure-8", "entropic")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproductions")


@pytest.mark.parametrize("name", TABLES)
def test_every_entry_runs_at_smoke(name, folder):
    bench = Bench(folder, "smoke")
    outcome = reproduce(papers.find(f"ibnn-{name}"), bench)
    assert outcome.numbers
    assert outcome.findings or name in ("table-6", "figure-6")
    for table in outcome.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    if outcome.figure is not None:
        assert (bench.folder / f"ibnn-{name}.png").stat().st_size > 5_000
        assert len(outcome.figure.get_label()) > 20


def test_the_command(folder):
    result = CliRunner().invoke(
        app, ["reproduce", "ibnn-table-3", "--size", "smoke", "--out", str(folder), "--recorded", "--json"]
    )
    assert result.exit_code == 0, result.output
    assert "numbers" in json.loads(result.stdout)
    listed = CliRunner().invoke(app, ["reproduce"])
    assert "ibnn-figure-1" in listed.output
    wrong = CliRunner().invoke(app, ["reproduce", "ibnn-table-33"])
    assert wrong.exit_code == 2


def records(**nll):
    """Records of all methods, with errors and calibration errors that follow the NLL."""
    return {
        method: [{"scores": {"error": value / 10, "nll": value, "ece": value / 100}, "train_seconds": 1.0}]
        for method, value in nll.items()
    }


def known(better=True):
    methods = dict.fromkeys((*ibnn.METHODS, ibnn.OURS), 2.0) | {"iBNN-4": 1.9, "iBNN-8": 1.8}
    return records(**(methods | {"iBNN-16": 1.7 if better else 2.1}))


def test_claims_follow_the_numbers():
    place = "vgg16", "cifar10"
    said = " ".join(ibnn._claims(place, known(), "nll"))
    assert "the NLL of iBNN-16 (1.7000) is lower than SGD's (2.0000) and MC-dropout's (2.0000)" in said
    assert "more components lower it" in said
    assert "entropic iBNN (2.0000) is not lower than iBNN-16's (1.7000)" in said
    said = " ".join(ibnn._claims(place, known(better=False), "nll"))
    assert "iBNN-16 (2.1000) is not lower than SGD's (2.0000)" in said
    assert "more components do not always lower" in said


def test_harm_of_many_components_follows_the_numbers():
    few, many = records(**{"16": 1.0, "32": 1.1}), records(**{"16": 1.0, "32": 0.9})
    said = ibnn._component_claims({"a": few, "b": many})
    assert said[0].startswith("a: more than 16 components harm")
    assert said[1].startswith("b: more than 16 components do no harm")


def test_means_over_seeds():
    found = [{"scores": {"nll": value}} for value in (1.0, 2.0)]
    assert ibnn._mean(found, "nll") == "1.5000 ± 0.7071 (2)"
    assert ibnn._mean(found[:1], "nll") == "1.0000"
    assert ibnn._mean([], "nll") == "–"
    assert ibnn._published(published.IBNN["vgg16", "cifar10"]["iBNN-16"], "error") == "6.19 ± 0.07"


def test_the_full_setting_is_the_papers():
    """What is trained at full size, against table 2 of the paper and what its code does."""
    cell = ibnn_cells.cell(Bench(Path(), "full"), "vgg16", "cifar100", "iBNN-8")
    assert cell.posterior["components"] == 8
    assert cell.posterior["samples"] == 2
    assert (cell.posterior["prior_std"], cell.posterior["init_std"]) == (0.3, 0.75)
    assert cell.posterior["kl"] == "mixture_mean"
    assert cell.posterior["gamma"] == 0
    assert cell.posterior["assignment"] == "authors"
    assert cell.fit["lr_posterior"] * 8 == pytest.approx(1.6)
    assert (cell.fit["lr"], cell.fit["weight_decay"], cell.fit["epochs"]) == (0.05, 3e-4, 300)
    assert (cell.draws, cell.standard, cell.images) == (40, "imagenet", None)
    wide = ibnn_cells.cell(Bench(Path(), "full"), "wrn28x10", "cifar10", "MC-dropout")
    assert wide.network["arguments"] == {"classes": 10, "dropout": 0.3, "depth": 28, "width": 10}
    assert wide.standard == "cifar10"


def test_the_entropic_setting():
    cell = ibnn_cells.entropic_cell(Bench(Path(), "full"), "vgg16", "cifar100", 4, 80)
    assert cell.posterior["kl"] == "bound"
    assert cell.posterior["gamma"] == 80
    assert cell.posterior["init_noise"] == 0.3
    assert cell.fit["lr_posterior"] * 4 / (1 - 0.9) == pytest.approx(0.05)
    assert cell.fit["epochs"] == 300
    assert cell.posterior["samples"] * cell.fit["batch_size"] == 256


def test_sgd_is_dropout_without_dropout():
    record = {"scores": {"nll": 1.0}, "undisturbed": {"scores": {"nll": 2.0}}, "settings": {"data": "cifar10"}}

    class Only(Bench):
        def cell(self, name, settings, make):
            return [record] if "mc-dropout" in name else []

    found = ibnn._rows(Only(Path(), "full"), "vgg16", "cifar10")
    assert found["SGD"][0]["scores"]["nll"] == 2.0
    assert found["MC-dropout"][0]["scores"]["nll"] == 1.0


def test_the_page(folder, tmp_path):
    reproduce(papers.find("ibnn-table-6"), Bench(folder, "smoke"))
    (tmp_path / "small").mkdir()
    for part in ("ibnn-table-6.json", "ibnn-table-6.png"):
        (tmp_path / "small" / part).write_bytes((folder / "smoke" / part).read_bytes())
    target = tmp_path / "docs" / "ibnn.md"
    page("ibnn", tmp_path, target)
    text = target.read_text()
    assert "## Table 6: the number of components" in text
    assert "| batch | K |" in text
    assert "](images/small-ibnn-table-6.png)" in text
    assert (target.parent / "images" / "small-ibnn-table-6.png").exists()
    assert "Not run yet." in text


def test_the_sums_of_calibration_bins(folder):
    """Figure 7 shows what the score says: the gaps, weighed by their shares, are the ECE."""
    outcome = reproduce(papers.find("ibnn-figure-7"), Bench(folder, "smoke"))
    rows = ibnn._rows(Bench(folder, "smoke"), "lenet", "digits")
    bins = {key: torch.tensor(value) for key, value in outcome.numbers["LeNet, digits"]["iBNN-16"].items()}
    gap = (bins["share"] * (bins["confidence"] - bins["accuracy"]).abs()).sum()
    assert float(gap) == pytest.approx(rows["iBNN-16"][0]["scores"]["ece"], abs=1e-5)


def test_bnn_vi_that_falls_back_to_its_prior_is_shown():
    dead = {"scores": {"nll": 2.30259}, "undisturbed": {}, "settings": {"data": "cifar10"}, "seed": 0}

    class Dead(Bench):
        def cell(self, name, settings, make):
            return [dead]

    found = ibnn._rows(Dead(Path(), "full"), "vgg16", "cifar10")
    assert found["BNN-VI"] == [dead]
    assert not found["iBNN-16"]
    assert not ibnn._stuck({"BNN-VI": [dead]}, "VGG-16")
    assert ibnn._stuck({"iBNN-16": [dead]}, "VGG-16")


def test_a_network_that_learned_nothing_is_left_out_and_named():
    dead, alive = ({"scores": {"nll": v}, "settings": {"data": "cifar10"}, "seed": 3} for v in (2.30259, 0.4))
    assert ibnn._alive([dead, alive]) == [alive]
    (said,) = ibnn._stuck({"SGD": [dead, alive], "iBNN-16": [alive]}, "VGG-16, CIFAR-10")
    assert said.startswith("VGG-16, CIFAR-10: SGD (seed 3) learned nothing")
    assert not ibnn._stuck({"SGD": [alive]}, "VGG-16, CIFAR-10")
