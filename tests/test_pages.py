"""What pages show is run: cells when the site is built, other blocks here; commands are known with their options."""

import re
import shlex

import numpy as np
import pytest
import torch
import typer
from torch import nn

import posterity
from common import generator
from pages import FENCE, ROOT, blocks
from posterity.cli.app import app

PAGES = sorted(path.relative_to(ROOT) for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
#: Pages whose blocks are shown only, and the tests that run them.
SHOWN = {
    "README.md": "tests/test_pages.py",
    "docs/results/draws.md": "tests/test_pages.py",
    "docs/guides/machines.md": "tests/test_processes.py",
}


def test_every_block_is_run_somewhere():
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert ("```python" in text) == (str(page) in SHOWN), page
        assert ("{code-cell}" not in text) or text.startswith("---\nfile_format: mystnb\n"), page
        assert text.count("```") % 2 == 0, page
    for test in SHOWN.values():
        assert (ROOT / test).is_file()


def commands():
    """The lines of all pages that call the command line."""
    for page in PAGES:
        text = (ROOT / page).read_text()
        fenced = re.findall(r"^```(?:bash|console|sh)?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        quoted = re.findall(r"`(posterity [a-z][^`]*)`", FENCE.sub("", text))
        for line in [*quoted, *(line for block in fenced for line in block.splitlines())]:
            if line.startswith("posterity ") and "…" not in line:
                yield pytest.param(line, id=f"{page}: {line[:60]}")


@pytest.mark.parametrize("line", commands())
def test_a_command_exists_with_its_options(line):
    _, name, *rest = shlex.split(line.partition("  #")[0])
    command = typer.main.get_command(app).commands.get(name)
    assert command is not None, name
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known | {"--help"}


def lines(block):
    return [line for line in block.splitlines() if line.strip()]


def test_the_readmes_ten_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = torch.randn(40, 1, 28, 28, generator=generator()), torch.arange(40) % 10
    names = {"x": x, "y": y, "x_new": x[:3]}
    fit = posterity.fit
    monkeypatch.setattr(posterity, "fit", lambda *a, **k: fit(*a, **k, epochs=1, device="cpu", progress=False))
    exec(blocks("README.md")[0], names)
    assert names["functions"](x[:3]).shape == (16, 3, 10)
    assert names["posterior"].draw(2)(x[:3]).shape == (2, 3, 10)


def test_the_readmes_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(60, 2))
    table = "\n".join(["size,age,price", *(f"{a},{b},{1000 + 300 * a - b}" for a, b in rows)])
    (tmp_path / "houses.csv").write_text(table)
    (tmp_path / "new.csv").write_text("size,age\n0.5,1\n-1,2\n")
    arguments = ["compare", "houses.csv", "--target", "price", "--methods", "map,ibnn", "--out", "run", "--epochs", "2"]
    with pytest.raises(SystemExit) as ended:
        app(arguments, standalone_mode=True)
    assert ended.value.code in (0, None)
    names = {"posterity": posterity}
    exec(blocks("README.md")[1], names)
    assert names["prediction"].mean.shape == (2, 1)
    assert 0 < float(names["prediction"].mean.mean()) < 2000


def test_the_readmes_lines_for_other_tools(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    from test_huggingface import arguments, batch, bert, rows_of

    monkeypatch.chdir(tmp_path)
    sklearn, trainer, loop, export = lines(blocks("README.md")[2])
    monkeypatch.setattr("posterity.estimators.fit", lambda *a, **k: posterity.fit(*a, **{**k, "epochs": 1}))
    x, y = torch.randn(30, 4, generator=generator()), torch.arange(30) % 3
    exec(sklearn, {"posterity": posterity, "X": x.numpy(), "y": y.numpy(), "X_new": x.numpy()})
    texts = {"posterior": posterity.IBNN(bert(), 2), "args": arguments(tmp_path), "data": rows_of(batch())}
    exec(trainer, {"posterity": posterity} | texts)
    rest = {"posterior": posterity.IBNN(nn.Linear(4, 3)), "x": x, "y": y, "data": x, "posterity": posterity}
    exec(f"{loop}\n{export}", rest)
    assert rest["loss"].shape == ()
    assert (tmp_path / "model.onnx").is_file()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_lines_for_speed_and_for_draws(monkeypatch):
    x, y = torch.randn(30, 4, generator=generator()), torch.arange(30) % 3
    names = {"posterity": posterity, "x": x, "data": (x, y), "student": nn.Linear(4, 3)}
    names["posterior"] = posterity.IBNN(nn.Linear(4, 3))
    monkeypatch.setattr(posterity, "distil", lambda *a: posterity.distillation.distil(*a, epochs=1, progress=False))
    fit = posterity.fit
    monkeypatch.setattr(posterity, "fit", lambda *a, **k: fit(*a, **k, epochs=1, progress=False))
    with torch.compiler.set_stance("force_eager"):  # that compiling works is tested elsewhere
        for block in [blocks("README.md")[3], *blocks("docs/results/draws.md")]:
            exec(block, names)
    assert names["prediction"].samples.shape == (30,)
