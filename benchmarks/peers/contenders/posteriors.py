"""posteriors: https://github.com/normal-computing/posteriors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn import functional as F

from benchmarks.peers.contract import MEAN_FIELD, Calls, Contender, Library
from benchmarks.peers.task import DATA, DRAWS, batch, network

LIBRARY = Library(
    "posteriors",
    "0.1.3",
    ("posteriors",),
    needs={
        "torchopt": "torchopt",
        "graphviz": "graphviz",
        "optree": "optree>=0.17",
        "tensordict": "tensordict",
        "pyvers": "pyvers",
        "cloudpickle": "cloudpickle",
        "orjson": "orjson",
    },
)


def diagonal(together: bool) -> Callable[[], Calls]:
    """`vi.diag` with torchopt's SGD; the drawn networks run together under vmap, or one by one."""

    def make() -> Calls:
        import posteriors
        import torchopt

        (x, y), net = batch(), network().eval()

        def log_posterior(parameters: Any, rows: Any) -> tuple[Tensor, Tensor]:
            inputs, answers = rows
            outputs = functional_call(net, parameters, inputs)
            prior = posteriors.diag_normal_log_prob(parameters)
            return -F.cross_entropy(outputs, answers) + prior / DATA, outputs

        transform = posteriors.vi.diag.build(
            log_posterior, torchopt.sgd(lr=1e-3), temperature=1 / DATA, init_log_sds=-3.0
        )
        state = transform.init({name: p.detach() for name, p in net.named_parameters()})
        sample = lambda: posteriors.vi.diag.sample(state, torch.Size([DRAWS]))  # noqa: E731
        drawn = sample()

        def step() -> None:
            nonlocal state
            state, _ = transform.update(state, (x, y))

        @torch.no_grad()
        def predict(parameters: Any) -> Tensor:
            if together:
                return vmap(lambda one: functional_call(net, one, x))(parameters)
            return torch.stack(
                [functional_call(net, {k: v[i] for k, v in parameters.items()}, x) for i in range(DRAWS)]
            )

        return Calls(lambda: predict(sample()), step, lambda: predict(drawn))

    return make


CONTENDERS = {
    "vi.diag, vmap": Contender(MEAN_FIELD, diagonal(together=True)),
    "vi.diag, one by one": Contender(MEAN_FIELD, diagonal(together=False)),
}
