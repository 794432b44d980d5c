"""IBNN on all of timm's architectures: convert, train a step, draw two functions, and see that they are finite and differ.

    python -m benchmarks.timm_zoo run --out FILE [--pattern "*"] [--workers 8] [--limit 300] [--seconds 120]
    python -m benchmarks.timm_zoo show FILE

Weights are random (nothing is downloaded) and images small where an architecture allows it. Architectures run in worker
processes, each with a time limit. FILE has one line of JSON an architecture, and one of versions and machine for each
run; architectures that have a line are not run again, so a run that was stopped can be continued.
"""

import argparse
import collections
import json
import multiprocessing
import multiprocessing.connection
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import posterity
from benchmarks.measure import machine
from posterity import inputs

ROWS, CLASSES, SMALL = 4, 10, 128
#: How processes start (CUDA needs a fresh one), and the seconds that the first architecture of one has more, to import.
START, IMPORT = "spawn", 60.0


def examine(name: str, device: str = "cpu", limit: float = 300.0) -> dict[str, Any]:
    """One architecture's record: `status` is "pass", "fail" or "skipped", with the `reason` of the latter two."""
    record: dict[str, Any] = {"name": name, "status": "fail", "reason": ""}
    started = time.perf_counter()
    try:
        record["parameters"] = size = count(name)
        if size > limit * 1e6:
            return record | {"status": "skipped", "reason": f"more than {limit:g} million parameters"}
        record |= check(name, device)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        record["reason"] = (
            f"{type(error).__name__}: {str(error).strip()[:300]} ({Path(last.filename).name}:{last.lineno})"
        )
    return record | {"seconds": round(time.perf_counter() - started, 2)}


def create(name: str) -> nn.Module:
    """The architecture with random weights and few classes."""
    import timm

    return timm.create_model(name, pretrained=False, num_classes=CLASSES)  # type: ignore[no-any-return]


def count(name: str) -> int:
    """How many parameters it has; without memory for them, where it can be built so."""
    try:
        with torch.device("meta"):
            network = create(name)
    except Exception:
        network = create(name)
    return sum(p.numel() for p in network.parameters())


def check(name: str, device: str) -> dict[str, Any]:
    """Put an architecture through everything; what goes wrong is raised."""
    torch.manual_seed(0)
    network = create(name).to(device)
    x, shape = images(network, device)
    y = torch.ones(ROWS, *shape, device=device)
    posterior = posterity.IBNN(network, components=2, seed=0).to(device).train()
    optimiser = torch.optim.AdamW(posterior.parameters(), lr=1e-3)
    for _ in range(2):  # where the head starts at zero, the first step changes nothing but the head
        optimiser.zero_grad()
        generator = torch.Generator().manual_seed(1)
        loss = posterior.loss(x, y, posterity.Gaussian(std=1.0), size=100, beta=0.0, generator=generator)
        loss.backward()
        optimiser.step()
        if not bool(loss.isfinite()):
            raise ValueError(f"the loss is {float(loss.detach())}")
        if posterior.means.grad is not None and bool((posterior.means.grad != 0).any()):
            break
    else:
        raise ValueError("no gradient reaches the noise")
    settle(network, x)
    posterior.eval()
    functions = posterior.draw(2, torch.Generator().manual_seed(2))
    with torch.no_grad():
        outputs = functions(x)
    if not bool(outputs.isfinite().all()):
        raise ValueError("predictions are not finite")
    if not bool((outputs[0] != outputs[1]).any()):
        raise ValueError("two functions predict the same")
    places = [site for site in posterior.sites if not site.missing]
    return {
        "status": "pass",
        "image": list(x.shape[1:]),
        "uncertain": round(uncertain(posterior), 4),
        "places": len(places),
        "shared": sum(bool(site.shared or site.direct or site.inner) for site in places),
        "vectorised": not (functions.loops or functions._must_loop()),
    }


def images(network: nn.Module, device: str) -> tuple[Tensor, torch.Size]:
    """Rows that the network takes (small ones where its size is not fixed and they pass), and the shape of an answer."""
    config = getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", {})
    size = tuple(config.get("input_size", (3, 224, 224)))
    sizes = [size] if config.get("fixed_input_size") else [(size[0], SMALL, SMALL), size]
    generator = torch.Generator().manual_seed(0)
    for one in sizes:
        x = torch.randn(ROWS, *one, generator=generator).to(device)
        try:
            with torch.no_grad():
                return x, inputs.output(network.eval()(x[:2])).shape[1:]
        except Exception:
            if one == sizes[-1]:
                raise
    raise AssertionError


def settle(network: nn.Module, x: Tensor) -> None:
    """Set batch statistics to those of x: with random weights and none of its own a deep network gives 0 or ∞."""
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    if norms:
        with torch.no_grad():
            network.train()(x)


