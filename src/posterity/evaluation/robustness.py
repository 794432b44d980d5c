"""What becomes of a trained posterior when its inputs get worse, in a few curves that suit its data."""

import contextlib
import math
from typing import Any

import torch
from torch import Tensor

from posterity.errors import Error
from posterity.evaluation.attacks import pixel_bounds, under_attack
from posterity.evaluation.corruptions import CORRUPTIONS, gaussian_mixing, in_pixels, rotate, under
from posterity.evaluation.sampling import representative_rows
from posterity.interaction import interacts
from posterity.posterior import Posterior
from posterity.streams import stream

ROWS, DRAWS = 200, 20
NOISE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ANGLES = (0.0, 15.0, 30.0, 60.0, 90.0)
SEVERITIES = (1, 3, 5)
PIXELS = (0.0, 0.01, 0.03, 0.1, 0.2)
"""Of an attack on images whose pixels go from 0 to 1."""
DEVIATIONS = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Of an attack on standardised columns."""

Curve = list[dict[str, float]]


def robustness(
    posterior: Posterior,
    x: Tensor,
    y: Tensor,
    *,
    rows: int = ROWS,
    samples: int = DRAWS,
    seed: int = 0,
) -> dict[str, Curve]:
    """Curves by name, each a list of records with `strength`, the scores, and the parts of the uncertainty.

    `noise` mixes more and more noise into the standardised inputs (figure 8 of the iBNN paper), `attack` is the fast
    gradient sign method against the expected prediction. Images that carry their preprocessing also have `rotation`,
    where each has one target, and `corruption`, the mean over all of `CORRUPTIONS`.

    Args:
        posterior: a trained posterior; nothing of it changes.
        x: inputs of its network, `[n, ...]`.
        y: their answers, `[n, ...]`.
        rows: how many of the data take part, spread over the targets as all of them are (`representative_rows`);
            all where rows interact.
        samples: functions to draw.
        seed: of all that is random.
    """
    if len(x) > rows and not interacts(posterior, x):
        chosen = representative_rows(y, rows, seed)
        x, y = x[chosen.to(x.device)], y[chosen.to(y.device)]
    samples = min(samples, posterior.draws)
    images = getattr(posterior.preprocessing, "kind", None) == "images" and x.dim() == 4

    def curve(corruption: Any, severities: tuple[float, ...]) -> Curve:
        random = stream(seed, "robustness")
        return _named(under(posterior, x, y, corruption, severities, samples=samples, generator=random))

    found = {"noise": curve(gaussian_mixing, NOISE)}
    scale: Any = 1.0
    bounds, sizes = None, DEVIATIONS
    if images:
        mean, std = (torch.tensor(getattr(posterior.preprocessing, name)) for name in ("mean", "std"))
        scale, bounds, sizes = 1 / std, pixel_bounds(mean, std), PIXELS
        with contextlib.suppress(Error):  # pixels that do not lie between 0 and 1
            if y.numel() == len(y):  # a map of targets would have to turn with its image
                found["rotation"] = curve(in_pixels(rotate, mean, std), ANGLES)
            found["corruption"] = found["noise"][:1] + _mean([curve(name, SEVERITIES) for name in CORRUPTIONS])
    if x.is_floating_point():
        random = stream(seed, "robustness")
        lines = under_attack(posterior, x, y, sizes, samples=samples, generator=random, scale=scale, bounds=bounds)
        found["attack"] = _named(lines)
    return found


def _named(lines: list[dict[str, float]]) -> Curve:
    """Records whose first entry is called `strength`, rounded to what a figure shows."""
    return [
        {"strength" if key in ("severity", "eps") else key: float(f"{value:.6g}") for key, value in line.items()}
        for line in lines
        if all(map(math.isfinite, line.values()))
    ]


def _mean(curves: list[Curve]) -> Curve:
    return [
        {key: sum(line[key] for line in lines) / len(lines) for key in lines[0]} for lines in zip(*curves, strict=True)
    ]
