"""What is uncertain can be chosen, by one argument for all methods; what is not is reported with the reason."""

import pytest
import torch
from torch import nn

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity.layers import LAYERS, register, select, select_parameters

METHODS = {name: method for name, method in posterity.methods().items() if name != "map"}


class Deep(nn.Module):
    """Convolutions, a block of Linear layers with a norm, a token, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.Conv1d(4, 4, 3, padding=1))
        self.block = nn.ModuleDict({"first": nn.Linear(4, 4), "norm": nn.LayerNorm(4), "second": nn.Linear(4, 4)})
        self.token, self.head = nn.Parameter(torch.randn(5, 4)), nn.Linear(4, 3)

    def forward(self, x):
        h = self.stem(x).mT + self.token
        for layer in self.block.values():
            h = layer(h)
        return self.head(h.mean(1))


CHOICES = [
    ("stem.0", {"stem.0"}),
    ("stem", {"stem.0", "stem.1"}),
    ("block.*", {"block.first", "block.second"}),
    ("block", {"block.first", "block.second"}),
    (["stem.1", "head"], {"stem.1", "head"}),
    (nn.Conv1d, {"stem.0", "stem.1"}),
    ((nn.Conv1d, "head"), {"stem.0", "stem.1", "head"}),
    (nn.ModuleDict, {"block.first", "block.second"}),
    ("first", {"stem.0"}),
    ("last", {"head"}),
    ("token", {"token"}),
    (lambda name, module: isinstance(module, nn.Linear) and name != "head", {"block.first", "block.second"}),
    (None, {"stem.0", "stem.1", "token", "block.first", "block.second", "head"}),
]


@pytest.mark.parametrize(("layers", "expected"), CHOICES)
def test_noise_goes_where_it_is_wanted(layers, expected):
    reasons = select(seeded(Deep), layers)
    assert {name for name, reason in reasons.items() if reason is None} == expected
    assert all(reason == "left out by layers=" or "has no input" in reason for reason in reasons.values() if reason)


@pytest.mark.parametrize(("layers", "expected"), CHOICES)
def test_weights_are_drawn_where_it_is_wanted(layers, expected):
    network = seeded(Deep)
    norms = {"block.norm"} if layers in ("block.*", "block", nn.ModuleDict, None) else set()
    names = {name for name, _ in network.named_parameters() if name.rpartition(".")[0] in expected | norms}
    assert set(select_parameters(network, layers)) == names | ({"token"} & expected)


@pytest.mark.parametrize("layers", ["stem.0", nn.Conv1d, "last", ["block", "head"]])
@pytest.mark.parametrize("name", METHODS)
def test_only_what_is_chosen_differs_between_functions_and_all_is_trained_and_kept(name, layers, tmp_path):
    network, x, y = seeded(Deep), torch.randn(6, 2, 5, generator=generator(1)), torch.arange(6) % 3
    posterior = METHODS[name](network, layers=layers, seed=0).train()
    chosen = set(select_parameters(network, layers))
    uncertain = {key for key in posterior.describe().uncertain if key in dict(network.named_parameters())}
    assert uncertain
    assert uncertain <= chosen
    fixed = posterior.describe().fixed
    left = [key for key, _ in network.named_parameters() if key not in chosen and "norm" not in key]
    assert all("left out by layers=" in fixed[key] for key in left)
    posterior.loss(x, y, size=6).backward()
    missing = {key for key, p in posterior.named_parameters() if p.requires_grad and p.grad is None}
    assert not missing - {"log_noise"}
    trained = {key for key, p in posterior.network.named_parameters() if p.requires_grad}
    assert trained >= set(dict(network.named_parameters())) - chosen
    posterior.eval()
    functions = posterior.draw(3, generator())
    seen = {}
    for key, module in functions.network.named_modules():
        module.register_forward_hook(
            lambda m, a, out, key=key: seen.__setitem__(key, torch._C._functorch.is_batchedtensor(out))
        )
    outputs = functions(x)
    if not functions.loops and name != "ensemble":  # which loops over convolutions on a processor
        assert seen["head"]
        assert seen["stem.0"] == (layers in ("stem.0", nn.Conv1d))
    posterity.save(posterior, tmp_path)
    loaded = posterity.load(tmp_path, seeded(Deep, 1))
    torch.testing.assert_close(loaded.draw(3, generator())(x), outputs)
    assert set(loaded.describe().uncertain) == set(posterior.describe().uncertain)


def test_a_layer_of_the_name_comes_before_the_word():
    assert posterity.IBNN(seeded(ConvNet), layers="first").sites.names == ["first"]
    network = nn.ModuleDict({"last": nn.Linear(2, 2), "other": nn.Linear(2, 2)})
    assert posterity.IBNN(network, layers="last").sites.names == ["last"]
    assert posterity.IBNN(network, layers="first").sites.names == ["last"]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("layers", ["nothing*", ["0", "absent"], nn.Conv3d, 7, [3]])
def test_a_choice_of_nothing_is_a_mistake_that_is_named(name, layers):
    with pytest.raises(posterity.Error, match="layers="):
        METHODS[name](seeded(mlp), layers=layers)


def test_a_choice_of_what_carries_no_noise_says_why():
    for method in (posterity.IBNN, posterity.MCDropout):
        with pytest.raises(posterity.Error, match="a LayerNorm has no input"):
            method(seeded(Deep), layers="block.norm")
        with pytest.raises(posterity.Error, match="chooses nothing"):
            method(seeded(Deep), layers=lambda name, module: False)


def test_a_tied_parameter_is_drawn_with_any_layer_that_uses_it():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)
            self.head.weight = self.embed.weight

    assert select_parameters(Tied(), "last") == ["embed.weight", "head.bias"]


def test_dropout_of_the_networks_own_leaves_nothing_to_choose():
    with pytest.raises(posterity.Error, match="dropout of its own"):
        posterity.MCDropout(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.2)), layers="0")


@pytest.mark.parametrize("name", posterity.methods())
def test_nothing_is_left_out_of_the_description(name):
    """Norms, embeddings, buffers of no size, parametrised modules of one's own, attention."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.scale = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x @ self.weight * self.scale

    class Everything(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.bag = nn.Embedding(9, 4), nn.EmbeddingBag(9, 4)
            self.own = nn.utils.parametrizations.weight_norm(Own())
            self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
            self.attention, self.norm = nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True), nn.LayerNorm(4)
            self.act, self.head = nn.PReLU(), nn.Linear(4, 2)

        def forward(self, x):
            h = self.own(self.spectral(self.embed(x))) + self.bag(x).unsqueeze(1)
            return self.head(self.act(self.norm(self.attention(h, h, h)[0]))).mean(1)

    network = seeded(Everything)
    posterior = posterity.methods()[name](network, seed=0)
    x = torch.randint(9, (4, 5), generator=generator())
    posterior(x).sum().backward()
    posterior.draw(2)(x)
    reported = {entry.name: entry for entry in posterior.describe()}
    assert {key for key, _ in network.named_parameters()} <= set(reported)
    assert all(entry.reason for entry in reported.values())
    if name == "ibnn":
        assert "whole number" in reported["embed.weight"].reason
        assert "whole number" in reported["bag"].reason
        assert reported["spectral.parametrizations.weight.original"].uncertain
        assert not reported["own.parametrizations.weight.original1"].uncertain


