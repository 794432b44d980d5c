"""Exported files say what PyTorch says with the same draws, to strangers, and are whole or not there."""

import functools
import json
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import posterity
from common import ConvNet, generator, mlp, seeded
from pages import blocks
from posterity.cli.app import app
from posterity.datasets import Preprocessing
from posterity.deployment import files, tracing
from zoo import ZOO, Recurrent

PARTS = ["total", "aleatoric", "epistemic"]
SAMPLES = 3


@pytest.fixture(scope="module", autouse=True)
def one_table_of_operators():
    """torch makes its table of ONNX operators anew for every export, which is a third of the time: once is enough."""
    from torch.onnx._internal.exporter import _registration

    make = functools.cache(_registration.ONNXRegistry.from_torchlib)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_registration.ONNXRegistry, "from_torchlib", staticmethod(make))
        yield


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def answers(path, x):
    """What a file says, by name; x by name too, or one array."""
    if path.suffix == ".pt2":
        return {name: value.numpy() for name, value in torch.export.load(path).module()(x).items()}
    loaded = session(path)
    x = x if isinstance(x, dict) else {"input": x}
    given = {name: np.asarray(value) for name, value in x.items()}
    return dict(zip([value.name for value in loaded.get_outputs()], loaded.run(None, given), strict=True))


def assert_same(said, prediction, tolerance=1e-5):
    names = [*(["mean", "std"] if hasattr(prediction, "mean") else ["probs"]), *PARTS]
    assert list(said) == names
    for name in names:
        right = getattr(prediction, name).numpy()
        assert said[name].shape == right.shape
        np.testing.assert_allclose(said[name], right, rtol=tolerance, atol=tolerance, err_msg=name)


def predict(posterior, x, seed=0):
    return posterity.predict(posterior, x, samples=SAMPLES, seed=seed)


def export(posterior, path, example=None, seed=0, **options):
    return posterity.export(posterior, path, example, **{"samples": SAMPLES, "seed": seed, **options})


def uneven(cls, make):
    """A posterior, not trained, whose functions are made to differ visibly."""
    posterior = cls(seeded(make), seed=0)
    draw = posterior.draw

    def drawn(n, generator=None):
        functions = draw(n, generator)
        for index in range(len(functions.keys)):
            weight = getattr(functions, f"weight{index}")
            setattr(functions, f"weight{index}", weight + 20 * (weight - weight.mean(0)))
        return functions

    posterior.draw = drawn
    return posterior


@pytest.mark.parametrize("name", posterity.methods())
def test_onnx_says_what_predict_says_for_every_method_and_any_number_of_rows(tmp_path, name):
    posterior = uneven(posterity.methods()[name], mlp)
    x = torch.randn(17, 5, generator=generator(1))
    path, _ = export(posterior, tmp_path / "model.onnx", x[:4])
    for rows in (1, 3, 17):
        assert_same(answers(path, x[:rows]), predict(posterior, x[:rows]))
    if name != "map":
        assert predict(posterior, x).epistemic.max() > 1e-3


class Inputs(nn.Module):
    """An embedding, numbers beside it, and results by name."""

    def __init__(self):
        super().__init__()
        self.embed, self.beside, self.head = nn.Embedding(10, 4), nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, tokens, numbers, twice=False):
        h = self.embed(tokens).mean(1) + self.beside(numbers)
        return {"hidden": h, "logits": self.head(2 * h if twice else h)}


NETWORKS = {
    "ibnn, batch statistics": ("ibnn", ConvNet, lambda: torch.randn(5, 1, 6, 6, generator=generator(1))),
    "bbb, batch statistics": ("bbb", ConvNet, lambda: torch.randn(5, 1, 6, 6, generator=generator(1))),
    "ibnn, transformer": ("ibnn", *ZOO["transformer"]),
    "ensemble, tied embedding": ("ensemble", *ZOO["tied"]),
    "dropout, gru": ("dropout", *ZOO["gru"]),
    "mnf, lstm": ("mnf", lambda: Recurrent(nn.LSTM), lambda: torch.randn(5, 2, 3, generator=generator(1))),
}


