"""Networks whose rows interact: rows are neither cut nor shuffled, however many functions are drawn."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import posterity
from common import generator, mlp, seeded
from posterity import functions as running
from posterity.holdout import hold_out
from posterity.interaction import Interaction, interact, keeps_whole
from posterity.outputs import outputs

METHODS = posterity.methods()
ROWS = 40


class Attention(nn.Module):
    """Rows attend to each other."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(h + (h @ h.T).softmax(-1) @ h)


class Neighbours(nn.Module):
    """A row meets its `k` nearest ones."""

    def __init__(self, k=2):
        super().__init__()
        self.k, self.first, self.last = k, nn.Linear(3, 8), nn.Linear(8, 3)

    def forward(self, x):
        near = (x.unsqueeze(0) - x.unsqueeze(1)).abs().sum(-1).topk(self.k + 1, largest=False)[1]
        return self.last(torch.relu(self.first(x))[near].mean(1))


class Statistics(nn.Sequential):
    """Batch normalisation without running statistics."""

    def __init__(self):
        super().__init__(nn.Linear(3, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, 3))


class Graph(nn.Module):
    """All nodes of a graph, whose edges the network holds."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 3)
        linked = (torch.rand(ROWS, ROWS, generator=generator(3)) < 0.1).float() + torch.eye(ROWS)
        self.register_buffer("edges", linked / linked.sum(1, keepdim=True))

    def forward(self, x):
        return self.edges @ self.last(torch.relu(self.edges @ self.first(x)))


class Position(nn.Module):
    """A row's output depends on its place in the batch."""

    def __init__(self):
        super().__init__()
        self.layer, self.places = nn.Linear(3, 3), nn.Embedding(5000, 3)

    def forward(self, x):
        return self.layer(x) + self.places(torch.arange(len(x)))


class Share(nn.Module):
    """A row's output depends on how many rows there are."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) / len(x)


class First(nn.Module):
    """Sequences along axis 0, rows along axis 1."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.rnn(x)[0])[-1]


TOGETHER = {
    "attention": Attention, "neighbours": Neighbours, "statistics": Statistics, "position": Position, "share": Share,
}  # fmt: skip


def rows(n=ROWS):
    return torch.randn(n, 3, generator=generator(1))


def labels(n=ROWS):
    return torch.arange(n) % 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("network", TOGETHER)
def test_rows_that_interact_are_found_by_value(network, dtype):
    posterior = posterity.MAP(seeded(TOGETHER[network]).to(dtype))
    before = torch.get_rng_state()
    assert interact(posterior, rows()) is Interaction.TOGETHER
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("make", [Graph, lambda: Neighbours(10)])
def test_a_network_that_takes_no_few_rows_takes_all(make):
    assert interact(posterity.MAP(seeded(make)), rows()) is Interaction.WHOLE


@pytest.mark.parametrize("n", [1, 2, 3, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_of_ordinary_networks_are_apart(n, dtype):
    convolutions = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2), nn.BatchNorm1d(4), nn.Flatten())
    gone = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LogSoftmax(1))
    nn.init.constant_(gone[0].weight, torch.nan)
    deep = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Tanh()) for _ in range(40)])
    for network in (seeded(lambda: mlp(3)), convolutions, gone, deep, nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))):
        assert interact(posterity.MAP(network.to(dtype)), rows(n)) is Interaction.APART


def test_rows_of_tokens_masks_and_several_inputs_are_apart():
    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.last = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, tokens, mask, scale=2.0):
            return self.last((self.embed(tokens) * mask.unsqueeze(-1)).sum(1) * scale)

    tokens = torch.randint(9, (30, 5), generator=generator())
    x = {"tokens": tokens, "mask": tokens > 2, "scale": torch.tensor(1.5)}
    assert interact(posterity.MAP(seeded(Several)), x) is Interaction.APART


