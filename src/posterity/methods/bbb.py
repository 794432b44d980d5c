"""Bayes by Backprop: an independent Gaussian for every weight (Blundell et al. 2015, arXiv:1505.05424).

    q(w) = Π_i N(w_i; μ_i, σ_i²),   σ = softplus(ρ),   p(w) = Π_i N(w_i; m_i, s_i²)
    loss = −E_q log p(y | x, w) + β · KL(q‖p) / N,
    KL(q‖p) = Σ_i [ log(s_i / σ_i) + (σ_i² + (μ_i − m_i)²) / (2 s_i²) − ½ ]

The expectation is estimated by one draw of the weights for the batch, or, for less variance of the gradient, by noise
of its own for every row: local reparameterisation (Kingma, Salimans & Welling 2015) draws a layer's outputs,

    y = layer(x; μ) + layer(x²; σ²)^½ ∘ ε,

which is exact where a row has one position; Flipout (Wen et al. 2018) flips signs of one draw,

    y = layer(x; μ) + t ∘ layer(x ∘ r; σ ∘ ε),   r, t = ±1 for every row and feature,

and gives all positions of a row (pixels, tokens) the same weights. Either doubles the cost of the layer.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from posterity import inputs
from posterity.errors import Error
from posterity.posterior import Description, Functions, one_of, randn
from posterity.sites import LAYERS, Site, first_rows
from posterity.weights import WeightPosterior

ESTIMATORS = ("auto", "weights", "local", "flipout")
PRIORS = ("gaussian", "scale_mixture")
WAYS = {
    "local": "local reparameterisation (its layer's outputs are drawn for each row)",
    "flipout": "Flipout (each row has signs of its own)",
    "pending": "of each row if that is right here, which the first batch tells",
}
Reasons = dict[str, str]


class BayesByBackprop(WeightPosterior):
    """Every parameter of any network has a mean and a spread of its own; a tied one is drawn once.

    Args:
        network: a template, which is left as it is; the means start at its values.
        samples: S, training draws per datum.
        prior_std: s: a number, one for each parameter tensor, or one for each weight. By default one for each tensor:
            4 / √(fan-in), which follows the width and is wide enough for a few hundred data (2 / √ and less underfit
            on validation splits); 1 for tensors of one axis; the root mean square of the given values where that is
            more.
        prior: "gaussian", with the divergence in closed form, or "scale_mixture": π N(0, s²) + (1 − π) N(0, (r s)²),
            whose divergence is estimated by one draw (the entropy of q stays exact).
        share: π of the scale mixture.
        narrow: r of the scale mixture; Blundell et al. searched 1 > r > e⁻⁸.
        centred: centre the prior on the given network's weights too, not on zero: for a network that is trained
            (Krishnan et al. 2020).
        init_std: the standard deviations start at this times those of the prior. From a small start they grow at the
            pace of the learning rate, and on few data stop short of the optimum of the bound, where a factorised
            posterior of a wide network underfits; a higher `lr_posterior` or longer training goes there.
        estimator: of the gradient: "weights" (one draw for the batch), "local", "flipout", or "auto": local
            reparameterisation where it is exact and Flipout for the other Linear and convolution layers. Parameters
            for which a layer's own noise would not be right are drawn once for the batch; `describe` says why.
        output: which part of the network's result is the answer, where it returns several.
        seed: takes part in the contract, as `generator` does; nothing is random here.
    """

    prior_std: Tensor
    sizes: Tensor
    prior_mean: Tensor | None
    relative_rate = 1.0

    def __init__(
        self,
        network: nn.Module,
        *,
        samples: int = 1,
        prior_std: float | Sequence[float] | Tensor | None = None,
        prior: str = "gaussian",
        share: float = 0.5,
        narrow: float = 0.1,
        centred: bool = False,
        init_std: float = 0.0015,
        estimator: str = "auto",
        output: str | int | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(network, samples=samples, output=output)
        self.prior, self.estimator = one_of(prior, PRIORS, "prior"), one_of(estimator, ESTIMATORS, "estimator")
        self.share, self.narrow, self.init_std, self.centred = float(share), float(narrow), float(init_std), centred
        if not (0 <= self.share <= 1 and self.narrow > 0 and self.init_std > 0):
            raise Error("share must lie between 0 and 1; narrow and init_std must be positive.")
        parameters = dict(self.network.named_parameters())
        means = self.weights.join(parameters)
        scales = torch.as_tensor(self._scales(parameters) if prior_std is None else prior_std)
        sizes = torch.tensor(self.weights.sizes, device=means.device)
        if scales.shape not in ((), sizes.shape, means.shape) or not bool(((scales > 0) & (scales < torch.inf)).all()):
            raise Error(
                f"prior_std must be a positive number, {len(sizes)} of them (one for each parameter tensor) or "
                f"{len(means)} (one for each weight)."
            )
        self.register_buffer("sizes", sizes, persistent=False)
        self.register_buffer("prior_std", scales.to(means))
        self.register_buffer("prior_mean", means.clone() if centred else None)
        self.means = nn.Parameter(means)
        stds = self.init_std * _wide(self._prior_stds())
        self.spreads = nn.Parameter((stds + torch.log(-torch.expm1(-stds))).to(means).expand_as(means).clone())
        self.noises, self.reasons = self._candidates()
        self.found: dict[bool, Reasons] = {}

    @property
    def stds(self) -> Tensor:
        """σ = softplus(ρ), `[weights]`."""
        return F.softplus(self.spreads)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws of all weights, `[n, weights]`; gradients flow."""
        return self.means + self.stds * randn((n, self.weights.size), self.means, generator)

    def forward(self, x: Any, generator: torch.Generator | None = None) -> Tensor:
        """Outputs under `samples` fresh draws, `[samples, batch, ...]`; noise is fresh for each row where it can be.

        Where all of it is noise of rows alone (local reparameterisation) the samples run together, else in turn.
        """
        ways = self._ways(x)
        if not ways:
            return super().forward(x, generator)
        local = sum(len(self.noises[name].names) for name, way in ways.items() if way == "local")
        if self.samples > 1 and local == len(self.weights.names):
            x = inputs.apply(x, lambda tensor: torch.cat([tensor] * self.samples))
            return self._disturbed(x, ways, generator).unflatten(0, (self.samples, -1))
        return torch.stack([self._disturbed(x, ways, generator) for _ in range(self.samples)])

    def divergence(self, generator: torch.Generator | None = None) -> Tensor:
        """KL(q‖p) in nats, summed over the weights: exact, or for the scale mixture by one draw."""
        means, stds, prior = _wide(self.means), _wide(self.stds), _wide(self._prior_stds())
        offset = means if self.prior_mean is None else means - _wide(self.prior_mean)
        if self.prior == "gaussian":
            return (torch.log(prior / stds) + (stds**2 + offset**2) / (2 * prior**2) - 0.5).sum()
        w = offset + stds * randn(means.shape, means, generator)
        share = torch.tensor([self.share, 1 - self.share], dtype=w.dtype, device=w.device).log()
        broad, slim = (p - (w / s) ** 2 / 2 - s.log() for p, s in zip(share, (prior, self.narrow * prior), strict=True))
        return (-0.5 - stds.log() - torch.logaddexp(broad, slim)).sum()

    def mean(self) -> Functions:
        """The network under the means of its weights."""
        weights = self.weights.split(self.means.detach().unsqueeze(0))
        return Functions(self.network, 1, weights=weights, output=self.output)

    def variational(self) -> Iterator[nn.Parameter]:
        """μ and ρ."""
        return iter((self.means, self.spreads))

    def describe(self) -> Description:
        """Every parameter, with the way its noise enters the training; buffers are not drawn."""
        training = dict(self.reasons)
        for name, noise in self.noises.items():
            training.update(dict.fromkeys(noise.names, self._found().get(name, "pending")))
        words = {key: WAYS.get(way, f"one draw for the batch ({way})") for key, way in training.items()}
        return Description(
            entry._replace(reason=f"drawn; noise in training: {words[entry.name]}") if entry.uncertain else entry
            for entry in super().describe()
        )

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return {
            "samples": self.samples,
            "prior_std": self.prior_std.tolist(),
            "prior": self.prior,
            "share": self.share,
            "narrow": self.narrow,
            "centred": self.centred,
            "init_std": self.init_std,
            "estimator": self.estimator,
            "output": self.output,
        }

    def _scales(self, parameters: dict[str, nn.Parameter]) -> list[float]:
        """A standard deviation of the prior for each parameter tensor: see `prior_std`."""
        given = (parameters[name].detach().float() for name in self.weights.names)
        sizes = (float(value.square().mean().sqrt()) if value.numel() else 0.0 for value in given)
        return [max(scale, size) for scale, size in zip(self.weights.scales(4.0, 1.0), sizes, strict=True)]

    def _prior_stds(self) -> Tensor:
        """The prior's standard deviations as `[]` or `[weights]`."""
        if self.prior_std.shape != self.sizes.shape:
            return self.prior_std
        return self.prior_std.repeat_interleave(self.sizes, output_size=self.weights.size)

    def _candidates(self) -> tuple[dict[str, "_Noise"], Reasons]:
        """Layers that may carry noise of their own, and for the parameters of all others why they may not."""
        uses: dict[int, int] = {}
        for _, parameter in self.network.named_parameters(remove_duplicate=False):
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
        noises, reasons = {}, dict.fromkeys(self.weights.names, 'estimator="weights"')
        for name, layer in self.network.named_modules() if self.estimator != "weights" else ():
            own = dict(layer.named_parameters(prefix=name, recurse=False))
            hooks = [*layer._forward_hooks.values(), *layer._forward_pre_hooks.values()]
            kind = next((base for base in LAYERS if isinstance(layer, base)), None)
            if any(uses[id(parameter)] > 1 for parameter in own.values()):
                reason = "it is tied"
            elif kind is None or type(layer).forward is not kind.forward:
                reason = f"there is no other estimator for {type(layer).__name__}"
            elif layer._modules or "weight" not in layer._parameters or len(own) > 1 + ("bias" in layer._parameters):
                reason = "its layer's weight is computed from other parameters"
            elif any(not isinstance(getattr(hook, "__self__", None), Site) for hook in hooks):
                reason = "its layer has hooks"
            else:
                noises[name] = _Noise(name, layer, list(own))
                layer.register_forward_hook(noises[name].after)
                reasons = {key: reason for key, reason in reasons.items() if key not in own}
                continue
            reasons.update(dict.fromkeys(own.keys() & reasons.keys(), reason))
        return noises, reasons

    def _found(self) -> Reasons:
        """By layer, the way of its noise or the reason why it has none: in training mode, if it was seen."""
        return self.found.get(True) or self.found.get(False) or {}

    def _ways(self, x: Any) -> Reasons:
        """By layer, the way of its noise, for those that have noise of their own in the network's present mode."""
        if self.network.training not in self.found and self.noises:
            if torch.compiler.is_compiling():  # a decorator would load the compiler with this module
                torch._dynamo.graph_break()
            self._probe(x)
        return {name: way for name, way in self.found.get(self.network.training, {}).items() if way in WAYS}

    def _probe(self, x: Any) -> None:
        """Find the layers whose rows are those of the batch: once for each mode, with batches of two and three rows.

        The network is called with leaves for weights, which every candidate layer leaves unused: where one still has
        a gradient it is used elsewhere. The network's state and the generators stay as they were.
        """
        kept = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        devices = list({tensor.device for tensor in inputs.tensors(x) if tensor.is_cuda})
        seen: list[dict[str, list[tuple[int, ...]]]] = []
        elsewhere: set[str] = set()
        try:
            with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=devices):
                leaves = {k: v.clone().requires_grad_() for k, v in self.weights.split(self.means.detach()).items()}
                for count in (2, 3):
                    few = first_rows(x, count)
                    self._start(dict.fromkeys(self.noises, "probe"), {}, None)
                    out = inputs.output(inputs.call(self.network, few, leaves), self.output)
                    seen.append({name: noise.shapes for name, noise in self.noises.items()})
                if out.requires_grad:
                    grads = torch.autograd.grad(out.sum(), list(leaves.values()), allow_unused=True)
                    elsewhere = {name for name, grad in zip(leaves, grads, strict=True) if grad is not None}
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError):
            self.found[self.network.training] = dict.fromkeys(self.noises, "the batch could not be cut into rows")
            return
        finally:
            self._stop()
            for name, buffer in self.network.named_buffers():
                if name in kept:
                    buffer.copy_(kept[name])
        self.found[self.network.training] = {
            name: self._way(noise, seen[0][name], seen[1][name], elsewhere) for name, noise in self.noises.items()
        }

    def _way(self, noise: "_Noise", two: list[tuple[int, ...]], three: list[tuple[int, ...]], used: set[str]) -> str:
        """The way of a layer's noise, from the shapes of its inputs for two and for three rows, or why it has none."""
        if len(two) != 1 or len(three) != 1:
            return "its layer is called more than once" if two else "its layer is not called as a module"
        if not two[0]:
            return "its layer is called with keywords"
        if used & set(noise.names):
            return "it is also used outside its layer"
        if two[0][:1] != (2,) or three[0] != (3, *two[0][1:]) or len(two[0]) < 1 - noise.axis:
            return "the rows of the batch are not on axis 0 of its layer's input"
        if self.estimator != "auto":
            return self.estimator
        return "local" if len(two[0]) == 2 else "flipout"

    def _disturbed(self, x: Any, ways: Reasons, generator: torch.Generator | None) -> Tensor:
        """The network's output with noise behind the layers in `ways` and one draw of all other weights."""
        weights, stds = self.weights.split(self.means), self.weights.split(self.stds)
        own = {key for name in ways for key in self.noises[name].names}
        rest = {key: stds[key].numel() for key in stds if key not in own}
        noise = randn((sum(rest.values()),), self.means, generator).split(list(rest.values()))
        for key, part in zip(rest, noise, strict=True):
            weights[key] = torch.addcmul(weights[key], stds[key], part.view_as(stds[key]))
        self._start(ways, stds, generator)
        try:
            return inputs.output(inputs.call(self.network, x, weights), self.output)
        finally:
            self._stop()

    def _start(self, ways: Reasons, stds: dict[str, Tensor], generator: torch.Generator | None) -> None:
        for name, way in ways.items():
            noise = self.noises[name]
            noise.way, noise.generator, noise.shapes = way, generator, []
            noise.stds = {key.rpartition(".")[2]: stds[key] for key in noise.names if key in stds}

    def _stop(self) -> None:
        for noise in self.noises.values():
            noise.way, noise.generator, noise.stds = None, None, {}


