"""Whether a posterior is the right one, and what to do where it is not.

`sbc` and `tarp` test the inference itself, on simulations whose truth is known; `simulations` makes these.
`predictive_check` holds the model against observed answers. `effective_number` counts the functions that differ, and
`check` looks for posteriors that say nothing. All of it is written on draws alone and needs torch alone; only the
figures need matplotlib.
"""

from posterity.diagnostics.checks import check
from posterity.diagnostics.coverage import TARP, tarp
from posterity.diagnostics.diversity import effective_number
from posterity.diagnostics.ranks import SBC, sbc
from posterity.diagnostics.replication import PredictiveCheck, predictive_check
from posterity.diagnostics.simulation import Simulations, simulations
from posterity.diagnostics.uniformity import Uniformity, uniformity

__all__ = [
    "SBC",
    "TARP",
    "PredictiveCheck",
    "Simulations",
    "Uniformity",
    "check",
    "effective_number",
    "predictive_check",
    "sbc",
    "simulations",
    "tarp",
    "uniformity",
]
