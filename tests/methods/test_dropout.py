"""MC dropout against what it must be: one Bernoulli mask for each function, wherever the network drops."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity.masks import Masks, Place
from posterity.methods.dropout import MCDropout
from posterity.methods.map import MAP


class Functional(nn.Module):
    """Drops by a call, not by a module."""

    def __init__(self, drop) -> None:
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(5, 64), nn.Linear(64, 3), drop

    def forward(self, x):
        return self.second(self.drop(torch.relu(self.first(x)), self.training))


def plain(x, training):
    return F.dropout(x, 0.5, training)


def always(x, training):
    return F.dropout(x)


def by_torch(x, training):
    return torch.dropout(x, 0.5, training)


class Identity(nn.Module):
    """A dropout alone, with a parameter so that there is something to train."""

    def __init__(self, drop) -> None:
        super().__init__()
        self.drop, self.scale = drop, nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.drop(x) * self.scale


def test_functions_of_a_linear_layer_have_the_moments_of_bernoulli_masks():
    """f = W (m ∘ x) / (1 − p) + b: mean W x + b, covariance of two rows p / (1 − p) Σ w² x x'."""
    n, p = 20_000, 0.3
    network = seeded(lambda: nn.Linear(12, 1))
    x = torch.randn(3, 12, generator=generator(1))
    outputs = MCDropout(network, p).draw(n, generator(2))(x).squeeze(-1).double()
    weight = network.weight.detach().double()[0]
    covariance = p / (1 - p) * torch.einsum("i,ai,bi->ab", weight**2, x.double(), x.double())
    error = (covariance.diagonal() / n).sqrt()
    mean = network(x).detach().double()[:, 0]
    assert bool(((outputs.mean(0) - mean).abs() < 4 * error).all())
    centred = outputs - mean
    products = centred.unsqueeze(2) * centred.unsqueeze(1)
    assert bool(((products.mean(0) - covariance).abs() < 4 * products.std(0) / n**0.5).all())


def test_masks_are_fair_and_independent_of_each_other():
    n, size, p = 400, 50, 0.2
    seeds = torch.randint(2**62, (n,), generator=generator())

    def two(seed):
        masks = Masks(seed, [Place(0), Place(0)])
        return torch.cat([masks(torch.ones(1, size), p, F.dropout) for _ in range(2)], 1)[0]

    keep = torch.func.vmap(two)(seeds) > 0
    assert set(torch.func.vmap(two)(seeds).unique().tolist()) == {0.0, 1 / (1 - p)}
    error = (p * (1 - p)) ** 0.5
    assert abs(float(keep.double().mean()) - (1 - p)) < 4 * error / (n * 2 * size) ** 0.5
    correlation = torch.corrcoef(keep.T.double()) - torch.eye(2 * size)
    assert float(correlation.abs().max()) < 5.5 / n**0.5
    between = torch.corrcoef(keep.double()) - torch.eye(n)
    assert float(between.abs().max()) < 6 / (2 * size) ** 0.5
    assert float(between.mean()) == pytest.approx(0, abs=5 / n / (2 * size) ** 0.5)


@pytest.mark.parametrize("shape", [(4, 10), (4, 3, 10), (4, 3, 5, 5)])
def test_a_module_drops_single_numbers_the_same_in_every_row(shape):
    functions = MCDropout(Identity(nn.Dropout(0.4))).draw(50, generator())
    masks = functions(torch.ones(shape))
    torch.testing.assert_close(masks.unique(), torch.tensor([0.0, 1 / 0.6]))
    assert bool((masks == masks[:, :1]).all())
    assert masks[:, 0].reshape(50, -1).unique(dim=1).shape[1] > 8
    torch.testing.assert_close(functions(torch.ones(9, *shape[1:]))[:, :4], masks)


