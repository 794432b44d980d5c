"""bayesian-torch: https://github.com/IntelLabs/bayesian-torch."""

from collections.abc import Callable

from torch.nn import functional as F

from benchmarks.peers.contract import MEAN_FIELD, Calls, Contender, Library
from benchmarks.peers.task import ROWS, batch, network, repeated, sgd

LIBRARY = Library("bayesian-torch", "0.5.0", ("bayesian_torch.models.dnn_to_bnn",))
PRIOR = {
    "prior_mu": 0.0,
    "prior_sigma": 1.0,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "moped_enable": False,
    "moped_delta": 0.5,
}


def converted(kind: str) -> Callable[[], Calls]:
    """`dnn_to_bnn` and `get_kl_loss`, as its README trains and tests."""

    def make() -> Calls:
        from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

        (x, y), net = batch(), network()
        dnn_to_bnn(net, {**PRIOR, "type": kind})
        return Calls(repeated(net, x), sgd(net, lambda: F.cross_entropy(net(x), y) + get_kl_loss(net) / ROWS))

    return make


CONTENDERS = {
    "Reparameterization": Contender(MEAN_FIELD, converted("Reparameterization")),
    "Flipout": Contender(MEAN_FIELD, converted("Flipout")),
}
