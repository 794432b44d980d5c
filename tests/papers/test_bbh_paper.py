"""Bayes by Hypernet's tables and figures at their smallest, their page, and what is said of the numbers."""

import json
from pathlib import Path

import pytest
import torch

from posterity import papers
from posterity.papers import Bench, bbh, bbh_figures, pictures, published, reproduce
from posterity.papers.page import page
from posterity.papers.words import PAPERS

FULL = Bench(Path(), "full")
RESULTS = Path(__file__).parents[2] / "reproductions"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproductions")


@pytest.mark.parametrize("name", [entry.name for entry in bbh.ENTRIES])
@pytest.mark.filterwarnings("ignore:The nearest-neighbour estimate")
def test_every_entry_runs_at_smoke(name, folder):
    bench = Bench(folder, "smoke", device="cpu")
    outcome = reproduce(papers.find(name), bench)
    check_livi(outcome)
    assert outcome.numbers
    assert len(outcome.findings) > 1  # the first is the same for all of this size
    for table in outcome.tables:
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert (outcome.figure is None) == (name in ("bbh-table-1", "bbh-runtime"))
    if outcome.figure is not None:
        assert (bench.folder / f"{name}.png").stat().st_size > 5_000
        assert len(outcome.figure.get_label()) > 20


def check_livi(outcome):
    """It stands beside the hypernet in every table, and is none of those that the slides compare."""
    assert outcome.tables
    for table in outcome.tables:
        assert any("LIVI" in row[0] for row in table.rows), table.title
    assert not any("by default" in line for line in outcome.findings if "not run" not in line)


