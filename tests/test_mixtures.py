"""The divergences of a mixture against closed forms and against each other."""

import math

import pytest
import torch

from common import generator
from posterity import mixtures


def mixture(k: int, nodes: int, apart: float = 0.6, std: float = 0.3, seed: int = 0):
    g = generator(seed)
    means = 1 + apart * torch.randn(k, nodes, generator=g, dtype=torch.float64)
    return means, torch.full((k, nodes), std, dtype=torch.float64) * (0.5 + torch.rand(k, nodes, generator=g))


S = torch.tensor(0.3, dtype=torch.float64)


@pytest.mark.parametrize("k", [1, 4, 16])
def test_mixture_mean_kl_is_zero_at_the_prior(k):
    means = torch.ones(k, 5, dtype=torch.float64)
    means[: k // 2] += 0.4
    means[k - k // 2 :] -= 0.4  # any spread of the means, as long as they average to 1
    stds = torch.full((k, 5), 0.3 * math.sqrt(k), dtype=torch.float64)
    torch.testing.assert_close(mixtures.mixture_mean_kl(means, stds, S), torch.zeros((), dtype=torch.float64))


@pytest.mark.parametrize("form", [mixtures.mixture_mean_kl, mixtures.mean_of_kls, mixtures.bound])
def test_every_form_is_the_gaussian_divergence_for_one_component(form):
    means, stds = mixture(1, 6)
    q = torch.distributions.Normal(means, stds)
    exact = torch.distributions.kl_divergence(q, torch.distributions.Normal(1.0, 0.3)).sum()
    torch.testing.assert_close(form(means, stds, S), exact)


def test_a_prior_std_for_each_node():
    means, stds = mixture(1, 6)
    prior = torch.linspace(0.1, 0.9, 6, dtype=torch.float64)
    exact = torch.distributions.kl_divergence(
        torch.distributions.Normal(means, stds), torch.distributions.Normal(torch.ones(6).double(), prior)
    ).sum()
    for form in (mixtures.mixture_mean_kl, mixtures.mean_of_kls, mixtures.bound):
        torch.testing.assert_close(form(means, stds, prior), exact)


def test_monte_carlo_meets_the_closed_form_within_four_standard_errors():
    means, stds = mixture(1, 3)
    exact = mixtures.mean_of_kls(means, stds, S)
    runs = torch.stack([mixtures.monte_carlo_kl(means, stds, S, 400, generator(i)) for i in range(20)])
    assert abs(runs.mean() - exact) < 4 * runs.std() / math.sqrt(20)


def reference(k: int, nodes: int, apart: float, draws: int = 20_000):
    """The mixture's divergence and entropy by Monte Carlo with torch.distributions, and the standard error."""
    means, stds = mixture(k, nodes, apart)
    components = torch.distributions.Independent(torch.distributions.Normal(means, stds), 1)
    weights = torch.distributions.Categorical(torch.ones(k, dtype=torch.float64))
    q = torch.distributions.MixtureSameFamily(weights, components)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        z = q.sample((draws,))
    log_q, log_p = q.log_prob(z), torch.distributions.Normal(1.0, 0.3).log_prob(z).sum(1)
    error = float((log_q - log_p).std() / math.sqrt(draws))
    return means, stds, float((log_q - log_p).mean()), float(-log_q.mean()), error


@pytest.mark.parametrize("apart", [0.05, 0.3, 1.0])
def test_entropy_bound_lies_below_the_entropy_and_that_below_log_k_more_than_the_components(apart):
    means, stds, _, entropy, error = reference(4, 8, apart)
    own = float((stds.log() + 0.5 * (1 + math.log(2 * math.pi))).sum() / 4)
    bound = float(mixtures.entropy_bound(means, stds))
    assert bound < entropy + 4 * error
    assert entropy < own + math.log(4) + 4 * error
    assert bound >= own - 1e-9


@pytest.mark.parametrize("apart", [0.05, 0.3, 1.0])
def test_the_bounds_lie_above_the_divergence_in_order(apart):
    means, stds, divergence, _, error = reference(4, 8, apart)
    bound, mean = (float(f(means, stds, S)) for f in (mixtures.bound, mixtures.mean_of_kls))
    assert divergence < bound + 4 * error
    assert bound <= mean + 1e-9
    assert mean <= bound + math.log(4) + 1e-9


def test_log_density_meets_torch_distributions():
    means, stds = mixture(3, 4)
    z = torch.randn(10, 4, dtype=torch.float64)
    components = torch.distributions.Independent(torch.distributions.Normal(means, stds), 1)
    q = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(torch.ones(3).double()), components)
    torch.testing.assert_close(mixtures.log_density(z, means, stds), q.log_prob(z))


def test_bhattacharyya_has_the_coefficient_one_quarter():
    """Against the definition, −log ∫ √(p q), by quadrature in one dimension."""
    means, stds = torch.tensor([[0.2], [1.1]]).double(), torch.tensor([[0.3], [0.5]]).double()
    grid = torch.linspace(-6, 8, 200_001, dtype=torch.float64)
    p, q = (torch.distributions.Normal(m, s).log_prob(grid).exp() for m, s in zip(means, stds, strict=True))
    exact = -torch.log(torch.trapezoid((p * q).sqrt(), grid))
    torch.testing.assert_close(mixtures.bhattacharyya(means, stds)[0, 1], exact)


def test_equal_components_of_many_nodes_are_at_no_distance():
    means, stds = torch.ones(3, 200_000), torch.full((3, 200_000), 0.1)
    assert float(mixtures.bhattacharyya(means, stds).abs().max()) < 1e-6


@pytest.mark.parametrize(
    ("components", "nodes"), [(1, 1_000_000), (2, 10_000), (2, 250_000), (3, 111_111), (3, 200_000)]
)
def test_the_bound_is_zero_where_all_components_are_at_the_prior(components, nodes):
    """To the digit, on either side of the size up to which its gradient is in closed form."""
    stds = torch.full((components, nodes), 0.1)
    assert mixtures.bound(torch.ones(components, nodes), stds, torch.tensor(0.1)) == pytest.approx(0.0, abs=1e-5)


def test_the_gradient_keeps_its_digits_near_the_prior():
    g = torch.Generator().manual_seed(0)
    stds = 0.1 * (1 + 2e-3 * torch.randn(2, 250_000, generator=g))
    means = 1 + 6e-4 * torch.randn(2, 250_000, generator=g)

    def gradients(dtype):
        parts = [values.to(dtype).requires_grad_() for values in (means, stds)]
        return torch.autograd.grad(mixtures.bound(*parts, torch.tensor(0.1, dtype=dtype)), parts)

    for single, double in zip(gradients(torch.float32), gradients(torch.float64), strict=True):
        assert (single - double).norm() < 1e-4 * double.norm()


def test_identical_components_are_one_gaussian_for_the_bound():
    means, stds = mixture(1, 5)
    one = mixtures.bound(means, stds, S)
    torch.testing.assert_close(mixtures.bound(means.repeat(6, 1), stds.repeat(6, 1), S), one)


@pytest.mark.parametrize("weight", [1.0, 5.0])
@pytest.mark.parametrize("components", [1, 2, 5])
def test_the_gradient_in_closed_form_is_that_of_autograd(components, weight, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    shape = components, 6
    means = (1 + 0.3 * torch.randn(shape, generator=generator)).double().requires_grad_()
    stds = (0.05 + 0.3 * torch.rand(shape, generator=generator)).double().requires_grad_()
    for prior in (torch.tensor(0.2).double(), 0.1 + torch.rand(6, generator=generator).double()):
        found = mixtures.bound(means, stds, prior, weight)
        expected = mixtures.cross_entropy(means, stds, prior) - weight * mixtures.entropy_bound(means, stds)
        torch.testing.assert_close(found, expected)
        by_hand, by_torch = (torch.autograd.grad(value, (means, stds)) for value in (found, expected))
        torch.testing.assert_close(by_hand, by_torch)
        with monkeypatch.context() as context:
            context.setattr(mixtures, "_SMALL", 0)
            torch.testing.assert_close(mixtures.bound(means, stds, prior, weight), expected)
