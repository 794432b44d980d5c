"""What is recorded: every table comes out of the networks that are kept beside it, with the settings of today."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from posterity import papers
from posterity.cli.console import plain
from posterity.papers import Bench
from posterity.papers.page import page

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "reproductions").glob("*/*.json"))
#: Drawn from the trained network itself, which is too large to keep.
FROM_MODELS = ("ibnn-figure-2", "ibnn-figure-3")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_table_comes_out_of_its_cells(path, monkeypatch):
    """A change of the recipes would orphan what was trained for hours."""
    monkeypatch.delenv("POSTERITY_DATA", raising=False)
    record = json.loads(path.read_text())
    if record["entry"] in FROM_MODELS:
        return
    bench = Bench(ROOT / "reproductions", record["size"], record["seeds"], recorded=True)
    outcome = papers.find(record["entry"]).run(bench)
    assert_same(plain(outcome.numbers), record["numbers"])
    assert [asdict(table) for table in outcome.tables] == record["tables"]
    assert outcome.findings == record["findings"]
    assert list(dict.fromkeys(bench.used)) == record["cells"]


def assert_same(found, expected):
    """Equal but for the last digits, in which processors and versions of numpy differ."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == (pytest.approx(expected, rel=1e-9, abs=1e-12) if isinstance(expected, float) else expected)


def test_every_cell_is_used():
    kept = {(path.parents[1].name, path.stem) for path in (ROOT / "reproductions").glob("*/cells/*.json")}
    used = {(path.parent.name, name) for path in RECORDS for name in json.loads(path.read_text())["cells"]}
    assert kept == used


@pytest.mark.parametrize("paper", ["ibnn", "bbh"])
def test_the_page_is_what_the_records_say(paper, tmp_path):
    shutil.copytree(ROOT / "docs" / "reproductions" / "images", tmp_path / "images")
    page(paper, ROOT / "reproductions", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == (ROOT / "docs" / "reproductions" / f"{paper}.md").read_text()
