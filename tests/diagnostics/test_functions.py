"""Distinct functions, predictive checks and warnings."""

import math

import pytest
import torch
from torch import nn

import posterity
from common import generator, mlp, seeded
from posterity import diagnostics
from posterity.diagnostics.diversity import overlap
from posterity.errors import Error
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction
from scenarios import correlated_regression

GAUSSIAN = posterity.Gaussian(std=0.1)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


class Known(posterity.Posterior):
    """A linear network whose weights are drawn from a Gaussian that is given, with the divergence that is given."""

    def __init__(self, mean, root, divergence=0.0, likelihood=GAUSSIAN):
        super().__init__(nn.Linear(len(mean), 1, bias=False))
        self.average, self.root, self.kl = mean, root, divergence
        self.likelihood = likelihood

    def draw(self, n, generator=None):
        noise = torch.randn(n, len(self.root), generator=generator) @ self.root.T
        return posterity.Functions(self.network, n, weights={"weight": (self.average + noise)[:, None]})

    def divergence(self, generator=None):
        return torch.tensor(self.kl)


class TwoClasses(Known):
    """The same with the logits 0 and f."""

    def draw(self, n, generator=None):
        weights = super().draw(n, generator).weight0
        network = nn.Linear(weights.shape[2], 2, bias=False)
        return posterity.Functions(network, n, weights={"weight": torch.cat([0 * weights, weights], 1)})


@pytest.mark.parametrize("likelihood", [GAUSSIAN, posterity.Categorical(), posterity.Bernoulli()])
def test_equal_functions_count_as_one(likelihood):
    outputs = normal(1, 20, 3).expand(7, 20, 3)
    assert diagnostics.effective_number(outputs, likelihood=likelihood) == pytest.approx(1, abs=1e-6)


def test_functions_that_do_not_overlap_count_all():
    apart = torch.eye(6).unsqueeze(1).expand(6, 10, 6)
    assert diagnostics.effective_number(1000 * apart, likelihood=posterity.Categorical()) == pytest.approx(6)
    steps = torch.arange(6.0)[:, None, None].expand(6, 10, 1)
    assert diagnostics.effective_number(steps, likelihood=posterity.Gaussian(std=1e-3)) == pytest.approx(6)
    opposite = torch.tensor([[[1000.0]], [[-1000.0]]])
    assert diagnostics.effective_number(opposite, likelihood=posterity.Bernoulli()) == pytest.approx(2)


def test_independent_directions_count_each_where_they_stand_above_the_noise():
    directions = torch.linalg.qr(normal(50, 8)).Q.T  # 8 orthonormal functions on 50 rows
    found = [diagnostics.effective_number(directions, likelihood=posterity.Gaussian(std=s)) for s in (1e-6, 0.05, 10.0)]
    assert found[0] == pytest.approx(8, rel=1e-3)
    assert 1.5 < found[1] < 7
    assert found[2] == pytest.approx(1, abs=0.01)


def test_groups_count_as_the_exponential_of_their_entropy():
    outputs = torch.tensor([0.0, 0.0, 0.0, 50.0])[:, None, None].expand(4, 5, 1)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert diagnostics.effective_number(outputs, likelihood=GAUSSIAN) == pytest.approx(math.exp(entropy), rel=1e-6)


def test_the_overlap_of_gaussians_is_the_integral():
    outputs = torch.tensor([[[0.3, math.log(0.5)]], [[-0.4, math.log(1.3)]]], dtype=torch.float64)
    y = torch.linspace(-15, 15, 30_001, dtype=torch.float64)
    p, q = (torch.distributions.Normal(m, s).log_prob(y) for m, s in ((0.3, 0.5), (-0.4, 1.3)))
    expected = torch.trapezoid(((p + q) / 2).exp(), y)
    found = overlap(outputs, posterity.Gaussian(heteroscedastic=True))
    assert found[0, 1] == pytest.approx(float(expected), rel=1e-6)
    assert found.diagonal().tolist() == pytest.approx([1, 1])


