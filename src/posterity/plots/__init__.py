"""Figures of predictions, posteriors and training runs: each function returns a matplotlib Figure. Needs matplotlib.

Nothing is shown and pyplot is not involved: `figure.savefig("name.svg")` writes it, and a notebook shows it. A figure's
label, `figure.get_label()`, describes it in plain words with its main numbers, for use as an alternative text.
"""

from posterity.plots.calibration import interval_calibration, reliability
from posterity.plots.history import training
from posterity.plots.images import extremes
from posterity.plots.plane import Landscape, landscape
from posterity.plots.regression import fan
from posterity.plots.stress import Stress, under_stress
from posterity.plots.surfaces import components
from posterity.plots.uncertainty import entropies, risk_coverage

__all__ = [
    "Landscape",
    "Stress",
    "components",
    "entropies",
    "extremes",
    "fan",
    "interval_calibration",
    "landscape",
    "reliability",
    "risk_coverage",
    "training",
    "under_stress",
]
