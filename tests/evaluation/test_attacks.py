import copy
import math

import pytest
import torch
from torch import nn

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity.errors import Error
from posterity.evaluation.attacks import fgsm, pgd, pixel_bounds, seeds, under_attack
from posterity.likelihoods import Bernoulli, Gaussian
from posterity.prediction import kind

METHODS = posterity.methods()


def classes(n=40, seed=0):
    """Three overlapping clouds in five dimensions."""
    g = generator(seed)
    y = torch.arange(n) % 3
    centres = 1.5 * torch.randn(3, 5, generator=generator(99))
    return centres[y] + torch.randn(n, 5, generator=g), y


def log_prob(posterior, x, y, samples=None, seed=0):
    """log p̄(y | x) of each row, without gradients."""
    return posterity.predict(posterior, x, samples, generator(seed)).log_prob(y).double()


@pytest.fixture(scope="module")
def trained():
    """Posteriors of few weights, trained, with test rows that they do not all get right."""
    x, y = classes(120, seed=1)
    found = {}
    for name, method in (("ensemble", posterity.DeepEnsemble), ("bnn", posterity.BayesByBackprop)):
        found[name] = method(seeded(mlp), seed=0)
        posterity.fit(found[name], (x, y), epochs=40, lr=0.03, seed=0, progress=False)
    return found


@pytest.mark.parametrize("method", METHODS)
def test_fgsm_of_the_expected_prediction_moves_every_element_by_exactly_eps(method, case):
    network, x, y = case
    posterior = METHODS[method](network)
    for eps in (0.05, 0.4):
        moved = fgsm(posterior, x, y, eps, samples=6, generator=generator()) - x
        assert torch.allclose(moved.abs(), torch.full_like(x, eps), atol=1e-6)


def test_fgsm_of_the_slides_moves_by_the_mean_of_the_functions_signs():
    x, y = classes()
    posterior = posterity.BayesByBackprop(seeded(mlp), init_std=1.0)
    moved = fgsm(posterior, x, y, 0.3, protocol="slides", samples=7, generator=generator(4)) - x
    functions, leaf = posterior.draw(7, generator(4)), x.clone().requires_grad_()
    images = []
    for outputs in functions(leaf):
        loss = nn.functional.cross_entropy(outputs, y, reduction="sum")
        images.append(x + 0.3 * torch.autograd.grad(loss, leaf, retain_graph=True)[0].sign())
    assert torch.allclose(x + moved, torch.stack(images).mean(0), atol=1e-6)
    assert float(moved.abs().max()) <= 0.3 + 1e-6
    assert float((moved.abs() < 0.29).double().mean()) > 0.05


@pytest.mark.parametrize("method", ["map", "ensemble", "bbb"])
def test_one_function_makes_both_protocols_the_same(method):
    x, y = classes()
    posterior = METHODS[method](seeded(mlp))
    a, b = (fgsm(posterior, x, y, 0.1, protocol=p, samples=1, generator=generator()) for p in ("expected", "slides"))
    assert torch.equal(a, b)


def test_a_member_drawn_several_times_counts_as_often_in_the_slides_protocol():
    x, y = classes()
    posterior = posterity.DeepEnsemble(seeded(mlp), members=3, seed=1)
    five = fgsm(posterior, x, y, 1.0, protocol="slides", samples=5, generator=generator()) - x
    shares = five * 5
    assert torch.allclose(shares, shares.round(), atol=1e-4)
    assert torch.equal(shares.round() % 2, torch.ones_like(shares))


def test_the_attack_follows_the_gradient_of_the_log_mean_probability():
    x, y = classes(6)
    posterior = posterity.BayesByBackprop(seeded(mlp).double(), init_std=1.0)
    x = x.double()
    moved = fgsm(posterior, x, y, 1e-3, samples=5, generator=generator(2)) - x
    functions, step = posterior.draw(5, generator(2)), 1e-6

    def loss(x):
        probs = functions(x).softmax(2).mean(0)
        return -probs[torch.arange(6), y].log()

    for column in range(5):
        shift = step * nn.functional.one_hot(torch.tensor(column), 5)
        slope = (loss(x + shift) - loss(x - shift)) / (2 * step)
        assert torch.equal(moved[:, column].sign(), slope.sign())


def logistic(weights, bias=0.0):
    network = nn.Linear(len(weights), 1)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([weights]))
        network.bias.fill_(bias)
    posterior = posterity.MAP(network)
    posterior.likelihood = Bernoulli()
    return posterior


