"""A drawn function is fixed: whatever becomes of its posterior, it stays the function that was drawn."""

import pytest
import torch
from torch import Tensor, nn

import posterity
from common import ConvNet, generator, mlp, seeded
from skeleton import Isotropic

METHODS = posterity.methods() | {"skeleton": Isotropic}


def functions_of(posterior: posterity.Posterior) -> list[posterity.Functions]:
    """Draws, and the mean where there is one."""
    functions = [posterior.draw(6, generator=generator())]
    try:
        return [*functions, posterior.mean()]
    except posterity.Error:
        return functions


def assert_fixed(functions: list[posterity.Functions], x: Tensor, before: list[Tensor]) -> None:
    for function, outputs in zip(functions, before, strict=True):
        torch.testing.assert_close(function(x), outputs, rtol=0, atol=0)


@pytest.mark.parametrize("make", [lambda: mlp(), ConvNet], ids=["mlp", "conv"])
@pytest.mark.parametrize("method", METHODS)
def test_drawn_functions_stay_when_training_goes_on(method, make):
    posterior = METHODS[method](seeded(make), seed=0)
    x = torch.randn(20, *((1, 6, 6) if make is ConvNet else (5,)), generator=generator(1))
    posterior(x)
    functions = functions_of(posterior.eval())
    before = [function(x) for function in functions]
    posterity.fit(posterior, (x, torch.arange(20) % 3), epochs=2, lr=0.1, seed=0, progress=False)
    assert_fixed(functions, x, before)


@pytest.mark.parametrize("method", METHODS)
def test_drawn_functions_stay_when_parameters_are_written_moved_or_loaded(method):
    posterior, other = (METHODS[method](seeded(mlp, seed), seed=seed) for seed in (0, 1))
    x = torch.randn(4, 5, generator=generator(1))
    functions = functions_of(posterior.eval())
    before = [function(x) for function in functions]
    with torch.no_grad():
        for tensor in [*posterior.parameters(), *posterior.buffers()]:
            if tensor.requires_grad or not tensor.is_leaf:
                tensor.fill_(0.5)
    assert_fixed(functions, x, before)
    posterior.load_state_dict(other.state_dict())
    assert_fixed(functions, x, before)
    posterior.double()
    assert_fixed(functions, x, before)


@pytest.mark.parametrize("method", METHODS)
def test_drawn_functions_stay_when_layers_are_left_out_of_the_draws(method):
    taken = "layers" in METHODS[method].__init__.__code__.co_varnames
    posterior = METHODS[method](seeded(mlp), seed=0, **({"layers": "last"} if taken else {}))
    x = torch.randn(20, 5, generator=generator(1))
    functions = functions_of(posterior.eval())
    before = [function(x) for function in functions]
    posterity.fit(posterior, (x, torch.arange(20) % 3), epochs=2, lr=0.1, seed=0, progress=False)
    assert_fixed(functions, x, before)


@pytest.mark.parametrize("method", METHODS)
def test_frozen_parameters_are_held_once(method):
    network = seeded(lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)))
    network[0].requires_grad_(False)
    posterior = METHODS[method](network, seed=0)
    held = posterior.network.get_parameter("0.weight")
    assert posterior.draw(3).network.get_parameter("0.weight").data_ptr() == held.data_ptr()


def test_predict_draws_functions_that_share_what_they_give_back_at_once(monkeypatch):
    posterior, places = posterity.IBNN(seeded(mlp), seed=0), []
    draw = posterior.draw

    def drawn(*args, **options):
        functions = draw(*args, **options)
        places.append({p.data_ptr() for p in functions.network.parameters()})
        return functions

    monkeypatch.setattr(posterior, "draw", drawn)
    posterity.predict(posterior, torch.randn(4, 5, generator=generator(1)), 4, seed=0)
    own = {p.data_ptr() for p in posterior.network.parameters()}
    assert places == [own]
    assert not own & {p.data_ptr() for p in draw(4).network.parameters()}


@pytest.mark.parametrize("method", METHODS)
def test_one_likelihood_given_to_two_fits_is_each_posteriors_own(method):
    likelihood, x = posterity.Gaussian(initial=1.0), torch.randn(32, 5, generator=generator())
    first, second = (METHODS[method](seeded(lambda: mlp(5, 1)), seed=0) for _ in range(2))
    posterity.fit(first, (x, x[:, :1]), likelihood, epochs=1, seed=0, progress=False)
    before = posterity.predict(first, x, 4, seed=0).std
    posterity.fit(second, (x, 5 * x[:, :1]), likelihood, epochs=2, lr=0.1, seed=0, progress=False)
    assert float(likelihood.log_std.detach()) == 0.0
    assert float(second.likelihood.log_std.detach()) != float(first.likelihood.log_std.detach())
    torch.testing.assert_close(posterity.predict(first, x, 4, seed=0).std, before, rtol=0, atol=0)