class Squares(nn.Module):
    """A layer of one's own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.scale = size, nn.Parameter(torch.ones(size))

    def forward(self, x):
        return (x * self.scale).square()


@pytest.mark.parametrize("kind", [Squares, f"{Squares.__module__}.Squares"])
def test_a_type_of_layer_can_be_registered(kind):
    register(kind, {"x": "size"})
    try:
        network, x = nn.Sequential(Squares(3), nn.Linear(3, 2)), torch.randn(5, 3)
        posterior = posterity.IBNN(network, 2, seed=0)
        assert posterior.nodes == 6
        functions = posterior.draw(2, generator())
        for z, out in zip(functions.noise, functions(x), strict=True):
            torch.testing.assert_close(out, network[1]((x * z[:3]).square() * z[3:]))
    finally:
        del LAYERS[kind]


def test_lazy_layers_are_named_until_they_have_a_size():
    network = nn.Sequential(nn.LazyConv1d(3, 2), nn.Flatten(), nn.LazyLinear(2))
    for method in METHODS.values():
        with pytest.raises(posterity.Error, match="lazy layer '0'"):
            method(network)
    network(torch.randn(2, 4, 6))
    assert posterity.IBNN(network).nodes == 4 + 15
    assert posterity.BayesByBackprop(network).draw(2)(torch.randn(2, 4, 6)).shape == (2, 2, 2)
