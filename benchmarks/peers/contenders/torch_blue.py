"""torch_blue: https://github.com/RAI-SCC/torch_blue."""

from typing import Any

from benchmarks.peers.contract import MEAN_FIELD, Calls, Contender, Library
from benchmarks.peers.task import DATA, DRAWS, batch, network, predicts, sgd

LIBRARY = Library("torch_blue", "1.1.0", ("torch_blue.vi", "torch_blue.vi.distributions"))


def converted() -> Calls:
    """`convert_to_vimodule` and `KullbackLeiblerLoss`; a prediction needs no log-probabilities of the weights."""
    from torch_blue.vi import KullbackLeiblerLoss, convert_to_vimodule
    from torch_blue.vi.distributions import Categorical

    x, y = batch()
    net: Any = network()
    convert_to_vimodule(net)
    criterion = KullbackLeiblerLoss(Categorical(), dataset_size=DATA)

    def with_log_probs(wanted: bool) -> None:
        if net.return_log_probs != wanted:
            net.return_log_probs = wanted

    def loss() -> Any:
        with_log_probs(True)
        return criterion(net(x, samples=1), y) / DATA

    def predict() -> Any:
        with_log_probs(False)
        return net(x, samples=DRAWS)

    return Calls(predicts(net, predict), sgd(net, loss))


CONTENDERS = {"convert_to_vimodule": Contender(MEAN_FIELD, converted)}
