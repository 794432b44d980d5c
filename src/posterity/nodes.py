"""Noise at one layer: what goes in, what comes out, or its weights are multiplied by random numbers."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.rnn import PackedSequence

from posterity.errors import Error
from posterity.layers import Features, features, is_plain
from posterity.rows import Layout
from posterity.transforms import is_transformed


class Folded(Exception):
    """Positions share the axis of rows in a way that is not known yet."""


class Site:
    """Noise at one layer: `z ∘ input`, `s ∘ output` and `z_b · bias`, each where it is wanted.

    Noise is either one vector `[features]` for every row (a drawn function) or `[rows, features]` (training).
    A layer with a single input feature is linear in it. For a drawn function the noise is then applied behind the
    layer, which is computed once for all draws; in training the gradient of a convolution's noise is read off its
    output (see `_Tap`) where its input needs none, because a gradient of the input would be more than half of a
    LeNet's step.
    """

    def __init__(self, name: str, layer: nn.Module, kinds: tuple[str, ...]) -> None:
        facts = features(layer)
        if facts is None:
            raise Error(f"The layer {name!r} ({type(layer).__name__}) has no inputs that can carry noise.")
        self.name, self.facts = name, facts
        self.arguments = list(facts.inputs)
        sizes = {argument: getattr(layer, size) for argument, size in facts.inputs.items() if "input" in kinds}
        self.inner = [key for key in facts.inner if "input" in kinds and _holds(layer, key)]
        sizes |= {key: getattr(layer, facts.inner[key]) for key in self.inner}
        if "output" in kinds and facts.outputs is not None:
            sizes["output"] = getattr(layer, facts.outputs)
        if "bias" in kinds and facts.outputs is not None and isinstance(getattr(layer, "bias", None), Tensor):
            sizes["bias"] = 1
        self.sizes: dict[str, int] = sizes
        self.single = sizes.get("input") == 1 and is_plain(layer)
        self.layouts: dict[str, Layout] = {}
        self.shared: str | None = None
        self.missing: str | None = None
        self.direct = self.called = self.keep = self.tapped = False
        self.noise: dict[str, Tensor] | None = None
        self.seen: list[dict[str, Any]] | None = None
        self.results: list[tuple[Tensor, int]] = []
        self.value: Tensor | None = None
        self.overwritten = True

    @property
    def size(self) -> int:
        """How many numbers this site takes."""
        return sum(self.sizes.values())

    def set(self, noise: Tensor | None) -> None:
        """Give noise `[..., size]` to this site, or None to make it inert."""
        if noise is None:
            self.noise = None
        else:
            self.noise = dict(zip(self.sizes, noise.split(list(self.sizes.values()), dim=-1), strict=True))

    def before(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Pre-hook: multiply the inputs."""
        self.called = True
        if self.seen is not None:
            given = {key: value for key, (_, value) in self._given(args, kwargs).items() if isinstance(value, Tensor)}
            self.seen.append({k: v.detach().clone() if self.keep else tuple(v.shape) for k, v in given.items()})
        if self.noise is None and torch._C._current_graph_task_id() != -1:
            raise Error(
                f"The layer {self.name!r} is computed again in the backward pass (gradient checkpointing), when its "
                "noise is gone: gradients would be wrong. Turn that off, or leave the layer out with layers=."
            )
        if self.noise is None or self.direct:
            return None
        if self.missing is not None:
            self.missing, self.shared = None, "the network did not call it when rows were looked for"
        if self.single and self.noise["input"].dim() == 1:
            return None
        changed, named = list(args), dict(kwargs)
        for key, (at, value) in self._given(args, kwargs).items():
            if key in self.noise:
                self.tapped = self.single and _can_be_tapped(layer, value)
                noise = self.noise[key].detach() if self.tapped else self.noise[key]
                product = self._times(value, noise, key)
                self.value = value if self.tapped else None
                if isinstance(at, int):
                    changed[at] = product
                else:
                    named[at] = product
        return tuple(changed), named

    def after(self, layer: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor | None:
        """Hook: multiply the bias and the output, and the input of a layer that has only one feature."""
        if self.seen is not None and self.single and isinstance(result, Tensor):
            self.results.append((result, _version(result)))
        if self.noise is None or self.direct or not isinstance(result, Tensor):
            return None
        bias = getattr(layer, "bias", None)
        if self.single and self.noise["input"].dim() == 1:
            z = self._spread(self.noise["input"], result)
            result = result * z if bias is None else torch.addcmul((1 - z) * self._spread(bias, result), result, z)
        elif self.tapped:
            result, self.value = self._tap(layer, result), None
        if "bias" in self.noise and bias is not None:
            result = result + (self._spread(self.noise["bias"], result) - 1) * self._spread(bias, result)
        if "output" in self.noise:
            result = result * self._spread(self.noise["output"], result)
        return result

    def _tap(self, layer: nn.Module, result: Tensor) -> Tensor:
        """The result, which gives the noise its gradient."""
        again = None if torch.compiler.is_compiling() else layer._conv_forward
        z = self._spread(self.noise["input"], result) if self.noise else None
        weight, bias = layer._parameters["weight"], layer._parameters["bias"]
        return _Tap.apply(result, z, weight, bias, self.value, again, self.overwritten)  # type: ignore[no-any-return]

    def watched(self) -> None:
        """The network has run: nothing more is noted, and whether it wrote into what the layer had said."""
        if self.results:
            self.overwritten = any(_version(result) != version for result, version in self.results)
        self.seen, self.keep, self.results = None, False, []

    def words(self) -> str:
        """What carries noise here, and whether rows have noise of their own in training."""
        plain = ("input", "output", "bias")
        counts = [f"{n} {kind}{'s' * (n > 1)}" if kind in plain else f"{n} of {kind}" for kind, n in self.sizes.items()]
        words = f"noise on {', '.join(counts)}"
        if self.shared or self.direct:
            return f"{words}; in training one for the whole batch, because {self.shared or 'it is used without a call'}"
        inner = " and ".join(self.inner)
        return f"{words}; in training one for the whole batch at {inner}" if inner else words

    def multiplies(self, key: str) -> bool:
        """Whether the noise makes the layer's parameter of this name uncertain."""
        if "bias" in key:
            return "output" in self.sizes or "bias" in self.sizes
        inside = any(key.startswith(f"{inner.rpartition('.')[0]}.") for inner in self.facts.inner)
        return key in self.inner if inside else self.facts.meets in key

    def parameters(self, network: nn.Module) -> dict[str, Tensor]:
        """What to call the network with where noise meets no input: W diag(z), with the noise of the first row."""
        noise = {kind: z if z.dim() == 1 else z[0] for kind, z in (self.noise or {}).items()}
        layer = network.get_submodule(self.name)
        found = _product(layer, self.facts, noise) if self.direct else {}
        for key in self.inner:
            parameter = layer.get_parameter(key)
            found[key] = parameter * noise[key].to(parameter.dtype)
        return self._named(found)

    def products(self, network: nn.Module, noise: Tensor) -> dict[str, Tensor]:
        """The parameters of a linear layer under noise `[size]`."""
        parts = dict(zip(self.sizes, noise.split(list(self.sizes.values())), strict=True))
        return self._named(_product(network.get_submodule(self.name), self.facts, parts))

    def _named(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        """The layer's own parameters under the names that the network has for them."""
        return {f"{self.name}.{key}" if self.name else key: p for key, p in own.items()}

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, tuple[int | str, Any]]:
        """The inputs that carry noise, each with its place among the arguments."""
        given: dict[str, tuple[int | str, Any]] = {}
        for index, argument in enumerate(self.arguments):
            at: int | str | None = index if index < len(args) else argument if argument in kwargs else None
            if at is None and index == 0:  # a subclass may have another name for it
                at = next((key for key, value in kwargs.items() if isinstance(value, Tensor)), None)
            value = None if at is None else args[at] if isinstance(at, int) else kwargs[at]
            if at is not None and isinstance(value, (Tensor, PackedSequence)):
                given[argument] = at, value
        return given

    def _times(self, value: Any, noise: Tensor, argument: str) -> Any:
        if not isinstance(value, PackedSequence):
            if value.shape[self.facts.axis] != noise.shape[-1]:  # one alone would be spread over all
                raise Error(
                    f"The layer {self.name!r} takes {noise.shape[-1]} features, but its inputs, of shape "
                    f"{tuple(value.shape)}, have {value.shape[self.facts.axis]}."
                )
            return value * self._spread(noise, value, argument)
        if noise.dim() > 1:
            order = torch.arange(len(noise)) if value.sorted_indices is None else value.sorted_indices
            index = torch.cat([order[:length] for length in value.batch_sizes.tolist()])
            noise = noise[index] if len(order) == len(noise) else noise[0]
        return value._replace(data=value.data * noise.to(value.data.dtype))

    def _spread(self, noise: Tensor, values: Tensor, argument: str | None = None) -> Tensor:
        """Noise `[features]` or `[rows, features]`, shaped and repeated to multiply `values`."""
        noise, axis = noise.to(values.dtype), self.facts.axis
        layout = self.layouts.get(argument or self.arguments[0])
        if noise.dim() > 1 and (layout is None or layout.axis is None or self.shared):
            noise = noise[0]
        if noise.dim() == 1 or layout is None or layout.axis is None:
            return noise.view(-1, *(1,) * (-axis - 1))
        copies, remainder = divmod(values.shape[layout.axis], noise.shape[0])
        if remainder or (copies > 1 and layout.blocked is None):
            raise Folded(self.name)
        if copies > 1:
            noise = noise.repeat_interleave(copies, 0) if layout.blocked else noise.repeat(copies, 1)
        shape, axis = [1] * values.dim(), values.dim() + axis
        shape[layout.axis], shape[axis] = noise.shape
        return (noise if layout.axis < axis else noise.T).reshape(shape)


def _version(tensor: Tensor) -> int:
    """How often it was written to; tensors of the inference mode do not count that."""
    return 0 if tensor.is_inference() else tensor._version


class Bare(Site):
    """Noise on a matrix that a module holds by itself.

    What is called `weight` is taken to be `[outputs, inputs, ...]`, as torch has it, all else `[..., inputs, outputs]`:
    there is one number for each input.
    """

    def __init__(self, name: str, parameter: Tensor) -> None:
        self.name, self.arguments, self.inner, self.facts = name, [], [], Features({})
        last = max(axis for axis, size in enumerate(parameter.shape) if size > 1)
        inputs = [1] if name.rpartition(".")[2] == "weight" and parameter.shape[1] > 1 else range(last)
        self.shape = [size if axis in inputs else 1 for axis, size in enumerate(parameter.shape)]
        self.sizes = {"input": math.prod(self.shape)}
        self.layouts, self.shared, self.missing, self.seen, self.noise = {}, None, None, None, None
        self.direct, self.called, self.single, self.keep = True, False, False, False
        self.results, self.overwritten = [], False

    def parameters(self, network: nn.Module) -> dict[str, Tensor]:
        """The matrix times the noise (of the first row)."""
        if self.noise is None:
            return {}
        noise, parameter = self.noise["input"], network.get_parameter(self.name)
        return {self.name: parameter * (noise if noise.dim() == 1 else noise[0]).view(self.shape).to(parameter.dtype)}


def _holds(layer: nn.Module, key: str) -> bool:
    """Whether a layer has a parameter of this name, which nothing computes."""
    at, _, own = key.rpartition(".")
    return own in layer.get_submodule(at)._parameters


def _product(layer: nn.Module, facts: Features, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weight and bias of a linear layer whose inputs, outputs and bias are multiplied, each `[features]`."""
    weight, bias = layer.get_parameter("weight"), layer._parameters.get("bias")
    groups = getattr(layer, "groups", 1)
    parts = weight.view(groups, weight.shape[0] // groups, weight.shape[1], -1)
    out = noise.get("output", torch.ones_like(weight[0, 0].view(-1)[:1]))
    if "input" in noise:
        parts = parts * noise["input"].view((groups, -1, 1, 1) if facts.transposed else (groups, 1, -1, 1)).to(weight)
    if "output" in noise:
        parts = parts * out.view((groups, 1, -1, 1) if facts.transposed else (groups, -1, 1, 1)).to(weight)
    found = {"weight": parts.view_as(weight)}
    if bias is not None:
        found["bias"] = bias * (out * noise.get("bias", torch.ones_like(out[:1]))).to(bias)
    return found


def _can_be_tapped(layer: nn.Module, value: Any) -> bool:
    """Whether the gradient of the noise at a layer's input, which needs none itself, is cheaper behind the layer."""
    own = isinstance(layer, _ConvNd) and hasattr(layer, "_conv_forward") and "weight" in layer._parameters
    return own and not value.requires_grad and not is_transformed()


class _Tap(torch.autograd.Function):
    """The identity on y = z · u + b, u = W ∗ x, with the gradient of z: ⟨g, u⟩ = ⟨g, y − b⟩ / z.

    y was computed from z without a graph. Where a graph of the gradient is made (create_graph=True), y is computed
    again by the plain product, so that derivatives of the gradient are those of z ∘ x.
    """

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        z: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        x: Tensor,
        again: Callable[..., Tensor] | None,
        overwritten: bool,
    ) -> Tensor:
        ctx.save_for_backward(y, z, weight, bias, x)
        ctx.again = again
        return y.clone() if overwritten else y.view_as(y)  # ReLU(inplace=True) cannot write into a view

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        y, z, weight, bias, x = ctx.saved_tensors
        if ctx.again is not None and torch.is_grad_enabled():
            product = ctx.again(x * z.to(x.dtype), weight, bias)
            wanted = [t for t, needed in zip((z, weight, bias), ctx.needs_input_grad[1:4], strict=True) if needed]
            found = iter(torch.autograd.grad(product, wanted, g.to(product.dtype), create_graph=True))
            return None, *(next(found) if needed else None for needed in ctx.needs_input_grad[1:4]), None, None, None
        inner = (g * y).sum_to_size(z.shape)
        if bias is not None:
            bias = bias.detach().to(g.dtype).view(-1, *(1,) * (weight.dim() - 2))
            behind = tuple(range(1 - bias.dim(), 0))
            inner = inner - (g.sum(behind, keepdim=True) * bias).sum_to_size(z.shape)
        return g, inner / torch.where(z.abs() < 1e-6, 1e-6, z), None, None, None, None, None
