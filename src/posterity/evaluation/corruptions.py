"""Corrupted images: what becomes of a prediction when its inputs get worse.

A corruption is a function of images `[n, channels, height, width]`, a severity and `generator=`. Severity 0 leaves
images as they are. The mixing of figure 8 of the iBNN paper takes any tensor, standardised or not; all others take
pixels, from 0 (black) to 1 (white), and nothing else. `in_pixels` brings them to standardised inputs.

`CORRUPTIONS` holds seven of the common corruptions of Hendrycks & Dietterich (2019, arXiv:1903.12261) with all of
their constants for CIFAR (32 × 32), by severity 1 to 5. What differs: severity 0 is ours, images of other sizes and
channels are taken as well, and nothing is rounded to 8 bits. Their files themselves are read by `load_cifar_c`.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from posterity.datasets.readers import guard
from posterity.errors import Error, short
from posterity.evaluation.stress import Channels, measured, per_channel, seeds
from posterity.posterior import Posterior, count, positive, randn
from posterity.predicting import predict

Corruption = Callable[..., Tensor]  # corruption(x, severity, generator=None): images of the shape of x
SEVERITIES = 5
GAUSSIAN_LEVELS, SALT_AND_PEPPER_LEVELS = (tuple(i / parts for i in range(11)) for parts in (10, 20))
"""γ and p of figure 8 of the iBNN paper."""


def gaussian_mixing(x: Tensor, gamma: float, generator: torch.Generator | None = None) -> Tensor:
    """(1 − γ) x + γ ε with ε ~ N(0, I) and γ from 0 to 1: eq. 28 and figure 8 of the iBNN paper (arXiv:2010.13498).

    The paper mixes into standardised inputs, where ε has the spread of the data. Nothing is clipped.
    """
    gamma = _share(x, gamma, "gamma", 1.0)
    return (1 - gamma) * x + gamma * randn(tuple(x.shape), x, generator)


def salt_and_pepper_mixing(x: Tensor, p: float, generator: torch.Generator | None = None) -> Tensor:
    """Each element becomes 0 with probability p and 1 with probability p: figure 8 of the iBNN paper, as in its code.

    So 2p of the elements change, and p ends at ½. The paper does this to standardised inputs, where 0 is the mean of
    a channel and 1 a standard deviation above it: for black and white use `salt_and_pepper`.
    """
    p, u = _share(x, p, "p", 0.5), _uniform(x, generator)
    return torch.where(u < p, 0.0, torch.where(u > 1 - p, 1.0, x))


def additive_gaussian(x: Tensor, std: float, generator: torch.Generator | None = None) -> Tensor:
    """Noise of a sensor: x + std · ε with ε ~ N(0, I), clipped to [0, 1]."""
    x = _pixels(x)
    return (x + positive(std, "std", zero=True) * randn(tuple(x.shape), x, generator)).clamp(0, 1)


def salt_and_pepper(x: Tensor, share: float, generator: torch.Generator | None = None) -> Tensor:
    """Dead pixels: `share` of them, with all of their channels, one half black and one half white."""
    x = _pixels(x)
    share, u = _share(x, share, "share", 1.0), _uniform(x[:, :1], generator)
    return torch.where(u < share / 2, 0.0, torch.where(u > 1 - share / 2, 1.0, x))


def rotate(x: Tensor, degrees: float, generator: torch.Generator | None = None) -> Tensor:
    """Turned counter-clockwise around the centre, bilinear; what comes in from outside is black (0)."""
    x = _pixels(x)
    if positive(abs(degrees), "The size of the angle", zero=True) % 360 == 0:
        return x
    height, width = x.shape[2:]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = x.new_tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]])
    grid = F.affine_grid(turn.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def gaussian_noise(x: Tensor, severity: int, generator: torch.Generator | None = None) -> Tensor:
    """`additive_gaussian` with std 0.04 to 0.1."""
    return additive_gaussian(x, _constant(severity, 0.0, [0.04, 0.06, 0.08, 0.09, 0.10]), generator)


def shot_noise(x: Tensor, severity: int, generator: torch.Generator | None = None) -> Tensor:
    """Counted photons: Poisson(c x) / c, clipped, with c = 500 to 50."""
    c, x = _constant(severity, 0.0, [500, 250, 100, 75, 50]), _pixels(x)
    if c == 0:
        return x
    rate = c * x if generator is None else (c * x).to(generator.device)
    return (torch.poisson(rate, generator=generator).to(x.device) / c).clamp(0, 1)


def impulse_noise(x: Tensor, severity: int, generator: torch.Generator | None = None) -> Tensor:
    """A share of 0.01 to 0.07 of the elements (each channel for itself) becomes 0 or 1, one half each."""
    share = _constant(severity, 0.0, [0.01, 0.02, 0.03, 0.05, 0.07])
    return salt_and_pepper_mixing(_pixels(x), share / 2, generator)


def defocus_blur(x: Tensor, severity: int, generator: torch.Generator | None = None) -> Tensor:
    """A disk of radius 0.3 to 1.5 that is itself blurred (3 × 3 Gaussian); images are mirrored at their edges."""
    radius, alias = _constant(severity, (0.0, 0.0), [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)])
    x = _pixels(x)
    if radius == 0:
        return x
    if min(x.shape[2:]) < 3:
        raise Error(f"A blur needs images of at least 3 × 3 pixels; got {x.shape[2]} × {x.shape[3]}.")
    place = torch.arange(-1, 2, dtype=torch.float64)
    disk = (place[:, None] ** 2 + place**2 <= radius**2).double()
    line = torch.exp(-(place**2) / (2 * alias**2))
    soft = torch.outer(line, line) / line.sum() ** 2
    kernel = F.conv2d((disk / disk.sum())[None, None], soft[None, None], padding=2).to(x)
    padded = F.pad(x, (2, 2, 2, 2), mode="reflect").flatten(0, 1).unsqueeze(1)
    return F.conv2d(padded, kernel).view(x.shape).clamp(0, 1)


def brightness(x: Tensor, severity: int, generator: torch.Generator | None = None) -> Tensor:
    """0.05 to 0.3 more of V in HSV, at most 1: V is a pixel's largest channel, to which the others keep their ratio."""
    x = _pixels(x)
    value = x.amax(1, keepdim=True)
    brighter = (value + _constant(severity, 0.0, [0.05, 0.1, 0.15, 0.2, 0.3])).clamp(max=1)
    return torch.where(value > 0, x * (brighter / value), brighter)


