import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from posterity import evaluation
from posterity.errors import Error
from posterity.evaluation import summary
from posterity.likelihoods import Categorical
from posterity.prediction import CategoricalPrediction, GaussianPrediction


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("decimals", [6, 1, 0])
def test_auroc_agrees_with_sklearn_with_and_without_ties(decimals):
    inside, outside = random(80).round(decimals=decimals), (random(50, seed=1) + 0.7).round(decimals=decimals)
    labels = [0] * 80 + [1] * 50
    expected = roc_auc_score(labels, torch.cat([inside, outside]).numpy())
    assert evaluation.auroc(inside, outside) == pytest.approx(expected, abs=1e-12)


def test_auroc_of_a_constant_score_is_a_coin():
    assert evaluation.auroc(torch.zeros(5), torch.zeros(9)) == 0.5


@pytest.mark.parametrize("outside", [torch.zeros(0), torch.tensor([float("nan")])])
def test_auroc_refuses_what_has_no_rank(outside):
    with pytest.raises(Error):
        evaluation.auroc(torch.zeros(3), outside)


def test_reliability_bins_agree_with_a_loop():
    probs = torch.softmax(2 * random(200, 5), dim=1)
    y = torch.randint(5, (200,), generator=torch.Generator().manual_seed(2))
    found = evaluation.reliability(probs, y, bins=10)
    for b in range(10):
        rows = [i for i in range(200) if b / 10 < probs[i].max() <= (b + 1) / 10]
        assert float(found.share[b]) == pytest.approx(len(rows) / 200)
        if rows:
            assert float(found.confidence[b]) == pytest.approx(np.mean([float(probs[i].max()) for i in rows]))
            assert float(found.accuracy[b]) == pytest.approx(np.mean([int(probs[i].argmax()) == y[i] for i in rows]))


def test_a_confidence_on_an_edge_belongs_to_the_bin_below():
    share = evaluation.reliability(torch.tensor([[0.75, 0.25]], dtype=torch.float64), torch.tensor([0]), bins=4).share
    assert share.tolist() == [0, 0, 1, 0]


def test_interval_coverage_counts_targets_between_quantiles():
    prediction = GaussianPrediction(random(3, 60, 1), random(3, 60, 1, seed=1).exp())
    y = 2 * random(60, 1, seed=2)
    levels = torch.tensor([0.2, 0.5, 0.9])
    found = evaluation.interval_coverage(prediction, y, levels)
    for level, share in zip(levels.tolist(), found.tolist(), strict=True):
        low, high = prediction.interval(level)
        assert share == pytest.approx(float(((y >= low) & (y <= high)).double().mean()))


def test_intervals_of_the_true_distribution_keep_their_level():
    prediction = GaussianPrediction(torch.zeros(1, 4000, 1), torch.ones(1, 4000, 1))
    levels = torch.tensor([0.1, 0.5, 0.9])
    found = evaluation.interval_coverage(prediction, random(4000, 1), levels)
    standard_errors = (levels * (1 - levels) / 4000).sqrt()
    assert bool(((found - levels).abs() < 4 * standard_errors).all())


def test_selection_keeps_the_most_certain():
    loss = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0])
    uncertainty = torch.tensor([0.9, 0.1, 0.5, 0.2, 0.3])
    kept = evaluation.selective_mean(loss, uncertainty, torch.tensor([0.2, 0.6, 0.8, 1.0]))
    assert kept.tolist() == pytest.approx([0, 0, 0.25, 0.4])


def test_selection_by_a_constant_uncertainty_is_flat():
    kept = evaluation.selective_mean(random(50).abs(), torch.ones(50), torch.linspace(0.1, 1, 10))
    torch.testing.assert_close(kept, random(50).abs().mean().expand(10))


def test_selection_of_three_tenths_of_ten_keeps_three():
    kept = evaluation.selective_mean(torch.arange(10.0), torch.arange(10.0), torch.tensor([0.1 + 0.2]))
    assert kept.tolist() == [1.0]


def test_summary_of_a_classification_is_json_and_agrees_with_the_scores():
    log_probs = torch.log_softmax(random(40, 3), dim=1)
    y = torch.randint(3, (40,), generator=torch.Generator().manual_seed(3))
    prediction = CategoricalPrediction(log_probs, torch.zeros(40))
    outside = CategoricalPrediction(torch.log_softmax(0.1 * random(25, 3), dim=1), torch.zeros(25))
    found = json.loads(json.dumps(evaluation.summarise(prediction, y, outside), allow_nan=False))
    assert found["selection"]["kept"][-1] == pytest.approx(1 - evaluation.score(prediction, y)["error"], abs=1e-5)
    assert sum(found["outside"]["inside"]) == pytest.approx(1, abs=1e-4)
    assert sum(found["outside"]["outside"]) == pytest.approx(1, abs=1e-4)
    assert found["outside"]["auroc_epistemic"] == evaluation.auroc(prediction.epistemic, outside.epistemic)
    ranked = prediction.total[found["extremes"]["index"]]
    assert float(ranked[0]) == pytest.approx(float(prediction.total.min()))
    assert float(ranked[-1]) == pytest.approx(float(prediction.total.max()))


def test_summary_of_a_regression_is_json_and_shows_a_bounded_sample():
    prediction = GaussianPrediction(random(4, 1000, 1), random(4, 1000, 1, seed=1).exp())
    found = json.loads(json.dumps(evaluation.summarise(prediction, random(1000, seed=2)), allow_nan=False))
    assert len(found["points"]["true"]) == summary.POINTS
    assert "outside" not in found
    uncertainty = found["uncertainty"]
    assert uncertainty["total"] == pytest.approx(uncertainty["aleatoric"] + uncertainty["epistemic"])


def test_one_function_has_no_epistemic_uncertainty_to_detect_by():
    def single(seed):
        return CategoricalPrediction.gather([3 * random(1, 200, 10, seed=seed).float()], Categorical())

    inside, outside = single(0), single(1)
    assert not inside.epistemic.any()
    found = evaluation.summarise(inside, torch.zeros(200).long(), outside)["outside"]
    assert found["auroc_epistemic"] == 0.5


def test_summary_of_three_data_works():
    prediction = CategoricalPrediction(torch.log_softmax(random(3, 2), dim=1), torch.zeros(3))
    assert len(evaluation.summarise(prediction, torch.tensor([0, 1, 1]))["extremes"]["index"]) == 6


def test_evaluation_imports_torch_and_numpy_alone():
    heavy = ("matplotlib", "pandas", "scipy", "sklearn", "rich", "typer")
    code = f"import sys, posterity.evaluation; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
