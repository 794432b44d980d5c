"""What every method refuses, in a sentence. No method is named here, as in test_every_method."""

import inspect
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import posterity
from common import generator, mlp, seeded
from skeleton import Isotropic

#: With the method that docs/adding.md gives to copy.
METHODS = posterity.methods() | {"skeleton": Isotropic}
DEVIATIONS = ("prior_std", "init_std", "init_noise", "noise_std", "jitter", "narrow")
TAKEN = [
    (method, name)
    for method, build in METHODS.items()
    for name in DEVIATIONS
    if name in inspect.signature(build).parameters
]


@pytest.mark.parametrize("tiny", [1e-20, 1e-40, 1e-300])
@pytest.mark.parametrize(("name", "argument"), TAKEN)
def test_no_standard_deviation_is_so_small_that_its_square_is_lost(name, argument, tiny):
    """The divergence would be infinite or no number."""
    with pytest.raises(posterity.Error, match=f"{argument} must be .*at least 1e-18"):
        METHODS[name](seeded(mlp), seed=0, **{argument: tiny})


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_without_rows_is_refused(name):
    posterior = METHODS[name](seeded(mlp), seed=0).train()
    with pytest.raises(posterity.Error, match="no rows"):
        posterior.loss(torch.empty(0, 5), torch.empty(0).long(), size=10)


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (name, argument)
        for name, build in METHODS.items()
        for argument in ("samples", "neighbours")
        if argument in inspect.signature(build).parameters
    ],
)
def test_what_cannot_be_loaded_is_refused_at_once(name, argument):
    with pytest.raises(posterity.Error, match=f"{argument} must be at most 100,000"):
        METHODS[name](seeded(mlp), **{argument: 100_001})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p, x, y: posterity.predict(p.network, x), "A posterior is needed"),
        (lambda p, x, y: posterity.fit(p.network, (x, y)), "A posterior is needed"),
        (lambda p, x, y: posterity.save(p.network, "never"), "A posterior is needed"),
        (lambda p, x, y: posterity.fit(p, (x, y), posterity.Categorical), "likelihood must be an object"),
        (lambda p, x, y: posterity.predict(p, x, generator=3), "generator must be a torch.Generator"),
        (lambda p, x, y: p.train()(x, generator=3), "generator must be a torch.Generator"),
        (lambda p, x, y: p.train().loss(x, y, size=9, generator=3), "generator must be a torch.Generator"),
        (lambda p, x, y: p.draw(3, generator=3), "generator must be a torch.Generator"),
        (lambda p, x, y: posterity.predict(p, x, seed=1.5), "seed must be a whole number"),
        (lambda p, x, y: posterity.fit(p, (x, y), seed=2**70), "seed must be below"),
        (lambda p, x, y: posterity.predict(p, x, batch_size=0), "batch_size must be a whole number"),
        (lambda p, x, y: p.loss(x, y, size=0), "size must be a whole number"),
        (lambda p, x, y: p.loss(x, y, "gaussian", size=9), "loss takes a likelihood such as"),
        (lambda p, x, y: p.loss(x, y, size=9, beta="linear"), "schedules go to fit"),
        (lambda p, x, y: p.draw(torch.tensor(2.5)), "n must be a whole number"),
        (lambda p, x, y: posterity.predict(p, x, np.array([1, 2])), "samples must be a whole number"),
        (lambda p, x, y: posterity.fit(p, (x, y), checkpoint=5), "checkpoint must be the name of a folder"),
        (lambda p, x, y: posterity.fit(p, (x, y), checkpoint_every="x"), "checkpoint_every must be"),
        (lambda p, x, y: posterity.fit(p, (x, y, torch.arange(7))), "third part of the data is taken as weights"),
        (lambda p, x, y: posterity.fit(p, (x, y, torch.linspace(-0.1, 1, 7))), "not negative, and not all zero"),
        (lambda p, x, y: posterity.fit(p, (x, y, torch.zeros(7))), "not negative, and not all zero"),
        (lambda p, x, y: posterity.fit(p.half(), (x, y)), "float16 cannot be trained"),
        (lambda p, x, y: type(p)(p), "is a posterior already"),
        (lambda p, x, y: type(p)(nn.DataParallel(mlp())), "give network.module"),
    ],
)
@pytest.mark.parametrize("name", METHODS)
def test_a_mistake_is_told_in_a_sentence(name, case, call, said):
    network, x, y = case
    with pytest.raises(posterity.Error, match=said):
        call(METHODS[name](network, seed=0), x, y)


class SequenceFirst(nn.Module):
    """A recurrent layer that wants sequences on axis 0."""

    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.rnn, self.last = kind(3, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.rnn(x)[0][-1])


class RowsFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = SequenceFirst()

    def forward(self, x):
        return self.network(x.transpose(0, 1))


@pytest.mark.parametrize("name", posterity.methods())
def test_rows_that_a_recurrent_layer_takes_for_time_are_named(name):
    x, y = torch.randn(20, 7, 3, generator=generator()), torch.arange(20) % 3
    posterior = posterity.methods()[name](SequenceFirst(), seed=0)
    words = r"'rnn' \(LSTM\) takes axis 0 for time.*batch_first=True.*transpose\(0, 1\)"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(posterity.Error, match=words):
            posterity.fit(posterior, (x, y), epochs=1, progress=False)
    for given in (x, x.transpose(0, 1)):
        with pytest.raises(posterity.Error, match=words):
            posterity.predict(posterior, given, 3)
    with pytest.raises(posterity.Error, match=r"7 rows of inputs but 20.*transpose"):
        posterity.fit(posterior, (x.transpose(0, 1), y), epochs=1, progress=False)
    wrapped = posterity.methods()[name](RowsFirst(), seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterity.fit(wrapped, (x, y), epochs=1, batch_size=10, progress=False)
        assert posterity.predict(wrapped, x, 3).probs.shape == (20, 3)


def test_rows_that_are_taken_for_time_are_named_where_nothing_fails_too():
    x = torch.randn(7, 7, 3, generator=generator())
    with pytest.warns(UserWarning, match="takes axis 0 for time"):
        posterity.predict(posterity.MAP(SequenceFirst()), x)
