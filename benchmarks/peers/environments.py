"""An environment for every library, beside the running one: the same torch and numpy, and nothing of it in the package."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from benchmarks.peers.contract import Library

SHOWN = 300


class Unusable(Exception):
    """A library, or a contender, that cannot be measured, and why."""


def python_of(library: Library, folder: Path) -> Path:
    """The interpreter in whose environment the library is installed; it is made where it is not there."""
    if library.version is None:
        return Path(sys.executable)
    home = folder / f"{library.name}-{library.version}"
    python = home / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(home)])
    packages = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    _see_the_running_one(packages)
    _install(python, f"{library.name}=={library.version}")
    for module, requirement in library.needs.items():
        if _missing(python, module):
            _install(python, requirement)
    for path, source in library.stubs.items():
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).write_text(source)
    _run([str(python), "-W", "ignore", "-c", f"import {', '.join(library.imports)}"])
    return python


def _see_the_running_one(packages: Path) -> None:
    """What the running interpreter has installed, torch above all, behind what the environment has itself."""
    paths = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (packages / "running.pth").write_text("\n".join(paths) + "\n")


def _missing(python: Path, module: str) -> bool:
    return "None" in _run([str(python), "-c", f"import importlib.util as u; print(u.find_spec({module!r}))"])


def _install(python: Path, requirement: str) -> None:
    """Never with dependencies: torch would come again, and torchvision with it."""
    _run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", requirement])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no word of why"]
        raise Unusable(said[-1][:SHOWN])
    return done.stdout
