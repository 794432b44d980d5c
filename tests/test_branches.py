"""Branches of a CUDA graph: who waits for whom, by streams that write down what is asked of them."""

import contextlib
import sys

import pytest
import torch

import posterity
from common import ConvNet, mlp, seeded
from posterity import branches
from posterity.methods.ensemble import together

CUDA = torch.device("cuda", 0)


class Stream:
    def __init__(self, name, told):
        self.name, self.told = name, told

    def wait_stream(self, other):
        self.told.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def told(monkeypatch):
    """What streams were told, in order."""
    lines = []
    streams = [Stream(str(index), lines) for index in range(3)]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("here", lines))
    monkeypatch.setattr(branches, "_stream", lambda device, index: streams[index])

    @contextlib.contextmanager
    def on(stream):
        lines.append(f"on {stream.name}")
        yield
        lines.append(f"off {stream.name}")

    monkeypatch.setattr(torch.cuda, "stream", on)
    return lines


def test_each_waits_for_what_came_before_and_what_follows_for_all(told):
    with branches.branching():
        assert branches.side_by_side([lambda: told.append("a") or "A", lambda: told.append("b") or "B"], CUDA) == [
            "A",
            "B",
        ]
    first, second = ([f"{i} waits for here", f"on {i}", name, f"off {i}"] for i, name in ((0, "a"), (1, "b")))
    assert told == [*first, *second, "here waits for 0", "here waits for 1"]


def test_what_follows_an_error_waits_too(told):
    with branches.branching(), pytest.raises(ZeroDivisionError):
        branches.side_by_side([lambda: 1, lambda: 1 / 0, lambda: 3], CUDA)
    assert told[-2:] == ["here waits for 0", "here waits for 1"]


def test_outside_a_graph_and_on_a_processor_nothing_branches(told):
    work = [lambda: 1, lambda: 2]
    assert branches.side_by_side(work, CUDA) == [1, 2]
    with branches.branching():
        assert branches.side_by_side(work, torch.device("cpu")) == [1, 2]
    assert told == []


def test_convolutions_of_members_run_apart_in_a_graph():
    """On a device that is not a processor: here the one without memory."""
    plain, convolutional = seeded(mlp).to("meta"), seeded(ConvNet).to("meta")
    assert together(plain, 100)
    assert together(convolutional, 100)
    with branches.branching():
        assert together(plain, 100)
        assert not together(convolutional, 100)


@pytest.mark.parametrize("layers", [None, "head"])
def test_members_that_share_trained_weights_do_not_branch(monkeypatch, layers):
    """Gradients of one parameter would come from several streams."""
    seen = []
    monkeypatch.setattr(
        sys.modules[together.__module__], "side_by_side", lambda work, _: seen.append(len(work)) or [w() for w in work]
    )
    posterior = posterity.DeepEnsemble(seeded(ConvNet), 2, layers=layers, seed=0)
    posterior(torch.randn(4, 1, 6, 6))
    assert seen == ([2] if layers is None else [])
