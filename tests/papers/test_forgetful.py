"""MNF without the divergence of some layers: what it counts, what is trained by it, and that all is drawn."""

import json

import pytest
import torch

import posterity
from common import ConvNet, generator, seeded
from posterity.papers.forgetful import ForgetfulMNF


@pytest.fixture
def posterior():
    return ForgetfulMNF(seeded(ConvNet), forgotten=["first", "second"], seed=0, r="paper", prior_std=1.0)


def test_the_divergence_is_that_of_the_other_layers_alone(posterior):
    rest = posterity.MNF(seeded(ConvNet), layers=["norm", "head"], seed=0, r="paper", prior_std=1.0)
    assert posterior.divergence(generator()) == rest.divergence(generator())
    whole = posterity.MNF(seeded(ConvNet), seed=0, r="paper", prior_std=1.0)
    assert posterior.divergence(generator()) < 0.9 * whole.divergence(generator())


def test_what_is_forgotten_follows_the_likelihood_alone(posterior):
    posterior.divergence(generator()).backward()
    assert all(p.grad is None for p in posterior.uncounted.parameters())
    assert posterior.counted.spreads.grad.abs().min() > 0
    posterior(torch.randn(4, 1, 6, 6), generator()).square().sum().backward()
    assert posterior.uncounted.means.grad.abs().sum() > 0


def test_every_weight_is_drawn_at_its_own_place(posterior):
    drawn = posterior.sample(500, generator())
    start = posterior.weights.join(dict(seeded(ConvNet).named_parameters()))
    error = (drawn.mean(0) - start).abs() / (drawn.std(0) / 500**0.5)
    assert error.max() < 5  # of 5 standard errors: z has mean 1
    assert drawn.std(0).min() > 0


def test_it_is_trained_and_drawn_as_any_method(posterior):
    x = torch.randn(64, 1, 6, 6, generator=generator())
    history = posterity.fit(
        posterior, (x, (x.mean((1, 2, 3)) > 0).long()), epochs=8, lr=1e-2, seed=0, device="cpu", progress=False
    )
    assert history[-1]["nll"] < history[0]["nll"]
    functions = posterior.draw(3, generator())
    assert torch.equal(functions(x), functions(x))


def test_its_configuration_builds_it_again(posterior):
    some = ForgetfulMNF(
        seeded(ConvNet), forgotten=torch.nn.Conv2d, layers=["first", "head"], samples=3, steps=1, seed=0
    )
    for one in (posterior, some):
        config = json.loads(json.dumps(one.config()))
        again = ForgetfulMNF(seeded(ConvNet), **config, seed=0)
        assert again.config() == one.config()
        again.load_state_dict(one.state_dict())
        assert again.divergence(generator()) == one.divergence(generator())
    assert some(torch.randn(4, 1, 6, 6)).shape == (3, 4, 3)


@pytest.mark.parametrize("forgotten", [None, "norm"])
def test_some_layers_must_be_forgotten_and_some_not(forgotten):
    with pytest.raises(posterity.Error, match="some must be forgotten"):
        ForgetfulMNF(seeded(ConvNet), forgotten=forgotten, layers=["first", "head"])
