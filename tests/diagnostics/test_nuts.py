"""NUTS against Gaussians whose moments are known."""

import numpy as np
import pytest

from posterity.diagnostics.nuts import nuts, split_rhat
from posterity.errors import Error


def gaussian(mean, covariance):
    precision = np.linalg.inv(covariance)

    def energy(q):
        gradient = precision @ (q - mean)
        return 0.5 * float((q - mean) @ gradient), gradient

    return energy


def test_a_correlated_gaussian_of_unequal_scales():
    """Means to 5 standard errors and variances to 15 %, with 2,400 draws, of which about half count."""
    mean, stds = np.array([1.0, -20.0, 0.0]), np.array([0.1, 10.0, 1.0])
    correlation = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, -0.3], [0.0, -0.3, 1.0]])
    covariance = correlation * stds[:, None] * stds
    chains = nuts(gaussian(mean, covariance), np.zeros((4, 3)), warmup=400, draws=600, seed=1)
    flat = chains.draws.reshape(-1, 3)
    assert chains.draws.shape == (4, 600, 3)
    assert chains.divergences == 0
    assert np.abs((flat.mean(0) - mean) / stds).max() < 5 / np.sqrt(1200)
    assert flat.std(0) / stds == pytest.approx(np.ones(3), rel=0.15)
    assert np.corrcoef(flat.T) == pytest.approx(correlation, abs=0.1)
    assert split_rhat(chains.draws).max() < 1.03


def test_a_skewed_density():
    """−log p = Σ e^q − 2q is that of logarithms of Gamma(2) variables: E e^q = Var e^q = 2, Var q = π²/6 − 1.

    30,000 numbers, of which about half count: the standard errors are 0.01, 0.04 and 0.01. A step size that is adapted
    takes about seven gradients a draw.
    """

    def energy(q):
        e = np.exp(np.minimum(q, 50.0))
        return float((e - 2 * q).sum()), e - 2

    chains = nuts(energy, np.zeros((2, 10)), warmup=300, draws=1500, seed=0)
    values = np.exp(chains.draws)
    assert values.mean() == pytest.approx(2, abs=0.04)
    assert values.var() == pytest.approx(2, abs=0.15)
    assert chains.draws.var() == pytest.approx(np.pi**2 / 6 - 1, abs=0.03)
    assert chains.steps < 10


def test_the_same_seed_gives_the_same_draws():
    runs = [
        nuts(gaussian(np.zeros(2), np.eye(2)), np.ones((1, 2)), warmup=30, draws=5, seed=s).draws for s in (3, 3, 4)
    ]
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()


def test_chains_apart_are_seen():
    values = np.random.default_rng(0).standard_normal((2, 500, 1))
    assert split_rhat(values).max() < 1.02
    assert split_rhat(values + np.array([0.0, 3.0])[:, None, None]).max() > 1.5


def test_what_does_not_move_is_mixed_where_chains_agree():
    values = np.zeros((2, 8, 3))
    values[1, :, 1] = 1.0  # each chain is at a point of its own
    values[..., 2] = np.random.default_rng(0).normal(size=(2, 8))
    same, apart, moving = split_rhat(values)
    assert same == pytest.approx(1.0)
    assert apart == np.inf
    assert np.isfinite(moving)


def test_what_is_no_number_and_what_is_too_short_is_not_called_mixed():
    values = np.random.default_rng(0).normal(size=(2, 8, 2))
    values[0, 3, 0] = np.nan
    broken, fine = split_rhat(values)
    assert np.isnan(broken)
    assert np.isfinite(fine)
    for draws in (1, 2, 3):
        assert np.isnan(split_rhat(np.zeros((2, draws, 4)))).all()


def test_a_start_outside_the_density_is_refused():
    with pytest.raises(Error, match="not finite"):
        nuts(lambda q: (np.inf, q), np.zeros((1, 1)))
