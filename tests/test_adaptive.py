"""samples="auto": rows stop when they are settled, within the stated tolerance, and no sooner than they may."""

import math

import pytest
import torch
from scipy.stats import t as student
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import posterity
from common import generator, mlp, seeded
from posterity import adaptive
from posterity.functions import Functions

METHODS = posterity.methods()
TOLERANCE = 0.05


class Known(nn.Module):
    """Row i of x is (mean, spread, i); its logit, or number, is mean + spread · z_i with z_i standard normal."""

    def __init__(self, rows: int, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.z = nn.Parameter(torch.zeros(rows))

    def forward(self, x: Tensor) -> Tensor:
        value = x[:, :1] + x[:, 1:2] * self.z[x[:, 2].long()].unsqueeze(1)
        return torch.cat([value, *[torch.zeros_like(value)] * (self.outputs - 1)], 1)


class Independent(posterity.Posterior):
    """Draws of every row are independent, so that rows count as repetitions."""

    draws = 80

    def draw(self, n: int, generator: torch.Generator | None = None) -> Functions:
        z = torch.randn(n, len(self.network.z), generator=generator)
        return Functions(self.network, n, weights={"z": z})


def known(mean: float, spread: float, likelihood: posterity.likelihoods.Likelihood, rows: int = 2000):
    outputs = 2 if isinstance(likelihood, posterity.Categorical) else 1
    posterior = Independent(Known(rows, outputs))
    posterior.likelihood = likelihood
    return posterior, torch.stack([torch.full((rows,), mean), torch.full((rows,), spread), torch.arange(rows)], 1)


def exact(mean: float, spread: float) -> tuple[float, float, float]:
    """Probability, total and epistemic uncertainty, by quadrature."""
    z = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
    weight = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    p = torch.sigmoid(mean + spread * z)
    entropy = torch.distributions.Bernoulli(probs=p, validate_args=False).entropy()
    probability = (weight * p).sum()
    total = torch.distributions.Bernoulli(probs=probability).entropy()
    return float(probability), float(total), float(total - (weight * entropy).sum())


@pytest.mark.parametrize("likelihood", [posterity.Categorical(), posterity.Bernoulli()], ids=["classes", "labels"])
@pytest.mark.parametrize(
    ("mean", "spread"), [(0, 0.2), (1, 0.6), (3, 0.6), (4, 1), (4, 1.5), (5, 2), (6, 2), (6, 3), (7, 2.5)]
)
def test_at_most_one_row_in_twenty_stops_further_off_than_the_tolerance(mean, spread, likelihood):
    posterior, x = known(mean, spread, likelihood)
    found = posterity.predict(posterior, x, "auto", generator(1), tolerance=TOLERANCE)
    early = found.samples < posterior.draws
    probs, total, epistemic = exact(mean, spread)
    off = [(found.probs[:, 0] - probs).abs(), (found.total.reshape(-1) - total).abs()]
    off += [(found.epistemic.reshape(-1) - epistemic).abs(), ((found.probs[:, 0] > 0.5) != (probs > 0.5)).float()]
    error = 3 * math.sqrt(0.05 * 0.95 / len(x))
    for wrong in off[: 4 if mean else 3]:  # of a tie, no answer is wrong
        assert float(((wrong > TOLERANCE) & early).float().mean()) < 0.05 + error


def test_numbers_stop_within_the_tolerance_too():
    posterior, x = known(2.0, 0.1, posterity.Gaussian(std=1.0))
    found = posterity.predict(posterior, x, "auto", generator(1), tolerance=TOLERANCE)
    std, early = math.sqrt(1.01), found.samples < 80
    assert float(early.float().mean()) > 0.9
    for off in ((found.mean[:, 0] - 2).abs() / std, (found.std[:, 0] - std).abs() / std):
        assert float(((off > TOLERANCE) & early).float().mean()) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(x))


def test_draws_go_where_they_disagree():
    taken = [
        float(
            posterity.predict(*known(1.0, spread, posterity.Categorical(), 200), "auto", generator())
            .samples.float()
            .mean()
        )
        for spread in (0.05, 0.3, 0.6, 2.0)
    ]
    assert taken[0] == 8
    assert taken[-1] == 80
    assert taken == sorted(taken)


