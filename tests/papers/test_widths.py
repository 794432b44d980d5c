from pathlib import Path

import pytest

import posterity
from posterity.papers import widths
from posterity.papers.reproduction import Bench, Entry, reproduce


def test_figure_4_has_numbers_words_and_a_picture_and_is_trained_once(tmp_path, monkeypatch):
    entry = Entry("figure-4", "figure-4", widths.figure_4)
    outcome = reproduce(entry, Bench(tmp_path))
    assert outcome.tables
    assert outcome.findings
    assert outcome.figure.get_label()
    assert (tmp_path / "smoke" / "figure-4.png").stat().st_size > 10_000
    monkeypatch.setattr(posterity, "fit", None)
    assert reproduce(entry, Bench(tmp_path)).findings == outcome.findings


def test_width_findings_follow_the_numbers():
    errors = {"iBNN-8": {1: 0.12, 2: 0.10, 4: 0.09}, "BNN-VI": {1: 0.14, 2: 0.13, 4: 0.17}}
    said = widths.findings(errors, 5_000)
    assert said[0].startswith("iBNN-8 improves from ×1 to ×16")
    assert "BNN-VI degrades beyond ×4, to ×16, as the paper says." in said
    assert said[-1] == "iBNN's error is lower than BNN-VI's at 3 of 3 widths."
    errors["BNN-VI"][4] = 0.125
    assert "BNN-VI hardly changes beyond ×4, to ×16, unlike in the paper." in widths.findings(errors, 5_000)
    errors["iBNN-8"][4] = 0.2
    assert widths.findings(errors, 5_000)[0].startswith("iBNN-8 degrades")


def test_figure_4_gives_all_widths_the_same_lesson():
    bench = Bench(Path("nowhere"), "full")
    for method in widths.METHODS:
        one, wide = (widths.cell(bench, method, width) for width in (1, 8))
        assert (one.posterior, one.fit, one.images) == (wide.posterior, wide.fit, wide.images)
        assert wide.network["arguments"]["width"] == 8
    assert widths.cell(bench, "ibnn", 1).fit["epochs"] == 300


@pytest.mark.parametrize(("size", "short"), [("small", True), ("full", False)])
def test_a_training_too_short_to_judge_bnn_vi_says_so(size, short):
    said = widths.too_short(widths.cell(Bench(Path("nowhere"), size), "bbb", 1))
    assert bool(said) is short
    assert not short or "1,180 steps" in said[0]
