"""Gaussian weights in training: noise of its own for every row of a batch, where a layer has it.

One draw of the weights for a batch makes the errors of its rows alike, so the gradient does not get calmer with more
rows. For a layer whose weights have means μ and standard deviations σ, two estimators avoid that, at the cost of a
second pass through the layer. Local reparameterisation (Kingma, Salimans & Welling 2015) draws the layer's outputs,

    y = layer(x; μ) + layer(x²; σ²)^½ ∘ ε,

which is exact where a row has one position; Flipout (Wen et al. 2018) flips signs of one draw,

    y = layer(x; μ) + t ∘ layer(x ∘ r; σ ∘ ε),   r, t = ±1 for every row and feature,

and gives all positions of a row (pixels, tokens) the same weights.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from posterity import inputs, shares
from posterity.layers import is_plain
from posterity.nodes import Site
from posterity.posterior import randn
from posterity.rows import first_rows
from posterity.state import alone, clean, recomputed, untouched
from posterity.transforms import plain, untransformed
from posterity.weights import Weights

ESTIMATORS = ("auto", "weights", "local", "flipout")
WAYS = {
    "local": "local reparameterisation (its layer's outputs are drawn for each row)",
    "flipout": "Flipout (each row has signs of its own)",
    "pending": "of each row if that is right here, which the first batch tells",
}


class Noises:
    """Runs a network under Gaussian weights; each layer's noise enters in the way that is right for it.

    Args:
        network: its layers get hooks, which do nothing outside a call of `run`.
        weights: the parameters that are drawn.
        estimator: "auto" (local reparameterisation where it is exact, Flipout for other Linear layers, one draw for
            the rest), "local" or "flipout" wherever a layer has it, or "weights": one draw for all.
        output: which part of the network's result is the answer.
    """

    def __init__(self, network: nn.Module, weights: Weights, estimator: str, output: str | int | None) -> None:
        self.network, self.weights, self.estimator, self.output = network, weights, estimator, output
        self.layers, self.reasons = self._candidates()
        self.found: dict[tuple[bool, tuple[int, ...]], dict[str, str]] = {}

    def ways(self, x: Any, means: dict[str, Tensor]) -> dict[str, str]:
        """By layer, the way of its noise, for those that have noise of their own.

        It is found once for each mode of the network and each number of axes of x, by which it may go another way.
        """
        key = self.network.training, inputs.axes(x)
        if key not in self.found and self.layers:
            if torch.compiler.is_compiling():  # a decorator would load the compiler with this module
                torch._dynamo.graph_break()
            with alone():
                self.found[key] = self._probe(x, means)
        return {name: way for name, way in self.found.get(key, {}).items() if way in WAYS}

    def all_local(self, ways: dict[str, str]) -> bool:
        """Whether no weight at all is drawn for the batch."""
        local = sum(len(self.layers[name].names) for name, way in ways.items() if way == "local")
        return local == len(self.weights.names)

    def run(
        self,
        x: Any,
        means: dict[str, Tensor],
        stds: dict[str, Tensor],
        ways: dict[str, str],
        generator: torch.Generator | None,
    ) -> Tensor:
        """The network's output with noise behind the layers in `ways` and one draw of all other weights."""
        own = {key for name in ways for key in self.layers[name].names}
        rest = {key: stds[key].numel() for key in stds if key not in own}
        noise = randn((sum(rest.values()),), next(iter(means.values())), generator).split(list(rest.values()))
        weights = dict(means)
        for key, part in zip(rest, noise, strict=True):
            weights[key] = torch.addcmul(means[key], stds[key], part.view_as(stds[key]))
        with alone():
            self._start(ways, stds, generator)
            try:
                with clean(self.network):
                    return inputs.output(inputs.call(self.network, x, weights), self.output)
            finally:
                self._stop()

    def words(self) -> dict[str, str]:
        """For each drawn parameter how its noise enters the training, in words."""
        found = dict(self.found[max(self.found)]) if self.found else {}
        training = dict(self.reasons)
        for name, layer in self.layers.items():
            training.update(dict.fromkeys(layer.names, found.get(name, "pending")))
        return {key: WAYS.get(way, f"one draw for the batch ({way})") for key, way in training.items()}

    def _candidates(self) -> tuple[dict[str, "_Layer"], dict[str, str]]:
        """Layers that may carry noise of their own, and for the parameters of all others why they may not."""
        uses: dict[int, int] = {}
        for _, parameter in self.network.named_parameters(remove_duplicate=False):
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
        layers, reasons = {}, dict.fromkeys(self.weights.names, 'estimator="weights"')
        for name, layer in self.network.named_modules() if self.estimator != "weights" else ():
            own = dict(layer.named_parameters(prefix=name, recurse=False))
            hooks = [*layer._forward_hooks.values(), *layer._forward_pre_hooks.values()]
            hooks = [hook for hook in hooks if hook is not recomputed]
            if not own.keys() <= self.weights.shapes.keys():
                reason = "its layer has other parameters, which are not drawn"
            elif any(uses[id(parameter)] > 1 for parameter in own.values()):
                reason = "it is tied"
            elif not is_plain(layer):
                reason = f"there is no other estimator for {type(layer).__name__}"
            elif layer._modules or "weight" not in layer._parameters or len(own) > 1 + ("bias" in layer._parameters):
                reason = "its layer's weight is computed from other parameters"
            elif any(not isinstance(getattr(hook, "__self__", None), Site) for hook in hooks):
                reason = "its layer has hooks"
            else:
                layers[name] = _Layer(name, layer, list(own))
                layer.register_forward_hook(layers[name].after)
                reasons = {key: reason for key, reason in reasons.items() if key not in own}
                continue
            reasons.update(dict.fromkeys(own.keys() & reasons.keys(), reason))
        return layers, reasons

    def _probe(self, x: Any, means: dict[str, Tensor]) -> dict[str, str]:
        """Find the layers whose rows are those of the batch: once for each mode, with batches of two and three rows.

        The network is called with leaves for weights, which every candidate layer leaves unused: where one still has
        a gradient it is used elsewhere. The network's state and the generators stay as they were.
        """
        seen: list[dict[str, list[tuple[int, ...]]]] = []
        elsewhere: set[str] = set()
        try:
            with (
                untransformed(self.network, x) as x,
                untouched(self.network, x),
                torch.inference_mode(False),
                torch.enable_grad(),
            ):
                leaves = {key: plain(value).detach().clone().requires_grad_() for key, value in means.items()}
                for count in (2, 3):
                    few = first_rows(x, count)
                    self._start(dict.fromkeys(self.layers, "probe"), {}, None)
                    out = inputs.output(inputs.call(self.network, few, leaves), self.output)
                    seen.append({name: layer.shapes for name, layer in self.layers.items()})
                if out.requires_grad:
                    grads = torch.autograd.grad(out.sum(), list(leaves.values()), allow_unused=True)
                    elsewhere = {name for name, grad in zip(leaves, grads, strict=True) if grad is not None}
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError):
            return dict.fromkeys(self.layers, "the batch could not be cut into rows")
        finally:
            self._stop()
        return {name: self._way(layer, seen[0][name], seen[1][name], elsewhere) for name, layer in self.layers.items()}

    def _way(self, layer: "_Layer", two: list[tuple[int, ...]], three: list[tuple[int, ...]], used: set[str]) -> str:
        """The way of a layer's noise, from the shapes of its inputs for two and for three rows, or why it has none."""
        if len(two) != 1 or len(three) != 1:
            return "its layer is called more than once" if two else "its layer is not called as a module"
        if not two[0]:
            return "its layer is called with keywords"
        if used & set(layer.names):
            return "it is also used outside its layer"
        if two[0][:1] != (2,) or three[0] != (3, *two[0][1:]) or len(two[0]) < 1 - layer.facts.axis:
            return "the rows of the batch are not on axis 0 of its layer's input"
        if self.estimator != "auto":
            return self.estimator
        if len(two[0]) == 2:
            return "local"
        return "flipout" if layer.linear else "Flipout would double the cost of its convolution"

    def _start(self, ways: dict[str, str], stds: dict[str, Tensor], generator: torch.Generator | None) -> None:
        for name, way in ways.items():
            layer = self.layers[name]
            layer.way, layer.generator, layer.shapes = way, generator, []
            layer.stds = {key.rpartition(".")[2]: stds[key] for key in layer.names if key in stds}

    def _stop(self) -> None:
        for layer in self.layers.values():
            layer.way, layer.generator, layer.stds = None, None, {}


