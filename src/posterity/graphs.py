"""The whole step of the optimiser as one CUDA graph: a small network's step is a hundred launches, which cost more than
the arithmetic.
"""

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posterity import inputs
from posterity.branches import branching
from posterity.loading import Batch

#: Steps that run as they are before one is captured: lazy initialisation, probes and the choice of kernels come first.
WARM_UP = 3


class Graph:
    """Calls `step(batch)` or, where a batch has the shapes of one that was captured, replays it.

    Replaying consumes torch's CUDA generator as the step itself does, so both give the same numbers. A step that cannot
    be captured (it waits for the device, or draws random numbers elsewhere, which a replay would repeat) runs as it is.

    Args:
        step: a function of tensors alone that returns the loss.
        device: a CUDA device.
    """

    def __init__(self, step: Callable[[Batch], Tensor], device: torch.device) -> None:
        self.step, self.device = step, device
        self.stream = torch.cuda.Stream(device)
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.given: Batch | None = None
        self.loss: Tensor | None = None
        self.works = True

    def __call__(self, batch: Batch) -> Tensor:
        """The loss before the step."""
        self.calls += 1
        if self.works and self.graph is None and self.calls > WARM_UP:
            self._capture(batch)
        if self.graph is None or self.loss is None or _shapes(batch) != _shapes(self.given):
            return self._run(batch)
        for mine, new in zip(_tensors(self.given), _tensors(batch), strict=True):
            mine.copy_(new)
        self.graph.replay()
        return self.loss

    def _run(self, batch: Batch) -> Tensor:
        """The step as it is, on the stream that captures: what warms up must be what is captured."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream), branching(self.works):
            loss = self.step(batch)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return loss

    def _capture(self, batch: Batch) -> None:
        """Capture a step on copies of the batch; nothing is computed and the generators stay where they are."""
        seen = _elsewhere()
        state = torch.cuda.get_rng_state(self.device)
        given = Batch(*(None if part is None else inputs.apply(part, Tensor.clone) for part in batch))
        graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        torch.cuda.synchronize(self.device)
        try:
            with torch.cuda.graph(graph, stream=self.stream), branching():
                loss = self.step(given)
            if _elsewhere() != seen:
                raise RuntimeError("the step draws random numbers outside the device")
        except Exception as error:
            self.works = False
            torch.cuda.set_stream(here)  # a capture that breaks stays on its own
            torch.cuda.synchronize(self.device)
            _released(self.device)
            reason = str(error).partition("\n")[0]
            warnings.warn(f"The step cannot be captured as a CUDA graph, so it runs as it is: {reason}.", stacklevel=2)
        else:
            self.graph, self.given, self.loss = graph, given, loss
        finally:
            torch.cuda.set_rng_state(state, self.device)


def _released(device: torch.device) -> None:
    """Free the generator from a capture that broke: it would refuse to draw outside a graph."""
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(generator.clone_state())


def _elsewhere() -> tuple[Any, ...]:
    """The state of the generators that a graph does not hold."""
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index,union-attr]


def _tensors(batch: Batch | None) -> list[Tensor]:
    return [tensor for part in batch or () for tensor in inputs.tensors(part)]


def _shapes(batch: Batch | None) -> list[Any]:
    """What must be equal for a replay; parts that are no tensors are compared as they are."""
    return [_shape(part) for part in batch or ()]


def _shape(part: Any) -> Any:
    if isinstance(part, Tensor):
        return (tuple(part.shape), part.dtype) if part.dim() else id(part)  # a number alone is not copied
    if isinstance(part, dict):
        return {key: _shape(value) for key, value in part.items()}
    return tuple(map(_shape, part)) if isinstance(part, tuple) else part
