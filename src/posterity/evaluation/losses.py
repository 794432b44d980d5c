"""What each datum adds to a score: the evidence for a difference between two predictions of the same data."""

from typing import Any

from torch import Tensor

from posterity.evaluation.intervals import interval_score
from posterity.evaluation.positions import is_regression, observed, per_datum, targets
from posterity.evaluation.scaling import calibrated_surprises
from posterity.evaluation.scores import crps, squared_distances, surprises


def losses(prediction: Any, y: Tensor) -> dict[str, Tensor]:
    """Of every score that is a mean over data, what each datum adds to it; lower is better.

    Classification: `error`, `nll`, `brier` and, of two data or more, `nll_calibrated`; but for `nll`, what has several
    answers a datum has a loss for each that is observed. Regression: `rmse` (the squares under its root), `nll`, `crps`
    and `interval_score90`.

    Two predictions of the same data differ by the mean of the differences between their losses, with a standard error
    of their standard deviation over √n. That is far less than the standard errors of both scores suggest: a hard datum
    is hard for both. It takes n independent losses, one of each datum: those of the positions of one image or sequence
    are dependent, so take `nll`, or the mean over each datum, there.

    Args:
        prediction: what `posterity.predict` returns
        y: the true targets: class indices [batch, ...] or numbers [batch, outputs]

    Example:
        >>> import torch
        >>> from posterity import Prediction, evaluation
        >>> prediction = Prediction.from_probs(torch.tensor([[0.9, 0.1]] * 4))
        >>> evaluation.losses(prediction, torch.tensor([0, 0, 0, 1]))["error"].tolist()
        [0.0, 0.0, 0.0, 1.0]
    """
    y = targets(prediction, y)
    if is_regression(prediction):
        low, high = prediction.interval(0.9)
        return {
            "rmse": per_datum((prediction.mean.double() - y).square()),
            "nll": surprises(prediction, y),
            "crps": per_datum(crps(prediction.means, prediction.variances, y)),
            "interval_score90": per_datum(interval_score(low, high, y, 0.9)),
        }
    seen = observed(prediction, y)
    found = {"error": seen.wrong, "nll": surprises(prediction, y), "brier": squared_distances(seen.probs, seen.y)}
    return found | ({"nll_calibrated": calibrated_surprises(prediction, y)} if len(prediction) > 1 else {})
