"""Implicit posteriors for neural networks: honest uncertainty for any PyTorch network."""

import importlib
from typing import Any

from posterity import networks
from posterity.distillation import Distilled, distil
from posterity.errors import Error
from posterity.functions import Functions
from posterity.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from posterity.methods import IBNN, LIVI, MAP, MNF, BayesByBackprop, BayesByHypernet, DeepEnsemble, MCDropout
from posterity.methods import table as methods
from posterity.normalisation import Normalised
from posterity.posterior import Posterior
from posterity.predicting import predict
from posterity.prediction import Prediction
from posterity.storage import load, save
from posterity.tokens import Tokens
from posterity.training import fit

__version__ = "0.1.0"

#: What is loaded when it is first used.
_LATER = (
    "PosteriorClassifier",
    "PosteriorRegressor",
    "augmentation",
    "datasets",
    "diagnostics",
    "evaluation",
    "export",
    "huggingface",
    "plots",
    "report",
)


def __getattr__(name: str) -> Any:
    """Load what is not needed at once when it is first used."""
    if name in ("PosteriorClassifier", "PosteriorRegressor"):
        return getattr(importlib.import_module("posterity.estimators"), name)
    if name == "export":
        return importlib.import_module("posterity.deployment").export
    if name in _LATER:
        return importlib.import_module(f"posterity.{name}")
    raise AttributeError(f"module 'posterity' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LATER, "__version__"])


__all__ = [
    "IBNN",
    "LIVI",
    "MAP",
    "MNF",
    "BayesByBackprop",
    "BayesByHypernet",
    "Bernoulli",
    "Categorical",
    "DeepEnsemble",
    "Distilled",
    "Error",
    "Functions",
    "Gaussian",
    "Likelihood",
    "MCDropout",
    "Normalised",
    "Posterior",
    "Prediction",
    "Tokens",
    "distil",
    "fit",
    "load",
    "methods",
    "networks",
    "predict",
    "save",
]