def uncertain(posterior: posterity.IBNN) -> float:
    """The share of the parameters that differ between functions."""
    names = set(posterior.describe().uncertain)
    sizes = {name: p.numel() for name, p in posterior.network.named_parameters()}
    return sum(size for name, size in sizes.items() if name in names) / max(1, sum(sizes.values()))


def work(connection: Any, device: str, limit: float) -> None:
    """A worker: takes names, gives records."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    while (name := connection.recv()) is not None:
        connection.send(examine(name, device, limit))
        if device != "cpu":
            torch.cuda.empty_cache()


class Worker:
    """A process that examines one architecture at a time, and is replaced when one takes too long or kills it."""

    def __init__(self, device: str, limit: float) -> None:
        context = multiprocessing.get_context(START)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, device, limit), daemon=True)
        self.process.start()
        theirs.close()
        self.name: str | None = None
        self.deadline = 0.0

    def give(self, name: str, seconds: float) -> None:
        """Start an architecture."""
        self.name, self.deadline = name, time.monotonic() + seconds
        self.connection.send(name)

    def take(self) -> dict[str, Any] | None:
        """Its record, one that says why there is none, or None as long as it runs."""
        assert self.name is not None
        try:
            if self.connection.poll():
                return self.connection.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            return {"name": self.name, "status": "fail", "reason": "the process died"}
        if time.monotonic() > self.deadline:
            return {"name": self.name, "status": "fail", "reason": "it took too long"}
        return None

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def run(out: Path, pattern: str, workers: int, limit: float, seconds: float, device: str) -> None:
    """Examine all architectures of a pattern that the file does not have yet."""
    import timm

    done = {record["name"] for record in read(out)}
    names = [name for name in timm.list_models(pattern) if name not in done]
    print(f"{len(names)} architectures, {len(done)} are done", flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:

        def write(record: dict[str, Any]) -> None:
            file.write(json.dumps(record) + "\n")
            file.flush()

        gpu = torch.cuda.get_device_name() if device == "cuda" else None
        facts = machine() | {"timm": timm.__version__, "gpu": gpu}
        write({"machine": facts, "command": " ".join(["python -m benchmarks.timm_zoo", *sys.argv[1:]]), "limit": limit})
        waiting = collections.deque(names)
        pool = [Worker(device, limit) for _ in range(min(workers, len(names)))]
        for worker in pool:
            worker.give(waiting.popleft(), seconds + IMPORT)
        busy = list(pool)
        while busy:
            multiprocessing.connection.wait([worker.connection for worker in busy], timeout=1.0)
            for index, worker in enumerate(busy):
                record = worker.take()
                if record is None:
                    continue
                write(record)
                print(f"{record['status']:<8} {record['name']:<40} {record['reason'][:120]}", flush=True)
                lost = record["reason"] in ("the process died", "it took too long")
                if lost or not waiting:
                    worker.stop()
                if lost and waiting:
                    busy[index] = worker = Worker(device, limit)
                if waiting:
                    worker.give(waiting.popleft(), seconds + IMPORT * lost)
            busy = [worker for worker in busy if worker.process.is_alive()]


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file, the last one of each architecture."""
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines if line.strip()]
    return list({record["name"]: record for record in records if "name" in record}.values())


def show(path: Path) -> str:
    """How many pass, what was skipped and why, and every failure."""
    records = read(path)
    by = {status: [r for r in records if r["status"] == status] for status in ("pass", "fail", "skipped")}
    lines = [
        f"{len(by['pass'])} of {len(by['pass']) + len(by['fail'])} architectures pass; {len(by['skipped'])} skipped"
    ]
    if by["pass"]:
        rows = [r for r in by["pass"] if not r["shared"]]
        lines.append(
            f"uncertain {min(r['uncertain'] for r in by['pass']):.0%} to {max(r['uncertain'] for r in by['pass']):.0%} of "
            f"the parameters; {sum(r['vectorised'] for r in by['pass'])} vectorised; "
            f"{len(rows)} with noise of their own for all rows at all places"
        )
    for reason, number in collections.Counter(r["reason"] for r in by["skipped"]).most_common():
        lines.append(f"skipped {number}: {reason}")
    lines += [f"fail {r['name']}: {r['reason']}" for r in by["fail"]]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--pattern", default="*", help="names of architectures")
    running.add_argument("--workers", type=int, default=8)
    running.add_argument("--limit", type=float, default=300.0, help="largest network, in millions of parameters")
    running.add_argument("--seconds", type=float, default=120.0, help="longest time for one architecture")
    running.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    commands.add_parser("show").add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "run":
        run(given.out, given.pattern, given.workers, given.limit, given.seconds, given.device)
        print(show(given.out))
    else:
        print(show(given.file))


if __name__ == "__main__":
    main()
