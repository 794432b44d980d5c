"""The search for settings: a study that workers share, that goes on, and that loses nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import posterity
from posterity import tuning
from posterity.cli.app import app

pytest.importorskip("optuna")
SOURCE = str(Path(posterity.__file__).parents[1])
WORKER = """
import sys, torch, posterity
from pathlib import Path
from posterity import tuning
tuning.BEAT, tuning.DEAD = 1, 3
torch.set_num_threads(1)
folder, trials, epochs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
generator = torch.Generator().manual_seed(0)
x, y = torch.randn(60, 3, generator=generator), torch.randint(2, (60,), generator=generator)
search = tuning.Search("ibnn", (x, y), lambda: posterity.networks.MLP(3, 2), posterity.Categorical, folder,
                       epochs=epochs, device="cpu", batch_size=16)
search.run(trials, lambda line: print(line, flush=True))
"""


def search(folder, method="ibnn", **options):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 3, generator=generator), torch.randint(2, (60,), generator=generator)
    options = {"epochs": 2, "device": "cpu", "batch_size": 16} | options
    return tuning.Search(method, (x, y), lambda: posterity.networks.MLP(3, 2), posterity.Categorical, folder, **options)


def worker(folder, trials, epochs):
    path = folder.parent / "worker.py"
    path.write_text(WORKER)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(path), str(folder), str(trials), str(epochs)],
        env=os.environ | {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("method", list(posterity.methods()))
def test_every_method_has_a_space_that_holds_its_defaults(method, tmp_path):
    found = search(tmp_path, method)
    assert found._defaults()
    found.run(2)
    assert len(found.finished) == 2
    best = found.best()
    assert best["method"] == method
    assert {name for _, name, *_ in posterity.methods()[method].space} == {*best["posterior"], *best["fit"]}


def test_a_search_takes_mappings_and_maps_of_classes(tmp_path):
    """A tenth of the rows is held out, all that belongs to a row together."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 2, 4, 4, generator=generator), torch.randint(3, (60, 4, 4), generator=generator)
    found = tuning.Search(
        "map", ({"input": x}, y), lambda: torch.nn.Conv2d(2, 3, 1), posterity.Categorical, tmp_path, epochs=1
    )
    assert (len(found.train[1]), len(found.held[1])) == (54, 6)
    rows = {row.numpy().tobytes(): place for place, row in enumerate(x)}
    for part, targets in (found.train, found.held):
        assert torch.equal(y[[rows[row.numpy().tobytes()] for row in part["input"]]], targets)
    found.run(1)
    assert len(found.finished) == 1


def test_whole_numbers_that_are_no_classes_are_held_out_too(tmp_path):
    x, y = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60)
    found = tuning.Search("map", (x, y), lambda: torch.nn.Linear(3, 1), posterity.Gaussian, tmp_path, epochs=1)
    assert (len(found.train[1]), len(found.held[1])) == (54, 6)


def test_the_first_trial_is_the_librarys_defaults(tmp_path):
    found = search(tmp_path)
    found.run(1)
    best = found.best()
    assert best["posterior"]["components"] == 4
    assert best["posterior"]["gamma"] == 4.0
    assert best["fit"]["lr_posterior"] == pytest.approx(1e-2)


def test_a_study_goes_on(tmp_path):
    search(tmp_path).run(2)
    before = {trial.number: trial.value for trial in search(tmp_path).finished}
    again = search(tmp_path)
    again.run(4)
    assert len(again.finished) == 4
    assert before.items() <= {trial.number: trial.value for trial in again.finished}.items()
    again.run(4)  # nothing is left to do
    assert len(again.finished) == 4


def test_the_same_trial_has_the_same_value(tmp_path):
    values = []
    for name in "ab":
        found = search(tmp_path / name)
        found.run(1)
        values.append(found.best()["nll"])
    assert values[0] == values[1]


def test_other_data_are_refused(tmp_path):
    search(tmp_path, facts={"data": "a"})
    with pytest.raises(posterity.Error, match="another data"):
        search(tmp_path, facts={"data": "b"})


def test_a_database_that_is_not_there(tmp_path):
    with pytest.raises(posterity.Error, match="cannot be opened"):
        search(tmp_path, url=f"sqlite:////{tmp_path}/no/such/folder/x.db")


def test_a_trial_that_fails_does_not_end_the_search(tmp_path, monkeypatch):
    found = search(tmp_path)
    fit, calls = posterity.fit, []

    def sometimes(*args, **options):
        calls.append(1)
        if len(calls) == 1:
            raise posterity.Error("no")
        return fit(*args, **options)

    monkeypatch.setattr(posterity, "fit", sometimes)
    found.run(2)
    assert len(found.finished) == 2
    assert len(calls) == 3


