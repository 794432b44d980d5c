"""laplace-torch: https://github.com/aleximmer/Laplace."""

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.contract import LAST_LAYER, Calls, Contender, Library
from benchmarks.peers.task import DRAWS, ROWS, batch, network

LIBRARY = Library(
    "laplace-torch",
    "0.3",
    ("laplace",),
    needs={
        "torchmetrics": "torchmetrics",
        "lightning_utilities": "lightning-utilities",
        "curvlinops": "curvlinops-for-pytorch>=3.0.1",
        "backpack": "backpack-for-pytorch",
        "asdl": "asdfghjkl==0.1a4",
        "opt_einsum": "opt-einsum",
        "einops": "einops",
        "einconv": "einconv",
        "unfoldNd": "unfoldNd",
        "linear_operator": "linear-operator",
        "scipy": "scipy",
        "tqdm": "tqdm",
    },
    note="it is fitted to a trained network: there is no training step of its own",
)


def last_layer(kind: str) -> Callable[[], Calls]:
    """A Kronecker-factored last layer, sampled by weights ("nn") or by outputs of the linearised network ("glm")."""

    def make() -> Calls:
        from laplace import Laplace

        (x, y), net = batch(), network().eval()
        posterior: Any = Laplace(net, "classification", subset_of_weights="last_layer", hessian_structure="kron")
        posterior.fit(DataLoader(TensorDataset(x, y), batch_size=ROWS))
        return Calls(lambda: posterior.predictive_samples(x, pred_type=kind, n_samples=DRAWS))

    return make


CONTENDERS = {
    "last layer, nn": Contender(LAST_LAYER, last_layer("nn")),
    "last layer, glm": Contender(LAST_LAYER, last_layer("glm")),
}
