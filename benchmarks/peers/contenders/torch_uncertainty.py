"""TorchUncertainty: https://torch-uncertainty.github.io."""

from collections.abc import Callable

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from benchmarks.peers.contract import DROPOUT, ENSEMBLE, MEAN_FIELD, SHARING, Calls, Contender, Library
from benchmarks.peers.task import DATA, DRAWS, RATE, batch, cross_entropy, network, predicts, sgd

STUB = "def __getattr__(name):\n    return type(name, (), {})\n"
LIBRARY = Library(
    "torch-uncertainty",
    "0.13.0",
    ("torch_uncertainty.layers", "torch_uncertainty.methods", "torch_uncertainty.losses"),
    needs={
        "einops": "einops",
        "seaborn": "seaborn",
        "lightning": "lightning<2.7",
        "lightning_utilities": "lightning-utilities",
        "torchmetrics": "torchmetrics",
    },
    stubs={
        "torchvision/__init__.py": "",
        "torchvision/models/__init__.py": STUB,
        "torchvision/transforms/__init__.py": STUB,
        "torchvision/transforms/functional.py": STUB,
    },
    note="an empty module stands in for torchvision, which it imports at its start and nothing here uses",
)


def bayes_linear() -> Calls:
    """`BayesLinear` layers, `ELBOLoss`, and `StochasticModel`; `sample` gives weights for a plain network."""
    from torch_uncertainty.layers import BayesLinear
    from torch_uncertainty.losses import ELBOLoss
    from torch_uncertainty.methods import StochasticModel

    x, y = batch()
    model, plain = StochasticModel(network(linear=BayesLinear), DRAWS), network().eval()
    loss = ELBOLoss(model, nn.CrossEntropyLoss(), kl_weight=1 / DATA, num_samples=1)
    with torch.no_grad():
        states = model.sample(DRAWS)
    return Calls(
        fresh=predicts(model, lambda: model(x)),
        step=sgd(model, lambda: loss(x, y)),
        once=predicts(model, lambda: torch.stack([functional_call(plain, state, x) for state in states])),
    )


def dropout(on_batch: bool) -> Callable[[], Calls]:
    """`mc_dropout`, the draws in the batch or one by one."""

    def make() -> Calls:
        from torch_uncertainty.methods import mc_dropout

        x, y = batch()
        model = mc_dropout(network(RATE), DRAWS, on_batch=on_batch)
        return Calls(predicts(model, lambda: model(x)), sgd(model, cross_entropy(model, x, y)))

    return make


def deep_ensemble() -> Calls:
    """`deep_ensembles`, all members in a step; what is fresh and what is made once is the same."""
    from torch_uncertainty.methods import deep_ensembles

    x, y = batch()
    model = deep_ensembles(network(), num_estimators=DRAWS)
    predict, answers = predicts(model, lambda: model(x)), y.repeat(DRAWS)
    return Calls(predict, sgd(model, lambda: DRAWS * F.cross_entropy(model(x), answers)), predict)


def batch_ensemble() -> Calls:
    """`batch_ensemble`, in whose training step the members share the batch."""
    from torch_uncertainty.methods import batch_ensemble

    x, y = batch()
    model = batch_ensemble(network(), DRAWS, convert_layers=True)
    predict = predicts(model, lambda: model(x))
    return Calls(predict, sgd(model, cross_entropy(model, x, y)), predict)


CONTENDERS = {
    "BayesLinear": Contender(MEAN_FIELD, bayes_linear),
    "mc_dropout": Contender(DROPOUT, dropout(on_batch=True)),
    "mc_dropout, on_batch=False": Contender(DROPOUT, dropout(on_batch=False)),
    "deep_ensembles": Contender(ENSEMBLE, deep_ensemble),
    "batch_ensemble": Contender(SHARING, batch_ensemble),
}
