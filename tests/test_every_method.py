"""What every method must do. No method is named here: the table of methods is all that these tests know."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

import posterity
from common import ConvNet, generator, mlp, seeded
from posterity import storage
from skeleton import Isotropic

#: With the method that docs/adding.md gives to copy.
METHODS = posterity.methods() | {"skeleton": Isotropic}
N = 6


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(storage.SAVED, "skeleton", Isotropic)


@pytest.fixture
def posterior(method, case):
    return method(case[0], seed=0)


def test_a_generator_leads_the_networks_own_dropout_in_training_too(method):
    posterior = method(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)), seed=0).train()
    x, y = torch.randn(9, 4, generator=generator()), torch.arange(9) % 3
    posterior(x)
    before = torch.get_rng_state()
    first, again = (posterior(x, generator(2)) for _ in range(2))
    losses = [float(posterior.loss(x, y, size=9, generator=generator(2)).detach()) for _ in range(2)]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again)
    assert losses[0] == losses[1]
    one = generator(2)
    assert not torch.equal(posterior(x, one), posterior(x, one))


def test_is_built_from_a_network_alone(method, case):
    assert method(case[0]).draw(2)(case[1]).shape == (2, 7, 3)


def test_shapes(posterior, case):
    _, x, y = case
    functions = posterior.draw(N, generator=generator())
    assert isinstance(functions, nn.Module)
    assert len(functions) == N
    assert functions(x).shape == (N, 7, 3)
    assert posterior(x).shape == (posterior.samples, 7, 3)
    assert posterior.divergence().shape == ()
    assert posterior.loss(x, y, posterity.Categorical(), size=100, beta=1.0).shape == ()


def test_samples_gives_the_number_of_training_draws(method, case):
    assert method(case[0], samples=3)(case[1]).shape == (3, 7, 3)


def test_draws_are_in_evaluation_mode_and_own_their_mode(posterior, case):
    posterior.train()
    functions = posterior.draw(2)
    assert not any(module.training for module in functions.modules())
    assert posterior.training
    functions.train()
    posterior.eval()
    assert functions.training
    assert not any(module.training for module in posterior.modules())


def test_a_drawn_function_is_fixed(posterior, case):
    functions = posterior.draw(N, generator=generator())
    torch.testing.assert_close(functions(case[1]), functions(case[1]), rtol=0, atol=0)


def test_a_function_does_not_depend_on_the_rest_of_its_batch(posterior, case):
    x = case[1]
    functions = posterior.draw(N, generator=generator())
    alone = torch.cat([functions(row.unsqueeze(0)) for row in x], dim=1)
    torch.testing.assert_close(functions(x), alone)


def test_a_generator_repeats_and_leaves_the_global_one(posterior, case):
    x, y = case[1:]
    before = torch.get_rng_state()
    first = posterior.draw(N, generator=generator(3))(x)
    second = posterior.draw(N, generator=generator(3))(x)
    outputs = [posterior(x, generator=generator(4)) for _ in range(2)]
    losses = [posterior.loss(x, y, size=10, generator=generator(5)) for _ in range(2)]
    predictions = [posterity.predict(posterior, x, 4, generator(6)).probs for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in ((first, second), outputs, losses, predictions):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_constructors_repeat_by_seed_or_generator(method):
    before = torch.get_rng_state()
    states = [method(seeded(mlp), seed=1).state_dict(), method(seeded(mlp), seed=1).state_dict()]
    states += [method(seeded(mlp), generator=generator(1)).state_dict()]
    assert torch.equal(torch.get_rng_state(), before)
    for state in states[1:]:
        assert all(torch.equal(state[name], states[0][name]) for name in states[0])


class Several(posterity.Categorical):
    """Answers by name, of which some may be nothing."""

    def log_prob(self, outputs, y):
        return super().log_prob(outputs, y["class"] if isinstance(y, dict) else y[0])


@pytest.mark.parametrize("form", [dict, tuple])
def test_answers_may_be_several_tensors(method, form):
    y = {"class": torch.arange(6) % 3, "nothing": torch.empty(6, 0)}
    x = torch.randn(6, 5, generator=generator())
    posterior = method(seeded(mlp), seed=0).train()
    given = y if form is dict else tuple(y.values())
    one = posterior.loss(x, given, Several(), size=6, generator=generator())
    other = posterior.loss(x, y["class"], size=6, generator=generator())
    torch.testing.assert_close(one, other)


def test_answers_and_weights_of_a_loss_may_be_lists(posterior, case):
    _, x, y = case
    weight = torch.linspace(0.5, 1.5, len(y))
    losses = [
        posterior.loss(x, answers, size=9, weight=weights, generator=generator())
        for answers, weights in ((y, weight), (y.tolist(), weight.tolist()))
    ]
    torch.testing.assert_close(losses[0], losses[1])


@pytest.mark.parametrize("kind", ["whole", "complex"])
def test_a_first_parameter_that_is_no_real_number_changes_no_input(method, kind):
    class Ordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            order = torch.tensor([2, 0, 3, 1])
            self.order = nn.Parameter(order if kind == "whole" else order.to(torch.complex64), requires_grad=False)
            self.last = nn.Linear(4, 3)

        def forward(self, x):
            return self.last(x[:, self.order.real.long()])

    posterior, x = method(seeded(Ordered), seed=0), torch.randn(6, 4, generator=generator())
    expected = posterior.draw(4, generator(1))(x).softmax(-1).mean(0)
    torch.testing.assert_close(posterity.predict(posterior, x, 4, generator(1)).probs.to(expected), expected)


def test_a_part_that_requires_no_gradient_stays_as_it_is(method):
    network = mlp(4, 3)
    network[0].requires_grad_(False)
    posterior = method(network, seed=0)
    x, y = torch.randn(40, 4, generator=generator()), torch.arange(40) % 3
    first = network[0].weight.clone()
    posterity.fit(posterior, (x, y), epochs=3, lr=0.05, seed=0, device="cpu", progress=False)
    assert torch.equal(network[0].weight, first)
    if (weights := getattr(posterior, "weights", None)) is not None:
        assert "0.weight" not in weights.names
        assert torch.equal(posterior.network[0].weight, first)


def test_no_rows_give_no_outputs(method):
    assert method(mlp(4, 3)).draw(2)(torch.zeros(0, 4)).shape == (2, 0, 3)


def test_a_seed_and_a_generator_are_one_too_many(method, case):
    with pytest.raises(posterity.Error, match="not both"):
        method(case[0], seed=0, generator=generator())


def test_without_a_generator_the_global_one_advances(posterior, case):
    state = torch.get_rng_state()
    first = posterior.draw(N)(case[1])
    torch.set_rng_state(state)
    second = posterior.draw(N)(case[1])
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_total_is_aleatoric_plus_epistemic(posterior, case):
    prediction = posterity.predict(posterior, case[1], N, generator())
    for part in (prediction.total, prediction.aleatoric, prediction.epistemic):
        assert part.shape == (7,)
        assert bool((part >= 0).all())
    torch.testing.assert_close(prediction.total, prediction.aleatoric + prediction.epistemic)
    entropy = -(prediction.probs * prediction.probs.log()).sum(1)
    torch.testing.assert_close(prediction.total, entropy)
    torch.testing.assert_close(prediction.probs.sum(1), torch.ones(7))


def test_streamed_prediction_equals_the_average_of_the_draws(posterior, case):
    prediction = posterity.predict(posterior, case[1], N, generator(), batch_size=2)
    log_probs = posterior.draw(N, generator())(case[1]).log_softmax(2)
    torch.testing.assert_close(prediction.probs, log_probs.exp().mean(0))
    torch.testing.assert_close(prediction.aleatoric, -(log_probs.exp() * log_probs).sum(2).mean(0))


@pytest.mark.parametrize("rows_at_once", [1, 5, 10_000])
def test_vectorised_equals_looped(posterior, case, monkeypatch, rows_at_once):
    functions = posterior.draw(N, generator=generator())
    monkeypatch.setattr(functions, "rows_at_once", rows_at_once)
    vectorised = functions(case[1])
    monkeypatch.setattr(type(functions), "_must_loop", lambda self: True)
    torch.testing.assert_close(vectorised, functions(case[1]))


def test_gradients_reach_every_trainable_parameter(posterior, case):
    posterior.train()
    posterior.loss(case[1], case[2], size=10).backward()
    for name, parameter in posterior.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert bool(parameter.grad.isfinite().all()), name
            assert bool((parameter.grad != 0).any()), name


def test_without_divergence_the_loss_is_the_mean_nll_of_the_training_draws(posterior, case):
    """Up to a whole number that does not depend on the data: an ensemble's loss is the sum over its members."""
    x, y = case[1:]
    factors = []
    for rows in (slice(0, 4), slice(2, 7)):
        loss = posterior.loss(x[rows], y[rows], size=50, beta=0.0, generator=generator(2))
        outputs = posterior(x[rows], generator=generator(2))
        factors.append(loss / torch.stack([nn.functional.cross_entropy(out, y[rows]) for out in outputs]).mean())
    torch.testing.assert_close(factors[0], factors[0].round(), rtol=1e-4, atol=0)
    torch.testing.assert_close(factors[0], factors[1], rtol=1e-4, atol=0)


