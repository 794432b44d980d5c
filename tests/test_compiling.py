"""Predictions in compiled parts."""

import pytest
import torch

import posterity
from common import generator, mlp, seeded
from posterity.compiling import Compiled

CALLS: list[int] = []


def backend(graph, inputs):
    """Runs a graph as it is, and counts."""

    def run(*args):
        CALLS.append(1)
        return graph(*args)

    return run


@pytest.mark.parametrize("method", posterity.methods().values(), ids=posterity.methods())
def test_compiled_functions_say_the_same(method):
    posterior, x = method(seeded(mlp), seed=0).eval(), torch.randn(7, 5, generator=generator())
    functions = posterior.draw(4, generator())
    expected = functions(x)
    functions.rows_at_once = 8  # two rows at a time, and one at the end
    functions.compile(backend=backend)
    CALLS.clear()
    torch.testing.assert_close(functions(x), expected)
    torch.testing.assert_close(functions(x), expected)
    # Three parts of two rows in each call; where functions have weights of their own, four parts of a function.
    assert len(CALLS) == (2 * 4 if functions.keys else 2 * 3 if functions.perturbed else 0)


def test_predictions_are_compiled_on_demand(monkeypatch):
    monkeypatch.setattr("posterity.functions.Compiled", lambda: Compiled(backend=backend))
    CALLS.clear()
    posterior, x = posterity.IBNN(seeded(mlp), 2, seed=0), torch.randn(7, 5, generator=generator())
    plain = posterity.predict(posterior, x, 4, generator())
    compiled = posterity.predict(posterior, x, 4, generator(), compile=True)
    torch.testing.assert_close(compiled.log_probs, plain.log_probs)
    assert CALLS == [1]
    with pytest.raises(posterity.Error, match="auto"):
        posterity.predict(posterior, x, "auto", compile=True)


def test_more_than_eight_sets_of_functions_are_compiled():
    posterior, x = posterity.IBNN(seeded(mlp), 2, seed=0), torch.randn(7, 5, generator=generator())
    alive = []
    for seed in range(20):
        functions = posterior.draw(4, generator(seed))
        alive.append(functions)
        expected = functions(x)
        functions.compile(backend=backend)
        CALLS.clear()
        torch.testing.assert_close(functions(x), expected)
        assert CALLS == [1]


def test_what_cannot_be_compiled_runs_as_it_is():
    def broken(graph, inputs):
        raise RuntimeError("no such luck")

    posterior, x = posterity.IBNN(seeded(mlp), 2, seed=0), torch.randn(7, 5, generator=generator())
    functions = posterior.draw(4, generator())
    expected = functions(x)
    functions.compile(backend=broken)
    with pytest.warns(UserWarning, match="cannot be compiled"):
        torch.testing.assert_close(functions(x), expected)
    torch.testing.assert_close(functions(x), expected)  # without another word


def test_a_smaller_last_batch_is_not_compiled_again():
    posterior = posterity.IBNN(seeded(mlp), 2, seed=0)
    x, y = torch.randn(20, 5, generator=generator()), torch.arange(20) % 3
    shapes = set()

    def watching(graph, inputs):
        shapes.update(tuple(i.shape) for i in inputs if isinstance(i, torch.Tensor) and i.dim() == 2)
        return graph

    torch._dynamo.reset()
    history = posterity.fit(posterior, (x, y), epochs=2, batch_size=7, compile=watching, seed=0, device="cpu")
    assert (7, 5) in shapes
    assert (6, 5) not in shapes
    assert len(history) == 2


def test_modules_are_compiled_for_the_shapes_of_the_first_call():
    class Owner:
        def double(self, x):
            return 2 * x

    compiled, owner = Compiled(backend=backend), Owner()
    CALLS.clear()
    for rows in (3, 3, 2, 3):
        assert compiled(owner.double, torch.ones(rows)).tolist() == [2.0] * rows
    assert len(CALLS) == 3


def test_a_step_that_cannot_be_compiled_runs_as_it_is():
    def broken(graph, inputs):
        raise RuntimeError("no such luck")

    x, y = torch.randn(20, 5, generator=generator()), torch.arange(20) % 3
    plain, other = (posterity.IBNN(seeded(mlp), 2, seed=0) for _ in range(2))
    posterity.fit(plain, (x, y), epochs=2, batch_size=7, seed=0, device="cpu")
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="cannot be compiled"):
        posterity.fit(other, (x, y), epochs=2, batch_size=7, compile=broken, seed=0, device="cpu")
    for a, b in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
