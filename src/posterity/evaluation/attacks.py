"""Adversarial inputs: the worst that a small change can do to a prediction.

What is attacked is the prediction itself, the mean over drawn functions f_s (expectation over transformation, Athalye
et al. 2018, arXiv:1802.00420), inside a box around the input:

    max over |δ| ≤ ε of   −log p̄(y | x + δ),   p̄(y | x) = (1/n) Σ_s p(y | f_s(x))

`fgsm` takes one step (Goodfellow et al. 2015, arXiv:1412.6572), `pgd` many (Madry et al. 2018, arXiv:1706.06083).
Losses are taken in double precision: in single precision a confident network (p̄ > 1 − 6e-8) hides its gradient and
looks robust.
"""

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs, loading
from posterity.errors import Error, short
from posterity.evaluation.stress import Channels, measured, per_channel, seeds
from posterity.explaining import explained
from posterity.functions import Functions
from posterity.interaction import pieces
from posterity.posterior import Posterior, count, flag, one_of, positive
from posterity.predicting import predict
from posterity.prediction import GaussianPrediction, kind
from posterity.state import home

Bounds = tuple[Channels, Channels]
"""The lowest and the highest value that an input may take."""
SLIDES_EPS = tuple(i / 20 for i in range(9))
"""The sizes of the Bayes by Hypernet slides: 0 to 0.4."""


def pixel_bounds(mean: Channels, std: Channels) -> tuple[Tensor, Tensor]:
    """What black and white, 0 and 1, are in inputs (pixels − mean) / std.

    Args:
        mean: a number, or one for each channel
        std: a number, or one for each channel

    Example:
        >>> from posterity.evaluation import pixel_bounds
        >>> pixel_bounds(0.5, 0.25)
        (tensor(-2., dtype=torch.float64), tensor(2., dtype=torch.float64))
    """
    mean, std = (torch.as_tensor(value, dtype=torch.float64) for value in (mean, std))
    return -mean / std, (1 - mean) / std


