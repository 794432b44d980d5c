"""The record of simulated claims, and its page."""

import json
from pathlib import Path

import pytest
from benchmarks.claims.__main__ import PAGE, RESULTS, SIMULATIONS
from benchmarks.claims.page import page
from benchmarks.claims.rates import Rate

ROOT = Path(__file__).resolve().parents[1]


def test_a_rate_holds_within_two_standard_errors_of_its_level():
    assert Rate.of("", [True] * 7 + [False] * 93, 0.05).holds
    assert not Rate.of("", [True] * 15 + [False] * 85, 0.05).holds
    assert Rate.of("", [True] * 76 + [False] * 24, 0.8, at_least=True).holds
    assert not Rate.of("", [True] * 60 + [False] * 40, 0.8, at_least=True).holds
    assert Rate.of("", [True]).holds


def test_every_simulation_is_recorded_and_every_claim_keeps_its_level():
    """Of a hundred rates that are at their level, one or two are beyond two standard errors; none is beyond four."""
    found = json.loads((ROOT / RESULTS).read_text())["simulations"]
    assert list(found) == [simulation.__name__ for simulation in SIMULATIONS]
    rates = [rate for each in found.values() for rate in each["rates"]]
    assert len(rates) > 50
    for rate in rates:
        assert Rate(**{key: rate[key] for key in rate if key != "holds"}).holds == rate["holds"]
        over = 0 if rate["level"] is None else (rate["rate"] - rate["level"]) * (-1 if rate["at_least"] else 1)
        assert over <= 4 * rate["standard_error"], rate["name"]
    assert sum(not rate["holds"] for rate in rates) <= 0.05 * len(rates)


def test_the_page_is_that_of_the_record():
    words = {simulation.__name__: simulation.__doc__.splitlines()[0] for simulation in SIMULATIONS}
    assert (ROOT / PAGE).read_text() == page(json.loads((ROOT / RESULTS).read_text()), words)


@pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda simulation: simulation.__name__)
def test_simulations_have_names_of_their_own_and_a_line_of_what_they_are(simulation):
    assert sum(each.__name__ == simulation.__name__ for each in SIMULATIONS) == 1
    assert simulation.__doc__.splitlines()[0].endswith(".")
