"""Kill training runs at random moments, resume them, and see whether they end as if nothing had happened.

    python -m benchmarks.kills --kills 50 --out FILE

Every run saves after each step. It is killed (SIGKILL) after a random time, or, every other one, while it writes a
checkpoint; then the same call goes on in a new process, which may be killed too, until one comes to its end. All
parameters and the history must then be those of a run that was left alone, to the bit.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import posterity
from benchmarks.measure import machine

METHODS = ("ibnn", "bbb", "ensemble", "dropout", "map")
EPOCHS, ROWS, BATCH = 3, 512, 64


def train(method: str, folder: str, answer: str) -> None:
    """One run, from its checkpoint if there is one; at its end a digest of all that came out."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(ROWS, 64, generator=generator), torch.randint(10, (ROWS,), generator=generator)
    torch.manual_seed(0)
    network = posterity.networks.MLP(64, 10)
    posterior: Any = posterity.methods()[method](network, seed=0)
    history = posterity.fit(
        posterior,
        (x, y),
        epochs=EPOCHS,
        batch_size=BATCH,
        seed=0,
        device="cpu",
        checkpoint=folder,
        checkpoint_every=0.0,
        validation=(x[:64], y[:64]),
        progress=False,
    )
    digest = hashlib.sha256()
    for name, value in sorted(posterior.state_dict().items()):
        digest.update(name.encode() + value.contiguous().numpy().tobytes())
    for record in history:
        digest.update(json.dumps({k: v for k, v in record.items() if k != "seconds"}).encode())
    Path(answer).write_text(digest.hexdigest())


def run(method: str, folder: Path, chance: random.Random | None, writing: bool, longest: float) -> tuple[str, int]:
    """The digest of a run, and how often it was killed: at random, or not at all."""
    kills, answer = 0, folder / "answer"
    while True:
        child = multiprocessing.get_context("fork").Process(target=train, args=(method, str(folder / "c"), str(answer)))
        child.start()
        if chance is not None and kills < 3:
            deadline = time.monotonic() + chance.uniform(0.0, longest)
            while child.is_alive() and (time.monotonic() < deadline or (writing and not _being_written(folder / "c"))):
                time.sleep(0.0002)
            if child.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        kills += child.exitcode == -signal.SIGKILL
        if child.exitcode == 0:
            return answer.read_text(), kills
        if child.exitcode != -signal.SIGKILL:
            sys.exit(f"A run of {method} ended with status {child.exitcode} after {kills} kills.")


def _being_written(folder: Path) -> bool:
    return folder.exists() and any(name.endswith(".part") for name in os.listdir(folder))


def measure(kills: int, seed: int) -> dict[str, Any]:
    """Kill until there were so many, and count the runs that ended differently."""
    torch.set_num_threads(1)
    chance, done, during, runs, wrong = random.Random(seed), 0, 0, 0, []
    with tempfile.TemporaryDirectory() as scratch:
        known, times = {}, {}
        for method in METHODS:
            folder = Path(scratch) / method
            folder.mkdir()
            began = time.monotonic()
            known[method], _ = run(method, folder, None, False, 0.0)
            times[method] = time.monotonic() - began
        while done < kills:
            method, writing = METHODS[runs % len(METHODS)], runs % 2 == 1
            folder = Path(scratch) / f"run-{runs}"
            folder.mkdir()
            found, killed = run(method, folder, chance, writing, times[method])
            done, during, runs = done + killed, during + killed * writing, runs + 1
            if found != known[method]:
                wrong.append(f"{method}, run {runs}")
            print(f"{done} of {kills} kills, {len(wrong)} runs that ended differently", end="\r", flush=True)
    print()
    return {"kills": done, "while writing": during, "runs": runs, "different": wrong, "seed": seed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = measure(options.kills, options.seed)
    print(json.dumps(found))
    if options.out is not None:
        command = " ".join(["python -m benchmarks.kills", *sys.argv[1:]])
        options.out.write_text(json.dumps(found | {"command": command, "machine": machine()}, indent=1) + "\n")
    sys.exit(bool(found["different"]))


if __name__ == "__main__":
    main()
