"""How many small errors in the code do the tests catch? A random sample of mutants, each run against the tests of its file.

    python -m benchmarks.mutants --out FILE [--count 100] [--seed 0] [--workers 2] [--only methods/bbb.py]
    python -m benchmarks.mutants show FILE

A mutant is the package with one operator, number, comparison or call changed. Mutants that FILE holds already are not
run again. It is killed if a test fails, or takes three times as long as with the right code.
"""

import argparse
import ast
import copy
import importlib
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import pytest  # noqa: E402

# Imported once, for all the processes that are forked.
for name in ("torch.export", "torch._dynamo", "scipy.stats", "pandas", "sklearn.linear_model", "matplotlib.figure"):
    importlib.import_module(name)
for name in ("torchmetrics.classification", "safetensors.torch"):
    importlib.import_module(name)

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "posterity"
Job = dict[str, Any]


class Known(NamedTuple):
    """Of each test its seconds, and the lines of the file that it runs."""

    seconds: dict[str, float]
    lines: dict[str, set[int]]


OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
CALLS = {
    "sum": "mean",
    "mean": "sum",
    "exp": "log",
    "log": "exp",
    "sqrt": "square",
    "square": "sqrt",
    "softplus": "relu",
}
CALLS |= {"any": "all", "all": "any", "amin": "amax", "amax": "amin", "detach": "clone", "split": "chunk"}


