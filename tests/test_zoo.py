"""Any network: nothing is skipped in silence, ties are kept, and docs/results/zoo.md says what the zoo shows."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import posterity
from common import generator, seeded
from zoo import ZOO, Recurrent, Tied, Transformer, numbers, tokens
from zoo_more import ZOO as MORE

METHODS = posterity.methods()
PARAMETRISATIONS = [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal]


@pytest.mark.parametrize("network", ZOO)
@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_is_reported_with_a_reason_and_the_network_trains_and_draws(name, network):
    make, inputs = ZOO[network]
    template, x = seeded(make), inputs()
    parameters = [key for key, _ in template.named_parameters()]
    posterior = METHODS[name](template, seed=0).train()
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


#: What a method cannot do it says.
REFUSED = {("dropout", "mixture of experts, chosen by value"): "calls dropout more often"}


@pytest.mark.parametrize("network", MORE)
@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("map", "ibnn", "bbb")])
def test_the_other_methods_train_and_draw_on_all_layers_of_torch(name, network):
    make, inputs = MORE[network]
    x = inputs()
    posterior = METHODS[name](seeded(make), seed=0).train()
    posterior(x, generator()).square().sum().backward()
    if (name, network) in REFUSED:
        with pytest.raises(posterity.Error, match=REFUSED[name, network]):
            posterior.eval().draw(3, generator())(x)
        return
    drawn = posterior.eval().draw(3, generator())(x)
    assert bool(drawn.isfinite().all())
    assert bool((drawn.std(0) > 0).any())


WHOLE = {
    "residual": MORE["residual network"],
    "gru": (lambda: Recurrent(nn.GRU), numbers(5, 3)),
    "transformer": (Transformer, numbers(5, 4)),
}


@pytest.mark.parametrize("network", WHOLE)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_converts_trains_draws_saves_loads_and_predicts_the_same(name, network, tmp_path):
    make, inputs = WHOLE[network]
    x, y = inputs(), torch.arange(4) % 2
    posterior = METHODS[name](seeded(make), seed=0)
    posterity.fit(posterior, (x, y), epochs=1, seed=0, device="cpu", progress=False)
    posterity.save(posterior, tmp_path)
    loaded = posterity.load(tmp_path, seeded(make, 1))
    torch.testing.assert_close(loaded.draw(3, generator())(x), posterior.draw(3, generator())(x))
    mine, yours = (posterity.predict(p, x, 4, generator()) for p in (posterior, loaded))
    torch.testing.assert_close(yours.probs, mine.probs)


@pytest.mark.parametrize("name", METHODS)
def test_tied_weights_stay_tied_in_training_and_in_draws(name, tmp_path):
    """The network is linear in its embedding and in its head: with one matrix W for both, f(token) = W[token] Wᵀ; also
    after it was saved and loaded."""
    posterior = METHODS[name](seeded(Tied), seed=0)
    x = tokens()
    posterity.fit(posterior, (x, x[:, 0]), epochs=2, seed=0, lr=0.05, device="cpu", progress=False)
    posterity.save(posterior, tmp_path)
    for one in (posterior, posterity.load(tmp_path, seeded(Tied, 1))):
        assert one.network.head.weight is one.network.embed.weight
        functions = one.draw(4, generator())
        tables = [value for key, value in functions.named_buffers() if value.shape[-2:] == (10, 4)]
        outputs = functions(torch.arange(10).view(10, 1))
        if tables:
            torch.testing.assert_close(outputs, tables[0] @ tables[0].mT)
        else:
            assert functions.network.head.weight is functions.network.embed.weight


@pytest.mark.parametrize("make", PARAMETRISATIONS)
@pytest.mark.parametrize("name", METHODS)
def test_parametrisations_hold_in_training_in_draws_and_through_a_folder(name, make, tmp_path):
    def network():
        return nn.Sequential(make(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 3))

    posterior = METHODS[name](seeded(network), seed=0)
    x, y = torch.randn(12, 4, generator=generator()), torch.arange(12) % 3
    posterity.fit(posterior, (x, y), epochs=2, seed=0, lr=0.05, device="cpu", progress=False)
    posterity.save(posterior, tmp_path)
    loaded = posterity.load(tmp_path, seeded(network, 1))
    torch.testing.assert_close(loaded.draw(4, generator())(x), posterior.draw(4, generator())(x), rtol=1e-4, atol=1e-5)
    assert type(loaded.network[0].parametrizations.weight[0]) is type(network()[0].parametrizations.weight[0])
    if make is parametrizations.orthogonal:
        functions, seen = loaded.draw(3, generator()), []
        functions.loops = True
        functions.network[0].register_forward_hook(lambda layer, args, out: seen.append(layer.weight.detach()))
        functions(x)
        for weight in seen:
            torch.testing.assert_close(weight @ weight.T, torch.eye(4), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_a_module_under_two_names_keeps_its_parameters(name):
    """torch's own functional call puts what was swapped in their place."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = self.b = nn.Linear(3, 3)

        def forward(self, x):
            return self.b(torch.tanh(self.a(x)))

    posterior = METHODS[name](seeded(Twice), seed=0)
    before = {key: value.clone() for key, value in posterior.network.state_dict().items()}
    posterior(torch.randn(4, 3))
    posterior.draw(2)(torch.randn(4, 3))
    assert all(torch.equal(value, before[key]) for key, value in posterior.network.state_dict().items())
    assert [key for key, _ in posterior.network.named_parameters()] == ["a.weight", "a.bias"]


zoo_page = pytest.importorskip("zoo_page", reason="transformers is not installed", exc_type=ImportError)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", zoo_page.ZOO)
def test_ibnn_and_bayes_by_backprop_take_it_and_the_page_says_what_they_do(name):
    pytest.importorskip("transformers")
    line, written = zoo_page.examine(name), zoo_page.PAGE.read_text()
    if zoo_page.versions() in written:
        assert line in written.splitlines()


def test_the_page_has_every_network_and_no_other():
    written = zoo_page.PAGE.read_text()
    lines = written.splitlines()
    table = [line for line in lines if line.startswith("| ")][1:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table] == list(zoo_page.ZOO)
    assert len(table) >= 60
    if zoo_page.versions() in written:
        assert zoo_page.page(table) == written