@pytest.mark.parametrize("drop", [nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_channel_dropout_drops_whole_channels(drop):
    space = {nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}[drop]
    masks = MCDropout(Identity(drop(0.5))).draw(50, generator())(torch.ones(4, 6, *[3] * space))
    assert bool((masks == masks[:, :1]).all())
    flat = masks[:, 0].reshape(50, 6, -1)
    assert bool((flat == flat[..., :1]).all())
    assert float((flat[..., 0] == 0).double().mean()) == pytest.approx(0.5, abs=4 * 0.5 / 300**0.5)


@pytest.mark.parametrize("drop", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_zero_and_variance_one(drop):
    x = torch.randn(1, 60, 60, generator=generator())
    functions = MCDropout(Identity(drop(0.2))).draw(100, generator())
    outputs = functions(x)
    channels = 60 if drop is nn.FeatureAlphaDropout else 3600
    assert float(outputs.mean()) == pytest.approx(0, abs=5 * 2 / (100 * channels) ** 0.5 + 5 / 60)
    assert float(outputs.var()) == pytest.approx(1, abs=0.1)
    low = float(outputs.min()) if drop is nn.AlphaDropout else None
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = F.alpha_dropout(x, 0.2, True)
    if low is not None:
        a, b = theirs.flatten().mode().values, outputs.flatten().mode().values
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("drop", [plain, always, by_torch])
def test_functional_dropout_is_found_and_nothing_is_added(drop):
    network = seeded(lambda: Functional(drop))
    posterior = MCDropout(network, seed=0)
    x = torch.randn(6, 5, generator=generator())
    functions = posterior.draw(30, generator())
    hidden = torch.relu(network.first(x)).detach()
    outputs = functions(x)
    assert float(outputs.std(0).min()) > 0
    torch.testing.assert_close(functions(x), outputs, rtol=0, atol=0)
    torch.testing.assert_close(functions(x[2:3]), outputs[:, 2:3])
    spread = F.linear(hidden, network.second.weight.detach())
    assert spread.shape == outputs.shape[1:]
    torch.testing.assert_close(posterior.mean()(x)[0], network.second(hidden).detach())
    assert not posterior.plans.find(network, posterior.added, x).added
    network.eval()
    assert not torch.equal(posterior(x), posterior(x))


def test_nothing_is_added_in_training_to_a_network_that_drops_by_itself():
    """Its own dropout is of zeros, so that any other is seen."""
    network = seeded(lambda: Functional(lambda h, training: h + F.dropout(torch.zeros_like(h), 0.5, training)))
    posterior, x = MCDropout(network, 0.4).train(), torch.randn(6, 5, generator=generator())
    torch.testing.assert_close(posterior(x, generator())[0], network(x), rtol=0, atol=0)


def test_the_networks_own_dropout_is_described_as_uncertain():
    entry = next(e for e in MCDropout(Identity(nn.Dropout(0.4))).describe() if e.name == "drop")
    assert entry.uncertain
    assert entry.reason == "the network's own dropout, p = 0.4"


def test_a_network_without_dropout_gets_it_at_the_inputs_of_its_layers():
    network = seeded(mlp)
    assert set(MCDropout(seeded(mlp), 0.4, seed=0).describe().uncertain) == {"2", "2.weight"}
    assert set(MCDropout(nn.Linear(3, 2), 0.4, seed=0).describe().uncertain) == {"", "weight"}
    posterior = MCDropout(network, 0.4, layers="*", seed=0)
    assert {"0", "2", "0.weight", "2.weight"} == set(posterior.describe().uncertain)
    x = torch.randn(6, 5, generator=generator())
    torch.testing.assert_close(network.train()(x), copy.deepcopy(network).eval()(x), rtol=0, atol=0)
    some = MCDropout(network, 0.4, layers="2", seed=0)
    assert some.describe().fixed["0.weight"] == "left out by layers="
    hidden = torch.tanh(network[0](x)).detach()
    outputs = some.draw(3000, generator())(x)
    variance = 0.4 / 0.6 * hidden**2 @ network[2].weight.detach().T ** 2
    assert bool(((outputs.var(0) / variance - 1).abs() < 5 * (2 / 3000) ** 0.5).all())


def test_at_rate_zero_it_is_map():
    x, y = torch.randn(40, 5, generator=generator()), torch.arange(40) % 3
    posteriors = [MCDropout(seeded(mlp), 0.0), MAP(seeded(mlp))]
    for posterior in posteriors:
        posterity.fit(posterior, (x, y), epochs=3, lr=0.01, seed=0, device="cpu", progress=False)
    torch.testing.assert_close(*(p.network[0].weight for p in posteriors), rtol=0, atol=0)
    torch.testing.assert_close(*(p.draw(3, generator())(x) for p in posteriors))


def test_training_masks_are_fresh_for_every_row_and_sample_in_either_mode():
    posterior = MCDropout(Identity(nn.Dropout(0.5)), samples=2)
    for mode in (True, False):
        outputs = posterior.train(mode)(torch.ones(300, 20), generator())
        assert outputs.shape == (2, 300, 20)
        keep = (outputs.detach() > 0).double()
        assert float(keep.mean()) == pytest.approx(0.5, abs=4 * 0.5 / 12_000**0.5)
        rows = torch.corrcoef(keep.flatten(0, 1)) - torch.eye(600)
        assert float(rows.mean()) == pytest.approx(0, abs=5 / 600 / 20**0.5)


def test_prediction_leaves_batch_statistics_to_the_bit():
    network = nn.Sequential(seeded(ConvNet), nn.Dropout(0.5), nn.Linear(3, 3))
    posterior = MCDropout(network).train()
    x = torch.randn(8, 1, 6, 6, generator=generator())
    before = copy.deepcopy(network.state_dict())
    predictions = [posterity.predict(posterior, part, 20, generator()).probs for part in (x, x[:1])]
    torch.testing.assert_close(predictions[0][:1], predictions[1])
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    added = MCDropout(seeded(ConvNet)).train()
    before = copy.deepcopy(added.network.state_dict())
    added.plans.find(added.network, added.added, x)
    assert all(torch.equal(value, before[name]) for name, value in added.network.state_dict().items())
    assert all(module.training for module in added.modules())


def test_what_comes_before_the_first_dropout_is_computed_once():
    """VGG-16 drops in its classifier only: a hundred functions cost about 1.2 passes, not a hundred."""
    network = posterity.networks.create("vgg16", dropout=0.5).eval()
    functions, x = MCDropout(network).draw(100, generator()), torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        functions(x)  # which finds out about the network
        with FlopCounterMode(display=False) as all_of_them:
            functions(x)
        with FlopCounterMode(display=False) as one:
            network(x)
    assert all_of_them.get_total_flops() < 1.2 * one.get_total_flops()


class SequenceFirst(nn.Module):
    """Turns `[batch, time, features]` to `[time, batch, features]` before it drops."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.drop(x.transpose(0, 1)).transpose(0, 1).mean(1))


class Windows(nn.Module):
    """Folds time into the rows, row by row or interleaved."""

    def __init__(self, blocked: bool) -> None:
        super().__init__()
        self.blocked, self.drop, self.scale = blocked, nn.Dropout(0.5), nn.Parameter(torch.ones(()))

    def forward(self, x):
        rows, time, size = x.shape
        folded = (x if self.blocked else x.transpose(0, 1)).reshape(-1, size)
        out = self.drop(folded * self.scale)
        return out.view(rows, time, size) if self.blocked else out.view(time, rows, size).transpose(0, 1)


class Attention(nn.Module):
    """Drops attention weights alone, with rows folded into heads where the weights are wanted."""

    def __init__(self, need_weights: bool, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=batch_first)
        self.need_weights, self.batch_first = need_weights, batch_first

    def forward(self, x):
        x = x if self.batch_first else x.transpose(0, 1)
        out = self.attention(x, x, x, need_weights=self.need_weights)[0]
        return out if self.batch_first else out.transpose(0, 1)


def encoder(batch_first: bool = True) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=batch_first)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (SequenceFirst, 3),
        (lambda: Windows(True), 3),
        (lambda: Windows(False), 3),
        (lambda: Attention(True, True), 8),
        (lambda: Attention(True, False), 8),
        (lambda: Attention(False, True), 8),
        (lambda: Attention(False, False), 8),
        (encoder, 8),
        (lambda: nn.TransformerEncoder(encoder(), 2), 8),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_rows_are_found_wherever_they_are(make, size):
    """Also with as many time steps as rows, where sizes say nothing."""
    posterior, x = MCDropout(seeded(make), seed=0), torch.randn(4, 4, size, generator=generator())
    functions = posterior.draw(5, generator())
    outputs = functions(x)
    assert float(outputs.std(0).mean()) > 0.01
    for row in range(4):
        torch.testing.assert_close(functions(x[row : row + 1])[:, 0], outputs[:, row])
    same = functions(x[:1].expand(4, -1, -1).contiguous())
    torch.testing.assert_close(same, same[:, :1].expand_as(same))
    posterior.train()(x).sum().backward()


def test_positions_of_a_folded_row_have_masks_of_their_own():
    for blocked in (True, False):
        masks = MCDropout(Windows(blocked)).draw(40, generator())(torch.ones(2, 5, 7))
        torch.testing.assert_close(masks[:, 0], masks[:, 1])
        assert masks[:, 0].reshape(40, -1).unique(dim=1).shape[1] == 35


def test_attention_without_dropout_is_torchs_own():
    for need in (True, False):
        posterior, x = MCDropout(seeded(lambda n=need: Attention(n, True))), torch.randn(3, 4, 8)
        torch.testing.assert_close(posterior.mean()(x)[0], posterior.network.eval()(x).detach())
        outputs = posterior.draw(4000, generator())(x).double()
        error = outputs.std(0) / 4000**0.5
        assert float(((outputs.mean(0) - posterior.network(x).detach()).abs() / error).max()) < 5


def test_a_function_takes_other_sizes_of_images():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout(0.3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    functions = MCDropout(seeded(lambda: network)).draw(3, generator())
    for size in (8, 12, 8):
        assert functions(torch.ones(2, 1, size, size)).shape == (3, 2, 4)


def test_recurrent_dropout_is_described_as_training_only():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(3, 5, 2, dropout=0.5, batch_first=True), nn.Linear(5, 2)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    posterior, x = MCDropout(seeded(Recurrent), 0.5), torch.randn(4, 6, 3)
    assert "in training only" in posterior.describe().fixed["lstm"]
    assert "head" in posterior.describe().uncertain
    functions = posterior.draw(10, generator())
    torch.testing.assert_close(functions(x), functions(x), rtol=0, atol=0)
    assert float(functions(x).std(0).mean()) > 0


def test_functions_are_exported_and_compiled():
    posterior = MCDropout(seeded(lambda: posterity.networks.create("mlp", inputs=5, outputs=3, dropout=0.2)))
    functions, x = posterior.draw(4, generator()), torch.randn(6, 5)
    program = torch.export.export(functions, (x,)).module()
    torch.testing.assert_close(program(x), functions(x))
    compiled = torch.compile(functions, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), functions(x))


@pytest.mark.filterwarnings("ignore")
def test_dropped_attention_is_exported_but_never_compiled_in_silence():
    """The compiler would put a fused kernel without dropout in its place."""
    functions, x = MCDropout(seeded(encoder)).draw(3, generator()), torch.randn(2, 4, 8)
    torch.testing.assert_close(torch.export.export(functions, (x,)).module()(x), functions(x))
    with pytest.raises(Exception, match="dropout of attention"):
        torch.compile(functions, fullgraph=True, backend="aot_eager")(x)


def test_training_compiles():
    x, y = torch.randn(32, 5, generator=generator()), torch.arange(32) % 3
    posterior = MCDropout(seeded(mlp), seed=0)
    posterity.fit(posterior, (x, y), epochs=2, seed=0, compile="aot_eager", progress=False)
    assert bool(posterity.predict(posterior, x, 4).probs.isfinite().all())


def test_mistakes_are_named():
    for rate in (1.0, -0.1, "high"):
        with pytest.raises(posterity.Error, match="rate"):
            MCDropout(mlp(), rate)
    with pytest.raises(posterity.Error, match="does not take these inputs"):
        posterity.predict(MCDropout(mlp()), (torch.ones(2, 3), torch.ones(3, 3)))


def test_the_config_names_the_layers_where_dropout_was_added_and_none_where_it_was_not():
    assert MCDropout(seeded(mlp), 0.2, layers="2", seed=0).config()["layers"] == ["2"]
    assert MCDropout(seeded(mlp), 0.2, seed=0).config()["layers"] is None
    assert MCDropout(seeded(mlp), 0.0, seed=0).config()["layers"] is None
    own = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.3), nn.Linear(3, 2))
    assert MCDropout(own, 0.2, seed=0).config()["layers"] is None


def test_dropout_that_never_acts_in_a_drawn_function_is_told():
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.drop = nn.Linear(5, 3), nn.Dropout(0.5)

        def forward(self, x):
            return self.layer(self.drop(x) if self.training else x)

    x = torch.randn(4, 5)
    with pytest.warns(UserWarning, match="calls its own in training alone, so all functions will be the same"):
        outputs = MCDropout(Trained()).eval().draw(3)(x)
    assert not outputs.std(0).any()
    for quiet in (MCDropout(mlp(), 0.0), MCDropout(nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3)))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quiet.eval().draw(3)(x)


class Reversed(nn.Module):
    """Its layers are defined in another order than they run; one does not run at all."""

    def __init__(self):
        super().__init__()
        self.head, self.body = nn.Linear(8, 2), nn.Linear(3, 8)
        self.unused = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def test_the_layer_that_is_spared_is_the_one_that_runs_first(tmp_path):
    posterior, x = MCDropout(seeded(Reversed), 0.5, seed=0), torch.zeros(6, 3)
    assert float(posterior.draw(20)(x).std(0).max()) > 0  # of zeros nothing could be dropped
    assert posterior.describe().uncertain == ["head", "head.weight"]
    x = torch.randn(6, 3)
    posterity.save(MCDropout(seeded(Reversed), 0.5, seed=0), tmp_path / "fresh")  # before any pass
    posterity.save(posterior, tmp_path / "model")
    for name in ("fresh", "model"):
        again = posterity.load(tmp_path / name, seeded(Reversed))
        torch.testing.assert_close(again.draw(3, generator())(x), posterior.draw(3, generator())(x))


def test_compiled_before_any_pass_it_spares_the_same_layer():
    class Swapped(Reversed):
        def __init__(self):
            super().__init__()
            del self.unused

    x = torch.randn(6, 3)
    compiled = torch.compile(MCDropout(seeded(Swapped), 0.5, seed=0).draw(3, generator()), backend="eager")
    torch.testing.assert_close(compiled(x), MCDropout(seeded(Swapped), 0.5, seed=0).draw(3, generator())(x))
    functions = MCDropout(seeded(Reversed), 0.5, seed=0).draw(3, generator())  # of which one layer is not called
    with pytest.raises(posterity.Error, match="run the functions once"):
        torch.export.export(functions, (x,))
    outputs = functions(x)
    torch.testing.assert_close(torch.export.export(functions, (x,)).module()(x), outputs)


def test_a_first_pass_does_not_change_what_is_resumed(tmp_path):
    data, options = (torch.randn(20, 3), torch.arange(20) % 2), {"seed": 0, "checkpoint": tmp_path, "progress": False}
    posterity.fit(MCDropout(seeded(Reversed), seed=0), data, epochs=1, **options)
    posterior = MCDropout(seeded(Reversed), seed=0)
    posterity.predict(posterior, data[0])
    assert len(posterity.fit(posterior, data, epochs=1, **options)) == 1


def test_a_first_layer_that_is_not_called_is_spared_too():
    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.body, self.head = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.head(torch.relu(self.body(F.linear(x, self.stem.weight, self.stem.bias).relu())))

    posterior = MCDropout(seeded(Direct), 0.5, seed=0)
    posterior.draw(2)(torch.randn(6, 3))
    assert [plan.first for plan in posterior.plans.known.values()] == ["stem"]


def test_the_first_layer_is_that_of_the_inputs_given():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.deep, self.flat, self.head = nn.Linear(4, 8), nn.Linear(3, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.head(torch.relu(self.deep(x).mean(1) if x.dim() == 3 else self.flat(x)))

    posterior = MCDropout(seeded(Branching), 0.5, seed=0)
    functions, flat, deep = posterior.draw(3, generator()), torch.randn(5, 3), torch.randn(5, 2, 4)
    other = copy.deepcopy(functions)
    functions(flat)
    other(deep)
    assert torch.equal(functions(deep), other(deep))
    assert torch.equal(functions(flat), other(flat))


def test_a_layer_that_does_not_run_spares_none():
    class Single(Reversed):
        def forward(self, x):
            return self.unused(x)

    posterior = MCDropout(seeded(Single), 0.5, seed=0)
    assert float(posterior.draw(20)(torch.randn(6, 3)).std(0).max()) > 0
    assert posterior.describe().uncertain == ["unused", "unused.weight"]


class Graph(nn.Module):
    """Its rows are the nodes of one graph: two of them alone are none."""

    def __init__(self, rate=0.0):
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(3, 8), nn.Linear(8, 2), nn.Dropout(rate) if rate else nn.Identity()

    def forward(self, x, joined):
        return self.b(self.drop(torch.relu(joined @ self.a(x))))


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_network_that_takes_all_rows_together_has_masks_for_all_of_them(rate):
    posterior = MCDropout(seeded(lambda: Graph(rate)), 0.3, seed=0)
    nodes = 300  # more than functions take at a time, where rows can be cut
    x = torch.randn(nodes, 3), (torch.rand(nodes, nodes) > 0.7).float() / nodes
    functions = posterior.draw(40, generator())
    outputs = functions(x)
    assert outputs.shape == (40, nodes, 2)
    assert torch.equal(functions(x), outputs)
    assert float(outputs.std(0).mean()) > 0.001
    assert posterity.predict(posterior, x).probs.shape == (nodes, 2)
    whole = DataLoader([(x, torch.arange(nodes) % 2)], batch_size=None)
    assert posterity.fit(posterior, whole, size=nodes, epochs=1, progress=False)


def test_a_network_that_takes_rows_by_fours_has_a_mask_for_every_place():
    class Fours(Reversed):
        def forward(self, x):
            return self.head(self.body(x).view(-1, 4, 8).flatten(0, 1))

    functions, x = MCDropout(seeded(Fours), 0.3, seed=0).draw(2, generator()), torch.randn(8, 3)
    torch.testing.assert_close(functions(x), functions(x), rtol=0, atol=0)
    torch.testing.assert_close(functions(x[:4]), functions(x)[:, :4])


def test_where_nothing_can_be_dropped_that_is_said():
    posterior = MCDropout(nn.Sequential(nn.LayerNorm(3)))
    with pytest.warns(UserWarning, match="has no layer at whose inputs"):
        posterity.predict(posterior, torch.randn(4, 3))
