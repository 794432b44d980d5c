"""iBNN against what it must be: folded weights, the paper's assignment, counts and limits."""

import math

import pytest
import torch
from torch import nn

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity import mixtures
from posterity.methods.ibnn import KLS, RECIPES


def test_noise_at_inputs_equals_folded_weights():
    """A shared z is the weight posterior W = U diag(z)."""
    network = seeded(ConvNet).eval()
    posterior = posterity.IBNN(network, 3, seed=0)
    functions, x = posterior.draw(4, generator()), torch.randn(6, 1, 6, 6)
    for noise, out in zip(functions.noise, functions(x), strict=True):
        folded = seeded(ConvNet).eval()
        folded.load_state_dict(network.state_dict())
        start = 0
        with torch.no_grad():
            for layer in (folded.first, folded.second, folded.head):
                size = layer.weight.shape[1]
                layer.weight.mul_(noise[start : start + size].view(1, -1, *[1] * (layer.weight.dim() - 2)))
                start += size
        torch.testing.assert_close(out, folded(x))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(3, 4, 3, padding=1),
        nn.Conv2d(4, 6, 3, groups=2),
        nn.Conv3d(1, 2, 2),
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"),
        nn.ConvTranspose1d(3, 2, 3, stride=2, output_padding=1),
        nn.ConvTranspose2d(1, 2, 3),
        nn.ConvTranspose3d(2, 2, 2),
        nn.Linear(1, 4),
        nn.Linear(5, 4, bias=False),
    ],
    ids=str,
)
def test_every_layer_multiplies_its_input_channels(layer):
    facts = {nn.Linear: ("in_features", 0)}.get(type(layer), ("in_channels", layer.weight.dim() - 2))
    channels, space = getattr(layer, facts[0]), facts[1]
    posterior = posterity.IBNN(nn.Sequential(layer), 2, seed=0)
    x = torch.randn(3, channels, *[5] * space)
    functions = posterior.draw(2, generator())
    for z, out in zip(functions.noise, functions(x), strict=True):
        torch.testing.assert_close(out, layer(x * z.view(-1, *[1] * space)))


