"""The folder of a comparison: finished runs are kept, unfinished ones go on, all files are written whole."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posterity.cli.console import plain
from posterity.errors import Error
from posterity.storage import read_json


class Folder:
    """`runs/` with a record a run, `checkpoints/` of runs under way, `models/` of the first seed.

    Args:
        path: where it is, or will be
        arguments: what the runs depend on; records with other arguments do not count
    """

    def __init__(self, path: Path, arguments: Mapping[str, Any]) -> None:
        if path.exists() and not path.is_dir():
            raise Error(f"{path} is a file: name a folder for the results with --out.")
        self.path = path
        self.arguments = dict(arguments)
        self._check()
        path.mkdir(parents=True, exist_ok=True)

    def _check(self) -> None:
        """Leave the results of other data alone: their models would be replaced, or stand beside those of these."""
        for note in sorted(self.path.glob("runs/*.json")) + sorted(self.path.glob("checkpoints/*.json")):
            found = read(note) or {}
            arguments = found.get("arguments", found)
            if not isinstance(arguments, dict) or not isinstance(arguments.get("data"), str):
                continue
            if _subject(arguments) != _subject(self.arguments):
                raise Error(
                    f"{self.path} holds the results of {_subject(arguments)}: name another folder with --out for "
                    f"those of {_subject(self.arguments)}."
                )

    def record(self, method: str, seed: int) -> dict[str, Any] | None:
        """The record of a finished run with these arguments, if there is one."""
        found = read(self._record(method, seed))
        return found if found is not None and found.get("arguments") == self.run(method, seed) else None

    def begin(self, method: str, seed: int) -> Path:
        """Where the run's checkpoint goes; what is left of a run with other arguments is removed."""
        self._record(method, seed).unlink(missing_ok=True)
        folder = self.path / "checkpoints" / f"{method}-{seed}"
        note = folder.with_suffix(".json")
        if read(note) != self.run(method, seed):
            shutil.rmtree(folder, ignore_errors=True)
            write(note, self.run(method, seed))
        return folder

    def finish(self, method: str, seed: int, record: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a run's record and drop its checkpoint; returns the record as it will be read again."""
        kept = plain({"arguments": self.run(method, seed), **record})
        write(self._record(method, seed), kept)
        folder = self.path / "checkpoints" / f"{method}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_suffix(".json").unlink(missing_ok=True)
        if not any(folder.parent.iterdir()):
            folder.parent.rmdir()
        return kept

    def _record(self, method: str, seed: int) -> Path:
        return self.path / "runs" / f"{method}-{seed}.json"

    def run(self, method: str, seed: int) -> dict[str, Any]:
        """All that a run depends on."""
        return {**self.arguments, "method": method, "seed": seed}


def _subject(arguments: Mapping[str, Any]) -> str:
    """What results are about, in words; a file of the same name is a newer version of the same."""
    target = arguments.get("target")
    return Path(str(arguments.get("data"))).name + (f" with the target {target}" if target else "")


def read(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None where there is no such file or it holds something else."""
    try:
        value = read_json(path)
    except Error:
        return None
    return value if isinstance(value, dict) else None


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object, all at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(plain(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)
