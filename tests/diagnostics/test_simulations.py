"""Tests of the inference: an exact posterior passes, and each known fault is found and named.

Where one run must pass, its level of 0.01 is the rate of false alarms over seeds; the seeds are fixed.
"""

import dataclasses

import numpy as np
import pytest
import torch
from conjugate import linear, normal, simulated
from scipy import stats

from common import generator
from posterity import diagnostics
from posterity.diagnostics.uniformity import kolmogorov, rank
from posterity.errors import Error

FAULTS = {"narrow": "over-confident", "wide": "under-confident"}


@pytest.mark.parametrize("dimensions", [2, 10])
def test_the_exact_posterior_passes_both_tests(dimensions):
    runs = simulated(dimensions=dimensions, features=2 * dimensions)
    assert diagnostics.sbc(*runs).passed
    assert diagnostics.tarp(*runs).passed
    assert diagnostics.tarp(*runs).verdict == "no fault found"
    assert "No fault found at 300 simulations" in str(diagnostics.tarp(*runs))


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_wrong_width_is_found_and_named(kind, seed):
    runs = simulated(kind, seed)
    result = diagnostics.tarp(*runs)
    assert result.verdict == FAULTS[kind]
    assert str(result).lower().startswith(FAULTS[kind])
    ranks = diagnostics.sbc(*runs)
    assert not ranks.passed
    assert all(ranks.fault(q).startswith(FAULTS[kind]) for q in range(2))


def test_quantities_share_the_level():
    result = diagnostics.sbc(*simulated(), names=["a", "b"])
    assert result.names[:2] == ["a", "b"]
    assert result.p_value == pytest.approx(min(1, 3 * float(result.p_values.min())))


def test_sbc_names_the_direction_of_a_shift():
    result = diagnostics.sbc(*simulated("shifted"))
    assert not result.passed
    assert result.fault(0) == result.fault(1) == "shifted: the draws lie too high"


@pytest.mark.parametrize("dimensions", [2, 10])
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_a_posterior_that_is_the_prior_is_found_with_the_data(dimensions, seed):
    samples, truth, x = simulated("prior", seed, dimensions=dimensions, features=2 * dimensions)
    assert diagnostics.tarp(samples, truth, x).verdict == "misplaced"
    result = diagnostics.sbc(samples, truth, x)
    assert not result.passed
    assert "do not answer to the data" in str(result)


def test_a_posterior_that_is_the_prior_passes_where_references_ignore_the_data():
    samples, truth, _ = simulated("prior", 1)
    blind = diagnostics.tarp(samples, truth, references="uniform")
    constant = diagnostics.tarp(samples, truth, references=torch.full_like(truth, 0.7))
    assert blind.passed
    assert constant.passed
    assert "would pass" in str(blind)
    ranks = diagnostics.sbc(samples, truth)
    assert ranks.passed
    assert "cannot see" in str(ranks)


def test_references_that_follow_the_data_keep_the_level():
    """At the level 0.1, alarms in 400 runs are binomial: within 4 standard errors but for 1 set of seeds in 16,000."""
    alarms = [diagnostics.tarp(*simulated(seed=seed, n=40, s=15), bootstraps=1).ks < 0.1 for seed in range(400)]
    assert abs(np.mean(alarms) - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 400)


def test_width_is_standard_normal_for_the_exact_posterior():
    widths = np.array([diagnostics.tarp(*simulated(seed=seed, n=40, s=15), bootstraps=1).width for seed in range(400)])
    assert abs(widths.mean()) < 4 / np.sqrt(400)
    assert abs(widths.var() - 1) < 4 * np.sqrt(2 / 400)


