"""Networks of graphs, whose rows hang together, and inputs that only look like a graph's."""

import pytest
import torch
from torch import nn

import posterity
from common import generator

NODES = 12
#: Rows of each pass, of copies of the networks too.
SEEN: list[int] = []


class Messages(nn.Module):
    """Classes of nodes from their own features and those of their neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, nodes, adjacency):
        SEEN.append(len(nodes))
        return adjacency @ self.last(torch.relu(self.norm(adjacency @ self.first(nodes))))


class Pairs(nn.Module):
    """Takes every row by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(NODES, 3)

    def forward(self, values, mask):
        SEEN.append(len(values))
        return self.layer(values * mask)


def graph():
    nodes = torch.randn(NODES, 4, generator=generator())
    linked = (torch.rand(NODES, NODES, generator=generator(1)) < 0.3).float()
    return nodes, torch.clamp(linked + linked.T + torch.eye(NODES), max=1)


@pytest.mark.parametrize("method", ["map", "dropout", "ibnn", "bbb"])
def test_a_graph_is_predicted_whole(method):
    posterior = posterity.methods()[method](Messages(), seed=0)
    prediction = posterity.predict(posterior, graph(), samples=4, batch_size=5, seed=0)
    assert prediction.probs.shape == (NODES, 3)
    torch.testing.assert_close(prediction.probs, posterity.predict(posterior, graph(), samples=4, seed=0).probs)
    drawn = posterity.Normalised(posterior, graph())
    assert posterity.predict(drawn, graph(), samples=2, seed=0).probs.shape == (NODES, 3)


def test_rows_of_a_graph_are_not_settled_one_by_one():
    posterior = posterity.IBNN(Messages(), seed=0)
    with pytest.raises(posterity.Error, match="hang together"):
        posterity.predict(posterior, graph(), samples="auto")


def test_a_graph_is_trained_on_whole_or_not_at_all():
    labels = torch.arange(NODES) % 3
    with pytest.raises(posterity.Error, match="batch_size=None"):
        posterity.fit(posterity.MAP(Messages()), (graph(), labels), epochs=1, progress=False)
    whole = torch.utils.data.DataLoader([(graph(), labels)], batch_size=None)
    SEEN.clear()
    posterity.fit(posterity.MAP(Messages()), whole, epochs=2, size=NODES, progress=False)
    assert SEEN == [NODES, NODES]


def test_a_graph_cannot_be_distilled():
    with pytest.raises(posterity.Error, match="distil takes rows apart, and these hang together"):
        posterity.distil(posterity.MAP(Messages()), Messages(), (graph(), torch.arange(NODES) % 3), epochs=1)


def test_as_many_columns_as_rows_make_no_graph():
    SEEN.clear()
    x = torch.randn(NODES, NODES, generator=generator()), torch.ones(NODES, NODES)
    posterity.predict(posterity.MAP(Pairs()), x, batch_size=5)
    assert max(SEEN) == 5
    posterity.fit(posterity.MAP(Pairs()), (x, torch.arange(NODES) % 3), epochs=1, progress=False)


def test_inputs_that_a_network_does_not_take_at_all_make_no_graph():
    wrong = torch.randn(NODES, 7), torch.ones(NODES, NODES)
    for run in (
        lambda: posterity.predict(posterity.MAP(Messages()), wrong),
        lambda: posterity.fit(posterity.MAP(Messages()), (wrong, torch.arange(NODES) % 3), epochs=1, progress=False),
    ):
        with pytest.raises(posterity.Error, match="does not take these inputs"):
            run()
