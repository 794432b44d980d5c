"""What the Bayes by Hypernet paper looks at besides the error: outliers, attacks, and the weights themselves."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import posterity
from posterity import evaluation
from posterity.evaluation.attacks import SLIDES_EPS
from posterity.evaluation.stress import measured
from posterity.weights import WeightPosterior

PROTOCOLS = ("slides", "expected")
#: Weights of a layer that go into its histogram, and those whose correlations are shown.
KEPT, SHOWN = 2_000, 6
BINS = 61


class Crops:
    """Random squares of images in [0, 1] after a black border of 2 pixels, half of them mirrored, each standardised.

    The paper's code also changes brightness, which the standardisation undoes, and the contrast of each channel around
    its own mean, which is left out.
    """

    def __init__(self, size: int, border: int = 2) -> None:
        self.size, self.border = size, border

    def __call__(self, x: Tensor) -> Tensor:
        """Squares `[batch, channels, size, size]` of images `[batch, channels, height, width]`."""
        x = F.pad(x, (self.border,) * 4)
        n, _, height, width = x.shape
        span = torch.arange(self.size, device=x.device)
        down = torch.randint(height - self.size + 1, (n, 1), device=x.device)
        right = torch.randint(width - self.size + 1, (n, 1), device=x.device)
        mirrored = torch.rand((n, 1), device=x.device) < 0.5
        columns = right + torch.where(mirrored, span.flip(0), span)
        first = torch.arange(n, device=x.device).view(-1, 1, 1)
        found = x.permute(0, 2, 3, 1)[first, (down + span).unsqueeze(2), columns.unsqueeze(1)]
        crops = standardised(found.permute(0, 3, 1, 2))
        # A processor's convolutions take a fifth less time where channels lie last.
        return crops.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else crops

    def __repr__(self) -> str:
        return f"Crops({self.size}, {self.border})"


def standardised(x: Tensor) -> Tensor:
    """Each image `[batch, ...]` less its mean, over its standard deviation or 1/√pixels where that is more."""
    flat = x.flatten(1)
    std = flat.std(1, keepdim=True, correction=0).clamp(min=1 / math.sqrt(flat.shape[1]))
    return ((flat - flat.mean(1, keepdim=True)) / std).view_as(x)


def outlier_scores(inside: Any, outside: Any, y: Tensor) -> dict[str, float]:
    """The slides' two areas, 1 − E[H] / log C, what detection is really worth, and the NLL apart from sureness."""
    detected = evaluation.detect(inside, outside)
    return {
        "inside_auc": evaluation.entropy_auc(inside),
        "outside_auc": evaluation.entropy_auc(outside),
        "auroc_total": detected["total"].auroc,
        "auroc_epistemic": detected["epistemic"].auroc,
        "calibrated_nll": evaluation.calibrated_nll(inside, y),
    }


def under_both_attacks(posterior: Any, x: Tensor, y: Tensor, draws: int | None, seed: int) -> dict[str, Any]:
    """Error and entropy against ε under both protocols, and how far each moves a pixel, as a part of ε.

    slides     the average of one attack on each function, without clipping; the prediction draws other functions
    expected   every pixel by ε, against the mean prediction, which is then made by the same functions
    """
    found = {}
    for protocol in PROTOCOLS:
        generator = torch.Generator().manual_seed(seed)
        far = evaluation.fgsm(posterior, x, y, 1.0, protocol=protocol, samples=draws, generator=generator)
        direction, lines = far - x, []
        for eps in SLIDES_EPS:
            generator = torch.Generator().manual_seed(seed + (protocol == "slides"))
            prediction = posterity.predict(posterior, x + eps * direction, draws, generator)
            scores = measured(prediction, y)
            lines.append({"eps": eps} | {key: scores[key] for key in ("error", "nll", "total", "epistemic")})
        found[protocol] = {"moved": float(direction.abs().mean()), "lines": lines}
    return found


@torch.no_grad()
def weight_summary(posterior: Any, draws: int, seed: int) -> dict[str, Any] | None:
    """Histograms of drawn weights by layer, and correlations of some of them over the draws; None without weights.

    A layer's `spread` is the mean over its weights of their standard deviation over draws, `size` the root mean square
    of all its weights.
    """
    if not isinstance(posterior, WeightPosterior):
        return None
    generator = torch.Generator().manual_seed(seed)
    names = [name for name, shape in posterior.weights.shapes.items() if len(shape) > 1]
    chosen: dict[str, list[Tensor]] = {name: [] for name in names}
    for start in range(0, draws, 10):
        split = posterior.weights.split(posterior.sample(min(10, draws - start), generator))
        for name in names:
            flat = split[name].flatten(1)
            chosen[name].append(flat[:, :: -(-flat.shape[1] // KEPT)].float().cpu())
    values = {name: torch.cat(parts) for name, parts in chosen.items()}
    pairs = torch.cat([v[:, torch.linspace(0, v.shape[1] - 1, SHOWN).long()] for v in values.values()], 1)
    correlation = torch.corrcoef(pairs.double().T).nan_to_num()
    layer = torch.arange(len(names)).repeat_interleave(SHOWN)
    same, other = layer[:, None] == layer, ~torch.eye(len(layer), dtype=torch.bool)
    layers = {}
    for name, drawn in values.items():
        size = float(drawn.double().square().mean().sqrt())
        reach = 4 * size or 1.0
        counts = torch.histc(drawn, BINS, -reach, reach)
        layers[name] = {
            "size": size,
            "spread": float(drawn.double().std(0).mean()),
            "reach": reach,
            "density": (counts / (drawn.numel() * 2 * reach / BINS)).double().tolist(),
        }
    return {
        "draws": draws,
        "layers": layers,
        "correlation": [[round(c, 3) for c in row] for row in correlation.tolist()],
        "within": float(correlation[same & other].abs().mean()),
        "between": float(correlation[~same].abs().mean()) if len(names) > 1 else 0.0,
    }