@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_logistic_regression_has_its_optimum_at_the_corner_of_the_box(attack):
    weights = torch.tensor([2.0, -1.0, 0.5, -3.0])
    posterior = logistic(weights.tolist(), 0.3)
    x = torch.randn(30, 4, generator=generator())
    y = (torch.arange(30) % 2).float()[:, None]
    found = attack(posterior, x, y, 0.2, generator=generator(1))
    corner = x - 0.2 * (2 * y - 1) * weights.sign()
    assert torch.allclose(found, corner, atol=1e-6)


@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_linear_regression_is_pushed_away_from_the_answer(attack):
    network = nn.Linear(3, 1)
    posterior = posterity.MAP(network)
    posterior.likelihood = Gaussian(std=0.7)
    x = torch.randn(20, 3, generator=generator())
    side = 1.0 - 2 * (torch.arange(20) % 2)[:, None]
    y = network(x).detach() + 2.0 * side
    found = attack(posterior, x, y, 0.1, generator=generator())
    assert torch.allclose(found, x - 0.1 * side * network.weight.detach().sign(), atol=1e-6)


@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_confidence_does_not_hide_the_gradient(attack):
    """With p = 1 − e⁻³⁰ a softmax in single precision has no gradient in the logit of the true class."""
    network = nn.Linear(2, 2, bias=False)
    network.weight.data = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    x, y = torch.tensor([[15.0, -15.0]]), torch.tensor([1])
    found = attack(posterity.MAP(network), x, y, 0.5, generator=generator())
    assert torch.allclose(found, torch.tensor([[14.5, -14.5]]))


@pytest.mark.parametrize("name", ["ensemble", "bnn"])
def test_the_expected_attack_is_at_least_as_strong_as_the_slides(trained, name):
    posterior = trained[name]
    x, y = classes(300, seed=2)
    samples = posterior.members if name == "ensemble" else 20
    expected, slides = (
        log_prob(posterior, fgsm(posterior, x, y, 0.2, protocol=p, samples=samples, generator=generator()), y, samples)
        for p in ("expected", "slides")
    )
    gain = slides - expected
    assert float(gain.mean()) > 2 * float(gain.std()) / math.sqrt(len(gain))


@pytest.mark.parametrize("name", ["ensemble", "bnn"])
def test_pgd_is_at_least_as_strong_as_fgsm_and_stays_in_the_box(trained, name):
    posterior = trained[name]
    x, y = classes(100, seed=2)
    one = fgsm(posterior, x, y, 0.8, samples=10, generator=generator())
    many = pgd(posterior, x, y, 0.8, samples=10, generator=generator())
    gain = log_prob(posterior, one, y, 10) - log_prob(posterior, many, y, 10)
    assert float((many - x).abs().max()) <= 0.8 + 1e-6
    assert float(gain.mean()) > 2 * float(gain.std()) / math.sqrt(len(gain))
    still = pgd(posterior, x, y, 0.8, samples=10, random_start=False, steps=1, step_size=0.8, generator=generator())
    clean = log_prob(posterior, x, y, 10)
    assert bool(
        (log_prob(posterior, still, y, 10) <= torch.minimum(log_prob(posterior, one, y, 10), clean) + 1e-5).all()
    )


def test_pgd_keeps_the_worst_input_of_its_way():
    """cos(3x) has its least value inside the box: large steps jump over it, and the last is not the best."""

    class Wave(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(3.0))

        def forward(self, x):
            return 4 * torch.cos(self.scale * x)

    posterior = posterity.MAP(Wave())
    posterior.likelihood = Bernoulli()
    x, y = torch.tensor([[0.05]]), torch.ones(1, 1)
    ways = [pgd(posterior, x, y, 2.0, steps=s, step_size=0.7, random_start=False) for s in range(1, 8)]
    values = [float(log_prob(posterior, way, y)) for way in ways]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("options", [{}, {"bounds": (-0.5, 0.5)}, {"protocol": "slides"}])
def test_an_attack_of_no_size_changes_nothing(options):
    x, y = classes()
    posterior = posterity.BayesByBackprop(seeded(mlp))
    assert torch.equal(fgsm(posterior, x, y, 0.0, samples=3, **options), x)
    options.pop("protocol", None)
    assert torch.equal(pgd(posterior, x, y, 0.0, steps=2, samples=3, **options), x)


