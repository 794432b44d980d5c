"""What a network keeps between calls is its own: nothing that was computed under noise is found by the next call."""

import math

import pytest
import torch
from torch import nn

import posterity
from common import generator, seeded
from posterity.state import Swaps, duplicate, forget

METHODS = {name: method for name, method in posterity.methods().items() if name not in ("map", "dropout")}


class Caching(nn.Module):
    """Keeps, while it is evaluated, what it computed from a parameter, as LeViT does with its attention's biases."""

    def __init__(self):
        super().__init__()
        self.biases, self.head = nn.Parameter(torch.randn(4, 3)), nn.Linear(3, 2)
        self.cache, self.latest = {}, None

    def train(self, mode=True):
        if mode:
            self.cache = {}
        return super().train(mode)

    def forward(self, x):
        if self.training:
            return self.head(x + self.biases.sum(0))
        if "sum" not in self.cache:
            self.cache["sum"] = self.latest = self.biases.sum(0)
        return self.head(x + self.cache["sum"])


class Plain(Caching):
    def forward(self, x):
        return self.head(x + self.biases.sum(0))


@pytest.mark.parametrize("way", ["together", "looped", "alone"])
@pytest.mark.parametrize("name", METHODS)
def test_a_cache_never_holds_what_was_drawn(name, way):
    x = torch.randn(5, 3, generator=generator())
    results = []
    for make in (Caching, Plain):
        network = seeded(make)
        network.eval()(x)  # fills the cache
        posterior = METHODS[name](network, seed=0)
        functions = posterior.draw(4, generator())
        functions.loops = way == "looped"
        functions.fold_from = 0 if way == "alone" and functions.keys else math.inf
        first = functions(x)
        torch.testing.assert_close(functions(x), first)
        posterior.eval()
        with torch.no_grad():
            forget(posterior.network)  # of what the user's own call left
            results.append([first, *(posterior(x, generator(i)) for i in (1, 2))])
        assert not functions.network.cache
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_looking_for_rows_fills_no_cache():
    network, x = seeded(Caching), torch.randn(5, 3)
    posterior = posterity.IBNN(network, seed=0).train()
    posterior(x)
    assert not network.cache
    assert network.latest is None
    with torch.no_grad():
        network.biases += 1
    expected = network.head(x + network.biases.sum(0))
    torch.testing.assert_close(network.eval()(x), expected)


def test_a_train_of_its_own_that_writes_into_weights_does_not_reach_the_network():
    """Adapters that are merged into the weights when a network is evaluated."""

    class Merging(nn.Linear):
        merged = False

        def __init__(self):
            super().__init__(3, 3)
            self.seen = {"a": torch.ones(1)}

        def train(self, mode=True):
            if self.merged == mode:
                self.weight.data += -0.5 if mode else 0.5
                self.merged = not mode
            return super().train(mode)

        def forward(self, x):
            return super().forward(x) + (0 if self.merged else 0.5 * x.sum(-1, keepdim=True))

    for mode in (True, False):
        network, x = nn.Sequential(seeded(Merging), nn.Linear(3, 2)), torch.randn(4, 3)
        network.train(mode)
        posterior, before = posterity.IBNN(network, seed=0), network[0].weight.clone()
        expected = network(x)
        functions = posterior.draw(3)
        functions(x)
        torch.testing.assert_close(network[0].weight, before, rtol=0, atol=0)
        torch.testing.assert_close(network(x), expected, rtol=0, atol=0)
        assert functions.network[0].merged == (not mode)


@pytest.mark.parametrize("name", posterity.methods())
def test_networks_that_keep_activations_in_a_list_are_copied(name):
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.kept = nn.Linear(3, 2), []

        def forward(self, x):
            self.kept.append({"out": self.layer(x)})
            return self.kept[-1]["out"]

    network, x = seeded(Keeping), torch.randn(4, 3)
    network(x)
    posterior = posterity.methods()[name](network, seed=0)
    posterior(x)
    assert posterior.draw(3)(x).shape[1:] == (4, 2)


class Tied(nn.Module):
    """A matrix under two names, and one in a module under two names; raises on demand."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.second.weight = self.first.weight
        self.again, self.fails = self.last, False

    def forward(self, x):
        if self.fails:
            raise ArithmeticError
        return self.again(self.second(self.first(x)).relu())


@pytest.mark.parametrize("name", METHODS)
def test_functions_alone_keep_ties_and_leave_the_network_its_weights(name):
    posterior, x = METHODS[name](seeded(Tied), seed=0), torch.randn(5, 3, generator=generator())
    functions = posterior.draw(4, generator())
    own = {key: p.clone() for key, p in functions.network.named_parameters()}
    functions.fold_from = math.inf
    together = functions(x)
    functions.fold_from = 0
    torch.testing.assert_close(functions(x), together)
    functions.network.fails = True
    with pytest.raises(ArithmeticError):
        functions(x)
    assert functions.network.second.weight is functions.network.first.weight
    for key, p in functions.network.named_parameters():
        assert isinstance(p, nn.Parameter)
        assert torch.equal(p, own[key])


def test_swapped_weights_are_replaced_under_all_names_or_one():
    network, other = seeded(Tied), torch.ones(3, 3)
    for ties in (True, False):
        with Swaps(network, ties).holding({"first.weight": other}):
            assert network.first.weight is other
            assert (network.second.weight is other) == ties
        assert network.first.weight is network.second.weight


def test_a_duplicate_has_hooks_of_its_own():
    network = seeded(Tied)
    network.first.register_forward_hook(lambda *args: None)
    copied = duplicate(network)
    assert len(copied.first._forward_hooks) == 1
    copied.last.register_forward_hook(lambda *args: None)
    network.second.register_forward_pre_hook(lambda *args: None)
    assert not network.last._forward_hooks
    assert not copied.second._forward_pre_hooks
    assert copied.again is copied.last
