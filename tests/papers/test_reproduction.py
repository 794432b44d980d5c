"""The bench: cells are made once, kept with their settings, and go on where they were stopped."""

import json

import pytest

import posterity
from posterity import papers
from posterity.papers import Bench, Entry, Outcome, Table, reproduce
from posterity.papers.cells import SCHEDULES, Cell


def bench(folder, **options):
    return Bench(folder, "smoke", **options)


def maker(calls, value=1):
    def make(seed, checkpoint):
        calls.append(seed)
        return {"found": value + seed}

    return make


def test_a_cell_is_made_once(tmp_path):
    calls = []
    for _ in range(2):
        found = bench(tmp_path, seeds=[0, 1]).cell("a", {"k": 1}, maker(calls))
    assert calls == [0, 1]
    assert [record["found"] for record in found] == [1, 2]
    assert found[0]["seed"] == 0
    assert {"command", "versions", "machine", "created", "seconds"} <= set(found[0])
    assert not list((tmp_path / "smoke" / "checkpoints").iterdir())


def test_other_settings_are_another_cell(tmp_path):
    calls = []
    bench(tmp_path).cell("a", {"k": 1}, maker(calls))
    found = bench(tmp_path).cell("a", {"k": 2}, maker(calls, 5))
    assert calls == [0, 0]
    assert found[0]["found"] == 5


def test_recorded_and_only_train_nothing(tmp_path):
    calls = []
    assert bench(tmp_path, recorded=True).cell("a", {}, maker(calls)) == []
    assert bench(tmp_path, only="b").cell("a", {}, maker(calls)) == []
    assert bench(tmp_path, only="a").cell("vgg-a", {}, maker(calls))
    assert bench(tmp_path, only="b").cell("vgg-a", {}, maker(calls))  # what is there is used
    assert calls == [0]


def test_a_stopped_cell_goes_on_from_its_checkpoint(tmp_path):
    def stopped(seed, checkpoint):
        checkpoint.mkdir(parents=True)
        (checkpoint / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path).cell("a", {"k": 1}, stopped)
    seen = []
    bench(tmp_path).cell("a", {"k": 1}, lambda seed, checkpoint: {"half": seen.append((checkpoint / "half").exists())})
    assert seen == [True]
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path).cell("a", {"k": 2}, stopped)
    bench(tmp_path).cell("a", {"k": 3}, lambda seed, checkpoint: {"half": seen.append((checkpoint / "half").exists())})
    assert seen == [True, False]


def test_checkpoints_of_names_with_dots_are_apart(tmp_path):
    """So are those of its seeds, although a network may be at work on each."""
    seen = []

    def stopped(seed, checkpoint):
        checkpoint.mkdir(parents=True)
        raise KeyboardInterrupt

    for gamma in (0.1, 0.5):
        with pytest.raises(KeyboardInterrupt):
            bench(tmp_path).cell(f"g-{gamma}", {"gamma": gamma}, stopped)

    def beside(seed, checkpoint):
        seen.append(checkpoint.exists())
        bench(tmp_path, seeds=[1]).cell("g-0.1", {"gamma": 0.1}, maker([]))
        return {}

    bench(tmp_path).cell("g-0.1", {"gamma": 0.1}, beside)
    assert seen == [True]


def test_an_unknown_device_is_refused_before_anything_runs(tmp_path):
    def run(at):
        raise AssertionError

    with pytest.raises(posterity.Error, match="'foo' is no device"):
        reproduce(Entry("e", "E", run), bench(tmp_path, device="foo"))
    with pytest.raises(AssertionError):  # where nothing is trained, no device is needed
        reproduce(Entry("e", "E", run), bench(tmp_path, device="foo", recorded=True))


def test_an_unknown_size(tmp_path):
    with pytest.raises(posterity.Error, match="smoke, small, full"):
        Bench(tmp_path, "huge")


def test_what_is_written(tmp_path):
    def run(at):
        at.cell("a", {}, maker([]))
        return Outcome({"x": 1.5}, [Table("t", ["c"], [["1"]])], ["It held."])

    where = bench(tmp_path)
    reproduce(Entry("paper-table-1", "A table", run), where)
    record = json.loads((tmp_path / "smoke" / "paper-table-1.json").read_text())
    assert record["numbers"] == {"x": 1.5}
    assert record["tables"] == [{"title": "t", "columns": ["c"], "rows": [["1"]]}]
    assert record["findings"] == ["This size shows that it runs; what it finds is no evidence.", "It held."]
    assert record["cells"] == ["a-0"]
    assert record["seeds"] == [0]


def test_an_unknown_entry():
    with pytest.raises(posterity.Error, match="Did you mean ibnn-table-3 or"):
        papers.find("ibnn-tabel-3")


def test_without_records_nothing_is_written(tmp_path):
    def run(at):
        at.cell("lenet-a", {}, maker([]))
        return Outcome({})

    entry = Entry("paper-table-1", "A table", run)
    with pytest.raises(posterity.Error, match="Nothing of paper-table-1 is recorded"):
        reproduce(entry, bench(tmp_path, recorded=True))
    with pytest.raises(posterity.Error, match=r"has 'vgg' in its name. There are lenet-a\."):
        reproduce(entry, bench(tmp_path, only="vgg"))
    assert not list(tmp_path.rglob("*.json"))


def test_the_time_of_a_cell_that_went_on_is_that_of_its_training(tmp_path):
    found = bench(tmp_path).cell("a", {}, lambda seed, checkpoint: {"train_seconds": 50.0})
    assert found[0]["seconds"] == 50.0


def test_settings_hold_what_differs_from_the_defaults():
    network = {"name": "lenet", "arguments": {}}
    assert Cell("digits", network, "map").settings() == {
        "data": "digits",
        "network": network,
        "method": "map",
        "posterior": {},
        "fit": {},
    }
    assert Cell("digits", network, "map", held_out=True).settings()["held_out"] is True


def test_the_rate_of_table_7():
    rate = SCHEDULES["table 7"]
    assert [round(0.2 * rate(epoch / 15), 6) for epoch in (0, 6, 8, 10, 15)] == [0.2, 0.2, 0.125, 0.05, 0.05]


def test_held_out_images_are_not_trained_on(tmp_path):
    cell = Cell("digits", {}, "map", images=200, held_out=True)
    (x, _), (held, answers), _ = cell.parts(bench(tmp_path))
    assert len(x) + len(held) == 200
    assert len(held) == len(answers) == pytest.approx(20, abs=5)
    assert not (x[:, None] == held[None]).flatten(2).all(2).any()
    everything, _, _ = Cell("digits", {}, "map", images=200).parts(bench(tmp_path))
    assert len(everything[1]) == 200


def test_images_are_standardised_enlarged_and_cropped(tmp_path):
    plain, _, _ = Cell("digits", {}, "map", images=5).parts(bench(tmp_path))
    (x, _), _, _ = Cell("digits", {}, "map", images=5, enlarge=4, crop=28).parts(bench(tmp_path))
    assert x.shape[1:] == (1, 28, 28)
    assert (x[:, :, 2::4, 2::4] == plain[0][:, :, 1:, 1:]).all()
