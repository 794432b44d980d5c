"""Do the rows of a batch interact in a network? Found by value, once; and the one rule by which data are cut.

Rows interact where a row's output depends on the rows beside it: attention between rows, graphs of neighbours, batch
normalisation without running statistics. Six rows go through the network, then the first two of them three times over,
then those two alone: the outputs of the two must be the same each time, but for rounding.
"""

import enum
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from posterity import inputs
from posterity.errors import Error
from posterity.explaining import sequence_first
from posterity.rows import FAILURES, encoders, evaluation_mode, unnested
from posterity.state import alone, random_states, untouched
from posterity.transforms import untransformed

if TYPE_CHECKING:
    from posterity.functions import Functions
    from posterity.posterior import Posterior

#: Rows of which different ones are chosen for the passes, and how many of these there are.
LOOKED_AT, PASSED = 32, 6
#: Numbers of rows, at most, among which the nearest row is looked for.
COMPARED = 2**18
#: Outputs are the same within ε^power of the largest. In a batch of the same size a row at the same place is rounded
#: alike by nearly all kernels, at another place by most; another number of rows may take other kernels.
SAME_PLACE, OTHER_PLACE, OTHER_NUMBER = 2 / 3, 1 / 2, 1 / 3


class Interaction(enum.Enum):
    """How the rows of an input are related in a network."""

    APART = "each row by itself"
    TOGETHER = "rows interact"
    WHOLE = "the network takes all rows, but not a few of them"
    RANDOM = "the network draws random numbers"


def keeps_whole(functions: "Functions", x: Any, batch_size: int | None = None) -> bool:
    """Whether drawn functions must have all rows of x at once.

    With `batch_size`, in which a user says which rows go together, it is whether the network takes all but not so many.
    """
    if torch.compiler.is_compiling() or inputs.rows(x) is None:
        return True
    kind = _kind(functions.network, x)
    with alone():
        if (found := functions.relations.get(kind)) is None:
            found, lasting = find(functions.network, functions.first, x)
            if lasting:
                functions.relations[kind] = found
    if batch_size is None:
        return found is not Interaction.APART
    few = found is Interaction.WHOLE and takes(functions.network, functions.first, inputs.between(x, 0, batch_size))
    return found is Interaction.WHOLE and not few


_KNOWN: "WeakKeyDictionary[nn.Module, tuple[Any, dict[Any, Interaction]]]" = WeakKeyDictionary()


def known(network: nn.Module) -> dict[Any, Interaction]:
    """What was found of a network, by kind of inputs; nothing any more once its parameters are others."""
    state = hash(tuple((id(p), 0 if p.is_inference() else p._version) for p in network.parameters()))
    before, found = _KNOWN.get(network, (None, {}))
    if before != state:
        _KNOWN[network] = state, (found := {})
    return found


