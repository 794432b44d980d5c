"""Hostile files: a hundred of every format, and those that once did harm."""

import json
import struct
import time
import warnings
import zipfile

import numpy as np
import pytest
import torch
from benchmarks import fuzz, fuzz_formats
from safetensors.torch import load_file, save_file

import posterity
from common import ConvNet, mlp, seeded
from own_process import without_gpu
from posterity import checkpoints, datasets
from posterity.cli.runs import tuned

TRAINED = ("checkpoint", "tuned")


@pytest.mark.parametrize("name", [name for name in fuzz_formats.formats() if name not in TRAINED])
def test_damaged_files_load_or_are_an_error(name):
    if name in ("hub", "pretrained"):
        pytest.importorskip("transformers")
    load_or_are_an_error(name)


@without_gpu
@pytest.mark.parametrize("name", TRAINED)
def test_damaged_files_that_a_run_begins_with_load_or_are_an_error(name):
    load_or_are_an_error(name)


def load_or_are_an_error(name):
    found = fuzz.run(name, 100, seed=0)
    assert found["failed"] == []
    assert found["cases"] == found["loaded"] + found["refused"] == 100
    assert found["refused"] > 10


@without_gpu
def test_what_is_run_or_raised_is_noticed(monkeypatch):
    """The bench itself: readers that load pickles, raise other errors, or take too long are found out."""
    import pickle

    from benchmarks.fuzz_mutations import PICKLE

    def wrong(self, folder):
        content = (folder / "best.json").read_bytes()
        if content == json.dumps(json.loads(self.seeds()[0]["best.json"])).encode():
            return tuned(folder / "best.json")
        return pickle.loads(PICKLE) if len(content) % 2 else {}["nothing"]

    monkeypatch.setattr(fuzz_formats.Tuned, "load", wrong)
    monkeypatch.setattr(
        fuzz_formats.Tuned, "seeds", lambda self: [{"best.json": b'{"method": "map", "posterior": {}, "fit": {}}'}]
    )
    failed = fuzz.run("tuned", 10, seed=0)["failed"]
    assert any("KeyError" in line for line in failed), failed
    assert any("was run" in line for line in failed), failed


@pytest.fixture
def model(tmp_path):
    return posterity.save(posterity.IBNN(posterity.networks.MLP(3, 2, hidden=[4]), 2, seed=0), tmp_path / "model")


def refused_at_once(read, *args, **options):
    began = time.process_time()
    with pytest.raises(posterity.Error):
        read(*args, **options)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("network", {"hidden": [4] * 50_001}),
        ("network", {"inputs": 30_000, "outputs": 30_000, "hidden": []}),
        ("arguments", {"layers": ["layers.0"] * 100_000}),
        ("arguments", {"samples": 10**6}),
    ],
    ids=str,
)
def test_a_configuration_asks_for_no_more_than_there_is(model, part, values):
    path = model / "config.json"
    config = json.loads(path.read_text())
    (config["network"]["arguments"] if part == "network" else config[part]).update(values)
    path.write_text(json.dumps(config))
    refused_at_once(posterity.load, model)


