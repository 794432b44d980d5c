"""Networks that conversions of peer libraries break or leave certain in silence, for every method."""

import pytest
import torch
from torch import nn

import posterity
from common import generator, seeded
from zoo import ZOO, Tied, numbers, tokens

METHODS = posterity.methods()


class Apart(Tied):
    """By how much the two names of the tied weight differ."""

    def forward(self, x):
        return super().forward(x) * 0 + (self.embed.weight - self.head.weight).abs().sum()


class Pair(nn.Module):
    """Gives more than its answer, as recurrent layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x), x


NETWORKS = ZOO | {"pair": (Pair, numbers(3))}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("name", METHODS)
def test_what_is_said_to_be_uncertain_varies_and_nothing_else_does(name, kind):
    make, inputs = NETWORKS[kind]
    x = inputs()
    try:
        posterior = METHODS[name](seeded(make), seed=0)
    except posterity.Error as error:
        assert "this network has none" in str(error)  # noqa: PT017
        return
    posterior(x)
    functions, description = posterior.draw(6, generator()), posterior.describe()
    outputs = functions(x)
    assert bool(outputs.isfinite().all())
    assert bool((outputs.std(0) > 1e-6).any()) == bool(description.uncertain)
    parameters = {key for key, _ in posterior.network.named_parameters()}
    drawn = {key: getattr(functions, f"weight{index}") for index, key in enumerate(functions.keys)}
    if drawn:  # else noise or masks, which stand for several parameters at once
        constant = {entry.name for entry in description if "constant" in entry.reason}
        varied = {key for key, value in drawn.items() if bool((value != value[:1]).any())}
        assert set(description.uncertain) == parameters
        assert varied & parameters == parameters - constant


@pytest.mark.parametrize("name", METHODS)
def test_tied_weights_stay_one_weight_in_training_and_in_every_draw(name):
    posterior, x = METHODS[name](seeded(Apart), seed=0), tokens()
    assert not posterior(x).any()
    assert not posterior.draw(5, generator())(x).any()
    posterior = METHODS[name](seeded(Tied), seed=0)
    posterity.fit(posterior, (x, torch.arange(4)), epochs=3, lr=0.1, seed=0, progress=False)
    network = posterior.draw(1).network
    assert network.head.weight is network.embed.weight
