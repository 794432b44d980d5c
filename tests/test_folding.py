"""Noise on the weights says the same as noise on the inputs; many convolutions run one draw after the other."""

import math

import pytest
import torch
from torch import nn

import posterity
from common import generator, seeded
from posterity import folding


class Convolutions(nn.Module):
    """Convolutions of several kinds, and a batch normalisation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.grouped = nn.Conv2d(4, 6, 3, groups=2, dilation=2)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        return self.head(self.up(self.grouped(x).relu()).relu().mean((2, 3)))


def functions(n=5, make=Convolutions, **options):
    return posterity.IBNN(seeded(make), 2, init_std=0.3, seed=0, **options).draw(n, generator())


X = torch.randn(6, 3, 8, 8, generator=generator(1))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Networks of tests are small."""
    monkeypatch.setitem(folding.LEAST, "cpu", 0)


@pytest.mark.parametrize("options", [{}, {"noise": "output"}, {"noise": "both", "bias_noise": True}], ids=str)
def test_both_ways_say_the_same(options):
    folded, together = functions(**options), functions(**options)
    together.fold_from = math.inf
    assert folded._apart(X)
    assert not together._apart(X)
    torch.testing.assert_close(folded(X), together(X))
    folded.rows_at_once = 4  # in parts
    torch.testing.assert_close(folded(X), together(X))
    prediction = folded(X).log_softmax(2).logsumexp(0)
    torch.testing.assert_close(prediction, together(X).log_softmax(2).logsumexp(0))


def test_few_rows_of_a_network_with_many_weights_run_together():
    drawn = functions(make=lambda: nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 2)))
    few, many = torch.randn(4, 30), torch.randn(1000, 30)
    assert not drawn._apart(few)
    assert drawn._apart(many)
    assert drawn.fold_from == pytest.approx(folding.WORTH * (30 * 40 + 40 * 2) / (30 + 40))


def test_little_work_is_done_together(monkeypatch):
    monkeypatch.setitem(folding.LEAST, "cpu", 10_000)
    drawn = functions(make=lambda: nn.Sequential(nn.Linear(30, 4), nn.ReLU(), nn.Linear(4, 2)))
    assert not drawn._apart(torch.randn(200, 30))
    assert drawn._apart(torch.randn(300, 30))


def test_a_part_that_all_functions_share_is_computed_once():
    assert functions(layers="last").fold_from is None
    assert not functions(layers="last")._apart(X)
    single = functions(make=lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 36, 2)))
    assert not single._apart(torch.randn(2000, 1, 8, 8))


def test_a_weight_that_is_used_twice_is_not_folded():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 5)

        def forward(self, x):
            return nn.functional.linear(self.layer(x).tanh(), self.layer.weight)

    drawn = functions(make=Twice)
    assert not drawn._apart(torch.randn(1000, 5))
    assert drawn.fold_from == math.inf


@pytest.mark.parametrize("make", [Convolutions, lambda: nn.Sequential(nn.Conv2d(3, 2, 8), nn.Flatten())], ids=["", "1"])
def test_mixed_precision_reaches_the_layers(make):
    drawn, plain = functions(make=make), functions(make=make)(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert drawn(X).dtype == torch.bfloat16
        torch.testing.assert_close(drawn(X).float(), plain, rtol=0.05, atol=0.05)


def test_drawn_weights_of_many_convolutions_run_one_by_one():
    def make() -> nn.Module:
        return nn.Sequential(*[nn.Conv2d(3, 3, 3, padding=1) for _ in range(folding.FEW + 1)], nn.Flatten())

    apart, together = (posterity.BayesByBackprop(seeded(make), seed=0).draw(3, generator()) for _ in range(2))
    together._apart = lambda x: False
    assert apart._apart(X)
    torch.testing.assert_close(apart(X), together(X))
    assert [len(part) for part in apart.stream(X)] == [1, 1, 1]
    assert not posterity.BayesByBackprop(seeded(Convolutions), seed=0).draw(3)._apart(X)


def test_where_memory_is_short_a_function_sees_half_of_the_rows(monkeypatch):
    drawn, expected, seen = functions(), functions()(X), []
    alone = drawn._alone

    def short(weights, noise, x, swaps):
        if len(x) > 2:
            raise torch.OutOfMemoryError("too many rows")
        seen.append(len(x))
        return alone(weights, noise, x, swaps)

    monkeypatch.setattr(drawn, "_alone", short)
    torch.testing.assert_close(drawn(X), expected)
    assert seen == [1, 2, 1, 2] * 5
    monkeypatch.setattr(drawn, "_alone", lambda *args: short({}, None, torch.zeros(3), None))
    with pytest.raises(torch.OutOfMemoryError):
        drawn(X)


def dense():
    return nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 2))


def test_functions_with_weights_run_alone_where_rows_or_weights_are_many():
    small = posterity.BayesByBackprop(seeded(dense))
    assert folding.alone_from(small.network, small.weights.names) == folding.ROWS[1]
    assert folding.alone_from(small.network, ["2.weight"]) == math.inf  # they share the first layer
    convolved = posterity.BayesByBackprop(posterity.networks.LeNet())
    assert folding.alone_from(convolved.network, convolved.weights.names) == folding.ROWS[0]
    large = posterity.BayesByBackprop(torch.nn.Linear(1_000, 101))
    assert folding.alone_from(large.network, large.weights.names) == 0
    drawn, x = small.draw(3, generator()), torch.randn(folding.ROWS[1], 30, generator=generator())
    assert drawn._apart(x)
    assert not drawn._apart(x[1:])
    alone = drawn(x)
    drawn.fold_from = math.inf
    torch.testing.assert_close(alone, drawn(x))


def test_functions_that_run_together_are_never_too_many():
    """Masks of a function are as large as a row: a few rows at the end meet no more functions than others."""
    functions = posterity.MCDropout(seeded(dense)).draw(600, generator())
    functions.rows_at_once = 600
    x = torch.randn(5, 30, generator=generator())
    sizes = [(len(part), [len(some) for some in functions.stream(part)]) for part in functions.parts(x)]
    assert sizes == [(2, [256, 256, 88]), (2, [256, 256, 88]), (1, [256, 256, 88])]