def test_deep_networks_and_wide_hypernetworks_need_their_weights(tmp_path):
    folder = posterity.save(posterity.BayesByHypernet(posterity.networks.MLP(3, 2, hidden=[4]), seed=0), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    for network, arguments in (
        ({"name": "wideresnet", "arguments": {"depth": 100_000}}, {}),
        (config["network"], {"hidden": [60_000, 60_000]}),
        (config["network"], {"codes": 10**9}),
    ):
        changed = config | {"network": network, "arguments": config["arguments"] | arguments}
        (folder / "config.json").write_text(json.dumps(changed))
        refused_at_once(posterity.load, folder)


def test_negative_variances_are_refused(tmp_path):
    folder = posterity.save(posterity.MAP(seeded(ConvNet)), tmp_path)
    state = load_file(folder / "network.safetensors")
    state["norm.running_var"] -= 2
    save_file(state, folder / "network.safetensors")
    with pytest.raises(posterity.Error, match="negative variances"):
        posterity.load(folder, seeded(ConvNet))


X, Y = torch.linspace(-1, 1, 80).view(16, 5), torch.arange(16) % 3


def fit(folder):
    posterior = posterity.IBNN(seeded(mlp), 2, seed=0)
    options = {"epochs": 2, "batch_size": 8, "seed": 0, "device": "cpu", "progress": False}
    return posterity.fit(posterior, (X, Y), checkpoint=folder, **options)


@pytest.mark.parametrize(
    "change",
    [
        lambda head, state: head.update(settings=[]),
        lambda head, state: head["settings"].update(seed="x"),
        lambda head, state: head["progress"].update(since=1.5),
        lambda head, state: head["progress"].update(since=2**31),
        lambda head, state: head["progress"].update(count=-1),
        lambda head, state: head["progress"].update(last_loss="x"),
        lambda head, state: head["progress"].update(groups="x"),
        lambda head, state: head["progress"].update(groups=[{"k": "x"}, {}]),
        lambda head, state: state.pop("extra/nll"),
        lambda head, state: head["progress"].update(history=[[]]),
        lambda head, state: head["progress"].update(history=[{"loss": 10**400}]),
        lambda head, state: head.update(best={"epoch": 1.5, "validation": 0.1}),
        lambda head, state: head.update(best={"epoch": 1, "validation": 0.1}),
        lambda head, state: state.pop("optimizer/0/exp_avg"),
        lambda head, state: state.update({"optimizer/0/exp_avg": torch.zeros(1, 8, 5)}),
        lambda head, state: state.update({"optimizer/0/step": torch.tensor(-1e38)}),
        lambda head, state: state.update({"optimizer/0/step": torch.zeros(3)}),
        lambda head, state: state.update({"optimizer/0/exp_avg": torch.zeros(8, 5, dtype=torch.bool)}),
        lambda head, state: state.update({"optimizer/x/step": torch.zeros(())}),
        lambda head, state: state.update({"optimizer/99/step": torch.zeros(())}),
        lambda head, state: state.update({"posterior/means": state["posterior/means"] * torch.nan}),
        lambda head, state: state.update({"posterior/means": state["posterior/means"].to(torch.complex64)}),
    ],
)
def test_checkpoints_that_no_run_wrote_are_an_error(tmp_path, change):
    fit(tmp_path)
    path = tmp_path / checkpoints.NAME
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
    head, state = json.loads(header["__metadata__"]["posterity"]), load_file(path)
    change(head, state)
    save_file(state, path, {"posterity": json.dumps(head)})
    with pytest.raises(posterity.Error):
        fit(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5_000, '{"format": 2}', '{"format": 1}'])
def test_checkpoints_whose_head_is_strange_are_an_error(tmp_path, text):
    save_file({"x": torch.zeros(1)}, tmp_path / checkpoints.NAME, {"posterity": text})
    with pytest.raises(posterity.Error):
        checkpoints.read(tmp_path)


def without_base(folder):
    path = folder / "posterity_config.json"
    config = json.loads(path.read_text())
    del config["base"]
    path.write_text(json.dumps(config))


def test_a_checkpoint_with_a_tensor_of_too_many_axes_is_an_error(tmp_path):
    fit(tmp_path)
    path = tmp_path / checkpoints.NAME
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    header["extra/sum"]["shape"] = [1] * 5_000
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
    with pytest.raises(posterity.Error, match="damaged"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder, config: (folder / "model.safetensors").write_bytes(b"junk"),
        lambda folder, config: config.update(num_attention_heads=0),
        lambda folder, config: config.update(vocab_size="many"),
        lambda folder, config: config.update(vocab_size=10**9),
        lambda folder, config: config.update(num_hidden_layers=10**6),
        lambda folder, config: (folder / "model.safetensors").unlink() or without_base(folder),
    ],
)
def test_damaged_base_models_are_an_error(tmp_path, change):
    pytest.importorskip("transformers")
    fuzz_formats.write(fuzz_formats.formats()["pretrained"].seeds()[0], tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    change(tmp_path, config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused_at_once(posterity.load, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"method": [], "posterior": {}, "fit": {}}',
        '{"method": "ibnn", "posterior": {"surprise": 1}, "fit": {}}',
        '{"method": "ibnn", "posterior": {"seed": 1}, "fit": {}}',
        '{"method": "ibnn", "posterior": {"components": 18446744073709551616}, "fit": {}}',
        '{"method": "ibnn", "posterior": {}, "fit": {"lr": NaN}}',
        '{"method": "ibnn", "posterior": {}, "fit": {"epochs": 3}}',
    ],
    ids=lambda text: text[:60],
)
def test_settings_that_tune_did_not_write_are_an_error(tmp_path, text):
    (tmp_path / "best.json").write_text(text)
    with pytest.raises(posterity.Error):
        tuned(tmp_path / "best.json")


