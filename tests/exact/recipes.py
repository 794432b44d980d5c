"""How every method is trained on the scenarios, and what is measured of it: shared by the tests and by the benchmark.

All of them see full batches, β = 1 from the start, and rates that fall along a cosine. The point methods have the
scenario's prior as weight decay, 1/(N s²), under SGD: the decay of AdamW is decoupled from the loss, so its fixed point
is not the mode. Where a method has `prior_std` over weights it is the scenario's. iBNN has a prior of its own, over
nodes; "ibnn wide" makes of it, where the network has one layer, the model of the scenario (see `wide`).
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import known
import torch
from known import Known
from torch import nn

import posterity
from common import generator
from posterity import IBNN, LIVI, MAP, MNF, BayesByBackprop, BayesByHypernet, DeepEnsemble, MCDropout, Posterior

#: s of "ibnn wide", so that its weights have the prior N(prior_std/s, prior_std²): nearly that of the scenario.
WIDTH = 30.0
DRAWS = 20_000


class Recipe(NamedTuple):
    """A method's name in the table, how it is built (scenario, seed) and trained, and what is special in words."""

    method: str
    build: Callable[[Known, int], Posterior]
    fit: dict[str, Any]
    words: str = "defaults"
    #: Whether what it minimises bounds the evidence of the scenario's model (or of its own, see `own_model`).
    bounds: bool = False
    #: Steps of a brief training, which is enough for what the tests ask.
    steps: int = 400


def wide(scenario: Known) -> nn.Module:
    """The network with all weights held at prior_std/s.

    With noise N(1, s²) on its inputs they are N(prior_std/s, prior_std²) where a layer has one output; elsewhere
    outputs would share their noise.
    """
    network = scenario.network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(scenario.prior_std / WIDTH)
    return network.requires_grad_(False)


@functools.cache
def own_model(name: str) -> Known:
    """The model whose posterior "ibnn wide" approximates: the scenario with its prior's mean at prior_std/s."""
    scenario = known.SCENARIOS[name]()
    mean = scenario.prior_std / WIDTH
    edge = {"linear": 3.0, "logistic": 12.0, "signs": 5.0}[name]
    return known.integrated(
        name, scenario.x, scenario.y, scenario.make, scenario.likelihood, scenario.prior_std, edge, mean
    )


def _ibnn_wide(scenario: Known, seed: int) -> Posterior:
    if scenario.name == "network":
        return IBNN(scenario.network(seed), 16, prior_std=1.0, init_std=0.5, gamma=0.0, samples=4, seed=seed)
    return IBNN(
        wide(scenario), 16, prior_std=WIDTH, init_std=WIDTH, init_noise=0.1 * WIDTH, gamma=0.0, samples=8, seed=seed
    )


#: S, training draws of the variational methods.
SAMPLES = 8
_POINT = {"optimizer": "sgd"}

RECIPES: dict[str, Recipe] = {
    "map": Recipe("map", lambda k, seed: MAP(k.network(seed)), _POINT),
    "ensemble": Recipe("ensemble", lambda k, seed: DeepEnsemble(k.network(seed), 20, seed=seed), _POINT, "20 members"),
    "dropout": Recipe("dropout", lambda k, seed: MCDropout(k.network(seed), 0.05, samples=SAMPLES), _POINT, "p = 0.05"),
    "bbb": Recipe(
        "bbb",
        lambda k, seed: BayesByBackprop(k.network(seed), prior_std=k.prior_std, init_std=0.1, samples=SAMPLES),
        {"lr": 3e-2},
        "init_std 0.1",
        bounds=True,
    ),
    "mnf": Recipe(
        "mnf",
        lambda k, seed: MNF(
            k.network(seed), prior_std=k.prior_std, init_std=0.0015, init_noise=0.1, samples=SAMPLES, seed=seed
        ),
        {"lr": 2e-2},
        "init_std 0.0015, init_noise 0.1",
        bounds=True,
    ),
    "bbh": Recipe(
        "bbh",
        lambda k, seed: BayesByHypernet(
            k.network(seed), prior_std=k.prior_std, noise=32, jitter=0.01, spread=0.03, samples=SAMPLES, seed=seed
        ),
        {"lr": 1e-2},
        "32 noise variables (no more than weights), jitter 0.01, spread 0.03",
        steps=250,
    ),
    "bbh bound": Recipe(
        "bbh",
        lambda k, seed: BayesByHypernet(
            k.network(seed),
            prior_std=k.prior_std,
            noise=32,
            jitter=0.01,
            spread=0.03,
            divergence="bound",
            neighbours=64,
            samples=SAMPLES,
            seed=seed,
        ),
        {"lr": 1e-2},
        'the same with divergence="bound", 64 neighbours',
        bounds=True,
        steps=120,
    ),
    "ibnn": Recipe("ibnn", lambda k, seed: IBNN(k.network(seed), seed=seed), {"lr": 5e-3}),
    "ibnn wide": Recipe(
        "ibnn",
        _ibnn_wide,
        {"lr": 5e-3},
        "K = 16, γ = 0; s = 30 with all weights held at prior_std/30 (on the network s = 1, σ0 = 0.5, weights trained)",
        bounds=True,
        steps=300,
    ),
    "livi": Recipe(
        "livi",
        lambda k, seed: LIVI(
            k.network(seed),
            prior_std=k.prior_std,
            noise_size=2 if k.name != "network" else 6,
            init_std=0.1,
            samples=SAMPLES,
            seed=seed,
        ),
        {"lr": 3e-3},
        "noise 2 × 2 (6 × 6 on the network), otherwise the defaults",
        steps=200,
    ),
    "livi linear": Recipe(
        "livi",
        lambda k, seed: LIVI(
            k.network(seed),
            prior_std=k.prior_std,
            noise_size=2 if k.name != "network" else 7,
            linear=True,
            init_std=0.1,
            samples=2 * SAMPLES,
            seed=seed,
        ),
        {"lr": 4e-3},
        "a linear generator (a Gaussian), noise 2 × 2 (7 × 7 on the network), 16 draws a step",
        bounds=True,
    ),
}


