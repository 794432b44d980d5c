"""Loss and error of networks on the plane through the components of an iBNN."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posterity import inputs
from posterity.errors import Error
from posterity.functions import Functions
from posterity.interaction import keeps_whole, pieces
from posterity.likelihoods import Bernoulli, Categorical, Gaussian
from posterity.methods.ibnn import IBNN
from posterity.posterior import count, positive
from posterity.progress import Bar, wanted

FUNCTIONS_AT_ONCE, ROWS_AT_ONCE = 64, 256


@dataclass(frozen=True)
class Landscape:
    """What `components` draws: two surfaces over a plane in the space of nodes, and the components on it.

    Coordinates are along the first two principal directions of the component means, from their average.
    """

    positions: Tensor
    """[K, 2], where each component mean lies, projected onto the plane."""
    network: Tensor
    """[2], where the network without noise (z = 1) lies, projected."""
    axes: tuple[Tensor, Tensor]
    """The grid's coordinates along each direction, [resolution] each."""
    loss: Tensor
    """[resolution, resolution], training loss in nats per datum; the second direction is axis 0."""
    error: Tensor
    """[resolution, resolution], share of wrong answers, or RMSE."""
    own: Tensor
    """[K + 1, 2], loss and error of each component mean itself and of the network without noise, not projected."""
    explained: float
    """The share of the means' spread that lies in the plane; with 1 nothing is lost by the projection."""


@torch.no_grad()
def landscape(
    posterior: IBNN,
    x: Any,
    y: Any,
    test: tuple[Any, Any] | None = None,
    *,
    resolution: int = 21,
    margin: float = 0.5,
    rows: int = 1000,
    progress: bool | None = None,
) -> Landscape:
    """Loss and error of the networks on a plane: the numbers behind `components`.

    Args:
        posterior: a trained IBNN with at least two components
        x: training inputs, [batch, ...]
        y: their answers, [batch, ...], in the units the posterior was trained in
        test: inputs and answers of the error; by default it is that of the training data
        resolution: points of the grid along each direction; the work is resolution² networks on the data
        margin: what the window adds on each side, as a share of the components' extent
        rows: how many data at most, evenly spaced in the order given
        progress: a progress bar; by default where standard error is a terminal
    """
    if not isinstance(posterior, IBNN) or posterior.per_layer:
        raise Error("This figure needs an IBNN whose components span the whole network (per_layer=False).")
    resolution = count(resolution, "resolution", least=3)
    training = _rows(posterior, x, y, rows)
    held = None if test is None else _rows(posterior, *_pair(test), rows)
    means = posterior.means.detach().double()
    centre = means.mean(0)
    directions, explained = _directions(means, centre)
    positions = (means - centre) @ directions.T
    network = (1 - centre) @ directions.T
    low, high = _window(torch.cat([positions, network[None]]), positive(margin, "margin", zero=True))
    axes = torch.stack([torch.linspace(0, 1, resolution, dtype=torch.float64)] * 2)
    axes = (low[:, None].cpu() + (high - low)[:, None].cpu() * axes).to(means)
    second, first = torch.meshgrid(axes[1], axes[0], indexing="ij")
    plane = torch.stack([first.flatten(), second.flatten()], dim=1)
    points = torch.cat([means, torch.ones_like(centre)[None], centre + plane @ directions])
    measured, parts = [], points.to(posterior.means.dtype).split(FUNCTIONS_AT_ONCE)
    with Bar(len(parts), wanted(progress), unit="part of the plane") as bar:
        for part in parts:
            functions = posterior._functions(part)
            loss, error = _measured(posterior, functions, training)
            error = error if held is None else _measured(posterior, functions, held)[1]
            measured.append(torch.stack([loss, error], 1))
            bar.update()
    found = torch.cat(measured).cpu()
    own, surfaces = found[: len(means) + 1], found[len(means) + 1 :].reshape(resolution, resolution, 2)
    return Landscape(
        positions.cpu(),
        network.cpu(),
        (axes[0].cpu(), axes[1].cpu()),
        surfaces[..., 0],
        surfaces[..., 1],
        own,
        explained,
    )


