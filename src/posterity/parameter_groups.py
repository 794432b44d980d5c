"""A posterior's parameters by what moves alike in training: the groups, and how fast each goes."""

from typing import TYPE_CHECKING, NamedTuple

from torch import nn

if TYPE_CHECKING:
    from posterity.posterior import Posterior

#: `lr` where none is given.
LR = {"adam": 1e-3, "sgd": 0.05}
#: Largest norm of the gradient where SGD's rate is its default: the gradient grows with 1/σ as the noise σ is learned.
SGD_CLIP = 0.3
#: The likelihood's noise is one number that starts far from its value: at Adam's rate of the network it would lag
#: behind. SGD's steps are as long as its gradient, which is of the order of 1.
NOISE_RATE = {"adam": 10.0, "sgd": 1.0}
#: Rows for which a standard deviation that the divergence moves is as fast under SGD, whose gradient is 1/N, as under
#: Adam: `lr` times momentum over N is Adam's 1e-3.
SGD_ROWS = 500.0
#: Rates of a method's standard deviations, over those of their means, lie in between.
SLOWEST, FASTEST = 0.4, 10.0


class ParameterGroup(NamedTuple):
    """Parameters that share a learning rate."""

    name: str
    parameters: list[nn.Parameter]
    rate: float = 1.0
    """Over `lr`, under Adam and other optimisers whose steps do not follow the scale of the gradient."""
    sgd_rate: float = 1.0
    """Over `lr`, under SGD."""
    variational: bool = False
    """Whether it takes `lr_posterior` and `schedule_posterior` where they are given."""
    decay: bool = False
    """Whether weight decay applies."""
    untrained: bool = False
    """Whether the values mean nothing at first, though the network may be pretrained: they do not follow a low `lr`.

    With a rate of 0 they stay.
    """

    def learning_rate(self, lr: float, lr_posterior: float | None = None, sgd: bool = False) -> float:
        """The group's rate where the network's is `lr`."""
        if self.variational and lr_posterior is not None:
            return lr_posterior
        if sgd:
            return lr * self.sgd_rate
        return self.rate * (max(lr, LR["adam"]) if self.untrained and lr else lr)


def parameter_groups(posterior: "Posterior", size: int | None = None) -> list[ParameterGroup]:
    """The network's parameters, the likelihood's, and the method's own; see `Posterior.parameter_groups`."""
    own = {id(p): name for name, p in posterior.named_parameters()}
    variational = {own[id(p)]: p for p in posterior.variational()}
    noise = {own[id(p)]: p for p in posterior.likelihood.parameters()}
    rest = [p for name, p in posterior.named_parameters() if name not in variational and name not in noise]
    rates = posterior.own_rates(size)
    at_weights = {name: p for name, p in variational.items() if name in posterior.at_weights and name not in rates}
    others = [p for name, p in variational.items() if name not in rates and name not in at_weights]
    shared = posterior.relative_rate, posterior.sgd_rate, True
    found = [
        ParameterGroup("network", rest, decay=True),
        ParameterGroup("likelihood", list(noise.values()), NOISE_RATE["adam"], NOISE_RATE["sgd"], untrained=True),
        ParameterGroup("weights", list(at_weights.values()), *shared),
        ParameterGroup("posterior", others, *shared, untrained=True),
    ]
    for name, rate in rates.items():
        sgd_rate = rate * (1.0 if size is None else size / SGD_ROWS)
        found.append(ParameterGroup(name, [variational[name]], rate, sgd_rate, True, untrained=True))
    trained = (group._replace(parameters=[p for p in group.parameters if p.requires_grad]) for group in found)
    return [group for group in trained if group.parameters]


def rate_of_stds(size: int | None, weights: int, fastest: float = FASTEST) -> float:
    """The rate of weights' standard deviations over that of their means: rows per weight, from 0.4 to 10.

    With more rows than weights the optimum of the bound is near, and worth going to. With more weights than rows it is
    a posterior that has given most of its weights up to the prior: on tables and digits it predicts worse than one
    whose standard deviations have stayed near their start.
    """
    return min(fastest, max(SLOWEST, (weights if size is None else size) / weights))
