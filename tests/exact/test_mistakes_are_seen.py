"""The checks of `test_exact.py` can fail: each rejects a method with a mistake that is easily made."""

from typing import Any

import known
import pytest
import recipes
import torch
from checks import is_the_best_gaussian
from distances import tolerance, total_variation
from recipes import bound, functions

from posterity import LIVI, BayesByBackprop, BayesByHypernet


def without_half(cls: type) -> type:
    """The ½ of the whole divergence is dropped."""

    class Wrong(cls):  # type: ignore[misc]
        def divergence(self, generator=None):
            return 2 * super().divergence(generator)

        def terms(self, x, y, likelihood, generator=None):
            log_prob, penalty = super().terms(x, y, likelihood, generator)
            return log_prob, penalty if isinstance(self, BayesByBackprop) else 2 * penalty

    return Wrong


def squares_without_half(cls: type) -> type:
    """The ½ of the quadratic part alone is dropped."""

    class Wrong(cls):  # type: ignore[misc]
        def divergence(self, generator=None):
            squares = (self.stds / self.prior_stds).square() + (self.means / self.prior_stds).square()
            return super().divergence(generator) + 0.5 * squares.sum()

    return Wrong


def over_the_batch(cls: type) -> type:
    """The divergence is divided by the rows of the batch in place of those of the data."""

    class Wrong(cls):  # type: ignore[misc]
        def loss(self, x, y, likelihood=None, *, size, **rest):
            return super().loss(x, y, likelihood, size=len(y), **rest)

    return Wrong


def without_constant(cls: type) -> type:
    """The −½ of each weight is forgotten: no gradient knows of it, the evidence does."""

    class Wrong(cls):  # type: ignore[misc]
        def divergence(self, generator=None):
            return super().divergence(generator) - 0.5 * self.weights.size

    return Wrong


def right(cls: type) -> type:
    return cls


def fitted(cls: type, prior_std: float | None = None, batch_size: int = 24) -> Any:
    """The method on the linear regression, trained as in its recipe."""
    scenario = known.linear()
    options = {
        BayesByBackprop: {"init_std": 0.1},
        LIVI: {"linear": True, "noise_size": 2, "init_std": 0.1, "seed": 0, "samples": 16},
        BayesByHypernet: {"jitter": 0.01, "spread": 0.03, "seed": 0},
    }
    base, name = next((base, name) for base, name in NAMES.items() if issubclass(cls, base))
    posterior = cls(scenario.network(), prior_std=prior_std or scenario.prior_std, **{"samples": 8} | options[base])
    epochs = recipes.RECIPES[name].steps * batch_size // 24
    arguments = recipes.settings(scenario, name, epochs) | {"batch_size": batch_size}
    return recipes.train(posterior, scenario, arguments)


NAMES = {BayesByBackprop: "bbb", LIVI: "livi linear", BayesByHypernet: "bbh"}
MISTAKES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a dropped half": (without_half, {}),
    "a dropped half of the squares": (squares_without_half, {}),
    "divided by the batch": (over_the_batch, {"batch_size": 6}),
    "a forgotten constant": (without_constant, {}),
    "variance for standard deviation": (right, {"prior_std": 0.5**2}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_bayes_by_backprop_is_not_the_best_factorised_gaussian(mistake):
    wrong, settings = MISTAKES[mistake]
    assert not is_the_best_gaussian(fitted(wrong(BayesByBackprop), **settings), known.linear(), full=False)


def test_batches_alone_are_no_mistake():
    assert is_the_best_gaussian(fitted(BayesByBackprop, batch_size=6), known.linear(), full=False)


@pytest.mark.parametrize("mistake", ["a dropped half", "divided by the batch"])
def test_a_wrong_linear_generator_is_not_the_best_gaussian(mistake):
    wrong, settings = MISTAKES[mistake]
    assert not is_the_best_gaussian(fitted(wrong(LIVI), **settings), known.linear(), full=True)


@pytest.mark.parametrize("mistake", ["a dropped half", "variance for standard deviation"])
def test_a_wrong_hypernet_is_far_from_the_posterior(mistake):
    """A right one is within half of mean field's distance of 0.21, which is what `test_exact.py` asks of it."""
    wrong, settings = MISTAKES[mistake]
    scenario, posterior = known.linear(), fitted(wrong(BayesByHypernet), **settings)
    assert total_variation(functions(posterior, scenario), scenario.reference) > 0.5 * 0.21 + tolerance(recipes.DRAWS)


def test_a_bound_without_its_divergence_is_above_the_evidence():
    scenario, posterior = known.linear(), recipes.trained("linear", "bbb")
    found = bound(posterior, scenario)
    with torch.no_grad():
        divergence = float(posterior.divergence())
    assert found.value + divergence > scenario.log_evidence + 4 * found.error