def test_a_smaller_tolerance_takes_more_draws():
    posterior, x = known(1.0, 0.3, posterity.Categorical(), 200)
    taken = [posterity.predict(posterior, x, "auto", generator(), tolerance=t).samples for t in (0.2, 0.05, 0.02)]
    assert bool((taken[0] <= taken[1]).all())
    assert bool((taken[1] <= taken[2]).all())
    assert float(taken[0].float().mean()) < float(taken[2].float().mean())


def test_a_tie_goes_on_to_the_last_draw():
    found = posterity.predict(*known(0.0, 0.2, posterity.Categorical()), "auto", generator())
    assert float((found.samples == 80).float().mean()) > 0.9


@pytest.mark.parametrize(("most", "expected"), [(80, [8, 16, 40, 80]), (100, [10, 20, 50, 100]), (40, [8, 20, 40])])
def test_rows_may_stop_at_parts_of_all_draws(most, expected):
    assert adaptive.looks(most) == expected


@pytest.mark.parametrize("most", range(1, 130))
def test_every_look_divides_the_last_and_none_is_too_early(most):
    looks = adaptive.looks(most)
    assert looks[-1] == most
    assert all(most % n == 0 for n in looks)
    assert min(looks) >= min(8, most)


def test_the_quantile_is_students():
    for freedom in (7, 9, 15, 39, 99):
        assert adaptive._student(freedom) == pytest.approx(student.ppf(0.975, freedom), abs=2e-3)


