import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_curve

from posterity import evaluation
from posterity.errors import Error
from posterity.likelihoods import Categorical
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gather(*shape, scale=2.0, seed=0):
    return CategoricalPrediction.gather([scale * random(*shape, seed=seed)], Categorical())


@pytest.mark.parametrize("decimals", [6, 1, 0])
def test_aupr_and_fpr_agree_with_sklearn_with_and_without_ties(decimals):
    inside, outside = random(80).round(decimals=decimals), (random(60, seed=1) + 0.7).round(decimals=decimals)
    labels, scores = [0] * 80 + [1] * 60, torch.cat([inside, outside]).numpy()
    expected = average_precision_score(labels, scores)
    assert evaluation.aupr(inside, outside) == pytest.approx(expected, abs=1e-12)
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    for rate in (0.5, 0.95, 1.0):
        assert evaluation.fpr_at(inside, outside, rate) == pytest.approx(false[true >= rate].min(), abs=1e-12)


def test_a_constant_score_detects_nothing():
    found = evaluation.aupr(torch.zeros(6), torch.zeros(2)), evaluation.fpr_at(torch.zeros(6), torch.zeros(2))
    assert found == (0.25, 1.0)


def test_detection_ranks_by_every_part():
    inside, outside = gather(4, 60, 5), gather(4, 40, 5, scale=1.0, seed=3)
    logits = random(60, 5), random(40, 5, seed=4)
    found = evaluation.detect(inside, outside, logits)
    assert list(found) == ["total", "epistemic", "aleatoric", "confidence", "energy"]
    labels = [0] * 60 + [1] * 40
    pairs = {part: torch.cat([getattr(inside, part), getattr(outside, part)]) for part in ("total", "epistemic")}
    pairs["confidence"] = -torch.cat([inside.probs.amax(1), outside.probs.amax(1)])
    pairs["energy"] = -torch.cat([row.exp().sum(1).log() for row in logits])
    for name, scores in pairs.items():
        assert found[name].aupr == pytest.approx(average_precision_score(labels, scores.numpy()), abs=1e-9)
        assert found[name].auroc == evaluation.auroc(scores[:60], scores[60:])
        assert found[name].fpr95 == evaluation.fpr_at(scores[:60], scores[60:], 0.95)


def test_energies_of_draws_are_averaged():
    inside, outside = gather(3, 20, 5), gather(3, 20, 5, seed=1)
    draws = random(3, 20, 5), random(3, 20, 5, seed=2)
    scores = [-torch.logsumexp(d, dim=2).mean(0) for d in draws]
    assert evaluation.detect(inside, outside, draws)["energy"].auroc == evaluation.auroc(*scores)


def test_dense_data_are_ranked_by_datum_or_by_position():
    inside, outside = gather(2, 9, 3, 4, 4), gather(2, 8, 3, 4, 4, scale=1.0, seed=5)
    by_datum, by_position = (evaluation.detect(inside, outside, positions=p)["total"] for p in (False, True))
    means = inside.total.mean((1, 2)), outside.total.mean((1, 2))
    assert by_datum.auroc == pytest.approx(evaluation.auroc(*means))
    assert by_position.auroc == evaluation.auroc(inside.total, outside.total)


def test_real_numbers_and_yes_or_no_are_detected_too():
    numbers = [GaussianPrediction(scale * random(3, 30, 2), torch.ones(3, 30, 2)) for scale in (1.0, 3.0)]
    assert list(evaluation.detect(*numbers)) == ["total", "epistemic", "aleatoric"]
    assert evaluation.detect(*numbers)["epistemic"].auroc > 0.8
    answers = [BernoulliPrediction(p, torch.zeros(30)) for p in (torch.full((30,), 0.9), torch.full((30,), 0.4))]
    assert evaluation.detect(*answers)["confidence"].auroc == 1.0
    with pytest.raises(Error, match="cannot be compared"):
        evaluation.detect(numbers[0], answers[0])
    with pytest.raises(Error, match="do not fit"):
        evaluation.detect(gather(1, 5, 3), gather(1, 5, 3), (torch.zeros(5, 4), torch.zeros(5, 3)))


def test_one_function_has_no_epistemic_rank():
    found = evaluation.detect(gather(1, 50, 10), gather(1, 50, 10, seed=1))
    assert found["epistemic"].auroc == 0.5


@pytest.mark.parametrize("shape", [(4, 300, 10), (3, 20, 5, 4, 4)])
def test_entropy_auc_is_the_area_under_the_distribution_function_and_one_less_the_mean_entropy(shape):
    prediction = gather(*shape)
    probs = prediction.probs.movedim(1, -1).reshape(-1, shape[2]).numpy()
    entropies = np.sort(-(probs * np.log(probs)).sum(1) / math.log(shape[2]))
    steps = np.diff(np.append(entropies, 1.0))  # the step function is k/n between the k-th entropy and the next
    area = (np.arange(1, len(entropies) + 1) / len(entropies) * steps).sum()
    assert evaluation.entropy_auc(prediction) == pytest.approx(area, abs=1e-6)
    assert evaluation.entropy_auc(prediction) == pytest.approx(1 - entropies.mean(), abs=1e-6)
    points = torch.tensor([0.2, 0.5, 0.9])
    expected = [np.mean(entropies <= point) for point in points.double().tolist()]
    assert evaluation.entropy_cdf(prediction, points).tolist() == pytest.approx(expected)


def test_entropy_auc_at_its_ends():
    flat = CategoricalPrediction(torch.full((4, 10), 0.1).log(), torch.zeros(4))
    assert evaluation.entropy_auc(flat) == pytest.approx(0, abs=1e-6)
    assert evaluation.entropy_auc(BernoulliPrediction(torch.ones(4), torch.zeros(4))) == 1.0


def test_entropy_is_the_sum_of_its_parts():
    prediction = gather(4, 30, 6)
    torch.testing.assert_close(evaluation.entropy(prediction.probs), prediction.total)
    assert float(evaluation.entropy(torch.tensor([[1.0, 0.0]]))) == 0
