"""The package: what importing it loads, what the wheel holds, and that an installed wheel works."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from posterity import errors

ROOT = Path(__file__).parents[1]
ALLOWED = {"torch", "numpy", "posterity"}
SCRIPT = """
import sys
import torch, numpy
before = set(sys.modules)
import posterity
posterity.networks.LeNet, posterity.methods(), posterity.IBNN
loaded = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(*sorted(loaded))
"""


def test_importing_loads_torch_and_numpy_alone():
    loaded = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= ALLOWED


def test_the_wheel_is_built_installed_and_works(tmp_path):
    for package in ("build", "hatchling"):
        pytest.importorskip(package)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("posterity-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "posterity/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(install, capture_output=True, check=True)
    script = (
        "import posterity, torch; print(posterity.__file__);"
        "p = posterity.IBNN(torch.nn.Linear(3, 2)); print(tuple(p.draw(4)(torch.ones(5, 3)).shape))"
    )
    environment = {"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"}
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    ).stdout
    assert str(target) in out
    assert "(4, 5, 2)" in out
    metadata = next(name for name in names if name.endswith("METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "Requires-Dist: torch>=2.11" in text
    assert "License-Expression: Apache-2.0" in text


def test_the_version_is_the_same_everywhere():
    import tomllib

    import posterity

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == posterity.__version__


def test_packages_of_other_extras_are_asked_for_by_those():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(errors.importlib, "import_module", lambda _: (_ for _ in ()).throw(ImportError("gone")))
        for package, extra in (
            ("onnx.helper", "export"),
            ("transformers", "huggingface"),
            ("matplotlib.figure", "all"),
        ):
            with pytest.raises(errors.Error, match=rf"posterity\[{extra}\]"):
                errors.require(package)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in errors.EXTRAS.items():
        assert {re.split(r"[<>=]", line)[0] for line in declared[extra]} == set(packages)
