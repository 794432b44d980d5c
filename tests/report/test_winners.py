"""Which methods a report names as best: as often by chance as it says, and only where the evidence shows it."""

import re

import numpy as np
import pytest
import torch

from posterity import evaluation, report
from posterity.evaluation.differences import Design
from posterity.prediction import CategoricalPrediction, GaussianPrediction
from posterity.report import Comparison
from posterity.report.words import verdict


def compared(score, rows, *, goal=None, design=None, task="classification", **seconds):
    """Methods of which each has the losses [seeds, rows] of a score; its value is their mean, or `goal` of it."""
    rows = {name: np.atleast_2d(np.asarray(each, dtype=float)) for name, each in rows.items()}
    value = goal or float
    methods = {name: {score: value(each.mean())} for name, each in rows.items()}
    for name, each in seconds.items():
        methods[name]["train_seconds"] = each
    evidence = {name: {score: {seed: [row] for seed, row in enumerate(each)}} for name, each in rows.items()}
    seeds = len(next(iter(rows.values())))
    return Comparison("t", task, methods, seeds=seeds, evidence=evidence, design=design or Design())


def wins(make, runs=300, seed=0):
    """How often a method is marked in a column of equal ones."""
    numbers = np.random.default_rng(seed)
    return np.mean([bool(make(numbers).best("nll")) for _ in range(runs)])


AT_MOST = 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5
"""Of 300 simulations: three standard errors above the stated rate."""


@pytest.mark.parametrize("methods", [2, 3, 8])
def test_of_equal_methods_with_one_seed_one_is_marked_in_at_most_a_twentieth_of_columns(methods):
    def make(numbers):
        hard = numbers.standard_normal(200)
        return compared("nll", {f"m{i}": 3 + hard + 0.3 * numbers.standard_normal(200) for i in range(methods)})

    assert wins(make) <= AT_MOST


@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize("same_rows", [True, False], ids=["the same rows", "a split per seed"])
def test_a_method_trained_twice_is_marked_above_itself_in_at_most_a_twentieth_of_columns(seeds, same_rows):
    """Between trainings the mean varies by 0.1, four times as much as over 200 rows."""

    def make(numbers):
        hard = numbers.standard_normal((1 if same_rows else seeds, 200))

        def trained():
            return 3 + hard + 0.1 * numbers.standard_normal((seeds, 1)) + 0.3 * numbers.standard_normal((seeds, 200))

        return compared("nll", {"a": trained(), "b": trained()}, design=Design(same_rows, 0.25))

    assert wins(make) <= AT_MOST


@pytest.mark.parametrize("others", [[3.0], [3.0] + [10.0] * 6], ids=["of two", "of eight"])
def test_a_lead_of_three_standard_errors_is_named(others):
    """With probability Φ(3 − 1.96) = 0.85; of 300 simulations, three standard errors are 0.06."""
    numbers, found = np.random.default_rng(0), []
    for _ in range(300):
        rows = {f"m{i}": lead + numbers.standard_normal(200) * 10 for i, lead in enumerate([0.0, *others])}
        found.append(compared("nll", rows).best("nll") == {"m0"})
    assert np.mean(found) >= 0.79


def test_a_lead_is_named_with_every_seed_where_it_is_the_rows_that_vary():
    numbers, found = np.random.default_rng(0), []
    for _ in range(300):
        a, b = numbers.standard_normal((2, 200)) * 10
        found.append(compared("nll", {"a": np.stack([a] * 3), "b": 3 + np.stack([b] * 3)}).best("nll") == {"a"})
    assert np.mean(found) >= 0.79


def test_two_seeds_that_agree_by_chance_are_not_enough():
    # Each seed differs by 0.008 ± 0.007 over its 200 rows; the two means are equal to the last digit.
    noise = 0.1 * np.linspace(-1, 1, 200) * 3**0.5
    rows = {"a": np.zeros((2, 200)), "b": 0.008 + np.stack([noise, noise[::-1]])}
    assert compared("nll", rows, design=Design(same_rows=False)).best("nll") == set()


