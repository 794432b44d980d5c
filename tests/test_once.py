"""What comes before the first uncertain layer is computed once for all functions, also where they run one by one."""

import warnings

import pytest
import torch
from torch import nn

import posterity
from common import generator, seeded


class Counted(nn.Linear):
    calls = 0

    def forward(self, x):
        Counted.calls += len(x)
        return super().forward(x)


class Network(nn.Module):
    """Body, a recurrent layer, which has no rule for vmap, and a head."""

    def __init__(self, kind=nn.GRU):
        super().__init__()
        self.body = nn.Sequential(Counted(3, 4), nn.ReLU(inplace=True), Counted(4, 4))
        self.rnn, self.head = kind(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.rnn(torch.tanh(self.body(x)))[0][:, -1])


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("layers", ["rnn", "head", ["rnn", "head"]])
@pytest.mark.parametrize("name", ["ibnn", "bbb", "ensemble"])
def test_the_body_runs_once(name, layers, kind):
    posterior = posterity.methods()[name](seeded(lambda: Network(kind)), layers=layers, seed=0)
    functions = posterior.draw(5, generator())
    x = torch.randn(7, 6, 3, generator=generator())
    functions(x[:2])
    Counted.calls = 0
    together = functions(x)
    assert Counted.calls == 2 * 7
    functions.loops, functions.remembers = True, False
    Counted.calls = 0
    torch.testing.assert_close(functions(x), together)
    assert Counted.calls == 2 * 7 * 5


@pytest.mark.parametrize("name", ["ibnn", "bbb"])
def test_nothing_is_remembered_behind_what_is_uncertain(name):
    functions = posterity.methods()[name](seeded(Network), layers="body.0", seed=0).draw(4, generator())
    functions.loops = True
    x = torch.randn(3, 6, 3)
    outputs = functions(x)
    assert len(outputs[:, 0, 0].unique()) == 4
    other = torch.randn(3, 6, 3)
    assert not torch.equal(functions(other), outputs)
    torch.testing.assert_close(functions(x), outputs)


def test_a_module_that_changes_its_input_or_is_random_is_computed_every_time():
    class Changes(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.ones(3))

        def forward(self, x):
            x += self.shift
            return x * 2

    class Random(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return x + self.scale * torch.rand(())

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.changes, self.random, self.head = Changes(), Random(), nn.Linear(3, 2)

        def forward(self, x):
            y = x.clone()
            return self.head(y + self.changes(y)), self.random(x)

    functions = posterity.IBNN(seeded(Both), layers="head", seed=0).draw(3, generator())
    plain = posterity.IBNN(seeded(Both), layers="head", seed=0).draw(3, generator())
    x = torch.randn(4, 3)
    functions.loops = plain.loops = True
    plain.remembers = False
    torch.testing.assert_close(functions(x), plain(x))
    functions.output = 1
    assert len(functions(x)[:, 0, 0].unique()) == 3


def test_modules_that_give_and_take_more_than_tensors_are_remembered_too():
    class Body(nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x, scale=1.0, more=None):
            Body.calls += 1
            return {"hidden": self.layer(x) * scale, "parts": (x, None)}

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = Body(), nn.Linear(3, 2)

        def forward(self, x):
            first = self.body(x, scale=2.0, more=[1, "a"])["hidden"]
            return self.head(self.body(first)["hidden"])

    functions = posterity.IBNN(seeded(Network), layers="head", seed=0).draw(4)
    functions.loops = True
    functions(torch.randn(2, 3))
    Body.calls = 0
    functions(torch.randn(2, 3))
    assert Body.calls == 2


def test_the_network_is_as_it_was_afterwards():
    functions = posterity.IBNN(seeded(Network), layers="head", seed=0).draw(4)
    functions.loops = True
    functions(torch.randn(2, 6, 3))
    assert not any("forward" in vars(module) for module in functions.network.modules())
    assert not any("forward" in vars(module) for module in Network().modules())


def test_many_functions_that_must_run_one_by_one_say_so_once():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            h = self.layer(x)
            return h if h.sum() > 0 else -h

    functions, x = posterity.IBNN(seeded(Branching), seed=0).draw(40), torch.randn(2, 3)
    with pytest.warns(UserWarning, match="40 functions run one by one"):
        functions(x)
    few = posterity.IBNN(seeded(Branching), seed=0).draw(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        functions(x)
        few(x)


def test_training_draws_that_cannot_run_together_run_one_by_one():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.drop = nn.Linear(3, 2), nn.Dropout(0.5)

        def forward(self, x):
            h = self.layer(self.drop(x))
            return h if h.sum() > 0 else -h

    x = torch.randn(4, 3)
    for posterior in (posterity.BayesByHypernet(Branching(), samples=6), posterity.DeepEnsemble(Branching(), 6)):
        posterior.train()
        torch.manual_seed(0)
        first = posterior(x, generator(1))
        torch.manual_seed(0)
        assert first.shape == (6, 4, 2)
        assert not posterior.vectorised
        torch.testing.assert_close(posterior(x, generator(1)), first)


def test_an_error_of_the_network_itself_is_its_own():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x) if len(x) == 2 else int("no number")

    functions = posterity.IBNN(seeded(Fails), seed=0).draw(3)
    functions(torch.randn(2, 3))
    with pytest.raises(ValueError, match="no number"):
        functions(torch.randn(4, 3))
    assert not functions.loops
