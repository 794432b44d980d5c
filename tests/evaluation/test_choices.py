"""Guarantees that hold for the method that was chosen by them, not only for one that was fixed beforehand."""

import re

import numpy as np
import pytest
import torch

from posterity import Error, evaluation, report
from posterity.evaluation import selected_level
from posterity.prediction import CategoricalPrediction, GaussianPrediction
from posterity.report import Comparison


def useless(generator, rows=600, wrong=0.055):
    """Predictions whose errors have nothing to do with their uncertainty, and classes."""
    sure = 0.6 + 0.39 * torch.rand(rows, generator=generator, dtype=torch.float64)
    y = (torch.rand(rows, generator=generator) < wrong).long()
    return CategoricalPrediction(torch.stack([sure, 1 - sure], dim=1).log(), torch.zeros(rows)), y


def test_a_share_wrong_that_is_promised_of_the_best_of_eight_methods_holds_with_the_stated_confidence():
    """5.5 % are wrong at every threshold, so each promise of 5 % is false; of 60, three standard errors are 8.4 %."""
    generator, broken = torch.Generator().manual_seed(0), []
    for _ in range(60):
        found = [evaluation.promises(*useless(generator), among=8)["abstention"][1] for _ in range(8)]
        broken.append(any(entry["kept"] > 0 for entry in found))
    assert np.mean(broken) <= 0.05 + 0.084


def test_the_more_methods_to_choose_from_the_less_is_promised():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2000, generator=generator, dtype=torch.float64)
    y = (torch.rand(2000, generator=generator, dtype=torch.float64) < logits.sigmoid()).long()
    prediction = CategoricalPrediction(
        torch.nn.functional.logsigmoid(torch.stack([-logits, logits], 1)), torch.zeros(2000)
    )
    kept = [evaluation.promises(prediction, y, among=m)["abstention"][1] for m in (1, 64)]
    assert kept[0]["kept"] > kept[1]["kept"] > 0
    assert kept[0]["threshold"] > kept[1]["threshold"]
    truth = torch.randn(400, 1, generator=generator, dtype=torch.float64)
    normal = GaussianPrediction(torch.zeros(1, 400, 1), torch.ones(1, 400, 1))
    widths = [evaluation.promises(normal, truth, among=m)["intervals"]["width"] for m in (1, 8, 64)]
    assert widths == sorted(set(widths))


@pytest.mark.parametrize(("n", "coverage"), [(50, 0.9), (180, 0.95), (1000, 0.9)])
def test_the_narrowest_of_eight_conformal_rules_covers_on_average(n, coverage):
    """Of rules that know nothing of each other the least coverage is the least of eight Beta variables."""
    assert selected_level(n, coverage, 1) == coverage
    k = round(selected_level(n, coverage, 8) * (n + 1))
    least = np.random.default_rng(0).beta(k, n + 1 - k, size=(20_000, 8)).min(axis=1)
    assert coverage <= least.mean() <= coverage + 0.25 * (1 - coverage)
    before = np.random.default_rng(0).beta(
        np.ceil(coverage * (n + 1)), n + 1 - np.ceil(coverage * (n + 1)), (20_000, 8)
    )
    assert before.min(axis=1).mean() < coverage - 0.01


def test_too_few_data_for_a_choice_are_named():
    with pytest.raises(Error, match="one chosen of 64 takes more than 40 calibration data"):
        selected_level(40, 0.9, 64)


def test_the_table_allows_for_the_choice_among_its_methods():
    generator, summaries = torch.Generator().manual_seed(0), {}
    for name in ("map", "ibnn", "ensemble"):
        prediction, y = useless(generator, wrong=0.02)
        summaries[name] = evaluation.summarise(prediction, y)
    methods = {name: {"nll": 0.1} for name in summaries}

    def cells(names):
        chosen = {name: summaries[name] for name in names}
        text = report.page(Comparison("t", "classification", {n: methods[n] for n in names}, summaries=chosen))
        text = text.split("<h2>What can be promised?")[1].split("</section>")[0]
        return re.findall(r"<td>([\d.]+) % \(", text), text

    for names, record in ((["map"], "promises"), (["map", "ibnn"], "2"), (["map", "ibnn", "ensemble"], "4")):
        entries = [
            summaries[n]["promises"] if record == "promises" else summaries[n]["promises_among"][record] for n in names
        ]
        shown, text = cells(names)
        assert shown == [f"{100 * e['kept']:.0f}" for p in entries for e in p["abstention"] if e["kept"]]
        assert ("whichever of the" in text) == (len(names) > 1)
    assert "whichever of the 3 methods you choose by this table" in text
