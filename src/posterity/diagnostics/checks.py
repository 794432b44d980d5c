"""Warnings about a posterior that says nothing: draws that do not differ, or a prior that holds all of it."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from posterity.errors import Error
from posterity.functions import Functions
from posterity.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from posterity.normalisation import measure, normalised
from posterity.outputs import outputs
from posterity.posterior import Posterior, count
from posterity.prediction import GaussianPrediction, kind
from posterity.preparing import is_raw, prepared

#: Nats that statistics of a function's own must gain to be worth a word.
LEAST = 0.05


def check(
    posterior: Posterior,
    x: Any,
    y: Any = None,
    *,
    size: int | None = None,
    warn: bool = False,
    generator: torch.Generator | None = None,
) -> list[str]:
    """What looks wrong with a trained posterior, in plain sentences; an empty list where nothing does.

    Three things are looked for, the first two with a threshold that follows from N, the number of training data.

    Draws that hardly differ: the mutual information of an answer and the function (for real numbers
    ½ log(1 + epistemic/aleatoric)) is below 1/(2N) nats. That is what one unknown number would keep after N data: the
    mean of y alone is known no better than that, and a network has many more unknowns.

    A divergence that dominates the loss (needs y): divergence/N is more than the nats by which the functions beat a
    constant answer, the class frequencies or N(mean, std²) of y. A bound on the evidence is then worse than that of a
    constant; not every method's objective is one (`bounds_evidence`). (The negative log-likelihood as such is no
    yardstick: for real numbers it shifts with their unit.)

    Batch statistics that suit no draw (needs y): with statistics measured on x for each function the negative
    log-likelihood is lower by more than 0.05 nats and three standard errors.

    Args:
        posterior: a trained posterior; nothing of it changes.
        x: the training inputs, or a fair part of them.
        y: their answers.
        size: N; by default that of the last `fit`, or the rows of x where there was none.
        warn: also raise each sentence as a warning.
        generator: of the draws.

    Example:
        >>> import posterity, torch
        >>> found = posterity.diagnostics.check(posterity.MAP(torch.nn.Linear(2, 3)), torch.randn(50, 2))
        >>> found[0].partition(":")[0]
        'All functions drawn from MAP are the same'
        >>> posterity.diagnostics.check(posterity.DeepEnsemble(torch.nn.Linear(2, 3)), torch.randn(50, 2))
        []
    """
    raw, x = is_raw(posterior, x), prepared(posterior, x)
    if raw and y is not None and not isinstance(y, Tensor):
        y = posterior.preprocessing.targets(y)
    with torch.no_grad():
        functions = posterior.draw(max(2, posterior.draws), generator)
        found = outputs(functions, x)
        known = posterior.training_size or found.shape[1]
        n = count(known if size is None else size, "size")
        sentences = [_spread(posterior, found, n)]
        if y is not None:
            y = torch.as_tensor(y).cpu()
            sentences.append(_price(posterior, found, y, n, generator))
            sentences.append(_statistics(posterior, functions, found, x, y))
    told = [sentence for sentence in sentences if sentence]
    if warn:
        for sentence in told:
            warnings.warn(sentence, stacklevel=2)
    return told


def _spread(posterior: Posterior, found: Tensor, n: int) -> str:
    """A sentence where the functions hardly differ, else nothing."""
    name = type(posterior).__name__
    if bool((found == found[0]).all()):
        return (
            f"All functions drawn from {name} are the same: it has no epistemic uncertainty. Use a method with a "
            "posterior, such as IBNN or DeepEnsemble, or more members or layers where it should have one."
        )
    prediction = kind(posterior.likelihood).gather([found], posterior.likelihood)
    if isinstance(prediction, GaussianPrediction):
        nats = float(torch.log1p(prediction.epistemic / prediction.aleatoric).mean()) / 2
    else:
        nats = float(prediction.epistemic.mean())
    nats *= len(found) / (len(found) - 1)  # a few functions spread less around their own mean
    least = 0.5 / (n * prediction.aleatoric[0].numel())
    if nats >= least:
        return ""
    if next(posterior.variational(), None) is None:
        advice = "Its spread is not trained: give it more members or a higher rate of dropout, or use another method."
    else:
        advice = (
            "See that beta ends at 1 and that size is the number of training data, since too light a divergence lets "
            "the spread collapse; else train longer or raise lr_posterior."
        )
    return (
        f"The functions drawn from {name} hardly differ: they leave {nats:.1e} nats of epistemic uncertainty per "
        f"answer, less than the {least:.1e} that a single unknown number would after {n} data. {advice}"
    )


def _price(posterior: Posterior, found: Tensor, y: Tensor, n: int, generator: torch.Generator | None) -> str:
    """A sentence where the divergence costs more than the functions explain, else nothing."""
    price = float(posterior.divergence(generator)) / n
    nll = -float(posterior.likelihood.log_prob(found, y).mean())
    constant = _constant(posterior.likelihood, found, y)
    if not math.isfinite(nll + price):
        return "The loss is not finite: training has failed. Look for NaN or huge values in the data, or lower lr."
    gain = constant - nll
    if price <= max(gain, 0.0):
        return ""
    meant = (
        "As a bound on the evidence this is worse than a constant."
        if posterior.bounds_evidence
        else f"(The objective of this {type(posterior).__name__} is no bound on the evidence: it compares no models.)"
    )
    return (
        f"The divergence dominates the loss: {price:.3g} nats per datum, while the functions beat a constant answer by "
        f"{gain:.3g} (negative log-likelihood {nll:.3g} against {constant:.3g}). {meant} "
        "Either the spreads are still far narrower than the prior's: train longer or raise "
        "lr_posterior. Or the data cannot pay for so many uncertain weights: use fewer, node noise (IBNN), a prior_std "
        "nearer to the weights, more data, or beta below 1, and say so with the results."
    )


def _statistics(posterior: Posterior, functions: Functions, found: Tensor, x: Any, y: Tensor) -> str:
    """A sentence where running batch statistics make the functions worse than their own would, else nothing."""
    if not functions.perturbed or not normalised(functions):
        return ""
    own = outputs(measure(functions, x), x)
    gain = (posterior.likelihood.log_prob(own, y) - posterior.likelihood.log_prob(found, y)).double().mean(0)
    mean, error = float(gain.mean()), float(gain.std()) / math.sqrt(len(gain))
    if not mean > max(LEAST, 3 * error):
        return ""
    return (
        f"The running statistics of batch normalisation suit no single draw: with statistics of its own each function "
        f"gains {mean:.3g} nats per datum. Predict with posterity.Normalised(posterior, x), x being training inputs."
    )


def _constant(likelihood: Likelihood, found: Tensor, y: Tensor) -> float:
    """Negative log-likelihood per datum of the best answer that ignores the inputs."""
    if isinstance(likelihood, Gaussian):
        values = y.double().reshape(len(y), -1)
        variance = values.var(0, correction=0).clamp(min=torch.finfo(torch.float64).tiny)
        return float((0.5 * torch.log(2 * math.pi * math.e * variance)).sum())
    if isinstance(likelihood, Categorical):
        seen, classes = likelihood.labels(y), likelihood.by_class(found)
        shares = F.one_hot(seen[seen != likelihood.ignore].long(), classes.shape[2]).double().mean(0)
        if likelihood.weight is not None:  # a class counts by its weight
            shares = shares * likelihood.weight.to(shares)
            shares = shares / shares.sum().clamp(min=1e-12)
        constant = shares.clamp(min=1e-12).log().view(-1, *[1] * (found.dim() - 3)).expand(1, *classes.shape[1:])
        return -float(Categorical.log_prob(likelihood, constant, seen).mean())
    if isinstance(likelihood, Bernoulli):
        logits = torch.logit(y.double().mean(0), eps=1e-12).reshape(found.shape[2:])
        return -float(likelihood.log_prob(logits.expand(1, *found.shape[1:]), y).mean())
    raise Error(f"No constant answer is known for the likelihood {type(likelihood).__name__}.")
