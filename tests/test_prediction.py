"""Predictions: decompositions, mixtures and their quantiles, against slow or independent computations."""

import math
import sys
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import posterity
from common import generator, mlp, seeded
from posterity import weights
from posterity.posterior import randn
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction
from posterity.streams import stream

N, B = 5, 8


def gaussian(outputs: int = 1) -> GaussianPrediction:
    g = generator()
    means = torch.randn(N, B, outputs, generator=g, dtype=torch.float64)
    return GaussianPrediction(means, 0.1 + torch.rand(N, B, outputs, generator=g, dtype=torch.float64))


def mixture(p: GaussianPrediction) -> torch.distributions.Distribution:
    weights = torch.distributions.Categorical(torch.ones(B, 1, N, dtype=torch.float64))
    parts = torch.distributions.Normal(p.means.movedim(0, -1), p.variances.sqrt().movedim(0, -1))
    return torch.distributions.MixtureSameFamily(weights, parts)


def test_answers_of_a_transposed_shape_are_refused():
    prediction = gaussian(outputs=2)
    with pytest.raises(posterity.Error, match=r"of shape \(2, 8\)"):
        prediction.log_prob(torch.zeros(2, B))


def test_a_gaussian_prediction_is_the_mixture_of_its_draws():
    p, y = gaussian(), torch.randn(B, 1, dtype=torch.float64)
    q = mixture(p)
    torch.testing.assert_close(p.mean, q.mean)
    torch.testing.assert_close(p.total, q.variance)
    torch.testing.assert_close(p.std, q.stddev)
    torch.testing.assert_close(p.cdf(y), q.cdf(y))
    torch.testing.assert_close(p.log_prob(y), q.log_prob(y).squeeze(1))
    torch.testing.assert_close(p.total, p.aleatoric + p.epistemic)


def test_several_outputs_of_a_datum_belong_to_one_draw():
    p, y = gaussian(2), torch.randn(B, 2, dtype=torch.float64)
    each = torch.distributions.Normal(p.means, p.variances.sqrt()).log_prob(y).sum(2)
    torch.testing.assert_close(p.log_prob(y), each.logsumexp(0) - math.log(N))


@pytest.mark.parametrize("q", [0.001, 0.05, 0.5, 0.95, 0.999])
def test_quantiles_invert_the_distribution_function(q):
    p = gaussian()
    torch.testing.assert_close(p.cdf(p.quantile(q)), torch.full((B, 1), q, dtype=torch.float64))


@pytest.mark.parametrize(("level", "end"), [(1 - 1e-6, 4.891638), (1 - 1e-7, 5.326724), (1 - 1e-8, 5.730729)])
def test_an_interval_of_nearly_all_is_right_at_both_ends_in_single_precision(level, end):
    low, high = GaussianPrediction(torch.zeros(1, 1, 1), torch.ones(1, 1, 1)).interval(level)
    assert low.dtype == torch.float32
    assert [float(low), float(high)] == pytest.approx([-end, end], abs=1e-5)


