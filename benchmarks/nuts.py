"""The posterior of a small network from long NUTS chains: writes tests/exact/nuts.npz.

    python3 -m venv /tmp/nuts && /tmp/nuts/bin/pip install numpyro
    /tmp/nuts/bin/python benchmarks/nuts.py

numpyro lives in an environment of its own: neither the package nor its tests need it. The file holds the data, the
grid, thinned draws of the functions on it, and a record: command, seeds, versions, how well the chains have mixed, and
the distance of a second set of chains with other seeds, which is what any method can be held to.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "exact"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import numpyro  # noqa: E402
from distances import (  # noqa: E402
    Reference,
    log_variance_error,
    log_variance_ratio,
    mean_error,
    noise,
    total_variation,
)
from numpyro import diagnostics  # noqa: E402
from numpyro.infer import MCMC, NUTS  # noqa: E402

HIDDEN, NOISE, PRIOR_STD, N, GRID = 16, 0.2, 1.0, 24, 40


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """24 points of a curve on both sides of a gap, and a grid that reaches beyond them: float32."""
    random = np.random.default_rng(0)
    x = np.concatenate([random.uniform(-2.0, -0.7, N // 2), random.uniform(0.7, 2.0, N // 2)]).astype(np.float32)
    y = (np.sin(1.8 * x) + NOISE * random.standard_normal(N)).astype(np.float32)
    return x, y, np.linspace(-3.0, 3.0, GRID, dtype=np.float32)


def unpack(flat: Any) -> tuple[Any, Any, Any, Any]:
    """Weights and biases of the hidden layer, weights and bias of the output, of a vector in torch's order."""
    return flat[..., :HIDDEN], flat[..., HIDDEN : 2 * HIDDEN], flat[..., 2 * HIDDEN : 3 * HIDDEN], flat[..., 3 * HIDDEN]


def function(flat: Any, x: Any) -> Any:
    """f(x) of weights `[..., 3 · HIDDEN + 1]` at x `[n]`: `[..., n]`."""
    a, b, c, d = unpack(flat)
    h = jnp.tanh(a[..., None, :] * x[:, None] + b[..., None, :])
    return (h * c[..., None, :]).sum(-1) + d[..., None]


def chains(seed: int, count: int, warmup: int, samples: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Functions on the grid, `[chains, samples, grid]`, and how the chains went."""
    x, y, grid = data()

    def energy(flat: Any) -> Any:
        miss = (y - function(flat, jnp.asarray(x, jnp.float64))) / NOISE
        return 0.5 * (miss**2).sum() + 0.5 * (flat**2).sum() / PRIOR_STD**2

    kernel = NUTS(potential_fn=energy, target_accept_prob=0.9)
    sampler = MCMC(
        kernel, num_warmup=warmup, num_samples=samples, num_chains=count, chain_method="sequential", progress_bar=False
    )
    size = 3 * HIDDEN + 1
    start = PRIOR_STD * jax.random.normal(jax.random.PRNGKey(seed + 1000), (count, size))
    began = time.time()
    sampler.run(jax.random.PRNGKey(seed), init_params=start, extra_fields=("diverging", "num_steps"))
    flat = sampler.get_samples(group_by_chain=True)
    values = np.asarray(function(flat, jnp.asarray(grid, jnp.float64)))
    extra = sampler.get_extra_fields()
    virial = np.asarray(jax.vmap(jax.vmap(lambda w: w @ jax.grad(energy)(w)))(flat))
    spread = virial.std() / np.sqrt(float(diagnostics.effective_sample_size(virial)))
    found = {
        "seed": seed,
        "chains": count,
        "warmup": warmup,
        "samples": samples,
        "seconds": round(time.time() - began, 1),
        "divergences": int(extra["diverging"].sum()),
        "mean_steps": float(extra["num_steps"].mean()),
        "largest_rhat": float(diagnostics.split_gelman_rubin(values).max()),
        "least_effective_draws": float(diagnostics.effective_sample_size(values).min()),
        "virial": [float(virial.mean()), float(spread), size],
    }
    return values, found


def thinned(values: np.ndarray, kept: int) -> np.ndarray:
    """So many draws of all chains, evenly spaced, `[kept, grid]`, float32."""
    flat = values.reshape(-1, values.shape[-1])
    return flat[:: len(flat) // kept][:kept].astype(np.float32)


def distances(values: np.ndarray, reference: Reference) -> dict[str, float | None]:
    return {
        "total_variation": total_variation(values, reference),
        "mean_error": mean_error(values, reference),
        "log_variance_error": log_variance_error(values, reference),
        "log_variance_ratio": log_variance_ratio(values, reference),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=2500)
    parser.add_argument("--kept", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "exact" / "nuts.npz")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    first, how = chains(0, arguments.chains, arguments.warmup, arguments.samples)
    print(json.dumps(how))
    second, other = chains(100, arguments.chains, arguments.warmup, arguments.samples)
    print(json.dumps(other))
    kept, again = thinned(first, arguments.kept), thinned(second, arguments.kept)
    reference = Reference.weighted(kept, np.ones(len(kept)), draws=len(kept))
    x, y, grid = data()
    record = {
        "command": " ".join(["python", "benchmarks/nuts.py", *sys.argv[1:]]),
        "versions": {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpyro": numpyro.__version__,
            "numpy": np.__version__,
        },
        "precision": "float64",
        "hidden": HIDDEN,
        "noise": NOISE,
        "prior_std": PRIOR_STD,
        "runs": [how, other],
        "again": distances(again, reference),
        "again_all": distances(second.reshape(-1, GRID), reference),
        "noise_bound": noise(len(kept)),
    }
    print(json.dumps({"again": record["again"], "again_all": record["again_all"]}))
    np.savez_compressed(arguments.out, x=x, y=y, grid=grid, draws=kept, record=np.array(json.dumps(record)))
    print(arguments.out, arguments.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