@torch.inference_mode(False)
def fgsm(
    posterior: Posterior,
    x: Tensor,
    y: Tensor,
    eps: float,
    *,
    protocol: str = "expected",
    scale: Channels = 1.0,
    bounds: Bounds | None = None,
    samples: int | None = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> Tensor:
    """The fast gradient sign method: inputs of the shape of x, one step away.

    "expected": x − ε sign(∇ₓ log p̄(y | x)). It moves every element by ε, but for those without a gradient.
    "slides": x − ε (1/n) Σ_s sign(∇ₓ log p(y | f_s(x))), the average of one attack on each function, as the Bayes by
    Hypernet slides (arXiv:1711.01297) attacked stochastic networks. Where functions disagree it moves by less than ε,
    so that a network looks more robust for having many of them. For comparison with the slides' figures alone.

    Args:
        posterior: a trained posterior; nothing of it changes.
        x: inputs of its network, one tensor of real numbers `[n, ...]`.
        y: their true answers, `[n, ...]`.
        eps: ε, in units of x / `scale`.
        protocol: "expected" or "slides".
        scale: with 1 / std of each channel, ε is in units of pixels where x is standardised.
        bounds: what inputs may not leave, in units of x (see `pixel_bounds`); one that is outside goes no further.
        samples: n; by default what suits the method.
        generator: of the functions; without one, torch's global generator.
        batch_size: rows at a time; by default 256, or all of them where rows interact.

    Example:
        >>> import posterity, torch
        >>> network = torch.nn.Linear(2, 2)
        >>> network.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # the second input has no say
        >>> x, y = torch.tensor([[1.0, 1.0]]), torch.tensor([0])
        >>> posterity.evaluation.fgsm(posterity.MAP(network), x, y, eps=0.5)
        tensor([[0.5000, 1.0000]])
    """
    each = one_of(protocol, ("expected", "slides"), "protocol") == "slides"
    if each and issubclass(kind(posterior.likelihood), GaussianPrediction):
        raise Error('The protocol of the slides is for classes: attack real numbers with protocol="expected".')
    x, y, radius, low, high = _checked(x, y, eps, scale, bounds)
    functions = _drawn(posterior, samples, generator)
    _, direction = _directions(posterior, functions, x, y, batch_size, each)
    return (x + radius * direction).clamp(low, high)


@torch.inference_mode(False)
def pgd(
    posterior: Posterior,
    x: Tensor,
    y: Tensor,
    eps: float,
    *,
    steps: int = 10,
    step_size: float | None = None,
    random_start: bool = True,
    scale: Channels = 1.0,
    bounds: Bounds | None = None,
    samples: int | None = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> Tensor:
    """Projected gradient ascent: of all the inputs on its way, for each row the one with the least log p̄(y | x).

    x ← Π[x − α sign(∇ₓ log p̄(y | x))], where Π projects on the box of ε and on the bounds. All steps meet the same
    functions.

    Args:
        posterior: a trained posterior; nothing of it changes.
        x: inputs of its network, one tensor of real numbers `[n, ...]`.
        y: their true answers, `[n, ...]`.
        eps: ε, in units of x / `scale`.
        steps: how many.
        step_size: α, in the units of `eps`; by default 2.5 ε / steps, as Madry et al. have it.
        random_start: start anywhere in the box rather than at x.
        scale: with 1 / std of each channel, ε is in units of pixels where x is standardised.
        bounds: what inputs may not leave, in units of x (see `pixel_bounds`); one that is outside goes no further.
        samples: how many functions are attacked; by default what suits the method.
        generator: of the functions and the start; without one, torch's global generator.
        batch_size: rows at a time; by default 256, or all of them where rows interact.

    Example:
        >>> import posterity, torch
        >>> posterior, x, y = posterity.IBNN(torch.nn.Linear(2, 3)), torch.randn(5, 2), torch.arange(5) % 3
        >>> attacked = posterity.evaluation.pgd(posterior, x, y, eps=0.1, steps=3)
        >>> attacked.shape, bool(((attacked - x).abs() < 0.1001).all())
        (torch.Size([5, 2]), True)
    """
    x, y, radius, low, high = _checked(x, y, eps, scale, bounds)
    low, high = torch.maximum(low, x - radius), torch.minimum(high, x + radius)
    size = 2.5 * eps / count(steps, "steps") if step_size is None else positive(step_size, "step_size")
    alpha = size * per_channel(scale, x, "scale")
    functions = _drawn(posterior, samples, generator)
    now = x
    if flag(random_start, "random_start"):
        device = home(generator) or x.device
        u = torch.rand(x.shape, generator=generator, device=device, dtype=x.dtype).to(x.device)
        now = (x + (2 * u - 1) * radius).clamp(low, high)
    best, worst = now, torch.full((len(x),), math.inf, dtype=torch.float64, device=x.device)
    for step in range(steps + 1):
        log_prob, direction = _directions(posterior, functions, now, y, batch_size)
        better = (log_prob < worst).view(-1, *(1,) * (x.dim() - 1))
        best, worst = torch.where(better, now, best), torch.minimum(log_prob, worst)
        if step < steps:
            now = (now + alpha * direction).clamp(low, high)
    return best


def under_attack(
    posterior: Posterior,
    x: Tensor,
    y: Tensor,
    eps: float | Iterable[float] = SLIDES_EPS,
    *,
    attack: Callable[..., Tensor] = fgsm,
    fresh: bool = False,
    samples: int | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> list[dict[str, float]]:
    """What becomes of a prediction under attack: one line per ε.

    A line holds `eps`, the scores of `evaluation.score` (error, nll, ...) and the means of `total` (for classes the
    entropy), `aleatoric` and `epistemic`. Every ε meets the same functions and the same start.

    Args:
        posterior: a trained posterior; nothing of it changes.
        x: inputs `[n, ...]`.
        y: their true answers, `[n, ...]`.
        eps: sizes, or one; by default those of the Bayes by Hypernet slides.
        attack: `fgsm`, `pgd`, or a function with their arguments.
        fresh: predict with other functions than those attacked; by default with the same, the worst case.
        samples: functions to draw; by default what suits the method.
        generator: of all that is random; without one, torch's global generator.
        options: passed to the attack.
    """
    if not callable(attack):
        raise Error(f"attack must be a function such as posterity.evaluation.pgd; got {short(attack)}.")
    seed, other = seeds(2, generator)
    lines = []
    for size in eps if isinstance(eps, Iterable) else [eps]:
        attacked = attack(
            posterior, x, y, size, samples=samples, generator=torch.Generator().manual_seed(seed), **options
        )
        prediction = predict(posterior, attacked, samples, torch.Generator().manual_seed(other if fresh else seed))
        lines.append({"eps": float(size)} | measured(prediction, y))
    return lines


def _checked(
    x: Tensor, y: Tensor, eps: float, scale: Channels, bounds: Bounds | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x, y, the radius of the box, and the least and the largest value of each element."""
    x, y = inputs.as_tensors(x), inputs.as_tensors(y)
    if not isinstance(x, Tensor) or not x.is_floating_point() or not x.dim():
        raise Error("An attack changes real numbers: x must be one floating point tensor [n, ...].")
    if not len(x) or not isinstance(y, Tensor) or inputs.rows(y) != len(x):
        raise Error("An attack needs at least one input, and one answer for each.")
    loading.check_finite(x)
    ends = (-math.inf, math.inf) if bounds is None else bounds
    low, high = (per_channel(end, x, "bounds") for end in ends)
    units = per_channel(scale, x, "scale")
    if not bool((low < high).all()) or not bool((units > 0).all()):
        raise Error("The lower bounds of inputs must lie below the upper ones, and scale above 0.")
    radius = positive(eps, "eps", zero=True) * units
    return x.detach().clone(), y.clone(), radius, torch.minimum(low, x), torch.maximum(high, x)


@torch.no_grad()
def _drawn(posterior: Posterior, samples: int | None, generator: torch.Generator | None) -> Functions:
    return posterior.draw(posterior.draws if samples is None else count(samples, "samples"), generator)


def _directions(
    posterior: Posterior, functions: Functions, x: Tensor, y: Tensor, batch_size: int | None, each: bool = False
) -> tuple[Tensor, Tensor]:
    """log p̄(y | x), `[n]`, and the signs that lessen it, of the shape of x; with `each`, averages over functions."""
    like = inputs.like(posterior)
    recurrent = any(isinstance(module, nn.RNNBase) for module in functions.modules())
    rows = None if batch_size is None else count(batch_size, "batch_size")
    found, done = [], 0
    # cuDNN has no backward pass for recurrent layers in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False) if recurrent else contextlib.nullcontext():
        for batch in pieces(functions, x.to(like.device, like.dtype), rows, 256):
            if each:
                functions.rows_at_once = len(batch)  # one function at a time: each has a gradient of its own
            for part in [batch] if each else functions.parts(batch):
                leaf, done = part.detach().clone().requires_grad_(), done + len(part)
                answers = y[done - len(part) : done].to(leaf.device)
                outputs = (some.double() for some in functions.stream(leaf))
                groups = ([one.unsqueeze(0)] for some in outputs for one in some) if each else [outputs]
                with explained(functions.network, leaf):
                    pairs = [_lessening(posterior, group, leaf, answers, each) for group in groups]
                found.append([torch.stack(values).mean(0).to(x.device) for values in zip(*pairs, strict=True)])
    log_prob, direction = (torch.cat(values) for values in zip(*found, strict=True))
    return log_prob, direction.to(x.dtype)


def _lessening(
    posterior: Posterior, outputs: Iterable[Tensor], leaf: Tensor, y: Tensor, again: bool
) -> tuple[Tensor, Tensor]:
    """log p̄(y | leaf) over some functions, `[batch]`, and the signs of minus its gradient."""
    log_prob = kind(posterior.likelihood).gather(outputs, posterior.likelihood).log_prob(y)
    if not log_prob.requires_grad:
        raise Error("The network's output has no gradient in its inputs, so that there is nothing to attack.")
    (gradient,) = torch.autograd.grad(log_prob.sum(), leaf, retain_graph=again, materialize_grads=True)
    if not bool(gradient.isfinite().all()):
        raise Error("The gradient of the prediction is not finite: did training diverge?")
    return log_prob.detach(), -gradient.sign()
