"""Branches of a CUDA graph: who waits for whom, by streams that write down what is asked of them."""

import contextlib
import sys

import pytest
import torch
from torch import nn

import posterity
from common import ConvNet, mlp, seeded
from posterity import branches, graphs
from posterity.loading import Batch
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
        results = branches.side_by_side([lambda: told.append("a") or "A", lambda: told.append("b") or "B"], CUDA)
    assert results == ["A", "B"]
    before, after = ["0 waits for here", "1 waits for here"], ["here waits for 0", "here waits for 1"]
    assert told == [*before, "on 0", "a", "off 0", "on 1", "b", "off 1", *after]


def test_what_follows_an_error_waits_too(told):
    with branches.branching(), pytest.raises(ZeroDivisionError):
        branches.side_by_side([lambda: 1, lambda: 1 / 0, lambda: 3], CUDA)
    assert told[-3:] == ["here waits for 0", "here waits for 1", "here waits for 2"]
    assert not branches.branches()


def test_there_are_so_many_streams_and_no_more(told, monkeypatch):
    monkeypatch.setattr(branches, "STREAMS", 2)
    with branches.branching():
        assert branches.side_by_side([lambda: 1, lambda: 2, lambda: 3], CUDA) == [1, 2, 3]
    assert [line for line in told if line.startswith("on")] == ["on 0", "on 1", "on 0"]


def test_outside_a_graph_and_on_a_processor_nothing_branches(told):
    work = [lambda: 1, lambda: 2]
    assert branches.side_by_side(work, CUDA) == [1, 2]
    with branches.branching():
        assert branches.side_by_side(work, torch.device("cpu")) == [1, 2]
    assert told == []


def test_convolutions_of_members_run_apart_in_a_graph():
    """On a device that is not a processor: here the one without memory."""
    plain, convolutional, attentive = (
        make.to("meta") for make in (seeded(mlp), seeded(ConvNet), nn.TransformerEncoderLayer(4, 2))
    )
    assert all(together(network, 100) for network in (plain, convolutional, attentive))
    with branches.branching():
        assert together(plain, 100)
        assert together(attentive, 100)
        assert not together(convolutional, 100)


class Remembering(ConvNet):
    """A tensor of its own making goes from one call to the next."""

    def forward(self, x):
        self.kept = [0.9 * getattr(self, "kept", [0.0])[0] + 0.1 * x.detach().mean()]
        return super().forward(x) + self.kept[0]


@pytest.mark.parametrize(
    ("network", "options", "apart"),
    [
        (ConvNet, {}, True),
        (ConvNet, {"layers": "head"}, False),
        (ConvNet, {"samples": 3}, False),
        (Remembering, {}, False),
    ],
)
def test_members_branch_where_none_needs_what_another_makes(monkeypatch, network, options, apart):
    """Gradients of one parameter would come from several streams, or a member would read what is not there yet."""
    posterior = posterity.DeepEnsemble(seeded(network), 2, **options, seed=0)
    x, seen = torch.randn(4, 1, 6, 6), []
    posterior(x)
    monkeypatch.setattr(
        sys.modules[together.__module__], "side_by_side", lambda work, _: seen.append(len(work)) or [w() for w in work]
    )
    posterior(x)
    assert seen == ([2] if apart else [])


@pytest.mark.parametrize("make", [mlp, ConvNet])
def test_a_compiled_step_of_an_ensemble_is_whole(make):
    """On the device without memory, where nothing branches because of a processor."""
    posterior = posterity.DeepEnsemble(seeded(make), 3, seed=0).to("meta")
    x = torch.randn(4, *((5,) if make is mlp else (1, 6, 6)), device="meta")
    y = torch.zeros(4, dtype=torch.long, device="meta")
    torch._dynamo.reset()
    with branches.branching():
        explained = torch._dynamo.explain(lambda: posterior.loss(x, y, size=10))()
    assert explained.graph_break_count == 0


def test_steps_branch_while_a_graph_is_to_come(monkeypatch):
    """In those that warm up and in the one that is captured; where none can be captured, no more."""
    seen = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: Stream("here", []))
    graph = graphs.Graph(lambda batch: seen.append(branches.branches()), CUDA)
    graph.stream = Stream("graph", [])
    graph._run(Batch(torch.zeros(2), None))
    graph.works = False
    graph._run(Batch(torch.zeros(2), None))
    assert seen == [True, False]