def test_the_overlap_of_classes_is_the_mean_over_positions():
    outputs = normal(2, 3, 4, 5)  # [n, batch, classes, positions]
    p, q = outputs.softmax(2)
    expected = (p * q).sqrt().sum(1).mean()
    assert overlap(outputs, posterity.Categorical())[0, 1] == pytest.approx(float(expected))


def test_a_posterior_and_its_functions_are_counted_on_inputs():
    posterior = posterity.DeepEnsemble(seeded(mlp), members=4)
    x = normal(30, 5).float()
    found = diagnostics.effective_number(posterior, x)
    assert 1.01 < found < 4
    again = diagnostics.effective_number(posterior.draw(4), x, posterior.likelihood)
    assert found == pytest.approx(again)
    assert diagnostics.effective_number(posterity.MAP(seeded(mlp)), x) == pytest.approx(1)


@pytest.mark.parametrize(
    ("draws", "likelihood", "words"),
    [
        (torch.zeros(3, 4, 2), None, "on some scale"),
        (torch.zeros(3), GAUSSIAN, "outputs"),
        (torch.zeros(0, 4, 2), GAUSSIAN, "outputs"),
        (torch.full((3, 4, 2), math.nan), GAUSSIAN, "NaN"),
        (torch.zeros(3, 4), posterity.Categorical(), "class axis"),
        (torch.zeros(3, 4, 2), posterity.Likelihood(), "No overlap"),
        (posterity.MAP(mlp()).draw(2), GAUSSIAN, "give x"),
    ],
)
def test_what_cannot_be_counted_is_explained(draws, likelihood, words):
    with pytest.raises(Error, match=words):
        diagnostics.effective_number(draws, likelihood=likelihood)


def regression(n=200, noise=0.5):
    """Draws of a right model, [40, n, 1], and data from it; the functions differ by a tenth of the noise."""
    truth = torch.linspace(-1, 1, n, dtype=torch.float64)[:, None]
    means = truth + 0.1 * noise * normal(40, 1, 1, seed=1)
    return GaussianPrediction(means, torch.full_like(means, noise**2)), truth + noise * normal(n, 1, seed=2)


def test_data_from_the_model_are_not_strange():
    """The six statistics share a level of 0.01."""
    prediction, y = regression()
    found = diagnostics.predictive_check(prediction, y, generator=generator())
    assert found.names == ["mean", "std", "min", "max", "residual std", "residual lag 1"]
    assert found.strange == []
    assert "No fault found" in str(found)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda y: 1.5 * (y - y.mean()) + y.mean(), "residual std"),
        (lambda y: y + 0.5, "mean"),
        (lambda y: y.sort(0).values, "residual lag 1"),
        (lambda y: torch.cat([y[:-1], torch.full((1, 1), 8.0)]), "max"),
    ],
)
def test_data_from_another_model_are_strange(change, name):
    prediction, y = regression()
    found = diagnostics.predictive_check(prediction, change(y), generator=generator())
    assert name in found.strange
    assert name in str(found)


def test_residuals_show_what_a_strong_signal_hides():
    signal = torch.linspace(-10, 10, 200, dtype=torch.float64)[:, None]
    prediction = GaussianPrediction(signal.expand(5, 200, 1), torch.ones(5, 200, 1, dtype=torch.float64))
    found = diagnostics.predictive_check(prediction, signal + 1.5 * normal(200, 1), generator=generator())
    assert "residual std" in found.strange
    assert "std" not in found.strange


def test_a_p_value_is_the_tail_of_the_statistic():
    """The mean of 50 answers N(0, 1) is N(0, 1/50); an observed 0.1 has a tail of 0.24, ± 4 √(p(1 − p)/4000)."""
    prediction = GaussianPrediction(torch.zeros(1, 50, 1), torch.ones(1, 50, 1))
    y = torch.full((50,), 0.1)
    found = diagnostics.predictive_check(
        prediction, y, statistics={"mean": torch.mean}, replicates=4000, generator=generator()
    )
    expected = 1 - 0.5 * (1 + math.erf(0.1 * math.sqrt(50) / math.sqrt(2)))
    assert abs(float(found.p_values[0]) - expected) < 4 * math.sqrt(expected * (1 - expected) / 4000)
    assert found.replicated.shape == (4000, 1)