def test_the_tests_of_uniformity_keep_their_level():
    """Bonferroni's bound is not met exactly, so the rate lies between half the level and the level, give or take."""
    u = torch.rand(50, 40_000, generator=generator(3), dtype=torch.float64)
    found = diagnostics.uniformity(u)
    error = 4 * np.sqrt(0.01 / 40_000)
    assert 0.005 - error < float((found.p_value < 0.01).double().mean()) < 0.01 + error
    for z in (found.bias, found.spread):
        assert abs(float(z.mean())) < 4 / np.sqrt(40_000)
        assert abs(float(z.var()) - 1) < 4 * np.sqrt(2 / 40_000)


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_kolmogorov_agrees_with_scipy(n):
    """Stephens' correction is good to 5 % where a p-value decides, and to 0.02 elsewhere."""
    u = torch.rand(n, 50, generator=generator(n), dtype=torch.float64) ** torch.linspace(0.6, 1.6, 50)
    expected = np.array([stats.kstest(column, "uniform").pvalue for column in u.T.numpy()])
    found = kolmogorov(u).numpy()
    decisive = (expected > 1e-4) & (expected < 0.1)
    assert decisive.sum() > 5
    assert np.abs(found / expected - 1)[decisive].max() < 0.05
    assert np.abs(found - expected).max() < 0.02


def test_ranks_are_counts_and_ties_fall_by_lot():
    draws = torch.arange(10.0, dtype=torch.float64).repeat(4000, 1).T
    ranks, u = rank(draws, torch.full((4000,), 2.5, dtype=torch.float64), generator())
    assert bool((ranks == 3).all())
    assert float(u.min()) > 3 / 11
    assert float(u.max()) < 4 / 11
    equal, _ = rank(torch.zeros(4, 4000, dtype=torch.float64), torch.zeros(4000, dtype=torch.float64), generator())
    shares = torch.bincount(equal, minlength=5) / 4000
    assert bool(((shares - 0.2).abs() < 4 * np.sqrt(0.2 * 0.8 / 4000)).all())


def test_few_draws_do_not_spoil_the_tests():
    runs = simulated(s=3, n=500)
    assert diagnostics.sbc(*runs).passed
    assert diagnostics.tarp(*runs).passed
    assert int(diagnostics.sbc(*runs).ranks.max()) == 3


def test_coverage_runs_from_0_to_1_and_its_band_has_the_binomial_width():
    result = diagnostics.tarp(*simulated(n=400), bootstraps=2000)
    assert (float(result.coverage[0]), float(result.coverage[-1])) == (0, 1)
    middle = result.coverage[5:-5]
    expected = 2 * 1.96 * (middle * (1 - middle) / 400).sqrt()
    # An end of the band is a quantile of 2,000 resamplings: its standard error is 3 % of the band, and ties add 1/N.
    assert bool((((result.high - result.low)[5:-5] - expected).abs() < 0.12 * expected + 1 / 400).all())
    assert bool(((result.low <= result.coverage) & (result.coverage <= result.high)).all())


def test_references_may_be_points_or_a_function_of_the_data():
    samples, truth, x = simulated("prior")
    gain = linear().gain
    by_function = diagnostics.tarp(samples, truth, x, references=lambda data: data @ gain.T)
    by_points = diagnostics.tarp(samples, truth, references=x @ gain.T)
    assert by_function.p_value == by_points.p_value
    assert by_function.verdict == "misplaced"


def test_results_depend_on_neither_the_units_nor_the_kind_of_array():
    samples, truth, x = simulated(n=60)
    expected = diagnostics.tarp(samples, truth, x)
    scaled = diagnostics.tarp(1000 * samples.numpy() + 5, 1000 * truth.numpy() + 5, 0.01 * x.numpy())
    assert scaled.p_value == pytest.approx(expected.p_value)
    points = x @ linear().gain.T
    expected = diagnostics.tarp(samples, truth, references=points)
    scaled = diagnostics.tarp(1000 * samples + 5, 1000 * truth + 5, references=1000 * points + 5)
    assert torch.allclose(scaled.coverage, expected.coverage)
    assert (
        diagnostics.sbc(samples[..., 0], truth[:, 0]).p_value == diagnostics.sbc(samples[..., :1], truth[:, :1]).p_value
    )


