"""BLiTZ: https://github.com/piEsposito/blitz-bayesian-deep-learning."""

from typing import Any

from torch import Tensor, nn

from benchmarks.peers.contract import MEAN_FIELD, Calls, Contender, Library
from benchmarks.peers.task import DATA, batch, network, repeated, sgd

LIBRARY = Library("blitz-bayesian-pytorch", "0.2.8", ("blitz.modules", "blitz.utils"))


def bayesian_linear() -> Calls:
    """`BayesianLinear` layers and `sample_elbo`, as its README trains and tests."""
    from blitz.modules import BayesianLinear
    from blitz.utils import variational_estimator

    @variational_estimator
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network(linear=BayesianLinear)

        def forward(self, x: Tensor) -> Any:
            return self.layers(x)

    x, y = batch()
    net: Any = Network()
    criterion = nn.CrossEntropyLoss()

    def loss() -> Tensor:
        return net.sample_elbo(x, y, criterion, sample_nbr=1, complexity_cost_weight=1 / DATA)

    return Calls(repeated(net, x), sgd(net, loss))


CONTENDERS = {"BayesianLinear": Contender(MEAN_FIELD, bayesian_linear)}
