"""First and second derivatives through posteriors and drawn functions, against finite differences."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import posterity

METHODS = list(posterity.methods())
#: Central differences of size ε err by ε² times a third derivative, up to 1,000 times the first, and by rounding.
STEP, TOLERANCE = 1e-5, 1e-5


def network(kind: str) -> nn.Module:
    """A network in which three layers have one input feature, the first and one in the middle among them."""
    torch.manual_seed(0)
    if kind == "linear":
        layers = [nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1), nn.Tanh(), nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 2)]
    else:
        layers = [nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 1, 3, stride=2), nn.Tanh()]
        layers += [nn.Conv2d(1, 2, 1, bias=False), nn.Flatten(), nn.Linear(8, 2)]
    made = nn.Sequential(*layers).double()
    with torch.no_grad():
        for p in made.parameters():  # derivatives of the order of 1
            p.normal_(0.0, 1 / p[0].numel() ** 0.5 if p.dim() > 1 else 0.3)
    return made


def rows(kind: str) -> Tensor:
    """Three rows."""
    shape = (3, 1) if kind == "linear" else (3, 1, 5, 5)
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def made(method: str, kind: str, way: str) -> tuple[posterity.Posterior, Callable[[Tensor], Tensor]]:
    """A posterior in training, and the sum of a function of its outputs under fixed draws."""
    posterior = posterity.methods()[method](network(kind), seed=1).train()
    functions = posterior.draw(2, torch.Generator().manual_seed(3))

    def total(x: Tensor) -> Tensor:
        outputs = functions(x) if way == "draw" else posterior(x, torch.Generator().manual_seed(3))
        return torch.sin(outputs).sum()

    return posterior, total


def directional(value: Callable[[], Tensor], tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The derivative of a value along one direction of some tensors: by autograd, and by a central difference."""
    generator = torch.Generator().manual_seed(7)
    along = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in tensors]
    gradients = torch.autograd.grad(value(), tensors, allow_unused=True)
    exact = sum((g * v).sum() for g, v in zip(gradients, along, strict=True) if g is not None)

    def moved(step: float) -> Tensor:
        with torch.no_grad():
            for t, v in zip(tensors, along, strict=True):
                t.add_(step * v)
        return value().detach()

    high, low = moved(STEP), moved(-2 * STEP)
    moved(STEP)
    return torch.as_tensor(exact), (high - low) / (2 * STEP)


@pytest.mark.parametrize("way", ["forward", "draw"])
@pytest.mark.parametrize("method", METHODS)
def test_first_and_second_derivatives_of_the_inputs_are_right(method: str, way: str) -> None:
    _, total = made(method, "linear", way)
    x = rows("linear").requires_grad_()

    def slope() -> Tensor:
        return torch.autograd.grad(total(x), x, create_graph=True)[0]

    def curvature() -> Tensor:
        return torch.autograd.grad((slope() ** 2).sum(), x, create_graph=True)[0]

    for value in (lambda: total(x), lambda: (slope() ** 2).sum(), lambda: (curvature() ** 2).sum()):
        exact, difference = directional(value, [x])
        torch.testing.assert_close(exact, difference, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["linear", "convolution"])
@pytest.mark.parametrize("method", METHODS)
def test_a_loss_on_a_derivative_has_the_gradient_of_its_parameters(method: str, kind: str) -> None:
    posterior, total = made(method, kind, "forward")
    x = rows(kind).requires_grad_()
    parameters = [p for p in posterior.parameters() if p.requires_grad]

    def penalty() -> Tensor:
        return (torch.autograd.grad(total(x), x, create_graph=True)[0] ** 2).sum()

    exact, difference = directional(penalty, parameters)
    torch.testing.assert_close(exact, difference, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_second_derivatives_of_the_parameters_are_right_where_inputs_need_none(kind: str) -> None:
    posterior, total = made("ibnn", kind, "forward")
    x, parameters = rows(kind), [p for p in posterior.parameters() if p.requires_grad]
    plain = torch.autograd.grad(total(x), parameters)

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(total(x), parameters, create_graph=True)

    torch.testing.assert_close(gradients(), plain)
    exact, difference = directional(lambda: torch.stack([(g**2).sum() for g in gradients()]).sum(), parameters)
    torch.testing.assert_close(exact, difference, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("way", ["forward", "draw"])
@pytest.mark.parametrize("method", METHODS)
def test_function_transforms_give_the_derivatives_of_autograd(method: str, way: str) -> None:
    x = rows("linear")
    _, first = made(method, "linear", way)
    found = torch.func.grad(first)(x)  # the first call, which also finds out about the network
    _, total = made(method, "linear", way)
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(total(leaf), leaf, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), leaf)
    torch.testing.assert_close(found, slope.detach())
    torch.testing.assert_close(torch.func.jacrev(total)(x), slope.detach())
    torch.testing.assert_close(torch.func.grad(lambda x: torch.func.grad(total)(x).sum())(x), second)
    hessian = torch.func.jacrev(torch.func.jacrev(total))(x)
    torch.testing.assert_close(hessian.sum((0, 1)), second)


@pytest.mark.parametrize("method", METHODS)
def test_function_transforms_of_parameters_give_the_gradients_of_autograd(method: str) -> None:
    posterior, total = made(method, "linear", "forward")
    x, parameters = rows("linear"), {k: p for k, p in posterior.named_parameters() if p.requires_grad}

    def value(parameters: dict[str, Tensor]) -> Tensor:
        generator = torch.Generator().manual_seed(3)
        return torch.sin(torch.func.functional_call(posterior, parameters, (x, generator))).sum()

    found = torch.func.grad(value)({k: p.detach() for k, p in parameters.items()})
    exact = torch.autograd.grad(total(x), list(parameters.values()), materialize_grads=True, allow_unused=True)
    torch.testing.assert_close(list(found.values()), list(exact))
