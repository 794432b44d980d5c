"""What a network keeps between calls is its own: nothing that was computed under noise is found by the next call."""

import pytest
import torch
from torch import nn

import posterity
from common import generator, seeded
from posterity.state import forget

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


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_a_cache_never_holds_what_was_drawn(name, loops):
    x = torch.randn(5, 3, generator=generator())
    results = []
    for make in (Caching, Plain):
        network = seeded(make)
        network.eval()(x)  # fills the cache
        posterior = METHODS[name](network, seed=0)
        functions = posterior.draw(4, generator())
        functions.loops = loops
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
