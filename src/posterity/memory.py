"""What does not differ between functions is computed once, also where they run one by one."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.device)


class Memory:
    """Answers of the modules of a network that hold nothing uncertain, kept from one function to the next.

    A module's answer is used again where all its inputs are equal to those of the same call before; so what comes
    before the first uncertain layer is computed once, and what comes behind is computed as ever. A module whose inputs
    or answers are more than tensors and numbers, which changes its inputs or draws random numbers, is computed every
    time.

    Args:
        network: a network in evaluation mode that no one else uses.
        uncertain: the names of the modules and parameters that differ between functions.
    """

    def __init__(self, network: nn.Module, uncertain: list[str]) -> None:
        self.certain = [
            module
            for name, module in network.named_modules()
            if name and next(module.parameters(), None) is not None and not any(_within(at, name) for at in uncertain)
        ]
        self.calls: dict[nn.Module, list[_Call | None]] = {}
        self.at: dict[nn.Module, int] = {}
        self.busy = False

    @contextlib.contextmanager
    def recalling(self) -> Iterator[None]:
        """The modules answer from memory in here."""
        for module in self.certain:
            module.forward = self._wrapped(module, module.forward)
        try:
            yield
        finally:
            for module in self.certain:
                del module.forward
            self.calls.clear()

    def again(self) -> None:
        """Another function starts: the calls are counted from the first."""
        self.at.clear()

    def _wrapped(self, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*args: Any, **kwargs: Any) -> Any:
            if self.busy:  # inside a module that is remembered as a whole
                return forward(*args, **kwargs)
            known, at = self.calls.setdefault(module, []), self.at.get(module, 0)
            self.at[module] = at + 1
            call = known[at] if at < len(known) else None
            if call is not None and call.fits((args, kwargs)):
                return call.answer()
            if at < len(known):
                return forward(*args, **kwargs)
            self.busy = True
            try:
                made = _Call(forward, args, kwargs)
            finally:
                self.busy = False
            known.append(made if made.repeats else None)
            return made.result

        return answer


class _Call:
    """One call of a module: what it got, what it said, and whether it would say it again."""

    def __init__(self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (args, kwargs)
        state = torch.get_rng_state()
        self.given, plain = _copied(given)
        self.result = forward(*args, **kwargs)
        self.kept, also = _copied(self.result)
        self.repeats = plain and also and torch.equal(state, torch.get_rng_state()) and self.fits(given)

    def fits(self, given: Any) -> bool:
        """Whether these are the inputs that it got."""
        mine, yours = pytree.tree_flatten(self.given), pytree.tree_flatten(given)
        return mine[1] == yours[1] and all(_same(a, b) for a, b in zip(mine[0], yours[0], strict=True))

    def answer(self) -> Any:
        """Its answer, which the caller may change."""
        return _copied(self.kept)[0]


def _copied(value: Any) -> tuple[Any, bool]:
    """A copy of what holds tensors, and whether it holds nothing else that matters."""
    leaves, structure = pytree.tree_flatten(value)
    plain = all(isinstance(leaf, (Tensor, *PLAIN)) for leaf in leaves)
    copies = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return pytree.tree_unflatten(copies, structure), plain


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
    return type(a) is type(b) and bool(a == b)


def _within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")