@pytest.mark.parametrize("far", [1e20, 1e60, 1e150])
def test_a_draw_that_is_far_from_the_others_does_not_spoil_their_quantiles(far):
    means = torch.tensor([0.0, far], dtype=torch.float64).view(2, 1, 1)
    assert float(GaussianPrediction(means, torch.ones_like(means)).quantile(0.25)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("mean", [0.0, 2024.0, -1e6])
@pytest.mark.parametrize("std", [0.01, 1.0, 100.0])
def test_a_quantile_takes_no_more_halvings_than_its_digits_need(mean, std, monkeypatch):
    calls, ndtr = [], torch.special.ndtr
    monkeypatch.setattr(torch.special, "ndtr", lambda z: calls.append(0) or ndtr(z))
    shape = torch.randn(10, 100, 1, generator=generator(), dtype=torch.float64)
    prediction = GaussianPrediction(mean + std * shape, torch.full_like(shape, std**2))
    prediction.quantile(0.05)
    assert len(calls) <= 56
    torch.testing.assert_close(prediction.cdf(prediction.quantile(0.05)), torch.full((100, 1), 0.05).double())


@pytest.mark.parametrize("odd", [torch.inf, -torch.inf, torch.nan])
def test_a_row_without_a_quantile_leaves_the_others_theirs(odd):
    means = torch.zeros(2, 2, 1, dtype=torch.float64)
    means[0, 0] = odd
    found = GaussianPrediction(means, torch.ones_like(means)).quantile(0.9)
    assert float(found[1]) == pytest.approx(1.2815515655446, abs=1e-9)


def test_an_interval_of_all_is_refused_by_its_own_name():
    with pytest.raises(posterity.Error, match="An interval's level must be further from 1"):
        gaussian().interval(1 - 1e-16)


def test_an_interval_holds_its_share_and_is_not_mean_plus_minus_std():
    far = GaussianPrediction(torch.tensor([-5.0, 5.0]).view(2, 1, 1), torch.full((2, 1, 1), 0.01))
    low, high = far.interval(0.9)
    assert float(low) == pytest.approx(-5 - 0.1 * 1.2816, abs=1e-3)
    torch.testing.assert_close(far.cdf(high) - far.cdf(low), torch.full((1, 1), 0.9), atol=1e-5, rtol=0)


def test_an_interval_holds_nine_tenths_unless_another_level_is_given():
    p = gaussian()
    torch.testing.assert_close(p.interval(), p.interval(0.9), rtol=0, atol=0)


def test_answers_meet_the_mean_with_and_without_its_last_axis_but_not_otherwise():
    p, y = gaussian(), torch.randn(B, 1, dtype=torch.float64)
    torch.testing.assert_close(p.log_prob(y[:, 0]), p.log_prob(y), rtol=0, atol=0)
    with pytest.raises(posterity.Error, match="must be the same"):
        p.log_prob(y[:3])


def test_a_prediction_of_real_numbers_has_the_variances_of_the_likelihood_batch_by_batch():
    posterior = posterity.IBNN(seeded(lambda: mlp(5, 2)), 3, seed=0)
    posterior.likelihood = posterity.Gaussian(std=[0.5, 3.0])
    x = torch.randn(7, 5, generator=generator())
    whole, parts = (posterity.predict(posterior, x, N, generator(), batch_size=size) for size in (None, 2))
    torch.testing.assert_close(whole.aleatoric, torch.tensor([0.25, 9.0]).expand(7, 2))
    torch.testing.assert_close(whole.means, posterior.draw(N, generator())(x))
    torch.testing.assert_close(parts.means, whole.means)
    torch.testing.assert_close(parts.variances, whole.variances)


def test_rescale_returns_to_the_targets_units():
    p = gaussian()
    scaled, y = p.rescale(10.0, 3.0), torch.randn(B, 1, dtype=torch.float64)
    torch.testing.assert_close(scaled.mean, 10 + 3 * p.mean)
    torch.testing.assert_close(scaled.std, 3 * p.std)
    torch.testing.assert_close(scaled.log_prob(10 + 3 * y), p.log_prob(y) - math.log(3.0))


def test_categorical_parts_are_entropies():
    outputs = 3 * torch.randn(N, B, 4, generator=generator(), dtype=torch.float64)
    p = CategoricalPrediction.gather([outputs[:2], outputs[2:]], posterity.Categorical())
    probs = outputs.softmax(2)
    entropy = torch.distributions.Categorical(probs=probs).entropy()
    torch.testing.assert_close(p.probs, probs.mean(0))
    torch.testing.assert_close(p.total, torch.distributions.Categorical(probs=probs.mean(0)).entropy())
    torch.testing.assert_close(p.aleatoric, entropy.mean(0))
    torch.testing.assert_close(p.epistemic, p.total - p.aleatoric)
    y = torch.arange(B) % 4
    torch.testing.assert_close(p.log_prob(y), probs.mean(0)[range(B), y].log())


def test_certain_draws_have_finite_logarithms():
    outputs = torch.zeros(2, 1, 3)
    outputs[:, :, 0] = 300.0
    p = CategoricalPrediction.gather([outputs], posterity.Categorical())
    assert float(p.log_prob(torch.tensor([1]))) == pytest.approx(-300, abs=1)
    assert float(p.total) == 0.0
    assert bool(torch.isfinite(p.epistemic).all())


def test_bernoulli_parts_are_binary_entropies():
    outputs = torch.randn(N, B, 2, generator=generator())
    p = BernoulliPrediction.gather([outputs[:1], outputs[1:]], posterity.Bernoulli())
    probs = outputs.double().sigmoid()
    torch.testing.assert_close(p.probs, probs.mean(0))
    torch.testing.assert_close(p.total, torch.distributions.Bernoulli(probs.mean(0)).entropy())
    torch.testing.assert_close(p.aleatoric, torch.distributions.Bernoulli(probs).entropy().mean(0))
    y = torch.tensor([[0.0, 1.0]]).expand(B, 2)
    torch.testing.assert_close(p.log_prob(y), (probs.mean(0)[:, 1] * (1 - probs.mean(0)[:, 0])).log())


def test_a_certain_yes_has_a_finite_logarithm():
    p = BernoulliPrediction(torch.tensor([0.0, 1.0]), torch.zeros(2))
    assert float(p.log_prob(torch.ones(2))[1]) == pytest.approx(0.0, abs=1e-11)
    assert bool(p.log_prob(torch.zeros(2)).isfinite().all())


def posterior() -> posterity.Posterior:
    return posterity.IBNN(seeded(mlp), 3, seed=0)


def test_every_kind_of_data_gives_the_same():
    class Items(Dataset):
        def __len__(self):
            return 20

        def __getitem__(self, i):
            return x[i], i % 3

    x = torch.randn(20, 5)
    expected = posterity.predict(posterior(), x, 6, generator()).probs
    for data in (
        x.numpy(),
        x.double().numpy(),
        TensorDataset(x),
        TensorDataset(x, torch.arange(20)),
        Items(),
        DataLoader(Items(), batch_size=7),
        (x,),
        x.numpy()[::1],
    ):
        torch.testing.assert_close(posterity.predict(posterior(), data, 6, generator()).probs, expected)


def test_predict_says_what_is_wrong():
    for data, word in (
        (torch.tensor([[float("nan")] * 5]), "NaN"),
        (torch.zeros(0, 5), "no rows"),
        (np.array([["a"] * 5]), "numbers"),
        ("text", "as a tensor"),
    ):
        with pytest.raises(posterity.Error, match=word):
            posterity.predict(posterior(), data, 2)
    with pytest.raises(posterity.Error, match="samples"):
        posterity.predict(posterior(), torch.zeros(1, 5), 0)
    for bad in (0.0, 1.0, -1):
        with pytest.raises(posterity.Error):
            gaussian().quantile(bad)
        with pytest.raises(posterity.Error, match="level"):
            gaussian().interval(bad)


def test_outputs_without_a_class_axis_name_the_other_likelihoods():
    with pytest.raises(posterity.Error, match="Bernoulli"):
        posterity.predict(
            posterity.MAP(torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))), torch.ones(4, 3)
        )


