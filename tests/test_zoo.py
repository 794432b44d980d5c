"""Every method on twelve kinds of networks: nothing is skipped in silence, and ties are kept."""

import pytest
import torch

import posterity
from common import generator, seeded
from zoo import ZOO, Tied, tokens

METHODS = posterity.methods()


@pytest.mark.parametrize("network", ZOO)
@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_is_reported_with_a_reason_and_the_network_trains_and_draws(name, network):
    make, inputs = ZOO[network]
    template, x = seeded(make), inputs()
    parameters = [key for key, _ in template.named_parameters()]
    try:
        posterior = METHODS[name](template, seed=0).train()
    except posterity.Error:  # a refusal names what the method needs
        with pytest.raises(posterity.Error, match="this network has none"):
            METHODS[name](template, seed=0)
        return
    outputs = posterior(x, generator())
    outputs.square().sum().backward()
    assert bool(outputs.isfinite().all())
    with torch.no_grad():
        drawn = posterior.draw(3, generator())(x)
    assert drawn.shape[1:] == outputs.shape[1:]
    description = posterior.describe()
    reported = {entry.name: entry for entry in description}
    assert set(parameters) <= set(reported), set(parameters) - set(reported)
    assert all(entry.reason for entry in description)
    differ = len(drawn) > 1 and bool((drawn.std(0) > 0).any())
    assert differ == bool(description.uncertain), str(description)


@pytest.mark.parametrize("name", METHODS)
def test_tied_weights_stay_tied_in_training_and_in_draws(name):
    """The network is linear in its embedding and in its head: with one matrix W for both, f(token) = W[token] Wᵀ."""
    posterior = METHODS[name](seeded(Tied), seed=0)
    x = tokens()
    posterity.fit(posterior, (x, x[:, 0]), epochs=2, seed=0, lr=0.05, progress=False)
    assert posterior.network.head.weight is posterior.network.embed.weight
    functions = posterior.draw(4, generator())
    tables = [value for key, value in functions.named_buffers() if value.shape[-2:] == (10, 4)]
    singles = torch.arange(10).view(10, 1)
    outputs = functions(singles)
    if tables:
        torch.testing.assert_close(outputs, tables[0] @ tables[0].mT)
    else:
        assert functions.network.head.weight is functions.network.embed.weight