def test_what_one_seed_shows_is_said_of_the_trained_networks():
    rows = np.random.default_rng(0).standard_normal(100)
    one, many = (
        compared("nll", {"map": 3 + r, "ibnn": 2.9 + r}, map=3.0, ibnn=9.0) for r in (rows, np.stack([rows] * 5))
    )
    said = " ".join(verdict(one))
    assert said.startswith(
        "Use this ibnn: of the networks trained here, its probabilities fit rows like these best (NLL "
    )
    assert "only more seeds show (--seeds 5)" in said
    assert "another training may turn out otherwise" in report.page(one)
    said = " ".join(verdict(many))
    assert said.startswith("Use ibnn here: its probabilities fit the truth best (NLL ")
    assert "networks trained here" not in said + report.page(many)


@pytest.mark.parametrize(("seeds", "told"), [(2, True), (4, True), (5, False)])
def test_few_seeds_are_said_to_tell_only_large_differences(seeds, told):
    rows = np.random.default_rng(0).standard_normal((2, seeds, 50))
    said = " ".join(verdict(compared("nll", {"map": 3 + rows[0], "ibnn": 3 + rows[1]})))
    assert (f"With {seeds} seeds only large differences between methods can be told." in said) == told


def test_of_methods_that_cannot_be_told_apart_the_quickest_is_named_and_why():
    noise = np.linspace(-1, 1, 100)  # over 100 rows, a standard error of 0.058
    near = compared("nll", {"ibnn": 2 + noise, "map": np.full(100, 2.1)}, map=3.0, ibnn=9.0)
    said = " ".join(verdict(near))
    assert re.match(
        r"Use map here: ibnn and map cannot be told apart \(NLL [\d.]+ to [\d.]+, tested at the 5 % level\), "
        r"and map is the quickest to train \(3 s\)\.",
        said,
    )
    assert "networks trained here" not in said
    text = report.page(near)
    assert "models/map" in text
    assert "★" not in text
    assert "No difference between trained networks can be told." in text
    far = compared("nll", {"ibnn": 2 + noise, "map": np.full(100, 2.13)}, map=3.0, ibnn=9.0)
    assert far.best("nll") == {"ibnn"}


def test_differences_are_paired_row_by_row():
    rows = np.random.default_rng(0).standard_normal(100)  # whose mean has a standard error of 0.1
    better = rows - 0.02 + 0.01 * np.linspace(-1, 1, 100)
    assert compared("nll", {"map": rows, "ibnn": better}).best("nll") == {"ibnn"}
    assert compared("nll", {"map": rows, "ibnn": better[::-1]}).best("nll") == set()


@pytest.mark.parametrize(("rows", "named"), [(1, False), (5, False), (6, False), (7, True)])
def test_a_few_rows_that_differ_are_no_difference(rows, named):
    """All of seven in one direction have a chance of 1/64, by the sign test; of five 1/16."""
    wrong = np.arange(500) < 50
    fewer = wrong & (np.arange(500) >= rows)
    assert compared("error", {"map": wrong, "ibnn": fewer}).best("error") == ({"ibnn"} if named else set())


def test_what_lies_between_two_that_are_tied_is_tied_too():
    noise = np.linspace(-1, 1, 100)
    found = compared("nll", {"a": np.zeros(100), "b": np.full(100, 0.05), "c": 0.06 + noise})
    assert found.tied("nll") == ["a", "b", "c"]
    assert compared("nll", {"a": np.zeros(100), "b": np.full(100, 0.05)}).tied("nll") == ["a"]


def test_values_that_read_the_same_are_both_best():
    rows = {"a": np.full(100, 0.100001), "b": np.full(100, 0.1), "c": np.full(100, 0.2)}
    assert compared("error", rows).best("error") == {"a", "b"}


def test_without_rows_the_standard_deviation_over_seeds_tells_apart():
    methods = {"map": {"nll": 0.5, "nll_std": 0.2}, "ibnn": {"nll": 0.45, "nll_std": 0.2}}
    assert Comparison("t", "classification", methods, seeds=2).tied("nll") == ["map", "ibnn"]
    assert Comparison("t", "classification", methods, seeds=300).tied("nll") == ["ibnn"]
    alone = {"map": {"nll": 0.5, "nll_std": None}, "ibnn": {"nll": 0.1, "nll_std": None}}
    assert Comparison("t", "classification", alone).best("nll") == set()
    assert verdict(Comparison("t", "classification", methods, seeds=2))[0].endswith("and ibnn has the lowest.")