def test_memory_does_not_grow_with_the_draws():
    """The stream hands on a few draws at a time, and only sums are kept."""
    functions = posterior().draw(500, generator())
    functions.rows_at_once = 64
    sizes = [len(part) for part in functions.stream(torch.randn(16, 5))]
    assert sum(sizes) == 500
    assert max(sizes) == 4


def test_rescaling_keeps_the_digits_of_a_large_offset():
    p = GaussianPrediction(torch.zeros(1, 3, 1), torch.ones(1, 3, 1)).rescale(1.7e9, 60.0)
    low, high = p.interval(0.9)
    torch.testing.assert_close(high - low, torch.full((3, 1), 2 * 60 * 1.6448536269514722, dtype=torch.float64))


def test_the_likelihoods_ignored_label_is_the_predictions():
    posterior = posterity.MAP(seeded(mlp))
    posterior.likelihood = posterity.Categorical(ignore=255)
    x, y = torch.randn(6, 5), torch.tensor([0, 1, 2, 255, 255, 255])
    prediction = posterity.predict(posterior, x)
    torch.testing.assert_close(prediction.log_prob(y)[3:], torch.zeros(3))
    scores = posterity.evaluation.score(prediction, y)
    seen = posterity.evaluation.score(posterity.predict(posterior, x[:3]), y[:3])
    assert scores == pytest.approx(seen)


def test_a_std_for_each_output_follows_the_output_axis():
    y, out = torch.randn(4, 2, 2), torch.randn(3, 4, 2, 2)
    expected = torch.distributions.Normal(out, torch.tensor([0.1, 3.0])[:, None]).log_prob(y).sum((2, 3))
    torch.testing.assert_close(posterity.Gaussian(std=[0.1, 3.0]).log_prob(out, y), expected)


