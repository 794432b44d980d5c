"""The two kinds of files, ONNX and torch.export's own: each is written, and run to see that it says the right thing."""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from posterity.deployment.answers import named
from posterity.deployment.tracing import reason
from posterity.errors import Error, require

LARGEST_ONNX = 1_900_000_000
"""Bytes of numbers: an ONNX file can hold two gigabytes."""
FACTS = "posterity.json"
"""The file inside a .pt2 archive that says what goes in and comes out."""


class Onnx:
    """ONNX, for onnxruntime and others."""

    def check(self) -> None:
        """torch's exporter needs both."""
        require("onnx")
        require("onnxscript")

    def write(self, program: ExportedProgram, path: Path, x: Any, outputs: list[str], facts: dict[str, Any]) -> None:
        """The optimised graph without traces of where it was made; the facts become its metadata."""
        held = sum(value.numel() * value.element_size() for value in program.state_dict.values())
        if held > LARGEST_ONNX:
            raise Error(
                f"{held / 1e9:.1f} GB of weights do not fit into an ONNX file, which holds 2 GB: take fewer samples, "
                "or write a .pt2 file."
            )
        names = list(named(x))
        if taken := set(names) & set(outputs):
            raise Error(f"The input {taken.pop()!r} has the name of an output: give the network's inputs as a tuple.")
        with _explained("This network cannot be written as ONNX; a .pt2 file may do"):
            model: Any = torch.onnx.export(program, input_names=names, output_names=outputs, verbose=False)
        proto = model.model_proto
        graph = proto.graph
        _strip(graph)
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.shape.dim and value.type.tensor_type.shape.dim[0].dim_param:
                value.type.tensor_type.shape.dim[0].dim_param = "batch"
        for key, fact in facts.items():
            proto.metadata_props.add(key=key, value=fact if isinstance(fact, str) else json.dumps(fact))
        path.write_bytes(proto.SerializeToString())

    def run(self, path: Path, x: Any) -> dict[str, Tensor] | None:
        """What the file says of x, by onnxruntime; None where that is not installed."""
        try:
            import onnxruntime
        except ImportError:
            return None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        with _explained("onnxruntime cannot run the exported network; a .pt2 file may do"):
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            wanted = {value.name for value in session.get_inputs()}
            given = {name: tensor.numpy() for name, tensor in named(x).items() if name in wanted}
            names = [value.name for value in session.get_outputs()]
            return dict(zip(names, map(torch.from_numpy, session.run(names, given)), strict=True))


@contextlib.contextmanager
def _explained(sentence: str) -> Iterator[None]:
    """What others raise as an `Error`: they name no class for what they cannot do."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise Error(f"{sentence} ({reason(error)}).") from error


def _strip(graph: Any) -> None:
    """Take out of a graph what only says where it was made: half of a small file, and the paths of its author."""
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
    del graph.value_info[:]
    for inner in (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")):
        _strip(inner)


class Program:
    """A .pt2 archive, which PyTorch loads and calls as `predict` is called: with a tensor, a tuple or a mapping."""

    def check(self) -> None:
        """It is torch's own."""

    def write(self, program: ExportedProgram, path: Path, x: Any, outputs: list[str], facts: dict[str, Any]) -> None:
        """The facts are a file in the archive."""
        with _explained("torch cannot write the exported network"):
            program = program.run_decompositions({})  # torch 2.11 cannot write operators of vmap as they are
            torch.export.save(program, path, extra_files={FACTS: json.dumps(facts, indent=1)})

    def run(self, path: Path, x: Any) -> dict[str, Tensor] | None:
        """What the file says of x, by PyTorch."""
        with torch.no_grad():
            return torch.export.load(path).module()(x)  # type: ignore[no-any-return]


FORMS: dict[str, Onnx | Program] = {".onnx": Onnx(), ".pt2": Program()}


def form(path: Path) -> Onnx | Program:
    """The form that a file's name asks for."""
    found = FORMS.get(path.suffix.lower())
    if found is None:
        raise Error(f"{path} must end in .onnx (for onnxruntime and others) or in .pt2 (for PyTorch).")
    found.check()
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters print, log and warn of on the way."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        nowhere = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
