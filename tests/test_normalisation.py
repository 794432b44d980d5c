"""Batch statistics of each drawn function's own."""

import warnings

import pytest
import torch
from torch import nn

import posterity
from common import generator, seeded

METHODS = posterity.methods()


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)
        self.last = nn.Linear(6 * 16, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu().flatten(1))


def data():
    return torch.randn(300, 1, 6, 6, generator=generator(1)) * 3 + 1


@pytest.mark.parametrize("name", METHODS)
def test_every_function_sees_its_own_channels_normalised(name):
    """The statistics that a function has are the mean and the variance of what its layer is given."""
    x = data()
    posterior = METHODS[name](seeded(Normed), seed=0).train()
    before = {key: value.clone() for key, value in posterior.state_dict().items()}
    functions = posterity.Normalised(posterior, x).draw(3, generator())
    seen = []
    functions.network.norm.register_forward_hook(
        lambda module, given, result: seen.append((given[0], module.running_mean, module.running_var))
    )
    for function in functions.each():
        function(x)
    for given, mean, variance in seen:
        torch.testing.assert_close(given.mean((0, 2, 3)), mean, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(given.var((0, 2, 3)), variance, rtol=1e-3, atol=0)
    assert len(seen) >= len(functions) or name in ("map", "ensemble")
    torch.testing.assert_close(dict(posterior.state_dict()), before, rtol=0, atol=0)
    assert posterior.training


@pytest.mark.parametrize("name", METHODS)
def test_together_one_by_one_and_by_predict_they_are_the_same(name):
    x = data()
    posterior = METHODS[name](seeded(Normed), seed=0).eval()
    normalised = posterity.Normalised(posterior, x)
    functions = normalised.draw(4, generator())
    outputs = functions(x)
    each = torch.stack([function(x) for function in functions.each()])
    if len(each) == len(outputs):  # members of an ensemble are computed once
        torch.testing.assert_close(outputs, each, rtol=1e-4, atol=1e-4)
    probs = posterity.predict(normalised, x, 4, generator()).probs
    torch.testing.assert_close(probs, outputs.softmax(-1).mean(0), rtol=1e-4, atol=1e-4)


def test_with_the_noise_on_the_weights_they_keep_their_statistics():
    x = data()
    functions = posterity.Normalised(posterity.IBNN(seeded(Normed), seed=0), x).draw(4, generator())
    own = {key: getattr(functions, f"weight{index}")[0] for index, key in enumerate(functions.keys)}
    folded = functions._alone(own, functions.noise[0], x, None)[0]
    torch.testing.assert_close(folded, next(functions.each())(x), rtol=1e-4, atol=1e-4)


def test_it_is_what_training_mode_gives():
    """One batch: a function with its own statistics is the network that normalises by that batch."""
    x = data()
    network = seeded(Normed)
    found = posterity.Normalised(posterity.MAP(network), x).draw(1)(x)[0]
    torch.testing.assert_close(found, network.train()(x), rtol=1e-3, atol=1e-3)


def test_a_last_row_alone_joins_the_others(monkeypatch):
    x = data()
    whole = posterity.Normalised(posterity.MAP(seeded(Normed)), x[:33]).draw(1)(x)
    monkeypatch.setattr("posterity.normalisation.BATCH", 32)
    torch.testing.assert_close(posterity.Normalised(posterity.MAP(seeded(Normed)), x[:33]).draw(1)(x), whole)


def test_statistics_that_suit_no_draw_are_mended():
    """Weights of any size are undone by the normalisation, if it is each draw's own."""

    class Scaled(posterity.BayesByBackprop):
        def sample(self, n, generator=None):
            return super().sample(n, generator) * torch.linspace(0.2, 3.0, n).unsqueeze(1)

    x = data()
    posterior = Scaled(seeded(Normed), layers="first", init_std=1e-6, estimator="weights", seed=0).eval()
    draws = posterior.weights.split(posterior.sample(5).detach())
    raw = posterity.Functions(posterior.network, 5, weights=draws)
    own = posterity.normalisation.measure(posterity.Functions(posterior.network, 5, weights=draws), x)
    assert float(raw(x).std(0).mean()) > 0.1
    assert float(own(x).std(0).mean()) < 1e-3


def test_the_check_tells_of_them():
    x = data()
    y = (x.mean((1, 2, 3)) > 1).long()
    posterior = posterity.BayesByBackprop(seeded(Normed), layers="first", prior_std=0.3, seed=0)
    posterity.fit(posterior, (x, y), epochs=30, batch_size=100, lr=1e-2, seed=0, progress=False)

    def told():
        found = posterity.diagnostics.check(posterior, x, y, generator=generator())
        return [sentence for sentence in found if "batch normalisation" in sentence]

    assert not told()
    posterior.network.norm.running_mean += 3.0
    assert told()


def test_without_batch_normalisation_nothing_changes():
    x = torch.randn(5, 4)
    posterior = posterity.IBNN(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), seed=0)
    plain, same = (p.draw(4, generator())(x) for p in (posterior, posterity.Normalised(posterior, x)))
    torch.testing.assert_close(plain, same, rtol=0, atol=0)