@pytest.mark.parametrize("case", NETWORKS)
def test_onnx_says_what_predict_says_for_every_kind_of_network(tmp_path, case):
    name, make, inputs = NETWORKS[case]
    posterior, x = posterity.methods()[name](seeded(make), seed=0), inputs()
    path, _ = export(posterior, tmp_path / "model.onnx", x, samples=2)
    for rows in (1, len(x)):
        right = posterity.predict(posterior, x[:rows], samples=2, seed=0)
        assert_same(answers(path, x[:rows]), right)


def test_a_mapping_keeps_its_names_and_what_is_no_tensor_is_fixed(tmp_path):
    posterior = posterity.IBNN(seeded(Inputs), seed=0)
    x = {"tokens": torch.randint(10, (6, 5), generator=generator(1)), "numbers": torch.randn(6, 2), "twice": True}
    path, facts = export(posterior, tmp_path / "model.onnx", x)
    assert list(facts["inputs"]) == ["tokens", "numbers"]
    given = {name: x[name] for name in ("numbers", "tokens")}
    assert_same(answers(path, given), predict(posterior, x))
    assert not torch.allclose(predict(posterior, x).probs, predict(posterior, given).probs, atol=1e-3)


def test_a_tuple_gives_numbered_inputs(tmp_path):
    posterior = posterity.IBNN(seeded(Inputs), seed=0)
    x = torch.randint(10, (6, 5), generator=generator(1)), torch.randn(6, 2, generator=generator(2))
    path, _ = export(posterior, tmp_path / "model.onnx", x)
    assert_same(answers(path, {"input0": x[0], "input1": x[1]}), predict(posterior, x))


def test_uncertainties_of_dense_outputs_are_maps(tmp_path):
    net = seeded(lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1)))
    posterior, x = posterity.IBNN(net, seed=0), torch.randn(4, 2, 5, 6, generator=generator(1))
    path, facts = export(posterior, tmp_path / "model.onnx", x)
    said = answers(path, x[:3])
    assert said["probs"].shape == (3, 3, 5, 6)
    assert said["epistemic"].shape == (3, 5, 6)
    assert facts["outputs"]["epistemic"]["shape"] == ["batch", 5, 6]
    assert_same(said, predict(posterior, x[:3]))


@pytest.mark.parametrize("likelihood", [posterity.Categorical(), posterity.Bernoulli()], ids=["classes", "labels"])
def test_probabilities_of_exactly_zero_and_one_leave_the_entropies_finite(tmp_path, likelihood):
    posterior = posterity.IBNN(seeded(mlp), seed=0)
    posterior.likelihood = likelihood
    with torch.no_grad():
        posterior.network[2].weight.mul_(1e4)
    x = torch.cat([100 * torch.randn(6, 5, generator=generator(1)), torch.zeros(1, 5)])
    path, _ = export(posterior, tmp_path / "model.onnx", x)
    said = answers(path, x)
    assert (said["probs"] == 0).any()
    assert all(np.isfinite(value).all() for value in said.values())
    assert_same(said, predict(posterior, x))


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_regression_gives_variances_and_the_network_may_give_the_noise(tmp_path, suffix):
    posterior = uneven(posterity.LIVI, lambda: mlp(5, 4))
    posterior.likelihood = posterity.Gaussian(heteroscedastic=True)
    x = torch.randn(17, 5, generator=generator(1))
    path, _ = export(posterior, tmp_path / f"model{suffix}", x[:2])
    for rows in (1, 3, 17):
        assert_same(answers(path, x[:rows]), predict(posterior, x[:rows]))


