"""Rows are found, not guessed: whatever a network does with its batch axis, row i gets the noise of row i."""

import pytest
import torch
from torch import nn

import posterity
from common import generator, seeded


class SequenceFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):  # [batch, time, 3]
        return self.layer(x.transpose(0, 1)).transpose(0, 1)


class Windows(nn.Module):
    """Positions folded into rows, row by row."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x.reshape(-1, 3)).view(*x.shape[:2], 2)


class Interleaved(nn.Module):
    """Positions folded into rows, position by position."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        folded = x.transpose(0, 1).reshape(-1, 3)
        return self.layer(folded).view(x.shape[1], x.shape[0], 2).transpose(0, 1)


class Ordinary(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)


class Keyword(Ordinary):
    def forward(self, x):
        return self.layer(input=x)


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(3, 2, 1)

    def forward(self, x):
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


@pytest.mark.parametrize("time", [3, 4])
@pytest.mark.parametrize("batch", [3, 4])
@pytest.mark.parametrize("make", [Ordinary, Keyword, SequenceFirst, Windows, Interleaved, Convolved])
def test_each_row_gets_its_own_noise(make, batch, time):
    network = seeded(make)
    posterior = posterity.IBNN(network, 2, seed=0)
    x = torch.randn(batch, time, 3, generator=generator(1))
    noise = posterior._training_noise(batch, generator(2))
    expected = torch.stack([network(row.unsqueeze(0) * z)[0] for row, z in zip(x, noise, strict=True)])
    torch.testing.assert_close(posterior(x, generator(2))[0], expected)


def test_a_layer_that_sees_no_row_gets_one_noise():
    class Queries(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.project, self.layer = nn.Parameter(torch.ones(4, 3)), nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x + self.project(self.query).mean(0))

    posterior = posterity.IBNN(seeded(Queries), 2)
    assert posterior(torch.randn(5, 3)).shape == (1, 5, 2)
    assert posterior.sites.sites[0].layout.axis is None


def test_rows_that_cannot_be_told_apart_are_an_error():
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x[:, None] + x[None]).mean(1)

    with pytest.raises(posterity.Error, match="told apart"):
        posterity.IBNN(seeded(Pairs))(torch.randn(5, 3))


def test_looking_for_rows_changes_nothing():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    posterior = posterity.IBNN(network, 2).train()
    before, state = torch.get_rng_state(), {k: v.clone() for k, v in network.state_dict().items()}
    posterior.sites.find_rows(network, torch.randn(8, 3, generator=generator()))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(v, state[k]) for k, v in network.state_dict().items())
    assert all(module.training for module in network.modules())


def test_hooks_are_inert_outside_of_a_draw():
    network = seeded(Ordinary)
    x = torch.randn(4, 2, 3)
    before = network(x)
    posterior = posterity.IBNN(network, 2)
    posterior(x)
    torch.testing.assert_close(network(x), before, rtol=0, atol=0)


def test_two_posteriors_on_one_network_do_not_meet():
    network = seeded(Ordinary)
    first, second = posterity.IBNN(network, 2, seed=0), posterity.IBNN(network, 3, seed=1)
    x = torch.randn(4, 2, 3)
    alone = posterity.IBNN(seeded(Ordinary), 2, seed=0)
    torch.testing.assert_close(first.draw(4, generator())(x), alone.draw(4, generator())(x))
    assert second.draw(3)(x).shape == (3, 4, 2, 2)


def test_what_comes_before_the_noise_is_computed_once():
    class Counting(nn.Module):
        calls = 0

        def forward(self, x):
            Counting.calls += x.shape[0]
            return x * 2

    network = nn.Sequential(Counting(), nn.Linear(3, 2))
    functions = posterity.IBNN(network, 2).draw(50)
    x = torch.randn(200, 3)
    functions.rows_at_once = 1000
    functions(x)
    assert Counting.calls == 200


def test_inputs_whose_rows_disagree_are_an_error():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x, y):
            return self.layer(x)

    with pytest.raises(posterity.Error, match="rows"):
        posterity.IBNN(seeded(Two))((torch.randn(4, 3), torch.randn(5, 3)))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(1, 3, 3), (1, 6, 6)),
        (nn.Conv1d(1, 2, 3, bias=False), (1, 7)),
        (nn.ConvTranspose2d(1, 2, 3), (1, 4, 4)),
        (nn.Linear(1, 4), (1,)),
        (nn.Linear(1, 4), (3, 1)),
    ],
    ids=str,
)
def test_gradients_at_a_single_input_feature_are_those_of_the_plain_product(layer, shape):
    network = nn.Sequential(layer.double())
    posterior = posterity.IBNN(network, 2, seed=0)
    x = torch.randn(5, *shape, dtype=torch.float64, generator=generator(1))
    posterior(x, generator(2)).tanh().square().sum().backward()
    found = [p.grad.clone() for p in posterior.parameters()]
    posterior.zero_grad()
    noise = posterior._training_noise(5, generator(2)).view(5, *[1] * len(shape))
    network(x * noise).tanh().square().sum().backward()
    for a, b in zip(found, (p.grad for p in posterior.parameters()), strict=True):
        torch.testing.assert_close(a, b)