def test_what_it_cannot_do_is_said(tmp_path):
    x = data()
    posterior = posterity.IBNN(seeded(Normed), seed=0)
    with pytest.raises(posterity.Error, match="can be saved"):
        posterity.save(posterity.Normalised(posterior, x), tmp_path / "model")
    with pytest.raises(posterity.Error, match="takes a posterior"):
        posterity.Normalised(seeded(Normed), x)
    with pytest.raises(posterity.Error, match="does not take these inputs"):
        posterity.Normalised(posterior, torch.zeros(5, 77)).draw(2)


def test_scores_and_attacks_take_it():
    x, y = data()[:40], torch.arange(40) % 3
    normalised = posterity.Normalised(posterity.IBNN(seeded(Normed), seed=0).eval(), x)
    posterity.evaluation.fgsm(normalised, x, y, 0.1, samples=4)
    assert posterity.predict(normalised, x, "auto").probs.shape == (40, 3)
    assert len(normalised.mean()) == 1


def fitted(name, **options):
    """A posterior that was trained around batch normalisation, its inputs and its warnings in `predict`."""
    x = data()
    y = (x.mean((1, 2, 3)) > 1).long()
    posterior = METHODS[name](seeded(Normed), seed=0, **options)
    posterity.fit(posterior, (x, y), epochs=2, batch_size=100, lr=1e-2, seed=0, progress=False)
    return posterior, x


def warned(posterior, x):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        posterity.predict(posterior, x[:20], 4, seed=0)
        posterity.predict(posterior, x[:20], "auto", seed=0)
    return [one for one in found if "posterity.Normalised(posterior, x)" in str(one.message)]


@pytest.mark.parametrize("name", METHODS)
def test_predict_warns_where_running_statistics_suit_no_draw(name):
    posterior, x = fitted(name)
    found = warned(posterior, x)
    assert len(found) == 2 * (name in ("livi", "bbh"))
    assert all(one.filename == __file__ for one in found)
    assert not warned(posterity.Normalised(posterior, x), x)


def test_frozen_and_untrained_batch_normalisation_is_no_reason_for_a_warning():
    posterior, x = fitted("livi", layers=["first", "last"])
    assert warned(posterior, x)
    assert not warned(*fitted("livi", layers="last"))  # its functions differ behind the normalisation alone
    assert not warned(METHODS["livi"](seeded(Normed), seed=0).eval(), x)
    network = seeded(Normed)
    network.norm.requires_grad_(False)
    posterior = METHODS["livi"](network, seed=0)
    posterity.fit(posterior, (x, (x.mean((1, 2, 3)) > 1).long()), epochs=1, seed=0, progress=False)
    assert not warned(posterior, x)
