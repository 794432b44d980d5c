"""More kinds of networks: every layer of torch that has weights, and the ways in which networks use them."""

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, rnn

from common import generator
from zoo import numbers, tokens


class Net(nn.Module):
    """Modules and parameters by name, and a function of them and the inputs: `run(self, *inputs)`."""

    def __init__(self, run, **parts) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, Tensor) else part)

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)


def block(channels: int) -> nn.Module:
    body = nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
    )
    return Net(lambda self, x: F.relu(x + self.body(x)), body=body)


def residual() -> nn.Module:
    stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    return nn.Sequential(stem, block(4), block(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def dense() -> nn.Module:
    layers = nn.ModuleList(nn.Conv2d(2 + 3 * i, 3, 3, padding=1) for i in range(3))

    def run(self, x):
        for layer in self.layers:
            x = torch.cat([x, F.relu(layer(x))], 1)
        return self.head(x.mean((2, 3)))

    return Net(run, layers=layers, head=nn.Linear(11, 2))


def unet() -> nn.Module:
    def run(self, x):
        high = F.relu(self.down(x))
        low = F.relu(self.deep(F.max_pool2d(high, 2)))
        return self.out(torch.cat([high, F.relu(self.up(low))], 1))

    return Net(
        run,
        down=nn.Conv2d(1, 4, 3, padding=1),
        deep=nn.Conv2d(4, 8, 3, padding=2, dilation=2),
        up=nn.ConvTranspose2d(8, 4, 2, stride=2),
        out=nn.Conv2d(8, 2, 1),
    )


def gated() -> nn.Module:
    """Dilated causal convolutions with gates and skips, as in WaveNet."""
    layers = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=2**i) for i in range(3))

    def run(self, x):
        h, skips = self.entry(x), 0
        for i, layer in enumerate(self.layers):
            a, b = layer(F.pad(h, (2**i, 0))).chunk(2, 1)
            h = h + torch.tanh(a) * torch.sigmoid(b)
            skips = skips + h
        return self.out(skips)

    return Net(run, entry=nn.Conv1d(2, 4, 1), layers=layers, out=nn.Conv1d(4, 2, 1))


def separable() -> nn.Module:
    """Depthwise convolutions with squeeze and excitation."""

    def run(self, x):
        h = F.hardswish(self.norm(self.depth(self.expand(x))))
        h = h * torch.sigmoid(self.excite(F.relu(self.squeeze(h.mean((2, 3), keepdim=True)))))
        return self.head((x + self.project(h)).mean((2, 3)))

    return Net(
        run,
        expand=nn.Conv2d(4, 8, 1),
        depth=nn.Conv2d(8, 8, 3, padding=1, groups=8),
        norm=nn.GroupNorm(2, 8),
        squeeze=nn.Conv2d(8, 2, 1),
        excite=nn.Conv2d(2, 8, 1),
        project=nn.Conv2d(8, 4, 1),
        head=nn.Linear(4, 2),
    )


def lazy() -> nn.Module:
    network = nn.Sequential(nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    network(torch.randn(2, 2, 5, 5))
    return network


def steps(cell: nn.Module) -> nn.Module:
    def run(self, x):
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0] if isinstance(state, tuple) else state)

    return Net(run, cell=cell, head=nn.Linear(4, 2))


def time_first(layer: nn.Module, size: int) -> nn.Module:
    return Net(lambda self, x: self.head(self.rnn(x.transpose(0, 1))[0][-1]), rnn=layer, head=nn.Linear(size, 2))


def packed() -> nn.Module:
    def run(self, x, lengths):
        given = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = rnn.pad_packed_sequence(self.rnn(given)[0], batch_first=True, total_length=x.shape[1])
        return self.head(out.sum(1))

    return Net(run, rnn=nn.LSTM(3, 4, batch_first=True), head=nn.Linear(4, 2))


def padded() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=False)
    encoder = nn.TransformerEncoder(layer, 2)
    return Net(
        lambda self, x, mask: self.head(self.encoder(x, src_key_padding_mask=mask)[:, 0]),
        encoder=encoder,
        head=nn.Linear(4, 2),
    )


def vision() -> nn.Module:
    """Patches, a class token and positions, and attention by hand with one matrix for query, key and value."""

    def run(self, x):
        h = self.patches(x).flatten(2).mT
        h = torch.cat([self.token.expand(len(x), -1, -1), h], 1) + self.positions
        q, k, v = self.qkv(self.norm(h)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        h = h + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return self.head((h + self.mlp(h))[:, 0])

    return Net(
        run,
        patches=nn.Conv2d(3, 8, 4, stride=4),
        token=torch.randn(1, 1, 8),
        positions=torch.randn(1, 5, 8),
        norm=nn.LayerNorm(8),
        qkv=nn.Linear(8, 24),
        out=nn.Linear(8, 8),
        mlp=nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)),
        head=nn.Linear(8, 2),
    )


