"""Selection: how good are the answers that remain when the most uncertain are withheld?"""

import torch
from torch import Tensor

from posterity.errors import Error


def selective_mean(loss: Tensor, uncertainty: Tensor, fractions: Tensor) -> Tensor:
    """The mean loss of the most certain fraction of the data, for each fraction; [fractions].

    A fraction f keeps the ⌈f·batch⌉ data with the lowest uncertainty, and at least one. With 0/1 losses this
    is the risk-coverage curve (El-Yaniv and Wiener, 2010). Data of equal uncertainty count with their mean loss,
    so that their order means nothing and a constant uncertainty gives a flat line.

    Args:
        loss: [batch]
        uncertainty: [batch]
        fractions: [fractions], each in (0, 1]
    """
    curve = risk_curve(loss, uncertainty)
    # Less a hair, so that 0.3 · 10, which is 3.0000001 in floats, keeps three and not four.
    kept = torch.ceil(fractions.double() * len(loss) * (1 - 1e-6)).long().clamp(1, len(loss))
    return curve[kept.to(curve.device) - 1]


def risk_curve(loss: Tensor, uncertainty: Tensor) -> Tensor:
    """The mean loss of the k most certain data for k = 1, …, batch; [batch].

    Args:
        loss: [batch]
        uncertainty: [batch]
    """
    if not len(loss):
        raise Error("Selection needs at least one datum.")
    if loss.dim() != 1 or loss.shape != uncertainty.shape:
        raise Error(
            f"Losses of shape {tuple(loss.shape)} and uncertainties of shape {tuple(uncertainty.shape)} do not fit: "
            "one of each per datum is needed."
        )
    return shared_within_ties(loss, uncertainty).cumsum(dim=0) / torch.arange(1, len(loss) + 1, device=loss.device)


def risk_at(loss: Tensor, uncertainty: Tensor, coverage: float) -> float:
    """The mean loss of the most certain `coverage` of the data.

    Args:
        loss: [batch]
        uncertainty: [batch]
        coverage: the share to keep, in (0, 1]
    """
    if not 0 < coverage <= 1:
        raise Error(f"Coverage is a share above 0 and up to 1; got {coverage}.")
    return float(selective_mean(loss, uncertainty, torch.tensor([coverage])))


def aurc(loss: Tensor, uncertainty: Tensor) -> float:
    """The area under the risk-coverage curve: the mean over k of the mean loss of the k most certain data.

    (1/n) Σ_k (1/k) Σ_{i ≤ k} loss_(i), sorted by uncertainty (Geifman et al., 2019). Lower is better. Among data of
    equal uncertainty it is the expectation over their order.

    Args:
        loss: [batch], such as 1 for a wrong answer and 0 for a right one
        uncertainty: [batch]

    Example:
        >>> import torch
        >>> from posterity.evaluation import aurc
        >>> wrong = torch.tensor([0.0, 0.0, 1.0, 1.0])
        >>> round(aurc(wrong, torch.tensor([0.1, 0.2, 0.3, 0.4])), 4)  # (0 + 0 + 1/3 + 2/4) / 4
        0.2083
        >>> aurc(wrong, torch.ones(4))  # an uncertainty that says nothing
        0.5
    """
    return float(risk_curve(loss, uncertainty).mean())


def excess_aurc(loss: Tensor, uncertainty: Tensor) -> float:
    """E-AURC: the AURC less that of the best order, by the loss itself (Geifman et al., 2019); 0 is best.

    Args:
        loss: [batch]
        uncertainty: [batch]
    """
    return float((risk_curve(loss, uncertainty) - risk_curve(loss, loss)).mean())


def augrc(loss: Tensor, uncertainty: Tensor) -> float:
    """The area under the generalised risk-coverage curve: (1/n) Σ_k (1/n) Σ_{i ≤ k} loss_(i) (Traub et al., 2024).

    The generalised risk is the chance of an answer that is both given and wrong. Lower is better.

    Args:
        loss: [batch]
        uncertainty: [batch]
    """
    coverage = torch.arange(1, len(loss) + 1, device=loss.device) / max(len(loss), 1)
    return float((risk_curve(loss, uncertainty) * coverage).mean())


def ause(loss: Tensor, uncertainty: Tensor, root: bool = False) -> float:
    """The area under the sparsification error (Ilg et al., 2018): 0 where uncertainty ranks data as their losses do.

    The mean over k of the mean loss of the k most certain data, less that of the k data of lowest loss, over the mean
    loss of all.

    Args:
        loss: [batch], such as squared or absolute errors
        uncertainty: [batch]
        root: compare roots of the mean losses: with squared errors, the RMSE
    """
    curve, best = risk_curve(loss, uncertainty), risk_curve(loss, loss)
    if root:
        curve, best = curve.sqrt(), best.sqrt()
    return float((curve - best).mean() / curve[-1]) if curve[-1] > 0 else 0.0


def shared_within_ties(loss: Tensor, uncertainty: Tensor) -> Tensor:
    """Losses sorted by uncertainty, those of equal uncertainty replaced by their mean; [batch], float64."""
    if bool(uncertainty.isnan().any()):
        raise Error("Uncertainties that are not numbers (NaN) have no order: did training diverge?")
    _, group, counts = torch.unique(uncertainty, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(counts), dtype=torch.float64, device=loss.device).index_add(0, group, loss.double())
    return (sums / counts).repeat_interleave(counts)
