"""Several processes train what one trains: the same noise, the same loss, the same parameters."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, RandomSampler, TensorDataset

import posterity
from pages import blocks
from posterity import shares
from posterity.loading import Batches
from posterity.processes import Dropouts

SOURCE = str(Path(posterity.__file__).parents[1])
PREAMBLE = """
import json, os, sys, torch, posterity
from torch import nn
torch.set_default_dtype(torch.float64)

def network(dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))

generator = torch.Generator().manual_seed(1)
x, y = torch.randn(45, 5, generator=generator), torch.randint(3, (45,), generator=generator)
METHODS = {
    "ibnn": lambda: posterity.IBNN(network(), 4, samples=2, seed=0),
    "authors": lambda: posterity.IBNN(network(), 4, samples=2, assignment="authors", seed=0),
    "bbb": lambda: posterity.BayesByBackprop(network(), estimator="weights"),
    "local": lambda: posterity.BayesByBackprop(network(), samples=2),
    "flipout": lambda: posterity.BayesByBackprop(network(), estimator="flipout"),
    "ensemble": lambda: posterity.DeepEnsemble(network(), 3, seed=0),
    "ibnn, own dropout": lambda: posterity.IBNN(network(0.3), 4, samples=2, seed=0),
    "local, own dropout": lambda: posterity.BayesByBackprop(network(0.3), samples=2),
    "dropout": lambda: posterity.MCDropout(network(0.3), samples=2),
    "mnf": lambda: posterity.MNF(network(), seed=0),
    "bbh": lambda: posterity.BayesByHypernet(network(), seed=0),
    "bbh, slices": lambda: posterity.BayesByHypernet(network(), samples=3, slice_batch=True, seed=0),
    "livi": lambda: posterity.LIVI(network(), seed=0),
    "map": lambda: posterity.MAP(network()),
}

def flat(posterior):
    return torch.cat([v.flatten().double() for v in posterior.state_dict().values()]).tolist()

main = int(os.environ.get("RANK", 0)) == 0
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def together(tmp_path, script, processes, **environment):
    """Run a script in so many processes, and return what the main one writes."""
    path, out = tmp_path / f"script-{processes}.py", tmp_path / f"out-{processes}-{len(list(tmp_path.iterdir()))}.json"
    path.write_text(PREAMBLE + textwrap.dedent(script))
    given = os.environ | {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "OUT": str(out)} | environment
    given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(processes)}
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(path)],
            env=given | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    said = [one.communicate(timeout=240)[1] for one in running]
    assert all(one.returncode == 0 for one in running), said
    return json.loads(out.read_text())


TRAIN = """
found = {}
for name, make in METHODS.items():
    posterior = make()
    history = posterity.fit(posterior, (x, y), epochs=2, batch_size=11, lr=0.01, seed=0, device="cpu",
                            validation=(x[:7], y[:7]), clip=0.5)
    found[name] = {"state": flat(posterior), "history": [history[-1][k] for k in ("loss", "nll", "validation")]}
if main:
    open(os.environ["OUT"], "w").write(json.dumps(found))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process makes of every method, on 45 rows in batches of 11 and one last one of 12."""
    return together(tmp_path_factory.mktemp("alone"), TRAIN, 1)


@pytest.mark.parametrize("sharded", ["false", "true"])
def test_two_processes_train_what_one_trains(alone, tmp_path, sharded):
    """Node methods, weight methods, ensembles: to 1e-6, with batches that do not divide by two."""
    two = together(tmp_path, TRAIN, 2, ACCELERATE_USE_FSDP=sharded)
    assert two.keys() == alone.keys()
    for name, one in alone.items():
        assert two[name]["state"] == pytest.approx(one["state"], abs=1e-9), name
        assert two[name]["history"] == pytest.approx(one["history"], abs=1e-9), name


