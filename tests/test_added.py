"""Dropout that is added reaches every kind of layer, and a drawn function keeps its masks."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

import posterity
from common import generator, seeded


def drops(network, x, layers="*", rate=0.5):
    posterior = posterity.MCDropout(network, rate, layers=layers, seed=0)
    functions = posterior.draw(6, generator())
    outputs = functions(x)
    torch.testing.assert_close(functions(x), outputs, rtol=0, atol=0)
    assert len(outputs.flatten(1).unique(dim=0)) > 1
    posterior.train()(x).sum().backward()
    return posterior, outputs


class Echo(nn.GRU):
    """A recurrent layer that gives back what it gets."""

    def forward(self, x, state=None):
        return x + 0 * super().forward(x, state)[0].sum(), None


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_recurrent_layer_drops_the_same_features_at_all_steps(batch_first):
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = Echo(8, 8, batch_first=batch_first)

        def forward(self, x):
            return (
                self.rnn(x)[0] if batch_first else self.rnn(x.mT.permute(2, 0, 1).permute(0, 1, 2))[0].transpose(0, 1)
            )

    posterior, masks = drops(seeded(Network), torch.ones(3, 5, 8))
    torch.testing.assert_close(masks, masks[:, :1, :1].expand_as(masks))
    assert set(masks.round(decimals=4).unique().tolist()) == {0.0, 2.0}
    fresh = posterior(torch.ones(40, 5, 8), generator())[0]
    torch.testing.assert_close(fresh, fresh[:, :1].expand_as(fresh))
    assert len(fresh[:, 0].unique(dim=0)) > 20
    assert "rnn.weight_ih_l0" in posterior.describe().uncertain


def test_a_cell_drops_the_same_features_at_all_steps():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(8, 4), nn.Linear(4, 2)

        def forward(self, x):
            state, seen = None, []
            for step in x.unbind(1):
                state = self.cell(step, state)
                seen.append(state)
            return self.head(torch.stack(seen, 1))

    network, x = seeded(Network), torch.randn(4, 5, 8, generator=generator())
    _, outputs = drops(network, x, layers="cell")
    dropped = [copy.deepcopy(network) for _ in range(2**8)]
    masks = torch.tensor([[i >> bit & 1 for bit in range(8)] for i in range(2**8)]) / 0.5
    every = torch.stack([net(x * mask) for net, mask in zip(dropped, masks, strict=True)])
    distances = (outputs[:, None] - every).abs().flatten(2).amax(2)
    assert float(distances.amin(1).max()) < 1e-5


def test_packed_sequences_drop_by_row():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x, lengths):
            packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])[0]

    drops(seeded(Network), (torch.randn(4, 6, 3), torch.tensor([3, 6, 2, 5])))


def test_attention_bilinear_and_bare_matrices_drop():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.bilinear = nn.MultiheadAttention(4, 2, batch_first=True), nn.Bilinear(4, 4, 3)
            self.matrix = nn.Parameter(torch.randn(3, 2))

        def forward(self, x):
            h = self.attention(x, x, x)[0].mean(1)
            return self.bilinear(h, x[:, 0]) @ self.matrix

    x = torch.randn(4, 5, 4, generator=generator())
    for name in ("attention", "bilinear", "matrix"):
        posterior, _ = drops(seeded(Network), x, layers=name)
        assert any(key.startswith(name) for key in posterior.describe().uncertain)
    default = posterity.MCDropout(seeded(Network)).describe()
    assert "layers= can name a matrix" in default.fixed["matrix"]
    assert "first layer" in default.fixed["attention.in_proj_weight"]


def test_a_layer_that_is_used_without_a_call_drops_its_columns():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.unused = nn.Linear(6, 2, bias=False), nn.Linear(6, 2)

        def forward(self, x):
            return F.linear(x, self.layer.weight)

    posterior, outputs = drops(seeded(Network), torch.eye(6))
    weight = posterior.network.layer.weight.T
    kept = (outputs / weight).round(decimals=4)
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    torch.testing.assert_close(kept[..., 0], kept[..., 1])
    assert "did not use" in posterior.describe().fixed["unused.weight"]


def test_a_network_of_matrices_alone_gets_dropout():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 2))

        def forward(self, x):
            return x @ self.w

    drops(seeded(Bare), torch.randn(4, 3), layers=None)
