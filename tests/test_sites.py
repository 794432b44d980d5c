"""Rows are found, not guessed: whatever a network does with its batch axis, row i gets the noise of row i."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.utils.checkpoint
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
    assert posterior.sites.sites[1].name == "project"
    assert posterior.sites.sites[1].layouts["input"].axis is None


class Pairs(nn.Module):
    """Every row meets every other."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x[:, None] + x[None]).mean(1)


class Sometimes(nn.Module):
    """Folds two copies of a row into its axis, in large batches alone."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        copies = 2 if len(x) > 3 else 1
        return self.layer(x.repeat_interleave(copies, 0))[::copies]


class Four(nn.Module):
    """Takes batches of four."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x.reshape(4, 3))


@pytest.mark.parametrize(
    ("make", "rows", "why"),
    [(Pairs, 5, "told apart"), (Sometimes, 6, "told apart"), (Four, 4, "two and of three rows")],
)
def test_rows_that_cannot_be_told_apart_share_one_noise_and_it_is_said(make, rows, why):
    network = seeded(make)
    posterior, x = posterity.IBNN(network, 2, seed=0), torch.randn(rows, 3, generator=generator(1))
    noise = posterior._training_noise(rows, generator(2))[0]
    torch.testing.assert_close(posterior(x, generator(2))[0], network(x * noise))
    words = {entry.name: entry.reason for entry in posterior.describe()}
    assert "one for the whole batch" in words["layer"]
    assert why in words["layer"]


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

    network = nn.Sequential(nn.Linear(3, 3), Counting(), nn.Linear(3, 2))
    functions = posterity.IBNN(network, 2, layers="last").draw(50)
    x = torch.randn(200, 3)
    functions.rows_at_once = 1000
    functions(x)  # which finds out about the network
    Counting.calls = 0
    functions(x)
    assert Counting.calls == 200


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


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_recurrent_layers_inputs_carry_one_noise_for_all_time_steps(make, batch_first):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = make(3, 4, num_layers=2, bidirectional=True, batch_first=batch_first)

        def forward(self, x):
            x = x if batch_first else x.transpose(0, 1)
            out = self.layer(x)[0]
            return out if batch_first else out.transpose(0, 1)

    network = seeded(Recurrent)
    posterior = posterity.IBNN(network, 2, seed=0)
    x = torch.randn(4, 5, 3, generator=generator())
    functions = posterior.draw(3, generator())
    for z, out in zip(functions.noise, functions(x), strict=True):
        torch.testing.assert_close(out, network(x * z))
    noise = posterior._training_noise(4, generator(2))
    torch.testing.assert_close(posterior(x, generator(2))[0], network(x * noise[:, None]))
    uncertain = posterior.describe().uncertain
    assert {"layer", "layer.weight_ih_l0", "layer.weight_ih_l0_reverse"} == set(uncertain)


def test_the_order_of_folded_positions_is_found_when_they_first_appear():
    network = seeded(Interleaved)
    posterior = posterity.IBNN(network, 2, seed=0)
    posterior(torch.randn(4, 1, 3))
    x = torch.randn(4, 5, 3, generator=generator(1))
    noise = posterior._training_noise(4, generator(2))
    expected = torch.stack([network(row.unsqueeze(0) * z)[0] for row, z in zip(x, noise, strict=True)])
    torch.testing.assert_close(posterior(x, generator(2))[0], expected)


@pytest.mark.parametrize("called", [True, False])
def test_layers_that_training_skips_at_random_are_found(called):
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            if not self.training or torch.rand(()) < 0.5:
                x = x + (self.a(x) if called else nn.functional.linear(x, self.a.weight, self.a.bias))
            return self.b(x)

    for seed in range(6):
        torch.manual_seed(seed)
        posterior = posterity.IBNN(seeded(Dropped), 2, seed=0).train()
        for _ in range(4):
            posterior(torch.randn(5, 3))
        fresh, x = posterity.IBNN(seeded(Dropped), 2, seed=0).eval(), torch.randn(5, 3)
        assert "a" in posterior.describe().uncertain
        torch.testing.assert_close(posterior.eval().draw(2, generator())(x), fresh.draw(2, generator())(x))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("method", ["ibnn", "dropout", "bbb", "mnf", "bbh", "livi", "ensemble"])