def test_a_dataset_does_not_move_the_global_generator():
    state = torch.get_rng_state()
    posterity.predict(posterior(), TensorDataset(torch.ones(9, 5)), 3, generator())
    posterity.predict(posterior(), DataLoader(TensorDataset(torch.ones(9, 5)), 4), 3, generator())
    assert torch.equal(torch.get_rng_state(), state)


def test_each_weight_sample_is_generated_once_for_all_batches(monkeypatch):
    posterior = posterity.BayesByHypernet(seeded(mlp), seed=0)
    made = []
    sample = posterior.sample
    monkeypatch.setattr(posterior, "sample", lambda n, generator=None: made.append(n) or sample(n, generator))
    posterity.predict(posterior, torch.randn(50, 5, generator=generator()), 100, batch_size=5)
    assert made == [100]


@pytest.mark.parametrize("likelihood", [posterity.Categorical(), posterity.Bernoulli(), posterity.Gaussian(std=0.3)])
@pytest.mark.parametrize("pairs", [False, True])
def test_weights_that_are_held_in_turns_give_the_prediction_of_all_at_once(monkeypatch, likelihood, pairs):
    posterior = posterity.BayesByBackprop(seeded(mlp), init_std=0.3)
    posterior.likelihood = likelihood
    x, held = torch.randn(9, 5, generator=generator()), []
    module = sys.modules[type(posterior).__module__]
    monkeypatch.setattr(weights, "HELD", 1)
    monkeypatch.setattr(module, "randn", lambda size, *args: held.append(size[0]) or randn(size, *args))
    own = generator()
    found, after = posterity.predict(posterior, x, 40, own, pairs=pairs), torch.rand(3, generator=own)
    assert held == [16, 16, 8]
    held.clear()
    again = generator()
    loader = DataLoader(TensorDataset(x), 4)  # rows that are read once: all functions are held
    expected = posterity.predict(posterior, loader, 40, again, pairs=pairs)
    assert held == ([40] if pairs else [16, 16, 8])
    assert torch.equal(after, torch.rand(3, generator=again))
    assert vars(found).keys() == vars(expected).keys()
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(found, name), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"drop_last": True, "batch_size": 3}])
def test_a_loader_that_gives_rows_in_another_order_warns(options):
    posterior, x = posterity.MAP(seeded(mlp)), torch.randn(B, 5, generator=generator())
    with pytest.warns(UserWarning, match="shuffles its rows or drops the last"):
        posterity.predict(posterior, DataLoader(TensorDataset(x), **options))
    with pytest.warns(UserWarning, match="shuffles its rows or drops the last"):
        posterity.predict(posterior, DataLoader(TensorDataset(x), **options), "auto")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterity.predict(posterior, DataLoader(TensorDataset(x), batch_size=4, drop_last=True))


def test_a_seed_stands_for_a_generator():
    x = torch.randn(4, 5)
    one, two = (posterity.predict(posterior(), x, 3, seed=5).probs for _ in range(2))
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    torch.testing.assert_close(one, posterity.predict(posterior(), x, 3, stream(5, "draws")).probs, rtol=0, atol=0)
    with pytest.raises(posterity.Error, match="not both"):
        posterity.predict(posterior(), x, 3, generator(5), seed=5)


def test_a_prediction_says_what_it_holds():
    assert repr(posterity.predict(posterior(), torch.randn(2, 5), 2)) == (
        "CategoricalPrediction of 2 rows: probs, total, aleatoric, epistemic"
    )
    assert "mean, std, interval" in repr(gaussian())


def test_probabilities_of_another_model_become_the_prediction_of_the_same_draws():
    posterior = posterity.DeepEnsemble(seeded(mlp), 3, seed=0)
    x, y = torch.randn(7, 5, generator=generator()), torch.arange(7) % 3
    drawn = posterior.draw(3)(x).detach()
    mine, known = posterity.Prediction.from_probs(drawn.softmax(-1)), posterity.predict(posterior, x, samples=3)
    for name in ("probs", "total", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(mine, name), getattr(known, name))
    torch.testing.assert_close(mine.log_prob(y), known.log_prob(y))
    alone = posterity.Prediction.from_probs(drawn[0].softmax(-1))
    assert not alone.epistemic.any()
    torch.testing.assert_close(alone.probs, drawn[0].softmax(-1))


