"""Checks of a trained posterior, and what their tolerances are made of.

A tolerance is the sum of what is derived: k standard errors of the Monte Carlo estimate (k = 4 where one number is
judged: 6e-5 by chance), and what the optimiser leaves. OPTIMISER_MEAN and OPTIMISER_LOG_VARIANCE are that: at the rates
of `recipes.py` on a cosine and 400 steps, the means of Bayes by Backprop and of a linear LIVI end within 0.05 standard
deviations of the optimum and their log-variances within 0.17 (0.07 for the former), on three scenarios and with seeds
0, 1 and 2; the tolerance is about one and a half times that. The bound is stationary there, so it loses by their
squares, for two weights ½ · 2 · 0.1² + ¼ · 2 · 0.25² = 0.041 nats.
"""

import math

import torch
from known import Known, gaussian_optimum
from recipes import DRAWS, bound, functions, mode

import posterity
from common import generator

OPTIMISER_MEAN, OPTIMISER_LOG_VARIANCE, OPTIMISER_BOUND = 0.1, 0.25, 0.041
#: Index of the direction (1, 1) in the grid of `signs`, where its functions have two humps.
DIAGONAL = 3


def weights_of(posterior: posterity.Posterior) -> torch.Tensor:
    """Draws of the weights, `[DRAWS, weights]`."""
    with torch.no_grad():
        return posterior.sample(DRAWS, generator(2)).double()  # type: ignore[operator]


def deviations(posterior: posterity.Posterior, scenario: Known, full: bool) -> tuple[float, float, float, float]:
    """How a weight posterior differs from the best Gaussian near it, in units of that Gaussian.

    The largest error of a mean, the largest of the log-variance along any direction, what is lost of the bound, and
    its standard error.
    """
    drawn = weights_of(posterior)
    best = gaussian_optimum(scenario, mode(scenario, drawn.mean(0)), full)
    root = torch.linalg.cholesky(best.covariance)
    white = torch.linalg.solve_triangular(root, (drawn - best.mean).T, upper=False)
    found = bound(posterior, scenario)
    mean, log_variance = white.mean(1).abs().max(), torch.linalg.eigvalsh(white.cov()).log().abs().max()
    return float(mean), float(log_variance), best.bound - found.value, found.error


def is_the_best_gaussian(posterior: posterity.Posterior, scenario: Known, full: bool) -> bool:
    """Whether a weight posterior is the best Gaussian near it, factorised or `full`, and so is its bound."""
    mean, log_variance, loss, error = deviations(posterior, scenario, full)
    return (
        mean < OPTIMISER_MEAN + 4 / math.sqrt(DRAWS)
        and log_variance < OPTIMISER_LOG_VARIANCE + 4 * math.sqrt(2 / DRAWS)
        and -4 * error < loss < OPTIMISER_BOUND + 4 * error
    )


def upper_half(posterior: posterity.Posterior, scenario: Known) -> float:
    """The share of functions on the upper hump along (1, 1)."""
    middle = scenario.reference.mean[DIAGONAL]
    return float((functions(posterior, scenario)[:, DIAGONAL] > middle).mean())
