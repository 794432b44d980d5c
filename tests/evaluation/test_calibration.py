import numpy as np
import pytest
import torch
from scipy import optimize
from torchmetrics.classification import BinaryCalibrationError

from posterity import evaluation
from posterity.errors import Error
from posterity.evaluation import scaling
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction


def classes(*shape, seed=0, sharpness=2.0):
    """Log-probabilities [batch, classes, ...] and answers drawn from them at a temperature of 2."""
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(*shape, generator=generator, dtype=torch.float64)
    flat = torch.softmax(logits / 2, dim=1).movedim(1, -1).reshape(-1, shape[1])
    y = torch.multinomial(flat, 1, generator=generator).reshape(shape[0], *shape[2:])
    return torch.log_softmax(logits, dim=1), y


def prediction(log_probs, **options):
    return CategoricalPrediction(log_probs, torch.zeros(log_probs.shape[:1] + log_probs.shape[2:]), **options)


@pytest.mark.parametrize("sharpness", [0.3, 2.0, 8.0])
def test_classwise_ece_is_the_mean_of_torchmetrics_binary_ones(sharpness):
    log_probs, y = classes(400, 6, sharpness=sharpness)
    probs = log_probs.exp()
    ones = [BinaryCalibrationError(n_bins=15, norm="l1")(probs[:, c], (y == c).long()) for c in range(6)]
    assert evaluation.classwise_ece(probs, y) == pytest.approx(float(np.mean(ones)), abs=1e-6)


def test_classwise_ece_of_single_precision_and_many_classes_agrees_with_a_loop():
    log_probs, y = classes(50, 40)
    probs = log_probs.exp().float()
    total = 0.0
    for c in range(40):
        p, hit = probs[:, c].double(), (y == c).double()
        for b in range(10):
            inside = (p > b / 10) & (p <= (b + 1) / 10)
            total += abs(float((hit - p)[inside].sum())) / 50
    assert evaluation.classwise_ece(probs, y, bins=10) == pytest.approx(total / 40, abs=1e-12)


def test_adaptive_ece_agrees_with_a_loop_over_sorted_chunks():
    log_probs, y = classes(300, 5)
    confidence, predicted = log_probs.exp().max(dim=1)
    order = np.argsort(confidence.numpy())
    right = (predicted == y).double().numpy()
    expected = sum(
        len(chunk) / 300 * abs(right[chunk].mean() - confidence.numpy()[chunk].mean())
        for chunk in np.array_split(order, 15)
    )
    assert evaluation.adaptive_ece(log_probs.exp(), y) == pytest.approx(expected, abs=1e-12)


def test_adaptive_ece_does_not_depend_on_the_order_of_ties():
    probs = torch.tensor([0.8, 0.2], dtype=torch.float64).expand(30, 2)
    y = torch.arange(30) % 3 // 2  # two thirds are right, sorted or not
    both = {round(evaluation.adaptive_ece(probs, rows, bins=5), 12) for rows in (y, y.sort().values)}
    assert both == {round(0.8 - 2 / 3, 12)}


def test_adaptive_ece_of_fewer_data_than_bins_takes_each_by_itself():
    probs = torch.tensor([[0.9, 0.1], [0.6, 0.4]])
    assert evaluation.adaptive_ece(probs, torch.tensor([0, 1])) == pytest.approx((0.1 + 0.6) / 2)


@pytest.mark.parametrize("measure", [evaluation.ece, evaluation.adaptive_ece])
@pytest.mark.parametrize("p", [1.0, 0.99, 0.995])
def test_confidences_from_99_percent_to_one_are_counted(measure, p):
    probs = torch.tensor([[p, 1 - p]], dtype=torch.float64)
    assert measure(probs, torch.tensor([1])) == pytest.approx(p)


def test_classwise_ece_counts_a_probability_of_one():
    assert evaluation.classwise_ece(torch.tensor([[1.0, 0.0]]), torch.tensor([1])) == 1.0