def test_whether_rows_interact_follows_the_mode_of_the_modules_and_the_kind_of_inputs():
    drawn = posterity.MAP(nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))).draw(2)
    assert not keeps_whole(drawn, rows())
    drawn.train()
    assert keeps_whole(drawn, rows())
    drawn.eval()
    assert not keeps_whole(drawn, rows())


@pytest.mark.parametrize("network", [*TOGETHER.values(), Graph], ids=lambda network: network.__name__)
@pytest.mark.parametrize("name", METHODS)
def test_a_function_is_the_same_however_many_are_drawn_beside_it(name, network, monkeypatch):
    monkeypatch.setattr(running, "MOST", 4)
    functions = METHODS[name](seeded(network), seed=0).draw(6, generator())
    x = rows()
    together = functions(x)
    alone = [function(x) for function in functions.each()]
    each = together.unique_consecutive(dim=0) if name in ("map", "ensemble") else together
    torch.testing.assert_close(each, torch.stack(alone), rtol=1e-4, atol=1e-5)
    functions.rows_at_once = 16
    torch.testing.assert_close(functions(x), together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_a_prediction_does_not_depend_on_how_many_draws_are_asked_for(name):
    """The mean of a ten times larger number of draws is within five standard errors of the smaller one's."""
    posterior, x = METHODS[name](seeded(Attention), seed=0), rows(300)
    few, many = (posterity.predict(posterior, x, n, seed=0).probs for n in (10, 300))
    std = posterior.draw(50, generator())(x).softmax(-1).std(0)
    assert bool(((few - many).abs() <= 5 * std / 10**0.5 + 1e-5).all())


def test_all_rows_are_predicted_together_unless_batch_size_says_how_they_go_together():
    posterior, x = posterity.IBNN(seeded(Attention), seed=0), rows(1500)
    functions = posterior.draw(8, generator())
    expected = functions(x).log_softmax(-1).exp().mean(0)
    for given in (x, TensorDataset(x)):
        found = posterity.predict(posterior, given, 8, generator()).probs
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(outputs(functions, x).float(), functions(x))
    groups = posterity.predict(posterior, x, 8, generator(), batch_size=300).probs
    by_hand = torch.cat([functions(part).softmax(-1).mean(0) for part in x.split(300)])
    torch.testing.assert_close(groups, by_hand)
    assert float((groups - expected).abs().max()) > 0.01


def test_rows_that_interact_settle_together():
    posterior, x = posterity.IBNN(seeded(Attention), seed=0), rows(100)
    plain = posterity.predict(posterior, x, generator=generator())
    found = posterity.predict(posterior, x, "auto", generator(), tolerance=0.02)
    assert len(found.samples.unique()) == 1
    exact = posterity.predict(posterior, x, "auto", generator(), tolerance=1e-12)
    torch.testing.assert_close(exact.probs, plain.probs)


class Recorded(Attention):
    """Keeps what it was trained on."""

    seen = []  # noqa: RUF012

    def forward(self, x):
        if self.training:
            Recorded.seen.append(x.detach().clone())
        return super().forward(x)


@pytest.mark.parametrize("options", [{}, {"batch_size": ROWS}, {"batch_size": 1000}])
def test_in_training_all_rows_that_interact_are_in_every_step_in_their_order(options):
    Recorded.seen.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = posterity.fit(
            posterity.MAP(seeded(Recorded)), (rows(), labels()), epochs=3, progress=False, seed=0, **options
        )
    assert len(history) == 3
    assert len(Recorded.seen) == 3
    assert all(torch.equal(x, rows()) for x in Recorded.seen)
    assert ["interact" in str(w.message) for w in caught] == [True] * (not options)


def test_batches_of_rows_that_interact_are_those_that_are_asked_for():
    Recorded.seen.clear()
    posterior = posterity.MAP(seeded(Recorded))
    with pytest.warns(UserWarning, match="batch_size=10 has them meet in other groups"):
        posterity.fit(posterior, (rows(), labels()), epochs=1, batch_size=10, progress=False, seed=0)
    assert [len(x) for x in Recorded.seen] == [10] * 4
    assert not torch.equal(torch.cat(Recorded.seen), rows())


def test_a_network_with_a_gate_that_starts_at_zero_has_rows_that_interact():
    class Gated(Attention):
        def __init__(self):
            super().__init__()
            self.gate = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            h = torch.tanh(self.first(x))
            return self.last(h + self.gate * h.mean(0))

    assert interact(posterity.MAP(seeded(Gated)), rows()) is Interaction.TOGETHER


def test_ordinary_batch_normalisation_is_trained_in_shuffled_batches(recwarn):
    seen = []
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    network.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])) if module.training else None)
    posterity.fit(posterity.MAP(network), (rows(), labels()), epochs=1, batch_size=10, progress=False, seed=0)
    assert seen == [10] * 4
    assert not [w for w in recwarn if "interact" in str(w.message)]


