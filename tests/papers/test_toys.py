import copy
from pathlib import Path

import pytest
import torch

import posterity
from posterity.datasets.toys import cubic
from posterity.papers import toys
from posterity.papers.reproduction import Bench, Entry, reproduce

ENTRY = Entry("ibnn-figure-1", "y = x³ by depth", toys.figure_1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("toys")


@pytest.fixture(scope="module")
def outcome(folder):
    return reproduce(ENTRY, Bench(folder))


def test_every_panel_has_its_numbers_and_the_picture_is_written(outcome, folder):
    assert {p: {m: set(by) for m, by in methods.items()} for p, methods in outcome.numbers["panels"].items()} == {
        "text": {"ibnn": {1, 2}, "bbb": {1, 2}},
        "code": {"ibnn": {1, 2}, "bbb": {1, 2}},
    }
    assert [len(table.rows) for table in outcome.tables] == [4, 4]
    assert (folder / "smoke" / "ibnn-figure-1.png").stat().st_size > 10_000
    assert "RMSE" in outcome.figure.get_label()


def test_a_second_call_trains_nothing_and_says_the_same(outcome, folder, monkeypatch):
    monkeypatch.setattr(posterity, "fit", None)
    again = reproduce(ENTRY, Bench(folder))
    assert again.findings == outcome.findings


def test_without_records_there_is_a_figure_of_empty_panels(tmp_path):
    outcome = toys.figure_1(Bench(tmp_path, recorded=True))
    assert len(outcome.findings) == 1
    assert outcome.tables[0].rows == []


def test_the_codes_divergence_is_not_divided_by_the_number_of_points():
    bench = Bench(Path("nowhere"), "full")
    settings = toys.panel(bench, "code", "ibnn", 3)
    weight = toys.beta(settings)
    assert settings["steps"] == 5_000
    assert weight(0) == 0
    assert weight(500 / 5_000) == pytest.approx(200)
    assert weight(1_000 / 5_000) == weight(1) == settings["points"] == 400
    net = torch.nn.Linear(1, 1)
    posterior = posterity.IBNN(net, seed=0, **settings["posterior"])
    x, y = torch.zeros(400, 1), torch.zeros(400, 1)
    likelihood = posterity.Gaussian(std=1.0)
    losses = []
    for scale in (0.0, weight(1)):
        torch.manual_seed(0)
        losses.append(posterior.loss(x, y, likelihood, size=400, beta=scale))
    assert (losses[1] - losses[0]).item() == pytest.approx(posterior.divergence().item(), rel=1e-5)


def test_the_text_gives_both_methods_the_same_data_and_weight():
    bench = Bench(Path("nowhere"), "full")
    ours, theirs = (toys.panel(bench, "text", method, 1) for method in ("ibnn", "bbb"))
    for key in ("points", "noise", "steps", "beta", "ramp", "hidden"):
        assert ours[key] == theirs[key]
    assert (ours["points"], ours["beta"]) == (30, 1.0)
    ours, theirs = (toys.panel(bench, "code", method, 1) for method in ("ibnn", "bbb"))
    assert (ours["noise"], theirs["noise"]) == (2.0, 1.0)
    assert theirs["beta"] == toys.beta(theirs)(0) == 1.0
    assert theirs["posterior"]["prior_std"] * theirs["posterior"]["init_std"] == pytest.approx(0.015)


def test_scores_of_the_cube_itself_are_exact():
    x = toys.grid().flatten().double()
    scores = toys.scores(x**3 + 1, x.abs())
    assert scores["rmse"] == pytest.approx(1, abs=1e-5)
    assert scores["inside"] == pytest.approx(2, abs=1e-6)
    assert scores["gap"] == pytest.approx(sum(abs(i) * 0.05 for i in range(-19, 20)) / 39, abs=1e-6)
    assert scores["outside"] == pytest.approx(4.025, abs=1e-5)
    inside = cubic(0, points=2_001, noise=0.0).train[1]
    assert toys.target_rms() == pytest.approx(float((inside**2).mean() ** 0.5), rel=0.02)


def panel(rmse: float, inside: float = 1.0, outside: float = 5.0) -> dict[str, float]:
    return {"rmse": rmse, "inside": inside, "gap": inside, "outside": outside}


def test_findings_follow_the_numbers():
    held = {"code": {"ibnn": {1: panel(0.5), 5: panel(0.7)}, "bbb": {1: panel(0.6), 5: panel(11.0)}}}
    assert toys.findings(held)[-1] == (
        "As in the code, the paper's finding held here: BNN-VI collapses with depth, iBNN keeps fit and uncertainty."
    )
    assert "BNN-VI loses the fit with 5 hidden layers" in toys.findings(held)[1]
    other = copy.deepcopy(held)
    other["code"]["bbb"][5] = panel(0.8)
    assert "did not hold here: BNN-VI does not collapse" in toys.findings(other)[-1]
    other["code"]["bbb"][5] = panel(4.8)
    assert "held in part here: BNN-VI gets worse with depth (8 times the RMSE)" in toys.findings(other)[-1]
    other = copy.deepcopy(held)
    other["code"]["ibnn"][5] = panel(0.7, inside=3.0, outside=2.0)
    assert "did not hold here: BNN-VI collapses with depth, iBNN does not keep both" in toys.findings(other)[-1]
    assert "not larger outside the data with 5 hidden layers" in toys.findings(other)[0]
    other = copy.deepcopy(held)
    other["code"]["bbb"][1] = panel(12.0)
    assert "does not fit even with one layer" in toys.findings(other)[-1]
