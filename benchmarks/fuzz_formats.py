"""The formats that posterity reads, each with small valid files, what reads them, and what is then done with it."""

import contextlib
import gzip
import io
import json
import random
import struct
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import posterity
from benchmarks import fuzz_mutations as mutations
from benchmarks.fuzz_mutations import Case, Link, blind
from posterity import checkpoints, datasets
from posterity.cli.runs import tuned

ROWS = 40


class Format:
    """One kind of file or folder: `seeds` are valid, `load` reads one and `use` does what users do next."""

    #: Of the cases that load, the share that is used too.
    share = 1.0

    def seeds(self) -> list[Case]:
        raise NotImplementedError

    def load(self, folder: Path) -> Any:
        raise NotImplementedError

    def use(self, loaded: Any, folder: Path) -> None:
        """Nothing more is done, by default."""

    def change(self, content: bytes, name: str, r: random.Random) -> bytes:
        """One file, changed with a knowledge of its format."""
        suffix = Path(name).suffix
        return CHANGES.get(suffix, lambda content, r: blind(content, content, r))(content, r)


class Model(Format):
    """A folder that `posterity.save` wrote."""

    share = 0.3

    @cache  # noqa: B019
    def seeds(self) -> list[Case]:
        table, picture = _preprocessings()
        made = []
        for name in ("ibnn", "bbb", "ensemble", "dropout", "map", "mnf", "livi", "bbh"):
            small = {"components": 2} if name == "ibnn" else {"members": 2} if name == "ensemble" else {}
            network = posterity.networks.MLP(3, 2, hidden=[4])
            if name in ("dropout", "ibnn"):
                network = posterity.networks.SmallConv(in_channels=1, classes=2, size=[6, 6])
            posterior: Any = posterity.methods()[name](network, seed=0, **small)
            if name in ("bbb", "ensemble"):
                posterior.likelihood = posterity.Gaussian(**({"std": 0.3} if name == "bbb" else {}))
            posterior.preprocessing = picture if name in ("dropout", "ibnn") else table
            made.append(_files(lambda folder, posterior=posterior: posterity.save(posterior, folder)))
        return made

    def load(self, folder: Path) -> Any:
        return posterity.load(folder)

    def use(self, loaded: Any, folder: Path) -> None:
        generator = torch.Generator().manual_seed(0)
        for shape in ((5, 3), (5, 1, 6, 6)):
            x = torch.randn(shape, generator=generator)
            try:
                posterity.predict(loaded, x, samples=3, generator=generator)
            except posterity.Error:
                continue
            except (RuntimeError, ValueError, AssertionError):  # rows of another shape are our own mistake
                if shape[1:] == _inputs_of(loaded):
                    raise


class Hub(Format):
    """A folder that `save_pretrained` wrote beside a base model; the base model is given, as it is transformers that reads it."""

    share = 0.1

    @cache  # noqa: B019
    def base(self) -> Any:
        import transformers

        torch.manual_seed(0)
        options = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        return transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=12, **options)).eval()

    @cache  # noqa: B019
    def seeds(self) -> list[Case]:
        from posterity.pretrained import save_pretrained

        posterior = posterity.IBNN(self.base(), 2, seed=0)
        with tempfile.TemporaryDirectory() as base:
            self.base().save_pretrained(base)
            whole = _files(lambda folder: save_pretrained(posterior, folder, base))
        return [{name: whole[name] for name in ("posterity_config.json", "posterity.safetensors")}]

    def load(self, folder: Path) -> Any:
        import copy

        return posterity.load(folder, copy.deepcopy(self.base()))

    def use(self, loaded: Any, folder: Path) -> None:
        posterity.predict(loaded, {"input_ids": torch.tensor([[1, 2, 3]])}, samples=2)


class Pretrained(Hub):
    """The same folder with the base model in it, which transformers reads."""

    @cache  # noqa: B019
    def seeds(self) -> list[Case]:
        from posterity.pretrained import save_pretrained

        posterior = posterity.IBNN(self.base(), 2, seed=0)
        return [_files(lambda folder: save_pretrained(posterior, folder))]

    def load(self, folder: Path) -> Any:
        return posterity.load(folder)


class Checkpoint(Format):
    """A run of `fit` half-way, that goes on from what it finds."""

    data = torch.linspace(-1, 1, 3 * 16).view(16, 3), torch.arange(16) % 2

    def seeds(self) -> list[Case]:
        return _checkpoints()

    def load(self, folder: Path) -> Any:
        return checkpoints.read(folder)

    def use(self, loaded: Any, folder: Path) -> None:
        if loaded is not None:
            _fit("ibnn" if "means" in loaded.posterior else "map", folder)