class _Layer(Site):
    """The noise of one layer's weights, added behind the layer; the layer itself runs with the means."""

    def __init__(self, name: str, layer: nn.Module, names: list[str]) -> None:
        super().__init__(name, layer, ("input", "output"))
        self.names, self.linear = names, isinstance(layer, nn.Linear)
        self.way: str | None = None
        self.stds: dict[str, Tensor] = {}
        self.generator: torch.Generator | None = None
        self.shapes: list[tuple[int, ...]] = []

    def after(self, layer: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor | None:
        """Hook: add the noise. The layer is called again for it, and is left alone then."""
        way, self.way = self.way, None
        if way is None:
            return None
        try:
            if way == "probe":
                return self._note(layer, args, result)
            return self._local(layer, args, result) if way == "local" else self._flipout(layer, args, result)
        finally:
            self.way = way

    def _note(self, layer: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor:
        """Note the input's shape; the result does not depend on the weights any more."""
        self.shapes.append(tuple(args[0].shape) if args else ())
        if not args:
            return result
        fixed = {key: value.detach() for key, value in layer.named_parameters(recurse=False)}
        return _call(layer, fixed, args)

    def _local(self, layer: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor:
        """result + layer(x²; σ²)^½ ∘ ε, without the squares in float16, which has no room for them."""
        device, x, stds = result.device.type, args[0], self.stds
        narrow = result.dtype == torch.float16
        if narrow:
            x, stds = x.float(), {key: std.float() for key, std in stds.items()}
        with torch.autocast(device, enabled=torch.is_autocast_enabled(device) and not narrow):
            variance = _call(layer, {key: std**2 for key, std in stds.items()}, (x**2, *args[1:]))
        there = variance > 0  # the root has no gradient at zero, and nothing is uncertain there
        std = (torch.where(there, variance, 1.0).sqrt() * there).to(result.dtype)
        return torch.addcmul(result, std, shares.randn(tuple(result.shape), result, self.generator))

    def _flipout(self, layer: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor:
        """result + t ∘ layer(x ∘ r; σ ∘ ε)."""
        draw = {key: std * randn(tuple(std.shape), std, self.generator) for key, std in self.stds.items()}
        x = args[0] * self._signs(args[0], self.sizes["input"])
        return torch.addcmul(result, _call(layer, draw, (x, *args[1:])), self._signs(result, self.sizes["output"]))

    def _signs(self, values: Tensor, size: int) -> Tensor:
        """±1 for every row and feature, shaped to multiply `values`."""
        shape = [len(values), *[1] * (values.dim() - 1)]
        shape[self.facts.axis] = size
        return shares.randn(tuple(shape), values, self.generator).sign()


def _call(layer: nn.Module, weights: dict[str, Tensor], args: tuple[Any, ...]) -> Tensor:
    """The layer with these weights in place of its own."""
    if isinstance(layer, nn.Linear):
        return F.linear(args[0], weights["weight"], weights.get("bias"))
    return functional_call(layer, weights, args)  # type: ignore[no-any-return]
