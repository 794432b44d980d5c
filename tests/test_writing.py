"""Networks that write into their inputs: no function gets inputs that another has changed, nor does the caller."""

import pytest
import torch
from torch import nn

import posterity
from common import generator, seeded
from posterity.interaction import Interaction, interact


class Network(nn.Module):
    """Halves its inputs, in place or not."""

    def __init__(self, writes: bool, norm: bool) -> None:
        super().__init__()
        self.first, self.last, self.writes = nn.Linear(5, 6), nn.Linear(6, 3), writes
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()

    def forward(self, x):
        x = x.mul_(0.5) if self.writes else x * 0.5
        return self.last(torch.tanh(self.norm(self.first(x - 0.1))))


def data():
    x = torch.randn(40, 5, generator=generator())
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long()


def make(method, writes, norm=True, **options):
    network = seeded(lambda: Network(writes, norm))
    return posterity.methods()[method](network, seed=0, **options)


CASES = [(name, {}) for name in posterity.methods()]
CASES += [(name, {"samples": 3}) for name in ("bbb", "mnf", "bbh", "livi", "ibnn")]


@pytest.mark.parametrize(("method", "options"), CASES)
def test_training_meets_the_inputs_as_they_are(method, options):
    x, y = data()
    ends = []
    for writes in (False, True):
        posterior = make(method, writes, norm=False, **options)
        history = posterity.fit(posterior, (x, y), epochs=2, seed=0, device="cpu", progress=False)
        ends.append(history.column("loss"))
    assert ends[1] == pytest.approx(ends[0], rel=1e-4)
    assert torch.equal(x, data()[0])


@pytest.mark.parametrize("method", posterity.methods())
@pytest.mark.parametrize("n", [1, 4])
def test_functions_leave_the_inputs_as_they_are(method, n):
    x, _ = data()
    one, other = (make(method, writes).eval() for writes in (False, True))
    other.load_state_dict(one.state_dict())
    functions = [posterior.draw(n, generator()) for posterior in (one, other)]
    for _ in range(2):
        torch.testing.assert_close(functions[1](x), functions[0](x))
    posterity.predict(other, x)
    measured = [posterity.Normalised(p, data()[0]) for p in (one, other)]
    probs = [posterity.predict(p, x, 3, generator()).probs for p in measured]
    torch.testing.assert_close(probs[1], probs[0])
    assert torch.equal(measured[1].data, data()[0])
    assert torch.equal(x, data()[0])


def test_finding_whether_rows_interact_leaves_the_inputs_as_they_are():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(8, 2)

        def forward(self, x, other):
            return self.last(x.mul_(0.5) + other)

    x, other = torch.randn(8, 8), torch.randn(8, 8)
    before = x.clone()
    assert interact(posterity.MAP(Two()), (x, other)) is Interaction.APART
    assert torch.equal(x, before)
