"""Draws in pairs: reflections of each other, each distributed as ever."""

import pytest
import torch
from torch import nn

import posterity
from common import generator, mlp, seeded
from posterity.pairs import mirrored


@pytest.mark.parametrize(("n", "block"), [(6, 1), (7, 1), (8, 2), (11, 4), (3, 5)])
def test_every_second_block_is_the_negative_of_the_one_before(n, block):
    noise = torch.randn(n, 3, generator=generator())
    found = mirrored(noise, block)
    for i in range(n):
        expected = -noise[i - block] if (i // block) % 2 else noise[i]
        assert torch.equal(found[i], expected)


@pytest.mark.parametrize("n", [32, 40, 33])
def test_pairs_of_a_component_lie_around_its_mean(n):
    posterior = posterity.IBNN(seeded(mlp), 8, seed=0)
    noise = posterior.draw(n, generator(), pairs=True).noise
    for start in (0, 16):
        torch.testing.assert_close(
            noise[start : start + 8] + noise[start + 8 : start + 16], 2 * posterior.means.detach()
        )
    assert torch.equal(noise[:8], posterior.draw(n, generator()).noise[:8])
    assert torch.equal(noise, posterior.draw(n, generator(), pairs=True).noise)
    assert len(noise) == n


def test_weights_of_a_pair_lie_around_the_means():
    posterior = posterity.BayesByBackprop(seeded(mlp), init_std=0.1)
    functions = posterior.draw(5, generator(), pairs=True)
    means = posterior.weights.split(posterior.means.detach())
    for index, key in enumerate(functions.keys):
        drawn = getattr(functions, f"weight{index}")
        torch.testing.assert_close(drawn[0] + drawn[1], 2 * means[key])
        torch.testing.assert_close(drawn[2] + drawn[3], 2 * means[key])
        assert not torch.equal(drawn[4], drawn[0])


def test_of_a_linear_network_the_mean_is_exact_and_the_spread_has_no_bias():
    """A spread over n independent draws is (1 − 1/n) of the true one in expectation."""
    posterior = posterity.BayesByBackprop(seeded(lambda: nn.Linear(4, 1)), init_std=0.2)
    posterior.likelihood = posterity.Gaussian(std=0.1)
    x, g = torch.randn(50, 4, generator=generator()), generator(1)
    found = [posterity.predict(posterior, x, 8, g, pairs=True) for _ in range(300)]
    for one in found[:5]:
        torch.testing.assert_close(one.mean, posterior.mean()(x)[0].detach(), rtol=1e-4, atol=1e-5)
    stds = posterior.weights.split(posterior.stds.detach())
    true = (x * stds["weight"]).square().sum(1, keepdim=True) + stds["bias"] ** 2
    ratios = torch.stack([(one.epistemic / true).mean() for one in found])
    error = 4 * float(ratios.std()) / len(ratios) ** 0.5
    assert abs(float(ratios.mean()) - 1) < error < 0.1


def test_where_there_is_no_such_noise_an_error_says_so():
    x = torch.zeros(2, 5)
    for method in (posterity.MAP, posterity.MCDropout):
        with pytest.raises(posterity.Error, match="pairs"):
            posterity.predict(method(seeded(mlp)), x, 4, pairs=True)
    with pytest.raises(posterity.Error, match="independent"):
        posterity.predict(posterity.IBNN(seeded(mlp)), x, "auto", pairs=True)
