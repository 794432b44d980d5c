"""Detection: does uncertainty rise where the data end?"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posterity.errors import Error
from posterity.evaluation.positions import class_count, confidence_of, is_regression, per_datum, uncertainty


class Detection(NamedTuple):
    """How well one score tells data from outside, which should score high, from data inside."""

    auroc: float
    """Area under the ROC curve; ½ is no better than a coin."""
    aupr: float
    """Average precision, with outside as what is sought; no better than the share of outside data by chance."""
    fpr95: float
    """The share of inside data mistaken for outside where 95 % of the outside data are found; lower is better."""


def auroc(inside: Tensor, outside: Tensor) -> float:
    """The chance that a datum from outside scores higher than one from inside; ties count half.

    P(outside > inside) + ½ P(outside = inside): the area under the ROC curve, by ranks (Mann and
    Whitney, 1947). 1 separates perfectly, ½ is no better than a coin.

    Args:
        inside: scores, such as `prediction.epistemic`, of data like those trained on, any shape
        outside: the same score of other data, any shape

    Example:
        >>> import torch
        >>> from posterity.evaluation import auroc
        >>> auroc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0.35, 0.9]))  # 7 of 8 pairs are in order
        0.875
    """
    return float(placements(inside, outside).mean())


def placements(inside: Tensor, outside: Tensor) -> Tensor:
    """The share of the inside scores that each score from outside exceeds, ties counting half; [outside], float64.

    Args:
        inside: scores of data like those trained on, any shape
        outside: the same score of other data, any shape
    """
    inside, outside = _ranked(inside, outside)
    ordered = inside.sort().values
    below = torch.searchsorted(ordered, outside, side="left")
    not_above = torch.searchsorted(ordered, outside, side="right")
    return (below + not_above).double() / (2 * len(inside))


def aupr(inside: Tensor, outside: Tensor) -> float:
    """Average precision with outside as what is sought: Σ_t (recall_t − recall_{t−1}) · precision_t.

    t runs over the distinct scores from the highest down; data of equal score are found together. With the inside as
    what is sought: `aupr(-outside, -inside)`.

    Args:
        inside: scores of data like those trained on, any shape
        outside: the same score of other data, any shape
    """
    false, true = _found(*_ranked(inside, outside))
    gained = torch.diff(true, prepend=true.new_zeros(1))
    return float((gained * true / (true + false)).sum() / true[-1])


def fpr_at(inside: Tensor, outside: Tensor, tpr: float = 0.95) -> float:
    """The lowest share of inside data at or above a threshold that finds at least `tpr` of the outside data.

    Outside is what is sought (Hendrycks et al., 2019). Others seek the inside (Liang et al., 2018): that is
    `fpr_at(-outside, -inside)`.

    Args:
        inside: scores of data like those trained on, any shape
        outside: the same score of other data, any shape
        tpr: the share of outside data to find, in (0, 1]
    """
    if not 0 < tpr <= 1:
        raise Error(f"The true positive rate is a share above 0 and up to 1; got {tpr}.")
    false, true = _found(*_ranked(inside, outside))
    enough = true >= tpr * true[-1] * (1 - 1e-12)
    return float(false[enough][0] / false[-1])


def energy(outputs: Tensor) -> Tensor:
    """−log Σ_c exp(logit_c), high where a network knows little (Liu et al., 2020); the class axis is summed out.

    Args:
        outputs: logits [batch, classes, ...]
    """
    if outputs.dim() < 2:
        raise Error(f"Energies need logits [batch, classes, ...]; got shape {tuple(outputs.shape)}.")
    return -outputs.double().logsumexp(dim=1)


def detect(
    inside: Any, outside: Any, outputs: tuple[Tensor, Tensor] | None = None, *, positions: bool = False
) -> dict[str, Detection]:
    """How well each part of the uncertainty tells data from outside from those inside.

    Keys: `total`, `epistemic`, `aleatoric`; for classes also `confidence` (1 − the likeliest class's probability),
    and `energy` where `outputs` are given.

    Args:
        inside: the prediction of data like those trained on
        outside: the prediction of other data
        outputs: logits of the inside and of the outside data, [batch, classes, ...] each, or
            [draws, batch, classes, ...], whose energies are averaged over draws
        positions: rank pixels, tokens or labels on their own rather than a datum by the mean of what it holds

    Example:
        >>> import torch
        >>> from posterity import Prediction, evaluation
        >>> sure, unsure = torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([[0.6, 0.4], [0.5, 0.5]])
        >>> inside, outside = (Prediction.from_probs(p) for p in (sure, unsure))
        >>> found = evaluation.detect(inside, outside)
        >>> list(found), found["total"].auroc
        (['total', 'epistemic', 'aleatoric', 'confidence'], 1.0)
    """
    if is_regression(inside) != is_regression(outside):
        raise Error("One prediction is of classes and the other of real numbers: they cannot be compared.")
    pairs = {
        part: (uncertainty(inside, part), uncertainty(outside, part)) for part in ("total", "epistemic", "aleatoric")
    }
    if not is_regression(inside):
        pairs["confidence"] = 1 - confidence_of(inside), 1 - confidence_of(outside)
    if outputs is not None:
        pairs["energy"] = _energy(outputs[0], inside), _energy(outputs[1], outside)
    shape = (lambda values: values) if positions else per_datum
    return {name: _detection(*map(shape, pair)) for name, pair in pairs.items()}


def _detection(inside: Tensor, outside: Tensor) -> Detection:
    return Detection(auroc(inside, outside), aupr(inside, outside), fpr_at(inside, outside))


def _energy(outputs: Tensor, prediction: Any) -> Tensor:
    if is_regression(prediction) or not hasattr(prediction, "log_probs"):
        raise Error("Energies are those of class logits; this prediction is not of one class among several.")
    shape = prediction.log_probs.shape
    if outputs.shape == shape:
        return energy(outputs)
    if outputs.shape[1:] == shape and len(outputs):
        return torch.stack([energy(draw) for draw in outputs]).mean(dim=0)
    raise Error(f"Logits of shape {tuple(outputs.shape)} do not fit a prediction of shape {tuple(shape)}.")


def entropy_auc(prediction: Any) -> float:
    """The area under the distribution function of the predictive entropy, over [0, 1] after division by log C.

    ∫ P(H/log C ≤ t) dt = 1 − E[H]/log C: near 1 for sure predictions, so high is good inside the data and low is good
    outside (Louizos and Welling, 2017, plot the curve; Pawlowski et al., 2017, report the area).

    Args:
        prediction: of C classes, or of yes and no
    """
    if is_regression(prediction):
        raise Error("Only a prediction of classes has a highest entropy to divide by; this one is of real numbers.")
    return 1 - float(prediction.total.double().mean()) / math.log(class_count(prediction))


def entropy_cdf(prediction: Any, points: Tensor) -> Tensor:
    """The share of predictions whose entropy over log C is at most each point; [points].

    Args:
        prediction: of C classes, or of yes and no
        points: [points], each between 0 and 1
    """
    shares = prediction.total.double().flatten() / math.log(class_count(prediction))
    ordered = shares.clamp(max=1.0).sort().values  # which rounding may pass
    return torch.searchsorted(ordered, points.to(ordered), right=True).double() / len(ordered)


def _ranked(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    inside, outside = inside.flatten().double(), outside.flatten().double()
    if not len(inside) or not len(outside):
        raise Error("Detection needs at least one score from inside the data and one from outside.")
    if torch.isnan(inside).any() or torch.isnan(outside).any():
        raise Error("Detection cannot rank scores that are not numbers (NaN): did training diverge?")
    return inside, outside


def _found(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """How many of each are at or above every distinct score, from the highest down; [scores] each, float64."""
    values, group = torch.unique(torch.cat([inside, outside]), return_inverse=True)
    counts = (torch.bincount(part, minlength=len(values)) for part in group.split([len(inside), len(outside)]))
    false, true = (count.flip(0).cumsum(0).double() for count in counts)
    return false, true