def windows() -> nn.Module:
    """Attention within shifted windows, which are folded into the axis of rows, as in Swin."""

    def run(self, x):
        rows, height, width, size = x.shape
        for shift in (0, 1):
            h = torch.roll(x, (-shift, -shift), (1, 2)).view(rows, height // 2, 2, width // 2, 2, size)
            h = h.transpose(2, 3).reshape(-1, 4, size)
            h = self.attention(h, h, h, need_weights=False)[0] + self.mlp(h)
            h = h.view(rows, height // 2, width // 2, 2, 2, size).transpose(2, 3).reshape(rows, height, width, size)
            x = x + torch.roll(h, (shift, shift), (1, 2))
        return self.head(x.mean((1, 2)))

    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    return Net(run, attention=attention, mlp=nn.Linear(4, 4), head=nn.Linear(4, 2))


def mixer() -> nn.Module:
    """Layers over tokens and over channels, in turn."""

    def run(self, x):
        x = x + self.tokens(x.mT).mT
        return self.head((x + self.channels(x)).mean(1))

    return Net(run, tokens=nn.Linear(5, 5), channels=nn.Linear(3, 3), head=nn.Linear(3, 2))


def experts() -> nn.Module:
    """A mixture of experts in which the values of a row choose its layer."""

    def run(self, x):
        gates = self.gate(x).softmax(-1)
        best, out = gates.argmax(-1), torch.zeros(len(x), 2)
        for i, expert in enumerate(self.experts):
            rows = (best == i).nonzero().squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * gates[rows, i : i + 1])
        return out

    return Net(run, gate=nn.Linear(3, 3), experts=nn.ModuleList(nn.Linear(3, 2) for _ in range(3)))


def skipping() -> nn.Module:
    """Layers that training leaves out at random."""

    def run(self, x):
        for layer in self.layers:
            if not self.training or torch.rand(()) < 0.7:
                x = x + torch.tanh(layer(x))
        return self.head(x)

    return Net(run, layers=nn.ModuleList(nn.Linear(3, 3) for _ in range(3)), head=nn.Linear(3, 2))


def writing() -> nn.Module:
    """Writes into tensors in place."""

    def run(self, x):
        h = self.first(x)
        h += 1
        out = x.new_zeros(len(x), 4)
        out[:, :2] = h[:, :2].relu_()
        out[:, 2:] = h[:, 2:]
        return self.second(out)

    return Net(run, first=nn.Linear(3, 4), second=nn.Linear(4, 2))


def conditioned() -> nn.Module:
    """One network makes the weights of another (FiLM and a generated layer)."""

    def run(self, x, z):
        scale, shift = self.film(z).chunk(2, 1)
        h = torch.tanh(self.body(x) * (1 + scale) + shift)
        return torch.einsum("bi,boi->bo", h, self.weights(z).view(-1, 2, 4))

    return Net(run, film=nn.Linear(2, 8), body=nn.Linear(3, 4), weights=nn.Linear(2, 8))


def twice() -> nn.Module:
    layer = nn.Linear(3, 3)
    return Net(lambda self, x: self.b(torch.tanh(self.a(x))), a=layer, b=layer)


def graph() -> nn.Module:
    """Two rounds of messages over a dense adjacency."""

    def run(self, nodes, adjacency):
        for layer in (self.first, self.second):
            nodes = F.relu(adjacency @ layer(nodes) + self.own(nodes))
        return self.head(nodes.sum(1))

    return Net(run, first=nn.Linear(3, 3), second=nn.Linear(3, 3), own=nn.Linear(3, 3), head=nn.Linear(3, 2))


def autoencoder() -> nn.Module:
    """One matrix and its transpose."""
    return Net(lambda self, x: F.linear(torch.tanh(F.linear(x, self.weight)), self.weight.T, self.bias),
                weight=torch.randn(2, 5), bias=torch.zeros(5))  # fmt: skip


@dataclasses.dataclass
class Answer:
    logits: Tensor
    hidden: Tensor


def answering(kind) -> nn.Module:
    def run(self, x):
        hidden = torch.tanh(self.body(x))
        return kind(self.head(hidden), hidden)

    return Net(run, body=nn.Linear(3, 4), head=nn.Linear(4, 2))


def norms() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, padding=1), nn.InstanceNorm1d(4, affine=True), nn.PReLU(4), nn.GroupNorm(2, 4), nn.Flatten(),
        nn.LayerNorm(20), nn.RMSNorm(20), nn.Linear(20, 2),
    )  # fmt: skip


def pair(*shapes):
    return lambda: tuple(torch.randn(4, *shape, generator=generator(i)) for i, shape in enumerate(shapes))


def keywords():
    return {"left": torch.randn(4, 3, generator=generator(1)), "right": torch.randn(4, 3, generator=generator(2))}


def masked():
    mask = torch.zeros(4, 5, dtype=torch.bool)
    mask[1, 3:] = True
    return numbers(5, 4)(), mask