def test_a_stopped_run_goes_on_with_another_number_of_processes(tmp_path):
    """Saved by two processes that hold a part of the parameters each, resumed by one; and the other way round."""
    script = """
    posterior = METHODS["ibnn"]()
    epochs = int(os.environ["EPOCHS"])
    schedule = {"schedule": "constant", "beta": 1.0}

    class Stopped(Exception):
        pass

    def stop(record, posterior):
        if record["epoch"] == epochs:
            raise Stopped

    try:
        posterity.fit(posterior, (x, y), epochs=4, batch_size=11, lr=0.01, seed=0, device="cpu",
                      checkpoint=os.environ["FOLDER"], checkpoint_every=0.0, callbacks=[stop], **schedule)
    except Stopped:
        os._exit(0)
    if main:
        open(os.environ["OUT"], "w").write(json.dumps(flat(posterior)))
    """
    straight = together(tmp_path, script, 1, EPOCHS="9", FOLDER=str(tmp_path / "a"))
    for first, second, sharded in ((2, 1, "true"), (1, 2, "false")):
        folder = tmp_path / f"{first}{second}{sharded}"
        with pytest.raises((AssertionError, FileNotFoundError)):
            together(tmp_path, script, first, EPOCHS="2", FOLDER=str(folder), ACCELERATE_USE_FSDP=sharded)
        found = together(tmp_path, script, second, EPOCHS="9", FOLDER=str(folder), ACCELERATE_USE_FSDP=sharded)
        assert found == pytest.approx(straight, abs=1e-9)


def test_shares_are_even_and_cover_every_row_once():
    for rows in (2, 3, 7, 45):
        for processes in (2, 3, 8):
            parts = [shares.of(rank, processes, rows) for rank in range(processes)]
            assert all(part.stop > part.start and part.rows == rows for part in parts)
            own = [row for part in parts if part.counts for row in range(part.start, part.stop)]
            assert own == list(range(rows))
            sizes = [part.stop - part.start for part in parts if part.counts]
            assert max(sizes) - min(sizes) <= 1


def test_noise_follows_the_row():
    like = torch.zeros(())
    whole = shares.randn((10, 3), like, torch.Generator().manual_seed(0))
    parts = []
    for rank in range(3):
        share = shares.of(rank, 3, 10)
        with shares.taking(share):
            parts.append(shares.randn((share.stop - share.start, 3), like, torch.Generator().manual_seed(0)))
    assert torch.equal(torch.cat(parts), whole)


class Folded(torch.nn.Module):
    """Positions of a row become rows, one row's after another's, as before many a head."""

    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.drop(self.a(x.flatten(0, 1)).relu())).unflatten(0, x.shape[:2]).mean(1)


@pytest.mark.parametrize("method", ["map", "dropout", "ensemble", "bbb", "ibnn"])
@pytest.mark.parametrize("samples", [1, 2])
def test_dropout_follows_rows_that_are_folded(method, samples):
    options = {"members": 2} if method == "ensemble" else {}
    posterior = posterity.methods()[method](Folded(), samples=samples, seed=0, **options).train()
    x = torch.randn(8, 5, 4, generator=torch.Generator().manual_seed(1))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        whole, parts = posterior(x), []
        for rank in range(3):
            share = shares.of(rank, 3, len(x))
            with shares.taking(share), Dropouts():
                torch.manual_seed(5)
                parts.append(posterior(x[share.start : share.stop]))
    torch.testing.assert_close(torch.cat(parts, 1), whole)


class Attention(torch.nn.Module):
    """torch's attention, whose dropout is inside of one function."""

    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.4 if self.training else 0.0)


