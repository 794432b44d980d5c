import math

import numpy as np
import pytest
import torch
from scipy import stats

from posterity import evaluation
from posterity.errors import Error
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def curve(loss, uncertainty):
    """Mean losses of the k most certain, by a loop."""
    ordered = [value for _, value in sorted(zip(uncertainty, loss, strict=True))]
    return [np.mean(ordered[:k]) for k in range(1, len(loss) + 1)]


def test_areas_agree_with_loops():
    loss, uncertainty = (random(40) > 0.5).double(), random(40, seed=1)
    risks, best = curve(loss.tolist(), uncertainty.tolist()), curve(loss.tolist(), loss.tolist())
    assert evaluation.risk_curve(loss, uncertainty).tolist() == pytest.approx(risks)
    assert evaluation.aurc(loss, uncertainty) == pytest.approx(np.mean(risks))
    assert evaluation.excess_aurc(loss, uncertainty) == pytest.approx(np.mean(risks) - np.mean(best))
    generalised = [risk * (k + 1) / 40 for k, risk in enumerate(risks)]
    assert evaluation.augrc(loss, uncertainty) == pytest.approx(np.mean(generalised))
    assert evaluation.risk_at(loss, uncertainty, 0.8) == pytest.approx(risks[31])


def test_ause_agrees_with_a_loop_in_rmse():
    errors, uncertainty = random(30).square(), random(30, seed=2)
    risks, best = (np.sqrt(curve(errors.tolist(), by.tolist())) for by in (uncertainty, errors))
    expected = np.mean(risks - best) / math.sqrt(float(errors.mean()))
    assert evaluation.ause(errors, uncertainty, root=True) == pytest.approx(expected)
    assert evaluation.ause(errors, errors) == 0
    assert evaluation.ause(torch.zeros(3), torch.arange(3.0)) == 0


def test_aurc_among_ties_is_the_mean_over_their_orders():
    loss = (random(12) > 0).double()
    uncertainty = torch.arange(12) // 4
    found = []
    for seed in range(3000):
        order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
        found.append(evaluation.aurc(loss[order], uncertainty[order] + 1e-6 * torch.arange(12)))
    assert evaluation.aurc(loss, uncertainty) == pytest.approx(np.mean(found), abs=4 * np.std(found) / 3000**0.5)


def test_the_best_aurc_has_its_known_limit():
    loss = (torch.arange(20_000) < 4000).double()
    rate = 0.2
    assert evaluation.aurc(loss, loss) == pytest.approx(rate + (1 - rate) * math.log(1 - rate), abs=1e-4)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (0, 59), (3, 50), (17, 18), (250, 10_000), (99_990, 100_000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_rate_bound_is_the_beta_quantile_of_clopper_and_pearson(k, n, confidence):
    expected = stats.beta.ppf(confidence, k + 1, n - k)
    assert evaluation.rate_bound(k, n, confidence) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(("k", "n", "p"), [(0, 10, 0.3), (4, 9, 0.5), (30, 1000, 0.02), (5000, 100_000, 0.051)])
def test_binomial_cdf_agrees_with_scipy(k, n, p):
    assert evaluation.binomial_cdf(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), rel=1e-8)


def test_a_rate_of_all_or_of_nothing_is_bounded_by_one():
    assert evaluation.rate_bound(5, 5) == evaluation.rate_bound(0, 0) == 1
    assert evaluation.binomial_cdf(-1, 5, 0.5) == 0
    with pytest.raises(Error, match="0 ≤ k ≤ n"):
        evaluation.rate_bound(6, 5)


def answers(n, generator):
    """Yes-or-no predictions of p, right with probability max(p, 1 − p)^2: too sure, and surer where right."""
    p = torch.rand(n, generator=generator, dtype=torch.float64)
    confidence = torch.maximum(p, 1 - p)
    right = torch.rand(n, generator=generator) < confidence**2
    return BernoulliPrediction(p, torch.zeros(n, dtype=torch.float64)), torch.where(right, p > 0.5, p <= 0.5).long()


def true_risk(threshold):
    """P(wrong | 1 − confidence ≤ threshold): confidence is uniform on [1 − threshold, 1]."""
    low = 1 - min(threshold, 0.5)
    return 1 - (1 - low**3) / (3 * (1 - low)) if threshold > 0 else 0.0