def contrast(x: Tensor, severity: int, generator: torch.Generator | None = None) -> Tensor:
    """Towards the mean of each image and channel: 0.75 to 0.15 of the distance is left."""
    x = _pixels(x)
    mean = x.mean((2, 3), keepdim=True)
    return torch.lerp(mean, x, _constant(severity, 1.0, [0.75, 0.5, 0.4, 0.3, 0.15])).clamp(0, 1)


def pixelate(x: Tensor, severity: int, generator: torch.Generator | None = None) -> Tensor:
    """Made smaller, to 0.95 to 0.65 of each side, and as large again, with box filters as Pillow has them."""
    share, x = _constant(severity, 1.0, [0.95, 0.9, 0.85, 0.75, 0.65]), _pixels(x)
    down, across = (_box(side, max(1, int(share * side))).to(x) for side in x.shape[2:])
    return down @ x @ across.T


CORRUPTIONS: dict[str, Corruption] = {
    function.__name__: function
    for function in (gaussian_noise, shot_noise, impulse_noise, defocus_blur, brightness, contrast, pixelate)
}


def in_pixels(corruption: Corruption, mean: Channels, std: Channels) -> Corruption:
    """The corruption for inputs (pixels − mean) / std, such as those of an `ImagePreprocessing`.

    Args:
        corruption: of pixels, such as those in `CORRUPTIONS`
        mean: a number, or one for each channel
        std: a number, or one for each channel
    """

    def corrupted(x: Tensor, severity: float, generator: torch.Generator | None = None) -> Tensor:
        shift, scale = per_channel(mean, x, "mean"), per_channel(std, x, "std")
        return (corruption(x * scale + shift, severity, generator=generator) - shift) / scale

    return corrupted