@pytest.mark.parametrize("name", ["best.json", "x.npz", "x.csv", "x.parquet", "a/1.png"])
def test_links_to_devices_are_not_read(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to("/dev/zero")
    picture = name.endswith("png")

    def read():
        return datasets.read_inputs(tmp_path if picture else path, fuzz_formats._preprocessings()[picture])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(posterity.Error):
            tuned(path) if name == "best.json" else read()


def test_tables_of_strange_widths_are_read_at_once(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("a,y\n" + "1," * 60_000 + "1\n" + "1,2\n" * 50)
    refused_at_once(datasets.load, path, target="y")
    path.write_text("a," * 9_000 + "y\n" + ("1," * 9_000 + "2\n") * 2)
    with pytest.warns(UserWarning, match="several columns"):
        refused_at_once(datasets.load, path, target="y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a," * 10_000 + "y\n1,2\n", "more than 10,000 columns"),
        ('"a\nb",' * 60_000 + "y\n1,2\n", "more than 10,000 columns"),
        (f"{'9' * 1_100}," * 10_000 + "y\n1,2\n", "more than 10,000,000 characters"),
        (f'"a\n{"b" * 1_100}",' * 10_000 + "y\n1,2\n", "more than 10,000,000 characters"),
        ("a," * 5_000 + "y\n" + "1\n" * 100_000, "far fewer fields"),
    ],
    ids=["line", "lines", "long", "long lines", "short rows"],
)
def test_column_names_are_bounded_in_number_and_length(tmp_path, text, message):
    path = tmp_path / "wide.csv"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(posterity.Error, match=message):
        datasets.load(path, target="y")
    assert time.process_time() - began < 2


def test_rows_that_end_early_are_filled_up(tmp_path):
    path = tmp_path / "short.csv"
    path.write_text(",".join(f"x{i}" for i in range(300)) + "\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(1_000)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = datasets.load(path, target="x1")
    assert data.train[0].shape == (800, 1)


def test_a_table_read_in_pieces_is_the_same(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("a,b,y\n" + "".join(f'{i},"x\n{i % 3}",{i % 2}\n' if i % 5 else f"{i}\n" for i in range(50)))
    whole = datasets.readers.read_table(path)
    monkeypatch.setattr(datasets.readers, "_FEW_CELLS", 21)
    pieces = datasets.readers.read_table(path)
    assert len(pieces["a"]) == 50
    assert {name: list(values) for name, values in pieces.items()} == {name: list(whole[name]) for name in "aby"}


def test_a_trailing_separator_is_no_column(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i % 2},\n" for i in range(20)))
    assert datasets.load(path, target="y").train[0].shape[1] == 1


def test_texts_that_a_parquet_file_holds_once_are_held_once(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from benchmarks.allocator import peak
    from pyarrow import parquet

    index = pa.array(np.arange(200_000) % 2, pa.int8())
    column = pa.DictionaryArray.from_arrays(index, ["x" * 9_000, "y" * 9_000])
    table = pa.table({"a": column, "y": pa.array(np.arange(200_000) % 2)})
    parquet.write_table(table, tmp_path / "t.parquet", store_schema=False)
    found = []
    used = peak(lambda: found.append(datasets.load(tmp_path / "t.parquet", target="y")))
    assert found[0].train[0].shape == (160_000, 2)
    assert not used > 400


def test_arrays_are_as_large_as_their_file(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros((40, 2)), y=np.arange(40) % 2)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["x.npy"] = members["x.npy"].replace(b"(40, 2), }     ", b"(40, 20000000)}")
    assert b"20000000" in members["x.npy"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    refused_at_once(datasets.load, path)


@pytest.mark.parametrize("shape", [(65_536, 2**31, 2**32 - 1, 0), (2**32 - 1, 2**32 - 1), (200_000, 30, 30)])
def test_an_idx_file_of_an_impossible_shape_is_refused(tmp_path, shape):
    path = tmp_path / "images-idx3-ubyte"
    path.write_bytes(struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape))
    with pytest.raises(posterity.Error, match="declares"):
        datasets.images.read_idx(path)


def test_names_that_cannot_be_read_are_numbers(tmp_path):
    case = dict(fuzz_formats.formats()["cifar100"].seeds()[0])
    name = next(name for name in case if name.endswith(".txt"))
    fuzz_formats.write(case | {name: fuzz_formats.Link("/proc/self/mem")}, tmp_path)
    data = datasets.load("cifar100", data_dir=tmp_path, download=False)
    assert data.preprocessing.classes[:2] == ["0", "1"]


def test_archives_that_unpack_to_far_more_than_they_are_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((150_000, 128)), y=np.arange(150_000) % 2)
    refused_at_once(datasets.load, tmp_path / "x.npz")
    np.savez(tmp_path / "plain.npz", x=np.zeros((150_000, 128), np.uint8), y=np.arange(150_000) % 2)
    with pytest.raises(posterity.Error, match="No column"):
        datasets.load(tmp_path / "plain.npz")
