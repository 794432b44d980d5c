"""Runs that stop, are killed or damaged: they resume to the bit, whatever the optimiser, or say why not."""

import copy
import functools
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from torch import nn

import posterity
from common import mlp, seeded
from fitting import data, fit, make, same
from posterity import checkpoints, holdout, inputs
from posterity.loading import Batches


def test_a_checkpoint_of_another_optimiser_is_refused(tmp_path):
    fit(make(), optimizer=lambda groups: torch.optim.RMSprop(groups, alpha=0.9), checkpoint=tmp_path)
    for other in (torch.optim.Adagrad, lambda groups: torch.optim.RMSprop(groups, alpha=0.5)):
        with pytest.raises(posterity.Error, match="a run with another optimizer"):
            fit(make(), optimizer=other, checkpoint=tmp_path)


def rmsprop(groups):
    return torch.optim.RMSprop(groups, momentum=0.5)


def test_an_optimiser_of_ones_own_has_the_rates_and_the_decay_of_fit():
    seen = []

    def coupled(groups):
        seen.extend({key: value for key, value in group.items() if key != "params"} for group in groups)
        return torch.optim.Adam(groups)

    x, y = data()
    arguments = {"epochs": 1, "batch_size": 40, "lr": 0.01, "weight_decay": 0.3, "schedule": "constant", "seed": 0}
    network = seeded(lambda: nn.Linear(5, 3))
    own, plain = posterity.MAP(network), copy.deepcopy(network)
    posterity.fit(own, (x, y), posterity.Categorical(), optimizer=coupled, device="cpu", progress=False, **arguments)
    optimizer = torch.optim.Adam(plain.parameters(), 0.01, weight_decay=0.3)  # into the gradient, as AdamW's is not
    nn.functional.cross_entropy(plain(x), y).backward()
    optimizer.step()
    torch.testing.assert_close(own.network.weight, plain.weight)
    assert seen == [{"lr": 0.01, "weight_decay": 0.3}]
    fit(posterity.IBNN(seeded(lambda: nn.Linear(5, 3)), 2, seed=0), optimizer=coupled, lr_posterior=0.7)
    assert seen[-1] == {"lr": 0.7, "weight_decay": 0.0}


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        (lambda groups: torch.optim.Adagrad([group | {"lr": 0.5} for group in groups]), 0.5),
        (lambda groups: torch.optim.Adagrad(list(reversed(groups))), 0.02),
    ],
)
def test_rates_that_an_optimiser_of_ones_own_has_are_its_rates(given, rate):
    posterior = posterity.IBNN(seeded(lambda: nn.Linear(5, 3)), 2, seed=0)
    seen = []

    def kept(groups):
        seen.append(given(groups))
        return seen[0]

    fit(posterior, optimizer=kept, lr=0.01, lr_posterior=0.02, schedule="constant")
    own = {id(p) for p in posterior.variational()}
    (group,) = [group for group in seen[0].param_groups if id(group["params"][0]) in own]
    assert group["lr"] == rate


def test_sgd_of_ones_own_is_sgd():
    made = []

    def nesterov(groups):
        made.append(torch.optim.SGD(groups, momentum=0.9, nesterov=True))
        return made[0]

    one, other = (posterity.IBNN(seeded(mlp), 3, seed=0) for _ in range(2))
    fit(one, optimizer="sgd", lr=0.01, lr_posterior=0.02, schedule="constant")
    fit(other, optimizer=nesterov, lr=0.01, lr_posterior=0.02, schedule="constant")
    assert same(one, other)
    assert [group["lr"] for group in made[0].param_groups] == pytest.approx([0.01, 0.02 * one.rate])
    assert one.rate == 3