def test_the_divergence_is_divided_by_the_size_of_the_data(posterior, case):
    x, y = case[1:]

    def loss(seed, size, beta):
        return posterior.loss(x, y, size=size, beta=beta, generator=generator(seed)).detach().double()

    parts = torch.stack([50 * (loss(seed, 50, 1.0) - loss(seed, 50, 0.0)) for seed in range(20)])
    own = torch.stack([posterior.penalty(generator(seed)).detach().double() for seed in range(20)])
    error = 5 * (parts.var() + own.var()).div(20).sqrt() + 2e-3 * own.mean().abs() + 1e-4
    assert abs(parts.mean() - own.mean()) < error
    torch.testing.assert_close(100 * (loss(0, 100, 1.0) - loss(0, 100, 0.0)), parts[0], rtol=5e-3, atol=1e-3)
    torch.testing.assert_close(loss(0, 50, 0.5) - loss(0, 50, 0.0), parts[0] / 100, rtol=5e-3, atol=1e-4)


def test_weights_of_the_data_multiply_their_datum_whatever_their_shape(posterior, case):
    x, y = case[1:]
    weight = torch.linspace(0.0, 4.0, 7)  # of mean 2: the likelihood about doubles

    def loss(weight):
        return posterior.loss(x, y, size=50, weight=weight, generator=generator(2))

    torch.testing.assert_close(loss(weight[:, None]), loss(weight))
    torch.testing.assert_close(loss(torch.ones(7)), loss(None))
    assert abs(loss(weight) - loss(None)) > 0.1
    with pytest.raises(posterity.Error, match="weight"):
        loss(torch.ones(7, 2))


