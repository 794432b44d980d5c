"""The loss of a step as a module, compiled or not, and how it lies in memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from posterity import inputs, shares
from posterity.posterior import Posterior
from posterity.processes import Dropouts


class Objective(nn.Module):
    """The loss as a module, which is what can be compiled and distributed."""

    def __init__(
        self, posterior: Posterior, size: int, augment: Callable[[Any], Any] | None, layout: torch.memory_format
    ) -> None:
        super().__init__()
        self.posterior, self.size, self.augment, self.layout = posterior, size, augment, layout

    def forward(
        self, x: Any, y: Tensor, weight: Tensor | None, beta: Tensor, share: shares.Share | None = None
    ) -> Tensor:
        """The loss of a batch, or of the rows of it that are this process's share."""
        if share is None:
            return self._loss(x, y, weight, beta)
        with shares.taking(share), Dropouts():
            return self._loss(x, y, weight, beta)

    def _loss(self, x: Any, y: Tensor, weight: Tensor | None, beta: Tensor) -> Tensor:
        if self.augment is not None:
            x = self.augment(x)
        if self.layout == torch.channels_last:
            x = inputs.apply(x, lambda t: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t)
        return self.posterior.loss(x, y, size=self.size, beta=beta, weight=weight)


def compiled(objective: nn.Module, backend: Any) -> Any:
    """The objective, compiled; without a fusion of torch 2.11 that fails on some networks on a GPU."""
    from torch._inductor import config

    fused = backend == "inductor" and hasattr(config.triton, "mix_order_reduction")
    return torch.compile(objective, backend=backend, options={"triton.mix_order_reduction": False} if fused else None)


def layout(posterior: Posterior, device: torch.device, precision: str) -> torch.memory_format:
    """Channels last where a GPU convolves in half precision, which is what its kernels are made for."""
    images = any(isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) for module in posterior.network.modules())
    half = device.type == "cuda" and precision != "no"
    return torch.channels_last if images and half else torch.preserve_format


def arrange(network: nn.Module, layout: torch.memory_format) -> None:
    """Lay the weights of a network's convolutions out in memory."""
    for parameter in network.parameters():
        if parameter.dim() == 4 and layout != torch.preserve_format:
            parameter.data = parameter.data.contiguous(memory_format=layout)