class Counting(torch.optim.Optimizer):
    """Counts its steps where some do: in the groups, and as a plain number of each parameter."""

    def __init__(self, groups):
        super().__init__(groups, {"lr": 0.1, "k": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            for p in group["params"]:
                state = self.state[p]
                state["seen"] = state.get("seen", 0) + 1
                assert isinstance(state["seen"], int)
                state["slow"] = 0.9 * state.get("slow", 0.0) + p.grad.mean(tuple(range(p.dim())))
                p -= group["lr"] / (group["k"] * state["seen"]) * (p.grad + state["slow"])


@pytest.mark.parametrize(
    "optimizer",
    [
        "adam",
        "sgd",
        rmsprop,
        torch.optim.NAdam,
        torch.optim.Adafactor,
        lambda groups: torch.optim.AdamW(groups, amsgrad=True),
        Counting,
    ],
)
@pytest.mark.parametrize("stop", [1, 4, 5, 11])
def test_a_run_that_stops_resumes_and_ends_bit_identical(tmp_path, stop, optimizer):
    arguments = {"batch_size": 8, "epochs": 3, "optimizer": optimizer, "validation": data(16), "lr": 1e-2}
    network = lambda: nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))  # noqa: E731
    whole = posterity.IBNN(seeded(network), 3, seed=0)
    expected = fit(whole, **arguments)

    class Stop(Exception):
        pass

    class Stopping(posterity.IBNN):
        steps = 0

        def loss(self, *args, **kwargs):
            if self.steps == stop:
                raise Stop
            self.steps += 1
            return super().loss(*args, **kwargs)

    with pytest.raises(Stop):
        fit(Stopping(seeded(network), 3, seed=0), checkpoint=tmp_path, checkpoint_every=0.0, **arguments)
    resumed = posterity.IBNN(seeded(network, 5), 3, seed=9)
    history = fit(resumed, checkpoint=tmp_path, checkpoint_every=0.0, **arguments)
    assert same(whole, resumed)
    assert history.column("loss") == expected.column("loss")
    assert history.best == expected.best
    finished = posterity.IBNN(seeded(network, 7), 3, seed=4)
    assert len(fit(finished, checkpoint=tmp_path, **arguments)) == 3
    assert same(whole, finished)


SCRIPT = """
    import sys, torch, posterity
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(5, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
    posterior = posterity.IBNN(network, 3, seed=0)
    x = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    posterity.fit(posterior, (x, (x[:, 0] > 0).long()), epochs=12, batch_size=8, seed=0, checkpoint=sys.argv[1],
                  checkpoint_every=0.0, progress=False)
    torch.save(posterior.state_dict(), sys.argv[2])
"""