def test_deepcopy_and_pickle_also_after_a_forward_pass(posterior, case):
    posterior.loss(case[1], case[2], size=10).backward()
    expected = posterior.draw(N, generator=generator())
    for other in (copy.deepcopy(posterior), pickle.loads(pickle.dumps(posterior))):
        functions = other.draw(N, generator=generator())
        torch.testing.assert_close(functions(case[1]), expected(case[1]))
        torch.testing.assert_close(other(case[1], generator()), posterior(case[1], generator()))
    for functions in (copy.deepcopy(expected), pickle.loads(pickle.dumps(expected))):
        torch.testing.assert_close(functions(case[1]), expected(case[1]))


def test_a_copy_is_independent(posterior, case):
    other = copy.deepcopy(posterior)
    before = posterior.draw(N, generator=generator())(case[1])
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(posterior.draw(N, generator=generator())(case[1]), before)


def test_the_state_goes_through_safetensors(method, case):
    posterior, other = method(case[0], seed=0), method(copy.deepcopy(case[0]), seed=1)
    other.load_state_dict(load(save(posterior.state_dict())))
    torch.testing.assert_close(other.draw(N, generator())(case[1]), posterior.draw(N, generator())(case[1]))


def test_save_and_load(posterior, case, tmp_path):
    posterity.save(posterior, tmp_path / "model")
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".json", ".safetensors"}
    loaded = posterity.load(tmp_path / "model", seeded(type(case[0]) if isinstance(case[0], ConvNet) else mlp, 9))
    torch.testing.assert_close(loaded.draw(N, generator())(case[1]), posterior.eval().draw(N, generator())(case[1]))


def test_the_network_keeps_its_own_names(method, case):
    names = set(case[0].state_dict())
    method(case[0])
    assert set(case[0].state_dict()) == names