#: Learning rates of SGD by the curvature of the scenario, and of Adam on the network, whose loss is steep.
STEEPNESS = {"linear": 0.1, "logistic": 0.5, "signs": 0.05, "network": 3e-3}
NETWORK = {"bbb": 1e-2, "mnf": 1e-2, "bbh": 5e-3, "ibnn": 5e-3, "livi": 1e-3}


def settings(scenario: Known, name: str, epochs: int) -> dict[str, Any]:
    """The arguments of `fit`."""
    found: dict[str, Any] = {
        "epochs": epochs, "batch_size": len(scenario.x), "beta": 1.0, "weight_decay": 0.0, "device": "cpu",
        "progress": False, **RECIPES[name].fit,
    }  # fmt: skip
    if found.get("optimizer") == "sgd":
        found |= {"weight_decay": 1 / (len(scenario.x) * scenario.prior_std**2), "lr": STEEPNESS[scenario.name]}
    elif scenario.name == "network":
        found["lr"] = NETWORK[RECIPES[name].method]
    if name == "ibnn wide" and scenario.name != "network":
        found["lr_posterior"] = WIDTH / 30
    return found


def train(posterior: Posterior, scenario: Known, arguments: dict[str, Any], seed: int = 0) -> Posterior:
    """Fit a posterior in place."""
    posterity.fit(posterior, (scenario.x, scenario.y), scenario.likelihood(), seed=seed, **arguments)
    return posterior


@functools.cache
def trained(scenario: str, name: str, seed: int = 0, epochs: int | None = None) -> Posterior:
    """A recipe on a scenario, briefly unless `epochs` are given; trained once, so it must not be changed."""
    found, recipe = known.SCENARIOS[scenario](), RECIPES[name]
    return train(recipe.build(found, seed), found, settings(found, name, epochs or recipe.steps), seed)


def functions(posterior: Posterior, scenario: Known, n: int = DRAWS) -> Any:
    """n drawn functions on the grid, `[n, grid]`, double."""
    with torch.no_grad():
        return posterior.draw(n, generator(1))(scenario.grid)[..., 0].double().numpy()


class Bound(NamedTuple):
    """E log p(y | f(x)) − divergence, estimated, and the standard error of that."""

    value: float
    error: float


def bound(posterior: Posterior, scenario: Known, n: int = DRAWS, repeats: int = 20) -> Bound:
    """Of all data, by drawn functions: it does not rest on how the training estimates the likelihood."""
    random, before = generator(5), posterior.samples
    with torch.no_grad():
        outputs = posterior.draw(n, random)(scenario.x)
        log_likelihood = scenario.likelihood().log_prob(outputs, scenario.y).sum(1).double()
        posterior.samples = n // repeats
        divergence = torch.stack([posterior.divergence(random) for _ in range(repeats)]).double()
        posterior.samples = before
    value = float(log_likelihood.mean() - divergence.mean())
    return Bound(value, math.sqrt(float(log_likelihood.var()) / n + float(divergence.var()) / repeats))


def log_evidence(scenario: Known, name: str) -> float | None:
    """Of the model whose posterior the recipe approximates."""
    if name == "ibnn wide" and scenario.name != "network":
        return own_model(scenario.name).log_evidence
    return scenario.log_evidence if RECIPES[name].method != "ibnn" else None


def mode(scenario: Known, start: torch.Tensor) -> torch.Tensor:
    """The mode of the posterior of the weights near `start`, `[weights]`: sought from beside it, so not just kept."""
    w = (start.double() + 0.05).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [w], max_iter=1000, tolerance_grad=1e-8, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = -scenario.log_joint(w)
        loss.backward()
        return loss

    optimizer.step(closure)
    return w.detach()
