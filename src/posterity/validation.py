"""Held-out rows in training: which epoch's parameters are kept for what was measured on them."""

import math
import warnings
from collections.abc import Mapping
from typing import Any


def improves(record: Mapping[str, float], best: Mapping[str, Any] | None) -> bool:
    """Whether an epoch's held-out negative log-likelihood is a number, and below that of the best epoch so far."""
    measured = record.get("validation", math.nan)
    return math.isfinite(measured) and (best is None or not best["validation"] <= measured)


def warn_of_none(measured: list[float]) -> None:
    """Warn where no epoch can be chosen, for none of the held-out negative log-likelihoods is a finite number."""
    if measured and not any(map(math.isfinite, measured)):
        warnings.warn(
            f"The held-out negative log-likelihood is {measured[-1]} in every epoch, so that none can be chosen and "
            "the last one's parameters stay: look for NaN in the validation targets, or for targets of probability 0.",
            stacklevel=3,
        )