@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_pixels_stay_black_to_white_and_eps_counts_in_pixels(attack):
    mean, std = torch.tensor([0.5, 0.3]), torch.tensor([0.2, 0.4])
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 16, 3))
    posterior = posterity.DeepEnsemble(network, members=2, seed=0)
    pixels = torch.rand(10, 2, 6, 6, generator=generator())
    x = (pixels - mean[:, None, None]) / std[:, None, None]
    y, bounds = torch.arange(10) % 3, pixel_bounds(mean, std)
    found = attack(posterior, x, y, 0.1, scale=1 / std, bounds=bounds, samples=2, generator=generator())
    attacked = found * std[:, None, None] + mean[:, None, None]
    assert float(attacked.min()) >= -1e-6
    assert float(attacked.max()) <= 1 + 1e-6
    inside = ((pixels > 0.1) & (pixels < 0.9)) if attack is fgsm else torch.zeros_like(pixels, dtype=torch.bool)
    assert torch.allclose((attacked - pixels).abs()[inside], torch.tensor(0.1), atol=1e-6)
    assert float((attacked - pixels).abs().max()) == pytest.approx(0.1, abs=1e-6)


def test_inputs_beyond_the_bounds_are_not_moved_further_out_nor_by_more_than_eps():
    posterior = logistic([1.0])
    x, y = torch.tensor([[-2.0], [0.9], [2.0]]), torch.zeros(3, 1)
    assert torch.allclose(fgsm(posterior, x, y, 0.5, bounds=(-1.0, 1.0)), torch.tensor([[-1.5], [1.0], [2.0]]))


def snapshot(posterior):
    state = {name: value.clone() for name, value in posterior.state_dict().items()}
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in posterior.modules()]
    return state, hooks, [m.training for m in posterior.modules()], [p.grad for p in posterior.parameters()]


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_an_attack_leaves_the_posterior_and_the_global_generator_as_they_were(method, mode):
    network, x, y = seeded(ConvNet), torch.randn(7, 1, 6, 6, generator=generator(1)), torch.arange(7) % 3
    posterior = METHODS[method](network)
    posterior.train(mode)
    state, hooks, modes, grads = snapshot(posterior)
    needs = [p.requires_grad for p in posterior.parameters()]
    random, given = torch.get_rng_state(), x.clone()
    for protocol in ("expected", "slides"):
        fgsm(posterior, x, y, 0.1, protocol=protocol, samples=3, generator=generator())
    with torch.no_grad():
        pgd(posterior, x, y, 0.1, steps=2, samples=3, generator=generator())
    now = snapshot(posterior)
    assert all(torch.equal(state[name], now[0][name]) for name in state)
    assert state.keys() == now[0].keys()
    assert (hooks, modes, grads) == now[1:]
    assert grads == [None] * len(grads)
    assert needs == [p.requires_grad for p in posterior.parameters()]
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, given)
    assert not x.requires_grad


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0].mean(1))


@pytest.mark.parametrize("method", METHODS)
def test_recurrent_networks_are_attacked_as_well(method):
    posterior = METHODS[method](seeded(Recurrent))
    x, y = torch.randn(4, 5, 3, generator=generator()), torch.arange(4) % 2
    for protocol in ("expected", "slides"):
        found = fgsm(posterior, x, y, 0.1, protocol=protocol, samples=3, generator=generator())
        assert float((found - x).abs().max()) <= 0.1 + 1e-6
    assert bool((log_prob(posterior, found, y, 3) < log_prob(posterior, x, y, 3)).any())
    worse = pgd(posterior, x, y, 0.1, steps=3, samples=3, generator=generator())
    assert bool((log_prob(posterior, worse, y, 3) < log_prob(posterior, x, y, 3)).all())


def test_rows_and_draws_in_parts_make_no_difference(monkeypatch):
    x, y = classes(30)
    posterior = posterity.BayesByBackprop(seeded(mlp))
    whole = [fgsm(posterior, x, y, 0.1, protocol=p, samples=9, generator=generator()) for p in ("expected", "slides")]
    monkeypatch.setattr(posterity.Functions, "_at_once", lambda self, x: self.rows_at_once or 20)
    for protocol, expected in zip(("expected", "slides"), whole, strict=True):
        parts = fgsm(posterior, x, y, 0.1, protocol=protocol, samples=9, generator=generator(), batch_size=7)
        assert torch.allclose(parts, expected, atol=1e-6)


