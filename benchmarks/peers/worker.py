"""One contender in a process of its own, which does as it is asked: a line of JSON in, a line of JSON out.

    python -m benchmarks.peers.worker FILE CONTENDER [--memory]

It asks nothing of posterity, and torch is imported by the contender alone.
"""

import argparse
import importlib
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from benchmarks.allocator import keep_memory, peak, return_memory
from benchmarks.peers.contract import Calls


def seconds(run: Callable[[], Any], calls: int) -> float:
    """Processor seconds of a call, after one that is not counted: another process had the caches before."""
    run()
    start = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - start) / calls


def answer(calls: Calls, request: dict[str, Any]) -> dict[str, Any]:
    """The measured number, or why there is none."""
    run = getattr(calls, request["what"])
    try:
        if request.get("memory"):
            run()
            return {"value": peak(run)}
        return {"value": seconds(run, request["calls"])}
    except Exception as error:
        return {"error": _why(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("contender")
    parser.add_argument("--memory", action="store_true", help="give freed memory back at once")
    options = parser.parse_args()
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    warnings.simplefilter("ignore")
    (return_memory if options.memory else keep_memory)()
    try:
        calls = importlib.import_module(options.file).CONTENDERS[options.contender].make()
    except Exception as error:
        traceback.print_exc()
        print(json.dumps({"error": _why(error)}), file=said, flush=True)
        return
    known = [what for what, run in calls._asdict().items() if run is not None]
    print(json.dumps({"value": known}), file=said, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(calls, json.loads(line))), file=said, flush=True)


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0][:300]


if __name__ == "__main__":
    main()