def table(rows=40):
    """Raw columns of all kinds, with missing values in each."""
    numbers = np.random.default_rng(0)
    income = 1e6 + 1e5 * numbers.normal(size=rows)
    income[3] = np.nan
    day = np.array("2024-01-01", "datetime64[s]") + numbers.integers(0, 10**8, rows)
    day[5] = np.datetime64("NaT")
    town = numbers.choice(np.array(["Ulm", "Bonn", None], dtype=object), rows)
    return {"income": income, "day": day, "town": town, "price": 5e4 + 1e3 * numbers.normal(size=rows)}


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    """A model folder of a table, with all kinds of columns, and the raw table."""
    import pandas

    root, raw = tmp_path_factory.mktemp("houses"), table()
    pandas.DataFrame(raw).to_csv(root / "houses.csv", index=False)
    data = posterity.datasets.load(root / "houses.csv", target="price", task="regression")
    posterior = posterity.IBNN(seeded(lambda: posterity.networks.MLP(data.train[0].shape[1], 1, hidden=(8,))), seed=0)
    posterior.likelihood = posterity.Gaussian(std=0.3)
    posterity.save(posterior, root / "model", preprocessing=data.preprocessing)
    return root / "model", raw


@pytest.fixture(scope="module")
def exported(houses, tmp_path_factory):
    return export(posterity.load(houses[0]), tmp_path_factory.mktemp("exported") / "model.onnx")


def test_a_table_goes_in_raw_and_comes_out_in_the_units_of_the_target(houses, exported):
    (folder, raw), (path, facts) = houses, exported
    posterior = posterity.load(folder)
    known = {column["name"]: column for column in facts["columns"]}
    assert [known[name]["kind"] for name in ("income", "day", "town")] == ["number", "date", "category"]
    places = {name: place for place, name in enumerate(known["town"]["categories"])}
    days = (raw["day"] - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    numbers = {"income": raw["income"], "day": days, "town": [places[town] for town in raw["town"]]}
    rows = np.stack([numbers[name] for name in known], axis=1)
    said = answers(path, rows)
    preprocessing = posterior.preprocessing
    right = predict(posterior, preprocessing.inputs(raw)).rescale(preprocessing.target_mean, preprocessing.target_std)
    assert_same(said, right)
    assert 4e4 < said["mean"].mean() < 6e4
    never_seen, missing = rows[:1].copy(), rows[:1].copy()
    never_seen[0, list(known).index("town")], missing[0, list(known).index("town")] = -1, np.nan
    for row, town in ((never_seen, "Rome"), (missing, None)):
        one = {name: values[:1] for name, values in raw.items()} | {"town": np.array([town], dtype=object)}
        right = predict(posterior, preprocessing.inputs(one)).rescale(
            preprocessing.target_mean, preprocessing.target_std
        )
        assert_same(answers(path, row), right)


def test_images_go_in_as_they_are_read(tmp_path):
    posterior = posterity.MAP(seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(2 * 4 * 3, 3))))
    raw = np.random.default_rng(0).integers(0, 256, (5, 2, 4, 3)).astype(np.float32)
    posterior.preprocessing = Preprocessing.from_dict(
        {"kind": "images", "target": "y", "classes": ["a", "b", "c"], "target_mean": 0.0, "target_std": 1.0}
        | {"channels": 2, "size": [4, 3], "scale": 255.0, "mean": [0.4, 0.6], "std": [0.2, 0.3]}
    )
    path, facts = export(posterior, tmp_path / "model.pt2")
    assert facts["classes"] == ["a", "b", "c"]
    assert_same(answers(path, torch.from_numpy(raw)), predict(posterior, posterior.preprocessing.inputs(raw)))


def test_an_example_is_what_the_file_takes_even_where_there_is_preprocessing(tmp_path, houses):
    posterior, raw = posterity.load(houses[0]), houses[1]
    x = posterior.preprocessing.inputs(raw)
    path, facts = export(posterior, tmp_path / "model.pt2", x[:3])
    assert "columns" not in facts
    units = posterior.preprocessing.target_mean, posterior.preprocessing.target_std
    assert_same(answers(path, x), predict(posterior, x).rescale(*units))