def test_a_stopped_trial_is_taken_up_again_from_its_checkpoint(tmp_path, monkeypatch):
    found = search(tmp_path)
    fit = posterity.fit

    def stopped(*args, checkpoint, **options):
        checkpoint.mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(posterity, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        found.run(1)
    seen = []

    def noted(*args, checkpoint, **options):
        seen.append(checkpoint.exists())
        return fit(*args, checkpoint=checkpoint, **options)

    monkeypatch.setattr(posterity, "fit", noted)
    again = search(tmp_path)
    again.run(1)
    assert seen == [True]
    assert again.best()["posterior"]["components"] == 4  # the defaults, which were under way


def test_two_workers_one_of_them_killed(tmp_path):
    """No finished trial is lost, and the one that was under way is made by the other worker."""
    folder = tmp_path / "study"
    search(folder, epochs=3)  # makes the database
    victim = worker(folder, 100, 400)  # slow trials
    slow = search(folder)
    deadline = time.monotonic() + 120
    while not slow.study.get_trials(deepcopy=False) and time.monotonic() < deadline:
        time.sleep(0.1)
    other = worker(folder, 5, 3)
    while len(slow.finished) < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    killed = {t.number: t.params for t in slow.study.get_trials(deepcopy=False) if not t.state.is_finished()}
    done = {trial.number: trial.value for trial in slow.finished}
    assert other.wait(timeout=180) == 0
    after = search(folder)
    assert len(after.finished) >= 5
    assert done.items() <= {trial.number: trial.value for trial in after.finished}.items()
    time.sleep(3.5)  # until the victim is taken for dead
    tuning_before = tuning.BEAT, tuning.DEAD
    tuning.BEAT, tuning.DEAD = 1, 3
    try:
        last = search(folder)
        last.run(len(last.finished) + 1)
    finally:
        tuning.BEAT, tuning.DEAD = tuning_before
    states = {trial.number: trial.state.name for trial in last.study.get_trials(deepcopy=False)}
    mine = [number for number in killed if states[number] == "FAIL"]
    again = [trial for trial in last.study.get_trials(deepcopy=False) if trial.user_attrs.get("first") in killed]
    assert mine
    assert again
    assert again[0].params == killed[again[0].user_attrs["first"]]


def test_the_command_and_what_it_is_for(tmp_path):
    table = tmp_path / "t.csv"
    rows = [f"{i % 7},{(i * i) % 11},{'ab'[i % 2]}" for i in range(60)]
    table.write_text("\n".join(["u,v,w", *rows]))
    arguments = ["--target", "w", "--epochs", "2", "--task", "classification", "--out", str(tmp_path / "o")]
    done = CliRunner().invoke(app, ["tune", str(table), "--method", "dropout", "--trials", "4", *arguments])
    assert done.exit_code == 0, done.output
    same = "--target w --task classification --epochs 2 --settings"  # what was found suits just these
    assert same in " ".join(done.output.split())
    best = json.loads((tmp_path / "o" / "best.json").read_text())
    assert best["method"] == "dropout"
    found = json.loads((tmp_path / "o" / "tuned.json").read_text())
    assert len(found["trials"]) == 4
    first = next(trial["nll"] for trial in found["trials"] if trial["number"] == 0)
    assert f"the first trial, of the defaults, has {first:.4f}" in done.output
    assert f", trial {best['trial'] + 1} of 4" in done.output  # as [1/4] to [4/4], not from 0
    assert "is lower than on new ones" in done.output
    assert (tmp_path / "o" / "tuned.png").stat().st_size > 5_000
    arguments = ["--target", "w", "--epochs", "2", "--settings", str(tmp_path / "o" / "best.json")]
    made = CliRunner().invoke(app, ["train", str(table), "--out", str(tmp_path / "m"), *arguments])
    assert made.exit_code == 0, made.output
    model = posterity.load(tmp_path / "m")
    assert model.rate_added == pytest.approx(best["posterior"]["rate"])
    wrong = CliRunner().invoke(app, ["train", str(table), "--method", "map", "--out", str(tmp_path / "n"), *arguments])
    assert wrong.exit_code == 2
    (tmp_path / "bad.json").write_text('{"method": "ibnn", "posterior": {"layers": "x"}, "fit": {}}')
    bad = CliRunner().invoke(app, ["train", str(table), "--target", "w", "--settings", str(tmp_path / "bad.json")])
    assert bad.exit_code == 2