def test_gradient_checkpointing_is_refused_not_wrong(method, reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.b(torch.utils.checkpoint.checkpoint(self.a, x, use_reentrant=reentrant))

    options = {"rate": 0.5, "layers": "a"} if method == "dropout" else {}
    posterior = posterity.methods()[method](seeded(Checkpointed), **options)
    loss = posterior.loss(torch.randn(4, 3, requires_grad=True), torch.zeros(4, dtype=torch.long), size=4)
    with pytest.raises(posterity.Error, match="backward"):
        loss.backward()
    if method == "ensemble":  # a member by itself has its weights whenever they are needed
        posterior.member(0)(torch.randn(4, 3, requires_grad=True)).sum().backward()


def test_several_threads_get_what_one_gets():
    functions = posterity.IBNN(seeded(Ordinary), 4, seed=0).draw(500, generator())
    functions.rows_at_once = 64
    xs = [torch.randn(8, 2, 3, generator=generator(i)) for i in range(6)]
    expected = [functions(x) for x in xs]
    with ThreadPoolExecutor(3) as pool:
        for found, wanted in zip(pool.map(functions, xs), expected, strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_subclass_with_its_own_forward_is_not_taken_for_linear():
    class Clipped(nn.Linear):
        def forward(self, x):
            return super().forward(x).clamp(min=0.1)

    layer = Clipped(1, 3)
    functions = posterity.IBNN(nn.Sequential(layer), 2, seed=0).draw(3, generator())
    x = torch.randn(5, 1)
    for z, out in zip(functions.noise, functions(x), strict=True):
        torch.testing.assert_close(out, layer(x * z))


def test_in_place_activations_behind_a_single_channel_train():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(16, 3))
    posterior = posterity.IBNN(network, 2)
    posterior.loss(torch.randn(5, 1, 4, 4), torch.arange(5) % 3, size=5).backward()
    assert bool((posterior.means.grad != 0).any())


def test_what_vmap_cannot_run_is_looped():
    class Branching(Ordinary):
        def forward(self, x):
            h = self.layer(x)
            out = torch.zeros(h.shape)
            out[:] = h
            return out * 2 if h.abs().max() > 1e6 else out

    functions = posterity.IBNN(seeded(Branching), 2, seed=0).draw(4, generator())
    plain = posterity.IBNN(seeded(Ordinary), 2, seed=0).draw(4, generator())
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(functions(x), plain(x))


def test_a_padded_transformer_predicts():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
            self.head = nn.Linear(8, 3)

        def forward(self, x, mask):
            return self.head(self.encoder(x, src_key_padding_mask=mask)[:, 0])

    x, mask = torch.randn(4, 5, 8), torch.zeros(4, 5, dtype=torch.bool)
    mask[0, 3:] = True
    prediction = posterity.predict(posterity.IBNN(seeded(Padded), 2), (x, mask), 6)
    assert bool((prediction.epistemic > 0).all())


def test_networks_that_keep_an_activation_are_drawn():
    class Keeping(Ordinary):
        def forward(self, x):
            self.kept = self.layer(x)
            return self.kept

    posterior = posterity.IBNN(seeded(Keeping), 2)
    x = torch.randn(4, 2, 3)
    posterior(x)
    assert posterior.draw(3)(x).shape == (3, 4, 2, 2)


def test_describe_knows_parametrised_layers():
    network = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2, bias=False)))
    posterior = posterity.IBNN(network, 2)
    assert posterior.nodes == 3
    assert set(posterior.describe().uncertain) >= {name for name, _ in network.named_parameters()}


class TwoWays(nn.Module):
    """Calls its layer for rows, and uses its weights for sequences, which it averages."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        if x.dim() == 2:
            return self.layer(x)
        return nn.functional.linear(x, self.layer.weight, self.layer.bias).mean(1)


def test_rows_have_noise_of_their_own_again_after_inputs_of_another_kind():
    posterior = posterity.IBNN(TwoWays(), layers="layer", seed=0).train()
    rows = torch.ones(6, 4)

    def different(x):
        return len(posterior(x, generator())[0].unique(dim=0))

    assert [different(x) for x in (rows, rows.unsqueeze(1), rows)] == [6, 1, 6]
    assert posterior.sites.direct == ["layer"]


@pytest.mark.parametrize("method", [posterity.BayesByBackprop, posterity.MNF])
def test_the_estimator_suits_the_inputs_and_not_those_that_came_first(method):
    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x).mean(1) if x.dim() == 3 else self.layer(x)

    rows = torch.randn(8, 4, generator=generator())
    sequences = rows.unsqueeze(1).expand(8, 50, 4).clone()

    def spread(first):
        posterior = method(seeded(Averaged), seed=0).train()
        with torch.no_grad():
            posterior.spreads.fill_(0.0)
            posterior(first)
            g = generator()
            return float(torch.stack([posterior(sequences, g)[0] for _ in range(400)]).std(0).mean())

    assert spread(rows) == pytest.approx(spread(sequences), rel=0.1)


def test_a_single_input_feature_carries_noise_in_inference_mode_too():
    posterior = posterity.IBNN(seeded(lambda: nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 3))), seed=0)
    with torch.inference_mode():
        x = torch.ones(5, 1)
        found = posterity.predict(posterior, x, 4, generator()).probs
        assert posterior.train()(x).isfinite().all()
    torch.testing.assert_close(found, posterity.predict(posterior, torch.ones(5, 1), 4, generator()).probs)