def test_the_seed_decides_what_the_file_says_and_exporting_says_and_changes_nothing(tmp_path, capfd):
    posterior, x = posterity.IBNN(seeded(mlp), seed=0).train(), torch.randn(4, 5, generator=generator(1))
    state, before = torch.get_rng_state(), {name: value.clone() for name, value in posterior.state_dict().items()}
    paths = [export(posterior, tmp_path / f"{i}.onnx", x, seed=seed).path for i, seed in enumerate((0, 0, 1))]
    one, same, other = (answers(path, x)["probs"] for path in paths)
    assert paths[0].read_bytes() == paths[1].read_bytes() != paths[2].read_bytes()
    assert np.array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3
    assert torch.equal(torch.get_rng_state(), state)
    assert posterior.training
    assert all(torch.equal(value, before[name]) for name, value in posterior.state_dict().items())
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_node_noise_adds_kilobytes_where_weights_add_copies(tmp_path):
    wide, x = seeded(lambda: mlp(1000, 3)), torch.randn(3, 1000)
    weights = 4 * sum(p.numel() for p in wide.parameters())

    def size(posterior, samples):
        path, facts = export(posterior, tmp_path / "model.onnx", x, samples=samples)
        return path.stat().st_size, facts["holds"]

    noise = 4 * posterity.IBNN(wide, seed=0).draw(1).noise.numel()
    (few, _), (many, holds) = (size(posterity.IBNN(wide, seed=0), samples) for samples in (2, 12))
    assert few < weights + 2 * noise + 10_000
    assert 10 * noise <= many - few < 10 * noise + 100
    assert holds == "one copy of the weights, and the noise of 12 functions"
    copies, holds = size(posterity.BayesByBackprop(wide, seed=0), 12)
    assert 12 * weights < copies < 12 * weights + 10_000
    assert holds == "12 copies of the weights"


@pytest.mark.parametrize("unroll", [False, True])
def test_functions_in_a_loop_or_written_out_share_the_weights(tmp_path, unroll):
    net = seeded(lambda: nn.Sequential(nn.Conv2d(3, 64, 5), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 4, 3)))
    weights = 4 * sum(p.numel() for p in net.parameters())
    posterior, x = posterity.IBNN(net, seed=0), torch.randn(3, 3, 6, 6, generator=generator(1))
    path, _ = export(posterior, tmp_path / "model.onnx", x, unroll=unroll)
    assert_same(answers(path, x[:2]), predict(posterior, x[:2]))
    operators = [node.op_type for node in onnx.load(path).graph.node]
    assert (operators.count("Scan"), operators.count("Gemm")) == ((0, SAMPLES) if unroll else (1, 0))
    assert path.stat().st_size < weights + 4 * SAMPLES * posterior.nodes + 15_000


