"""Networks of graphs, whose rows interact, and inputs that only look like a graph's."""

import pytest
import torch
from torch import nn

import posterity
from common import generator, seeded

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


def test_rows_of_a_graph_are_settled_all_at_once():
    posterior = posterity.IBNN(Messages(), seed=0)
    found = posterity.predict(posterior, graph(), samples="auto", tolerance=1e-12, seed=0)
    assert found.samples.tolist() == [posterior.draws] * NODES
    torch.testing.assert_close(found.probs, posterity.predict(posterior, graph(), seed=0).probs)
    early = posterity.predict(posterior, graph(), samples="auto", tolerance=10.0, seed=0)
    assert len(early.samples.unique()) == 1
    assert int(early.samples[0]) < posterior.draws


@pytest.mark.parametrize("method", posterity.methods())
def test_every_step_has_the_whole_graph_in_its_order(method, recwarn):
    labels = torch.arange(NODES) % 3
    SEEN.clear()
    whole = torch.utils.data.DataLoader([(graph(), labels)], batch_size=None)
    posteriors = [posterity.methods()[method](seeded(Messages), seed=0) for _ in range(2)]
    posterity.fit(posteriors[0], (graph(), labels), epochs=2, seed=0, progress=False)
    posterity.fit(posteriors[1], whole, epochs=2, size=NODES, seed=0, progress=False)
    assert {NODES} <= set(SEEN)
    for one, other in zip(posteriors[0].parameters(), posteriors[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert not [w for w in recwarn if "interact" in str(w.message)]
    with pytest.raises(posterity.Error, match="leave batch_size out"):
        posterity.fit(posteriors[0], (graph(), labels), epochs=1, batch_size=5, progress=False)


def test_a_graph_is_distilled_whole():
    student = posterity.distil(
        posterity.IBNN(seeded(Messages), seed=0), Messages(), (graph(), torch.arange(NODES) % 3), epochs=1, seed=0
    )
    assert posterity.predict(student, graph(), samples=4).probs.shape == (NODES, 3)


def test_as_many_columns_as_rows_make_no_graph():
    SEEN.clear()
    x = torch.randn(NODES, NODES, generator=generator()), torch.ones(NODES, NODES)
    posterity.predict(posterity.MAP(Pairs()), x, batch_size=5)
    assert max(SEEN) < NODES
    posterity.fit(posterity.MAP(Pairs()), (x, torch.arange(NODES) % 3), epochs=1, progress=False)


def test_inputs_that_a_network_does_not_take_at_all_make_no_graph():
    wrong = torch.randn(NODES, 7), torch.ones(NODES, NODES)
    for run in (
        lambda: posterity.predict(posterity.MAP(Messages()), wrong),
        lambda: posterity.fit(posterity.MAP(Messages()), (wrong, torch.arange(NODES) % 3), epochs=1, progress=False),
    ):
        with pytest.raises(posterity.Error, match="does not take these inputs"):
            run()
