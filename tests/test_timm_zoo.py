"""The benchmark over timm's architectures, with a small module in timm's place."""

import json
import sys

import pytest
from benchmarks import timm_zoo

from own_process import without_gpu

FAKE = """
import fnmatch, os, time
import torch
from torch import nn

__version__ = "0.0"


class Net(nn.Module):
    def __init__(self, kind, num_classes):
        super().__init__()
        self.kind = kind
        self.pretrained_cfg = {"input_size": (3, 12, 12), "fixed_input_size": kind == "fixed"}
        self.stem, self.norm = nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5_000_000 if kind == "large" else num_classes)

    def forward(self, x):
        if self.kind == "fixed" and x.shape[-1] != 12 or self.kind == "small" and x.shape[-1] > 12:
            raise ValueError("another size")
        if self.kind == "broken":
            raise RuntimeError("no such network")
        if self.kind == "slow":
            time.sleep(600)
        if self.kind == "deadly":
            os._exit(1)
        h = self.norm(self.stem(x)).relu().mean((2, 3))
        return self.head(h) * (float("nan") if self.kind == "nan" else 0.0 if self.kind == "same" else 1.0)


KINDS = ["broken", "deadly", "fixed", "large", "nan", "plain", "same", "slow", "small"]


def list_models(pattern):
    return fnmatch.filter(KINDS, pattern)


def create_model(name, pretrained, num_classes):
    assert not pretrained
    return Net(name, num_classes)
"""


@pytest.fixture(autouse=True)
def timm(tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    yield
    sys.modules.pop("timm", None)


@pytest.mark.parametrize("name", ["plain", "fixed", "small"])
def test_what_works_passes(name):
    record = timm_zoo.examine(name)
    assert record["status"] == "pass", record
    assert record["image"] == ([3, 12, 12] if name != "plain" else [3, 128, 128])
    assert record["parameters"] == 3 * 4 * 9 + 4 + 8 + 50
    assert 0.8 < record["uncertain"] < 1
    assert record["places"] == 2
    assert record["vectorised"]


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("broken", "fail", "no such network"),
        ("nan", "fail", "loss is nan"),
        ("same", "fail", "no gradient"),
        ("large", "skipped", "more than 10 million parameters"),
    ],
)
def test_what_does_not_work_says_why(name, status, reason):
    record = timm_zoo.examine(name, limit=10)
    assert record["status"] == status
    assert reason in record["reason"]


@without_gpu
def test_a_run_survives_what_hangs_and_what_dies_and_can_be_continued(tmp_path, capsys, monkeypatch):
    out = tmp_path / "results" / "timm.jsonl"
    monkeypatch.setattr(timm_zoo, "START", "fork")
    monkeypatch.setattr(timm_zoo, "IMPORT", 0.0)
    timm_zoo.run(out, "[pd]*", workers=1, limit=10, seconds=60, device="cpu")
    first = [json.loads(line) for line in out.read_text().splitlines()]
    assert first[0]["machine"]["timm"] == "0.0"
    assert {r["name"]: r["status"] for r in first[1:]} == {"deadly": "fail", "plain": "pass"}
    timm_zoo.run(out, "[ps]l*", workers=2, limit=10, seconds=1, device="cpu")
    records = {r["name"]: r for r in timm_zoo.read(out)}
    assert records["slow"]["reason"] == "it took too long"
    assert set(records) == {"deadly", "plain", "slow"}
    text = timm_zoo.show(out)
    assert "1 of 3 architectures pass; 0 skipped" in text
    assert "fail deadly: the process died" in text
    assert "plain" not in [line.split()[1] for line in text.splitlines() if line.startswith("fail")]
    assert "deadly" in capsys.readouterr().out


def test_show_is_a_command(tmp_path, capsys):
    out = tmp_path / "timm.jsonl"
    records = [{"machine": {}}, {"name": "a", "status": "skipped", "reason": "more than 1 million parameters"}]
    out.write_text("\n".join(map(json.dumps, records)))
    timm_zoo.main(["show", str(out)])
    assert "skipped 1: more than 1 million parameters" in capsys.readouterr().out