@pytest.mark.parametrize(
    "probs", [torch.tensor([0.5, 0.5]), torch.tensor([[0, 1]]), torch.tensor([[2.0, -1.0]]), torch.tensor([[0.5, 0.2]])]
)
def test_what_is_no_probability_is_refused(probs):
    with pytest.raises(posterity.Error, match="robabilities"):
        posterity.Prediction.from_probs(probs)


@pytest.mark.parametrize("method", posterity.methods())
def test_inputs_that_the_network_does_not_take_get_a_sentence(method):
    posterior = posterity.methods()[method](seeded(mlp), seed=0)
    x, y = torch.randn(20, 5), torch.arange(20) % 3
    wrong = {
        r"\(20, 2\) of float32\): mat1 and mat2": x[:, :2],
        "as x.float": x.long(),
        "answers are left out": (x, y),
        "names of the network's arguments; these are x": {"x": x},
    }
    for words, given in wrong.items():
        with pytest.raises(posterity.Error, match=words):
            posterity.predict(posterior, given)
        with pytest.raises(posterity.Error, match="does not take these inputs"):
            posterity.fit(posterior, (given, y), epochs=1, batch_size=20, progress=False)
    assert posterity.predict(posterior, x).probs.shape == (20, 3)


def test_an_error_that_is_not_the_inputs_stays_what_it_is():
    class Broken(torch.nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x):
            Broken.calls += 1
            if Broken.calls == 1:
                raise KeyError("out of order")
            return self.layer(x)

    with pytest.raises(KeyError, match="out of order"):
        posterity.predict(posterity.MAP(Broken()), torch.randn(4, 3))


@pytest.mark.parametrize("error", [type("EarlyStop", (RuntimeError,), {}), AttributeError, MemoryError, ImportError])
def test_what_a_network_says_of_its_own_is_not_said_of_its_inputs(error):
    class Raising(torch.nn.Linear):
        def forward(self, x):
            raise error("mine")

    with pytest.raises(error, match="mine"):
        posterity.predict(posterity.MAP(Raising(3, 2)), torch.randn(4, 3))


def test_minus_infinity_among_data_is_told():
    class Pair(torch.nn.Linear):
        def forward(self, x, z):
            return super().forward(x) + z

    x, z = torch.randn(4, 3), torch.zeros(4, 2)
    z[1] = -torch.inf
    with pytest.raises(posterity.Error, match="no number: fill it"):
        posterity.predict(posterity.MAP(Pair(3, 2)), (x, z))


def test_complex_inputs_beside_others_reach_the_network():
    class Pair(torch.nn.Linear):
        def forward(self, x, z):
            return super().forward(x) + z.real

    given = torch.randn(4, 3), torch.randn(4, 2, dtype=torch.complex64)
    assert posterity.predict(posterity.MAP(Pair(3, 2)), given).probs.shape == (4, 2)


def test_a_mask_of_minus_infinity_is_no_damaged_input():
    class Attentive(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x, mask):
            return self.layer((mask.softmax(-1) @ x).mean(1))

    mask = torch.zeros(6, 5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    x = {"x": torch.randn(6, 5, 4), "mask": mask}
    posterior = posterity.IBNN(seeded(Attentive), 2, seed=0)
    assert bool(posterity.predict(posterior, x).probs.isfinite().all())
    for key, bad in (("mask", torch.inf), ("x", torch.nan)):
        spoiled = {name: value.clone() for name, value in x.items()}
        spoiled[key][0, 0, 0] = bad
        with pytest.raises(posterity.Error, match="NaN or infinite"):
            posterity.predict(posterior, spoiled)


@pytest.mark.parametrize("method", posterity.methods())
def test_drawn_functions_run_within_vmap(method):
    functions = posterity.methods()[method](seeded(mlp), seed=0).draw(2, generator())
    x = torch.randn(6, 5)
    torch.testing.assert_close(torch.func.vmap(functions)(x[:, None])[:, :, 0].transpose(0, 1), functions(x))


@pytest.mark.parametrize("q", [[0.1, 0.9], "a", None, 0.0, 1.5])
def test_a_quantile_is_one_number(q):
    prediction = GaussianPrediction(torch.zeros(2, 3, 1), torch.ones(2, 3, 1))
    for ask in (prediction.quantile, prediction.interval):
        with pytest.raises(posterity.Error, match="one number between 0 and 1"):
            ask(q)
    for half in (np.float32(0.5), torch.tensor(0.5)):
        assert float(prediction.quantile(half)[0, 0]) == pytest.approx(0, abs=1e-6)
