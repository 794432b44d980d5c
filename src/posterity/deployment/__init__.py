"""Deployment: fixed draws in one file that runs without posterity and, as ONNX, without PyTorch.

Rows go in; the mean prediction and the parts of its uncertainty come out, equal to what `predict` says with the same
draws. The batch may have any number of rows; every other size is the example's.
"""

import contextlib
import copy
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posterity import inputs, loading, storage
from posterity.deployment import files, raw
from posterity.deployment.answers import Answers, named
from posterity.deployment.tracing import traced
from posterity.errors import Error
from posterity.functions import Functions
from posterity.interaction import keeps_whole
from posterity.posterior import Posterior, as_generator, checked, count, flag, positive

__all__ = ["Exported", "export"]

DRAWS = 20
"""Functions in a file, unless told otherwise: n of them show on average 1 − 1/n of the epistemic variance, so 95 %."""
TOLERANCE = 1e-4
"""Between a file and PyTorch: what rounding in float32 comes to in a deep network is less."""
MEANINGS = {
    "probs": "the probability of each class (axis 1), the mean over the functions",
    "mean": "the expected value",
    "std": "the standard deviation: the root of total",
    "total": "all of the uncertainty, aleatoric + epistemic, in {unit}",
    "aleatoric": "the uncertainty that is noise in the data, which more data would not remove, in {unit}",
    "epistemic": "the uncertainty that is the model's ignorance, which more data would remove, in {unit}",
}


class Exported(NamedTuple):
    """What was written: where, and the facts that the file holds too, so that a stranger can use it."""

    path: Path
    """The file."""
    facts: dict[str, Any]
    """Its method, inputs and outputs with their types and shapes, how many functions it holds, and the like."""


