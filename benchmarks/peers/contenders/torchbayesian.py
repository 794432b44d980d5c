"""torchbayesian: https://github.com/raphbrodeur/torchbayesian."""

from torch.nn import functional as F

from benchmarks.peers.contract import DROPOUT, MEAN_FIELD, Calls, Contender, Library
from benchmarks.peers.task import DATA, DRAWS, RATE, batch, cross_entropy, network, predicts, repeated, sgd

LIBRARY = Library("torchbayesian", "0.2.1", ("torchbayesian.bnn", "torchbayesian.bnn.utils"))


def bayesian_module() -> Calls:
    """`BayesianModule` around the network, and its `kl_divergence`."""
    from torchbayesian import bnn

    x, y = batch()
    net = bnn.BayesianModule(network())
    return Calls(repeated(net, x), sgd(net, lambda: F.cross_entropy(net(x), y) + net.kl_divergence() / DATA))


def dropout() -> Calls:
    """`enable_mc_dropout` on a network with dropout, in evaluation mode."""
    import torch
    from torchbayesian.bnn.utils import enable_mc_dropout

    (x, y), net = batch(), network(RATE)

    def passes() -> torch.Tensor:
        enable_mc_dropout(net)
        return torch.stack([net(x) for _ in range(DRAWS)])

    return Calls(predicts(net, passes), sgd(net, cross_entropy(net, x, y)))


CONTENDERS = {
    "BayesianModule": Contender(MEAN_FIELD, bayesian_module),
    "enable_mc_dropout": Contender(DROPOUT, dropout),
}
