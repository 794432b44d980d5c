"""MNF against known answers: log-determinants, mean field as its special case, an exact correlated posterior."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity.flows import Couplings, groups
from posterity.methods.mnf import MNF
from scenarios import DIRECTIONS, correlated_regression, directional_moments


def rough(posterior: MNF, scale: float = 0.3) -> MNF:
    """The posterior with all its parameters moved at random, so that nothing holds by its start alone."""
    g = generator(5)
    with torch.no_grad():
        for p in posterior.variational():
            p.add_(scale * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return posterior


def as_mean_field(posterior: MNF) -> MNF:
    """z = 1 and flows that change nothing."""
    with torch.no_grad():
        posterior.latent_spreads.fill_(-60.0)
        for flow in (*posterior.flows, *posterior.auxiliary_flows):
            flow.outer.zero_()
            flow.outer_bias[..., flow.masks.shape[-1] :] = 60.0
    return posterior


@pytest.mark.parametrize("sizes", [[1], [2], [5], [5, 2, 1]])
def test_log_determinants_are_those_of_the_jacobian(sizes):
    like, size = torch.zeros((), dtype=torch.float64), sum(sizes)
    flow = Couplings(sizes, 3, 7, like, generator=generator())
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(torch.randn(p.shape, generator=generator(1), dtype=p.dtype))
    u = torch.randn(size, generator=generator(2), dtype=torch.float64)
    for strength in (None, torch.linspace(0.1, 1.0, size, dtype=torch.float64)):
        jacobian = torch.func.jacfwd(lambda u, k=strength: flow(u.unsqueeze(0), k)[0][0])(u)
        expected = torch.linalg.slogdet(jacobian)[1]
        torch.testing.assert_close(flow(u.unsqueeze(0), strength)[1][0], expected)
        assert abs(float(expected.detach())) > 0.01
        assert bool((torch.block_diag(*(torch.ones(n, n) for n in sizes)) + (jacobian == 0) > 0).all())


def test_vectors_that_go_together_are_mapped_as_if_alone():
    flow = Couplings([5, 3], 2, 7, torch.zeros(()), generator=generator())
    alone = Couplings([3], 2, 7, torch.zeros(()), generator=generator())
    with torch.no_grad():
        alone.inner.copy_(flow.inner[:, 1:, :3])
        alone.outer.copy_(flow.outer[:, 1:, :, [0, 1, 2, 5, 6, 7]])
    u = torch.randn(4, 8, generator=generator(1))
    torch.testing.assert_close(flow(u)[0][:, 5:], alone(u[:, 5:])[0])


def test_groups_bound_the_padding():
    assert groups([800, 500, 50, 20]) == [[800, 500, 50, 20]]
    assert groups([25088, *[64] * 10]) == [[25088, 64, 64, 64], [64] * 7]
    assert groups([]) == []


def test_strength_zero_leaves_a_vector_as_it_is():
    flow = Couplings([4], 2, 7, torch.zeros(()), generator=generator())
    u = torch.randn(3, 4, generator=generator(1))
    v, log_det = flow(u, torch.zeros(4))
    torch.testing.assert_close(v, u)
    torch.testing.assert_close(log_det, torch.zeros(3))


def test_every_number_is_changed_by_two_steps():
    flow = Couplings([5], 2, 7, torch.zeros(()), generator=generator())
    u = torch.randn(1, 5, generator=generator(1))
    assert bool((flow(u)[0] != u).all())


@pytest.mark.parametrize("make", [mlp, ConvNet])
def test_with_z_at_one_it_is_mean_field(make):
    posterior = as_mean_field(MNF(seeded(make), prior_std=0.7, seed=0)).double()
    mean, std = posterior.means, F.softplus(posterior.spreads)
    closed = (math.log(0.7) - std.log() + (std**2 + mean**2) / (2 * 0.7**2) - 0.5).sum()
    torch.testing.assert_close(posterior.divergence(generator()), closed)
    n = 2000
    drawn = posterior.sample(n, generator())
    assert bool(((drawn.mean(0) - mean).abs() < 5.5 * std / math.sqrt(n)).all())
    assert bool((drawn.var(0) / std**2 - 1).abs().max() < 5.5 * math.sqrt(2 / n))


def test_z_multiplies_the_inputs_of_a_linear_and_the_filters_of_a_convolution():
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(4, 5), nn.ConvTranspose1d(2, 6, 3))
    posterior = MNF(seeded(lambda: network), init_std=1e-8, seed=0)
    weights = posterior.weights.split(posterior.sample(4, generator()))
    u = posterior._latent(4, generator()).u
    z = (posterior.latent_means + F.softplus(posterior.latent_spreads) * u).split([6, 4, 3], 1)
    for (name, shape), part in zip({"3": (1, 6, 1), "2": (1, 4), "0": (3, 1, 1, 1)}.items(), z, strict=True):
        expected = network[int(name)].weight * part.view(4, *shape)
        torch.testing.assert_close(weights[f"{name}.weight"], expected, rtol=1e-4, atol=1e-6)


def test_the_closed_form_of_r_is_its_mean_over_drawn_weights():
    """log r(u|W) from the least-squares estimate of drawn weights, against the expectation that training uses."""
    posterior = rough(MNF(seeded(lambda: nn.Linear(3, 4, bias=False)), seed=0)).double()
    latent = posterior._latent(1, generator(1))
    n, std = 20_000, F.softplus(posterior.spreads).view(4, 3)
    mean, b = posterior.means.view(4, 3), F.softplus(posterior.latent_spreads)
    z = posterior.latent_means + b * latent.u
    w = mean * z + std * torch.randn(n, 4, 3, generator=generator(2), dtype=torch.float64)
    known = b**2 * (mean**2 / std**2).sum(0)
    estimate = ((w * mean / std**2).sum(1) / (mean**2 / std**2).sum(0) - posterior.latent_means) / b
    own = posterior.auxiliary[1].exp()
    centre = (known * estimate + own * posterior.auxiliary[0]) / (known + own)
    v, log_det = posterior.auxiliary_flows[0](latent.u, own / (known + own))
    values = (torch.distributions.Normal(centre, (known + own) ** -0.5).log_prob(v).sum(1) + log_det).detach()
    closed = posterior._estimate(latent.u, known).detach()
    assert abs(float(values.mean() - closed)) < 4 * float(values.std()) / math.sqrt(n)


@pytest.mark.parametrize("r", ["estimate", "paper"])
def test_the_divergence_by_hand(r):
    """KL(q(W|z) ‖ p(W)) + log q(z) − log r(z|W), the mean over three draws, from torch's own densities."""
    network = seeded(lambda: nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(12, 2)))
    posterior = rough(MNF(network, samples=3, prior_std=0.7, init_noise=0.5, r=r, seed=0)).double()
    std, b, g = F.softplus(posterior.spreads), F.softplus(posterior.latent_spreads), generator()
    latent = posterior._latent(3, g)
    z = posterior.latent_means + b * latent.u
    means = {name: mean.expand(3, *mean.shape) for name, mean in posterior.weights.split(posterior.means).items()}
    means["2.weight"] = means["2.weight"] * z[:, :12].view(3, 1, 12)
    means["0.weight"] = means["0.weight"] * z[:, 12:].view(3, 3, 1, 1, 1)
    given = torch.distributions.Normal(torch.cat([mean.flatten(1) for mean in means.values()], 1), std)
    kl = torch.distributions.kl_divergence(given, torch.distributions.Normal(0.0, 0.7)).sum(1)
    log_q = torch.distributions.Normal(0.0, 1.0).log_prob(latent.base).sum(1) - latent.log_det
    if r == "paper":
        log_r = posterior._paper(latent.u, posterior._given(latent, g))
    else:
        ratio = {name: value**2 for name, value in posterior.weights.split(posterior.means / std).items()}
        known = b**2 * torch.cat([ratio["2.weight"].sum(0), ratio["0.weight"].sum((1, 2, 3))])
        own = posterior.auxiliary[1].exp()
        v, log_det = posterior.auxiliary_flows[0](latent.u, own / (known + own))
        centre = (known * latent.u + own * posterior.auxiliary[0]) / (known + own)
        normal = torch.distributions.Normal(centre, (known + own) ** -0.5)
        log_r = (normal.log_prob(v) - 0.5 * known / (known + own)).sum(1) + log_det
    torch.testing.assert_close(posterior.divergence(generator()), (kl + log_q - log_r).mean())