@pytest.mark.parametrize("make", [Attention, Graph])
def test_a_share_of_rows_that_interact_is_held_out_by_weight(make, recwarn):
    posterior = posterity.MAP(seeded(make))
    x, y = rows(), labels()
    history = posterity.fit(posterior, (x, y), epochs=2, validation=0.25, seed=0, lr=0.0, progress=False)
    surprise = F.cross_entropy(posterior.network(x), y, reduction="none").detach()
    (trained, _), (held, _) = hold_out((torch.arange(ROWS), y), 0.25, 0)
    assert len(held) == 10
    assert history[0]["validation"] == pytest.approx(float(surprise[held].mean()), rel=1e-5)
    assert history[0]["nll"] == pytest.approx(float(surprise[trained].mean()), rel=1e-5)


def test_rows_of_weight_zero_are_not_held_out_and_the_divergence_keeps_its_weight(recwarn):
    """Of nodes of which a fifth has a label, the objective is that of those that are learned from."""
    x, y, weight = rows(), labels(), torch.zeros(ROWS)
    weight[::5] = 1.0
    for share in (0.25, 0.875):
        train, held = hold_out((x, y, weight), share, 0, interact=lambda x: True)
        apart = [set(part[2].nonzero().flatten().tolist()) for part in (train, held)]
        assert len(apart[1]) == 8 * share
        assert apart[0] | apart[1] == set(range(0, ROWS, 5))
        options = {"epochs": 1, "lr": 0.0, "beta": 1.0, "seed": 0, "progress": False}
        posterior = posterity.BayesByBackprop(seeded(Attention), init_std=1e-8, seed=0)
        history = posterity.fit(posterior, (x, y, weight), validation=share, **options)
        surprise = F.cross_entropy(posterior.network(x), y, reduction="none").detach()
        learned = sorted(apart[0])
        assert posterior.training_size == len(learned)
        assert history[0]["nll"] == pytest.approx(float(surprise[learned].mean()), rel=1e-4)
        loss = float(surprise[learned].mean() + posterior.divergence().detach() / len(learned))
        assert history[0]["loss"] == pytest.approx(loss, rel=1e-4)
    assert not [w for w in recwarn if "sum to" in str(w.message)]


class Gated(nn.Module):
    """Rows meet behind a gate, which is closed until it is trained."""

    def __init__(self):
        super().__init__()
        self.first, self.gate = nn.Linear(3, 3), nn.Parameter(torch.zeros(()))

    def forward(self, x):
        h = self.first(x)
        return h + self.gate * (h @ h.T).softmax(-1) @ h


def test_rows_that_meet_only_after_training_stay_together_in_an_ensemble():
    """What was found of functions that were drawn before training is not taken for those that are drawn later."""
    posterior = posterity.DeepEnsemble(seeded(Gated), members=2, seed=0)
    x = torch.randn(1500, 3, generator=generator())
    posterity.predict(posterior, x)
    with torch.no_grad():
        posterior.flat.add_(0.5)
    expected = torch.stack([function(x).softmax(-1) for function in posterior.draw(2).each()]).mean(0)
    torch.testing.assert_close(posterity.predict(posterior, x).probs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["ibnn", "dropout"])
