"""Defaults of the library when the papers' networks were trained, where they are others now."""

from collections.abc import Mapping
from typing import Any

#: Standard deviations started near zero, and moved at the rate of their means.
STARTS = {method: {"init_std": 0.0015} for method in ("bbb", "mnf", "forgetful-mnf")}


def kept(method: str, posterior: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a method, with those that its records did not name."""
    return STARTS.get(method, {}) | dict(posterior)


def kept_rates(build: Any, fit: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `fit`, with the one rate that all of a method's own parameters had."""
    return {"lr_posterior": fit.get("lr", 1e-3) * build.relative_rate} | dict(fit)
