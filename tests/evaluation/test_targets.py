"""Answers as they come: of other shapes, types and units than the prediction's own, right or refused."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import posterity
from posterity import Prediction, evaluation
from posterity.diagnostics import PredictiveCheck, checks, predictive_check
from posterity.errors import Error
from posterity.prediction import BernoulliPrediction, GaussianPrediction


def numbers(*shape, seed=0):
    """A prediction of numbers, and true ones near its means."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(shape, generator=generator)
    return GaussianPrediction(means.expand(3, *shape), torch.full((3, *shape), 0.01)), means + 0.05


def classes(rows=500, count=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Prediction.from_probs(torch.randn(rows, count, generator=generator).softmax(1)), torch.arange(rows) % count


def test_a_last_axis_of_one_is_none_for_every_score():
    """[n, 1] against [n] would be [n, n]."""
    prediction, y = numbers(50, 1)
    low, high = prediction.interval(0.9)
    for score in (
        lambda y: evaluation.rmse(prediction.mean, y),
        lambda y: evaluation.coverage(low, high, y),
        lambda y: float(evaluation.crps(prediction.means, prediction.variances, y).mean()),
    ):
        assert score(y[:, 0]) == score(y)
        with pytest.raises(Error, match="must be the same"):
            score(y[:20])
    probs = Prediction.from_probs(torch.eye(3)[torch.arange(9) % 3]).probs
    right = torch.arange(9) % 3
    for wrong in (evaluation.error, evaluation.brier, evaluation.ece, evaluation.classwise_ece):
        assert wrong(probs, right[:, None]) == wrong(probs, right) == pytest.approx(0, abs=1e-6)
        assert wrong(probs, right.to(torch.uint8)) == wrong(probs, right)


def test_answers_with_moved_axes_are_refused_and_not_scrambled():
    prediction, y = numbers(6, 2, 4, 4)
    moved = y.movedim(1, -1)
    labels = BernoulliPrediction(torch.rand(50, 3, 4).double(), torch.zeros(50, 3, 4).double())
    for call in (
        lambda: evaluation.score(prediction, moved),
        lambda: evaluation.conformal_intervals(prediction, moved, 0.5),
        lambda: evaluation.interval_scores(prediction, moved),
        lambda: evaluation.temperature(labels, (labels.probs > 0.5).float().movedim(1, -1)),
        lambda: predictive_check(prediction, moved),
    ):
        with pytest.raises(Error, match="fit"):
            call()


def test_no_class_of_bytes_is_what_marks_the_unobserved():
    """As a byte −100 is 156."""
    prediction, y = classes()
    small = y.to(torch.uint8)
    assert evaluation.score(prediction, small) == evaluation.score(prediction, y)
    assert evaluation.conformal_sets(prediction, small, 0.9).n == len(y)
    assert len(evaluation.observed(prediction, small).total) == len(y)
    assert evaluation.scorecard(prediction, small).keys() == evaluation.scorecard(prediction, y).keys()
    assert bool((posterity.Categorical().labels(small) != -100).all())


def test_whole_numbers_of_a_regression_are_all_observed():
    prediction = GaussianPrediction(torch.tensor([[[-90.0], [5.0], [3.0]]]), torch.ones(1, 3, 1))
    y = torch.tensor([-100, 5, 3])
    assert evaluation.nll(prediction, y) == pytest.approx(evaluation.nll(prediction, y.float()))


def test_arrays_and_lists_are_targets_everywhere_and_names_get_a_sentence():
    prediction, y = numbers(40, 1)
    for of in (evaluation.nll, evaluation.marginal_nll, evaluation.coverage_gap, evaluation.quantile_gap):
        assert of(prediction, y.numpy()) == of(prediction, y.tolist()) == of(prediction, y)
    assert evaluation.promises(prediction, y.numpy()) == evaluation.promises(prediction, y)
    with pytest.raises(Error, match=r"preprocessing\.targets"):
        evaluation.score(classes(4, 2)[0], ["a", "b", "a", "b"])


def test_one_class_is_always_right():
    scores = evaluation.score(Prediction.from_probs(torch.ones(5, 1)), torch.zeros(5, dtype=torch.long))
    assert scores == {"error": 0.0, "nll": 0.0, "brier": 0.0, "ece": 0.0}


def test_promises_say_a_mistake_and_are_made_of_yes_and_no():
    prediction, y = classes(2000, 3)
    with pytest.raises(Error, match="classes from 1 to 3"):
        evaluation.promises(prediction, y + 1)
    q = torch.rand(2000, 1, generator=torch.Generator().manual_seed(0)).double()
    answers = (torch.rand(2000, 1, generator=torch.Generator().manual_seed(1)) < q).float()
    found = evaluation.promises(BernoulliPrediction(q, torch.zeros_like(q)), answers)
    two = evaluation.promises(Prediction.from_probs(torch.cat([1 - q, q], 1)), answers[:, 0].long())
    assert found["sets"] == two["sets"]
    assert [record["wrong"] for record in found["abstention"]] == [record["wrong"] for record in two["abstention"]]


@pytest.mark.parametrize(("k", "n", "confidence"), [(50, 100, 0.1), (50, 100, 0.3), (1, 2, 0.05), (3, 40, 0.95)])
def test_the_bound_of_a_rate_is_clopper_and_pearsons_at_any_confidence(k, n, confidence):
    assert evaluation.rate_bound(k, n, confidence) == pytest.approx(stats.beta.ppf(confidence, k + 1, n - k), abs=1e-9)


@pytest.mark.parametrize("count", [2, 3, 7, 10])
def test_the_distribution_of_entropies_ends_at_one(count):
    found = evaluation.entropy_cdf(Prediction.from_probs(torch.full((50, count), 1 / count)), torch.tensor([1.0]))
    assert found.tolist() == [1.0]


@pytest.mark.parametrize("statistics", [1, 5])
@pytest.mark.parametrize("replicates", [10, 39, 50, 400, 1000])
def test_a_true_model_is_called_wrong_no_more_often_than_the_level_says(statistics, replicates):
    """Under it every place of the observed value among the replicated ones is as likely; there are R + 1."""
    level, names = 0.05, [str(k) for k in range(statistics)]
    replicated = torch.arange(replicates).double()[:, None].expand(-1, statistics)
    observed = torch.full((statistics,), replicates / 2 - 0.25, dtype=torch.float64)
    strange = 0
    for place in range(replicates + 1):
        observed[0] = place - 0.5
        strange += PredictiveCheck(names, observed.clone(), replicated, level).strange == ["0"]
    assert strange / (replicates + 1) <= level / statistics
    assert bool(strange) == (replicates >= 2 * statistics / level)


def test_a_check_from_too_few_data_sets_says_so_and_strange_data_are_seen_from_enough():
    few = PredictiveCheck(["mean"], torch.tensor([9.0]), torch.zeros(50, 1), 0.01)
    assert few.strange == []
    assert "give replicates=200" in str(few)
    enough = PredictiveCheck(["mean"], torch.tensor([9.0]), torch.zeros(200, 1), 0.01)
    assert enough.strange == ["mean"]


def test_a_predictive_check_reads_the_names_of_classes_as_the_posterior_does():
    X = np.random.default_rng(0).normal(size=(60, 2))
    for y in (np.where(X[:, 0] > 0, "r", "l"), np.where(X[:, 0] > 0, 2, 1)):
        model = posterity.PosteriorClassifier("map", epochs=1, random_state=0).fit(X, y)
        found = predictive_check(model.posterior_, y, X, replicates=10)
        assert found.observed.tolist() == pytest.approx([np.mean(X[:, 0] <= 0), np.mean(X[:, 0] > 0)])
    model = posterity.PosteriorRegressor("map", epochs=1, random_state=0).fit(X, 100 + 5 * X[:, 0])
    found = predictive_check(model.posterior_, 100 + 5 * X[:, 0], X, replicates=10)
    assert float(found.observed[0]) == pytest.approx(100 + 5 * X[:, 0].mean(), rel=1e-4)  # in the target's own units


def test_the_best_constant_answer_counts_classes_by_their_weights():
    y, likelihood = torch.tensor([0] * 90 + [1] * 10), posterity.Categorical(weight=[1.0, 9.0])
    functions = torch.zeros(1, 100, 2, dtype=torch.float64)
    assert checks._constant(likelihood, functions, y) == pytest.approx(-float(likelihood.log_prob(functions, y).mean()))


def test_a_network_of_one_output_for_yes_and_no_keeps_its_scores():
    posterior = posterity.MAP(nn.Linear(2, 1))
    posterior.likelihood = posterity.Bernoulli()
    x, y = torch.randn(20, 2), torch.arange(20) % 2
    prediction = posterity.predict(posterior, x)
    flat, column = evaluation.score(prediction, y), evaluation.score(prediction, y[:, None].float())
    assert flat == pytest.approx(column)
