"""How many draws `samples="auto"` takes and what that costs, and whether paired or quasi-random draws vary less.

python -m benchmarks.draws [results.json]

LeNet on Fashion-MNIST, 12 epochs on 55,000 images with the methods' defaults. The tolerance was chosen on the other
5,000 training images ("choose"); the test images are scored with that one ("test"). Trained posteriors are kept in
run/draws/.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.quasirandom import SobolEngine

import posterity
from benchmarks.measure import keep_memory, machine
from posterity.functions import Functions

TRAIN, EPOCHS, SEED = 55_000, 12, 0
TOLERANCE, TOLERANCES = 0.05, (0.03, 0.05, 0.07, 0.1)
MAKERS: dict[str, Callable[[nn.Module], posterity.Posterior]] = {
    "ibnn16": lambda net: posterity.IBNN(net, 16, seed=SEED),
    "ibnn4": lambda net: posterity.IBNN(net, seed=SEED),
    "bbb": lambda net: posterity.BayesByBackprop(net, seed=SEED),
    "dropout": lambda net: posterity.MCDropout(net, seed=SEED),
}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def trained(name: str, x: Tensor, y: Tensor) -> posterity.Posterior:
    """From run/draws/ or, where it is not there, trained."""
    folder = Path("run/draws") / name
    if (folder / "config.json").exists():
        return posterity.load(folder, posterity.networks.LeNet())
    torch.manual_seed(SEED)
    posterior = MAKERS[name](posterity.networks.LeNet())
    posterity.fit(posterior, (x, y), posterity.Categorical(), epochs=EPOCHS, seed=SEED, device="cpu", progress=False)
    posterity.save(posterior, folder)
    return posterior


def spearman(a: Tensor, b: Tensor) -> float:
    ranks = torch.stack([v.argsort().argsort().double() for v in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1])


def against(found: Any, other: Any, y: Tensor) -> dict[str, float]:
    """A prediction beside one of more draws."""
    nll, nll_other = (-float(p.log_prob(y).mean()) for p in (found, other))
    return {
        "nll": nll,
        "nll_other": nll_other,
        "nll_change": nll / nll_other - 1,
        "error": float((found.probs.argmax(1) != y).float().mean()),
        "error_other": float((other.probs.argmax(1) != y).float().mean()),
        "other_answers": float((found.probs.argmax(1) != other.probs.argmax(1)).float().mean()),
        "probs_difference": float((found.probs - other.probs).abs().amax(1).mean()),
        **{f"{part}_spearman": spearman(getattr(found, part), getattr(other, part)) for part in ("total", "epistemic")},
        **{
            f"{part}_difference": float((getattr(found, part) - getattr(other, part)).abs().mean())
            for part in ("total", "epistemic")
        },
        "total": float(other.total.mean()),
        "epistemic": float(other.epistemic.mean()),
    }


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return run(), time.process_time() - start


def automatic(posterior: posterity.Posterior, x: Tensor, y: Tensor, tolerance: float, full: Any) -> dict[str, Any]:
    found, seconds = timed(lambda: posterity.predict(posterior, x, "auto", generator(SEED), tolerance=tolerance))
    shares = {int(n): float((found.samples == n).float().mean()) for n in found.samples.unique()}
    draws = float(found.samples.float().mean())
    return {"tolerance": tolerance, "draws": draws, "shares": shares, "seconds": seconds} | against(found, full, y)


def beyond(posterior: posterity.Posterior, x: Tensor, tolerance: float, reference: Any) -> dict[str, float]:
    """The share of rows that stopped early and are further than the tolerance from what many other draws say."""
    found = posterity.predict(posterior, x, "auto", generator(SEED), tolerance=tolerance)
    early = found.samples < posterior.draws
    off = {
        "probs": (found.probs - reference.probs).abs().amax(1),
        "total": (found.total - reference.total).abs(),
        "epistemic": (found.epistemic - reference.epistemic).abs(),
        "answer": (found.probs.argmax(1) != reference.probs.argmax(1)).float(),
    }
    return {name: float((value[early] > tolerance).float().mean()) for name, value in off.items()}


def on_fashion(data: Any) -> dict[str, Any]:
    (x, y), (test_x, test_y) = data.train, data.test
    results: dict[str, Any] = {}
    for name in MAKERS:
        posterior = trained(name, x[:TRAIN], y[:TRAIN])
        row: dict[str, Any] = {"most": posterior.draws}
        if name == "ibnn16":
            full = posterity.predict(posterior, x[TRAIN:], generator=generator(SEED))
            row["choose"] = [automatic(posterior, x[TRAIN:], y[TRAIN:], t, full) for t in TOLERANCES]
        full, seconds = timed(lambda p=posterior: posterity.predict(p, test_x, generator=generator(SEED)))
        row["test"] = automatic(posterior, test_x, test_y, TOLERANCE, full) | {"seconds_other": seconds}
        if name == "ibnn16":
            row["fixed"] = {
                n: against(posterity.predict(posterior, test_x, n, generator(SEED)), full, test_y) for n in (8, 16)
            }
            reference = posterity.predict(posterior, test_x, 320, generator(SEED + 1))
            row["beyond"] = beyond(posterior, test_x, TOLERANCE, reference)
        results[name] = row
        print(name, json.dumps(row["test"]), flush=True)
    return results


def functions(posterior: Any, n: int, way: str, g: torch.Generator) -> Functions:
    """n functions of IBNN or Bayes by Backprop, evenly over components: plain, in pairs, or quasi-random."""
    if way != "sobol":
        return posterior.draw(n, g, pairs=way == "pairs")
    size = posterior.nodes if isinstance(posterior, posterity.IBNN) else posterior.weights.size
    points = SobolEngine(size + 1, scramble=True, seed=int(torch.randint(2**31, (), generator=g))).draw(n)
    noise = torch.special.ndtri(points[:, 1:].clamp(1e-6, 1 - 1e-6))
    if isinstance(posterior, posterity.IBNN):
        k = (points[:, 0] * posterior.components).long()
        return posterior._functions((posterior.means[k] + posterior.stds[k] * noise).detach())
    weights = posterior.weights.split((posterior.means + posterior.stds * noise).detach())
    return Functions(posterior.network, n, weights=weights, output=posterior.output)


@torch.no_grad()
def variances(posterior: Any, x: Tensor, y: Tensor, n: int, repeats: int, ways: tuple[str, ...]) -> dict[str, Any]:
    """Of the predictive mean, the NLL and the epistemic uncertainty over repeats: plain draws' over each way's."""
    kind, found = posterity.prediction.kind(posterior.likelihood), {}
    for way in ways:
        g = generator(SEED)
        said = [kind.gather([functions(posterior, n, way, g)(x)], posterior.likelihood) for _ in range(repeats)]
        answers = torch.stack([p.probs if hasattr(p, "probs") else p.mean for p in said]).double()
        nll = torch.stack([-p.log_prob(y).mean() for p in said]).double()
        epistemic = torch.stack([p.epistemic for p in said]).double()
        found[way] = {
            "mean": float(answers.var(0).mean()),
            "nll": float(nll.var()),
            "epistemic": float(epistemic.var(0).mean()),
            "epistemic_mean": float(epistemic.mean()),
        }
    plain = found["plain"]
    for row in found.values():
        row |= {f"{key}_factor": plain[key] / max(row[key], 1e-30) for key in ("mean", "nll", "epistemic")}
    return {"draws": n, "repeats": repeats, "ways": found}


def line(n: int, seed: int) -> tuple[Tensor, Tensor]:
    g = generator(seed)
    x = 4 * torch.rand(n, 1, generator=g) - 2
    return x, torch.sin(2 * x) + 0.1 * torch.randn(n, 1, generator=g)


def on_regression() -> dict[str, Any]:
    """A network of 50 hidden units on 100 points of a sine: variances, and `samples="auto"`."""
    results: dict[str, Any] = {}
    x, y = line(500, 1)
    for name, make in {
        "ibnn16": lambda net: posterity.IBNN(net, 16, seed=SEED),
        "bbb": lambda net: posterity.BayesByBackprop(net, seed=SEED),
    }.items():
        torch.manual_seed(SEED)
        posterior = make(nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1)))
        posterity.fit(posterior, line(100, 0), posterity.Gaussian(std=0.1), epochs=300, seed=SEED, progress=False)
        rows = [variances(posterior, x, y, n, 300, ("plain", "pairs", "sobol")) for n in (32, 64)]
        auto = []
        full = posterity.predict(posterior, x, generator=generator(SEED))
        for tolerance in (0.05, 0.1, 0.2):
            p = posterity.predict(posterior, x, "auto", generator(SEED), tolerance=tolerance)
            auto.append(
                {
                    "tolerance": tolerance,
                    "draws": float(p.samples.float().mean()),
                    "nll": -float(p.log_prob(y).mean()),
                    "nll_other": -float(full.log_prob(y).mean()),
                    "mean_difference": float(((p.mean - full.mean).abs() / full.std).mean()),
                    "epistemic_share": float((full.epistemic / full.total).mean()),
                }
            )
        results[name] = {"variance": rows, "auto": auto}
    return results


def main() -> None:
    torch.set_num_threads(1)
    keep_memory()
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results/auto.json")
    data = posterity.datasets.load("fashion-mnist")
    results = {"regression": on_regression()}
    print(json.dumps(results["regression"]), flush=True)
    x, y = (part[TRAIN : TRAIN + 200] for part in data.train)
    train = tuple(part[:TRAIN] for part in data.train)
    results["variance"] = {
        name: [variances(trained(name, *train), x, y, n, 40, ways) for n in (32, 64)]
        for name, ways in {"ibnn16": ("plain", "pairs", "sobol"), "bbb": ("plain", "pairs")}.items()
    }
    print(json.dumps(results["variance"]), flush=True)
    results["fashion"] = on_fashion(data)
    assert math.isfinite(results["fashion"]["ibnn16"]["test"]["nll"])
    content = {"command": "python -m benchmarks.draws", "seed": SEED, "results": results, "machine": machine()}
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