def test_where_torch_has_no_loop_functions_are_written_out(tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError

    monkeypatch.setattr(tracing, "_scan", fails)
    x = torch.randn(3, 5, 3)
    _, facts = export(posterity.IBNN(seeded(ZOO["gru"][0]), seed=0), tmp_path / "model.pt2", x)
    assert facts["samples"] == SAMPLES


def test_without_a_number_twenty_functions_or_an_ensembles_members_are_written(tmp_path):
    x = torch.randn(3, 5)
    for method, samples in ((posterity.IBNN, 20), (posterity.DeepEnsemble, 5)):
        _, facts = posterity.export(method(mlp(), seed=0), tmp_path / "model.pt2", x, seed=0)
        assert facts["samples"] == samples


def test_the_file_tells_a_stranger_what_it_is(exported):
    path, facts = exported
    told = session(path).get_modelmeta().custom_metadata_map
    assert told["posterity"] == posterity.__version__
    assert told["method"] == "ibnn"
    assert told["target"] == "price"
    assert (told["samples"], told["seed"]) == ("3", "0")
    assert {name: json.loads(told[name]) for name in ("columns", "inputs", "outputs")} == {
        name: facts[name] for name in ("columns", "inputs", "outputs")
    }
    (given,), outputs = session(path).get_inputs(), session(path).get_outputs()
    assert given.shape == ["batch", 3]
    assert facts["inputs"]["input"]["shape"] == ["batch", 3]
    assert [value.name for value in outputs] == ["mean", "std", *PARTS]
    text = path.read_bytes()
    assert b".py" not in text, "paths of whoever exported it"
    onnx.checker.check_model(onnx.load(path))


def test_a_pt2_file_tells_the_same_and_keeps_no_row_of_the_example(tmp_path):
    path, facts = export(posterity.IBNN(mlp(), seed=0), tmp_path / "model.pt2", torch.randn(3, 5))
    extra = {files.FACTS: ""}
    program = torch.export.load(path, extra_files=extra)
    assert json.loads(extra[files.FACTS]) == facts
    assert program.example_inputs is None


def test_a_file_that_says_something_else_is_not_written_and_the_old_one_stays(tmp_path, monkeypatch):
    posterior, x, path = posterity.IBNN(mlp(), seed=0), torch.randn(3, 5), tmp_path / "model.pt2"
    path.write_text("old")
    run = files.Program.run
    monkeypatch.setattr(
        files.Program, "run", lambda *a: {name: value + 0.01 * (name == "epistemic") for name, value in run(*a).items()}
    )
    with pytest.raises(posterity.Error, match=r"'epistemic' is 0\.01 from PyTorch's"):
        export(posterior, path, x)
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt2"]
    assert path.read_text() == "old"
    assert export(posterior, path, x, tolerance=0.1).path == path
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt2"]


def test_a_wrong_standardisation_would_be_found(tmp_path, houses, monkeypatch):
    from posterity.deployment import raw

    forward = raw.TableRows.forward
    monkeypatch.setattr(raw.TableRows, "forward", lambda self, x: forward(self, x + 1e-3 * x.abs()))
    with pytest.raises(posterity.Error, match="from PyTorch's"):
        export(posterity.load(houses[0]), tmp_path / "model.pt2")


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, total):
        return self.layer(total.reshape(3, 5))


class Branching(Fixed):
    def forward(self, total):
        return self.layer(total if total.sum() > 0 else -total)


class Unknown(Fixed):
    def forward(self, total):
        return self.layer(total) + torch.linalg.matrix_exp(torch.zeros(3, 3)).sum() * torch.lgamma(total).sum()


class Named(Fixed):
    def forward(self, total):
        return self.layer(total)


@pytest.mark.parametrize(
    ("net", "file", "example", "sentence"),
    [
        (mlp(), "model.bin", torch.zeros(3, 5), "must end in .onnx"),
        (mlp(), "model.pt2", None, "no preprocessing: give export() an example"),
        (mlp(), "model.pt2", torch.zeros(0, 5), "must have rows"),
        (mlp(), "model.pt2", torch.full((3, 5), torch.nan), "NaN"),
        (Fixed(), "model.pt2", torch.zeros(3, 5), "cannot trace this network for any number of rows"),
        (Branching(), "model.pt2", torch.zeros(3, 5), "cannot trace this network for any number of rows"),
        (Unknown(), "model.onnx", torch.ones(3, 5), "cannot be written as ONNX"),
        (Named(), "model.onnx", {"total": torch.zeros(3, 5)}, "'total' has the name of an output"),
        (mlp(), "file/model.pt2", torch.zeros(3, 5), "Cannot write"),
    ],
)
def test_what_cannot_be_exported_is_an_error_with_a_sentence(tmp_path, capfd, net, file, example, sentence):
    (tmp_path / "file").touch()
    with pytest.raises(posterity.Error, match=re.escape(sentence)):
        export(posterity.MAP(net), tmp_path / file, example)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(posterity.Error, match=f"'{package}', which is not installed"):
        export(posterity.MAP(mlp()), tmp_path / "model.onnx", torch.zeros(3, 5))


