"""How many small errors in the code do the tests catch? A random sample of mutants, each run against the tests of its file.

    python -m benchmarks.mutants --out FILE [--count 100] [--seed 0] [--workers 2] [--only methods/bbb.py]
    python -m benchmarks.mutants show FILE

A mutant is the package with one operator, number, comparison or call changed. Mutants that FILE holds already are not
run again. It is killed if a test fails, or takes three times as long as with the right code.
"""

import argparse
import ast
import concurrent.futures
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "posterity"
LIMIT = 300.0  # seconds of one mutant's tests

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


def mutants(path: Path) -> list[tuple[str, str]]:
    """The changed sources of a file, each with a description."""
    tree = ast.parse(path.read_text())
    found = []
    for index, (node, attribute, value) in enumerate(sites(tree)):
        changed = copy.deepcopy(tree)
        target = [place for place, _, _ in sites(changed)][index]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            attribute, value = "operand", ast.UnaryOp(ast.Not(), target.operand)  # type: ignore[attr-defined]
        setattr(target, attribute, value)
        before, after = (ast.unparse(place).splitlines()[0][:80] for place in (node, ast.fix_missing_locations(target)))
        found.append((f"{getattr(node, 'lineno', 0)}: {before} → {after}", ast.unparse(changed)))
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


def attempt(job: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of one mutant in a copy of the package."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True)
        if job["source"] is not None:
            (Path(folder) / "posterity" / job["file"]).write_text(job["source"])
        environment = os.environ | {"PYTHONPATH": folder, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            *tests(job["file"]),
        ]
        started = time.time()
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT, check=False)
            code, words = done.returncode, done.stdout.decode(errors="replace").strip().splitlines()[-3:]
        except subprocess.TimeoutExpired:
            code, words = -1, ["out of time"]
    return {key: job[key] for key in ("file", "change")} | {
        "killed": code not in (0, 5),
        "seconds": round(time.time() - started, 1),
        "by": next((line for line in words if line.startswith("FAILED")), words[-1] if words else "")[:160],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("run", "show"), default="run")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e5, help="start no run after this long")
    parser.add_argument("--only", help="a file below the package")
    options = parser.parse_args()
    records = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    if options.command == "show":
        killed = sum(record["killed"] for record in records)
        print(f"{killed} of {len(records)} killed ({killed / max(1, len(records)):.0%})")
        print(*(f"{r['file']}:{r['change']}" for r in records if not r["killed"]), sep="\n")
        return
    files = sorted(f"methods/{path.name}" for path in (PACKAGE / "methods").glob("*.py") if path.stem != "__init__")
    files = [options.only] if options.only else [*files, "likelihoods.py", "prediction.py"]
    jobs = [
        {"file": file, "change": change, "source": source}
        for file in files
        for change, source in mutants(PACKAGE / file)
    ]
    print(f"{len(jobs)} mutants in {len(files)} files", file=sys.stderr)
    done = {(record["file"], record["change"]) for record in records}
    chosen = random.Random(options.seed).sample(jobs, min(options.count, len(jobs)))
    chosen = [job for job in chosen if (job["file"], job["change"]) not in done]
    deadline = time.time() + 60 * options.minutes
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        for result in pool.map(lambda job: attempt(job) if time.time() < deadline else None, chosen):
            if result is None:
                break
            with options.out.open("a") as file:
                file.write(json.dumps(result, ensure_ascii=False) + "\n")
            word = "killed" if result["killed"] else "SURVIVED"
            print(f"{word} {result['file']}:{result['change']} {result['seconds']} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
