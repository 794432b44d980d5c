"""The method of docs/skeleton.py against known answers, as docs/adding.md says that a method should be."""

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import posterity
from common import generator, mlp, seeded
from skeleton import Isotropic


def test_the_divergence_is_that_of_gaussians():
    posterior = Isotropic(seeded(mlp), prior_std=0.7, init_std=0.2)
    means, scales = posterior.means.detach().double(), posterior.scales.double()
    expected = kl_divergence(Normal(means, 0.2 * scales), Normal(0.0, 0.7 * scales)).sum()
    torch.testing.assert_close(posterior.divergence().double(), expected, rtol=1e-5, atol=0)


def test_draws_have_the_mean_and_the_deviation():
    posterior = Isotropic(seeded(mlp), init_std=0.2)
    draws = posterior.sample(4000, generator()).detach()
    torch.testing.assert_close(draws.mean(0), posterior.means.detach(), rtol=0, atol=5 * 0.2 / 4000**0.5)
    torch.testing.assert_close(
        draws.std(0) / posterior.scales, torch.full_like(posterior.scales, 0.2), rtol=0.07, atol=0
    )


def test_it_finds_the_posterior_of_one_weight():
    """y = w x + N(0, 1) with w ~ N(0, 1): the posterior is N(Σxy / (1 + Σx²), 1 / (1 + Σx²))."""
    x = torch.linspace(-1, 1, 20).unsqueeze(1)
    y = 0.8 * x + 0.3 * torch.cos(7 * x)
    exact = float((x * y).sum() / (1 + (x * x).sum())), float((1 + (x * x).sum()) ** -0.5)
    posterior = Isotropic(nn.Linear(1, 1, bias=False), samples=32)
    posterity.fit(
        posterior, (x, y), posterity.Gaussian(1.0), epochs=1500, batch_size=20, lr=1e-2, seed=0, progress=False
    )
    found = posterior.means.item(), float(posterior.log_std.detach().exp())
    torch.testing.assert_close(torch.tensor(found), torch.tensor(exact), rtol=0.05, atol=0.02)
