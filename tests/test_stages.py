"""Every stage of a command is named while it runs: with the seconds on a terminal, by one line elsewhere."""

import io

import numpy as np
from rich.console import Console
from typer.testing import CliRunner

from posterity.cli.app import app
from posterity.cli.console import Output, Stages


def table(path):
    x = np.random.default_rng(0).normal(size=(80, 2))
    path.write_text("\n".join(["a,b,y", *(f"{a},{b},{a - b**2}" for a, b in x.tolist())]))
    return path


def lines(text):
    return [line for line in text.splitlines() if line.endswith("…")]


def test_a_comparison_names_each_stage_in_a_line(tmp_path):
    data = table(tmp_path / "t.csv")
    words = ["compare", data, "--target", "y", "--methods", "map", "--epochs", 1, "--out", tmp_path / "o"]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, result.output
    run = "[1/1] map, seed 0: "
    parts = ["training", "predicting the test rows", "predicting OOD inputs", "scoring", "predicting corrupted inputs"]
    expected = [f"Reading {data}", *(run + part for part in parts), "Summarising the scores", "Drawing the report"]
    assert lines(result.stderr) == [f"{line} …" for line in expected]
    result = CliRunner().invoke(
        app, ["evaluate", str(tmp_path / "o/models/map"), str(data), "--out", str(tmp_path / "e")]
    )
    assert lines(result.stderr)[1] == "Predicting the test rows …"


def test_a_terminal_shows_the_stage_and_its_seconds(monkeypatch):
    monkeypatch.setattr(Output, "interactive", True)
    output = Output()
    output._progress = Console(file=io.StringIO(), force_terminal=True, width=80)
    with Stages(output, "[1/2] map")("scoring [all]"):
        pass
    shown = output._progress.file.getvalue()
    assert "[1/2] map: scoring [all]" in shown
    assert "0:00:00" in shown
    assert "…" not in shown
    with output.stage("training", own_bar=True):  # whose bar is shown in its place
        pass
    assert "training …" in output._progress.file.getvalue()


def test_a_stage_that_fails_is_left(monkeypatch):
    monkeypatch.setattr(Output, "interactive", True)
    output = Output()
    output._progress = Console(file=io.StringIO(), force_terminal=True)
    for _ in range(2):  # a display that were still live would refuse the second
        try:
            with output.stage("reading"):
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    assert output._progress.file.getvalue().count("reading") >= 2