@pytest.mark.parametrize("assignment", ["paper", "authors"])
def test_training_noise_is_fresh_for_every_row_and_follows_the_parameters(assignment):
    network = nn.Sequential(nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        network[0].weight.copy_(torch.eye(4))
    posterior = posterity.IBNN(network, 1, assignment=assignment, seed=0)
    z = posterior(torch.ones(4000, 4), generator())[0]
    error = posterior.stds[0] / math.sqrt(4000)
    assert bool(((z.mean(0) - posterior.means[0]).abs() < 4 * error).all())
    ratio = z.std(0) / posterior.stds[0]
    assert bool(((ratio - 1).abs() < 4 / math.sqrt(2 * 4000)).all())
    correlation = torch.corrcoef(z.T) - torch.eye(4)
    assert bool((correlation.abs() < 4 / math.sqrt(4000)).all())


def components_of(posterior: posterity.IBNN, rows: int, seed: int) -> torch.Tensor:
    """Which component every row and sample took, `[samples, rows]`, read off noise without spread."""
    with torch.no_grad():
        posterior.means.copy_(torch.arange(posterior.components)[:, None].expand_as(posterior.means))
        posterior.spreads.fill_(-50.0)
    return posterior(torch.ones(rows, 1), generator(seed)).round().long().squeeze(-1)


def identity(width: int = 1) -> nn.Module:
    network = nn.Sequential(nn.Linear(width, width, bias=False))
    with torch.no_grad():
        network[0].weight.copy_(torch.eye(width))
    return network


@pytest.mark.parametrize(("rows", "k", "s"), [(16, 4, 1), (10, 4, 1), (7, 16, 1), (12, 4, 2), (10, 3, 5)])
def test_assignment_gives_components_equal_shares(rows, k, s):
    for seed in range(5):
        taken = components_of(posterity.IBNN(identity(), k, samples=s), rows, seed)
        assert bool((taken == taken[0]).all())  # all samples of a datum come from its component
        shares = torch.bincount(taken[0], minlength=k)
        assert math.floor(rows / k) <= shares.min()
        assert shares.max() <= math.ceil(rows / k)


def test_rows_that_k_does_not_divide_favour_no_component():
    posterior = posterity.IBNN(identity(), 4)
    shares = sum(torch.bincount(components_of(posterior, 5, seed)[0], minlength=4) for seed in range(400))
    expected = 5 * 400 / 4
    assert bool(((shares - expected).abs() < 4 * math.sqrt(400 * 0.25 * 0.75)).all())


@pytest.mark.parametrize(("rows", "k", "s"), [(16, 4, 2), (10, 4, 3), (5, 16, 2)])
def test_the_authors_assignment_is_row_modulo_k(rows, k, s):
    taken = components_of(posterity.IBNN(identity(), k, samples=s, assignment="authors"), rows, 0)
    expected = (torch.arange(rows * s) % k).view(rows, s).T
    assert torch.equal(taken, expected)
    shares = torch.bincount(taken.flatten(), minlength=k)
    assert math.floor(rows * s / k) <= shares.min()
    assert shares.max() <= math.ceil(rows * s / k)


def test_one_component_for_all_layers_or_one_for_each():
    def network() -> nn.Module:
        return nn.Sequential(identity(), identity())

    together, apart = posterity.IBNN(network(), 3), posterity.IBNN(network(), 3, per_layer=True)
    for posterior, products in ((together, {1, 4, 9}), (apart, {1, 2, 3, 4, 6, 9})):
        with torch.no_grad():
            posterior.means.copy_(torch.tensor([1.0, 2.0, 3.0])[:, None].expand(3, 2))
            posterior.spreads.fill_(-50.0)
        seen = {round(v) for seed in range(40) for v in posterior(torch.ones(3, 1), generator(seed)).flatten().tolist()}
        drawn = {round(float(v)) for v in posterior.draw(300, generator())(torch.ones(1, 1)).flatten()}
        assert seen == products
        assert drawn == products


def test_draws_are_spread_evenly_over_the_components():
    posterior = posterity.IBNN(identity(), 4)
    with torch.no_grad():
        posterior.means.copy_(torch.arange(4.0)[:, None])
        posterior.spreads.fill_(-50.0)
    x = torch.ones(1, 1)
    for n, low, high in ((8, 2, 2), (6, 1, 2), (2, 0, 1)):
        shares = torch.bincount(posterior.draw(n, generator())(x).flatten().round().long(), minlength=4)
        assert (int(shares.min()), int(shares.max())) == (low, high)
    firsts = {int(posterior.draw(1, generator(seed))(x).round()) for seed in range(60)}
    assert firsts == {0, 1, 2, 3}


@pytest.mark.parametrize(("network", "nodes"), [("lenet", 207), ("vgg16", 5_251)])
def test_the_published_node_counts(network, nodes):
    posterior = posterity.IBNN(posterity.networks.create(network), 4)
    assert posterior.nodes == nodes
    assert sum(p.numel() for p in posterior.variational()) == 2 * 4 * nodes


def test_wide_resnet_has_9475_nodes():
    with torch.device("meta"):
        network = posterity.networks.create("wideresnet")
    names = [name for name, reason in posterity.sites.select(network).items() if reason is None]
    assert posterity.sites.Sites(network, ("input",), names).size == 9_475


def test_bias_noise_adds_one_node_for_each_layer_with_a_bias():
    assert posterity.IBNN(posterity.networks.LeNet(), bias_noise=True).nodes == 207 + 5
    posterior = posterity.IBNN(seeded(mlp), 2, bias_noise=True, seed=0)
    x, functions = torch.randn(3, 5), posterior.draw(2, generator())
    first, second = posterior.network[0], posterior.network[2]
    for z, out in zip(functions.noise, functions(x), strict=True):
        hidden = torch.tanh((x * z[:5]) @ first.weight.T + z[5] * first.bias)
        torch.testing.assert_close(out, (hidden * z[6:14]) @ second.weight.T + z[14] * second.bias)


def test_output_noise_multiplies_the_bias_too():
    posterior = posterity.IBNN(seeded(mlp), 2, noise="output", seed=0)
    assert posterior.nodes == 8 + 3
    x, functions = torch.randn(3, 5), posterior.draw(2, generator())
    first, second = posterior.network[0], posterior.network[2]
    for z, out in zip(functions.noise, functions(x), strict=True):
        torch.testing.assert_close(out, z[8:] * second(torch.tanh(z[:8] * first(x))))
    both = posterity.IBNN(seeded(mlp), 2, noise="both")
    assert both.nodes == 5 + 8 + 8 + 3


@pytest.mark.parametrize("kl", KLS)
@pytest.mark.parametrize("per_layer", [False, True])
def test_each_divergence_is_the_named_form(kl, per_layer):
    posterior = posterity.IBNN(seeded(mlp), 3, kl=kl, per_layer=per_layer, seed=0)
    forms = {
        "mixture_mean": mixtures.mixture_mean_kl,
        "bound": mixtures.bound,
        "mean_of_kls": mixtures.mean_of_kls,
        "monte_carlo": lambda m, s, p: mixtures.monte_carlo_kl(m, s, p, generator=g),
    }
    blocks = [slice(0, 5), slice(5, 13)] if per_layer else [slice(0, 13)]
    g = generator(1)
    expected = sum(forms[kl](posterior.means[:, b], posterior.stds[:, b], posterior.prior_std) for b in blocks)
    torch.testing.assert_close(posterior.divergence(generator(1)), expected)


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("kl", ["bound", "mixture_mean"])
def test_gamma_adds_the_entropy(kl, per_layer):
    posterior = posterity.IBNN(seeded(mlp), 3, kl=kl, gamma=2.5, per_layer=per_layer, seed=0)
    blocks = [slice(0, 5), slice(5, 13)] if per_layer else [slice(0, 13)]
    entropy = sum(mixtures.entropy_bound(posterior.means[:, b], posterior.stds[:, b]) for b in blocks)
    torch.testing.assert_close(posterior.entropy(), entropy)
    torch.testing.assert_close(posterior.penalty(), posterior.divergence() - 2.5 * entropy)


def test_the_mean_is_that_of_all_components():
    posterior, x = posterity.IBNN(seeded(mlp), 3, init_std=0.5, seed=0), torch.randn(4, 5, generator=generator())
    z, network = posterior.means.detach().mean(0), posterior.network
    expected = network[2](torch.tanh(network[0](x * z[:5])) * z[5:])
    torch.testing.assert_close(posterior.mean()(x)[0], expected)


@pytest.mark.parametrize(("components", "draws"), [(1, 40), (3, 42), (16, 80)])
def test_predictions_take_five_draws_of_each_component_and_forty_or_more(components, draws):
    assert posterity.IBNN(seeded(mlp), components, seed=0).draws == draws


def test_initialisation_follows_the_paper():
    posterior = posterity.IBNN(nn.Sequential(nn.Linear(4000, 1)), 16, init_std=0.5, init_noise=0.05, seed=0)
    posterior.requires_grad_(False)
    count = posterior.means.numel()
    assert abs(float(posterior.means.mean()) - 1) < 4 * 0.5 / math.sqrt(count)
    assert abs(float(posterior.means.std()) - 0.5) < 4 * 0.5 / math.sqrt(2 * count)
    assert abs(float(posterior.stds.mean()) - 0.05) < 4e-3  # |N(0.05, 0.02²)|: its fold adds 0.0001
    assert abs(float(posterior.stds.std()) - 0.02) < 1e-3
    assert bool(posterior.spreads.isfinite().all())


def test_one_component_without_noise_is_the_network():
    network, x = seeded(ConvNet).eval(), torch.randn(4, 1, 6, 6)
    posterior = posterity.IBNN(network, 1, init_std=0.0)
    with torch.no_grad():
        posterior.spreads.fill_(-60.0)
    torch.testing.assert_close(posterior.draw(3)(x), network(x).expand(3, -1, -1))
    torch.testing.assert_close(posterior.mean()(x)[0], network(x))
    torch.testing.assert_close(posterior.eval()(x)[0], network(x))


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_carry_the_papers_table(name):
    recipe = posterity.IBNN.recipe(name, components=8)
    posterior = posterity.IBNN(seeded(mlp), **recipe["posterior"])
    assert posterior.components == 8
    assert posterior.rate * recipe["fit"]["lr_posterior"] == pytest.approx(RECIPES[name][4])
    data = torch.randn(16, 5), torch.arange(16) % 3
    posterity.fit(posterior, data, **{**recipe["fit"], "epochs": 1, "batch_size": 8}, progress=False)


def test_the_step_of_a_component_does_not_depend_on_how_many_there_are():
    """Gradients of a component shrink as 1/K; under SGD the rate grows with K, so that its steps do not."""
    data = torch.randn(64, 5, generator=generator()), torch.arange(64) % 3
    moved = []
    for k in (2, 16):
        posterior = posterity.IBNN(seeded(mlp), k, init_std=0.0, seed=0)
        start = posterior.means.detach().clone()
        posterity.fit(
            posterior, data, epochs=1, batch_size=64, optimizer="sgd", lr=1e-3, beta=0.0, schedule="constant", seed=0,
            device="cpu", progress=False,
        )  # fmt: skip
        moved.append(float((posterior.means.detach() - start).abs().mean()))
    assert 0.5 < moved[1] / moved[0] < 4  # noisier with fewer rows each; 1/8 without the factor


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"components": 0}, "components"),
        ({"kl": "nonsense"}, "kl"),
        ({"prior_std": -1.0}, "prior_std"),
        ({"prior_std": [0.1, 0.2]}, "prior_std"),
        ({"prior_std": [*[0.1] * 12, -0.1]}, "prior_std"),
        ({"prior_std": [*[0.1] * 12, math.inf]}, "prior_std"),
        ({"noise": "everywhere"}, "noise"),
        ({"assignment": "random"}, "assignment"),
        ({"samples": 1.5}, "samples"),
        ({"layers": "nothing*"}, "Linear"),
        ({"seed": 1, "generator": torch.Generator()}, "seed"),
    ],
)
def test_mistakes_get_a_sentence(arguments, word):
    with pytest.raises(posterity.Error, match=word):
        posterity.IBNN(seeded(mlp), **arguments)