def export(
    posterior: Posterior,
    path: str | Path,
    example: Any = None,
    *,
    samples: int | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    unroll: bool = False,
    tolerance: float = TOLERANCE,
) -> Exported:
    """Write fixed draws of a posterior to a file, and check that the file says what PyTorch says.

    Classification gives `probs`, `total`, `aleatoric` and `epistemic`, regression `mean`, `std` and the same three, all
    `[batch, ...]` and as `predict` defines them; regression in the target's own units where the posterior has its
    preprocessing.

    Args:
        posterior: a trained posterior; nothing of it changes.
        path: the file, which ends in .onnx or in .pt2 (for `torch.export.load`).
        example: a few rows as `predict` takes them, and as the file will. It can be left out where the posterior has
            its preprocessing, which then goes into the file: that takes raw rows.
        samples: how many functions; by default 20, or as many as an ensemble has members, or one for MAP. Methods that
            draw weights put so many copies of them into the file.
        seed: of the draws: `predict` with `samples` and that seed has the same ones. Or `generator`.
        unroll: write the functions out one after the other, where else they would be a loop. Convolutions are then some
            two times as fast, but the export takes longer with every function, and the file grows by its operators.
        tolerance: how far the file may be from PyTorch, in probabilities, nats, or parts of the target's scale.
    """
    checked(posterior)
    path, tolerance, unroll = Path(path), positive(tolerance, "tolerance"), flag(unroll, "unroll")
    form = files.form(path)
    if example is None and posterior.preprocessing is None:
        raise Error("The posterior has no preprocessing: give export() an example, a few rows as predict takes them.")
    n = min(posterior.draws, DRAWS) if samples is None else count(samples, "samples")
    answers = _answers(posterior, posterior.draw(n, as_generator(seed, generator, "draws")))
    dtype = inputs.like(answers.functions).dtype
    if example is None:
        answers.encode = raw.rows(posterior.preprocessing, dtype)
        x, source = answers.encode.example()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a row in which values are missing on purpose
            known = posterior.preprocessing.inputs(source).to(dtype)
    else:
        x = known = _checked(example, dtype)
    expected = answers.predict(known)
    facts = _facts(posterior, answers, x, expected) | {"samples": n, "seed": seed}
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        with files.quiet():
            form.write(traced(answers, x, unroll), temporary, x, list(answers.names), facts)
            found = form.run(temporary, x)
            few = 2 if keeps_whole(answers.functions, known) else 1  # rows that interact may need each other
            alone = form.run(temporary, inputs.between(x, 0, few))
        _compare(found, expected, answers.units, tolerance)
        _compare(alone, answers.predict(inputs.between(known, 0, few)), answers.units, tolerance)
        temporary.replace(path)
    except OSError as error:
        raise Error(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return Exported(path, facts)


def _answers(posterior: Posterior, functions: Functions) -> Answers:
    """What follows the functions, on a CPU and in float32 at least: a file should run anywhere."""
    wide = any(p.dtype == torch.float64 for p in functions.parameters())
    functions = functions.to("cpu", torch.float64 if wide else torch.float32)
    likelihood = copy.deepcopy(posterior.likelihood).cpu().requires_grad_(False)
    known = posterior.preprocessing
    return Answers(functions, likelihood, None if known is None else (known.target_mean, known.target_std))


def _checked(example: Any, dtype: torch.dtype) -> Any:
    """The rows of an example, as `predict` would give them to the network."""
    x = inputs.as_tensors(example, torch.device("cpu"))
    if not inputs.rows(x):
        raise Error("The example must have rows: tensors or arrays with as many on axis 0 of each.")
    loading.check_finite(x)
    return inputs.apply(x, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def _facts(posterior: Posterior, answers: Answers, x: Any, expected: dict[str, Tensor]) -> dict[str, Any]:
    """What a stranger must know of a file: of whom it is, what goes in and what comes out."""
    from posterity import __version__

    names = {cls: name for name, cls in storage.SAVED.items()}
    functions, encode, known = answers.functions, answers.encode, posterior.preprocessing
    held = "one copy of the weights"
    if functions.keys:
        held = f"{functions.count} copies of the weights"
    elif functions.perturbed:
        held += f", and the noise of {functions.count} functions"
    unit = "nats" if "probs" in answers.names else "squared units of the target"
    facts = {
        "posterity": __version__,
        "method": names.get(type(posterior), type(posterior).__name__),
        "likelihood": type(posterior.likelihood).__name__,
        "holds": held,
        "inputs": {name: _about(value, encode.meaning if encode else "") for name, value in named(x).items()},
        "outputs": {name: _about(value, MEANINGS[name].format(unit=unit)) for name, value in expected.items()},
    }
    if known is not None:
        facts |= {"target": known.target} | ({} if known.classes is None else {"classes": known.classes})
    return facts | (encode.facts() if encode else {})


def _about(tensor: Tensor, meaning: str) -> dict[str, Any]:
    """The type, the shape and the meaning of what goes in or comes out."""
    shape = ["batch", *tensor.shape[1:]] if tensor.dim() else []
    return {"type": str(tensor.dtype).removeprefix("torch."), "shape": shape} | (
        {"meaning": meaning} if meaning else {}
    )


def _compare(
    found: dict[str, Tensor] | None, right: dict[str, Tensor], units: tuple[float, float] | None, tolerance: float
) -> None:
    """Refuse a file that says something else than PyTorch; a Gaussian's scale is what it predicts itself."""
    if found is None:
        warnings.warn("The file was not checked against PyTorch: for that, install the package 'onnxruntime'.")
        return
    scale = 1.0
    if "mean" in right:
        centre = torch.as_tensor(0.0 if units is None else units[0])
        scale = float((right["mean"] - centre).abs().max() + right["std"].max())
    for name, value in right.items():
        allowed = tolerance * (scale if name in ("mean", "std") else scale**2)
        same = found[name].shape == value.shape
        off = float((found[name].double() - value.double()).abs().max()) if same else float("inf")
        if not off <= allowed:
            raise Error(
                f"The exported program's {name!r} is {off:.2g} from PyTorch's, more than {allowed:.2g}, so no file was "
                "written: try unroll=True, the other kind (.onnx, .pt2) or, if that is rounding, a larger tolerance=."
            )
