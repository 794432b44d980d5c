"""Every kind of layer carries noise: what comes out is what the network gives with the noise put in by hand."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

import posterity
from common import generator, seeded


class Wrapped(nn.Module):
    """A layer that is called with its arguments and gives one tensor."""

    def __init__(self, layer, call=None):
        super().__init__()
        self.layer, self.call = layer, call or (lambda layer, *args: layer(*args))

    def forward(self, *args):
        out = self.call(self.layer, *args)
        return out[0] if isinstance(out, tuple) else out


def drawn(network, x, **options):
    """Posterior, the noise of three functions by name of layer, and what they give."""
    posterior = posterity.IBNN(network, 2, init_noise=0.3, seed=0, **options)
    functions = posterior.draw(3, generator())
    sizes = [site.size for site in posterior.sites]
    noises = [dict(zip(posterior.sites.names, z.split(sizes), strict=True)) for z in functions.noise]
    return posterior, noises, functions(x)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cells_input_carries_one_noise_for_all_steps(make):
    def steps(cell, x):
        state = None
        for step in x.unbind(1):
            state = cell(step, state)
        return state

    network = Wrapped(seeded(lambda: make(3, 4)), steps)
    x = torch.randn(5, 6, 3, generator=generator())
    posterior, noises, outputs = drawn(network, x)
    for noise, out in zip(noises, outputs, strict=True):
        close(out, network(x * noise["layer"]))
    rows = posterior._training_noise(5, generator(2))
    close(posterior(x, generator(2))[0], network(x * rows[:, None]))
    assert posterior.describe().uncertain == ["layer", "layer.weight_ih"]


def test_both_inputs_of_a_bilinear_layer_carry_noise():
    network = Wrapped(seeded(lambda: nn.Bilinear(3, 4, 2)))
    x, y = torch.randn(5, 3, generator=generator(1)), torch.randn(5, 4, generator=generator(2))
    posterior, noises, outputs = drawn(network, (x, y))
    for noise, out in zip(noises, outputs, strict=True):
        first, second = noise["layer"].split([3, 4])
        close(out, network(x * first, y * second))
    rows = posterior._training_noise(5, generator(2))
    close(posterior((x, y), generator(2))[0], network(x * rows[:, :3], y * rows[:, 3:]))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("sizes", [{}, {"kdim": 3, "vdim": 5}])
def test_attention_carries_noise_at_query_key_value_and_heads(batch_first, sizes):
    layer = seeded(lambda: nn.MultiheadAttention(4, 2, batch_first=batch_first, **sizes))
    kdim, vdim = sizes.get("kdim", 4), sizes.get("vdim", 4)

    def turned(layer, *args):
        if batch_first:
            return layer(*args)
        return layer(*(a.transpose(0, 1) for a in args))[0].transpose(0, 1)

    network = Wrapped(layer, turned)
    q, k, v = (torch.randn(6, length, size, generator=generator(1)) for length, size in ((3, 4), (5, kdim), (5, vdim)))
    posterior, noises, outputs = drawn(network, (q, k, v))
    for noise, out in zip(noises, outputs, strict=True):
        a, b, c, heads = noise["layer"].split([4, kdim, vdim, 4])
        by_hand = copy.deepcopy(network)
        by_hand.layer.out_proj.weight.data *= heads
        close(out, by_hand(q * a, k * b, v * c))
    rows = posterior._training_noise(6, generator(2))
    a, b, c, heads = rows[:, None].split([4, kdim, vdim, 4], -1)
    by_hand.layer.out_proj.weight.data = layer.out_proj.weight.data * heads[0]
    close(posterior((q, k, v), generator(2))[0], by_hand(q * a, k * b, v * c))
    assert "layer.out_proj.weight" in posterior.describe().uncertain
    assert set(posterior.describe().fixed) == {"layer.in_proj_bias", "layer.out_proj.bias"}


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 2)


@pytest.mark.parametrize("name", posterity.methods())
def test_the_fast_path_of_evaluation_does_not_pass_by_what_is_drawn(name):
    """Without gradients, torch computes an encoder layer in one kernel that calls none of its layers."""
    x, mask = torch.randn(3, 5, 4, generator=generator()), torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True
    network = Wrapped(seeded(encoder), lambda net, x, mask: net(x, src_key_padding_mask=mask).nan_to_num()[:, 0])
    posterior = posterity.methods()[name](network, seed=0)
    functions = posterior.draw(3, generator())
    with_gradients = functions((x, mask))
    with torch.no_grad():
        torch.testing.assert_close(functions((x, mask)), with_gradients)
        posterior.eval()
        first, second = (posterior((x, mask), generator(i)) for i in (0, 1))
    assert len(set(with_gradients[:, 0, 0].tolist())) == (1 if name == "map" else 3)
    assert torch.equal(first, second) == (name in ("map", "ensemble"))


class Uses(nn.Module):
    """Uses the weights of its layers without calling them, the second one's as it is."""

    def __init__(self, groups=2):
        super().__init__()
        self.conv, self.linear = nn.Conv1d(4, 6, 3, groups=groups), nn.Linear(6, 5)
        self.back, self.unused = nn.ConvTranspose1d(5, 4, 3, groups=1), nn.Linear(2, 2)

    def forward(self, x):
        h = F.conv1d(x, self.conv.weight, self.conv.bias, groups=self.conv.groups)
        h = F.linear(h.mT, self.linear.weight, self.linear.bias).mT
        return F.conv_transpose1d(h, self.back.weight, self.back.bias)


