"""Tracing: what a module computes as a program for any number of rows."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from posterity import inputs
from posterity.deployment.answers import Answers
from posterity.errors import Error
from posterity.functions import Functions


def traced(answers: Answers, x: Any, unroll: bool = False) -> torch.export.ExportedProgram:
    """The program for any number of rows like x; with `unroll`, functions are written out one after the other.

    Otherwise they run together (vmap) where that can be: torch's rules for convolutions, normalisation, attention and
    embeddings fix the number of rows, and recurrent layers have none. There they are a loop with the network as its
    body or, where torch cannot do that either, written out. All have the same numbers.
    """
    few = inputs.take(x, torch.arange(3) % (inputs.rows(x) or 1))  # one row would be taken for a constant
    axes, failure = {"x": _axes(x, torch.export.Dim("batch"))}, None
    ways: list[Any] = [_written_out] if unroll else [_together, _as_a_loop, _written_out]
    if not unroll and answers.functions.perturbed and answers.functions._must_loop():
        del ways[0]
    for way in ways:
        try:
            with way(answers.functions):
                program = torch.export.export(answers, (few,), dynamic_shapes=axes)
            program.example_inputs = None  # the user's rows are nobody else's
            return program
        except Error:
            raise
        except Exception as error:  # torch names no class for what it cannot trace
            failure = error
    raise Error(f"torch.export cannot trace this network for any number of rows ({reason(failure)}).") from failure


def reason(error: BaseException | None) -> str:
    """What an exporter says was wrong in the first place, in one line."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextlib.contextmanager
def _together(functions: Functions, loops: bool = False) -> Iterator[None]:
    before, functions.loops = functions.loops, loops
    try:
        yield
    finally:
        functions.loops = before


@contextlib.contextmanager
def _as_a_loop(functions: Functions) -> Iterator[None]:
    functions._some = functools.partial(_scan, functions)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del functions._some


_written_out = functools.partial(_together, loops=True)


class _One(nn.Module):
    """One of the functions, with the network's own parameters and buffers as part of its state."""

    def __init__(self, functions: Functions) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, weights: dict[str, Tensor], noise: Tensor | None, x: Any) -> Tensor:
        return self.functions._one(weights, noise, x)


def _scan(functions: Functions, weights: dict[str, Tensor], noise: Tensor | None, x: Any) -> Tensor:
    """Outputs `[n, batch, ...]` by torch's scan over n, whose body may see nothing but what it is given."""
    one, (leaves, spec) = _One(functions), tree_flatten(x)
    owned: dict[str, Tensor] = {**dict(functions.network.named_parameters()), **dict(functions.network.named_buffers())}
    state = {f"functions.network.{name}": value for name, value in owned.items()}
    differ = [*weights.values(), *([] if noise is None else [noise])]

    def body(carried: Tensor, *given: Tensor) -> list[Tensor]:
        parts = iter(given)
        own = {key: next(parts) for key in weights}
        own_noise = None if noise is None else next(parts)
        rows = tree_unflatten([next(parts) if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec)
        shared = {name: next(parts) for name in state}
        return [carried.clone(), torch.func.functional_call(one, shared, (own, own_noise, rows))]

    shared = (*(leaf for leaf in leaves if isinstance(leaf, Tensor)), *state.values())
    return torch.ops.higher_order.scan(body, [torch.zeros(())], differ, shared)[1]  # type: ignore[no-any-return]


def _axes(x: Any, batch: Any) -> Any:
    """Where the rows of each tensor are, in the form that torch.export asks for."""
    if isinstance(x, Mapping):
        return {key: _axes(value, batch) for key, value in x.items()}
    if isinstance(x, tuple):
        return tuple(_axes(value, batch) for value in x)
    return {0: batch} if isinstance(x, Tensor) and x.dim() else None
