"""How many small errors in the code do the tests catch? A random sample of mutants, each run against the tests of its file.

    python -m benchmarks.mutants run [--count 100] [--only methods/bbb.py] [--again]
    python -m benchmarks.mutants show    the survivors
    python -m benchmarks.mutants page    docs/results/mutants.md, from the recorded runs and the reasons beside them

A mutant is the package with one operator, number, comparison or call changed. It is killed if a test fails, or takes
three times as long as with the right code. Mutants that the file of results holds already are not run again, except
the survivors with `--again`.
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

import pytest

# Imported once, for all the processes that are forked.
for name in ("torch.export", "torch._dynamo", "scipy.stats", "pandas", "sklearn.linear_model", "matplotlib.figure"):
    importlib.import_module(name)
for name in ("torchmetrics.classification", "safetensors.torch"):
    importlib.import_module(name)

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "posterity"
METHODS = sorted(f"methods/{path.name}" for path in (PACKAGE / "methods").glob("*.py") if path.stem != "__init__")
FILES = [*METHODS, "likelihoods.py", "prediction.py"]
RESULTS = ROOT / "benchmarks" / "results" / "mutants.jsonl"
REASONS = ROOT / "benchmarks" / "results" / "mutants_reasons.json"
PAGE = ROOT / "docs" / "results" / "mutants.md"
KINDS = {
    "equivalent": "the results are the same",
    "harmless": "time, memory or the choice of a path to the same result",
    "open": "a difference that the tests do not see",
}
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


def places(tree: ast.AST) -> dict[int, str]:
    """The function or class that each node belongs to."""
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            name = f"{found[id(node)]}.{node.name}".lstrip(".") if id(node) in found else node.name
            found |= dict.fromkeys(map(id, ast.walk(node)), name)
    return found


def mutants(file: str) -> list[Job]:
    """All mutants of a file: where, what, the changed source, and the lines that must run for it to matter."""
    text = (PACKAGE / file).read_text()
    tree = ast.parse(text)
    found, of, within = [], spans(tree), places(tree)
    for index, (node, attribute, value) in enumerate(sites(tree)):
        changed = copy.deepcopy(tree)
        target = [place for place, _, _ in sites(changed)][index]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            attribute, value = "operand", ast.UnaryOp(ast.Not(), target.operand)  # type: ignore[attr-defined]
        setattr(target, attribute, value)
        before, after = (ast.unparse(place).splitlines()[0] for place in (node, ast.fix_missing_locations(target)))
        job = {
            "file": file,
            "place": within.get(id(node), ""),
            "line": text.splitlines()[node.lineno - 1].strip(),  # type: ignore[attr-defined]
            "change": f"{before} → {after}",
        }
        job["times"] = sum(all(other[k] == job[k] for k in job) for other in found)
        found.append(job | {"lines": of[id(node)], "source": ast.unparse(changed)})
    return found


def name(record: Job) -> str:
    """What a mutant is called; it does not change with the lines before it."""
    again = f" ({record['times'] + 1})" if record["times"] else ""
    return f"{record['file']} {record['place']}: {record['change']}{again} in {record['line']}"


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
        self.test, began = item.nodeid, time.process_time()
        self.lines[self.test] = set()
        result = yield
        self.seconds[self.test], self.test = time.process_time() - began, ""
        return result


class Choice:
    """A plugin of pytest: only the tests that run one of some lines, in less than so many seconds; quick ones first."""

    def __init__(self, known: Known, lines: range, quick: float) -> None:
        self.quick = quick
        self.known, self.every = known, any(line in known.lines[""] for line in lines)
        self.wanted = set(lines)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        # What is compiled or exported is read, not run, so its lines are not seen.
        items[:] = [
            item
            for item in items
            if self.known.seconds.get(item.nodeid, 0.0) < self.quick
            and (
                self.every
                or "compil" in item.name
                or "export" in item.name
                or self.wanted & self.known.lines.get(item.nodeid, self.wanted)
            )
        ]
        items.sort(key=lambda item: round(self.known.seconds.get(item.nodeid, 0.0), 1))


def child(job: Job, folder: Path, known: Known | None, quick: float) -> None:
    """In a process of its own: the tests of one mutant, with a copy of the package in a folder."""
    shutil.copytree(ROOT / "src", folder / "src")
    changed = folder / "src" / "posterity" / job["file"]
    plugin: Any = Watch(changed)
    if known is None:
        sys.settrace(plugin.trace)
    else:
        plugin = Choice(known, job["lines"], quick)
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


def attempts(jobs: list[Job], known: dict[str, Known], options: argparse.Namespace) -> Iterator[Job]:
    """Run the tests of each job, some at a time; a mutant has three times the processor time of the right code."""
    waiting, running = list(reversed(jobs)), {}
    while waiting or running:
        while waiting and len(running) < options.workers:
            job, folder = waiting.pop(), Path(tempfile.mkdtemp())
            arguments = (job, folder, known.get(job["file"]), options.quick)
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
            yield {key: value for key, value in job.items() if key not in ("lines", "source")} | {
                "killed": not survived,
                "seconds": round(time.time() - began, 1),
                "by": "" if survived else (failed or [f"exit {process.exitcode}"])[0],
            }


def read() -> list[Job]:
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    return [line for line in lines if "change" in line]


def run(options: argparse.Namespace) -> None:
    """Try those mutants that are not recorded; written after each, and in order at the end."""
    jobs = {name(job): job for file in FILES for job in mutants(file)}
    records = {name(record): record for record in read() if name(record) in jobs}
    chosen = random.Random(options.seed).sample(sorted(jobs), min(options.count, len(jobs)))
    chosen = [key for key in chosen if options.only in (None, jobs[key]["file"])]
    chosen = [key for key in chosen if key not in records or (options.again and not records[key]["killed"])]
    files = [file for file in FILES if any(jobs[key]["file"] == file for key in chosen)]
    print(f"{len(chosen)} of {len(jobs)} mutants, in {len(files)} files", flush=True)
    known: dict[str, Known] = {}
    for result in attempts([{"file": file, "source": None} for file in files], known, options):
        print(f"unchanged {result['file']}: {result['seconds']} s {result['by']}", flush=True)
        if result["killed"]:
            sys.exit("the tests fail with the right code")
    for result in attempts([jobs[key] for key in chosen], known, options):
        records[name(result)] = result
        with RESULTS.open("a") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")
        print(f"{'killed' if result['killed'] else 'SURVIVED'} {name(result)} {result['seconds']} s", flush=True)

    from benchmarks.measure import machine  # imports the package, which no mutant's process may have done

    head = {"command": "python -m benchmarks.mutants run --count 2000", "machine": machine()}
    ordered = [head, *(records[key] for key in jobs if key in records)]
    RESULTS.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in ordered))


def page() -> str:
    """docs/results/mutants.md; every survivor must have a reason, and every reason a survivor."""
    head, records = json.loads(RESULTS.read_text().splitlines()[0]), read()
    reasons = json.loads(REASONS.read_text())
    alive = {name(record): record for record in records if not record["killed"]}
    given = [key for group in reasons for key in group["mutants"]]
    if set(given) != set(alive) or len(given) != len(alive):
        sys.exit("\n".join(["survivors and reasons differ:", *sorted(set(given) ^ set(alive))]))
    machine_, killed = head["machine"], len(records) - len(alive)
    lines = [
        "# Mutants",
        "",
        "Do the tests see small errors? Every operator, comparison, number, truth value and some calls (`sum` for `mean`, `exp` for",
        "`log`, `all` for `any`, …) of the methods, the likelihoods and the predictions was changed, one at a time, and the tests of",
        "that file were run. A mutant is killed if a test fails, or if the tests take three times the processor time of the right code.",
        "",
        f"**{killed} of {len(records)} mutants are killed ({killed / len(records):.1%}).** Generated by `python -m benchmarks.mutants page` from",
        f"`benchmarks/results/mutants.jsonl`, made by `{head['command']}`: {machine_['processor']},",
        f"Python {machine_['python']}, torch {machine_['torch']}. Error messages, annotations and docstrings are not changed. A",
        "mutant keeps its record as long as its line stays the same; survivors were run again with the latest tests.",
        "",
        "| file | mutants | killed | |",
        "|---|---|---|---|",
    ]
    for file in FILES:
        own = [record["killed"] for record in records if record["file"] == file]
        lines.append(f"| `{file}` | {len(own)} | {sum(own)} | {sum(own) / max(1, len(own)):.0%} |")
    lines += ["", "## The survivors", ""]
    counts = {kind: sum(len(g["mutants"]) for g in reasons if g["kind"] == kind) for kind in KINDS}
    lines += [f"- **{kind}** ({counts[kind]}): {words}" for kind, words in KINDS.items()]
    for kind in KINDS:
        lines += ["", f"### {kind[0].upper()}{kind[1:]}", "", "| why | where | change |", "|---|---|---|"]
        for group in (g for g in reasons if g["kind"] == kind):
            why = group["reason"]
            for key in group["mutants"]:
                record = alive[key]
                where = f"`{record['file'].removesuffix('.py')}` {record['place']}"
                code = f"{code_(record['change'])} in {code_(record['line'])}"
                lines.append(f"| {why} | {where} | {code} |")
                why = "″"
    return "\n".join(lines) + "\n"


def code_(text: str) -> str:
    """A piece of code in a cell of a table."""
    return f"`{text}`".replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "show", "page"))
    parser.add_argument("--count", type=int, default=100, help="so many at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", choices=FILES)
    parser.add_argument("--quick", type=float, default=1e9, help="only tests of fewer seconds")
    parser.add_argument("--again", action="store_true", help="run the survivors again")
    options = parser.parse_args()
    if options.command == "run":
        run(options)
    elif options.command == "page":
        PAGE.write_text(page())
    else:
        records = read()
        killed = sum(record["killed"] for record in records)
        print(f"{killed} of {len(records)} killed ({killed / max(1, len(records)):.0%})")
        print(*(name(record) for record in records if not record["killed"]), sep="\n")


if __name__ == "__main__":
    main()