def _directions(means: Tensor, centre: Tensor) -> tuple[Tensor, float]:
    """Two orthonormal directions [2, nodes], and the share of the means' spread along them.

    Where the means lie on one line, as two of them do, the second direction is that of the network without noise.
    """
    if len(means) < 2:
        raise Error("A plane needs at least two components; this IBNN has one.")
    _, scale, rows = torch.linalg.svd(means - centre, full_matrices=False)
    if float(scale[0]) <= 1e-6:
        raise Error("All components are at the same place, so that they span no plane.")
    first, second = rows[0], rows[1]
    if float(scale[1]) <= 1e-6 * float(scale[0]):
        away = 1 - centre
        second = away - (away @ first) * first
        if float(second.norm()) <= 1e-6 * float(scale[0]):
            raise Error("The components and the network without noise lie on one line, so that they span no plane.")
        second = second / second.norm()
    found = torch.stack([first, second])
    # Singular vectors have no sign of their own: the largest entry is made positive.
    largest = found.gather(1, found.abs().argmax(1, keepdim=True))
    return found * largest.sign(), float((scale[:2] ** 2).sum() / (scale**2).sum())


def _window(points: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """The corners [2] of a square around all points."""
    low, high = points.amin(0), points.amax(0)
    half = (0.5 + margin) * (high - low).max()
    return (low + high) / 2 - half, (low + high) / 2 + half


def _pair(data: Any) -> tuple[Any, Any]:
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise Error("test must be a pair (x, y).")
    return data[0], data[1]


def _rows(posterior: IBNN, x: Any, y: Any, most: int) -> tuple[Any, Tensor]:
    """At most so many rows, evenly spaced, in the type and on the device of the posterior."""
    like = posterior.means
    x, y = inputs.as_tensors(x, like.device), torch.as_tensor(y).to(like.device)
    n = inputs.rows(x)
    if not n or not y.dim() or len(y) != n:
        raise Error(f"The data need rows, and as many answers as inputs; there are {n or 0} and {tuple(y.shape)}.")
    most = n if count(most, "rows") < n and keeps_whole(posterior.mean(), x) else min(most, n)
    chosen = torch.linspace(0, n - 1, most, dtype=torch.float64).round().long()
    x = inputs.apply(inputs.take(x, chosen), lambda t: t.to(like.dtype) if t.is_floating_point() else t)
    return x, y[chosen.to(y.device)]


def _measured(posterior: IBNN, functions: Functions, data: tuple[Any, Tensor]) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood per datum and error of each function, [n] each, float64."""
    x, y = data
    loss, wrong, seen, done = [], [], 0, 0
    for some in pieces(functions, x, default=ROWS_AT_ONCE):
        done += inputs.rows(some) or 0
        answers = y[done - (inputs.rows(some) or 0) : done]
        parts = list(functions.stream(some))
        loss.append(torch.cat([-posterior.likelihood.log_prob(out, answers).double().sum(1) for out in parts]))
        errors = [_errors(posterior, out, answers) for out in parts]
        wrong.append(torch.cat([found for found, _ in errors]))
        seen += errors[0][1]
    error = torch.stack(wrong).sum(0) / max(seen, 1)
    return torch.stack(loss).sum(0) / len(y), error.sqrt() if isinstance(posterior.likelihood, Gaussian) else error


def _errors(posterior: IBNN, outputs: Tensor, y: Tensor) -> tuple[Tensor, int]:
    """Summed errors of each function [n], and over how many answers: wrong ones, or squares of differences."""
    likelihood = posterior.likelihood
    if isinstance(likelihood, Categorical):
        y = likelihood.labels(y)
        seen = y != likelihood.ignore
        off = ((likelihood.by_class(outputs).argmax(2) != y) & seen).double()
        return off.reshape(len(off), -1).sum(1), int(seen.sum())
    if isinstance(likelihood, Bernoulli):
        off = ((outputs > 0) != (y.reshape(outputs.shape[1:]) > 0.5)).double()
    elif isinstance(likelihood, Gaussian):
        mean = likelihood.moments(outputs)[0]
        off = (mean.double() - y.reshape(mean.shape[1:]).double()).square()
    else:
        raise Error(f"No error is known for the likelihood {type(likelihood).__name__}.")
    return off.reshape(len(off), -1).sum(1), off[0].numel()
