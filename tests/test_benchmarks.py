"""The benchmark of peers, on contenders that cost what they are told, and the page that is made of it."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks import speed_page
from benchmarks.allocator import CLEAR
from benchmarks.peers import __main__ as peers
from benchmarks.peers import contenders, driver
from benchmarks.peers.contract import Library
from benchmarks.peers.environments import Unusable, python_of

FAKE = """
from benchmarks.peers.contract import ENSEMBLE, MEAN_FIELD, PLAIN, Calls, Contender, Library

LIBRARY = Library({name!r}, None, ("json",), note="made up")


def work(amount):
    def run():
        print("a word that is no answer")
        total = 0
        for number in range(amount):
            total += number
        return bytearray(amount * 64)

    return run


def broken():
    raise ImportError("no such thing")


CONTENDERS = {contenders}
"""
OWN = """{
    "torch": Contender(PLAIN, lambda: Calls(work(50_000))),
    "Half": Contender(MEAN_FIELD, lambda: Calls(work(150_000), work(50_000), work(50_000))),
}"""
PEER = """{
    "fast": Contender(MEAN_FIELD, lambda: Calls(work(100_000), work(50_000))),
    "slow": Contender(MEAN_FIELD, lambda: Calls(work(400_000))),
    "broken": Contender(MEAN_FIELD, broken),
}"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fakes")
    for name, file, source in (("posterity", "fake_own", OWN), ("peer", "fake_peer", PEER)):
        (folder / f"{file}.py").write_text(FAKE.format(name=name, contenders=source))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder))
        patch.setattr(driver, "import_times", no_time)
        entries, libraries = peers.gather(["fake_own", "fake_peer"], folder / "envs")
        return peers.measure(entries, libraries, rounds=4, calls=1)


def no_time(libraries, rounds):
    return {name: {"seconds": 0.1, "low": 0.1, "high": 0.2, "with_torch": 1.0} for name in libraries}


def test_contenders_in_other_processes_are_compared_with_the_fastest_peer(measured):
    table = measured["methods"]["Gaussian weights"]
    assert table["base"] == {"fresh": "peer: fast", "step": "peer: fast"}
    rows = table["rows"]
    assert rows["peer: fast"]["fresh"]["ratio"] == 1
    assert 2.5 < rows["peer: slow"]["fresh"]["ratio"] < 6
    assert 1.1 < rows["posterity: Half"]["fresh"]["ratio"] < 2.1
    assert 0.3 < rows["posterity: Half"]["once"]["ratio"] < 0.75
    assert 0.6 < rows["posterity: Half"]["step"]["ratio"] < 1.6
    assert rows["peer: slow"]["once"] is None
    assert measured["failed"] == {"peer: broken": "ImportError: no such thing"}
    assert [aim["what"] for aim in measured["aims"]] == ["fresh", "once"]


@pytest.mark.skipif(not CLEAR.exists(), reason="Linux tells the peak of memory")
def test_memory_is_what_one_call_holds(measured):
    rows = measured["methods"]["Gaussian weights"]["rows"]
    for name, amount in (("peer: fast", 100_000), ("peer: slow", 400_000)):
        assert rows[name]["memory"] == pytest.approx(amount * 64 / 2**20, rel=0.15, abs=0.5)


def test_the_page_names_all_that_was_measured_and_all_that_was_not(measured, tmp_path):
    gone = {"version": "1.0", "note": "", "error": "not to be had"}
    content = {
        **measured,
        "libraries": {**measured["libraries"], "gone": gone},
        "task": {"network": "784-10", "rows": 256, "draws": 8},
        "machine": {"torch": "2"},
        "command": "python -m benchmarks.peers",
    }
    (tmp_path / "peers.json").write_text(json.dumps(content))
    text = speed_page.page(tmp_path)
    assert "| peer slow |" in text
    assert "| **Half** |" in text
    assert "Left out: gone (not to be had)." in text
    assert "Left out: peer: broken (ImportError: no such thing)." in text
    assert "draws made in the call | 1.0 |" in text


def test_every_file_of_contenders_can_be_read_without_its_library():
    folder = Path(contenders.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", *contenders.FILES}
    assert python_of(Library("here", None, ()), folder) == Path(sys.executable)


def test_a_library_that_cannot_be_had_is_named_with_the_reason(monkeypatch, tmp_path):
    def fails(command):
        raise Unusable("No matching distribution found")

    monkeypatch.setattr("benchmarks.peers.environments._run", fails)
    entries, libraries = peers.gather(["benchmarks.peers.contenders.blitz"], tmp_path)
    assert entries == []
    assert libraries["blitz-bayesian-pytorch"]["error"] == "No matching distribution found"
