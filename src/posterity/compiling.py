"""Compiled parts of a prediction."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class Compiled:
    """Calls functions of tensors, compiled for the shapes of their first call; other shapes run as they are.

    A part with fewer rows than the others, at the end of the data, is not worth another compilation. What cannot be
    compiled runs as it is, with a warning.

    Args:
        args, kwargs: of `torch.compile`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.options = args, {"dynamic": False, **kwargs}
        self.made: dict[str, tuple[Callable[..., Tensor], Any]] = {}
        self.works = True

    def __call__(self, run: Callable[..., Tensor], *args: Any) -> Tensor:
        """`run(*args)`."""
        if not self.works or torch.compiler.is_compiling():
            return run(*args)
        made, shapes = self.made.get(run.__name__) or self._make(run, args)
        if _shapes(args) != shapes:
            return run(*args)
        try:
            return made(*args)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            done, self.works = run(*args), False
            reason = str(error).strip().partition("\n")[0]
            warnings.warn(f"The functions cannot be compiled, so they run as they are: {reason}", stacklevel=2)
            return done

    def _make(self, run: Callable[..., Tensor], args: Any) -> tuple[Callable[..., Tensor], Any]:
        options, named = self.options
        made = torch.compile(run, *options, **named)
        self.made[run.__name__] = made, _shapes(args)
        return self.made[run.__name__]


def _shapes(args: Any) -> Any:
    leaves, structure = pytree.tree_flatten(args)
    return [leaf.shape if isinstance(leaf, Tensor) else leaf for leaf in leaves], structure