class _Noise(Site):
    """The noise of one layer's weights, added behind the layer; the layer itself runs with the means."""

    def __init__(self, name: str, layer: nn.Module, names: list[str]) -> None:
        super().__init__(name, layer, ("input", "output"))
        self.names = names
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
        std = variance.clamp(min=1e-12).sqrt().to(result.dtype)
        return torch.addcmul(result, std, randn(tuple(result.shape), result, self.generator))

    def _flipout(self, layer: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor:
        """result + t ∘ layer(x ∘ r; σ ∘ ε)."""
        draw = {key: std * randn(tuple(std.shape), std, self.generator) for key, std in self.stds.items()}
        x = args[0] * self._signs(args[0], self.sizes["input"])
        return torch.addcmul(result, _call(layer, draw, (x, *args[1:])), self._signs(result, self.sizes["output"]))

    def _signs(self, values: Tensor, size: int) -> Tensor:
        """±1 for every row and feature, shaped to multiply `values`."""
        shape = [len(values), *[1] * (values.dim() - 1)]
        shape[self.axis] = size
        return 1 - 2 * (randn(tuple(shape), values, self.generator) < 0).to(values.dtype)


def _call(layer: nn.Module, weights: dict[str, Tensor], args: tuple[Any, ...]) -> Tensor:
    """The layer with these weights in place of its own."""
    if isinstance(layer, nn.Linear):
        return F.linear(args[0], weights["weight"], weights.get("bias"))
    return functional_call(layer, weights, args)  # type: ignore[no-any-return]


def _wide(values: Tensor) -> Tensor:
    """At least float32: a sum over all weights in half precision loses its digits."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
