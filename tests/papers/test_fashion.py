import copy
import shutil

import pytest
import torch

import posterity
from posterity.papers import fashion
from posterity.papers.reproduction import Bench, Entry, reproduce

FIGURES = {"figure-2": fashion.figure_2, "figure-3": fashion.figure_3}


def run(folder, name, **options):
    return reproduce(Entry(name, name, FIGURES[name]), Bench(folder, device="cpu", **options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fashion")


@pytest.fixture(scope="module")
def outcomes(folder):
    return {name: run(folder, name) for name in FIGURES}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_numbers_words_and_a_picture(outcomes, folder, name):
    outcome = outcomes[name]
    assert outcome.tables
    assert outcome.findings
    assert outcome.figure.get_label()
    assert (folder / "smoke" / f"{name}.png").stat().st_size > 10_000


def test_figures_2_and_3_share_one_trained_posterior(outcomes, folder):
    cells = [path.stem for path in (folder / "smoke" / "cells").iterdir() if path.stem.startswith("fashion-lenet")]
    assert cells == ["fashion-lenet-ibnn-8-0"]
    assert outcomes["figure-2"].numbers["settings"] == outcomes["figure-3"].numbers["settings"]
    assert (folder / "smoke" / "models" / cells[0] / "config.json").is_file()


@pytest.mark.parametrize("name", FIGURES)
def test_a_second_call_trains_nothing_and_says_the_same(outcomes, folder, monkeypatch, name):
    monkeypatch.setattr(posterity, "fit", None)
    assert run(folder, name).findings == outcomes[name].findings


def test_a_missing_model_is_trained_again_unless_only_records_are_wanted(outcomes, folder, tmp_path):
    shutil.copytree(folder / "smoke", tmp_path / "smoke")
    shutil.rmtree(tmp_path / "smoke" / "models")
    with pytest.raises(posterity.Error, match="run it without --recorded"):
        run(tmp_path, "figure-3", recorded=True)
    with pytest.raises(posterity.Error, match="run it without --only"):
        run(tmp_path, "figure-3", only="another")
    again = fashion.trained(Bench(tmp_path, device="cpu"))
    first = fashion.trained(Bench(folder, device="cpu"))
    assert torch.equal(again[1].means, first[1].means)


def test_figure_2_speaks_of_the_mixture_its_components_and_the_bare_network(outcomes):
    numbers = outcomes["figure-2"].numbers
    assert len(numbers["components"]["loss"]) == 8
    assert 0 < numbers["explained"] <= 1
    assert numbers["rows"] == 100


def test_figure_3_shows_the_extremes_of_each_class(outcomes, folder):
    record, posterior = fashion.trained(Bench(folder))
    _, (x, y), names = fashion.images(record["settings"], None)
    generator = torch.Generator().manual_seed(0)
    probs = posterior.draw(fashion.DRAWS, generator)(x).softmax(-1).mean(0)
    entropy = -(probs * probs.log()).sum(1)
    inputs = outcomes["figure-3"].numbers["inputs"]
    for label in range(4):
        own = entropy[y == label]
        sure, unsure = (inputs[kind][label] for kind in ("most certain", "least certain"))
        assert sure["class"] == unsure["class"] == names[label]
        assert sure["entropy"] == pytest.approx(float(own.min()), rel=1e-4)
        assert unsure["entropy"] == pytest.approx(float(own.max()), rel=1e-4)


def test_digits_stand_in_for_fashion_at_its_size():
    settings = {"data": "digits", "images": 5, "tested": 3}
    (x, y), (x_test, _), names = fashion.images(settings, None)
    assert x.shape == (5, 1, 28, 28)
    assert x_test.shape == (3, 1, 28, 28)
    assert len(y) == 5
    assert names == list("0123456789")


def test_component_findings_follow_the_numbers(outcomes):
    numbers = copy.deepcopy(outcomes["figure-2"].numbers)
    numbers["components"] = {"loss": [0.3, 0.4], "error": [0.2, 0.3]}
    numbers |= {"average": {"loss": 0.2, "error": 0.2}, "without_noise": {"loss": 0.5, "error": 0.22}}
    numbers["mixture"] = {"error": 0.1}
    _, mode, mixture = fashion.component_findings(numbers)
    assert "lie around one mode" in mode
    assert "is lower than" in mixture
    numbers["average"]["loss"], numbers["mixture"] = 0.9, {"error": 0.28}
    _, mode, mixture = fashion.component_findings(numbers)
    assert "do not lie around one mode" in mode
    assert "is not lower than" in mixture
    assert "not lower than that of the network without noise" in mixture


def test_answer_findings_follow_the_numbers():
    sure, unsure = ({"agreeing": a, "answers": n, "entropy": h} for a, n, h in ((1.0, 1, 0.01), (0.3, 5, 1.9)))
    assert "give diverse answers" in fashion.answer_findings({"most certain": [sure], "least certain": [unsure]}, 10)[0]
    turned = {"most certain": [unsure], "least certain": [sure]}
    assert "no more diverse" in fashion.answer_findings(turned, 10)[0]