def test_calibration_of_dense_outputs_is_that_of_their_positions():
    log_probs, y = classes(6, 3, 4, 5)
    flat = log_probs.exp().movedim(1, -1).reshape(-1, 3)
    for measure in (evaluation.ece, evaluation.adaptive_ece, evaluation.classwise_ece):
        assert measure(log_probs.exp(), y) == pytest.approx(measure(flat, y.flatten()), abs=1e-12)


@pytest.mark.parametrize("y", [torch.zeros(3).long(), torch.zeros(4, 2).long()])
def test_classes_that_do_not_fit_are_refused(y):
    with pytest.raises(Error, match="do not fit"):
        evaluation.adaptive_ece(torch.full((4, 2), 0.5), y)


def nll_at(log_probs, y, t):
    z = torch.log_softmax(log_probs / t, dim=1)
    return -float(z.gather(1, y[:, None]).mean())


def objective(log_probs, y, t):
    """Per row: the NLL and the prior Gamma(4, 4) on 1/T, as a density of log T."""
    return nll_at(log_probs, y, t) + 4 * (1 / t + np.log(t)) / len(y)


@pytest.mark.parametrize("sharpness", [0.2, 1.0, 3.0, 20.0])
def test_temperature_agrees_with_a_search_by_scipy(sharpness):
    log_probs, y = classes(500, 7, sharpness=sharpness)
    found = evaluation.temperature(prediction(log_probs), y)
    best = optimize.minimize_scalar(
        lambda log_t: objective(log_probs, y, np.exp(log_t)),
        bounds=(-4.6, 4.6),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert objective(log_probs, y, found) == pytest.approx(best.fun, abs=1e-9)
    assert found == pytest.approx(np.exp(best.x), rel=1e-4)


def test_temperature_of_answers_drawn_at_two_is_two():
    log_probs, y = classes(20_000, 5)
    assert evaluation.temperature(prediction(log_probs), y) == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("sharpness", [1.0, 4.0, 8.0])
def test_the_prior_moves_the_temperature_of_thousands_of_rows_by_less_than_its_standard_error(sharpness):
    log_probs, y = classes(4000, 4, sharpness=sharpness)
    found = np.log(evaluation.temperature(prediction(log_probs), y))
    grid = np.linspace(found - 0.2, found + 0.2, 401)
    nll = np.array([4000 * nll_at(log_probs, y, np.exp(log_t)) for log_t in grid])
    inside = grid[nll < nll.min() + 0.5]  # the likelihood's own one-standard-error interval
    assert inside[0] < found < inside[-1]


@pytest.mark.parametrize("rows", [2, 15, 75])
@pytest.mark.parametrize("margin", [0.5, 2.0, 5.0])
def test_rows_that_are_all_right_leave_the_temperature_sane(rows, margin):
    log_probs = torch.log_softmax(torch.tensor([[margin, 0.0, 0.0]] * rows), dim=1)
    found = evaluation.temperature(prediction(log_probs), torch.zeros(rows).long())
    assert 0.1 < found < 1


def test_one_error_among_few_rows_does_not_ruin_the_calibrated_nll():
    """One of thirty rows is wrong, so that of every two halves one has no error."""
    log_probs = torch.log_softmax(2 + 2 * torch.eye(3, dtype=torch.float64).repeat(10, 1), dim=1)
    y = torch.arange(30) % 3
    y[0] = 1
    nll = evaluation.nll(prediction(log_probs), y)
    assert evaluation.calibrated_nll(prediction(log_probs), y) < 1.5 * nll


def test_temperature_stays_finite_where_there_is_no_best_one():
    sure = torch.log_softmax(torch.tensor([[3.0, 0.0], [0.0, 2.0]]), dim=1)
    wrong = evaluation.temperature(prediction(sure), torch.tensor([1, 0]))
    assert 1 < wrong < 3  # two rows
    many = evaluation.temperature(prediction(sure.repeat(1000, 1)), torch.tensor([1, 0]).repeat(1000))
    assert many == pytest.approx(scaling.LIMITS[1])
    none = torch.tensor([[0.0, float("-inf")], [0.0, float("-inf")]])
    found = evaluation.temperature(prediction(none), torch.tensor([0, 1]))
    assert 10 < found <= scaling.LIMITS[1]
    assert evaluation.score(evaluation.scaled(prediction(none), found), torch.tensor([0, 1]))["nll"] < 2.1


def test_temperature_leaves_out_what_is_not_observed():
    log_probs, y = classes(40, 3, 10)
    kept = evaluation.temperature(prediction(log_probs[..., :7]), y[:, :7])
    y[:, 7:] = 255
    assert evaluation.temperature(prediction(log_probs, ignore=255), y) == pytest.approx(kept, rel=1e-9)


def test_scaling_divides_the_mean_log_probabilities_and_keeps_the_shares_of_uncertainty():
    log_probs, _ = classes(20, 4)
    draws = torch.stack([log_probs, log_probs.flip(1)])
    mean = CategoricalPrediction(draws.exp().mean(0).log(), 0.5 * torch.ones(20, dtype=torch.float64), ignore=7)
    found = evaluation.scaled(mean, 3.0)
    torch.testing.assert_close(found.probs, torch.softmax(mean.log_probs / 3, dim=1))
    torch.testing.assert_close(found.aleatoric / found.total, mean.aleatoric / mean.total)
    assert found.ignore == 7
    torch.testing.assert_close(evaluation.scaled(mean, 1.0).probs, mean.probs)


def test_a_yes_or_no_has_the_temperature_of_two_classes():
    log_probs, y = classes(200, 2)
    logits = log_probs[:, 1] - log_probs[:, 0]
    yes = BernoulliPrediction(logits.sigmoid(), torch.zeros(200), logits)
    t = evaluation.temperature(prediction(log_probs), y)
    assert evaluation.temperature(yes, y) == pytest.approx(t, rel=1e-6)
    two = evaluation.scaled(prediction(log_probs), t)
    torch.testing.assert_close(evaluation.scaled(yes, t).probs, two.probs[:, 1])


def test_calibrated_nll_of_held_out_data_is_the_nll_of_the_scaled_prediction():
    log_probs, y = classes(300, 4)
    fit, rest = (prediction(log_probs[:150]), y[:150]), (prediction(log_probs[150:]), y[150:])
    t = evaluation.temperature(*fit)
    expected = evaluation.score(evaluation.scaled(rest[0], t), rest[1])["nll"]
    assert evaluation.calibrated_nll(*rest, held_out=fit) == pytest.approx(expected, rel=1e-9)


def test_cross_validated_nll_is_above_the_best_fit_and_hardly_changes_with_the_scale_of_logits():
    log_probs, y = classes(400, 4)
    found = evaluation.calibrated_nll(prediction(log_probs), y)
    sharper = torch.log_softmax(5 * log_probs, dim=1)
    assert found == pytest.approx(evaluation.calibrated_nll(prediction(sharper), y), abs=1e-3)  # the prior's share
    assert nll_at(log_probs, y, evaluation.temperature(prediction(log_probs), y)) < found < nll_at(log_probs, y, 1.0)


def test_a_temperature_of_real_numbers_is_refused():
    with pytest.raises(Error, match="real numbers"):
        evaluation.temperature(GaussianPrediction(torch.zeros(1, 3, 1), torch.ones(1, 3, 1)), torch.zeros(3, 1))
    with pytest.raises(Error, match="positive"):
        evaluation.scaled(prediction(classes(4, 2)[0]), 0.0)


@pytest.mark.parametrize(
    ("nll", "number", "words"),
    [
        (0.5, 1.0, "1 network"),
        (0.45, 1.5, "1.5 networks"),
        (0.4, 2.0, "2.0 networks"),
        (0.35, 3.5, "3.5 networks"),  # the third is no better than the second: the envelope is flat there
        (0.3, 4.0, "4.0 networks"),
        (0.29, 4.0, "more than 4 networks"),
        (0.6, 1.0, "less than 1 network"),
    ],
)
def test_ensemble_equivalent_interpolates_the_monotone_envelope(nll, number, words):
    found = evaluation.ensemble_equivalent(nll, [0.5, 0.4, 0.42, 0.3])
    assert found.number == pytest.approx(number)
    assert str(found) == words


def test_ensemble_equivalent_needs_finite_numbers():
    with pytest.raises(Error, match="finite"):
        evaluation.ensemble_equivalent(0.1, [])