def test_describe_counts_the_nodes():
    network = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2))
    posterior = posterity.IBNN(network, 2, bias_noise=True, seed=0)
    reasons = {entry.name: entry.reason for entry in posterior.describe()}
    assert reasons["0"] == "noise on 1 input, 1 bias"
    assert reasons["2"] == "noise on 3 inputs, 1 bias"


def test_layers_chooses_and_describe_says_so():
    posterior = posterity.IBNN(seeded(ConvNet), 2, layers="head")
    assert posterior.sites.names == ["head"]
    fixed = posterior.describe().fixed
    assert fixed["first"] == "left out by layers="
    assert "BatchNorm2d" in fixed["norm"]
    assert posterior.describe().uncertain == ["head", "head.weight"]
    chosen = posterity.IBNN(seeded(ConvNet), 2, layers=lambda name, layer: isinstance(layer, nn.Conv2d))
    assert chosen.sites.names == ["first", "second"]


def test_one_feature_is_not_spread_over_many():
    """Noise of three channels times grey images would be coloured ones."""
    network = seeded(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)))
    posterior = posterity.IBNN(network, 2, seed=0)
    functions, grey = posterior.draw(2), torch.randn(5, 1, 8, 8)
    assert posterior(torch.randn(5, 3, 8, 8)).shape == functions(torch.randn(5, 3, 8, 8))[:1].shape
    for use in (posterior, functions, lambda x: posterity.predict(posterior, x)):
        with pytest.raises(posterity.Error, match="takes 3 features"):
            use(grey)


class Ways(nn.Module):
    """Rows and features; or rows, steps and features, which it turns round."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        turned = x.dim() == 3
        out = self.b(torch.tanh(self.a(x.transpose(0, 1) if turned else x)))
        return out.permute(1, 2, 0) if turned else out


def test_rows_are_looked_for_again_where_inputs_have_other_axes():
    posterior, x = posterity.IBNN(seeded(Ways), 2, seed=0), torch.randn(1, 1, 5).expand(5, 5, 5).contiguous()
    for _ in range(2):
        posterior(x[:, 0])
        out = posterior(x)[0]  # rows, classes, steps: of all rows and steps the same but for the noise
        assert float((out - out[:, :, :1]).abs().max()) < 1e-5
        assert float((out[0] - out[1]).abs().max()) > 1e-3


def test_a_layer_that_other_inputs_call_has_noise_for_each_row():
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 3), nn.Linear(5, 3)

        def forward(self, x, m=None):
            return self.a(x) if m is None else self.b(m)

    posterior, x = posterity.IBNN(seeded(Either), 2, seed=0), torch.ones(6, 5)
    for _ in range(2):
        for given in ({"x": x}, {"x": x, "m": x}):
            assert len(posterior(given)[0].unique(dim=0)) == 6