@pytest.mark.parametrize("method", ["map", "dropout", "bbb"])
@pytest.mark.parametrize(
    "inside",
    [
        lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True),
        lambda: torch.nn.Sequential(Attention(), torch.nn.Dropout(0.0)),
        lambda: torch.nn.AlphaDropout(0.3),
    ],
    ids=["transformer", "attention", "alpha"],
)
def test_dropout_of_attention_and_alpha_dropout_follow_rows(method, inside):
    """A Transformer also drops what lies transposed in memory."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(4, 4), inside(), torch.nn.Linear(4, 3))
        posterior = posterity.methods()[method](network, samples=2).train()
        x = torch.randn(8, 5, 4, generator=torch.Generator().manual_seed(1))
        torch.manual_seed(5)
        whole, parts = posterior(x), []
        for rank in range(3):
            share = shares.of(rank, 3, len(x))
            with shares.taking(share), Dropouts():
                torch.manual_seed(5)
                parts.append(posterior(x[share.start : share.stop]))
        torch.manual_seed(6)
        assert not torch.allclose(posterior(x), whole, atol=1e-3)
    torch.testing.assert_close(torch.cat(parts, 1), whole)


def test_components_get_equal_rows_over_all_processes():
    """The rows of the whole batch go round the components, whichever process has them."""
    posterior = posterity.IBNN(torch.nn.Linear(2, 1), 4, seed=0)
    with torch.no_grad():
        posterior.means.copy_(torch.arange(4.0).unsqueeze(1).expand(4, 2))
        posterior.spreads.fill_(-40.0)
    seen = []
    for rank in range(2):
        share = shares.of(rank, 2, 8)
        with shares.taking(share):
            torch.manual_seed(3)
            noise = shares.part(posterior._training_noise(shares.whole(4), None))
        seen += noise[:, 0].round().int().tolist()
    assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3]


class Numbers(Dataset):
    def __init__(self):
        self.asked = []

    def __len__(self):
        return 23

    def __getitem__(self, index):
        self.asked.append(index)
        return torch.tensor([float(index)]), 0


def test_a_loader_reads_the_rows_of_its_own_process_alone():
    whole = [batch.x for batch in Batches(DataLoader(Numbers(), 5, shuffle=True)).epoch(7)]
    parts = []
    for rank in range(2):
        data = Numbers()
        parts.append(list(Batches(DataLoader(data, 5, shuffle=True), rank=rank, processes=2).epoch(7)))
        assert len(data.asked) == sum(len(batch.x) for batch in parts[-1])
    for all_rows, first, second in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat([first.x, second.x]), all_rows)
        assert first.share.rows == second.share.rows == len(all_rows)


def test_a_loader_of_other_batches_is_read_whole_and_cut():
    class Odd(BatchSampler):
        pass

    data = TensorDataset(torch.arange(10.0).unsqueeze(1), torch.zeros(10))
    loader = DataLoader(data, batch_sampler=Odd(RandomSampler(data, generator=torch.Generator()), 4, False))
    whole = [batch.x for batch in Batches(loader).epoch(1)]
    parts = [[batch.x for batch in Batches(loader, rank=rank, processes=2).epoch(1)] for rank in range(2)]
    for rows, first, second in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat([first, second]), rows)


def test_a_loader_whose_rows_are_divided_already_is_an_error():
    """DistributedSampler gives each process half of the rows, of which it would take half of each batch again."""
    data = Numbers()
    for shuffle in (False, True):
        loader = DataLoader(data, 4, sampler=DistributedSampler(data, 2, 0, shuffle=shuffle))
        with pytest.raises(posterity.Error, match=r"rows of its own \(DistributedSampler\)"):
            Batches(loader, rank=0, processes=2)
    alone = Batches(DataLoader(data, 4, sampler=DistributedSampler(data, 1, 0, shuffle=False)), rank=1, processes=2)
    assert [batch.share.rows for batch in alone.epoch(0)] == [4, 4, 4, 4, 4, 3]


def test_processes_that_differ_in_seed_or_data_are_an_error(tmp_path):
    """Without a seed each would take its part of an order, and hold out rows, of its own."""
    script = """
    rank = int(os.environ["RANK"])
    found = []
    half, own = (x[rank::2][:22], y[rank::2][:22]), {"seed": 0, "augment": lambda x: x + 0 * rank}
    for data, options in (((x, y), {}), (half, {"seed": 0}), ((x, y), own)):
        posterior = METHODS["map"]()
        torch.manual_seed(rank)
        try:
            posterity.fit(posterior, data, epochs=1, device="cpu", validation=0.2, progress=False, **options)
            found.append("")
        except posterity.Error as error:
            found.append(str(error))
    if rank == 1:
        open(os.environ["OUT"], "w").write(json.dumps(found))
    """
    seed, data, same = together(tmp_path, script, 2)
    assert seed.startswith("The processes differ in seed, data.")
    assert data.startswith("The processes differ in data.")
    assert same == ""


def test_the_script_of_the_page_runs_in_one_process(tmp_path, monkeypatch):
    """docs/guides/machines.md, with a few small images, a narrow network and one epoch."""
    (script,) = blocks("docs/guides/machines.md")
    images, labels = torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 10
    wide, fit = posterity.networks.WideResNet, posterity.fit
    monkeypatch.setattr(posterity.datasets, "load", lambda name: SimpleNamespace(train=(images, labels)))
    monkeypatch.setattr(posterity.networks, "WideResNet", lambda depth, width: wide(10, 1))
    monkeypatch.setattr(posterity, "fit", lambda *given, **options: fit(*given, **options | {"epochs": 1}))
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        exec(script, {})
    again = posterity.load("model", wide(10, 1))
    assert again.components == 16
    assert posterity.predict(again, images[:2], 16).probs.shape == (2, 10)