def test_a_replicate_belongs_to_one_function():
    """Means of 50 rows vary with the functions, variance 1, and the noise, 1/50; rows drawn apart would give 2/50."""
    means = normal(500, 1, 1, seed=3).expand(500, 50, 1)
    prediction = GaussianPrediction(means, torch.ones_like(means))
    found = diagnostics.predictive_check(
        prediction, torch.zeros(50), statistics={"mean": torch.mean}, replicates=500, generator=generator()
    )
    assert float(found.replicated.var()) == pytest.approx(1.02, abs=4 * math.sqrt(2 / 500))


class Shift(posterity.Posterior):
    """One number for all rows, a logit or a mean: N(0, 1); only five are drawn where `predict` is not told how many."""

    draws = 5

    def __init__(self, likelihood):
        super().__init__(nn.Linear(1, 1))
        self.likelihood = likelihood

    def draw(self, n, generator=None):
        bias = torch.randn(n, 1, generator=generator)
        return posterity.Functions(self.network, n, weights={"weight": torch.zeros(n, 1, 1), "bias": bias})


@pytest.mark.parametrize("likelihood", [posterity.Gaussian(std=0.3), posterity.Bernoulli()], ids=["numbers", "labels"])
def test_the_level_holds_for_a_posterior_that_draws_few_functions_at_a_time(likelihood):
    """Data of a drawn function are strange in at most 10 of 100 cases: 4 of 60 ranks are."""
    posterior, x, source, runs = Shift(likelihood), torch.zeros(30, 1), generator(7), 200
    strange = 0
    for _ in range(runs):
        f = torch.randn((), generator=source).expand(30, 1)
        noise = torch.randn(30, 1, generator=source)
        labels = torch.rand(30, 1, generator=source) < f.sigmoid()
        y = f + 0.3 * noise if isinstance(likelihood, posterity.Gaussian) else labels.float()
        found = diagnostics.predictive_check(
            posterior, y, x, statistics={"mean": torch.mean}, replicates=59, level=0.1, generator=source
        )
        strange += bool(found.strange)
    assert strange / runs < 0.1 + 3 * math.sqrt(0.1 * 0.9 / runs)
    assert found.functions is None


@pytest.mark.parametrize("likelihood", [posterity.Gaussian(std=0.3), posterity.Categorical()])
def test_each_replicated_data_set_has_a_function_of_its_own(likelihood):
    posterior, x = posterity.MCDropout(seeded(mlp), rate=0.2), normal(8, 5).float()
    posterior.likelihood, posterior.draws = likelihood, 30
    y = torch.zeros(8, 3) if isinstance(likelihood, posterity.Gaussian) else torch.arange(8) % 3
    seen = []
    draw = posterior.draw
    posterior.draw = lambda n, generator=None: seen.append(n) or draw(n, generator)
    found = diagnostics.predictive_check(posterior, y, x, replicates=100, generator=generator())
    assert found.functions is None
    assert sum(seen) >= 100
    assert "replicated data sets are of" not in str(found)


def test_a_check_of_few_functions_says_that_the_level_does_not_hold():
    x, y = normal(40, 5).float(), torch.arange(40) % 3
    ensemble = diagnostics.predictive_check(posterity.DeepEnsemble(seeded(mlp), members=5), y, x)
    assert ensemble.functions == 5
    assert "data sets are of 5 functions: the level of 0.01 holds if one of these made the data." in str(ensemble)
    assert "no level below 1 can be held" in str(ensemble)  # three statistics, each of rank 1 to 6
    alone = diagnostics.predictive_check(posterity.MAP(seeded(mlp)), y, x)
    assert alone.functions == 1
    assert "data sets are of one function: the level of 0.01 holds if it made the data." in str(alone)
    prediction, y = regression()  # 40 draws, six statistics: 2 · 6/41
    assert "are of 40 functions" in str(diagnostics.predictive_check(prediction, y, generator=generator()))
    assert "no level below 0.29 can be held" in str(diagnostics.predictive_check(prediction, y + 9))


