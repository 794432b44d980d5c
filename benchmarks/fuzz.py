"""Read thousands of damaged and hostile files of every format, and see that nothing but `posterity.Error` comes of it.

    python -m benchmarks.fuzz --count 10000 [--format model ...] --seed 0 --out FILE

A case starts from valid small files and changes them: blindly (bits, cuts, splices, …) and with a knowledge of the
format (see `fuzz_mutations`). It must load, or raise `posterity.Error`; within 5 seconds of the processor; with less
than 1 GiB of memory more; and without running anything: no pickle is loaded, no process started, nothing written
elsewhere. Some of what loads is used too: a model predicts, a checkpoint goes on. Cases run in worker processes, which
are replaced when one crashes or hangs. Inputs that fail are kept in a folder beside FILE; then the exit status is 1.
"""

import argparse
import collections
import contextlib
import json
import math
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import posterity
from benchmarks.allocator import CLEAR, STATUS
from benchmarks.fuzz_formats import Format, formats, make, write
from benchmarks.fuzz_mutations import CANARY, Case
from benchmarks.measure import machine

SECONDS, MEBIBYTES = 5.0, 1024.0
HANGS = 30.0
"""Seconds after which a worker that says nothing is killed."""
FORBIDDEN = {"os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class"}
FORBIDDEN |= {"socket.connect", "socket.getaddrinfo", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree"}
FORBIDDEN |= {"ctypes.dlopen"}


class Outcome(NamedTuple):
    """What became of one case: "loaded", "refused", or a failure with its reason."""

    index: int
    state: str
    seconds: float
    mebibytes: float
    reason: str = ""


class TooLong(BaseException):
    """Raised by the alarm; no reader may catch it."""


class Watch:
    """An audit hook that notes what no reader may do while a case is read."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def on(self, folder: Path) -> Iterator[list[str]]:
        """Reading what lies in a folder; the only place where files may be written, and removed."""
        self.folder, self.seen = str(folder), []
        try:
            yield self.seen
        finally:
            self.folder = None

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        path = str(args[0]) if args else ""
        inside = path.startswith(self.folder)
        if event == "open":
            flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not inside and path != "/dev/null":
                self.seen.append(f"{path} was opened to be written")
        elif event in FORBIDDEN and not inside:
            self.seen.append(f"{event} {path}")


def case_of(form: Format, name: str, seed: int, index: int) -> Case:
    """The same case every time."""
    return make(form, random.Random(zlib.crc32(f"{name}/{seed}/{index}".encode())))


def work(name: str, seed: int, start: int, stop: int, scratch: str, pipe: Any) -> None:
    """Read the cases from `start` on, in a process of its own, and report each."""
    torch.set_num_threads(1)
    form = formats()[name]
    os.chdir(scratch)
    sys.path.insert(0, scratch)
    (Path(scratch) / "canary_module.py").write_text(f"open({CANARY!r}, 'w').close()\n")
    os.environ["POSTERITY_DATA"] = scratch
    if hub := sys.modules.get("huggingface_hub.constants"):
        hub.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _ring)
    watch = Watch()
    for number, seeds in enumerate(
        form.seeds()
    ):  # all that is imported when it is needed is here now, which takes time
        state, reason = _read(form, seeds, Path(scratch) / f"seed-{number}", watch, True, HANGS)
        if state != "loaded":
            pipe.send(Outcome(start, "failed", 0.0, 0.0, f"valid file {number}: {reason}"))
            return
    _limit(2048.0)
    for index in range(start, stop):
        case = case_of(form, name, seed, index)
        pipe.send(index)
        before = _resident("VmRSS", clear=True)
        began = time.process_time()
        used = zlib.crc32(f"use/{seed}/{index}".encode()) % 1000 < 1000 * form.share
        state, reason = _read(form, case, Path(scratch) / "case", watch, used)
        seconds, more = time.process_time() - began, _resident("VmHWM") - before
        if state != "failed" and seconds > SECONDS:
            state, reason = "failed", f"It took {seconds:.1f} s."
        if state != "failed" and more > MEBIBYTES:
            state, reason = "failed", f"It took {more:.0f} MiB."
        pipe.send(Outcome(index, state, seconds, more, reason))


def _read(form: Format, case: Case, folder: Path, watch: Watch, used: bool, limit: float = SECONDS) -> tuple[str, str]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        write(case, folder)
    except (OSError, ValueError):
        return "refused", "by the file system"
    state, reason = "loaded", ""
    with watch.on(folder) as seen:
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            loaded = form.load(folder)
            if used:
                form.use(loaded, folder)
        except posterity.Error as error:
            state, reason = "refused", str(error)
            if memory := _out_of_memory(error):
                state, reason = "failed", f"Memory: {memory}"
            str(error).encode("utf-8", "backslashreplace")
        except TooLong:
            state, reason = "failed", f"It took more than {limit} s."
        except BaseException as error:
            state, reason = "failed", f"{type(error).__name__}: {str(error)[:300]} ({_where(error)})"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    if os.path.exists(CANARY):
        os.remove(CANARY)
        seen.append("the canary is there")
    return ("failed", f"Something was run: {seen[0]}") if seen else (state, reason)


def _ring(*_: object) -> None:
    raise TooLong


def _out_of_memory(error: BaseException | None) -> str:
    """The message of an allocation that failed, where that is what an error comes from."""
    while error is not None:
        text = str(error)
        if isinstance(error, MemoryError) or "allocate memory" in text or "malloc" in text or "Unable to alloc" in text:
            return f"{type(error).__name__}: {text[:200]}"
        error = error.__cause__ or error.__context__
    return ""


def _where(error: BaseException) -> str:
    """The last line of the library that an error went through."""
    found, trace = "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if "posterity" in path or not found:
            found = f"{'/'.join(Path(path).parts[-2:])}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _resident(field: str, clear: bool = False) -> float:
    try:
        if clear:
            CLEAR.write_text("5")
        return next(int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith(field))
    except OSError:
        return 0.0


def _limit(mebibytes: float) -> None:
    """So much more address space, beyond which the machine would suffer."""
    now = _resident("VmSize")
    if now:
        most = int((now + mebibytes) * 2**20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def run(
    name: str, count: int, seed: int, keep: Path | None = None, shown: bool = False, longest: float = math.inf
) -> dict[str, Any]:
    """Read `count` cases of a format, or as many as `longest` seconds allow; what failed is kept in a folder."""
    outcomes: list[Outcome] = []
    start, end = 0, time.monotonic() + longest
    formats()[name].seeds()  # made once, for all workers
    with tempfile.TemporaryDirectory() as scratch:
        while start < count and time.monotonic() < end:
            done = _with_worker(name, seed, start, count, scratch, shown, end)
            outcomes += done
            if not done or "valid file" in done[-1].reason:
                break
            start = done[-1].index + 1
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    for outcome in failed if keep is not None else ():
        _keep(keep / f"{name}-{seed}-{outcome.index}", case_of(formats()[name], name, seed, outcome.index), outcome)  # type: ignore[operator]
    states = collections.Counter(outcome.state for outcome in outcomes)
    return {
        "cases": len(outcomes),
        "loaded": states["loaded"],
        "refused": states["refused"],
        "failed": [f"{outcome.index}: {outcome.reason}" for outcome in failed],
        "slowest_seconds": round(max((outcome.seconds for outcome in outcomes), default=0.0), 3),
        "peak_mebibytes": round(max((outcome.mebibytes for outcome in outcomes), default=0.0), 1),
    }


def _with_worker(name: str, seed: int, start: int, stop: int, scratch: str, shown: bool, end: float) -> list[Outcome]:
    """What one worker reports before it ends, crashes or hangs, or the time is over."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    worker = context.Process(target=work, args=(name, seed, start, stop, scratch, theirs))
    worker.start()
    theirs.close()
    outcomes: list[Outcome] = []
    at = start
    try:
        while ours.poll(HANGS):
            got = ours.recv()
            if isinstance(got, int):
                at = got
                continue
            outcomes.append(got)
            if time.monotonic() > end:
                return outcomes
            if shown and len(outcomes) % 100 == 0:
                print(f"{name}: {start + len(outcomes)} of {stop}", end="\r", flush=True)
        outcomes.append(Outcome(at, "failed", HANGS, 0.0, f"It said nothing for {HANGS} s."))
    except EOFError:
        worker.join()
        if worker.exitcode:
            outcomes.append(Outcome(at, "failed", 0.0, 0.0, f"The process ended with status {worker.exitcode}."))
    finally:
        if worker.is_alive():
            worker.kill()
        worker.join()
    return outcomes


def _keep(folder: Path, case: Case, outcome: Outcome) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "reason.txt").write_text(outcome.reason + "\n", errors="backslashreplace")
    (folder / "case.pickle").write_bytes(pickle.dumps(case))  # our own, with links and odd names
    with contextlib.suppress(OSError, ValueError):
        write(case, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="cases of each format")
    parser.add_argument("--format", nargs="*", choices=list(formats()), default=list(formats()))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="at most so long for each format")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep = Path("fuzz-failures") if options.out is None else options.out.with_suffix("").with_name("fuzz-failures")
    found = {}
    print(f"{'format':<12}{'cases':>8}{'loaded':>8}{'refused':>9}{'failed':>8}{'slowest':>10}{'memory':>10}")
    for name in options.format:
        row = found[name] = run(name, options.count, options.seed, keep, sys.stderr.isatty(), options.seconds)
        print(
            f"{name:<12}{row['cases']:>8}{row['loaded']:>8}{row['refused']:>9}{len(row['failed']):>8}"
            f"{row['slowest_seconds']:>8.2f} s{row['peak_mebibytes']:>6.0f} MiB",
            flush=True,
        )
        for line, number in collections.Counter(reason.partition(": ")[2] for reason in row["failed"]).most_common(12):
            print(f"    {number} × {line}")
    if options.out is not None:
        _save(options.out, found, options.seed)
    sys.exit(any(row["failed"] for row in found.values()))


def _save(path: Path, found: dict[str, Any], seed: int) -> None:
    """Write what was found, beside what the file says of other formats."""
    command = " ".join(["python -m benchmarks.fuzz", *sys.argv[1:]])
    before = json.loads(path.read_text())["formats"] if path.exists() else {}
    rows = {name: row | {"seed": seed, "command": command} for name, row in found.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"formats": before | rows, "machine": _versions() | machine()}, indent=1) + "\n")


def _versions() -> dict[str, str]:
    import importlib.metadata

    names = ("numpy", "pandas", "pyarrow", "pillow", "safetensors", "transformers")
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


if __name__ == "__main__":
    main()
