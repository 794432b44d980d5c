"""All that a report shows of one prediction, as plain numbers that fit in a JSON file."""

from typing import Any

import torch
from torch import Tensor

from posterity.evaluation.calibration import reliability
from posterity.evaluation.chance import auroc_limit
from posterity.evaluation.detection import detect
from posterity.evaluation.intervals import LEVELS, interval_coverage
from posterity.evaluation.positions import is_regression, observed, per_datum, uncertainty
from posterity.evaluation.promises import promises
from posterity.evaluation.sampling import representative_rows
from posterity.evaluation.selection import selective_mean
from posterity.prediction import PARTS

FRACTIONS = torch.linspace(0.05, 1.0, 20, dtype=torch.float64)
POINTS = 200
"""How many single predictions a figure shows."""
EXTREMES = 8
"""How many of the most and of the least certain inputs a figure shows."""
GALLERY = 60
"""How many inputs a reader can go through, from the most certain to the least."""
LIKELIEST = 5
"""How many classes of each of them."""
HISTOGRAM_BINS = 30
AMONG = (2, 4, 8, 16, 32, 64)
"""Of how many methods one may be chosen by its guarantees; a report takes the next number."""


def summarise(
    prediction: Any, y: Tensor, outside: Any = None, outputs: tuple[Tensor, Tensor] | None = None
) -> dict[str, Any]:
    """The numbers behind a report's figures; every value is a JSON value.

    Keys: `uncertainty` (means of the three parts), `selection`, `extremes` and `gallery` (single inputs), `promises`
    and `promises_among` (for a choice of one method among as many as the key says);
    `reliability` (classification) or `coverage` and `points` (regression); `outside` where there are predictions for
    data from elsewhere. What is not observed counts in none but `uncertainty`.

    Args:
        prediction: of the test data
        y: their true targets
        outside: a prediction for data unlike those trained on
        outputs: of the network for both, where their energy shall be compared too (see `detect`)
    """
    y, prediction = torch.as_tensor(y).cpu(), prediction.to("cpu")
    outside = None if outside is None else outside.to("cpu")
    summary: dict[str, Any] = {
        "uncertainty": {part: float(getattr(prediction, part).double().mean()) for part in PARTS}
    }
    if is_regression(prediction):
        y = y.reshape(prediction.mean.shape)
        loss = per_datum((prediction.mean.double() - y).square())
        kept = selective_mean(loss, per_datum(prediction.total), FRACTIONS).sqrt()
        summary["coverage"] = {
            "level": numbers(LEVELS),
            "observed": numbers(interval_coverage(prediction, y, LEVELS)),
        }
        shown = {"true": y, "mean": prediction.mean} | dict(zip(("low", "high"), prediction.interval(0.9), strict=True))
        summary["points"] = _first(shown, representative_rows(y.reshape(len(y), -1)[:, 0], POINTS))
        summary["gallery"] = _numbers_gallery(prediction, shown)
    else:
        seen = observed(prediction, y)
        kept = 1 - selective_mean(_mean_by(seen.datum, seen.wrong), _mean_by(seen.datum, seen.total), FRACTIONS)
        summary["reliability"] = {
            name: numbers(values) for name, values in reliability(seen.probs, seen.y)._asdict().items()
        }
        if y.dim() == 1:
            order = seen.total.argsort(stable=True)
            extremes = torch.cat([order[:EXTREMES], order[-EXTREMES:]])
            summary["extremes"] = {
                "index": seen.datum[extremes].tolist(),
                "predicted": seen.probs[extremes].argmax(dim=1).tolist(),
                "true": seen.y[extremes].tolist(),
                "total": numbers(seen.total[extremes]),
            }
            summary["gallery"] = _classes_gallery(seen, order)
    summary["selection"] = {"fraction": numbers(FRACTIONS), "kept": numbers(kept)}
    if guaranteed := promises(prediction, y):
        summary["promises"] = guaranteed
        summary["promises_among"] = {str(count): promises(prediction, y, among=count) for count in AMONG}
    if outside is not None:
        summary["outside"] = _against(prediction, outside, outputs)
    return summary