def test_shares_of_classes_are_checked_where_they_are_observed():
    probs = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    prediction = CategoricalPrediction(probs.log().expand(300, 3), torch.zeros(300))
    right = torch.multinomial(probs.expand(300, 3), 1, generator=generator(4))[:, 0]
    found = diagnostics.predictive_check(prediction, right, generator=generator())
    assert found.strange == []
    errors = (probs * (1 - probs) / 300).sqrt()
    assert bool(((found.replicated.mean(0) - probs).abs() < 4 * errors / math.sqrt(1000)).all())
    hidden = right.clone()
    hidden[hidden == 2] = -100
    found = diagnostics.predictive_check(prediction, hidden, generator=generator())
    assert "share of class 2" in found.strange
    assert float(found.observed.sum()) == pytest.approx(1)
    unseen = {"unseen": lambda y: (y == -100).sum()}
    found = diagnostics.predictive_check(prediction, hidden, statistics=unseen, replicates=20)
    assert bool((found.replicated == found.observed).all())


def test_shares_of_labels_are_checked_each():
    prediction = BernoulliPrediction(torch.tensor([0.2, 0.7]).double().expand(200, 2), torch.zeros(200, 2))
    y = torch.zeros(200, 2)
    y[:40, 0], y[:80, 1] = 1, 1
    found = diagnostics.predictive_check(prediction, y, generator=generator())
    assert found.strange == ["share of yes of label 1"]
    assert "0.4, below what it makes" in str(found)


def test_a_posterior_of_classes_replicates_function_by_function():
    """Its functions turn all rows together, so shares vary more than where rows are independent."""
    posterior = posterity.DeepEnsemble(seeded(mlp), members=5, seed=3)
    posterior.flat.data *= 3
    x, y = normal(100, 5).float(), torch.arange(100) % 3
    together = diagnostics.predictive_check(posterior, y, x, generator=generator())
    apart = diagnostics.predictive_check(posterity.predict(posterior, x), y, generator=generator())
    assert bool((together.replicated.var(0) > 1.5 * apart.replicated.var(0)).all())


def test_the_other_posteriors_are_checked_on_their_inputs():
    data = correlated_regression()
    exact = Known(data.mean, torch.linalg.cholesky(data.covariance), likelihood=posterity.Gaussian(std=data.noise))
    assert diagnostics.predictive_check(exact, data.y, data.x, generator=generator()).strange == []
    exact.likelihood = posterity.Bernoulli()
    labels = (data.y > 0).float()
    assert diagnostics.predictive_check(exact, labels, data.x, replicates=10).names == ["share of yes"]


def test_a_figure_shows_the_worst_statistics():
    prediction, y = regression()
    assert len(diagnostics.predictive_check(prediction, y, replicates=50).plot().axes) == 6


@pytest.mark.parametrize(
    ("y", "options", "words"),
    [
        (torch.zeros(7), {}, "does not fit"),
        (torch.full((200,), math.nan), {}, "NaN"),
        (torch.zeros(200), {"statistics": {}}, "no statistic"),
        (torch.zeros(200), {"statistics": {"all": lambda y: y}}, "one finite number"),
        (torch.zeros(200), {"replicates": 0}, "replicates"),
        (torch.zeros(200), {"level": 0}, "level"),
    ],
)
def test_mistakes_in_a_predictive_check_are_explained(y, options, words):
    with pytest.raises(Error, match=words):
        diagnostics.predictive_check(regression()[0], y, **options)