@pytest.mark.parametrize("name", METHODS)
def test_without_tolerance_every_method_takes_all_its_draws_and_says_what_they_say(name, case):
    posterior = METHODS[name](case[0], seed=0)
    plain = posterity.predict(posterior, case[1], generator=generator(2))
    found = posterity.predict(posterior, case[1], "auto", generator(2), tolerance=1e-12)
    assert plain.samples is None
    assert found.samples.tolist() == [posterior.draws] * 7
    torch.testing.assert_close(found.probs, plain.probs)
    torch.testing.assert_close(found.total, plain.total)
    torch.testing.assert_close(found.epistemic, plain.epistemic, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_stops_early_repeats_and_leaves_the_global_generator(name, case):
    posterior, before = METHODS[name](case[0], seed=0), torch.get_rng_state()
    first, second = (posterity.predict(posterior, case[1], "auto", generator(2), tolerance=10.0) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.probs, second.probs)
    assert first.samples.shape == (7,)
    assert int(first.samples.min()) == adaptive.looks(posterior.draws)[0]
    assert int(first.samples.max()) <= posterior.draws
    torch.testing.assert_close(first.probs.sum(1), torch.ones(7))
    torch.testing.assert_close(first.total, first.aleatoric + first.epistemic)


def test_map_takes_one_and_an_ensemble_each_member_once():
    x = torch.randn(9, 5, generator=generator())
    assert posterity.predict(posterity.MAP(seeded(mlp)), x, "auto").samples.tolist() == [1] * 9
    ensemble = posterity.DeepEnsemble(seeded(mlp), 5, seed=0)
    found = posterity.predict(ensemble, x, "auto", tolerance=10.0)
    assert found.samples.tolist() == [5] * 9
    torch.testing.assert_close(found.probs, posterity.predict(ensemble, x).probs, rtol=0, atol=0)
    ensemble.draws = 15
    assert posterity.predict(ensemble, x, "auto").samples.tolist() == [5] * 9


def test_a_large_ensemble_may_stop_before_its_last_member():
    ensemble, x = posterity.DeepEnsemble(seeded(mlp), 16, seed=0), torch.randn(9, 5, generator=generator())
    found = posterity.predict(ensemble, x, "auto", tolerance=10.0)
    assert int(found.samples.min()) == 8
    outputs = ensemble.draw(16)(x).softmax(2)
    expected = torch.stack([outputs[:n, i].mean(0) for i, n in enumerate(found.samples.tolist())])
    torch.testing.assert_close(found.probs, expected)


def varied(k: int = 16) -> posterity.IBNN:
    """A posterior whose rows need different numbers of draws."""
    posterior = posterity.IBNN(seeded(mlp), k, seed=0)
    with torch.no_grad():
        posterior.means.copy_(1 + 0.4 * torch.randn(posterior.means.shape, generator=generator(5)))
        posterior.network[-1].weight.mul_(3)
    return posterior


def rows(n: int = 60) -> Tensor:
    return torch.linspace(0.01, 4, n)[:, None] * torch.randn(n, 5, generator=generator(3))


def test_a_row_is_the_average_of_the_first_draws_of_the_set():
    posterior, x = varied(), rows()
    found = posterity.predict(posterior, x, "auto", generator())
    assert len(found.samples.unique()) >= 3
    sets = adaptive.Rounds(posterior, TOLERANCE, generator()).sets
    outputs = torch.cat([functions(x) for functions in sets]).softmax(2)
    expected = torch.stack([outputs[:n, i].mean(0) for i, n in enumerate(found.samples.tolist())])
    torch.testing.assert_close(found.probs, expected)


def test_a_prefix_is_spread_over_the_components_and_favours_none():
    posterior = varied()
    with torch.no_grad():
        posterior.spreads.fill_(-20.0)
    firsts = set()
    for seed in range(5):
        sets = adaptive.Rounds(posterior, TOLERANCE, generator(seed)).sets
        noise = torch.cat([functions.noise for functions in sets])
        chosen = torch.cdist(noise, posterior.means.detach()).argmin(1)
        assert len(chosen[:8].unique()) == 8
        assert len(chosen[:16].unique()) == 16
        assert chosen[:40].bincount(minlength=16).tolist().count(2) == 8
        assert chosen.bincount().tolist() == [5] * 16
        firsts |= set(chosen[:8].tolist())
    assert len(firsts) > 12


def test_a_row_depends_neither_on_its_batch_nor_on_the_kind_of_data():
    posterior, x = varied(), rows()
    expected = posterity.predict(posterior, x, "auto", generator())
    others = [
        posterity.predict(posterior, x, "auto", generator(), batch_size=7),
        posterity.predict(posterior, x.numpy(), "auto", generator()),
        posterity.predict(posterior, (x,), "auto", generator()),
        posterity.predict(posterior, TensorDataset(x), "auto", generator()),
        posterity.predict(posterior, DataLoader(TensorDataset(x, torch.arange(60)), 11), "auto", generator()),
    ]
    for other in others:
        assert torch.equal(other.samples, expected.samples)
        torch.testing.assert_close(other.probs, expected.probs)
    alone = posterity.predict(posterior, x[17:18], "auto", generator())
    assert torch.equal(alone.samples, expected[17].samples)


def test_rows_that_go_on_are_divided_where_there_are_too_many(monkeypatch):
    posterior, x = varied(), rows()
    expected = posterity.predict(posterior, x, "auto", generator())
    monkeypatch.setattr(adaptive, "LARGEST", 80 * 3 * 4)
    found = posterity.predict(posterior, x, "auto", generator())
    assert torch.equal(found.samples, expected.samples)
    torch.testing.assert_close(found.probs, expected.probs)


@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_a_mixture_of_fewer_draws_is_the_same_mixture_written_with_all(heteroscedastic):
    posterior, x = posterity.IBNN(seeded(lambda: mlp(5, 2)), 4, seed=0), rows(30)
    posterior.likelihood = posterity.Gaussian(heteroscedastic=True) if heteroscedastic else posterity.Gaussian(std=2.0)
    found = posterity.predict(posterior, x, "auto", generator())
    assert len(found.samples.unique()) > 1
    assert found.means.shape[:2] == (40, 30)
    whole = torch.cat([functions(x) for functions in adaptive.Rounds(posterior, TOLERANCE, generator()).sets])
    assert torch.equal(found.rescale(1.0, 2.0).samples, found.samples)
    y = torch.zeros_like(found.mean)
    for i, n in enumerate(found.samples.tolist()):
        one = posterity.prediction.GaussianPrediction.gather([whole[:n, i : i + 1]], posterior.likelihood)
        row = found[i]
        torch.testing.assert_close(row.total, one.total)
        torch.testing.assert_close(row.log_prob(y[i : i + 1]), one.log_prob(y[i : i + 1]))
        torch.testing.assert_close(row.quantile(0.1), one.quantile(0.1))


def test_of_several_labels_the_worst_decides():
    posterior, x = known(1.0, 0.02, posterity.Bernoulli(), 40)
    posterior.network.outputs = 1
    assert posterity.predict(posterior, x, "auto", generator()).samples.tolist() == [8] * 40
    outputs = torch.randn(8, 40, 3, generator=generator()) * torch.tensor([0.01, 0.01, 1.0]) + 2
    each = torch.stack([adaptive.of_labels(outputs[..., i], posterior.likelihood) for i in range(3)])
    torch.testing.assert_close(adaptive.of_labels(outputs, posterior.likelihood), each.amax(0))


def test_maps_stop_by_the_mean_over_their_positions():
    network = seeded(lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1)))
    posterior, x = posterity.IBNN(network, 4, seed=0), torch.randn(5, 2, 6, 6, generator=generator())
    found = posterity.predict(posterior, x, "auto", generator(), tolerance=0.2)
    assert found.probs.shape == (5, 3, 6, 6)
    assert found.samples.shape == (5,)
    outputs = torch.full((8, 2, 3, 40, 40), 5.0) * torch.tensor([1.0, 0.0, 0.0])[:, None, None]
    outputs[:, 0, :, 0, 0] = 5 * torch.randn(8, 3, generator=generator())
    outputs[:, 1, :, :20] = 5 * torch.randn(8, 3, 20, 40, generator=generator())
    widths = adaptive.of_classes(outputs, posterior.likelihood)
    assert float(widths[0]) < TOLERANCE < float(widths[1])


