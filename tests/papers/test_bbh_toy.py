"""The toy regression of Bayes by Hypernet: its truth, its setting, and what is said of it."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import posterity
from posterity import networks
from posterity.papers import Bench, bbh_cells, bbh_toy

FULL = Bench(Path(), "full")


def test_claims_on_the_toy_follow_the_numbers():
    x = bbh_toy.grid().flatten().double()
    truth = {"mean": x.tolist(), "std": (1 + x.abs()).tolist()}
    narrow = {"mean": x.tolist(), "std": (0.1 * x.abs()).tolist()}
    off = {"mean": (x + 30).tolist(), "std": truth["std"]}
    scores = {"BbH": truth, "BbB": off, "MAP": narrow}
    found = {name: bbh_toy.scores(band, truth) for name, band in scores.items()}
    assert found["BbH"]["distance"] == pytest.approx(0, abs=1e-12)
    assert found["BbB"]["std_off"] == pytest.approx(0, abs=1e-12)
    assert found["BbB"]["mean_off"] == pytest.approx(30)
    said = bbh_toy.findings({"published": found})
    assert "trade-off of fit and uncertainty held: " in said[0]
    assert "that MAP have less uncertainty outside the data than NUTS held for MAP; " in said[2]
    assert "that BbH fits better than BbB held (RMSE " in said[3]
    assert "negative log-likelihood of new points is " in said[1]
    assert found["MAP"]["nll"] > found["BbH"]["nll"] > 0
    exact = bbh_toy.scores({"mean": (x**3).tolist(), "std": [0.0] * len(x)}, None)
    assert exact["nll"] == pytest.approx(0.5 + 0.5 * math.log(2 * math.pi * bbh_toy.NOISE**2))
    wide = {name: values | {"distance_error": 9.0} for name, values in found.items()}
    assert "held, within chance: " in bbh_toy.findings({"published": wide})[0]
    loose = {name: values | {"rmse_error": 90.0} for name, values in found.items()}
    assert "that BbH fits better than BbB held, within chance (RMSE " in bbh_toy.findings({"published": loose})[3]
    assert bbh_toy._mean([{"distance": 1.0}, {"distance": 3.0}]) == pytest.approx({"distance": 2, "distance_error": 1})
    found["BbH"], found["BbB"] = found["BbB"], found["BbH"]
    assert "trade-off of fit and uncertainty did not hold: " in bbh_toy.findings({"published": found})[0]


def test_the_toys_energy_is_that_of_the_network():
    x, y = bbh_toy.data(0)
    network = networks.MLP(1, 1, [7]).double()
    flat = torch.nn.utils.parameters_to_vector(network.parameters())
    log_lik = (
        posterity.Gaussian(std=bbh_toy.NOISE).double().log_prob(network(x.double()).unsqueeze(0), y.double()).sum()
    )
    value = -log_lik + 0.5 * (flat**2).sum()
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(value, list(network.parameters()))])
    energy = bbh_toy.energy(x[:, 0].double().numpy(), y[:, 0].double().numpy(), 7)
    mine, gradient = energy(flat.detach().numpy())
    other, _ = energy(np.zeros(22))
    zero = 0.5 * float((y.double() ** 2).sum()) / bbh_toy.NOISE**2
    constant = len(x) * (math.log(bbh_toy.NOISE) + 0.5 * math.log(2 * math.pi))
    assert mine == pytest.approx(float(value.detach()) - constant)
    assert other == pytest.approx(zero)
    assert gradient == pytest.approx(expected.numpy(), rel=1e-6, abs=1e-6)


def test_the_toys_truth_is_near_the_gaussian_process_of_infinite_width():
    """100 units are many: NUTS meets the process's mean to 3 (of 130) and its deviation to a quarter."""
    found = bbh_toy.sampled(0, {"chains": 2, "warmup": 100, "draws": 120, "hidden": bbh_toy.HIDDEN})
    x, y = (np.array(found["data"][key]) for key in ("x", "y"))
    at = bbh_toy.grid().double().numpy()[::10, 0]

    def kernel(a, b):
        a, b = (np.stack([v, np.ones_like(v)], 1) for v in (a, b))
        size = np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
        cosine = np.clip(a @ b.T / size, -1, 1)
        angle = np.arccos(cosine)
        return 1 + bbh_toy.HIDDEN * size / (2 * np.pi) * (np.sin(angle) + (np.pi - angle) * cosine)

    solve = np.linalg.solve(kernel(x, x) + bbh_toy.NOISE**2 * np.eye(len(x)), kernel(x, at)).T
    mean, std = solve @ y, np.sqrt(np.diag(kernel(at, at) - solve @ kernel(x, at)))
    band = {key: np.array(value)[::10] for key, value in found["band"].items()}
    assert np.abs(band["mean"] - mean).max() < 3
    assert band["std"] / std == pytest.approx(np.ones(len(at)), abs=0.25)


def test_a_seed_without_the_truth_leaves_out_what_needs_it(tmp_path):
    bbh_toy.toy(Bench(tmp_path, "smoke", device="cpu"))
    outcome = bbh_toy.toy(Bench(tmp_path, "smoke", [0, 1], device="cpu", only="fair-ibnn"))
    own = outcome.numbers["fair"]["iBNN"]
    assert "nll_error" in own
    assert "distance" not in own
    assert "distance" in outcome.numbers["fair"]["MAP"]


def test_the_toys_published_setting():
    full = {method: bbh_toy.panel(FULL, "published", method) for method in bbh_cells.SLIDES}
    assert {method: (how["steps"], how["fit"]["lr"]) for method, how in full.items()} == {
        method: (200, 0.01) if method == "BbH" else (40, 0.1) for method in full
    }
    assert full["BbH"]["posterior"]["hidden"] == [16, 32, 64]
    assert full["ensemble"]["posterior"] == {"members": 10, "adversarial": 0.01}
    assert full["BbB"]["posterior"]["init_std"] ** 2 == pytest.approx(math.exp(-3))
    fair = bbh_toy.panel(FULL, "fair", "BbH")
    assert fair["posterior"]["prior_std"] == 1.0
    assert fair["fit"]["weight_decay"] * bbh_toy.POINTS == 1
