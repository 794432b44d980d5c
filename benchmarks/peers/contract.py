"""What a file of contenders holds. Without torch, so that it can be read anywhere."""

from collections.abc import Callable
from typing import Any, NamedTuple

PLAIN = "plain network"
MEAN_FIELD = "Gaussian weights"
DROPOUT = "MC dropout"
ENSEMBLE = "ensembles"
SHARING = "ensembles that share weights"
LAST_LAYER = "a Gaussian last layer"
WEIGHTS = "correlated weights"
NODES = "noise on the inputs of layers"


class Calls(NamedTuple):
    """What is measured of a contender, each as a function of nothing; None where there is no such thing.

    Args:
        fresh: a prediction with draws made in the call.
        step: a training step: forward, loss with its divergence, backward, SGD.
        once: a prediction with draws that were made before.
    """

    fresh: Callable[[], Any]
    step: Callable[[], Any] | None = None
    once: Callable[[], Any] | None = None


class Contender(NamedTuple):
    """A method, and how to make its calls."""

    method: str
    make: Callable[[], Calls]


class Library(NamedTuple):
    """A library: what to install, and what to import.

    Args:
        name: of the package.
        version: None for what is installed already.
        imports: the modules that are used.
        needs: requirements that may be missing, by the module that shows it.
        stubs: source of modules that stand in for ones that cannot be installed, by path.
        note: what a reader of the result must know.
    """

    name: str
    version: str | None
    imports: tuple[str, ...]
    needs: dict[str, str] = {}  # noqa: RUF012
    stubs: dict[str, str] = {}  # noqa: RUF012
    note: str = ""
