"""The table of others' faults in docs/results/faults.md names tests that exist."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def table() -> list[list[str]]:
    """The cells of every row of the table."""
    lines = (ROOT / "docs" / "results" / "faults.md").read_text().splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@functools.cache
def functions(path: Path) -> set[str]:
    """The names of the tests in a file, which is read and not run."""
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_test_in_the_table_exists():
    named = [re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[2]) for row in table()]
    assert sum(map(len, named)) > 100
    missing = {
        f"{path}::{name}"
        for row in named
        for path, name in row
        if not (ROOT / path).is_file() or name not in functions(ROOT / path)
    }
    assert missing == set()


def test_every_row_has_a_fault_a_harm_and_a_test_or_a_reason():
    for row in table():
        assert len(row) == 3, row
        assert all(row), row
        words = row[2].split("<br>")
        assert row[2].startswith("– ") or all(re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", word) for word in words), (
            row
        )
    faults = [row[0] for row in table()]
    assert len(set(faults)) == len(faults)


def test_every_test_of_faults_is_in_the_table():
    named = set(re.findall(r"::(test_\w+)`", " ".join(row[2] for row in table())))
    tests = {name for path in (ROOT / "tests" / "faults").glob("test_*.py") for name in functions(path)}
    assert {name for name in tests if name.startswith("test_")} <= named