def test_several_training_draws_of_rows_that_interact_do_not_meet(name):
    posterior = METHODS[name](seeded(Graph), samples=3, seed=0)
    out = posterior(rows(), generator())
    assert out.shape == (3, ROWS, 3)
    one = METHODS[name](seeded(Attention), samples=2, seed=0)
    with torch.no_grad():
        for p in one.variational():
            p.copy_(torch.full_like(p, 1.0 if p is one.means else -30.0))
    expected = one.network(rows()) if name == "ibnn" else one(rows(), generator())
    torch.testing.assert_close(one(rows(), generator()), expected.expand(2, ROWS, 3), rtol=1e-4, atol=1e-5)


class Messages(nn.Module):
    """Nodes `[n, 3]` and edges `[2, m]`, which have other numbers of rows."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 3)

    def forward(self, x, edges):
        h = torch.relu(self.first(x))
        h = h.index_add(0, edges[1], h[edges[0]])
        return self.last(h)


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("name", METHODS)
def test_nodes_and_edges_are_trained_and_predicted_by_every_method(name, samples):
    x, edges, y = rows(), torch.randint(ROWS, (2, 100), generator=generator()), (rows()[:, 0] > 0).long()
    posterior = METHODS[name](seeded(Messages), samples=samples, seed=0)
    whole = torch.utils.data.DataLoader([((x, edges), y)], batch_size=None)
    history = posterity.fit(posterior, whole, epochs=30, lr=3e-3, size=ROWS, beta=0.0, seed=0, progress=False)
    assert history[-1]["nll"] < history[0]["nll"]
    assert posterity.predict(posterior, (x, edges), 4, seed=0).probs.shape == (ROWS, 3)
    functions = posterior.draw(3, generator())
    torch.testing.assert_close(functions((x, edges)), functions((x, edges)), rtol=0, atol=0)


def test_every_node_has_noise_of_its_own_in_training():
    edges = torch.tensor([[0], [1]])  # all other nodes are by themselves
    for name in ("ibnn", "dropout"):
        posterior = METHODS[name](seeded(Messages), seed=0, **({"rate": 0.5} if name == "dropout" else {})).train()
        outputs = posterior((torch.ones(ROWS, 3), edges), generator())[0]
        assert len(outputs[2:].unique(dim=0)) > 4
        function = posterior.draw(1, generator())
        assert len(function((torch.ones(ROWS, 3), edges))[0, 2:].unique(dim=0)) == 1


def test_rows_that_interact_with_their_near_neighbours_alone_are_found():
    class Radius(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            near = (torch.cdist(x, x) < 0.3).float()
            return near @ self.layer(x) / near.sum(1, keepdim=True)

    x = rows(500)
    assert (torch.cdist(x, x) < 0.3).float().sum(1).mean() < 10
    assert interact(posterity.MAP(seeded(Radius)), x) is Interaction.TOGETHER


def test_whether_rows_interact_is_found_out_once_for_the_same_parameters():
    passes = []
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
    posterior = posterity.MAP(network)
    network.register_forward_hook(lambda module, args, out: passes.append(len(out)))
    for _ in range(3):
        posterity.predict(posterior, rows(3000))
    assert sum(passes) == 3 * 3000 + 14
    with torch.no_grad():
        network[0].weight.mul_(2)
    posterity.predict(posterior, rows(3000))
    assert sum(passes) == 4 * 3000 + 2 * 14


def test_functions_whose_rows_interact_are_exported(tmp_path):
    posterior, x = posterity.IBNN(seeded(Statistics), seed=0), rows()
    path = posterity.export(posterior, tmp_path / "model.pt2", x[:10], samples=4, generator=generator()).path
    found = torch.export.load(path).module()(x)
    expected = posterity.predict(posterior, x, 4, generator())
    torch.testing.assert_close(found["probs"], expected.probs, rtol=1e-4, atol=1e-5)
