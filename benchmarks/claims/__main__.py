"""How often the sentences of a report are wrong, and how often they are said when they are right.

python -m benchmarks.claims [simulation ...]

All simulations, or those that are named, are written to benchmarks/results/claims.json and docs/results/claims.md as each
of them ends, beside what is there of the others. To add one, write a function from a seed to a list of `Rate` and list it
in its module's SIMULATIONS.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.claims import calibration, comparisons, guarantees, leads, trainings
from benchmarks.claims.page import page
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
RESULTS, PAGE = "benchmarks/results/claims.json", "docs/results/claims.md"


def main() -> None:
    torch.set_num_threads(1)
    asked, known = sys.argv[1:], {simulation.__name__: simulation for simulation in SIMULATIONS}
    if unknown := set(asked) - set(known):
        sys.exit(f"There is no simulation {', '.join(sorted(unknown))}: there are {', '.join(known)}.")
    del sys.argv[1:]  # the record is that of the command without names
    for name in asked or known:
        start = time.process_time()
        rates = known[name](SEED)
        seconds = round(time.process_time() - start, 1)
        print(f"{name} ({seconds:.0f} s)")
        for rate in rates:
            sign = "≥" if rate.at_least else "≤"
            held = "" if rate.level is None else f"{sign} {rate.level:.1%} {'holds' if rate.holds else 'FAILS'}"
            print(f"  {rate.name:<90} {rate.rate:6.1%} ± {rate.standard_error:.1%} of {rate.simulations:<5} {held}")
        record(name, rates, seconds)


def record(name: str, rates: list[Rate], seconds: float) -> None:
    """Put one simulation into the record, in the order of the list, and write the page anew."""
    words = {simulation.__name__: (simulation.__doc__ or "").splitlines()[0] for simulation in SIMULATIONS}
    path = Path(RESULTS)
    before = json.loads(path.read_text()).get("simulations", {}) if path.exists() else {}
    found = before | {name: {"seconds": seconds, "rates": [asdict(rate) | {"holds": rate.holds} for rate in rates]}}
    save(path, {"seed": SEED, "simulations": {each: found[each] for each in words if each in found}})
    Path(PAGE).write_text(page(json.loads(path.read_text()), words))


if __name__ == "__main__":
    main()
