"""Whether an uncertainty can be trusted: scores, calibration, detection and selection.

Everything here takes a prediction (known by its attributes) or plain tensors, and needs torch alone.
"""

from posterity.evaluation.calibration import Reliability, ece, interval_coverage, reliability
from posterity.evaluation.detection import auroc
from posterity.evaluation.scores import brier, coverage, crps, error, is_regression, rmse, score
from posterity.evaluation.selection import selective_mean
from posterity.evaluation.summary import summarise

__all__ = [
    "Reliability",
    "auroc",
    "brier",
    "coverage",
    "crps",
    "ece",
    "error",
    "interval_coverage",
    "is_regression",
    "reliability",
    "rmse",
    "score",
    "selective_mean",
    "summarise",
]
