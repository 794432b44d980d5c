"""Training with every default: it ends where it has converged, under Adam and under SGD, and says where it cannot."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

import posterity
from common import generator
from posterity.methods.bbb import BayesByBackprop

SIGMA = 0.4


def linear(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of y = x·w + N(0, SIGMA²)."""
    own = generator(7)
    x = torch.randn(rows, 3, generator=own)
    y = x @ torch.tensor([1.0, -0.5, 0.3]) + SIGMA * torch.randn(rows, generator=own)
    return x, y.unsqueeze(1)


def layer() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(3, 1)


def test_few_rows_are_trained_until_least_squares():
    x, y = linear(20)
    posterior = posterity.MAP(layer())
    history = posterity.fit(
        posterior, (x, y), posterity.Gaussian(), weight_decay=0.0, seed=0, progress=False, device="cpu"
    )
    assert history[-1]["step"] == 5_000
    design = torch.cat([x, torch.ones(20, 1)], 1)
    weights = torch.linalg.lstsq(design, y).solution.flatten()
    residual = float((y.flatten() - design @ weights).square().mean().sqrt())
    errors = residual * torch.linalg.inv(design.T @ design).diagonal().sqrt()
    found = torch.cat([posterior.network.weight.detach()[0], posterior.network.bias.detach()])
    assert float(((found - weights) / errors).abs().max()) < 1
    assert float(posterior.likelihood.log_std.detach().exp()) == pytest.approx(residual, rel=0.1)


@pytest.mark.parametrize("rows", [20, 100, 1000])
@pytest.mark.parametrize("held_out", [False, True])
def test_standard_deviations_of_bayes_by_backprop_reach_the_optimum_of_mean_field(rows, held_out):
    """1/(prior precision + Σ x²/σ²) by weight; an epoch that is kept for held-out rows is no narrower either."""
    x, y = linear(rows)
    posterior = BayesByBackprop(layer(), prior_std=1.0)
    epochs = math.ceil(3_000 / -(-rows // 32))  # fewer steps than by default
    history = posterity.fit(
        posterior, (x, y), posterity.Gaussian(std=SIGMA), batch_size=32, epochs=epochs, seed=0, progress=False,
        validation=linear(50) if held_out else None, device="cpu",
    )  # fmt: skip
    design = torch.cat([x, torch.ones(rows, 1)], 1)
    optimum = 1 / (1 + design.square().sum(0) / SIGMA**2)
    ratio = posterior.stds.detach().square() / optimum
    assert 0.8 < float(ratio.mean()) < 1.25
    assert not held_out or history.best > epochs * 0.6


@pytest.mark.parametrize(("name", "fastest"), [("bbb", 10.0), ("mnf", 3.0)])
def test_standard_deviations_have_a_rate_of_their_own(name, fastest):
    """Rows per weight, within bounds: four weights here."""
    posterior = posterity.methods()[name](layer(), seed=0)
    rates = {
        size: next(group.rate for group in posterior.parameter_groups(size) if group.name == "spreads")
        for size in (1, 8, 1000)
    }
    assert rates == {1: 0.4, 8: 2.0, 1000: fastest}


@pytest.mark.parametrize("name", posterity.methods())
def test_groups_hold_every_trained_parameter_once(name):
    posterior = posterity.methods()[name](nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), seed=0)
    posterior.likelihood = posterity.Gaussian()
    grouped = [id(p) for group in posterior.parameter_groups(100) for p in group.parameters]
    assert sorted(grouped) == sorted(id(p) for p in posterior.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", ["bbb", "ibnn"])
def test_an_epoch_is_kept_only_where_the_divergence_had_its_final_weight(name):
    """Pure noise is predicted best by the first epochs; MAP has no divergence, and keeps one of them."""
    x, y = torch.randn(40, 3, generator=generator(0)), torch.randint(2, (40,), generator=generator(1))
    held = torch.randn(40, 3, generator=generator(2)), torch.randint(2, (40,), generator=generator(3))
    network = nn.Sequential(nn.Linear(3, 50), nn.ReLU(), nn.Linear(50, 2))
    options = {"epochs": 30, "lr": 0.02, "seed": 0, "progress": False, "validation": held, "beta": "linear"}
    plain = posterity.fit(posterity.MAP(copy.deepcopy(network)), (x, y), **options)
    history = posterity.fit(posterity.methods()[name](network, seed=0), (x, y), **options)
    assert plain.best < 20
    assert history[history.best - 1]["beta"] >= 0.99
    assert history.column("beta")[0] < 0.1


@pytest.mark.parametrize(("epochs", "part"), [(30, 2 / 3), (250, 0.4)])
def test_a_short_run_ramps_beta_over_two_thirds_and_a_long_one_over_500_steps(epochs, part):
    """In fewer steps of the ramp a hypernetwork is at the prior before it has met the data."""
    x, y = linear(100)
    held = x[:20], y[:20]
    posterior = posterity.IBNN(nn.Linear(x.shape[1], 1), seed=0)
    options = {"epochs": epochs, "batch_size": 20, "seed": 0, "progress": False, "validation": held}
    betas = posterity.fit(posterior, (x, y), posterity.Gaussian(std=SIGMA), **options).column("beta")
    assert sum(beta < 1 for beta in betas) == pytest.approx(part * epochs, abs=1)


def test_a_ramp_that_ends_with_training_leaves_the_last_epoch():
    x, y = linear(40)
    history = posterity.fit(
        BayesByBackprop(layer()), (x, y), posterity.Gaussian(std=SIGMA), epochs=5, beta=("linear", 1.0), seed=0,
        validation=linear(20), progress=False,
    )  # fmt: skip
    assert history.best == 5


@pytest.mark.parametrize("lr", [1e-4, 1e-5])
def test_noise_leaves_its_random_start_when_a_network_is_fine_tuned(lr):
    posterior = posterity.IBNN(nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1)), seed=0)
    before = copy.deepcopy((posterior.means.detach(), posterior.spreads.detach()))
    weights = copy.deepcopy(posterior.network.state_dict())
    posterity.fit(posterior, linear(200), posterity.Gaussian(), lr=lr, epochs=20, seed=0, progress=False)
    for start, end in zip(before, (posterior.means, posterior.spreads), strict=True):
        assert float((end.detach() - start).abs().mean()) > 0.02
    moved = max(float((value - weights[key]).abs().max()) for key, value in posterior.network.state_dict().items())
    assert moved <= lr * 20 * 40  # Adam's step is no longer than the rate
    assert posterior.likelihood.log_std.detach().abs() > 0.1


