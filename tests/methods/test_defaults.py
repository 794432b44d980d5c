"""Defaults were chosen by evidence (docs/results/defaults.md) or by a paper: none changes by accident."""

import inspect

import pytest

import posterity
from common import mlp, seeded

DEFAULTS = {
    "map": {"samples": 1},
    "ensemble": {"members": 5, "samples": None, "adversarial": None, "layers": None},
    "dropout": {"rate": 0.05, "samples": 1, "layers": None},
    "bbb": {
        "samples": 1, "prior_std": None, "prior": "gaussian", "share": 0.5, "narrow": 0.1, "centred": False,
        "init_std": 0.03, "parametrisation": "softplus", "estimator": "auto", "layers": None,
    },
    "mnf": {
        "steps": 2, "hidden": 50, "samples": 1, "prior_std": None, "init_std": 0.03, "init_noise": 0.1,
        "r": "estimate", "layers": None,
    },
    "bbh": {
        "layout": "chunked", "samples": 1, "noise": 8, "shared": True, "prior_std": 3.0, "divergence": "linearised",
        "jitter": 0.01, "learn_jitter": True, "spread": None, "centre": True, "neighbours": 5, "hidden": None,
        "codes": 16, "chunk": None, "slice_batch": False, "layers": None,
    },
    "ibnn": {
        "components": 4, "samples": 1, "prior_std": 0.1, "init_std": 0.1, "init_noise": 0.05, "kl": "bound",
        "gamma": 4.0, "noise": "input", "bias_noise": False, "per_layer": False, "assignment": "paper", "layers": None,
    },
    "livi": {
        "samples": 2, "prior_std": None, "noise_size": 8, "hidden": 16, "depth": 2, "linear": False,
        "entropy": "exact", "noise_std": None, "learn_noise": False, "init_std": 0.1, "layers": None,
    },
}  # fmt: skip
RATES = {"ibnn": 10.0, "livi": 10.0}
DRAWS = {"map": 1, "ensemble": 5, "ibnn": 40}


@pytest.mark.parametrize("name", posterity.methods())
def test_a_methods_defaults_are_those_that_were_confirmed(name):
    method = posterity.methods()[name]
    parameters = inspect.signature(method).parameters.values()
    shared = ("network", "output", "seed", "generator")
    assert {p.name: p.default for p in parameters if p.name not in shared} == DEFAULTS[name]
    posterior = method(seeded(mlp), seed=0)
    assert posterior.relative_rate == RATES.get(name, 1.0)
    assert posterior.draws == DRAWS.get(name, 100)


def test_the_papers_recipe_of_ibnn_is_its_own():
    assert posterity.IBNN.recipe("vgg16-cifar10")["posterior"]["components"] == 16
    recipe = posterity.IBNN.recipe("vgg16-cifar10", components=4)
    assert recipe["posterior"] == {
        "components": 4, "samples": 2, "prior_std": 0.3, "init_std": 0.75, "init_noise": 0.05, "kl": "mixture_mean",
        "gamma": 0.0,
    }  # fmt: skip
    assert recipe["fit"] == {
        "epochs": 300, "batch_size": 128, "optimizer": "sgd", "lr": 0.05, "lr_posterior": 0.3, "weight_decay": 5e-4,
        "schedule": "piecewise", "schedule_posterior": "constant", "beta": ("linear", 2 / 3),
    }  # fmt: skip


def test_the_papers_table_of_ibnn_has_its_rates_and_spreads():
    table = {
        "vgg16-cifar10": (0.75, 0.3, 0.05, 5e-4, 1.2),
        "vgg16-cifar100": (0.75, 0.3, 0.05, 3e-4, 1.6),
        "wrn28x10-cifar10": (0.5, 0.1, 0.1, 5e-4, 2.4),
        "wrn28x10-cifar100": (0.5, 0.1, 0.1, 5e-4, 4.8),
    }
    for name, (init_std, prior_std, lr, decay, rate) in table.items():
        recipe = posterity.IBNN.recipe(name, components=2)
        assert (recipe["posterior"]["init_std"], recipe["posterior"]["prior_std"]) == (init_std, prior_std)
        found = tuple(recipe["fit"][key] for key in ("lr", "weight_decay", "lr_posterior"))
        assert found == (lr, decay, rate / 2)


def test_livi_has_noise_beside_its_variables_where_they_do_not_reach_every_weight():
    assert posterity.LIVI(seeded(mlp), seed=0).config()["noise_std"] == 0.05
    assert posterity.LIVI(seeded(mlp), noise_size=32, seed=0).config()["noise_std"] == 0.001
