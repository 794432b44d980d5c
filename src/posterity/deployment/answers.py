"""What a file computes: fixed functions and all that follows them, as one module."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from posterity.functions import Functions
from posterity.likelihoods import Likelihood
from posterity.prediction import PARTS, GaussianPrediction, kind


class Answers(nn.Module):
    """Rows in, answers out by name, each `[batch, ...]`: the library's own `Prediction` of all functions at once.

    Args:
        functions: what was drawn.
        likelihood: turns their outputs into predictions.
        units: mean and standard deviation of a target that was standardised; answers are then in its own units.

    `encode`, where it is set, turns raw rows into the network's inputs.
    """

    def __init__(self, functions: Functions, likelihood: Likelihood, units: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.functions, self.likelihood = functions, likelihood
        self.encode: Any = None
        self.kind = kind(likelihood)
        regression = issubclass(self.kind, GaussianPrediction)
        self.units = units if regression else None
        self.names = (("mean", "std") if regression else ("probs",)) + PARTS

    def forward(self, x: Any) -> dict[str, Tensor]:
        """`probs`, or `mean` and `std`, then `total`, `aleatoric` and `epistemic`, of raw rows if they are encoded."""
        return self.predict(x if self.encode is None else self.encode(x))

    def predict(self, x: Any) -> dict[str, Tensor]:
        """The same, of what the network takes."""
        prediction: Any = self.kind.gather([self.functions(x)], self.likelihood)
        if self.units is not None:
            prediction = prediction.rescale(*self.units)
        return {name: getattr(prediction, name) for name in self.names}


def named(x: Any, name: str = "input") -> dict[str, Tensor]:
    """The tensors of x by the names that they have in a file: `input`; `input0`, `input1`, …; or a mapping's keys."""
    if isinstance(x, Tensor):
        return {name: x}
    if isinstance(x, Mapping):
        parts = [named(value, str(key)) for key, value in x.items()]
    else:
        parts = [named(value, f"{name}{i}") for i, value in enumerate(x)] if isinstance(x, tuple) else []
    return {key: value for part in parts for key, value in part.items()}