def test_the_default_prior_follows_the_fan_in_and_the_spread_starts_as_a_part_of_it():
    posterior = MNF(seeded(mlp), init_std=0.01, init_noise=0.3, seed=0)
    prior = posterior.weights.split(posterior.prior_std)
    for name, std in (("0.weight", 4 / 5**0.5), ("0.bias", 1.0), ("2.weight", 4 / 8**0.5), ("2.bias", 1.0)):
        torch.testing.assert_close(prior[name], torch.full_like(prior[name], std))
    torch.testing.assert_close(F.softplus(posterior.spreads), 0.01 * posterior.prior_std)
    torch.testing.assert_close(posterior.latent_means, torch.ones(13))
    torch.testing.assert_close(F.softplus(posterior.latent_spreads), torch.full((13,), 0.3))
    assert posterior.auxiliary.shape == (2, 13)


def test_describe_says_where_there_is_a_z_and_how_the_noise_enters():
    for r, way in (("estimate", "local"), ("paper", "one draw")):
        posterior = MNF(seeded(ConvNet), r=r, seed=0)
        posterior(torch.randn(2, 1, 6, 6, generator=generator()))
        reasons = {entry.name: entry.reason for entry in posterior.describe()}
        assert "a z for each of axis 0" in reasons["first.weight"]
        assert "a z for each of axis 1" in reasons["head.weight"]
        assert "mean field" in reasons["head.bias"]
        assert way in reasons["head.weight"]