@pytest.mark.parametrize("noise", ["input", "output", "both"])
@pytest.mark.parametrize("groups", [1, 2])
def test_layers_that_are_used_without_a_call_get_what_a_call_would_give(noise, groups):
    class Called(Uses):
        def forward(self, x):
            return self.back(self.linear(self.conv(x).mT).mT)

    network, called = seeded(lambda: Uses(groups)), seeded(lambda: Called(groups))
    x = torch.randn(3, 4, 7, generator=generator())
    posterior, _, outputs = drawn(network, x, noise=noise, bias_noise=True)
    other, _, expected = drawn(called, x, noise=noise, bias_noise=True)
    close(outputs, expected)
    rows = posterior._training_noise(3, generator(2))
    close(posterior(x, generator(2))[0], called_with(other, called, x, rows[0]))
    posterior(x).sum().backward()
    assert network.conv.weight.grad is not None
    assert bool((posterior.means.grad[:, : 4 if noise == "input" else 6] != 0).any())
    words = {entry.name: entry.reason for entry in posterior.describe()}
    assert "without a call" in words["linear"]
    assert words["unused"] == "the network did not use it"


def called_with(posterior, network, x, noise):
    return posterior.sites.run(network, x, noise)


def test_what_is_known_of_uses_goes_with_the_functions_and_is_found_without():
    network, x = seeded(Uses), torch.randn(3, 4, 7)
    fresh, trained = posterity.IBNN(network, 2, seed=0), posterity.IBNN(network, 2, seed=0)
    assert fresh.sites.direct is None
    trained(x)
    assert trained.sites.direct == ["conv", "linear", "back"]
    close(fresh.draw(3, generator())(x), trained.draw(3, generator())(x))


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.zeros(4))
        self.last, self.stack = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.randn(5, 2, 3))
        self.token = nn.Parameter(torch.randn(1, 1, 4))

    def forward(self, x):
        h = F.linear(x, self.weight, self.bias) + self.token[0]
        return torch.einsum("bi,eio->bo", h @ self.last, self.stack)


def test_a_bare_matrix_carries_noise_for_each_of_its_inputs():
    network, x = seeded(Bare), torch.randn(6, 3, generator=generator())
    posterior, noises, outputs = drawn(network, x)
    for noise, out in zip(noises, outputs, strict=True):
        by_hand = copy.deepcopy(network)
        by_hand.weight.data *= noise["weight"]
        by_hand.last.data *= noise["last"][:, None]
        by_hand.stack.data *= noise["stack"].view(5, 2, 1)
        close(out, by_hand(x))
    assert posterior.describe().uncertain == ["weight", "last", "stack"]
    assert set(posterior.describe().fixed) == {"", "bias", "token"}
    posterior(x).sum().backward()
    assert bool((posterior.means.grad != 0).any(0).all())


@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_sequences_carry_the_noise_of_their_rows(enforce_sorted):
    def packed(layer, x, lengths):
        made = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=enforce_sorted)
        return rnn.pad_packed_sequence(layer(made)[0], batch_first=True, total_length=x.shape[1])[0]

    network = Wrapped(seeded(lambda: nn.GRU(3, 4, batch_first=True)), packed)
    lengths = torch.tensor([6, 5, 3, 2] if enforce_sorted else [2, 5, 6, 3])
    x = torch.randn(4, 6, 3, generator=generator())
    posterior, noises, outputs = drawn(network, (x, lengths))
    for noise, out in zip(noises, outputs, strict=True):
        close(out, network(x * noise["layer"], lengths))
    rows = posterior._training_noise(4, generator(2))
    close(posterior((x, lengths), generator(2))[0], network(x * rows[:, None], lengths))