def test_attacks_work_where_gradients_are_switched_off():
    x, y = classes(8)
    posterior = posterity.BayesByBackprop(seeded(mlp))
    expected = fgsm(posterior, x, y, 0.1, samples=3, generator=generator())
    with torch.no_grad():
        assert torch.equal(fgsm(posterior, x, y, 0.1, samples=3, generator=generator()), expected)
    with torch.inference_mode():
        again = fgsm(posterior, x.clone(), y.clone(), 0.1, samples=3, generator=generator())
        assert torch.equal(again, expected)


def test_the_precision_of_the_inputs_is_kept():
    x, y = classes(8)
    found = fgsm(posterity.MAP(seeded(mlp)), x.double(), y, 0.1)
    assert found.dtype == torch.float64
    assert torch.allclose((found - x.double()).abs(), torch.tensor(0.1, dtype=torch.float64), atol=1e-12)


def test_under_attack_gives_the_curves_of_paired_functions(trained):
    posterior, (x, y) = trained["bnn"], classes(200, seed=3)
    state = torch.get_rng_state()
    lines = under_attack(posterior, x, y, [0.0, 0.2, 0.4], samples=10, generator=generator(5))
    seed, other = seeds(2, generator(5))
    clean = posterity.predict(posterior, x, 10, generator(seed))
    assert lines[0]["nll"] == pytest.approx(-float(clean.log_prob(y).double().mean()))
    assert lines[0]["total"] == pytest.approx(float(clean.total.double().mean()))
    assert lines[0]["error"] < lines[1]["error"] < lines[2]["error"]
    assert lines == under_attack(posterior, x, y, [0.0, 0.2, 0.4], samples=10, generator=generator(5))
    unseen = under_attack(posterior, x, y, [0.2], samples=10, generator=generator(5), fresh=True)[0]
    found = fgsm(posterior, x, y, 0.2, samples=10, generator=generator(seed))
    fresh = posterity.predict(posterior, found, 10, generator(other))
    assert unseen["nll"] == pytest.approx(-float(fresh.log_prob(y).double().mean()))
    worse = under_attack(posterior, x, y, [0.4], attack=pgd, steps=3, samples=10, generator=generator(5))
    assert worse[0]["nll"] >= lines[2]["nll"] - 0.02
    assert torch.equal(torch.get_rng_state(), state)


def test_what_cannot_be_attacked_is_refused():
    posterior, (x, y) = posterity.MAP(seeded(mlp)), classes(6)
    half = (
        {"bounds": (1.0, 0.0)},
        {"scale": [1.0, 2.0]},
        {"scale": -1},
        {"samples": 0},
        {"batch_size": 0},
        {"protocol": "weak"},
    )
    for wrong in ({"eps": -1}, {"eps": math.nan}, *({"eps": 0.1} | option for option in half)):
        with pytest.raises(Error):
            fgsm(posterior, x, y, **wrong)
    for wrong in ({"steps": 0}, {"step_size": 0.0}):
        with pytest.raises(Error):
            pgd(posterior, x, y, 0.1, **wrong)
    for inputs, answers in ((x.long(), y), (x, y[:3]), (x[:0], y[:0]), ((x, x), y), (x * math.nan, y), (x, y + 5)):
        with pytest.raises(Error):
            fgsm(posterior, inputs, answers, 0.1)
    with pytest.raises(Error, match="does not take these inputs"):
        fgsm(posterior, x[:, :3], y, 0.1)
    with pytest.raises(Error, match="attack must be a function"):
        under_attack(posterior, x, y, attack="pgd")
    for call in (under_attack, pgd):
        with pytest.raises(Error, match="generator must be"):
            call(posterior, x, y, 0.1, generator=5)
    assert [line["eps"] for line in under_attack(posterior, x, y, 0.1)] == [0.1]
    numbers = copy.deepcopy(posterior)
    numbers.likelihood = Gaussian()
    assert kind(numbers.likelihood) is posterity.prediction.GaussianPrediction
    with pytest.raises(Error, match="slides"):
        fgsm(numbers, x, torch.zeros(6, 3), 0.1, protocol="slides")


def test_a_network_without_gradients_is_refused():
    class Rounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp()

        def forward(self, x):
            return self.inner(x.detach())

    x, y = classes(6)
    with pytest.raises(Error, match="gradient"):
        fgsm(posterity.MAP(Rounded()), x, y, 0.1)
