"""The C allocator's settings, and the peak of resident memory: without torch, so that any worker can import it."""

import contextlib
import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRIM, TOP_PAD, MMAP = -1, -2, -3
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def keep_memory() -> None:
    """Let the C allocator keep what is freed: fresh pages cost as much as arithmetic, and differ from run to run."""
    _set({TRIM: 2**31 - 1, MMAP: 2**30, TOP_PAD: 2**28})


def return_memory() -> None:
    """Let the C allocator give back every page at once that is freed: then resident memory is what is in use."""
    _set({TRIM: 0, MMAP: 2**12, TOP_PAD: 0})


def peak(run: Callable[[], Any]) -> float:
    """MiB of resident memory at its highest while `run` runs, above the level before it (Linux; else not a number)."""
    gc.collect()
    try:
        CLEAR.write_text("5")  # the mark of the highest level falls to the present one
    except OSError:
        return float("nan")
    before = _resident("VmRSS")
    kept = run()
    highest = _resident("VmHWM")
    del kept
    return highest - before


def _set(options: dict[int, int]) -> None:
    with contextlib.suppress(OSError, AttributeError):
        c = ctypes.CDLL("libc.so.6")
        for option, value in options.items():
            c.mallopt(option, value)


def _resident(field: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024