def test_the_convolution_of_gpt2_is_a_layer_and_transformers_is_not_imported_for_it():
    Conv1D = pytest.importorskip("transformers.pytorch_utils").Conv1D
    network, x = Wrapped(seeded(lambda: Conv1D(4, 3))), torch.randn(5, 2, 3, generator=generator())
    posterior, noises, outputs = drawn(network, x)
    for noise, out in zip(noises, outputs, strict=True):
        close(out, network(x * noise["layer"]))
    assert posterior.describe().uncertain == ["layer", "layer.weight"]
    weights = posterity.BayesByBackprop(network).weights
    assert weights.scales(1.0, 0.0)[0] == pytest.approx(3**-0.5)
    assert posterity.MNF(network).axes == {"layer.weight": 0}


def test_other_names_of_a_layers_argument_are_found():
    class Other(nn.Linear):
        def forward(self, hidden):
            return super().forward(hidden)

    network = Wrapped(seeded(lambda: Other(3, 2)), lambda layer, x: layer(hidden=x))
    x = torch.randn(4, 3)
    for noise, out in zip(*drawn(network, x)[1:], strict=True):
        close(out, network(x * noise["layer"]))


def test_noise_on_a_weight_that_is_used_directly_leaves_its_ties_alone():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return F.linear(self.embed(x), self.head.weight)

    network, x = seeded(Tied), torch.arange(7)
    for noise, out in zip(*drawn(network, x)[1:], strict=True):
        close(out, (network.embed.weight * noise["head"]) @ network.embed.weight.T)


@pytest.mark.parametrize("make", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_weights_that_an_old_hook_computes_are_reported_as_uncertain(make):
    network = nn.Sequential(make(seeded(lambda: nn.Linear(3, 2))))
    posterior = posterity.IBNN(network, 2)
    posterior(torch.randn(4, 3)).sum().backward()
    assert posterior.draw(2)(torch.randn(4, 3)).shape == (2, 4, 2)
    expected = {name for name, _ in network.named_parameters() if "bias" not in name}
    assert expected <= set(posterior.describe().uncertain)


def test_exporting_what_is_used_without_a_call_before_that_is_known_is_refused():
    functions, x = posterity.IBNN(seeded(Uses), 2).draw(2), torch.randn(3, 4, 7)
    with pytest.raises(Exception, match="once before"):
        torch.export.export(functions, (x,))
    expected = functions(x)
    close(torch.export.export(functions, (x,)).module()(x), expected)


def test_a_complex_matrix_carries_noise_and_is_reported_as_a_point_where_weights_are_drawn():
    class Fourier(nn.Module):
        def __init__(self):
            super().__init__()
            self.modes = nn.Parameter(torch.randn(4, 5, dtype=torch.complex64))
            self.lift, self.head = nn.Conv1d(2, 4, 1), nn.Linear(4, 2)

        def forward(self, x):
            spectrum = torch.fft.rfft(self.lift(x)) * self.modes
            return self.head(torch.fft.irfft(spectrum, n=x.shape[-1]).mean(-1))

    network, x = seeded(Fourier), torch.randn(3, 2, 8, generator=generator())
    posterior, noises, outputs = drawn(network, x)
    for noise, out in zip(noises, outputs, strict=True):
        h = network.lift(x * noise["lift"][:, None])
        h = torch.fft.irfft(torch.fft.rfft(h) * network.modes * noise["modes"][:, None], n=8).mean(-1)
        close(out, network.head(h * noise["head"]))
    posterior(x).sum().backward()
    assert "complex64" in posterity.BayesByBackprop(network).describe().fixed["modes"]


def test_an_output_projection_that_is_computed_is_reported_as_fixed():
    layer = seeded(lambda: nn.MultiheadAttention(4, 2, batch_first=True))
    nn.utils.parametrizations.weight_norm(layer.out_proj)
    network, x = Wrapped(layer, lambda layer, x: layer(x, x, x)), torch.randn(3, 5, 4)
    posterior = posterity.IBNN(network, 2, seed=0)
    posterior(x).sum().backward()
    assert posterior.draw(2)(x).shape == (2, 3, 5, 4)
    assert posterior.nodes == 12
    fixed = posterior.describe().fixed
    assert {key for key, _ in network.named_parameters() if "out_proj" in key} <= set(fixed)


@pytest.mark.parametrize("inplace", [False, True])
def test_what_a_single_channel_said_is_copied_only_where_it_is_overwritten(inplace):
    def make():
        return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(inplace=inplace), nn.Flatten(), nn.Linear(3 * 16, 2))

    posterior = posterity.IBNN(seeded(make), 2, seed=0)
    x, y = torch.randn(4, 1, 6, 6, generator=generator()), torch.arange(4) % 2
    posterior.loss(x, y, size=4, generator=generator(1)).backward()
    assert next(iter(posterior.sites)).overwritten == inplace
    other = posterity.IBNN(seeded(make), 2, seed=0)
    next(iter(other.sites)).single = False  # by autograd, through the input
    other.loss(x, y, size=4, generator=generator(1)).backward()
    for a, b in zip(posterior.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