@pytest.mark.parametrize(("risk", "confidence"), [(0.15, 0.9), (0.25, 0.8)])
def test_risk_is_controlled_in_the_stated_share_of_calibrations(risk, confidence):
    generator, repeats, broken, answered = torch.Generator().manual_seed(1), 400, 0, 0
    for repeat in range(repeats):
        found = evaluation.control_risk(*answers(1000, generator), risk, confidence, by="confidence", seed=repeat)
        broken += true_risk(found.threshold) > risk
        answered += found.threshold > 0
    error = math.sqrt(confidence * (1 - confidence) / repeats)
    assert broken / repeats <= 1 - confidence + 3 * error
    assert answered > 0.8 * repeats  # it is no use to control risk by silence


def test_risk_without_the_bound_would_not_be_controlled():
    """The same thresholds by the empirical risk alone break their promise, so that the test above can fail."""
    generator, broken = torch.Generator().manual_seed(2), 0
    for _ in range(200):
        prediction, y = answers(800, generator)
        values = evaluation.doubt(prediction, "confidence")
        wrong = ((prediction.probs > 0.5) != y).double()
        passing = [t for t in np.linspace(0.05, 0.5, 40) if float(wrong[values <= t].mean()) <= 0.1]
        broken += bool(passing) and true_risk(max(passing)) > 0.1
    assert broken / 200 > 0.1 + 3 * math.sqrt(0.1 * 0.9 / 200)


def test_what_is_accepted_and_what_is_said_belong_together():
    prediction, y = answers(2000, torch.Generator().manual_seed(3))
    found = evaluation.control_risk(prediction, y, 0.2, 0.95, by="confidence")
    accepted = found.accept(prediction)
    assert accepted.dtype == torch.bool
    assert torch.equal(accepted, 1 - torch.maximum(prediction.probs, 1 - prediction.probs) <= found.threshold)
    assert found.bound <= 0.2
    assert "With confidence 0.95" in str(found)
    assert "at most 0.2" in str(found)


def test_thresholds_are_tested_from_strict_to_loose_until_the_first_failure():
    probs = torch.full((400,), 0.99, dtype=torch.float64)
    probs[100:200] = 0.9
    probs[200:] = 0.8
    y = torch.ones(400).long()
    y[100:200] = 0  # all wrong in the middle, none wrong beyond
    prediction = BernoulliPrediction(probs, torch.zeros(400))
    thresholds = torch.tensor([0.25, 0.05, 0.15])
    found = evaluation.control_risk(prediction, y, 0.3, by="confidence", thresholds=thresholds)
    assert found.threshold == pytest.approx(0.05)
    assert found.bound == pytest.approx(stats.beta.ppf(0.95, 1, 100))
    assert int(found.accept(prediction).sum()) == 100


def test_no_answer_is_given_where_none_can_be_trusted():
    prediction = BernoulliPrediction(torch.rand(500, generator=torch.Generator().manual_seed(0)), torch.zeros(500))
    found = evaluation.control_risk(prediction, torch.arange(500) % 2, 0.05)
    assert not found.accept(prediction).any()
    assert "no answer" in str(found)


def test_a_regression_is_wrong_beyond_its_tolerance():
    prediction = GaussianPrediction(torch.zeros(1, 300, 1), (1 + torch.arange(300.0)).view(1, 300, 1))
    y = torch.zeros(300, 1)
    y[200:] = 5
    found = evaluation.control_risk(prediction, y, 0.1, tolerance=1.0, thresholds=torch.tensor([100.0, 200.0, 300.0]))
    assert int(found.accept(prediction).sum()) == 200
    with pytest.raises(Error, match="tolerance"):
        evaluation.control_risk(prediction, y, 0.1)


def test_too_few_data_and_positions_of_one_datum_are_refused():
    few = BernoulliPrediction(torch.full((50,), 0.9), torch.zeros(50))
    with pytest.raises(Error, match="at least 59 answers"):
        evaluation.control_risk(few, torch.ones(50).long(), 0.05)
    dense = CategoricalPrediction(torch.log_softmax(random(6, 3, 4), 1), torch.zeros(6, 4))
    with pytest.raises(Error, match="independent"):
        evaluation.control_risk(dense, torch.zeros(6, 4).long(), 0.05)
    with pytest.raises(Error, match="one of total"):
        evaluation.keep_coverage(few, 0.5, by="colour")


@pytest.mark.parametrize("coverage", [0.05, 0.3, 0.8, 1.0])
def test_abstention_keeps_its_coverage(coverage):
    prediction = CategoricalPrediction(torch.log_softmax(random(200, 4), 1), torch.zeros(200))
    found = evaluation.keep_coverage(prediction, coverage)
    assert int(found.accept(prediction).sum()) == round(coverage * 200)
    kept, rest = prediction.total[found.accept(prediction)], prediction.total[~found.accept(prediction)]
    assert not len(rest) or float(kept.max()) < float(rest.min())
    assert "nothing is guaranteed" in str(found)


