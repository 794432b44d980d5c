"""The course of a training run."""

from typing import TYPE_CHECKING, Any

from posterity.errors import Error
from posterity.history import History
from posterity.report.canvas import described

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def training(history: Any) -> "Figure":
    """The two terms of the loss over epochs: `History.plot` with a description.

    Args:
        history: what `posterity.fit` returns
    """
    if not isinstance(history, History):
        raise Error(f"Training curves need the History that posterity.fit returns; got {type(history).__name__}.")
    if not history:
        raise Error("The history has no epochs: there is nothing to plot.")
    first, last = history[0], history[-1]
    kept = "" if history.best is None else f"The parameters of epoch {history.best:g} were kept."
    figure: Figure = history.plot()
    return described(
        figure,
        f"Training over {len(history)} epochs: the negative log-likelihood per datum goes from {first['nll']:.3g} to",
        f"{last['nll']:.3g} nats, the divergence from {first['divergence']:.3g} to {last['divergence']:.3g} nats.",
        kept,
    )