def test_with_one_seed_no_score_wins_by_its_value_alone():
    """Two predictions of equal law differ in every score, and in none by more than chance."""
    generator = torch.Generator().manual_seed(1)
    truth = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    y = torch.multinomial(truth.softmax(1), 1, generator=generator)[:, 0]
    methods, evidence = {}, {}
    for name in ("a", "b"):
        draws = [
            (truth + 0.5 * torch.randn(4, 300, 3, generator=generator, dtype=torch.float64)).softmax(2)
            for _ in range(2)
        ]
        inside, outside = (CategoricalPrediction.from_probs(each) for each in draws)
        methods[name] = evaluation.scorecard(inside, y)
        methods[name]["auroc_outside"] = evaluation.detect(inside, outside)["epistemic"].auroc
        found = evaluation.evidence(inside, y, outside)
        evidence[name] = {score: {0: [sample.numpy() for sample in samples]} for score, samples in found.items()}
    comparison = Comparison("t", "classification", methods, evidence=evidence)
    for score in ("ece", "aurc", "auroc_outside", "nll", "brier"):
        assert methods["a"][score] != methods["b"][score]
        assert comparison.best(score) == set()


def test_coverage_is_compared_by_its_distance_from_the_level():
    methods, evidence, y = {}, {}, torch.randn(1000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for name, std in (("wide", 2.0), ("right", 1.0), ("narrow", 0.5)):
        prediction = GaussianPrediction(torch.zeros(1, 1000, 1), torch.full((1, 1000, 1), std**2))
        methods[name] = evaluation.score(prediction, y)
        found = evaluation.evidence(prediction, y)
        evidence[name] = {score: {0: [sample.numpy() for sample in samples]} for score, samples in found.items()}
    assert methods["wide"]["coverage90"] > methods["right"]["coverage90"] > methods["narrow"]["coverage90"]
    assert Comparison("t", "regression", methods, evidence=evidence).best("coverage90") == {"right"}


def test_no_better_than_a_coin_is_not_marked():
    """AUROC: 1 − its value is the mean of the losses. A lead over a coin by chance is none."""
    noise = np.linspace(-1, 1, 100)

    def noticing(**values):
        return compared(
            "auroc_outside", {name: 1 - v + noise for name, v in values.items()}, goal=lambda loss: 1 - loss
        )

    assert noticing(a=0.5, b=0.4, c=0.3).best("auroc_outside") == set()
    assert noticing(a=0.55, b=0.4).best("auroc_outside") == set()
    found = noticing(a=0.65, b=0.5, c=0.4)
    assert found.best("auroc_outside") == {"a"}
    assert any("a notices" in sentence for sentence in verdict(found))
    assert "★" not in report.page(noticing(a=0.55, b=0.4))
    both = compared("auroc_outside", {"a": 0.1 + noise, "b": 0.11 + noise[::-1]}, goal=lambda loss: 1 - loss)
    assert both.best("auroc_outside") == set()
    assert "a and b notice data from elsewhere equally well, as far as can be told" in " ".join(verdict(both))


def test_a_method_is_worth_networks_only_if_it_is_better_than_one():
    rows = np.random.default_rng(0).standard_normal(50)
    for lead, told in ((0.01, False), (1.0, True)):
        found = compared("nll_calibrated", {"map": rows, "ibnn": rows[::-1] - lead}, map=1.0, ibnn=2.0)
        found.methods["map"].update(nll=0.5, ensemble_equivalent=1.0)
        found.methods["ibnn"].update(nll=0.4, ensemble_equivalent=3.0)
        for name, each in found.evidence.items():
            each["nll"] = {0: [np.full(50, found.methods[name]["nll"])]}
        assert found.best("nll") == {"ibnn"}
        assert found.best("ensemble_equivalent") == ({"ibnn"} if told else set())
        assert ("worth 3.0 networks trained apart" in " ".join(verdict(found))) == told
        assert (
            "None is marked where no difference can be told: NLL, calibrated; worth networks." in report.page(found)
        ) == (not told)
