"""Whether an uncertainty can be trusted: scores, calibration, detection, selection and conformal sets.

Everything here takes a prediction (known by its attributes) or plain tensors, and needs torch alone; attacks and
corruptions take a posterior.
"""

from posterity.evaluation.abstention import Abstention, control_risk, doubt, keep_coverage
from posterity.evaluation.attacks import fgsm, pgd, pixel_bounds, under_attack
from posterity.evaluation.binomial import binomial_cdf, rate_bound, selected_level
from posterity.evaluation.calibration import Reliability, adaptive_ece, classwise_ece, ece, reliability
from posterity.evaluation.card import scorecard
from posterity.evaluation.chance import CalibratedECE, auroc_limit, calibrated_ece, coverage_range
from posterity.evaluation.conformal import (
    ConformalIntervals,
    ConformalSets,
    conformal_intervals,
    conformal_quantile,
    conformal_sets,
)
from posterity.evaluation.corruptions import CORRUPTIONS, in_pixels, load_cifar_c, under
from posterity.evaluation.detection import (
    Detection,
    aupr,
    auroc,
    detect,
    energy,
    entropy_auc,
    entropy_cdf,
    fpr_at,
)
from posterity.evaluation.equivalence import EnsembleEquivalent, by_size, ensemble_equivalent
from posterity.evaluation.evidence import evidence
from posterity.evaluation.intervals import (
    IntervalScores,
    coverage_gap,
    interval_coverage,
    interval_score,
    interval_scores,
    quantile_gap,
)
from posterity.evaluation.losses import losses
from posterity.evaluation.positions import Observed, is_regression, observed
from posterity.evaluation.promises import promises
from posterity.evaluation.robustness import robustness
from posterity.evaluation.scaling import calibrated_nll, scaled, temperature
from posterity.evaluation.scores import brier, coverage, crps, entropy, error, marginal_nll, nll, rmse, score
from posterity.evaluation.selection import augrc, aurc, ause, excess_aurc, risk_at, risk_curve, selective_mean
from posterity.evaluation.summary import summarise

__all__ = [
    "CORRUPTIONS",
    "Abstention",
    "CalibratedECE",
    "ConformalIntervals",
    "ConformalSets",
    "Detection",
    "EnsembleEquivalent",
    "IntervalScores",
    "Observed",
    "Reliability",
    "adaptive_ece",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "auroc_limit",
    "ause",
    "binomial_cdf",
    "brier",
    "by_size",
    "calibrated_ece",
    "calibrated_nll",
    "classwise_ece",
    "conformal_intervals",
    "conformal_quantile",
    "conformal_sets",
    "control_risk",
    "coverage",
    "coverage_gap",
    "coverage_range",
    "crps",
    "detect",
    "doubt",
    "ece",
    "energy",
    "ensemble_equivalent",
    "entropy",
    "entropy_auc",
    "entropy_cdf",
    "error",
    "evidence",
    "excess_aurc",
    "fgsm",
    "fpr_at",
    "in_pixels",
    "interval_coverage",
    "interval_score",
    "interval_scores",
    "is_regression",
    "keep_coverage",
    "load_cifar_c",
    "losses",
    "marginal_nll",
    "nll",
    "observed",
    "pgd",
    "pixel_bounds",
    "promises",
    "quantile_gap",
    "rate_bound",
    "reliability",
    "risk_at",
    "risk_curve",
    "rmse",
    "robustness",
    "scaled",
    "score",
    "scorecard",
    "selected_level",
    "selective_mean",
    "summarise",
    "temperature",
    "under",
    "under_attack",
]