def test_drawn_functions_are_exported(posterior, case):
    functions = posterior.draw(3, generator=generator())
    program = torch.export.export(functions, (case[1],))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    torch.testing.assert_close(torch.export.load(buffer).module()(case[1]), functions(case[1]))


def test_drawn_functions_are_compiled_in_one_graph(posterior, case):
    torch.compiler.reset()  # the limit on compilations of one function holds for a process
    functions = posterior.draw(3, generator=generator())
    compiled = torch.compile(functions, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(case[1]), functions(case[1]))


def test_bfloat16(method, case):
    network, x, y = case
    posterior = method(network, seed=0).to(torch.bfloat16)
    x = x.to(torch.bfloat16)
    posterior.loss(x, y, size=10).backward()
    outputs = posterior.draw(N, generator=generator())(x)
    assert outputs.dtype == torch.bfloat16
    assert bool(outputs.isfinite().all())
    assert posterity.predict(posterior, x, N).probs.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_nats_in_half_precision_are_those_of_the_same_numbers(method, dtype):
    """Sums over many weights need more digits, and more room, than half precision has."""
    network = nn.Sequential(nn.Linear(30, 400), nn.ReLU(), nn.Linear(400, 2))
    posterior = method(network, seed=0).to(dtype)
    exact = copy.deepcopy(posterior).double()
    found, expected = (one.penalty(generator()).item() for one in (posterior, exact))
    assert found == pytest.approx(expected, rel=1e-2, abs=0.1)


def test_converting_draws_leaves_the_posterior_as_it_is(posterior, case):
    functions = posterior.draw(2)
    functions.to(torch.float64)
    assert {p.dtype for p in posterior.parameters()} == {torch.float32}


def test_autocast(posterior, case):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = posterior.loss(case[1], case[2], size=10)
        outputs = posterior.draw(N)(case[1])
    loss.backward()
    assert bool(loss.isfinite())
    assert bool(outputs.isfinite().all())


def test_prediction_changes_no_state(posterior, case):
    posterior.train()
    state = {name: value.clone() for name, value in posterior.state_dict().items()}
    modes = [module.training for module in posterior.modules()]
    posterity.predict(posterior, case[1], N)
    functions = posterior.draw(2)
    functions.train()
    functions(case[1])
    assert [module.training for module in posterior.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in posterior.state_dict().items())


def test_the_mean_is_one_function_or_an_error(posterior, case):
    try:
        function = posterior.mean()
    except posterity.Error as error:
        assert "mean" in str(error)  # noqa: PT017
    else:
        assert len(function) == 1
        assert function(case[1]).shape == (1, 7, 3)


def test_describe_accounts_for_every_parameter(posterior, case):
    description = posterior.describe()
    named = {name for name, _ in case[0].named_parameters()}
    assert named <= set(description.uncertain) | set(description.fixed)
    assert all(entry.reason for entry in description)
    assert not set(description.uncertain) & set(description.fixed)
    assert all(name in str(description) for name in named)


def test_training_lowers_the_loss_for_every_likelihood(method):
    x = torch.randn(64, 5, generator=generator())
    signal = x[:, :1].tanh()
    cases = [
        (posterity.Categorical(), (signal[:, 0] > 0).long() * 2, 3),
        (posterity.Bernoulli(), (torch.cat([signal, -signal], 1) > 0).float(), 2),
        (posterity.Gaussian(std=0.5), signal, 1),
        (posterity.Gaussian(), signal[:, 0], 1),
        (posterity.Gaussian(heteroscedastic=True), signal, 2),
    ]
    for likelihood, y, outputs in cases:
        posterior = method(seeded(lambda n=outputs: mlp(5, n)), seed=0)
        history = posterity.fit(posterior, (x, y), likelihood, epochs=30, lr=3e-3, beta=0.0, seed=0, progress=False)
        assert history[-1]["nll"] < history[0]["nll"], likelihood
        assert type(posterior.likelihood) is type(likelihood)
        assert posterior.likelihood is not likelihood
        assert bool(posterity.predict(posterior, x, 4).log_prob(y).isfinite().all())


