"""posterity itself, and the plain network in plain torch."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.peers.contract import DROPOUT, ENSEMBLE, MEAN_FIELD, NODES, PLAIN, WEIGHTS, Calls, Contender, Library
from benchmarks.peers.task import DATA, DRAWS, RATE, batch, cross_entropy, network, predicts, repeated, sgd

LIBRARY = Library("posterity", None, ("posterity",))


def plain() -> Calls:
    """As many passes as draws."""
    (x, y), net = batch(), network()
    return Calls(repeated(net, x), sgd(net, cross_entropy(net, x, y)))


def method(name: str, *, dropout: float = 0.0, **arguments: Any) -> Callable[[], Calls]:
    """A method by its class's name, with its defaults."""

    def make() -> Calls:
        import posterity

        x, y = batch()
        posterior = getattr(posterity, name)(network(dropout), seed=0, **arguments)
        with torch.no_grad():
            functions = posterior.draw(DRAWS)
        return Calls(
            fresh=predicts(posterior, lambda: posterior.draw(DRAWS)(x)),
            step=sgd(posterior, lambda: posterior.loss(x, y, size=DATA)),
            once=predicts(posterior, lambda: functions(x)),
        )

    return make


CONTENDERS = {
    "torch": Contender(PLAIN, plain),
    "MAP": Contender(PLAIN, method("MAP")),
    "MCDropout": Contender(DROPOUT, method("MCDropout", dropout=RATE)),
    "BayesByBackprop": Contender(MEAN_FIELD, method("BayesByBackprop")),
    "BayesByBackprop, estimator=weights": Contender(MEAN_FIELD, method("BayesByBackprop", estimator="weights")),
    "DeepEnsemble": Contender(ENSEMBLE, method("DeepEnsemble", members=DRAWS)),
    "MNF": Contender(WEIGHTS, method("MNF")),
    "BayesByHypernet": Contender(WEIGHTS, method("BayesByHypernet")),
    "LIVI": Contender(WEIGHTS, method("LIVI")),
    "IBNN": Contender(NODES, method("IBNN")),
}