def test_the_card_of_a_classification_counts_observed_positions_alone():
    log_probs = torch.log_softmax(2 * random(6, 3, 5, 4), dim=1)
    y = torch.randint(3, (6, 5, 4), generator=torch.Generator().manual_seed(1))
    flat = log_probs[:, :, :3].movedim(1, -1).reshape(-1, 3)
    rows = evaluation.scorecard(CategoricalPrediction(flat, torch.zeros(72)), y[:, :3].flatten())
    y[:, 3:] = 255
    dense = evaluation.scorecard(CategoricalPrediction(log_probs, torch.zeros(6, 5, 4), ignore=255), y)
    assert rows["nll"] == pytest.approx(rows["nll_position"])
    independent = {"ece_expected", "ece_limit"}  # which the positions of one row are not
    for name in set(rows) - {"nll", "nll_calibrated"} - independent:  # these two go by datum
        assert dense[name] == pytest.approx(rows[name]), name
    assert set(dense) == set(rows) - independent


def test_the_card_agrees_with_each_score():
    log_probs = torch.log_softmax(2 * random(80, 5), dim=1)
    y = torch.randint(5, (80,), generator=torch.Generator().manual_seed(2))
    prediction, other = (CategoricalPrediction(z, torch.zeros(len(z))) for z in (log_probs, log_probs[:40]))
    card = evaluation.scorecard(prediction, y, held_out=(other, y[:40]))
    assert card | evaluation.score(prediction, y) == card
    assert card["temperature"] == evaluation.temperature(other, y[:40])
    wrong = (log_probs.argmax(1) != y).double()
    assert card["entropy_auc"] == pytest.approx(evaluation.entropy_auc(prediction))
    assert card["aurc"] == pytest.approx(evaluation.aurc(wrong, prediction.total))
    assert card["risk80"] == pytest.approx(evaluation.risk_at(wrong, prediction.total, 0.8))
    assert all(isinstance(value, float) and math.isfinite(value) for value in card.values())


def test_a_card_without_errors_leaves_out_what_has_no_value():
    prediction = CategoricalPrediction(torch.tensor([[0.9, 0.1], [0.8, 0.2]]).log(), torch.zeros(2))
    assert "auroc_errors" not in evaluation.scorecard(prediction, torch.tensor([0, 0]))


def test_summary_leaves_out_what_is_not_observed():
    log_probs = torch.log_softmax(random(30, 3, 4), dim=1)
    y = torch.randint(3, (30, 4), generator=torch.Generator().manual_seed(1))
    y[:, 3] = -100
    y[7] = -100
    found = evaluation.summarise(CategoricalPrediction(log_probs, torch.zeros(30, 4)), y)
    wrong = evaluation.score(CategoricalPrediction(log_probs, torch.zeros(30, 4)), y)["error"]
    assert found["selection"]["kept"][-1] == pytest.approx(1 - wrong, abs=1e-5)
    single = torch.tensor([0, -100, 1, 2] * 5)
    rows = evaluation.summarise(CategoricalPrediction(log_probs[:20, :, 0], torch.zeros(20)), single)["extremes"]
    assert [int(single[i]) for i in rows["index"]] == rows["true"]


def test_bad_selections_are_refused():
    with pytest.raises(Error, match="do not fit"):
        evaluation.aurc(torch.zeros(3), torch.zeros(4))
    with pytest.raises(Error, match="up to 1"):
        evaluation.risk_at(torch.zeros(3), torch.zeros(3), 1.5)
    with pytest.raises(Error, match="NaN"):
        evaluation.aurc(torch.zeros(2), torch.tensor([0.0, float("nan")]))


def test_few_data_still_find_a_threshold():
    """600 data and a risk of 0.02: the surest answers are all right, which is enough to give them."""
    confidence = torch.linspace(0.55, 0.999, 600)
    wrong = (confidence < 0.65) & (torch.arange(600) % 2 == 0)
    prediction = CategoricalPrediction(torch.stack([confidence, 1 - confidence], 1).log(), torch.zeros(600))
    rule = evaluation.control_risk(prediction, wrong.long(), risk=0.02)
    assert 0.3 < rule.coverage < 0.95
    assert rule.bound <= 0.02
