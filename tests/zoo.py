"""Kinds of networks, many of which other libraries convert wrongly or in part: name → (make, inputs).

These twelve are those on which peers were measured; `zoo_more` has what else torch offers, `zoo_transformers` families
of Hugging Face transformers.
"""

import torch
from torch import nn
from torch.nn import functional as F

from common import generator, mlp


class Recurrent(nn.Module):
    def __init__(self, kind, **options) -> None:
        super().__init__()
        self.rnn = kind(3, 4, batch_first=True, **options)
        self.head = nn.Linear(4 * (1 + self.rnn.bidirectional), 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0].mean(1))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x).mean(1))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(3, 2)

    def forward(self, x):
        return F.linear(x, self.l.weight) + self.l.bias


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.scale = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.scale * x @ self.w


def numbers(*shape, rows=4):
    return lambda: torch.randn(rows, *shape, generator=generator(1))


def tokens():
    return torch.randint(10, (4, 5), generator=generator(1))


ZOO = {
    "mlp": (mlp, numbers(5)),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, (1, 3), groups=2, padding="same"), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2)
        ),
        numbers(2, 4, 4),
    ),
    "transposed": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1), numbers(2, 4)),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten()), numbers(1, 3, 3, 3)),
    "lstm": (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), numbers(5, 3)),
    "gru": (lambda: Recurrent(nn.GRU), numbers(5, 3)),
    "transformer": (Transformer, numbers(5, 4)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(10, 3), nn.Flatten(), nn.Linear(15, 2)), tokens),
    "tied": (Tied, tokens),
    "functional": (Functional, numbers(3)),
    "bare": (Bare, numbers(3)),
    "weight_norm": (lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))), numbers(3)),
}