@pytest.mark.parametrize(
    "path", sorted(RESULTS.glob("*/bbh-*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_livi_stands_beside_every_hypernet_in_what_is_recorded(path):
    check_livi(papers.find(path.stem).run(Bench(RESULTS, path.parent.name, recorded=True)))


def test_the_picture_of_scores_has_a_mark_for_each_network_and_each_published_number():
    found = {"published": numbers(), "fair": numbers() | {"LIVI": numbers()["BbH"]}}
    figure = pictures.errors_and_areas(found, published.BBH_MNIST)
    assert figure is not None
    errors, areas, told = figure.axes
    marks = [[line.get_xydata()[0].tolist() for line in axes.lines if len(line.get_xydata())] for axes in figure.axes]
    assert [len(of) for of in marks] == [6 + 6 + 7, 6 + 6 + 7, 6 + 7]
    assert [at[1] for at in marks[0][:6]] == pytest.approx([values[0] for values in published.BBH_MNIST.values()])
    assert [at[1] for at in marks[1][6:12]] == [values[2] for values in published.BBH_MNIST.values()]
    assert marks[2][0] == [0.71, pytest.approx(0.29)]
    assert "LIVI 0.520" in figure.get_label()
    assert {tick.get_text() for tick in errors.get_xticklabels()} >= {"MAP", "LIVI"}
    assert areas.get_ylabel() == told.get_xlabel()
    assert pictures.errors_and_areas({"published": {}, "fair": {}}, published.BBH_MNIST) is None


def test_attacks_and_weights_train_nothing_beyond_table_3(folder):
    bench = Bench(folder, "smoke", device="cpu")
    bbh.table_3(bench)
    cells = {path.name for path in (folder / "smoke" / "cells").iterdir()}
    bbh_figures.attacks(bench)
    bbh_figures.weights(bench)
    assert {path.name for path in (folder / "smoke" / "cells").iterdir()} == cells


def test_the_page(folder, tmp_path):
    bbh_smoke = reproduce(papers.find("bbh-table-3"), Bench(folder, "smoke", device="cpu"))
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "bbh-table-3.json").write_bytes((folder / "smoke" / "bbh-table-3.json").read_bytes())
    page("bbh", tmp_path, tmp_path / "bbh.md")
    text = (tmp_path / "bbh.md").read_text()
    assert "## Table 3: digits of MNIST, with letters" in text
    _, introduction, notes = PAPERS["bbh"]
    assert set(notes) == {entry.name for entry in bbh.ENTRIES}
    parts = text.split("\n## ")
    assert introduction.strip() in parts[0]
    assert "\n| BbH has the best trade-off of fit and uncertainty on the toy | no " in parts[0]
    for entry, part in zip(bbh.ENTRIES, parts[1:], strict=True):  # what is said stands above what it is said of
        assert part.index(notes[entry.name].strip()) < part.find("**Size small**") or "Not run yet." in part
    assert all(f"- {finding}" in text for finding in bbh_smoke.findings)


def numbers(**changes):
    """Of all methods, BbH as in the slides."""
    found = {}
    for method, (error, inside, outside, _) in published.BBH_MNIST.items():
        found[method] = {
            "error": error / 100,
            "inside_auc": inside,
            "outside_auc": outside,
            "auroc_total": 1 - outside,
            "nll": error,
            "calibrated_nll": error,
            "tested": 1e6,
        }
    found["BbH"] |= changes
    return found


def test_claims_follow_the_numbers():
    said = bbh.claims("as published", numbers(), slides=True)
    assert [" held: " in line for line in said[:2]] == [True, True]
    assert "fewer have ensemble 0.49, MC-dropout 0.47" in said[0]
    assert "BbH the second of 6 (0.520 ± 0.000)" in said[2]
    assert bbh._area({"auroc_total": 0.5, "tested": 1000}) == "0.500 ± 0.013"  # √(1/12 · 2/1000)
    said = bbh.claims("as published", numbers(error=0.01, outside_auc=0.7), slides=True)
    assert [" did not hold: " in line for line in said[:2]] == [True, True]
    few = numbers(error=0.0066)
    assert "did not hold" in bbh.claims("x", few, slides=True)[0]
    for values in few.values():
        values["tested"] = 1000  # 0.66 and 0.63 % of 1,000 are no difference
    assert "did not hold, within chance: " in bbh.claims("x", few, slides=True)[0]
    few["BbH"]["error"] = 0.006
    assert " held, within chance: " in bbh.claims("x", few, slides=True)[0]
    for area, held in ((0.62, "did not hold, within chance: "), (0.55, " held, within chance: ")):
        assert held in bbh.claims("x", numbers(outside_auc=area), slides=True)[1]


def test_claims_on_generators_follow_the_numbers():
    found = {kind: numbers()["BbH"] | {"error": e / 100} for kind, (e, *_) in published.BBH_LAYOUTS.items()}
    (said,) = bbh._layout_claims("published layers", found)
    assert "performance held: " in said
    found["layer-wise"]["error"] = 0.02
    (said,) = bbh._layout_claims("published layers", found)
    assert "did not hold: " in said
    found["layer-wise"]["error"] = 0.01101
    assert "did not hold, within chance: " in bbh._layout_claims("published layers", found)[0]
    found["layer-wise"]["error"], found["single"]["error"] = 0.006, 0.89
    (said,) = bbh._layout_claims("published layers", found)
    assert "performance held: " in said
    assert "; single ended at chance." in said
    found["sliced"]["error"] = 0.9
    assert "performance cannot be told: " in bbh._layout_claims("published layers", found)[0]


def test_what_was_not_run_is_said(folder, tmp_path):
    reproduce(papers.find("bbh-table-4"), Bench(tmp_path, "smoke", device="cpu", only="cifar5-fair-map"))
    outcome = reproduce(papers.find("bbh-table-4"), Bench(tmp_path, "smoke", recorded=True))
    assert "With the library's defaults, not run at this size: BbB; BbH; iBNN; LIVI." in outcome.findings
    assert not any(line.startswith("As published, not run") for line in outcome.findings)
    whole = reproduce(papers.find("bbh-table-4"), Bench(folder, "smoke", device="cpu"))
    assert not any("not run" in line for line in whole.findings)


def test_claims_on_time_follow_the_numbers():
    for known, slow in ((published.BBH_MNIST, "MAP"), (published.BBH_LAYOUTS, "single")):
        seconds = {method: values[3] for method, values in known.items()}
        assert " held: " in bbh.runtime_claims("x", seconds)[0]
        assert " did not hold: " in bbh.runtime_claims("x", seconds | {slow: 1e6})[0]


def test_time_is_that_of_epochs_after_the_first(tmp_path):
    outcome = reproduce(papers.find("bbh-runtime"), Bench(tmp_path, "smoke", device="cpu"))
    path = tmp_path / "smoke" / "cells" / "bbh-mnist-published-map-timed-0.json"
    record = json.loads(path.read_text())
    first, second = record["history"]["seconds"]
    assert outcome.numbers["as published"]["MAP"] == second
    record["history"]["seconds"] = [first, 2.0]
    path.write_text(json.dumps(record))
    other = reproduce(papers.find("bbh-runtime"), Bench(tmp_path, "smoke", recorded=True))
    assert other.numbers["as published"]["MAP"] == 2.0
    assert other.tables[0].rows[0][2] == "1.0"
    assert float(other.tables[0].rows[1][2]) == pytest.approx(outcome.numbers["as published"]["ensemble"] / 2, abs=0.06)


def test_claims_on_attacks_follow_the_numbers():
    def curve(error, moved, chance=0.01):
        return {"mean_error": error, "moved": moved, "chance": chance, "lines": []}

    curves = {"a, b": {"MAP": curve(0.6, 1.0), "BbH": curve(0.5, 0.3), "LIVI": curve(0.1, 0.9)}}
    said = bbh_figures.attack_claims(curves)
    assert "least vulnerable held (" in said[0]
    assert "by 0.30 ε against BbH and by 1.00 ε against MAP" in said[0]
    assert "LIVI 10.0" in said[1]
    curves["a, b"]["BbH"] = curve(0.7, 0.3)
    assert "least vulnerable did not hold (" in bbh_figures.attack_claims(curves)[0]
    curves["a, b"]["BbH"] = curve(0.55, 0.3, chance=0.05)
    assert "least vulnerable held, within chance (" in bbh_figures.attack_claims(curves)[0]


def test_the_worse_of_both_attacks_is_taken_at_each_size():
    def curve(*errors):
        return {"lines": [{"eps": 0.1 * at, "error": error} for at, error in enumerate(errors)]}

    slides, full = {"BbH": curve(0.9, 0.2, 0.8), "MAP": curve(0, 0.5, 0.9)}, {"BbH": curve(0, 0.4, 0.6)}
    curves = {"as published, attack of the slides": slides, "as published, full attack": full | {"MAP": slides["MAP"]}}
    (said,) = bbh_figures.worse_of_both(curves)
    assert said.endswith("the mean error in % is BbH 60.0, MAP 70.0.")


def test_the_deviation_over_images_follows_from_the_curve():
    fooled = torch.rand(500, 1, generator=torch.Generator().manual_seed(0)) < torch.linspace(0.1, 0.9, 8)
    expected = fooled.double().mean(1).std(correction=0)
    assert bbh_figures._deviation(fooled.double().mean(0).tolist()) == pytest.approx(float(expected))


def test_claims_on_weights_follow_the_numbers():
    layers = {name: {"size": 1.0, "spread": 0.2} for name in "abcd"}
    kept = {"draws": 100, "layers": layers, "within": 0.09, "between": 0.09}
    assert "weights were not seen to correlate" in bbh_figures.weight_claims({"x": kept})[0]
    said = bbh_figures.weight_claims({"x": kept | {"within": 0.15}})
    assert "weights correlate within a layer (" in said[0]
    assert "x 0.2" in said[1]