def sites(tree: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Every place that can be changed: the node, the attribute, and its new value; docstrings and annotations apart."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if isinstance(part := getattr(node, name, None), ast.AST):
                skipped |= {id(child) for child in ast.walk(part)}
        # The words of an error, and arguments that change no result.
        if isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel")):
            skipped |= {id(child) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in OPERATORS:
            yield node, "op", OPERATORS[type(node.op)]()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
            yield node, "ops", [OPERATORS[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            yield node, "op", ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, "value", not node.value
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            yield node, "value", node.value + 1 if isinstance(node.value, int) else 2 * node.value + 0.1
        elif isinstance(node, ast.Attribute) and node.attr in CALLS:
            yield node, "attr", CALLS[node.attr]


def spans(tree: ast.AST) -> dict[int, range]:
    """The lines of the statement (of a block, those of its head) that each node belongs to."""
    found: dict[int, range] = {}
    for statement in ast.walk(tree):  # outer ones come first
        if isinstance(statement, ast.stmt):
            body = getattr(statement, "body", None)
            last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno
            found |= dict.fromkeys(map(id, ast.walk(statement)), range(statement.lineno, last + 1))
    return found


def mutants(path: Path) -> list[tuple[str, range, str]]:
    """The changed sources of a file, each with a description and the lines that must run for it to matter."""
    tree = ast.parse(path.read_text())
    found, lines = [], spans(tree)
    for index, (node, attribute, value) in enumerate(sites(tree)):
        changed = copy.deepcopy(tree)
        target = [place for place, _, _ in sites(changed)][index]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            attribute, value = "operand", ast.UnaryOp(ast.Not(), target.operand)  # type: ignore[attr-defined]
        setattr(target, attribute, value)
        before, after = (ast.unparse(place).splitlines()[0][:80] for place in (node, ast.fix_missing_locations(target)))
        change = f"{getattr(node, 'lineno', 0)}: {before} → {after}"
        found.append((change, lines[id(node)], ast.unparse(changed)))
    return found


def tests(file: str) -> list[str]:
    """The arguments of pytest for a file: its own tests first."""
    name = Path(file).stem
    if file.startswith("methods/"):
        short = {"ensemble": "ensemble", "dropout": "dropout"}.get(name, name)
        own = [f"tests/methods/test_{name}.py"] if (ROOT / f"tests/methods/test_{name}.py").exists() else []
        return [
            *own,
            "tests/test_every_method.py",
            "tests/test_zoo.py",
            "tests/methods/test_defaults.py",
            "tests/exact",
            "-k",
            f"test_{name} or {short}",
        ]
    return ["tests/test_likelihoods.py", "tests/test_prediction.py", "tests/evaluation", "tests/faults/test_own.py"]


class Watch:
    """A plugin of pytest that notes, with the right code, each test's seconds and which lines of the file it runs."""

    def __init__(self, path: Path) -> None:
        self.path, self.test = str(path), ""
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, set[int]] = {"": set()}  # those of the import have no test

    def trace(self, frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self.path:
            return None
        self.lines[self.test].add(frame.f_lineno)
        return self.trace

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        self.test = item.nodeid
        self.lines[self.test] = set()
        result = yield
        self.test = ""
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


class Choice:
    """A plugin of pytest: only those tests that run one of some lines, the quick ones first."""

    def __init__(self, known: Known, lines: range) -> None:
        self.known, self.every = known, any(line in known.lines[""] for line in lines)
        self.wanted = set(lines)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        # What is compiled or exported is read, not run, so its lines are not seen.
        items[:] = [
            item
            for item in items
            if self.every
            or "compil" in item.name
            or "export" in item.name
            or self.wanted & self.known.lines.get(item.nodeid, self.wanted)
        ]
        items.sort(key=lambda item: round(self.known.seconds.get(item.nodeid, 0.0), 1))


def child(job: Job, folder: Path, known: Known | None) -> None:
    """In a process of its own: the tests of one mutant, with a copy of the package in a folder."""
    shutil.copytree(ROOT / "src", folder / "src")
    changed = folder / "src" / "posterity" / job["file"]
    plugin: Any = Watch(changed)
    if known is None:
        sys.settrace(plugin.trace)
    else:
        plugin = Choice(known, job["lines"])
        changed.write_text(job["source"])
        limit = math.ceil(3 * sum(known.seconds.values()) + 20)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    os.chdir(ROOT)
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(Path(tempfile.gettempdir()) / "mutants_pycache")
    sys.path.insert(0, str(folder / "src"))
    os.environ["PYTHONPATH"] = sys.path[0]
    with (folder / "words").open("w") as words:
        os.dup2(words.fileno(), 1)
        os.dup2(words.fileno(), 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    code = pytest.main([*options, *tests(job["file"])], plugins=[plugin])
    assert str(sys.modules["posterity"].__file__).startswith(str(folder))
    if known is None:
        (folder / "known").write_bytes(pickle.dumps(Known(plugin.seconds, plugin.lines)))
    sys.stdout.flush()
    os._exit(int(code))


def attempts(jobs: list[Job], workers: int, known: dict[str, Known]) -> Iterator[dict[str, Any]]:
    """Run the tests of each job, some at a time; a mutant has three times the processor time of the right code."""
    waiting, running = list(reversed(jobs)), {}
    while waiting or running:
        while waiting and len(running) < workers:
            job, folder = waiting.pop(), Path(tempfile.mkdtemp())
            arguments = (job, folder, known.get(job["file"]))
            process = multiprocessing.get_context("fork").Process(target=child, args=arguments)
            process.start()
            running[process.sentinel] = (process, job, folder, time.time())
        for sentinel in multiprocessing.connection.wait(list(running)):
            process, job, folder, began = running.pop(int(sentinel))  # type: ignore[call-overload]
            process.join()
            lines = (folder / "words").read_text(errors="replace").splitlines()
            failed = [line.split(" - ")[0].partition(" ")[2] for line in lines if line.startswith(("FAILED", "ERROR"))]
            if job["source"] is None and process.exitcode == 0:
                known[job["file"]] = pickle.loads((folder / "known").read_bytes())
            shutil.rmtree(folder)
            survived = process.exitcode in (0, 5)  # 5: no test runs the line
            yield {key: job[key] for key in ("file", "site", "change")} | {
                "killed": not survived,
                "seconds": round(time.time() - began, 1),
                "by": "" if survived else (failed or [f"exit {process.exitcode}"])[0],
            }


def everything(files: list[str]) -> list[Job]:
    return [
        {"file": file, "site": site, "change": change, "lines": lines, "source": source}
        for file in files
        for site, (change, lines, source) in enumerate(mutants(PACKAGE / file))
    ]


def read(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in lines if "change" in line]


def run(options: argparse.Namespace) -> None:
    files = sorted(f"methods/{path.name}" for path in (PACKAGE / "methods").glob("*.py") if path.stem != "__init__")
    files = [options.only] if options.only else [*files, "likelihoods.py", "prediction.py"]
    jobs = everything(files)
    print(f"{len(jobs)} mutants in {len(files)} files", flush=True)
    done = {(record["file"], record["change"], record["site"]) for record in read(options.out)}
    chosen = random.Random(options.seed).sample(jobs, min(options.count, len(jobs)))
    chosen = [job for job in chosen if (job["file"], job["change"], job["site"]) not in done]
    known: dict[str, Known] = {}
    right = [{"file": file, "site": -1, "change": "none", "source": None} for file in files]
    for result in attempts(right, options.workers, known):
        print(f"unchanged {result['file']}: {result['seconds']} s {result['by']}", flush=True)
        if result["killed"]:
            sys.exit("the tests fail with the right code")
    for result in attempts(chosen, options.workers, known):
        with options.out.open("a") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")
        word = "killed" if result["killed"] else "SURVIVED"
        print(f"{word} {result['file']}:{result['change']} {result['seconds']} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("run", "show"), default="run")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", help="a file below the package")
    options = parser.parse_args()
    if options.command == "run":
        run(options)
        return
    records = read(options.out)
    killed = sum(record["killed"] for record in records)
    print(f"{killed} of {len(records)} killed ({killed / max(1, len(records)):.0%})")
    print(*(f"{r['file']}:{r['change']}" for r in records if not r["killed"]), sep="\n")


if __name__ == "__main__":
    main()