def test_data_that_do_not_move_the_mean_still_serve():
    """θ and −θ give the same x: a regression of θ on x says nothing, and the random map finds the prior out."""
    g = generator(1)
    truth = normal(g, 1000, 1)
    x = truth.square() + 0.1 * normal(g, 1000, 1)
    assert diagnostics.tarp(normal(g, 100, 1000, 1), truth, x).verdict == "misplaced"


def conjugate_run(g):
    model = linear()
    truth, x = model.truths(1, g)
    return truth[0], model.draws(50, x, g)[:, 0], x[0]


def test_the_driver_gives_what_the_tests_take():
    runs = diagnostics.simulations(conjugate_run, 60, seed=1, progress=False)
    assert [tuple(part.shape) for part in runs] == [(50, 60, 2), (60, 2), (60, 4)]
    assert runs.sbc().passed
    assert runs.tarp().passed
    assert runs.tarp().p_value == diagnostics.tarp(*runs).p_value
    without = diagnostics.simulations(lambda g: conjugate_run(g)[:2], 30, seed=1)
    assert without.x is None
    assert torch.equal(without.truth, runs.truth[:30])


def test_a_simulation_depends_on_the_seed_and_its_number_alone(capsys):
    def with_global_noise(g):
        return torch.randn(2), torch.randn(5, 2) + torch.randn(5, 2, generator=g)

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = diagnostics.simulations(with_global_noise, 3, seed=4, progress=True)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert "simulation" in capsys.readouterr().err
    again = diagnostics.simulations(with_global_noise, 2, seed=4)
    assert torch.equal(first.samples[:, :2], again.samples)
    assert not torch.equal(first.truth[0], first.truth[1])
    assert not torch.equal(diagnostics.simulations(with_global_noise, 2, seed=5).truth, again.truth)


def test_figures_are_drawn():
    runs = simulated(n=60)
    assert len(diagnostics.sbc(*runs).plot().axes) == 3
    axes = diagnostics.tarp(*runs).plot().axes[0]
    assert axes.get_xlabel() == "credibility"


def test_results_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        diagnostics.tarp(*simulated(n=30)).p_value = 1.0


SAMPLES, TRUTH, DATA = simulated(n=30, s=10)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((SAMPLES, TRUTH), {}, "prior passes"),
        ((SAMPLES, TRUTH), {"references": lambda x: x}, "give x"),
        ((SAMPLES, TRUTH), {"references": "random"}, "'random'"),
        ((SAMPLES, TRUTH), {"references": TRUTH[:, :1]}, "one point per truth"),
        ((SAMPLES, TRUTH, DATA[:7]), {}, "30 simulations"),
        ((SAMPLES, TRUTH, torch.ones_like(DATA)), {}, "the same in every simulation"),
        ((SAMPLES, TRUTH, DATA), {"level": 2}, "level"),
        ((SAMPLES, TRUTH, DATA), {"bootstraps": 0}, "bootstraps"),
        ((SAMPLES.movedim(0, 1), TRUTH, DATA), {}, "expected"),
        ((SAMPLES * float("nan"), TRUTH, DATA), {}, "NaN"),
        ((SAMPLES[:, :9], TRUTH[:9], DATA[:9]), {}, "at least 20"),
        ((SAMPLES[:0], TRUTH, DATA), {}, "empty"),
        (("draws", TRUTH, DATA), {}, "array of numbers"),
    ],
)
def test_mistakes_are_explained(arguments, options, words):
    with pytest.raises(Error, match=words):
        diagnostics.tarp(*arguments, **options)


def test_mistakes_of_names_and_simulators_are_explained():
    with pytest.raises(Error, match="1 names for 2"):
        diagnostics.sbc(SAMPLES, TRUTH, names=["a"])
    for simulate, words in [
        (lambda g: torch.zeros(2), "simulate must return"),
        (lambda g: (torch.zeros(2), torch.zeros(5, 3)), "expected"),
        (lambda g: (torch.zeros(2), torch.zeros(int(torch.randint(3, 99, (), generator=g)), 2)), "other shapes"),
        (None, "function of a generator"),
    ]:
        with pytest.raises(Error, match=words):
            diagnostics.simulations(simulate, 5, seed=0)
