"""Simulations with a known truth: draw it from the prior, make data of it, infer, and compare."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posterity.diagnostics.coverage import TARP, References, tarp
from posterity.diagnostics.ranks import SBC, sbc
from posterity.errors import Error
from posterity.posterior import count
from posterity.progress import Bar, wanted
from posterity.streams import numpy_seed

Simulate = Callable[[torch.Generator], tuple[Any, ...]]


class Simulations(NamedTuple):
    """N simulations; `sbc` and `tarp` take them in this order: `tarp(*runs)`."""

    samples: Tensor
    """`[S, N, D]`, the posterior draws."""
    truth: Tensor
    """`[N, D]`, what the data were made of."""
    x: Tensor | None = None
    """`[N, F]`, the data, where `simulate` returned them."""

    def sbc(self, **options: Any) -> SBC:
        """Simulation-based calibration of these; see `posterity.diagnostics.sbc`."""
        return sbc(self.samples, self.truth, self.x, **options)

    def tarp(self, references: References = None, **options: Any) -> TARP:
        """The TARP test of these; see `posterity.diagnostics.tarp`."""
        return tarp(self.samples, self.truth, self.x, references=references, **options)


def simulations(
    simulate: Simulate,
    n: int = 200,
    *,
    seed: int | None = None,
    progress: bool | None = None,
) -> Simulations:
    """Run `simulate` n times, each time with randomness of its own.

    For a network the truth is best a vector of function values, which mean the same in every parametrisation:

        def simulate(generator):
            truth = network()
            for weights in truth.parameters():
                nn.init.normal_(weights, std=1.0, generator=generator)
            y = truth(x).detach() + noise * torch.randn(len(x), 1, generator=generator)
            posterior = posterity.BayesByBackprop(network(), prior_std=1.0)
            posterity.fit(posterior, (x, y), posterity.Gaussian(noise), seed=generator.initial_seed())
            return truth(x_test), posterior.draw(100, generator)(x_test), y

        runs = simulations(simulate, n=200)
        print(runs.sbc())
        print(runs.tarp())

    Args:
        simulate: takes a generator and returns `(truth, draws)` or `(truth, draws, data)`: the truth `[D]`, S
            independent posterior draws `[S, D]`, and the data that they were inferred from, of any shape that stays the
            same. With the data the tests see more: see `tarp`.
        n: how many simulations.
        seed: simulation i depends on the seed and i alone; torch's global generator is left as it was.
        progress: a progress bar; by default where standard error is a terminal.
    """
    if not callable(simulate):
        raise Error(f"simulate must be a function of a generator; got {type(simulate).__name__}.")
    seed = int(torch.randint(2**62, ())) if seed is None else count(seed, "seed", least=0)
    n, found = count(n, "n"), []
    with Bar(n, wanted(progress), unit="simulation") as bar:
        for i in range(n):
            own = numpy_seed(seed, i)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(numpy_seed(own, 1))
                found.append(_parts(simulate(torch.Generator().manual_seed(own)), i))
            if [part.shape for part in found[i]] != [part.shape for part in found[0]]:
                raise Error(f"Simulation {i} returned parts of other shapes than the first; all must be alike.")
            bar.update()
    truth, draws, *data = (torch.stack(parts) for parts in zip(*found, strict=True))
    return Simulations(draws.movedim(0, 1), truth, *data)


def _parts(result: Any, i: int) -> list[Tensor]:
    """Truth `[D]`, draws `[S, D]` and, where they are given, data `[F]`."""
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        raise Error(f"simulate must return (truth, draws) or (truth, draws, data); simulation {i} did not.")
    truth, draws, *data = (torch.as_tensor(part).detach().cpu().double() for part in result)
    if draws.dim() < 1 or draws.shape[1:].numel() != truth.numel() or not len(draws):
        raise Error(
            f"Simulation {i} returned draws of shape {tuple(draws.shape)} for a truth of shape {tuple(truth.shape)}: "
            "expected [S, D] and [D]."
        )
    return [truth.reshape(-1), draws.reshape(len(draws), -1), *(part.reshape(-1) for part in data)]