def test_the_flows_of_r_have_their_masks_in_the_other_order():
    posterior = MNF(seeded(mlp), seed=0)
    assert torch.equal(posterior.auxiliary_flows[0].masks, posterior.flows[0].masks.flip(0))
    assert int(posterior.flows[0].masks[0, 0, 0, 0]) == 0


@pytest.mark.parametrize("r", ["estimate", "paper"])
def test_the_density_of_r_integrates_to_one(r):
    """On one number u, for a weight that is given: the bound holds for a density only."""
    posterior = rough(MNF(seeded(lambda: nn.Linear(1, 2, bias=False)), r=r, seed=0)).double()
    grid = torch.linspace(-60, 60, 200_001, dtype=torch.float64).unsqueeze(1)
    if r == "paper":
        log_r = posterior._paper(grid, posterior.sample(1, generator()).expand(len(grid), 2))
    else:
        posterior.latent_spreads.data.fill_(-60.0)
        log_r = posterior._estimate(grid, torch.zeros(1, dtype=torch.float64))
    assert float(torch.trapezoid(log_r.detach().exp(), grid[:, 0])) == pytest.approx(1, abs=1e-5)


def test_the_divergence_bounds_that_of_the_marginal():
    """Two weights under one z: the KL of the marginal q(W), by quadrature over z, is below the divergence."""
    posterior = rough(MNF(seeded(lambda: nn.Linear(1, 2, bias=False)), prior_std=1.0, init_noise=1.0, seed=0)).double()
    with torch.no_grad():
        n, m = 2000, 4000
        w = posterior.sample(n, generator(1))
        z = posterior.latent_means + F.softplus(posterior.latent_spreads) * posterior._latent(m, generator(2)).u
        std = F.softplus(posterior.spreads)
        given = torch.distributions.Normal(z * posterior.means, std).log_prob(w.unsqueeze(1)).sum(-1)
        log_q = given.logsumexp(1) - math.log(m)
        terms = log_q - torch.distributions.Normal(0.0, 1.0).log_prob(w).sum(-1)
        posterior.samples = 20_000
        divergence = float(posterior.divergence(generator(3)))
    exact, error = float(terms.mean()), float(terms.std()) / math.sqrt(n)
    assert divergence > exact - 4 * error
    assert divergence < exact + 2.0


def test_every_layer_counts_in_the_divergence():
    posterior = MNF(seeded(ConvNet), seed=0)
    posterior.divergence(generator()).backward()
    for part in posterior.weights.split(posterior.spreads.grad).values():
        assert bool((part != 0).any())
    for flows in (posterior.flows, posterior.auxiliary_flows):
        assert all(bool((p.grad != 0).any()) for p in flows.parameters())


def test_the_loss_shares_its_draws_with_the_divergence():
    posterior, x, y = MNF(seeded(mlp), samples=3, seed=0), torch.randn(7, 5, generator=generator()), torch.arange(7) % 3
    nll, whole = (posterior.loss(x, y, size=50, beta=beta, generator=generator(2)) for beta in (0.0, 1.0))
    torch.testing.assert_close(whole - nll, posterior.divergence(generator(2)) / 50)