class Tuned(Format):
    """The best.json of `posterity tune`, which then makes a posterior and a run."""

    share = 0.2

    def seeds(self) -> list[Case]:
        best = {"method": "ibnn", "posterior": {"components": 2, "prior_std": 0.3}, "fit": {"lr": 0.01}, "value": 0.3}
        other = {"method": "dropout", "posterior": {"rate": 0.1}, "fit": {"lr": 0.01, "weight_decay": 1e-4}}
        return [{"best.json": json.dumps(one).encode()} for one in (best, other)]

    def load(self, folder: Path) -> Any:
        return tuned(folder / "best.json")

    def use(self, loaded: Any, folder: Path) -> None:
        build: Any = posterity.methods()[loaded["method"]]
        if loaded["posterior"].get("components", 0) > 100:
            return  # which takes as long as it is told
        posterior = build(posterity.networks.MLP(3, 2), seed=0, **loaded["posterior"])
        fixed = {"epochs": 1, "batch_size": 16, "seed": 0, "device": "cpu", "progress": False}
        posterity.fit(posterior, Checkpoint.data, **fixed, **loaded["fit"])


class Table(Format):
    """A table: loaded to train on, and read for a trained model."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix

    @cache  # noqa: B019
    def seeds(self) -> list[Case]:
        return [{f"data{self.suffix}": content} for content in _tables()[self.suffix]]

    def load(self, folder: Path) -> Any:
        path = folder / f"data{self.suffix}"
        for preprocessing in _preprocessings():
            _try(lambda p=preprocessing: datasets.read_inputs(path, p))
        return datasets.load(path, target="y", seed=0)

    def change(self, content: bytes, name: str, r: random.Random) -> bytes:
        if self.suffix == ".parquet" and r.random() < 0.7:
            return _strange_parquet(r)
        return super().change(content, name, r)


class Images(Format):
    """A folder of images, one subfolder a class."""

    @cache  # noqa: B019
    def seeds(self) -> list[Case]:
        from PIL import Image

        generator, made = np.random.default_rng(0), []
        for kind, suffix, mode in (
            ("PNG", "png", "L"),
            ("JPEG", "jpg", "RGB"),
            ("WEBP", "webp", "RGB"),
            ("BMP", "bmp", "P"),
        ):
            case: Case = {}
            for i in range(6):
                file = io.BytesIO()
                pixels = generator.integers(0, 256, (6, 6, 3), dtype=np.uint8)
                Image.fromarray(pixels).convert(mode).save(file, kind)
                case[f"{'ab'[i % 2]}/{i}.{suffix}"] = file.getvalue()
            made.append(case)
        return made

    def load(self, folder: Path) -> Any:
        _try(lambda: datasets.read_inputs(folder, _preprocessings()[1]))
        return datasets.load(folder, seed=0)


class Binary(Format):
    """The papers' sets in their own formats."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cache  # noqa: B019
    def seeds(self) -> list[Case]:
        generator = np.random.default_rng(0)
        case: Case = {}
        if self.name == "mnist":
            for part in ("train", "t10k"):
                x, y = generator.integers(0, 256, (12, 28, 28)), np.arange(12) % 10
                for kind, array in (("images-idx3", x), ("labels-idx1", y)):
                    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
                    name = f"MNIST/raw/{part}-{kind}-ubyte.gz"
                    case[name] = gzip.compress(head + array.astype(np.uint8).tobytes(), mtime=0)
            return [case, {k.removesuffix(".gz"): gzip.decompress(v) for k, v in case.items() if isinstance(v, bytes)}]
        labels, folder, names = (
            1,
            "cifar-10-batches-bin",
            [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"],
        )
        if self.name == "cifar100":
            labels, folder, names = 2, "cifar-100-binary", ["train.bin", "test.bin"]
        for name in names:
            rows = generator.integers(0, 256, (4, labels + 3072), dtype=np.uint8)
            rows[:, :labels] %= 10
            case[f"{folder}/{name}"] = rows.tobytes()
        if self.name == "cifar100":
            case[f"{folder}/fine_label_names.txt"] = "\n".join(f"name{i}" for i in range(100)).encode()
        return [case]

    def load(self, folder: Path) -> Any:
        return datasets.load(self.name, data_dir=folder, download=False)

    def change(self, content: bytes, name: str, r: random.Random) -> bytes:
        if not name.endswith((".gz", "-ubyte")):
            return blind(content, content, r)
        plain = gzip.decompress(content) if name.endswith(".gz") else content
        axes = r.choice((1, 2, 3, 4, 0, 200))
        sides = [r.choice((0, 1, 12, 28, 2**16, 2**31, 2**32 - 1)) for _ in range(min(axes, 4))]
        head = struct.pack(f">HBB{len(sides)}I", r.choice((0, 0, 1)), r.choice((8, 8, 9, 13)), axes, *sides)
        plain = r.choice((head + plain[16:], blind(plain, plain, r), _BOMB if r.random() < 0.05 else head))
        return gzip.compress(plain, 1, mtime=0) if name.endswith(".gz") else plain


_BOMB = struct.pack(">HBB3I", 0, 8, 3, 100_000, 28, 28) + bytes(40_000_000)


@cache
def formats() -> dict[str, Format]:
    """All formats by name."""
    _preprocessings()
    return {
        "model": Model(),
        "hub": Hub(),
        "pretrained": Pretrained(),
        "checkpoint": Checkpoint(),
        "tuned": Tuned(),
        "csv": Table(".csv"),
        "parquet": Table(".parquet"),
        "npz": Table(".npz"),
        "images": Images(),
        "mnist": Binary("mnist"),
        "cifar10": Binary("cifar10"),
        "cifar100": Binary("cifar100"),
    }


def make(form: Format, r: random.Random) -> Case:
    """One damaged case of a format."""
    seeds = form.seeds()
    case = dict(r.choice(seeds))
    for _ in range(r.choice((1, 1, 1, 2))):
        name = r.choice(sorted(case) or [""])
        content = case.get(name)
        if not isinstance(content, bytes):
            continue
        what = r.random()
        if what < 0.05:
            _rearrange(case, name, r)
        elif what < 0.45:
            other = r.choice([v for one in seeds for v in one.values() if isinstance(v, bytes)])
            case[name] = blind(content, other, r)
        else:
            try:
                case[name] = form.change(content, name, r)
            except Exception:  # it was damaged already
                case[name] = blind(content, content, r)
    return case


def write(case: Case, folder: Path) -> None:
    """The files and links of a case, in a folder that is there."""
    for name, content in case.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            path.symlink_to(content.target)
        else:
            path.write_bytes(content)


def _rearrange(case: Case, name: str, r: random.Random) -> None:
    """Files that are missing, elsewhere, swapped or links."""
    other, what = r.choice(sorted(case)), r.randrange(5)
    if what == 0:
        del case[name]
    elif what == 1:
        case[name], case[other] = case[other], case[name]
    elif what == 2:
        targets = (Path(name).name, "/dev/zero", "/dev/null", "/etc/passwd", "..", "nowhere", "/proc/self/mem", "/")
        case[name] = Link(r.choice(targets))
    elif what == 3:
        folder = name.rpartition("/")[0]
        case[f"{folder}/a\nb{Path(name).suffix}".lstrip("/")] = case[name]
    else:
        case[f"{name}.d/inner{Path(name).suffix}"] = case.pop(name)


def _safetensors(content: bytes, r: random.Random) -> bytes:
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    head = header.get("__metadata__", {}).get("posterity")
    if head is not None and r.random() < 0.5:  # a checkpoint
        header["__metadata__"]["posterity"] = mutations.change_json(json.loads(head), r).decode()
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + size :]
    return r.choice((mutations.change_header, mutations.change_tensors))(content, r)


CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".json": lambda content, r: mutations.change_json(json.loads(content), r),
    ".safetensors": _safetensors,
    ".npz": lambda content, r: mutations.change_npz(content, r),
    ".csv": mutations.change_csv,
    ".png": mutations.change_png,
}


def _try(run: Callable[[], Any]) -> list[Any]:
    try:
        return [run()]
    except posterity.Error:
        return []


def _files(write: Callable[[Path], Any]) -> Case:
    """What is written to a folder."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        return {path.name: path.read_bytes() for path in sorted(Path(name).iterdir())}


@cache
def _tables() -> dict[str, list[bytes]]:
    import pandas as pd

    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(ROWS, 2)), np.arange(ROWS) % 2
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": ["uvw"[i % 3] for i in range(ROWS)], "y": y})
    frame["d"] = pd.date_range("2020-01-01", periods=ROWS)
    parquet, arrays, pictures = io.BytesIO(), io.BytesIO(), io.BytesIO()
    frame.to_parquet(parquet)
    np.savez_compressed(arrays, x=x, y=y, test=y > 0)
    np.savez(pictures, x=generator.integers(0, 255, (ROWS, 6, 6), dtype=np.uint8), y=x[:, 0])
    text = frame.to_csv(index=False)
    return {
        ".csv": [text.encode(), frame[["a", "y"]].assign(y=x[:, 1]).to_csv().encode()],
        ".parquet": [parquet.getvalue()],
        ".npz": [arrays.getvalue(), pictures.getvalue()],
    }


@cache
def _preprocessings() -> tuple[Any, Any]:
    """Of a table and of images, as small as they can be."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(name) / "data.csv"
        path.write_bytes(_tables()[".csv"][0])
        table = datasets.load(path, target="y", seed=0).preprocessing
        np.savez(
            Path(name) / "x.npz", x=np.arange(ROWS * 36, dtype=np.uint8).reshape(ROWS, 6, 6), y=np.arange(ROWS) % 2
        )
        return table, datasets.load(Path(name) / "x.npz", seed=0).preprocessing