def test_a_predictive_check_says_what_it_needs():
    with pytest.raises(Error, match="give x"):
        diagnostics.predictive_check(posterity.MAP(mlp()), torch.zeros(3))
    with pytest.raises(Error, match="posterior or a prediction"):
        diagnostics.predictive_check(torch.zeros(3), torch.zeros(3))
    with pytest.raises(Error, match="classes from 0 to 2"):
        diagnostics.predictive_check(posterity.MAP(mlp()), torch.full((4,), 3), torch.zeros(4, 5))


def exact_regression(width=1.0):
    """The exact posterior of a linear regression, its divergence from the prior, and the data."""
    data = correlated_regression()
    root = width * torch.linalg.cholesky(data.covariance)
    exact, prior = (
        torch.distributions.MultivariateNormal(data.mean, scale_tril=root),
        torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)),
    )
    kl = float(torch.distributions.kl_divergence(exact, prior))
    return Known(data.mean, root, kl, posterity.Gaussian(std=data.noise)), data


def test_nothing_is_said_of_the_exact_posterior():
    posterior, data = exact_regression()
    assert diagnostics.check(posterior, data.x, data.y, generator=generator()) == []


def test_functions_that_hardly_differ_are_noticed():
    posterior, data = exact_regression(width=0.1)
    (sentence,) = diagnostics.check(posterior, data.x, generator=generator())
    assert "hardly differ" in sentence
    assert "after 200 data" in sentence


def test_the_threshold_is_one_unknown_number():
    """The mean of N answers, known to σ/√N, is just at the threshold: above by a fifth is well, below is not."""
    x, n = torch.ones(50, 1), 1000
    for factor, expected in ((1.2, 0), (0.8, 1)):
        posterior = Known(torch.zeros(1), torch.tensor([[factor * 0.1 / math.sqrt(n)]]))
        posterior.draws = 4000
        assert len(diagnostics.check(posterior, x, size=n, generator=generator())) == expected


def test_a_part_of_the_rows_is_judged_by_the_n_of_fit(tmp_path):
    """A divergence of 300 nats is little for 2,000 rows, and dominates the loss of 50."""
    x = normal(2000, 5).float()
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    posterior = posterity.BayesByBackprop(seeded(mlp))
    posterity.fit(posterior, (x, y), epochs=12, lr=0.01, seed=0, progress=False)
    posterity.save(posterior, tmp_path)
    part = x[:50], y[:50]
    assert float(posterior.divergence().detach()) > 50 * 1.1  # nats: more than any function can gain of 50 rows
    for fitted in (posterior, posterity.load(tmp_path, mlp())):
        assert fitted.training_size == 2000
        assert diagnostics.check(fitted, *part, generator=generator()) == []
        assert any("dominates" in said for said in diagnostics.check(fitted, *part, size=50, generator=generator()))


@pytest.mark.parametrize(
    ("method", "options", "bounds"),
    [
        ("livi", {}, False),
        ("livi", {"linear": True}, True),
        ("bbh", {}, False),
        ("bbh", {"divergence": "nearest"}, False),
        ("bbh", {"divergence": "bound"}, True),
        ("ibnn", {}, True),
        ("ibnn", {"kl": "mixture_mean"}, False),
        ("bbb", {}, True),
        ("mnf", {}, True),
        ("map", {}, False),
        ("ensemble", {}, False),
        ("dropout", {}, False),
    ],
)
def test_only_a_bound_on_the_evidence_is_called_one(method, options, bounds):
    posterior = posterity.methods()[method](seeded(mlp), seed=0, **options)
    assert posterior.bounds_evidence == bounds
    said = diagnostics.check(posterior, normal(4, 5).float(), torch.arange(4) % 3, size=1, generator=generator())
    dominates = [sentence for sentence in said if "dominates" in sentence]
    assert all(("As a bound on the evidence" in sentence) == bounds for sentence in dominates)
    assert dominates or method in ("map", "ensemble", "dropout") or options.get("divergence") == "nearest"


def test_one_function_is_called_one_function():
    (sentence,) = diagnostics.check(posterity.MAP(seeded(mlp)), torch.zeros(4, 5))
    assert "are the same" in sentence
    ensemble, x = posterity.DeepEnsemble(seeded(mlp), members=3), normal(9, 5).float()
    assert diagnostics.check(ensemble, x, size=1000) == []
    assert "more members" in diagnostics.check(ensemble, x, size=1)[0]