def test_networks_that_take_and_give_more_than_a_tensor(method):
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(2, 4)

        def forward(self, left, right):
            return {"aux": left, "logits": self.a(left) + self.b(right)}

    left, right = torch.randn(6, 3), torch.randn(6, 2)
    posterior = method(seeded(Pair), seed=0)
    as_tuple = posterior.draw(3, generator())((left, right))
    as_mapping = posterior.draw(3, generator())({"left": left, "right": right})
    torch.testing.assert_close(as_tuple, as_mapping)
    assert posterior((left, right)).shape == (posterior.samples, 6, 4)
    assert posterity.predict(posterior, {"left": left, "right": right}, 3).probs.shape == (6, 4)
    assert method(seeded(Pair), output="aux").draw(2)((left, right)).shape == (2, 6, 3)
    with pytest.raises(posterity.Error, match="aux"):
        method(seeded(Pair), output="nothing").draw(2)((left, right))


def test_the_first_of_several_named_results_is_taken_with_a_word():
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(2, 8), nn.Linear(8, 3)

        def forward(self, x):
            features = self.body(x)
            return {"features": features, "scores": self.head(features)}

    with pytest.warns(UserWarning, match="'features', the first, is taken"):
        assert posterity.MAP(Features()).draw(1)(torch.randn(4, 2)).shape == (1, 4, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert posterity.MAP(Features(), output="scores").draw(1)(torch.randn(4, 2)).shape == (1, 4, 3)


def test_dense_outputs_give_maps(method):
    network = seeded(lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1)))
    posterior, x = method(network, seed=0), torch.randn(5, 2, 6, 6)
    prediction = posterity.predict(posterior, x, 4)
    assert prediction.probs.shape == (5, 3, 6, 6)
    assert prediction.epistemic.shape == prediction.total.shape == (5, 6, 6)
    y = torch.randint(3, (5, 6, 6))
    y[0, 0, 0] = -100
    posterior.loss(x, y, size=10).backward()


def test_recurrent_networks_are_looped(method):
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.gru, self.head = nn.Linear(3, 4), nn.GRU(4, 5, batch_first=True), nn.Linear(5, 2)

        def forward(self, x):
            return self.head(self.gru(self.embed(x))[0][:, -1])

    posterior, x = method(seeded(Recurrent), seed=0), torch.randn(4, 6, 3)
    assert posterior.draw(3)(x).shape == (3, 4, 2)
    posterior.loss(x, torch.tensor([0, 1, 0, 1]), size=10).backward()


def test_mixed_precision_leaves_the_divergence_as_it_is(posterior):
    """A sum over all weights, or a determinant, in half precision would lose its digits."""
    expected = posterior.divergence(generator())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = posterior.divergence(generator())
    torch.testing.assert_close(found.float(), expected.float(), rtol=1e-4, atol=1e-4)


def test_mixed_precision_leaves_drawn_functions_as_they_are(posterior, case):
    expected = posterior.draw(N, generator())(case[1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        functions = posterior.draw(N, generator())
    torch.testing.assert_close(functions(case[1]), expected)


def test_functions_that_may_be_drawn_in_turns_are_those_of_one_draw(posterior, case):
    if posterior.turn is None:
        return
    turns, one, two = (posterior.turn, posterior.turn, 3), generator(), generator()
    whole = posterior.draw(sum(turns), one)(case[1])
    torch.testing.assert_close(torch.cat([posterior.draw(n, two)(case[1]) for n in turns]), whole)
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=two))


def test_a_number_of_functions_may_be_a_tensor(posterior):
    assert len(posterior.draw(torch.tensor(3))) == 3


class Writer(nn.Module):
    """Writes into its own input."""

    def __init__(self, recurrent=False):
        super().__init__()
        self.cell = nn.GRU(5, 6, batch_first=True) if recurrent else None
        self.head = nn.Linear(6 if recurrent else 5, 3)

    def forward(self, x):
        x -= 0.5
        return self.head(x if self.cell is None else self.cell(x.unsqueeze(1))[0][:, 0])


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("name", posterity.methods())
def test_functions_of_a_network_that_writes_into_its_input_all_see_the_same(name, recurrent):
    posterior = posterity.methods()[name](seeded(lambda: Writer(recurrent)), seed=0)
    x = torch.randn(2000, 5, generator=generator())
    functions = posterior.draw(5, generator())
    expected = torch.stack([function(x.clone()) for function in functions.each()])
    expected = expected.expand(5, -1, -1)
    for _ in range(2):
        torch.testing.assert_close(functions(x.clone()), expected)