def test_sgd_at_a_low_rate_names_the_rate_of_the_posterior():
    posterior = posterity.IBNN(layer(), seed=0)
    options = {"epochs": 1, "optimizer": "sgd", "lr": 1e-4, "seed": 0, "progress": False}
    with pytest.warns(UserWarning, match="give lr_posterior"):
        posterity.fit(posterior, linear(20), posterity.Gaussian(), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterity.fit(posterior, linear(20), posterity.Gaussian(), lr_posterior=1e-2, **options)


def dense() -> tuple[torch.Tensor, torch.Tensor]:
    """Small maps, each pixel of which is told by its neighbours."""
    x = torch.randn(60, 1, 6, 6, generator=generator(0))
    return x, (nn.functional.avg_pool2d(x, 3, 1, 1)[:, 0] > 0).long()


def test_sgd_learns_dense_classes():
    """Its rate is for a pixel: the loss sums over 36 of them."""
    x, y = dense()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    scores = {}
    for optimizer in ("adam", "sgd"):
        posterior = posterity.MAP(copy.deepcopy(network))
        posterity.fit(posterior, (x, y), epochs=200, optimizer=optimizer, seed=0, progress=False)
        scores[optimizer] = float(-posterity.predict(posterior, x).log_prob(y).mean())
    assert scores["sgd"] < 1.1 * scores["adam"]
    assert scores["sgd"] < 0.3 * 36 * math.log(2)


@pytest.mark.parametrize("name", posterity.methods())
def test_sgd_is_as_good_as_adam_with_every_default(name):
    """New rows of a regression, where learned noise makes gradients long; 760 steps."""
    (x, y), (new, truth) = linear(300), linear(600)
    scores = {}
    for optimizer in ("adam", "sgd"):
        posterior = posterity.methods()[name](layer(), seed=0)
        posterity.fit(posterior, (x, y), posterity.Gaussian(), epochs=40, optimizer=optimizer, seed=0, progress=False)
        prediction = posterity.predict(posterior, new, generator=generator())
        scores[optimizer] = float(-prediction.log_prob(truth).mean())
    assert scores["sgd"] < 1.1 * scores["adam"]


def test_a_run_that_ends_in_no_finite_numbers_is_an_error():
    posterior = posterity.MAP(layer())

    def spoil(record, posterior):
        posterior.network.weight.data[0, 0] = torch.inf

    with pytest.raises(posterity.Error, match=r"network\.weight is no finite number"):
        posterity.fit(posterior, linear(20), posterity.Gaussian(), epochs=1, callbacks=spoil, seed=0, progress=False)

    def widen(record, posterior):
        posterior.likelihood.log_std.data.fill_(100.0)

    posterior = posterity.MAP(layer())
    with pytest.raises(posterity.Error, match="the learned noise is no finite number"):
        posterity.fit(posterior, linear(20), posterity.Gaussian(), epochs=1, callbacks=widen, seed=0, progress=False)


@pytest.mark.parametrize(("scale", "warned"), [(1e-2, True), (0.1, False), (1.0, False), (100.0, True)])
def test_targets_of_another_scale_are_warned_of(scale, warned):
    x, y = linear(50)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterity.fit(posterity.MAP(layer()), (x, scale * y), posterity.Gaussian(), epochs=1, seed=0, progress=False)
    assert any("standardise" in str(w.message) for w in caught) == warned


@pytest.mark.parametrize("name", posterity.methods())
def test_a_network_in_bfloat16_is_an_error_that_says_what_to_do(name):
    posterior = posterity.methods()[name](layer().to(torch.bfloat16), seed=0)
    with pytest.raises(posterity.Error, match=r'give network.float\(\), and precision="bf16"'):
        posterity.fit(posterior, linear(20), posterity.Gaussian(), epochs=1, progress=False)
