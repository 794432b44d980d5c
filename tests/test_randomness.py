"""Random numbers that a network draws in evaluation mode: a drawn function stays one function."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import posterity
from common import generator, mlp, seeded

METHODS = posterity.methods()


class Noisy(nn.Module):
    """Adds noise to its hidden units, in evaluation too."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(h + torch.randn(h.shape))


class Forgetful(Noisy):
    """Drops in evaluation too, as `F.dropout` does without its third argument."""

    def forward(self, x):
        return self.last(F.dropout(torch.tanh(self.first(x)), 0.5))


def rows(n=20):
    return torch.randn(n, 4, generator=generator(1))


@pytest.mark.parametrize("network", [Noisy, Forgetful])
@pytest.mark.parametrize("name", METHODS)
def test_a_drawn_function_of_a_random_network_stays_as_it_is(name, network):
    posterior = METHODS[name](seeded(network), seed=0)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    functions = posterior.draw(5, generator())
    if not (name == "dropout" and network is Forgetful):  # its masks are drawn
        with pytest.warns(UserWarning, match="draws random numbers in evaluation mode.*training=self.training"):
            functions(rows())
    first = functions(rows())
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    torch.testing.assert_close(functions(rows()), first, rtol=0, atol=0)
    torch.testing.assert_close(posterior.draw(5, generator())(rows()), first)
    functions.rows_at_once = 16  # however many are computed at a time
    torch.testing.assert_close(functions(rows()), first)
    if name != "map":
        assert len(first[:, 0, 0].unique()) == 5


@pytest.mark.filterwarnings("ignore:The network draws random numbers")
@pytest.mark.parametrize("samples", [6, "auto"])
@pytest.mark.parametrize("name", METHODS)
def test_predictions_of_a_random_network_repeat_by_their_seed(name, samples):
    posterior = METHODS[name](seeded(Noisy), seed=0)
    before = torch.get_rng_state()
    first, again = (posterity.predict(posterior, rows(1200), samples, seed=3).probs for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    torch.testing.assert_close(first, again, rtol=0, atol=0)


@pytest.mark.parametrize("name", METHODS)
def test_in_evaluation_mode_a_generator_leads_a_random_network_too(name):
    posterior = METHODS[name](seeded(Noisy), seed=0).eval()
    before = torch.get_rng_state()
    first, again = (posterior(rows(), generator(2)) for _ in range(2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_said_of_a_network_that_draws_in_training_alone(name):
    network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        functions = METHODS[name](network, seed=0).draw(3)
        functions(rows())
        assert not functions.random


def test_random_numbers_of_another_thread_make_no_network_random(monkeypatch):
    class Elsewhere(nn.Sequential):
        """Stands for a thread that draws while the network runs."""

        def forward(self, x):
            torch.rand(1)
            return super().forward(x)

    functions = posterity.IBNN(Elsewhere(*seeded(lambda: mlp(4))), seed=0).draw(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        functions(rows())
    assert not functions.random


def test_a_random_network_is_trained_in_shuffled_batches():
    seen = []
    network = seeded(Forgetful)
    network.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])) if module.training else None)
    posterity.fit(posterity.MAP(network), (rows(), torch.arange(20) % 3), epochs=1, batch_size=5, progress=False)
    assert seen == [5] * 4


class Padded(nn.Module):
    """Tokens of which 0 is padding: attention, a convolution and dropout on maps of several layouts."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.embed, self.encoder = nn.Embedding(20, 8), nn.TransformerEncoder(layer, 1)
        self.convolution, self.drop, self.last = nn.Conv1d(8, 8, 1), nn.Dropout(0.3), nn.Linear(8, 3)

    def forward(self, tokens):
        there = tokens != 0
        h = self.encoder(self.embed(tokens), src_key_padding_mask=~there)
        h = self.drop(self.convolution(h.transpose(1, 2))).transpose(1, 2)
        h = self.drop(h * there.unsqueeze(-1)).sum(1) / there.sum(1, keepdim=True)
        return self.last(h)


@pytest.mark.parametrize("length", [1, 6])
def test_a_dropout_mask_does_not_depend_on_how_far_a_row_is_padded(length):
    functions = posterity.MCDropout(seeded(Padded)).draw(8, generator())
    tokens = torch.randint(1, 20, (4, length), generator=generator(1))
    expected = functions(tokens)
    for more in (1, 5, 30):
        torch.testing.assert_close(functions(F.pad(tokens, (0, more))), expected, rtol=1e-4, atol=1e-5)


def test_dropout_masks_of_several_axes_are_independent_along_each():
    """Correlations of neighbours along every axis, and between channels and positions, are within five errors of 0."""
    network = nn.Sequential(nn.Dropout(0.5))
    network.weight = nn.Parameter(torch.ones(()))
    functions = posterity.MCDropout(network).draw(4, generator())
    mask = functions(torch.ones(1, 60, 60, 10)).squeeze(1) - 1
    assert set(mask.unique().tolist()) == {-1.0, 1.0}
    for axis in range(4):
        product = (mask.narrow(axis, 0, mask.shape[axis] - 1) * mask.narrow(axis, 1, mask.shape[axis] - 1)).mean()
        assert abs(float(product)) < 5 / mask.numel() ** 0.5 * 1.2
    square = mask[..., 0]
    assert abs(float((square * square.mT).triu(1).sum(dtype=torch.float64))) < 5 * (4 * 60 * 59 / 2) ** 0.5


@pytest.mark.parametrize("positions", [0, 3])
def test_dropout_masks_of_vectors_and_channels_keep_their_numbers(positions):
    """Sums of the numbers of the features that stay, of four seeds: models that were saved predict what they did."""
    kinds = (nn.Conv1d(1, 30, 1), nn.Dropout1d(0.5), nn.Flatten()) if positions else (nn.Linear(1, 30), nn.Dropout(0.5))
    last = nn.Linear(30 * max(1, positions), 1, bias=False)
    with torch.no_grad():
        last.weight.copy_(torch.arange(30.0).repeat_interleave(max(1, positions)) / max(1, positions))
        kinds[0].weight.zero_()
        kinds[0].bias.fill_(0.5)
    x = torch.ones(1, 1, positions) if positions else torch.ones(1, 1)
    found = posterity.MCDropout(nn.Sequential(*kinds, last)).draw(4, generator())(x).flatten()
    torch.testing.assert_close(found, torch.tensor([296.0, 203.0, 192.0, 193.0]))