def _spread(order: Tensor) -> Tensor:
    """As many of the data as a gallery shows, from the first in the order to the last, and denser towards it.

    Most data are easy, and of these a few are enough.
    """
    steps = 1 - torch.linspace(1, 0, min(GALLERY, len(order)), dtype=torch.float64).square()
    return order[(steps * (len(order) - 1)).round().long().unique()]


def _classes_gallery(seen: Any, order: Tensor) -> list[dict[str, Any]]:
    """From certain to uncertain: which datum, its class, the likeliest classes, and the parts of the uncertainty."""
    chosen = _spread(order)
    top = seen.probs[chosen].topk(min(LIKELIEST, seen.probs.shape[1]), dim=1)
    return [
        {
            "index": int(seen.datum[row]),
            "true": int(seen.y[row]),
            "classes": classes.tolist(),
            "probs": numbers(probs),
            "aleatoric": float(seen.aleatoric[row]),
            "epistemic": float(seen.epistemic[row]),
        }
        for row, classes, probs in zip(chosen.tolist(), top.indices, top.values, strict=True)
    ]


def _numbers_gallery(prediction: Any, shown: dict[str, Tensor]) -> list[dict[str, Any]]:
    """From certain to uncertain: which datum, the first output's truth, mean and 90 % interval, and the parts."""
    chosen = _spread(per_datum(prediction.total).argsort(stable=True))
    values = _first(shown | {part: getattr(prediction, part) for part in PARTS[1:]}, chosen)
    return [
        {"index": index} | {name: column[place] for name, column in values.items()}
        for place, index in enumerate(chosen.tolist())
    ]


def _first(columns: dict[str, Tensor], chosen: Tensor) -> dict[str, list[float]]:
    """The first output's values of the chosen data."""
    return {name: numbers(values[chosen].reshape(len(chosen), -1)[:, 0]) for name, values in columns.items()}


def _against(inside: Any, outside: Any, outputs: tuple[Tensor, Tensor] | None) -> dict[str, Any]:
    """Epistemic uncertainty inside the data and outside: densities on shared bins, means and AUROC."""
    ours, theirs = (per_datum(uncertainty(prediction, "epistemic")) for prediction in (inside, outside))
    found = detect(inside, outside, outputs)
    if is_regression(inside):
        ours, theirs = ours.sqrt(), theirs.sqrt()
    # A few far-out values would leave everything else in one bin.
    top = float(torch.cat([ours, theirs]).quantile(0.99)) or 1.0
    edges = torch.linspace(0, top, HISTOGRAM_BINS + 1, dtype=torch.float64)
    return {
        "edges": numbers(edges),
        "inside": _shares(ours, edges),
        "outside": _shares(theirs, edges),
        "epistemic_inside": float(inside.epistemic.double().mean()),
        "epistemic_outside": float(outside.epistemic.double().mean()),
        "auroc_epistemic": found["epistemic"].auroc,
        "auroc_epistemic_limit": auroc_limit(ours, theirs),
        "auroc_total": found["total"].auroc,
        "detection": {name: detection._asdict() for name, detection in found.items()},
    }


def _shares(values: Tensor, edges: Tensor) -> list[float]:
    """The fraction of the values in each bin; what lies beyond the last edge counts in the last bin."""
    counts = torch.histogram(values.clamp(float(edges[0]), float(edges[-1])), bins=edges).hist
    return numbers(counts / len(values))


def _mean_by(datum: Tensor, values: Tensor) -> Tensor:
    """Means over the positions of each datum that has any; [data]."""
    _, group, counts = torch.unique(datum, return_inverse=True, return_counts=True)
    return torch.zeros(len(counts), dtype=torch.float64).index_add(0, group, values.double()) / counts


def numbers(values: Tensor) -> list[float]:
    """Six digits of each, as JSON has them."""
    return [float(f"{value:.6g}") for value in values.double().tolist()]
