"""One seed gives every purpose a stream of random numbers of its own."""

import pytest
import torch

import posterity
from common import generator, mlp, seeded
from posterity.streams import numpy_seed, seed_of


def test_the_same_seed_in_the_constructor_and_in_predict_gives_independent_numbers():
    """Components start at 1 + σ0 ε: were the draws the same ε, epistemic uncertainty would be far off."""
    network, x = seeded(mlp), torch.randn(200, 5, generator=generator(1))
    same, other = [], []
    for seed in range(20):
        posterior = posterity.IBNN(network, components=4, init_std=0.5, init_noise=0.5, seed=seed).eval()
        same.append(float(posterity.predict(posterior, x, 4, seed=seed).epistemic.mean()))
        other += [float(posterity.predict(posterior, x, 4, seed=seed + 100 * k).epistemic.mean()) for k in (1, 2, 3, 4)]
    same, other = torch.tensor(same), torch.tensor(other)
    error = (same.var() / len(same) + other.var() / len(other)).sqrt()
    assert abs(same.mean() - other.mean()) < 4 * error


def test_a_seed_of_predict_is_not_that_of_a_constructor():
    posterior = posterity.IBNN(seeded(mlp), seed=0).eval()
    x = torch.randn(4, 5, generator=generator(1))
    one, again = (posterity.predict(posterior, x, 8, seed=0).probs for _ in range(2))
    assert torch.equal(one, again)
    assert not torch.equal(one, posterity.predict(posterior, x, 8, generator()).probs)


def test_a_generator_that_is_given_is_the_users():
    posterior = posterity.IBNN(seeded(mlp), seed=0).eval()
    x = torch.randn(4, 5, generator=generator(1))
    functions = posterior.draw(8, generator(3))
    given = posterity.predict(posterior, x, 8, generator(3)).probs
    torch.testing.assert_close(given, functions(x).softmax(-1).mean(0))


@pytest.mark.parametrize("seed", [0, 1, 7, 2**62])
def test_purposes_have_streams_of_their_own(seed):
    purposes = ["draws", "distillation", "divergence", "energy", "robustness"]
    seeds = [seed_of(seed, purpose) for purpose in purposes] + [numpy_seed(seed, k) for k in range(200)] + [seed]
    assert len(set(seeds)) == len(seeds)
    assert seed_of(seed, "draws") == seed_of(seed, "draws")
