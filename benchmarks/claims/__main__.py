"""How often the sentences of a report are wrong, and how often they are said when they are right.

python -m benchmarks.claims [simulation ...]

All simulations are written to benchmarks/results/claims.json; those that are named are only printed. To add one, write
a function from a seed to a list of `Rate` and list it in its module's SIMULATIONS.
"""

import sys
import time
from dataclasses import asdict

import torch

from benchmarks.claims import calibration, comparisons, guarantees, leads, trainings
from benchmarks.claims.rates import Rate, Simulation
from benchmarks.measure import save

SEED = 0
SIMULATIONS: tuple[Simulation, ...] = (
    *comparisons.SIMULATIONS,
    *leads.SIMULATIONS,
    *trainings.SIMULATIONS,
    *guarantees.SIMULATIONS,
    *calibration.SIMULATIONS,
)
RESULTS = "benchmarks/results/claims.json"


def main() -> None:
    torch.set_num_threads(1)
    asked, known = sys.argv[1:], {simulation.__name__: simulation for simulation in SIMULATIONS}
    if unknown := set(asked) - set(known):
        sys.exit(f"There is no simulation {', '.join(sorted(unknown))}: there are {', '.join(known)}.")
    found: dict[str, list[Rate]] = {}
    seconds = {}
    for name in asked or known:
        start = time.process_time()
        found[name] = known[name](SEED)
        seconds[name] = round(time.process_time() - start, 1)
        print(f"{name} ({seconds[name]:.0f} s)")
        for rate in found[name]:
            sign = "≥" if rate.at_least else "≤"
            held = "" if rate.level is None else f"{sign} {rate.level:.1%} {'holds' if rate.holds else 'FAILS'}"
            print(f"  {rate.name:<90} {rate.rate:6.1%} ± {rate.standard_error:.1%} of {rate.simulations:<5} {held}")
    if not asked:
        rates = {name: [asdict(rate) | {"holds": rate.holds} for rate in rates] for name, rates in found.items()}
        save(RESULTS, {"seed": SEED, "seconds": seconds, "simulations": rates})


if __name__ == "__main__":
    main()