def test_a_prediction_takes_its_samples_along():
    found = posterity.predict(varied(), rows(), "auto", generator())
    assert torch.equal(found[[3, 1]].samples, found.samples[[3, 1]])
    assert torch.equal(found.to("cpu").samples, found.samples)


def test_the_widest_of_probabilities_and_uncertainties_decides():
    def width(values: Tensor) -> float:
        return float(values.std(0).max()) * student.ppf(0.975, 7) / math.sqrt(8)

    close = torch.tensor([0.1, -0.1] * 4)[:, None] + torch.tensor([0.5])
    probs = torch.stack([close, 0 * close], 2).softmax(2)
    found = float(adaptive.of_classes(probs.log(), posterity.Categorical()))
    assert width(probs) < found < 1.6 * width(probs)

    # One class is sure; the rest is on one of the others, or on all.
    rest = torch.cat([torch.full((4, 8), 0.5 / 8), 0.5 * torch.eye(8)[:4]]) + 0.02
    probs = torch.cat([torch.full((8, 1), 0.8), rest], 1).unsqueeze(1)
    probs = probs / probs.sum(2, keepdim=True)
    divergence = (probs * (probs.log() - probs.mean(0).log())).sum(2)
    found = float(adaptive.of_classes(probs.log(), posterity.Categorical()))
    assert 1.5 * width(probs) < width(divergence) < found < 2 * width(divergence)


def test_logits_of_minus_infinity_and_one_class_settle():
    outputs = torch.zeros(8, 3, 4)
    outputs[:, :, 1], outputs[:, :, 0] = -torch.inf, 3.0
    assert adaptive.of_classes(outputs, posterity.Categorical()).tolist() == [0.0] * 3
    assert adaptive.of_classes(torch.randn(8, 3, 1), posterity.Categorical()).tolist() == [0.0] * 3


def test_draws_that_are_no_numbers_never_settle():
    outputs = torch.full((8, 3, 4), torch.nan)
    assert not bool((adaptive.of_classes(outputs, posterity.Categorical()) <= 10).any())


def test_mistakes_are_named():
    x = torch.zeros(2, 5)
    for tolerance in (0.0, -1.0, math.nan, "much"):
        with pytest.raises(posterity.Error, match="tolerance"):
            posterity.predict(varied(), x, "auto", tolerance=tolerance)
    with pytest.raises(posterity.Error, match="samples"):
        posterity.predict(varied(), x, "automatic")
    with pytest.raises(posterity.Error, match="Bernoulli"):
        posterity.predict(posterity.BayesByBackprop(nn.Sequential(nn.Linear(5, 1), nn.Flatten(0))), x, "auto")