@torch.no_grad()
def find(network: nn.Module, call: Callable[[Any], Tensor], x: Any) -> tuple[Interaction, bool]:
    """How the rows of x are related, and whether other inputs of this kind will be alike.

    Args:
        network: whose buffers, and torch's generators, are left as they were.
        call: the network's output for some rows.
        x: inputs that agree on a number of rows.
    """
    with alone(), untransformed(network, x) as x, untouched(network, x):
        chosen = _chosen(x)

        def output(rows: list[int]) -> Tensor:
            return call(inputs.take(x, torch.tensor(rows))).clone()  # it may be a buffer of the network's

        states = random_states(x)
        try:
            six, pair = (chosen * PASSED)[:PASSED], (chosen * 2)[:2]
            some = output(six)
            drew = random_states(x) != states  # or another thread did
            found = _compared(some, output(pair * (PASSED // 2)))
            if found is Interaction.APART:
                found = _compared(some, output(pair))
            if (drew or found is not Interaction.APART) and not close(output(six), some):
                return Interaction.RANDOM, True
        except FAILURES:
            whole = takes(network, call, x)
            return (Interaction.WHOLE if whole else Interaction.APART), whole
    return found, len(chosen) > 2


def takes(network: nn.Module, call: Callable[[Any], Tensor], x: Any) -> bool:
    """Whether a network runs on x."""
    try:
        with alone(), untouched(network, x), torch.no_grad():
            call(inputs.apply(x, Tensor.clone))  # it may write into its inputs
    except FAILURES:
        return False
    return True


def pieces(functions: "Functions", x: Any, batch_size: int | None = None, default: int = 1024) -> Iterator[Any]:
    """x in pieces of `batch_size` rows; by default of so many, and whole where its rows interact.

    Whole too where the network takes all rows, but not `batch_size` of them.
    """
    rows, step = inputs.rows(x), batch_size or default
    if rows is None or (step < rows and keeps_whole(functions, x, batch_size)):
        yield x
        return
    for start in range(0, rows, step):
        yield inputs.between(x, start, start + step)


def _kind(network: nn.Module, x: Any) -> tuple[Any, ...]:
    """What decides how rows are related: the kind of x, and the mode of each module."""
    rows = tuple((tuple(tensor.shape[1:]), tensor.dtype) for tensor in inputs.tensors(x))
    return rows, tuple(module.training for module in network.modules())


def _chosen(x: Any) -> list[int]:
    """The numbers of some rows from all over x, of which no two are equal: equal ones show no interaction.

    The first has its nearest one in the third place: rows may interact with near neighbours alone.
    """
    rows = inputs.rows(x) or 0
    found: dict[str, int] = {}
    for row in torch.linspace(0, rows - 1, min(rows, LOOKED_AT), dtype=torch.float64).round().long().tolist():
        found.setdefault(inputs.fingerprint(inputs.between(x, row, row + 1)), row)
    numbers = list(found.values())
    if len(numbers) < 3:
        return numbers
    first, near = _neighbours(x, numbers)
    others = [row for row in numbers if row not in (first, near)]
    others = others[:: max(1, len(others) // PASSED)]
    return [first, *others[:1], near, *others[1:]][:PASSED]


def _neighbours(x: Any, numbers: list[int]) -> tuple[int, int]:
    """Of these rows, the one with the nearest row that differs from it, and that row; of many rows, among some."""
    given, rows = inputs.tensors(x), inputs.rows(x) or 0
    size = max(1, sum(tensor[0].numel() for tensor in given))
    some = torch.linspace(0, rows - 1, min(rows, max(2, COMPARED // size)), dtype=torch.float64).round().long()
    away = torch.zeros(len(numbers), len(some))
    for tensor in given:
        one, other = (tensor[at.to(tensor.device)].float().reshape(len(at), -1) for at in (torch.tensor(numbers), some))
        away += torch.cdist(one, other, p=1.0).cpu()
    at = int(torch.where(away > 0, away, torch.inf).argmin())
    return numbers[at // len(some)], int(some[at % len(some)])


def _compared(some: Tensor, pairs: Tensor) -> Interaction:
    """Whether two rows have the same outputs among others, and alone or among copies of themselves at other places."""
    rows = PASSED if some.shape == pairs.shape else 2
    if not some.dim() or some.dim() != pairs.dim() or not len(some) or len(some) % PASSED:
        return Interaction.TOGETHER  # the rows of the output are not those of the input
    if len(pairs) * PASSED != len(some) * rows:
        return Interaction.TOGETHER
    some, pairs = some.unflatten(0, (PASSED, -1)), pairs.unflatten(0, (rows, -1))
    powers = (SAME_PLACE, OTHER_PLACE, OTHER_PLACE) if rows == PASSED else (OTHER_NUMBER,)
    same = all(close(pairs[2 * i : 2 * i + 2], some[:2], power) for i, power in enumerate(powers))
    return Interaction.APART if same else Interaction.TOGETHER


def close(a: Tensor, b: Tensor, power: float = SAME_PLACE) -> bool:
    """Whether two tensors are equal but for rounding: within ε^power of the largest number."""
    if a.shape != b.shape:
        return False
    epsilon = max(torch.finfo(dtype).eps for dtype in (torch.float64, *_precisions(a)))
    a, b = (torch.view_as_real(t).double() if t.is_complex() else t.double() for t in (a, b))
    largest = torch.where(b.isfinite(), b, 0.0).abs().amax() if b.numel() else 0.0
    same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= epsilon**power * largest)
    return bool(same.all())


def _precisions(tensor: Tensor) -> Iterator[torch.dtype]:
    """The types of real numbers in which a tensor may have been computed."""
    device = tensor.device.type
    if tensor.is_floating_point() or tensor.is_complex():
        yield tensor.dtype
    if torch.is_autocast_enabled(device):
        yield torch.get_autocast_dtype(device)


def in_place_of_zeros(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Random values of those weights that are all zero: they hide what they multiply, until they are trained."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: 0.1 * torch.randn(value.shape, generator=generator).to(value)
        for name, value in weights.items()
        if value.is_floating_point() and not bool(value.any())
    }


def interact(posterior: "Posterior", x: Any, batch_size: int | None = None) -> Interaction:
    """How the rows of x are related in a posterior's network, in evaluation mode and without noise.

    With `batch_size`, in which a user says that any so many rows may go together, rows that interact count as apart
    unless the network does not take so many.
    """
    network, like = posterior.network, inputs.like(posterior.network)

    def output(rows: Any) -> Tensor:
        rows = inputs.apply(rows, lambda t: t.to(like.device, like.dtype if t.is_floating_point() else t.dtype))
        return inputs.output(inputs.call(network, rows, weights), posterior.output)

    weights = in_place_of_zeros({name: p for name, p in network.named_parameters() if p.requires_grad})
    with alone(), evaluation_mode(network), unnested(encoders(network)):
        found = find(network, output, x)[0]
        if batch_size is None or batch_size >= (inputs.rows(x) or 0):
            return found
        few = found is Interaction.WHOLE and not takes(network, output, inputs.between(x, 0, batch_size))
        return Interaction.WHOLE if few else Interaction.APART


def interacts(posterior: "Posterior", x: Any, batch_size: int | None = None) -> bool:
    """Whether the rows of x interact in a posterior's network (see `interact`)."""
    return interact(posterior, x, batch_size) in (Interaction.TOGETHER, Interaction.WHOLE)


def trained_whole(posterior: "Posterior", x: Any, batch_size: int | None = None, processes: int = 1) -> bool:
    """Whether `fit` takes all rows of data in memory in every step, in their order: where they interact."""
    rows, found = inputs.rows(x) or 0, interact(posterior, x)
    if found not in (Interaction.TOGETHER, Interaction.WHOLE):
        return False
    if batch_size is not None and batch_size < rows:
        if interact(posterior, x, batch_size) is Interaction.WHOLE:
            raise Error(
                f"The network takes all {rows:,} rows of these inputs, but not batch_size={batch_size} of them, as "
                "that of a graph: leave batch_size out, and every step has all rows."
            )
        warnings.warn(
            f"The rows of these inputs interact in the network, and batch_size={batch_size} has them meet in other "
            f"groups in every epoch: leave batch_size out, and every step has all {rows:,} rows in their order.",
            stacklevel=4,
        )
        return False
    if processes > 1:
        raise Error(
            "The rows of these inputs interact in the network, and several processes would cut them: train in one, "
            "or give batch_size= if any rows may go together."
        )
    if why := sequence_first(posterior.network, x):
        warnings.warn(why, stacklevel=4)
    elif found is Interaction.TOGETHER and batch_size is None:
        warnings.warn(
            f"The rows of these inputs interact in the network, so every step has all {rows:,} of them in their "
            f"order: give batch_size={rows} if that is meant, or a smaller one where any rows may go together, as for "
            "batch normalisation without running statistics.",
            stacklevel=4,
        )
    return True


def needs_own_passes(posterior: "Posterior", x: Any, known: dict[Any, bool]) -> bool:
    """Whether each of several training draws needs a pass of its own: copies of rows that interact would meet."""
    if torch.compiler.is_compiling():
        return False
    kind = tuple((tuple(tensor.shape[1:]), tensor.dtype) for tensor in inputs.tensors(x))
    if kind not in known:
        apart = inputs.rows(x) is not None and interact(posterior, x) in (Interaction.APART, Interaction.RANDOM)
        known[kind] = not apart
    return known[kind]