def test_without_onnxruntime_a_file_is_written_and_said_to_be_unchecked(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.warns(UserWarning, match="not checked"):
        export(posterity.MAP(mlp()), tmp_path / "model.onnx", torch.zeros(3, 5))
    assert (tmp_path / "model.onnx").stat().st_size > 0


def test_a_program_that_a_runtime_refuses_is_an_error_with_a_sentence(tmp_path, monkeypatch):
    def refuses(*_, **__):
        raise RuntimeError("no such operator")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuses)
    with pytest.raises(posterity.Error, match=r"onnxruntime cannot run .* \(no such operator\)"):
        export(posterity.MAP(mlp()), tmp_path / "model.onnx", torch.zeros(3, 5))
    assert not list(tmp_path.iterdir())


def test_weights_that_no_onnx_file_holds_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_ONNX", 100)
    with pytest.raises(posterity.Error, match="do not fit into an ONNX file"):
        export(posterity.MAP(mlp()), tmp_path / "model.onnx", torch.zeros(3, 5))


def command(*arguments, status=0):
    result = CliRunner().invoke(app, ["export", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result


@pytest.mark.gpu
@pytest.mark.parametrize("name", posterity.methods())
def test_a_posterior_on_a_gpu_is_exported_for_any_machine(tmp_path, name):
    posterior = posterity.methods()[name](seeded(ConvNet), seed=0).cuda()
    x = torch.randn(4, 1, 6, 6, generator=generator(1))
    path, _ = export(posterior, tmp_path / "model.pt2", x)
    assert next(posterior.parameters()).is_cuda
    assert_same(answers(path, x), predict(posterior, x), tolerance=1e-3)


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_the_command_prints_lines_that_use_its_file_without_posterity(tmp_path, houses, suffix):
    path = tmp_path / f"model{suffix}"
    if suffix == ".onnx":
        words = [sys.executable, "-m", "posterity", "export", houses[0], "--out", path, "--samples", "2"]
        ran = subprocess.run(words, capture_output=True, text=True, check=True)
        assert ran.stderr == "", "what exporters say on the way"
        printed = ran.stdout
    else:
        printed = command(houses[0], "--out", path, "--samples", 2).stdout
    assert "holds 2 functions of ibnn" in printed
    assert re.search(r"\d kB, with one copy of the weights, and the noise of 2 functions", printed)
    lines = printed[printed.index("import ") :]
    script = lines + "\nimport sys\nprint(mean.item(), epistemic.item(), 'posterity' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    posterior = posterity.load(houses[0])
    zeros = {"income": np.zeros(1), "day": np.zeros(1, "datetime64[s]")}
    town = next(column for column in posterior.preprocessing.columns if column.name == "town").categories[0]
    x = posterior.preprocessing.inputs(zeros | {"town": np.array([town], dtype=object)})
    right = posterity.predict(posterior, x, samples=2, seed=0)
    right = right.rescale(posterior.preprocessing.target_mean, posterior.preprocessing.target_std)
    mean, epistemic, loaded = out.stdout.split()
    assert (float(mean), float(epistemic)) == pytest.approx((float(right.mean), float(right.epistemic)), rel=1e-4)
    assert loaded == "False"


def test_the_command_prints_one_json_object(tmp_path, houses):
    said = json.loads(command(houses[0], "--out", tmp_path / "model.pt2", "--seed", 7, "--json").stdout)
    assert (said["method"], said["samples"], said["seed"]) == ("ibnn", 20, 7)
    assert said["bytes"] == (tmp_path / "model.pt2").stat().st_size


def test_mistakes_on_the_command_line_end_in_a_sentence(tmp_path, houses):
    posterity.save(posterity.MAP(posterity.networks.MLP(2, 2)), tmp_path / "bare")
    assert "must end in .onnx" in command(houses[0], "--out", tmp_path / "model.txt", status=2).stderr
    assert "no model folder" in command(tmp_path, status=2).stderr
    assert "without its preprocessing" in command(tmp_path / "bare", status=2).stderr


def test_the_guide_runs_as_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks("docs/guides/deployment.md")
    assert len(found) >= 3
    exec("\n".join(found), {})
