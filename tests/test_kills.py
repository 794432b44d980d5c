"""Runs that are killed go on as if nothing had happened: a few kills of what `benchmarks.kills` does fifty times."""

import random
import time

import pytest
from benchmarks import kills

from own_process import without_gpu


@without_gpu
@pytest.mark.parametrize(("method", "writing"), [("ibnn", False), ("bbb", True)])
def test_a_run_that_is_killed_twice_ends_as_one_that_is_left_alone(method, writing, tmp_path, monkeypatch):
    """Kills come within half the time of a whole run, however fast the machine is; those that miss it are repeated."""
    monkeypatch.setattr(kills, "EPOCHS", 2)
    monkeypatch.setattr(kills, "ROWS", 256)
    (tmp_path / "whole").mkdir()
    began = time.monotonic()
    expected, _ = kills.run(method, tmp_path / "whole", None, False, 0.0)
    seconds = time.monotonic() - began
    killed = 0
    for attempt in range(100):
        folder = tmp_path / f"run-{attempt}"
        folder.mkdir()
        found, times = kills.run(method, folder, random.Random(attempt), writing, seconds / 2)
        assert found == expected
        killed += times
        if killed >= 2:
            break
    assert killed >= 2