ZOO = {
    "residual network": (residual, numbers(3, 6, 6)),
    "dense connections": (dense, numbers(2, 5, 5)),
    "U-Net, pixels out": (unet, numbers(1, 8, 8)),
    "gated dilated convolutions": (gated, numbers(2, 9)),
    "depthwise, squeeze and excitation": (separable, numbers(4, 5, 5)),
    "grouped ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 6, 2, groups=2), numbers(4, 3, 3, 3)),
    "lazy layers with a size": (lazy, numbers(2, 5, 5)),
    "many norms": (norms, numbers(2, 5)),
    "RNN, two layers, time first": (lambda: time_first(nn.RNN(3, 4, num_layers=2), 4), numbers(5, 3)),
    "LSTM with projections, time first": (lambda: time_first(nn.LSTM(3, 4, proj_size=2), 2), numbers(5, 3)),
    "GRU, both directions, three layers": (
        lambda: time_first(nn.GRU(3, 4, num_layers=3, bidirectional=True, dropout=0.1), 8),
        numbers(5, 3),
    ),
    "LSTM on packed sequences": (packed, lambda: (numbers(5, 3)(), torch.tensor([5, 2, 4, 1]))),
    "LSTMCell": (lambda: steps(nn.LSTMCell(3, 4)), numbers(5, 3)),
    "GRUCell": (lambda: steps(nn.GRUCell(3, 4)), numbers(5, 3)),
    "RNNCell": (lambda: steps(nn.RNNCell(3, 4)), numbers(5, 3)),
    "cross attention of other sizes": (
        lambda: Net(
            lambda self, q, k, v: self.attention(q, k, v)[0].mean(1),
            attention=nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True, add_bias_kv=True),
        ),
        pair((3, 4), (6, 3), (6, 5)),
    ),
    "attention, time first": (
        lambda: Net(
            lambda self, x: self.attention(*[x.transpose(0, 1)] * 3)[0].mean(0),
            attention=nn.MultiheadAttention(4, 2),
        ),
        numbers(5, 4),
    ),
    "padded encoder": (padded, masked),
    "decoder": (
        lambda: Net(
            lambda self, x, memory: self.decoder(x, memory).mean(1),
            decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), 2),
        ),
        pair((3, 4), (5, 4)),
    ),
    "encoder and decoder": (
        lambda: Net(
            lambda self, x, y: self.transformer(x, y).mean(1),
            transformer=nn.Transformer(4, 2, 1, 1, 8, batch_first=True, norm_first=True),
        ),
        pair((5, 4), (3, 4)),
    ),
    "vision transformer, bare positions": (vision, numbers(3, 8, 8)),
    "windows folded into rows": (windows, numbers(4, 4, 4)),
    "tokens and channels mixed": (mixer, numbers(5, 3)),
    "EmbeddingBag": (lambda: nn.Sequential(nn.EmbeddingBag(10, 3), nn.Linear(3, 2)), tokens),
    "Bilinear": (
        lambda: Net(lambda self, x, y: self.both(x, y), both=nn.Bilinear(3, 4, 2)),
        pair((3,), (4,)),
    ),
    "spectral norm": (
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Conv1d(2, 3, 2)), nn.Flatten()),
        numbers(2, 4),
    ),
    "orthogonal weights": (
        lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(4, 4)), nn.Linear(4, 2)),
        numbers(4),
    ),
    "one layer called twice": (
        lambda: Net(
            lambda self, x: self.head(self.layer(torch.tanh(self.layer(x)))),
            layer=nn.Linear(3, 3),
            head=nn.Linear(3, 2),
        ),
        numbers(3),
    ),
    "one module under two names": (twice, numbers(3)),
    "weights used without a call": (
        lambda: Net(lambda self, x: F.conv1d(x, self.layer.weight, self.layer.bias).mean(-1), layer=nn.Conv1d(2, 3, 2)),
        numbers(2, 5),
    ),
    "one matrix and its transpose": (autoencoder, numbers(5)),
    "several inputs": (conditioned, pair((3,), (2,))),
    "keyword inputs": (
        lambda: Net(
            lambda self, left, right: self.head(self.body(left) * self.body(right)),
            body=nn.Linear(3, 4),
            head=nn.Linear(4, 2),
        ),
        keywords,
    ),
    "a mapping out": (lambda: answering(lambda a, h: {"hidden": h, "logits": a}), numbers(3)),
    "a tuple out": (lambda: answering(lambda a, h: (a, h)), numbers(3)),
    "a dataclass out": (lambda: answering(Answer), numbers(3)),
    "mixture of experts, chosen by value": (experts, numbers(3)),
    "layers left out at random": (skipping, numbers(3)),
    "writes in place": (writing, numbers(3)),
    "messages on graphs": (graph, pair((5, 3), (5, 5))),
    "matrices of its own": (
        lambda: Net(
            lambda self, x: F.relu(x @ self.first) @ self.second + self.bias,
            first=torch.randn(3, 4),
            second=torch.randn(4, 2),
            bias=torch.zeros(2),
        ),
        numbers(3),
    ),
}