def test_a_divergence_that_costs_more_than_it_explains_is_noticed():
    """The functions beat a constant answer by so many nats per datum; a divergence of N times that is the threshold."""
    posterior, data = exact_regression()
    residuals = (data.y - data.x @ data.mean[:, None]).double()
    spread = torch.einsum("ni,ij,nj->n", data.x, data.covariance, data.x).mean()
    nll = 0.5 * math.log(2 * math.pi * data.noise**2) + float(residuals.square().mean() + spread) / (2 * data.noise**2)
    gain = 0.5 * math.log(2 * math.pi * math.e * float(data.y.double().var(correction=0))) - nll
    assert gain > 0.01
    for factor, expected in ((0.8, 0), (1.2, 1)):
        posterior.kl, posterior.draws = factor * gain * 200, 4000
        found = diagnostics.check(posterior, data.x, data.y, generator=generator())
        assert len(found) == expected
    assert "divergence dominates" in found[0]


@pytest.mark.parametrize(("weights", "expected"), [((0.0, 0.0), 1), ((0.0, -1.5), 1), ((4.0, -4.0), 0)])
def test_the_divergence_is_weighed_for_labels_and_classes_too(weights, expected):
    """Functions that know nothing, or the shares alone, beat no constant answer; good ones pay for a divergence."""
    x = torch.cat([normal(100, 1), torch.ones(100, 1)], 1).float()
    y = x[:, :1] > 1
    labels = Known(torch.tensor(weights), 0.3 * torch.eye(2), 10.0, posterity.Bernoulli())
    found = diagnostics.check(labels, x, y.float(), generator=generator())
    assert sum("dominates" in sentence for sentence in found) == expected
    classes = TwoClasses(labels.average, labels.root, 10.0, posterity.Categorical())
    found = diagnostics.check(classes, x, y[:, 0].long(), generator=generator())
    assert sum("dominates" in sentence for sentence in found) == expected


def test_sentences_become_warnings_on_request():
    posterior, data = exact_regression(width=0.1)
    with pytest.warns(UserWarning, match="hardly differ"):
        diagnostics.check(posterior, data.x, warn=True, generator=generator())


def test_a_learned_noise_is_looked_at_quietly(recwarn):
    posterior, data = exact_regression()
    posterior.likelihood = posterity.Gaussian(initial=data.noise)
    assert diagnostics.check(posterior, data.x, data.y, generator=generator()) == []
    assert diagnostics.effective_number(posterior, data.x) > 1
    assert diagnostics.predictive_check(posterior, data.y, data.x, generator=generator()).strange == []
    assert not recwarn.list


def test_a_few_functions_are_judged_by_what_they_would_spread():
    """Two functions spread half as much around their mean as many would; this is made up for."""
    posterior = Known(torch.zeros(1), torch.zeros(1, 1))
    two = torch.tensor([-1.0, 1.0]) * 0.1 / math.sqrt(1000)  # the variance of many is twice theirs, 2 σ²/N
    posterior.draw = lambda n, generator: posterity.Functions(
        posterior.network, 2, weights={"weight": two[:, None, None]}
    )
    assert diagnostics.check(posterior, torch.ones(5, 1), size=600) == []
    assert len(diagnostics.check(posterior, torch.ones(5, 1), size=400)) == 1


def test_a_loss_that_is_not_finite_is_said():
    posterior, data = exact_regression()
    posterior.kl = math.inf
    assert "not finite" in diagnostics.check(posterior, data.x, data.y, generator=generator())[0]


def test_diagnostics_import_nothing_heavy():
    import subprocess
    import sys

    script = (
        "import sys, torch, numpy; before = set(sys.modules); import posterity.diagnostics;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(*(new - set(sys.stdlib_module_names) - {'posterity', 'torch', 'numpy'}))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not out.split()
