"""VBLL: https://github.com/VectorInstitute/vbll."""

from torch import Tensor

from benchmarks.peers.contract import LAST_LAYER, Calls, Contender, Library
from benchmarks.peers.task import DATA, DRAWS, SIZES, batch, network, predicts, sgd

LIBRARY = Library(
    "vbll",
    "0.4.9",
    ("vbll",),
    note='with `parameterization="diagonal"`; its default, "dense", is left out: a call takes seconds',
)


def head() -> Calls:
    """`DiscClassification` in place of the last layer; its draws are of outputs, for every row by itself."""
    import vbll

    (x, y), net = batch(), network()
    body, last = net[:-1], vbll.DiscClassification(SIZES[-2], SIZES[-1], 1 / DATA, parameterization="diagonal")
    net[-1] = last

    def loss() -> Tensor:
        return net(x).train_loss_fn(y)

    return Calls(predicts(net, lambda: last.predictive(body(x), n_samples=DRAWS)), sgd(net, loss))


CONTENDERS = {"DiscClassification": Contender(LAST_LAYER, head)}