def _strange_parquet(r: random.Random) -> bytes:
    """A valid Parquet file of unusual columns."""
    import pyarrow as pa
    from pyarrow import parquet

    n = r.choice((0, 1, 5, 40, 40, 40))
    odd: list[Callable[[], Any]] = [
        lambda: pa.array([r.choice((None, float("nan"), 1e308, -1e308, 0.0, float("inf"))) for _ in range(n)]),
        lambda: pa.array([r.choice((2**63 - 1, -(2**63), 0, None)) for _ in range(n)], pa.int64()),
        lambda: pa.array([2**64 - 1] * n, pa.uint64()),
        lambda: pa.array([[1, 2]] * n),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array([r.randbytes(3) for _ in range(n)], pa.binary()),
        lambda: pa.array([None] * n),
        lambda: pa.array([r.choice(("a", "b", "", None, "x" * 50_000)) for _ in range(n)]),
        lambda: pa.array(
            [r.choice((-(2**63), 2**63 - 1, 0)) for _ in range(n)], pa.timestamp(r.choice(("s", "ms", "ns")))
        ),
        lambda: pa.array([0] * n, pa.timestamp("us", tz=r.choice(("UTC", "Europe/Berlin", "+23:59", "Nowhere/Here")))),
        lambda: pa.array([r.choice((0, 2**31 - 1, -(2**31)))] * n, pa.date32()),
        lambda: pa.array([10**30] * n, pa.decimal128(38, 0)),
        lambda: pa.array([1] * n, pa.duration("s")),
        lambda: pa.array([1] * n, pa.time32("s")),
        lambda: pa.array(["u"] * n).dictionary_encode(),
        lambda: pa.array([True, False, None] * n)[:n],
        lambda: pa.array(range(n)),
        lambda: pa.array([0.5] * n, pa.float16()),
        lambda: pa.array([r.choice(("1", "2", "x")) for _ in range(n)], pa.large_string()),
        lambda: pa.array([(None, 1.0)[i % 2] for i in range(n)], pa.float64()),
    ]
    names = [r.choice(("a", "b", "c", "d", "y", "y", "", "../x", "__index_level_0__", "z" * 20_000)) for _ in range(4)]
    names += r.choice((["y"], ["y"], ["y"], []))
    columns = [r.choice(odd)() for _ in names]
    if r.random() < 0.05:  # a few bytes that stand for gigabytes of text
        names, columns = (
            ["a", "y"],
            [pa.DictionaryArray.from_arrays(pa.array(np.zeros(400_000, np.int8)), ["x" * 9000])] * 2,
        )
    made = io.BytesIO()
    table = pa.Table.from_arrays(columns, names=names)
    parquet.write_table(
        table, made, compression=r.choice(("none", "snappy", "gzip", "zstd")), store_schema=r.random() < 0.5
    )
    return made.getvalue()


@cache
def _checkpoints() -> list[Case]:
    return [_files(lambda folder, method=method: _fit(method, folder, stop=True)) for method in ("ibnn", "map")]


def _fit(method: str, folder: Path, stop: bool = False) -> None:
    """A short run with a checkpoint; with `stop` it is interrupted after its first epoch."""

    def interrupt(record: Any, posterior: Any) -> None:
        if stop and record["epoch"] == 1:
            raise KeyboardInterrupt

    torch.manual_seed(0)
    options = {"components": 2} if method == "ibnn" else {}
    posterior: Any = posterity.methods()[method](posterity.networks.MLP(3, 2, hidden=[4]), seed=0, **options)
    with contextlib.suppress(KeyboardInterrupt):
        posterity.fit(
            posterior,
            Checkpoint.data,
            epochs=3,
            batch_size=8,
            seed=0,
            device="cpu",
            checkpoint=folder,
            checkpoint_every=0.0,
            callbacks=[interrupt],
            progress=False,
        )


def _inputs_of(posterior: Any) -> tuple[int, ...]:
    arguments = posterior.network.recipe["arguments"]
    if posterior.network.recipe["name"] == "mlp":
        return (arguments["inputs"],)
    return (arguments.get("in_channels", 1), *arguments.get("size", (6, 6)))