def under(
    posterior: Posterior,
    x: Tensor,
    y: Tensor,
    corruption: Corruption | str,
    severities: Iterable[float] = range(SEVERITIES + 1),
    *,
    samples: int | None = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> list[dict[str, float]]:
    """What becomes of a prediction: one line per severity.

    A line holds `severity`, the scores of `evaluation.score`, and the means of `total`, `aleatoric` and `epistemic`.
    Every severity meets the same drawn functions and the same random numbers, so that lines differ by it alone.

    Args:
        posterior: a trained posterior; nothing of it changes.
        x: inputs of its network, `[n, channels, height, width]`.
        y: their answers, `[n, ...]`.
        corruption: of inputs as they are (see `in_pixels`), or a name of `CORRUPTIONS`, for which the posterior must
            carry the preprocessing of its images.
        severities: in the corruption's own units.
        samples: functions to draw; by default what suits the method.
        generator: of the functions and the noise; without one, torch's global generator.
        batch_size: rows at a time; by default what suits the machine.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.IBNN(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
        >>> x, y = torch.rand(20, 1, 8, 8), torch.arange(20) % 10
        >>> noise = posterity.evaluation.CORRUPTIONS["gaussian_noise"]  # x are pixels
        >>> lines = posterity.evaluation.under(posterior, x, y, noise, (0, 3, 5))
        >>> [line["severity"] for line in lines]
        [0.0, 3.0, 5.0]
        >>> list(lines[0])
        ['severity', 'error', 'nll', 'brier', 'ece', 'total', 'aleatoric', 'epistemic']
    """
    corrupted = _named(corruption, posterior.preprocessing) if isinstance(corruption, str) else corruption
    draws, noise = seeds(2, generator)
    lines = []
    for severity in severities:
        worse = corrupted(x, severity, generator=torch.Generator().manual_seed(noise))
        prediction = predict(posterior, worse, samples, torch.Generator().manual_seed(draws), batch_size=batch_size)
        lines.append({"severity": float(severity)} | measured(prediction, y))
    return lines


def load_cifar_c(folder: str | Path, name: str, severity: int) -> tuple[Tensor, Tensor]:
    """CIFAR-10-C or CIFAR-100-C: bytes `[n, 3, 32, 32]`, which `ImagePreprocessing.inputs` takes, and classes `[n]`.

    Args:
        folder: the unpacked archive, with `labels.npy` and a file for each corruption, such as `fog.npy`
        name: of the corruption, such as "fog"
        severity: 1 to 5
    """
    if count(severity, "severity") > SEVERITIES:
        raise Error(f"The severity must be 1 to {SEVERITIES}; got {severity}.")
    if not name or Path(name).name != name or "\\" in name:
        raise Error(f"The name of a corruption is a plain word, such as 'fog'; got {short(name)}.")
    paths = [Path(folder) / f"{part}.npy" for part in (name, "labels")]
    images, labels = (guard(path, lambda file: np.lib.format.open_memmap(file.name, mode="r")) for path in paths)
    n = len(images) // SEVERITIES if images.ndim else 0
    if images.dtype != np.uint8 or not n or images.shape != (n * SEVERITIES, 32, 32, 3):
        raise Error(f"{name}.npy must hold bytes [5 n, 32, 32, 3], not {images.dtype} {list(images.shape)}.")
    if labels.dtype.kind not in "iu" or labels.shape != (n * SEVERITIES,):
        raise Error(f"labels.npy must hold {n * SEVERITIES} classes, not {labels.dtype} {list(labels.shape)}.")
    rows = slice((severity - 1) * n, severity * n)
    return torch.tensor(images[rows]).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels[rows].astype(np.int64))


def _named(name: str, preprocessing: Any) -> Corruption:
    if name not in CORRUPTIONS:
        raise Error(f"There is no corruption {short(name)}: take one of {', '.join(CORRUPTIONS)}, or give a function.")
    if not hasattr(preprocessing, "std"):
        raise Error(f"This posterior carries no preprocessing of images: give in_pixels({name}, mean, std).")
    return in_pixels(CORRUPTIONS[name], preprocessing.mean, preprocessing.std)


def _pixels(x: Tensor) -> Tensor:
    """The images, without what rounding leaves outside [0, 1], or an error if they are not pixels."""
    if not isinstance(x, Tensor) or x.dim() != 4 or not x.is_floating_point():
        raise Error("Images must be a tensor of floating point numbers [n, channels, height, width].")
    if not bool(((x - 0.5).abs() < 0.501).all()):
        raise Error("Pixels must lie between 0 and 1: for standardised inputs use in_pixels(corruption, mean, std).")
    return x.clamp(0, 1)


def _constant(severity: int, zero: Any, constants: list[Any]) -> Any:
    if count(severity, "severity", least=0) > SEVERITIES:
        raise Error(f"The severity must be 0 to {SEVERITIES}; got {severity}.")
    return [zero, *constants][severity]


def _share(x: Tensor, value: float, name: str, most: float) -> float:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise Error("Images must be a tensor of floating point numbers.")
    if positive(value, name, zero=True) > most:
        raise Error(f"{name} must lie between 0 and {most:g}; got {short(value)}.")
    return float(value)


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    device = like.device if generator is None else generator.device
    return torch.rand(like.shape, generator=generator, device=device, dtype=like.dtype).to(like.device)


def _box(side: int, smaller: int) -> Tensor:
    """The matrix [side, side] that makes a line of pixels smaller, by averages, and larger again, by repetition."""
    centre = (torch.arange(smaller, dtype=torch.float64) + 0.5) * side / smaller
    offset = (torch.arange(side) + 0.5 - centre[:, None]) * smaller / side
    average = ((offset > -0.5) & (offset <= 0.5)).double()
    nearest = ((torch.arange(side) + 0.5) * smaller / side).long()
    return (average / average.sum(1, keepdim=True))[nearest]