def test_one_input_and_tied_weights():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.scale, self.head = nn.Embedding(6, 4), nn.Linear(1, 4), nn.Linear(4, 6)
            self.head.weight = self.embed.weight

        def forward(self, words, value):
            return self.head(self.embed(words) * self.scale(value))

    posterior = MNF(seeded(Tied), seed=0)
    assert list(posterior.axes) == ["embed.weight", "scale.weight"]
    assert posterior.sizes == [4, 1]
    x = (torch.arange(6), torch.randn(6, 1, generator=generator()))
    posterior.loss(x, torch.arange(6), size=6).backward()
    assert all(bool(p.grad.isfinite().all()) for p in posterior.variational())
    drawn = posterior.draw(5, generator())
    network, flat = drawn.network, posterior.weights.split(posterior.sample(5, generator()))
    assert network.head.weight is network.embed.weight
    by_hand = flat["embed.weight"] * (x[1] @ flat["scale.weight"].mT + flat["scale.bias"].unsqueeze(1))
    by_hand = by_hand @ flat["embed.weight"].mT + flat["head.bias"].unsqueeze(1)
    torch.testing.assert_close(drawn(x), by_hand)


def test_a_network_without_layers_for_z_is_mean_field():
    posterior = MNF(seeded(lambda: nn.LayerNorm(3)), seed=0)
    assert posterior.draw(4, generator())(torch.randn(2, 3)).shape == (4, 2, 3)
    posterior.divergence().backward()


@pytest.mark.parametrize(
    "arguments",
    [
        {"r": "exact"},
        {"prior_std": -1.0},
        {"prior_std": [1.0]},
        {"prior_std": [*[1.0] * 74, -1.0]},
        {"init_std": 0.0},
        {"init_noise": 0.0},
    ],
)
def test_mistakes_are_named(arguments):
    with pytest.raises(posterity.Error, match=next(iter(arguments))):
        MNF(mlp(), **arguments)


def test_it_finds_a_correlated_posterior_and_its_bound_is_close_to_the_evidence():
    """Mean field is off by ×47 along (1, −1)."""
    scenario = correlated_regression()
    posterior = MNF(scenario.network(), samples=4, prior_std=scenario.prior_std, seed=0)
    data, likelihood = (scenario.x, scenario.y), posterity.Gaussian(std=scenario.noise)
    posterity.fit(
        posterior, data, likelihood, epochs=4000, batch_size=200, lr=5e-3, seed=0, device="cpu", progress=False
    )
    mean, variance = directional_moments(posterior)
    ratio = variance / scenario.exact()
    assert bool(((ratio < 1.35) & (ratio > 1 / 1.35)).all()), ratio
    assert bool(((mean - DIRECTIONS @ scenario.mean).abs() < 0.5 * scenario.exact().sqrt()).all())
    posterior.samples = 4000
    with torch.no_grad():
        bound = -200 * float(posterior.loss(*data, size=200, generator=generator(3)))
    assert scenario.log_evidence - 0.15 < bound < scenario.log_evidence + 0.02


def test_the_papers_r_by_hand():
    """b₁·t and exp(−b₂·t) with t = mean_j tanh(Σ_i c_i W_ij), one number for each layer and draw."""
    network = seeded(lambda: nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(12, 2))).double()
    posterior = MNF(network, r="paper", init_std=0.3, seed=0).double()
    drawn, u = posterior.sample(4, generator()), torch.randn(4, 15, generator=generator(1), dtype=torch.float64)
    v, log_det = posterior.auxiliary_flows[0](u)
    weights = posterior.weights.split(drawn)
    b1, b2, c = posterior.auxiliary
    for n in range(4):
        dense = torch.tanh(weights["2.weight"][n] @ c[:12]).mean()
        filters = torch.tanh((weights["0.weight"][n].flatten(1) * c[12:].unsqueeze(1)).sum(0)).mean()
        seen = torch.cat([dense.expand(12), filters.expand(3)])
        normal = torch.distributions.Normal(b1 * seen, torch.exp(-0.5 * b2 * seen))
        torch.testing.assert_close(posterior._paper(u, drawn)[n], normal.log_prob(v[n]).sum() + log_det[n])


def test_the_log_determinants_of_all_groups_of_flows_count():
    network = nn.Sequential(nn.Linear(40, 1), *(nn.Linear(1, 1) for _ in range(5)))
    posterior = MNF(seeded(lambda: network), seed=0)
    assert len(posterior.parts) > 1
    u = torch.randn(3, 45, generator=generator())
    parts = u.split([sum(part) for part in posterior.parts], 1)
    expected = sum(flow(part)[1] for flow, part in zip(posterior.flows, parts, strict=True))
    torch.testing.assert_close(posterior._through(posterior.flows, u)[1], expected)
