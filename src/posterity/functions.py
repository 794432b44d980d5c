"""Drawn functions: n of them as one module, that runs them together or one by one."""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from posterity import folding, inputs
from posterity.compiling import Compiled
from posterity.device_checks import check_embeddings
from posterity.interaction import in_place_of_zeros, keeps_whole, known
from posterity.memory import Memory
from posterity.random_networks import draws_random_numbers, own_stream, warn
from posterity.sites import Sites
from posterity.state import ONE_AT_A_TIME, Swaps, alone, clean, forget
from posterity.twins import keep_apart, twin

#: Whether this torch can save an exported program that holds operators of vmap: 2.11 and 2.12 cannot.
SAVES_VMAP = torch.__version__ >= "2.13"
#: So many functions are worth a word when they run one by one.
MANY = 32
#: Rows that drawn weights meet at least, at a time.
FEWEST = 64
#: Functions that run together at most: noise and masks are as large as some rows, and made again for every part.
MOST = 256
#: Rows that one function meets at most, at a time, on a processor: with twice as many LeNet's take 1.8 times as long.
ALONE = 512


class Functions(nn.Module):
    """n drawn functions, in evaluation mode: `functions(x)` is `[n, batch, ...]`.

    They own their perturbations, mode, hooks and buffers, and a copy of the parameters that are trained: they stay as
    they are when the posterior is trained on, moved or given another state. Frozen parameters
    (`requires_grad=False`), which may be a large pretrained network, are shared. All draws run at once, vectorised
    over the perturbations only, or one by one where that cannot be; either way what comes before the first perturbed
    layer is computed once.

    Args:
        network: the network that is perturbed.
        n: how many functions.
        names: the layers that carry node noise, `kinds` where they carry it, and `direct` those that the network uses
            without calling them, where that is known (see `Sites`).
        noise: their noise, `[n, size]`.
        weights: parameters and buffers that differ between functions, each `[n, *shape]`, by name.
        output: which part of the network's result is the answer.

    Example:
        >>> import posterity, torch
        >>> functions = posterity.IBNN(torch.nn.Linear(2, 3)).draw(10)  # methods make them
        >>> len(functions), functions(torch.randn(5, 2)).shape
        (10, torch.Size([10, 5, 3]))
    """

    noise: Tensor | None
    #: Whether nothing but `sites` and `weights` tells one function from another.
    remembers = True
    #: Whether one pass of the network gives all of them, so that they share its batch statistics.
    one_pass = False

    def __init__(
        self,
        network: nn.Module,
        n: int,
        *,
        names: list[str] | None = None,
        kinds: tuple[str, ...] = ("input",),
        direct: list[str] | None = None,
        noise: Tensor | None = None,
        weights: dict[str, Tensor] | None = None,
        output: str | int | None = None,
    ) -> None:
        super().__init__()
        with alone():  # no other thread has put weights in the place of the network's own
            self.network = twin(network)
        if noise is not None or weights:
            keep_apart(self.network)
        check_embeddings(self.network)
        self.count = n
        self.output = output
        self.sites = Sites(self.network, kinds, names or [], direct)
        self.writes: bool | None = None
        self.register_buffer("noise", None if noise is None else noise.detach())
        self.keys = list(weights or {})
        for index, value in enumerate((weights or {}).values()):
            self.register_buffer(f"weight{index}", value.detach())
        self.rows_at_once: int | None = None
        self.fold_from: float | None = None
        self.compiled: Compiled | None = None
        self.loops: bool | None = None
        self.random = False
        self.relations = known(network)
        forget(self.network)
        for module in self.modules():  # a module's own train() may write into weights, which may be shared
            module.training = False

    def __len__(self) -> int:
        return self.count

    def forward(self, x: Any) -> Tensor:
        """The outputs of all functions, `[n, batch, ...]`."""
        return _cat([_cat(list(self.stream(part))) for part in self.parts(x)], axis=1)

    def parts(self, x: Any) -> Iterator[Any]:
        """x in parts of as many rows as all functions can take together; whole where its rows interact."""
        rows = inputs.rows(x)
        if torch.compiler.is_compiling() or not self.perturbed or rows is None or self._step(x) == self.count:
            yield x
            return
        self._prepare(x)
        at_once = self._at_once(x)
        if self._apart(x):
            step = at_once if inputs.tensors(x)[0].is_cuda else min(at_once, ALONE)
        else:
            step = max(1, at_once // min(self.count, MOST))
        if folding.from_the_start(self.network, self.keys):  # weights are read again for every part of the rows
            step = max(step, min(at_once, FEWEST))
        if step >= rows or keeps_whole(self, x):
            yield x
            return
        for start in range(0, rows, step):
            yield inputs.between(x, start, start + step)

    def stream(self, x: Any) -> Iterator[Tensor]:
        """The same outputs, some functions at a time: `[some, batch, ...]`, so that memory does not grow with n."""
        if not self.perturbed:
            once = self._steady(partial(self._unwritten, self._one), self._fixed, {}, None, x)
            yield once.unsqueeze(0).expand(self.count, *once.shape)
            return
        weights = {key: getattr(self, f"weight{index}") for index, key in enumerate(self.keys)}
        apart, swaps = False, None
        if not torch.compiler.is_compiling():
            self._prepare(x)
            apart = not self.random and self._apart(x)
            swaps = self._swaps() if apart and self.compiled is None else None
        start = 0
        while start < self.count:
            step = self.count if torch.compiler.is_compiling() else 1 if apart else self._step(x)
            part = start if apart else slice(start, start + step)
            noise = None if self.noise is None else self.noise[part]
            try:
                some = {key: value[part] for key, value in weights.items()}
                run = partial(self._halved, swaps=swaps) if apart else partial(self._call, self._some)
                again = self._fixed_one if apart else self._each
                yield self._steady(partial(self._unwritten, run), again, some, noise, x)
            except torch.OutOfMemoryError:
                if step <= 1:
                    raise
                torch.cuda.empty_cache()
                self.rows_at_once = max(1, self._at_once(x) // 2)
                continue
            start += step

    def each(self) -> Iterator[Callable[[Any], Tensor]]:
        """The functions one after the other: each takes x and gives `[batch, ...]`."""
        for i in range(self.count if self.perturbed else 1):
            own = {key: getattr(self, f"weight{index}")[i] for index, key in enumerate(self.keys)}
            noise = None if self.noise is None else self.noise[i]
            yield partial(self._fixed, own, noise)

    def first(self, x: Any) -> Tensor:
        """The outputs of the first function, `[batch, ...]`, by which is found out how rows are related."""
        like = inputs.like(self.network)
        x = inputs.apply(x, lambda t: t.to(like.device, like.dtype if t.is_floating_point() else t.dtype))
        if not self.perturbed:
            return self._one({}, None, x)
        self._prepare(x)
        own = {key: getattr(self, f"weight{index}")[0] for index, key in enumerate(self.keys)}
        return self._one(own | in_place_of_zeros(own), None if self.noise is None else self.noise[0], x)

    def replace(self, name: str, values: Tensor) -> None:
        """Give each function a value of its own of a parameter or buffer, `[n, *shape]`; one for all where n is 1."""
        if not self.perturbed:
            module, _, key = name.rpartition(".")
            self.network.get_submodule(module)._buffers[key] = values[0]
            return
        if name not in self.keys:
            self.keys.append(name)
        self.register_buffer(f"weight{self.keys.index(name)}", values)
        self.fold_from = None

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the functions at their next call, part by part: worth it for thousands of rows, or many calls."""
        self.compiled = Compiled(*args, **kwargs)

    @property
    def perturbed(self) -> bool:
        """Whether the functions differ at all."""
        return self.noise is not None or bool(self.keys)

    def _prepare(self, x: Any) -> None:
        """Find what must be known of the network before it runs, and cannot be found while it is vectorised."""
        self.sites.find_direct(self.network, x)

    def _apart(self, x: Any) -> bool:
        """Whether functions are faster one by one, each on many rows; noise then goes to the weights."""
        if self.count == 1 or not (self.keys if self.noise is None else self.sites.names):
            return False
        if self.fold_from is None:
            if self.noise is None:
                self.fold_from = folding.alone_from(self.network, self.keys)
            else:
                with ONE_AT_A_TIME:
                    self.fold_from = folding.worth_from(self.network, self.sites, x, self.noise[0])
        if self.noise is not None and torch.is_autocast_enabled(self.noise.device.type):  # which vmap leaves out
            return math.isfinite(self.fold_from)
        single = any(site.single for site in self.sites)  # computed once for all that run together
        return not single and min(inputs.rows(x) or 0, self._at_once(x)) >= self.fold_from

    def _call(self, run: Callable[..., Tensor], *args: Any) -> Tensor:
        return run(*args) if self.compiled is None else self.compiled(run, *args)

    def _swaps(self) -> Swaps | None:
        """What runs functions one by one at little cost; none where their weights are not parameters or buffers."""
        with ONE_AT_A_TIME:
            swaps = Swaps(self.network, ties=self.noise is None)
        return swaps if swaps.places.keys() >= set(self.keys) else None

    def _halved(self, weights: dict[str, Tensor], noise: Tensor | None, x: Any, swaps: Swaps | None) -> Tensor:
        """One function on many rows, or on half of them and then the others where memory is short."""
        try:
            return self._call(self._alone, weights, noise, x, swaps)
        except torch.OutOfMemoryError:
            if (inputs.rows(x) or 1) < 2 or keeps_whole(self, x):
                raise
        torch.cuda.empty_cache()
        rows, half = inputs.rows(x) or 0, (inputs.rows(x) or 0) // 2
        halves = inputs.between(x, 0, half), inputs.between(x, half, rows)
        return torch.cat([self._halved(weights, noise, part, swaps) for part in halves], 1)

    def _alone(self, weights: dict[str, Tensor], noise: Tensor | None, x: Any, swaps: Swaps | None) -> Tensor:
        """One function, `[1, batch, ...]`, its noise on the weights."""
        if noise is None:
            own = weights
        else:
            with alone():
                own = self.sites.products(self.network, noise) | weights
        if swaps is None:
            return self._with(own, x, ties=noise is None).unsqueeze(0)
        with ONE_AT_A_TIME, swaps.holding(own):
            return inputs.output(inputs.call(self.network, x), self.output).unsqueeze(0)

    def _step(self, x: Any) -> int:
        rows = inputs.rows(x) or max((len(tensor) for tensor in inputs.tensors(x)), default=1)
        return min(self.count, MOST, max(1, self._at_once(x) // max(rows, 1)))

    def _at_once(self, x: Any) -> int:
        """How many rows × functions run together: what fits a processor's cache, or a fair part of a GPU."""
        if self.rows_at_once is None:
            found = inputs.tensors(x)
            per_row = max((tensor.numel() // max(1, len(tensor)) for tensor in found), default=1)
            budget, most = (32_000_000, 16_384) if found and found[0].is_cuda else (800_000, 4_096)
            return max(16, min(most, budget // max(1, per_row)))
        return self.rows_at_once

    def _some(self, weights: dict[str, Tensor], noise: Tensor | None, x: Any) -> Tensor:
        unsaved = torch.compiler.is_exporting() and not SAVES_VMAP
        if (unsaved if self.loops is None else self.loops) or self._must_loop():
            return self._each(weights, noise, x)
        axes = (dict.fromkeys(weights, 0), None if noise is None else 0, None)
        try:
            return torch.func.vmap(self._one, in_dims=axes, randomness="different")(weights, noise, x)  # type: ignore[no-any-return]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # control flow on values, writes in place, ...: known only when it is tried
            if torch.compiler.is_compiling():
                raise
            done = self._each(weights, noise, x)
            self.loops = True
            if len(done) >= MANY:
                why = str(error).strip().partition("\n")[0]
                warnings.warn(f"{len(done)} functions run one by one: they cannot run together ({why})", stacklevel=2)
            return done

    def _each(self, weights: dict[str, Tensor], noise: Tensor | None, x: Any) -> Tensor:
        """The functions one by one."""
        n = len(noise) if noise is not None else len(next(iter(weights.values())))
        parts = [({k: w[i] for k, w in weights.items()}, None if noise is None else noise[i]) for i in range(n)]
        memory = Memory(self.network, [*self.sites.names, *self.keys]) if self.remembers and n > 1 else None
        if memory is None or not memory.certain or torch.compiler.is_compiling() or self.network.training:
            return torch.stack([self._fixed(*part, x) for part in parts])
        outputs = []
        with ONE_AT_A_TIME, memory.recalling():
            for part in parts:
                memory.again()
                outputs.append(self._fixed(*part, x))
        return torch.stack(outputs)

    def _steady(self, run: Callable[..., Tensor], again: Callable[..., Tensor], *args: Any) -> Tensor:
        """What runs; where the network turns out to be random, what comes of the functions' own streams."""
        if not (self.random or self.network.training or torch.compiler.is_compiling()):
            self.random, result = draws_random_numbers(partial(run, *args), args[-1])
            if result is not None:
                return result
            warn()
        return again(*args) if self.random else run(*args)

    def _fixed(self, weights: dict[str, Tensor], noise: Tensor | None, x: Any) -> Tensor:
        """One function, under its own stream of random numbers where the network draws any."""
        with own_stream(weights, noise, x) if self.random else contextlib.nullcontext():
            return self._unwritten(self._one, weights, noise, x)

    def _fixed_one(self, *args: Any) -> Tensor:
        return self._fixed(*args).unsqueeze(0)

    def _unwritten(
        self, run: Callable[..., Tensor], weights: dict[str, Tensor], noise: Tensor | None, x: Any
    ) -> Tensor:
        """What runs on x; a network that writes into its inputs gets a copy: the next function needs x too."""
        if self.writes is False or torch.compiler.is_compiling():
            return run(weights, noise, x)
        own = inputs.apply(x, Tensor.clone)
        before = _versions(own)
        result = run(weights, noise, own)
        self.writes = bool(self.writes) or before is None or _versions(own) != before
        return result

    def _one(self, weights: dict[str, Tensor], noise: Tensor | None, x: Any) -> Tensor:
        if noise is not None:
            return inputs.output(self.sites.run(self.network, x, noise, weights), self.output)
        return self._with(weights, x)

    def _with(self, weights: dict[str, Tensor], x: Any, ties: bool = True) -> Tensor:
        with clean(self.network):
            return inputs.output(inputs.call(self.network, x, weights, ties), self.output)

    def _must_loop(self) -> bool:
        """Recurrent layers have no rule for vmap; nor has a BatchNorm that computes statistics, or mixes precisions."""
        mixed = torch.is_autocast_enabled("cpu")
        uncertain = {*self.sites.names, *(key.rpartition(".")[0] for key in self.keys)}
        return any(
            (isinstance(module, nn.RNNBase) and name in uncertain)
            or isinstance(module, nn.RNNCellBase)
            or (isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or mixed))
            for name, module in self.network.named_modules()
        )


def _versions(x: Any) -> list[int] | None:
    """How often each tensor was written to; None where that is not counted."""
    found = inputs.tensors(x)
    return None if any(tensor.is_inference() for tensor in found) else [tensor._version for tensor in found]


def _cat(parts: list[Tensor], axis: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)