def test_a_killed_process_resumes_and_ends_bit_identical(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(SCRIPT))

    def start(folder: str, out: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, str(script), str(tmp_path / folder), str(tmp_path / out)])

    assert start("whole", "whole.pt").wait() == 0
    kills = 0
    for wait in (0.0, 0.15, 0.3):
        process = start("killed", "killed.pt")
        deadline = time.monotonic() + 60
        before = _written(tmp_path / "killed")
        while process.poll() is None and _written(tmp_path / "killed") == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(wait)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 2
    assert start("killed", "killed.pt").wait() == 0
    states = [torch.load(tmp_path / name, weights_only=True) for name in ("whole.pt", "killed.pt")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def _written(folder) -> float:
    path = folder / checkpoints.NAME
    return path.stat().st_mtime_ns if path.exists() else 0


def test_control_c_saves_and_says_how_to_go_on(tmp_path):
    class Interrupted(posterity.IBNN):
        steps = 0

        def loss(self, *args, **kwargs):
            self.steps += 1
            if self.steps == 7:
                signal.raise_signal(signal.SIGINT)
            return super().loss(*args, **kwargs)

    handler = signal.getsignal(signal.SIGINT)
    whole = make()
    fit(whole, batch_size=8)
    with pytest.raises(KeyboardInterrupt, match="goes on"):
        fit(Interrupted(seeded(mlp), 3, seed=0), batch_size=8, checkpoint=tmp_path)
    assert signal.getsignal(signal.SIGINT) is handler
    assert checkpoints.read(tmp_path).progress["count"] == 7
    resumed = make()
    fit(resumed, batch_size=8, checkpoint=tmp_path)
    assert same(whole, resumed)


@pytest.mark.parametrize("change", ["inputs", "labels", "order", "validation"])
def test_a_checkpoint_of_other_data_is_refused(tmp_path, change):
    x, y = data()
    options = {"epochs": 2, "seed": 0, "checkpoint": tmp_path, "progress": False}
    history = posterity.fit(posterity.MAP(seeded(mlp)), (x, y), **options)
    again = posterity.fit(posterity.MAP(seeded(mlp)), (x.clone(), y.numpy()), **options)
    assert [r["loss"] for r in again] == [r["loss"] for r in history]
    if change == "inputs":
        x = x + nn.functional.one_hot(torch.tensor(3), 5)
    elif change == "labels":
        y = y.clone()
        y[[0, 1]] = y[[1, 0]]
    elif change == "order":
        x, y = x.flip(0), y.flip(0)
    else:
        options["validation"] = (x[:5], y[:5])
    with pytest.raises(posterity.Error, match="another data"):
        posterity.fit(posterity.MAP(seeded(mlp)), (x, y), **options)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    fit(make(), checkpoint=tmp_path)
    for other in ({"lr": 0.5}, {"beta": 0.5}, {"schedule": "constant"}, {"epochs": 4}, {"seed": 1}):
        with pytest.raises(posterity.Error, match=next(iter(other))):
            fit(make(), checkpoint=tmp_path, **other)
    others = (posterity.MAP(seeded(mlp)), posterity.IBNN(seeded(mlp), 3, prior_std=0.7))
    for other in others:
        with pytest.raises(posterity.Error, match="another posterior"):
            fit(other, checkpoint=tmp_path)
    with pytest.raises(posterity.Error, match="another likelihood"):
        fit(make(), checkpoint=tmp_path, likelihood=posterity.Categorical(ignore=5))
    wider = posterity.IBNN(seeded(lambda: mlp(5, 4)), 3, seed=0)
    with pytest.raises(
        posterity.Error, match=r"belong.*: its network\.2\.bias is of shape \(3,\), here it is \(4,\)\."
    ):
        fit(wider, checkpoint=tmp_path)
    fit(posterity.MAP(seeded(mlp)), checkpoint=tmp_path / "map")
    with pytest.raises(posterity.Error, match=r"belong[^\n]*: it has no network\.3\.bias\. Use another folder"):
        fit(posterity.MAP(nn.Sequential(*seeded(mlp), nn.Linear(3, 3))), checkpoint=tmp_path / "map")


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\xff" * 100])
def test_a_damaged_checkpoint_is_an_error(tmp_path, damage):
    fit(make(), checkpoint=tmp_path)
    (tmp_path / checkpoints.NAME).write_bytes(damage)
    with pytest.raises(posterity.Error, match="damaged"):
        fit(make(), checkpoint=tmp_path)


def test_a_truncated_checkpoint_is_an_error(tmp_path):
    fit(make(), checkpoint=tmp_path)
    path = tmp_path / checkpoints.NAME
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(posterity.Error, match="damaged"):
        fit(make(), checkpoint=tmp_path)


def test_a_stop_at_the_last_step_of_an_epoch_loses_nothing_of_it(tmp_path):
    class Interrupted(posterity.IBNN):
        steps = 0

        def loss(self, *args, **kwargs):
            self.steps += 1
            if self.steps == 5:
                signal.raise_signal(signal.SIGINT)
            return super().loss(*args, **kwargs)

    arguments = {"batch_size": 8, "validation": data(16)}
    expected = fit(make(), **arguments)
    with pytest.raises(KeyboardInterrupt):
        fit(Interrupted(seeded(mlp), 3, seed=0), checkpoint=tmp_path, **arguments)
    history = fit(make(), checkpoint=tmp_path, **arguments)
    for name in ("epoch", "loss", "nll", "validation"):
        assert history.column(name) == expected.column(name)


def test_a_checkpoint_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(posterity.Error, match="write"):
        fit(make(), checkpoint=tmp_path / "file" / "folder", checkpoint_every=0.0)


def test_load_of_a_checkpoint_says_what_to_do(tmp_path):
    posterior = posterity.MAP(nn.Linear(2, 3))
    data = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    posterity.fit(posterior, data, epochs=1, seed=0, checkpoint=tmp_path, progress=False)
    with pytest.raises(posterity.Error, match=r"checkpoint of fit.*posterity\.save"):
        posterity.load(tmp_path, nn.Linear(2, 3))


def power(exponent):
    return lambda t: 1 - t**exponent


@pytest.mark.parametrize("name", ["schedule", "schedule_posterior", "beta"])
def test_a_checkpoint_knows_schedules_by_their_values(tmp_path, name):
    settings = {"lr_posterior": 0.01, "checkpoint": tmp_path}
    fit(make(), **{name: power(2)}, **settings)
    fit(make(), **{name: power(2)}, **settings)
    for other in (power(3), lambda t: 0.5 * (1 - t**2)):
        with pytest.raises(posterity.Error, match=f"a run with another {name}: "):
            fit(make(), **{name: other}, **settings)


def shift(x, by):
    return x + by


class Shift:
    def __init__(self, by):
        self.by, self._calls = by, 0

    def __call__(self, x):
        self._calls += 1
        return shift(x, self.by)


def augmentations(by):
    seen = []
    return {
        "closure": lambda x: (seen.append(1), x + by)[1],
        "default": lambda x, by=by: x + by,
        "partial": functools.partial(shift, by=by),
        "object": Shift(by),
        "module": nn.Sequential(nn.Threshold(-by, 0.0)),
        "code": (lambda x: x + 1) if by == 1 else (lambda x: x * 1),
    }


@pytest.mark.parametrize("kind", augmentations(0))
def test_a_checkpoint_knows_an_augmentation_by_its_code_and_values(tmp_path, kind):
    mine = augmentations(1)[kind]
    fit(make(), augment=mine, checkpoint=tmp_path)
    fit(make(), augment=mine, checkpoint=tmp_path)  # what it wrote down meanwhile is no difference
    fit(make(), augment=augmentations(1)[kind], checkpoint=tmp_path)
    with pytest.raises(posterity.Error, match="a run with another augment: "):
        fit(make(), augment=augmentations(2)[kind], checkpoint=tmp_path)


def test_a_checkpoint_knows_the_settings_of_each_group_of_an_optimiser(tmp_path):
    def adam(momentum):
        return lambda groups: torch.optim.RMSprop([group | {"momentum": momentum} for group in groups])

    fit(make(), optimizer=adam(0.5), checkpoint=tmp_path)
    fit(make(), optimizer=adam(0.5), checkpoint=tmp_path)
    with pytest.raises(posterity.Error, match="a run with another optimizer: "):
        fit(make(), optimizer=adam(0.6), checkpoint=tmp_path)


def test_a_checkpoint_from_before_functions_were_known_goes_on(tmp_path):
    """Its held-out rows, too, are those that it had: chosen without regard to their classes."""
    arguments = {"schedule": power(2), "augment": Shift(1), "validation": 0.3}
    fit(make(), checkpoint=tmp_path, **arguments)
    old = checkpoints.read(tmp_path)
    old.settings.pop("functions")
    x, y = data()
    train, held = holdout.hold_out((x, y), 0.3, 0, stratified=False)
    assert sorted(held[0][:, 0].tolist()) != sorted(holdout.hold_out((x, y), 0.3, 0)[1][0][:, 0].tolist())
    old.settings["data"] = inputs.fingerprint([Batches(train).memory, held])
    checkpoints.write(tmp_path, old)
    assert len(fit(make(), checkpoint=tmp_path, **arguments)) == 3
