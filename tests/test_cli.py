import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import posterity
from posterity import evaluation
from posterity.cli import folder, runs, study
from posterity.cli.app import app
from posterity.cli.console import Output, plain
from posterity.evaluation.differences import Design

CLASSIFICATION = ("error", "nll", "brier", "ece", "train_seconds", "auroc_outside")
REGRESSION = ("rmse", "nll", "crps", "coverage90", "train_seconds")


def run(*arguments, status=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def command(*arguments):
    """The real program in a process of its own."""
    words = [sys.executable, "-m", "posterity", *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def table(path, rows=60, seed=0):
    """A CSV file: two numbers and a word to predict a class or a price from, which follow from them."""
    generator = np.random.default_rng(seed)
    a, b = generator.normal(size=(2, rows))
    word = np.where(generator.random(rows) < 0.5, "old", "new")
    kind = np.where(a + b + (word == "old") > 0.5, "yes", "<no>")
    price = 1000 + 300 * a - 200 * (word == "old") + 20 * generator.normal(size=rows)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "word", "mean", "kind", "price"])
        writer.writerows(zip(a, b, word, a * b, kind, price, strict=True))
    return path


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A finished comparison of two methods and two seeds on a small table."""
    root = tmp_path_factory.mktemp("compared")
    data, out = table(root / "table.csv", rows=400), root / "out"
    arguments = ["compare", data, "--target", "kind", "--methods", "map,ibnn", "--seeds", 2, "--epochs", 2]
    arguments += ["--out", out, "--json"]
    result = run(*arguments)
    return data, out, arguments, result


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    """A model of a number, trained by `train`."""
    root = tmp_path_factory.mktemp("regression")
    data = table(root / "table.csv", rows=200)
    arguments = ["train", data, "--target", "price", "--method", "ibnn", "--epochs", 20, "--lr", 0.01]
    result = run(*arguments, "--out", root / "model")
    return data, root / "model", result


def test_compare_writes_metrics_report_and_models(compared):
    _, out, _, result = compared
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["data"] == "table.csv"
    assert list(metrics["methods"]) == ["map", "ibnn"]
    for scores in metrics["methods"].values():
        for name in CLASSIFICATION:
            assert scores[name] >= 0
            assert scores[f"{name}_std"] >= 0
    assert metrics["methods"]["map"]["nll_std"] > 0
    assert {"command", "versions", "machine", "seed", "seeds", "settings"} <= set(metrics)
    assert json.loads(result.stdout) == metrics
    page = (out / "report.html").read_text()
    for title in ("What can be promised?", "Which uncertainty notices", "How the training went", "inputs get worse?"):
        assert title in page, title
    record = json.loads((out / "runs" / "ibnn-0.json").read_text())["summary"]["outside"]["detection"]
    assert set(record) == {"total", "epistemic", "aleatoric", "confidence", "energy"}
    assert posterity.load(out / "models" / "ibnn").preprocessing.classes == ["<no>", "yes"]
    assert not (out / "checkpoints").exists()


def test_a_comparison_with_an_ensemble_says_how_many_networks_each_method_is_worth(tmp_path):
    data = table(tmp_path / "table.csv", rows=200)
    options = ["--target", "kind", "--methods", "map,ensemble", "--epochs", 2, "--seeds", 2, "--out", tmp_path / "o"]
    methods = json.loads(run("compare", data, *options, "--json").stdout)["methods"]
    runs = [json.loads((tmp_path / "o" / "runs" / f"ensemble-{seed}.json").read_text()) for seed in (0, 1)]
    for name, scores in methods.items():
        each = [
            evaluation.ensemble_equivalent(
                json.loads((tmp_path / "o" / "runs" / f"{name}-{seed}.json").read_text())["scores"]["nll_calibrated"],
                record["summary"]["sizes"],
            ).number
            for seed, record in enumerate(runs)
        ]
        assert scores["ensemble_equivalent"] == pytest.approx(np.mean(each))
        assert all(1 <= number <= 5 for number in each)


def test_means_over_seeds_are_those_of_the_runs(compared):
    _, out, _, _ = compared
    scores = json.loads((out / "metrics.json").read_text())["methods"]["ibnn"]
    values = [json.loads((out / "runs" / f"ibnn-{seed}.json").read_text())["scores"]["nll"] for seed in (0, 1)]
    assert scores["nll"] == pytest.approx(np.mean(values))
    assert scores["nll_std"] == pytest.approx(np.std(values, ddof=1))


def test_a_comparison_has_the_rows_of_every_seed_and_says_who_is_best(compared):
    data, out, _, _ = compared
    found = {
        m: [json.loads((out / "runs" / f"{m}-{seed}.json").read_text()) for seed in (0, 1)] for m in ("map", "ibnn")
    }
    rows = runs.evidence(found)
    for method, records in found.items():
        for seed, record in enumerate(records):
            for score in ("error", "nll", "brier", "ece", "aurc"):
                assert len(rows[method][score][seed][0]) == 80
                assert np.mean(rows[method][score][seed][0]) == pytest.approx(
                    record["scores"][score], rel=1e-4, abs=1e-6
                )
            outside = [1 - np.mean(sample) for sample in rows[method]["auroc_outside"][seed]]
            assert outside == pytest.approx([record["scores"]["auroc_outside"]] * 2, rel=1e-4)
    assert runs.design(found) == Design(same_rows=False, overlap=0.25)  # each seed has a split of its own
    assert runs.design({m: records[:1] for m, records in found.items()}).same_rows
    again = study.Study(runs.Settings(str(data), "kind", epochs=2), ["map", "ibnn"], [0, 1], out, Output(True))
    best = again.run()["best"]
    assert best["of"] == "methods"
    assert best["scores"] == {
        score: sorted(again.comparison.best(score)) for score in again.comparison.scores() if score != "train_seconds"
    }


def test_one_seed_has_no_standard_deviation(tmp_path):
    data = table(tmp_path / "table.csv", rows=60)
    options = ["--target", "kind", "--methods", "map,dropout", "--epochs", 1, "--out", tmp_path / "o", "--json"]
    result = json.loads(run("compare", data, *options).stdout)
    for scores in result["methods"].values():
        assert {value for name, value in scores.items() if name.endswith("_std")} == {None}
    assert result["best"]["of"] == "trained networks"


def test_json_leaves_progress_and_tables_to_standard_error(compared):
    result = compared[3]
    assert "[4/4] ibnn, seed 1" in result.stderr
    assert "AUROC outside" in result.stderr


def test_finished_runs_are_not_repeated(compared, monkeypatch):
    _, out, arguments, first = compared
    monkeypatch.setattr(runs, "execute", lambda *_: pytest.fail("a finished run was repeated"))
    (out / "report.html").unlink()
    again = run(*arguments)
    assert json.loads(again.stdout)["methods"] == json.loads(first.stdout)["methods"]
    assert again.stderr.count("done before") == 4
    assert (out / "report.html").is_file()


@pytest.mark.parametrize("change", ["arguments", "data", "model", "model of another run"])
def test_what_changed_is_run_again(compared, monkeypatch, tmp_path, change):
    data, out, arguments, _ = compared
    copy = tmp_path / "out"
    subprocess.run(["cp", "-r", out, copy], check=True)
    arguments = [copy if argument == out else argument for argument in arguments]
    if change == "arguments":
        arguments += ["--batch-size", 7]
    elif change == "data":
        changed = table(tmp_path / data.name, seed=1)
        arguments = [changed if argument == data else argument for argument in arguments]
    elif change == "model":
        (copy / "models" / "map" / "config.json").unlink()
    else:
        (copy / "models" / "map" / "arguments.json").write_text("{}")
    asked = []

    def execute(settings, data, method, seed, *_):
        asked.append((method, seed))
        raise posterity.Error("not now")

    monkeypatch.setattr(runs, "execute", execute)
    run(*arguments, status=2)
    everything = [("map", 0), ("ibnn", 0), ("map", 1), ("ibnn", 1)]
    assert asked == ([("map", 0)] if change.startswith("model") else everything)


def test_the_results_of_other_data_are_left_alone(compared, tmp_path):
    data, out, arguments, _ = compared
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    other = table(tmp_path / "other.csv")
    said = run(*[other if argument == data else argument for argument in arguments], status=2).stderr
    assert f"holds the results of {data.name} with the target kind: name another folder with --out" in said
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_one_failing_method_does_not_cost_the_others(compared, monkeypatch, tmp_path):
    data = compared[0]
    real = runs.execute

    def execute(settings, data, method, *rest):
        if method == "map":
            raise posterity.Error("The loss is not finite.")
        return real(settings, data, method, *rest)

    monkeypatch.setattr(runs, "execute", execute)
    result = run(
        "compare", data, "--target", "kind", "--methods", "map,ibnn", "--epochs", 1, "--out", tmp_path / "o", status=2
    )
    assert "map with seed 0 failed: The loss is not finite." in result.stderr
    metrics = json.loads((tmp_path / "o" / "metrics.json").read_text())
    assert list(metrics["methods"]) == ["ibnn"]
    assert "map with seed 0" in metrics["failures"]


def test_training_goes_on_from_its_checkpoint(tmp_path):
    data, settings = table(tmp_path / "t.csv"), {"target": "kind", "epochs": 4}
    folders = [folder.Folder(tmp_path / name, {"a": 1}) for name in ("stopped", "whole")]
    loaded = runs.Settings(str(data), **settings).load(0)

    class Stop(Exception):
        pass

    def interrupt(record, posterior):
        if record["epoch"] == 2:
            raise Stop

    whole, _ = runs.execute(runs.Settings(str(data), **settings), loaded, "ibnn", 0, folders[1].begin("ibnn", 0), False)
    checkpoint = folders[0].begin("ibnn", 0)
    fit = posterity.fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posterity, "fit", lambda *a, **k: fit(*a, **k, checkpoint_every=0, callbacks=[interrupt]))
        with pytest.raises(Stop):
            runs.execute(runs.Settings(str(data), **settings), loaded, "ibnn", 0, checkpoint, False)
    assert folders[0].begin("ibnn", 0) == checkpoint
    assert any(checkpoint.iterdir())
    resumed, _ = runs.execute(runs.Settings(str(data), **settings), loaded, "ibnn", 0, checkpoint, False)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_a_checkpoint_of_other_arguments_is_dropped(tmp_path):
    first = folder.Folder(tmp_path, {"epochs": 3}).begin("map", 0)
    first.mkdir(parents=True)
    (first / "checkpoint.safetensors").write_text("x")
    assert folder.Folder(tmp_path, {"epochs": 3}).begin("map", 0) == first
    assert any(first.iterdir())
    folder.Folder(tmp_path, {"epochs": 4}).begin("map", 0)
    assert not first.exists()


def test_a_damaged_record_counts_as_none(tmp_path):
    kept = folder.Folder(tmp_path, {})
    kept.begin("map", 0)
    kept.finish("map", 0, {"scores": {"nll": float("nan")}})
    assert kept.record("map", 0)["scores"] == {"nll": None}
    (tmp_path / "runs" / "map-0.json").write_text('{"scores": ')
    assert kept.record("map", 0) is None


def test_train_scores_in_the_targets_units(regression):
    _, model, result = regression
    metrics = json.loads((model / "metrics.json").read_text())
    scores = metrics["methods"]["ibnn"]
    assert all(name in scores for name in REGRESSION)
    # The price varies by hundreds, in standardised units by one.
    assert 5 < scores["rmse"] < 400
    assert 2 < scores["nll"] < 9
    assert "posterity predict" in result.stdout


def test_noise_that_varies_is_learned_where_it_is_asked_for(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, 400)
    noise = np.where(x > 0, 1.0, 0.05) * np.random.default_rng(1).normal(size=400)
    np.savetxt(tmp_path / "d.csv", np.stack([x, x + noise], 1), delimiter=",", header="x,y", comments="")
    train = ["train", tmp_path / "d.csv", "--target", "y", "--method", "map", "--epochs", 60, "--lr", 0.01]
    stds = []
    for extra in ([], ["--varying-noise"]):
        run(*train, *extra, "--out", tmp_path / "model")
        run("predict", tmp_path / "model", tmp_path / "d.csv", "--out", tmp_path / "p.csv")
        stds.append(np.array([float(row["std"]) for row in csv.DictReader((tmp_path / "p.csv").open())]))
    assert stds[0].std() < 1e-6
    assert stds[1][x < -0.2].mean() < 0.4 < stds[1][x > 0.2].mean()
    run("tune", *train[1:3], "y", "--method", "map", "--trials", 1, "--epochs", 1, "--varying-noise", "--out", tmp_path)
    digits = run("train", "digits", "--varying-noise", "--out", tmp_path / "other", status=2)
    assert "leave --varying-noise out" in digits.output


def test_all_rows_train_where_none_are_to_be_held_out(tmp_path, monkeypatch):
    found = []
    real = posterity.fit

    def fit(*args, **kwargs):
        found.append(real(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(posterity, "fit", fit)
    for extra in ([], ["--no-hold-out"]):
        run("train", "digits", "--method", "map", "--epochs", 1, *extra, "--out", tmp_path / "model")
    assert [len(history.column("validation")) for history in found] == [1, 0]


def test_the_record_names_the_epoch_that_was_kept_and_its_loss(regression):
    _, model, _ = regression
    history = json.loads(next(model.glob("**/ibnn-0.json")).read_text())["summary"]["history"]
    epoch, loss = history["kept"]
    assert loss == min(history["validation"]) == history["validation"][history["validation_epoch"].index(epoch)]


def test_predict_writes_numbers_beside_each_row(regression, tmp_path):
    data, model, _ = regression
    run("predict", model, data, "--out", tmp_path / "p.csv")
    rows, given = read(tmp_path / "p.csv"), read(data)
    assert len(rows) == len(given)
    assert [row["word"] for row in rows] == [row["word"] for row in given]
    assert [row["input_mean"] for row in rows] == [row["mean"] for row in given]
    for row in rows:
        low, mean, high = (float(row[name]) for name in ("low90", "mean", "high90"))
        assert low < mean < high
        assert float(row["total"]) == pytest.approx(float(row["std"]) ** 2, rel=1e-4)
        assert float(row["total"]) == pytest.approx(float(row["aleatoric"]) + float(row["epistemic"]), rel=1e-4)
    price = np.array([float(row["price"]) for row in rows])
    assert np.corrcoef(price, [float(row["mean"]) for row in rows])[0, 1] > 0.8


def test_a_model_of_the_command_line_reads_files_in_python(regression, compared, tmp_path):
    data, model, _ = regression
    run("predict", model, data, "--out", tmp_path / "p.csv")
    posterior = posterity.load(model)
    prediction = posterity.predict(posterior, data, seed=0)
    written = [float(row["mean"]) for row in read(tmp_path / "p.csv")]
    assert np.allclose(prediction.mean.squeeze(1), written, rtol=0.05)
    rows = [{key: value for key, value in row.items() if key != "price"} for row in read(data)]
    array = np.array([list(row.values()) for row in rows], dtype=object)
    for raw in (rows, array):  # as they come, not as the network takes them
        said = posterity.predict(posterior, raw, seed=0)
        assert torch.allclose(said.mean, prediction.mean)
    ready = posterity.predict(posterior, posterior.preprocessing.inputs(rows), seed=0)
    assert float(ready.mean.abs().max()) < 10  # a tensor is what the preprocessing makes; its answers are standardised
    classes = posterity.predict(posterity.load(compared[1] / "models" / "map"), str(compared[0]))
    assert classes.probs.shape == (400, 2)
    posterior.preprocessing = None
    with pytest.raises(posterity.Error, match="keeps no preprocessing"):
        posterity.predict(posterior, data)


def test_predict_writes_classes_and_parquet(compared, tmp_path):
    import pandas

    data, out, _, _ = compared
    run("predict", out / "models" / "map", data, "--out", tmp_path / "p.parquet", "--samples", 3)
    frame = pandas.read_parquet(tmp_path / "p.parquet")
    assert set(frame["prediction"]) <= {"yes", "<no>"}
    np.testing.assert_allclose(frame["probability_yes"] + frame["probability_<no>"], 1, rtol=1e-5)
    np.testing.assert_allclose(frame["probability"], frame[["probability_yes", "probability_<no>"]].max(axis=1))
    assert (frame["epistemic"] >= 0).all()


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predict_replaces_its_own_predictions_and_says_so_but_nothing_else(regression, tmp_path, name):
    data, model, _ = regression
    out = tmp_path / name
    assert "in place of" not in run("predict", model, data, "--out", out).stdout
    first = out.read_bytes()
    assert "in place of those that were there" in run("predict", model, data, "--out", out, "--seed", 1).stdout
    assert out.read_bytes() != first
    assert "is there already" in run("predict", model, data, "--out", _other(tmp_path, out.suffix), status=2).stderr
    assert _other(tmp_path, out.suffix).read_bytes() == b"mine,too\n1,2\n"
    mine = out.read_bytes()
    assert "the data themselves" in run("predict", model, out, "--out", out, status=2).stderr
    assert out.read_bytes() == mine


def _other(folder, suffix):
    """A file that `predict` did not write."""
    path = folder / f"other{suffix}"
    path.write_bytes(b"mine,too\n1,2\n")
    return path


def test_predict_needs_no_target_column(compared, tmp_path):
    data, out, _, _ = compared
    rows = [{key: value for key, value in row.items() if key != "kind"} for row in read(data)]
    with (tmp_path / "new.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    run("predict", out / "models" / "ibnn", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert len(read(tmp_path / "p.csv")) == len(rows)
    result = run("evaluate", out / "models" / "ibnn", tmp_path / "new.csv", "--out", tmp_path / "e", status=2)
    assert "'kind'" in result.stderr


def test_evaluate_scores_a_saved_model_and_writes_a_report(regression, tmp_path):
    _, model, _ = regression
    new = table(tmp_path / "new.csv", rows=200, seed=1)
    found = json.loads(run("evaluate", model, new, "--out", tmp_path / "e", "--json").stdout)
    metrics = json.loads((tmp_path / "e" / "metrics.json").read_text())
    assert metrics["scores"] == found["scores"]
    assert {"command", "versions", "machine"} <= set(metrics)
    page = (tmp_path / "e" / "report.html").read_text()
    for title in ("What can be promised?", "when the inputs get worse?", "From certain to uncertain", "unlike any it"):
        assert title in page
    assert "<dt>word</dt><dd>old</dd>" in page
    assert found["rows"] == 200
    assert found["method"] == "ibnn"
    assert list(found["scores"])[:4] == ["rmse", "nll", "crps", "coverage90"]
    assert {"interval_score90", "coverage_gap", "epistemic"} <= set(found["scores"])
    assert 5 < found["scores"]["rmse"] < 400


def test_built_in_data_train_predict_and_evaluate(tmp_path):
    run("train", "digits", "--method", "map", "--epochs", 1, "--out", tmp_path / "m", "--batch-size", 256)
    run("predict", tmp_path / "m", "digits", "--out", tmp_path / "p.csv")
    rows = read(tmp_path / "p.csv")
    assert {"prediction", "probability", "probability_0", "probability_9", "total"} <= set(rows[0])
    trained = json.loads((tmp_path / "m" / "metrics.json").read_text())["methods"]["map"]
    evaluated = json.loads(run("evaluate", tmp_path / "m", "digits", "--out", tmp_path / "e", "--json").stdout)[
        "scores"
    ]
    assert evaluated["nll"] == pytest.approx(trained["nll"], rel=1e-5)
    elsewhere = json.loads(
        run("evaluate", tmp_path / "m", "digits", "--out", tmp_path / "e", "--seed", 5, "--json").stdout
    )["scores"]
    assert elsewhere["nll"] == pytest.approx(trained["nll"], rel=0.1)  # of the same rows by other draws
    assert "most certain" in (tmp_path / "m" / "report.html").read_text()


def test_demo_writes_where_you_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--epochs", 1, "--methods", "map")
    assert (tmp_path / "demo" / "report.html").is_file()
    assert "demo/report.html" in result.stdout
    assert "Next" in result.stdout


def test_methods_lists_every_method():
    result = run("methods")
    for name, cls in posterity.methods().items():
        assert name in result.stdout
        assert cls.__name__ in result.stdout
    assert set(json.loads(run("methods", "--json").stdout)) == set(posterity.methods())


def test_data_says_where_each_set_is(tmp_path):
    folder = tmp_path / "uci"
    folder.mkdir()
    np.savez(folder / "boston.npz", x=np.zeros((3, 1)))
    found = json.loads(run("data", "--data-dir", tmp_path, "--json").stdout)
    assert found["digits"]["where"] == "built in"
    assert found["uci/boston"]["where"] == str(folder)


@pytest.mark.parametrize("name", ["demo", "compare", "train", "predict", "evaluate", "export", "methods", "data"])
def test_every_command_has_help_with_an_example(name):
    text = run(name, "--help").stdout
    assert f"Example: posterity {name}" in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "nothing.csv"], "no file or folder"),
        (["compare", "digits", "--methods", "map,nonsense"], "no method 'nonsense'. The methods are map, "),
        (["compare", "digits", "--methods", "map,Ensmble"], "no method 'ensmble'. Did you mean ensemble? The"),
        (["train", "digits", "--method", "ibn"], "no method 'ibn'. Did you mean ibnn?"),
        (["compare", "digits", "--lr", "nan"], "above 0"),
        (["train", "digits", "--method", "map,ibnn"], "one method"),
        (["predict", "nowhere", "digits"], "no model folder"),
        (["predict", "nowhere", "digits", "--out", "p.xlsx"], ".csv or .parquet"),
        (["compare", "digits", "--epochs", "0"], "epochs"),
        (["compare", "digits", "--frobnicate"], "frobnicate"),
        (["nonsense"], "nonsense"),
    ],
)
def test_mistakes_end_in_a_sentence_and_status_two(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, status=2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_refused(compared, tmp_path):
    (tmp_path / "taken").write_text("mine")
    result = run("compare", compared[0], "--target", "kind", "--out", tmp_path / "taken", status=2)
    assert "is a file" in result.stderr
    assert (tmp_path / "taken").read_text() == "mine"


def test_the_program_prints_nothing_but_json_and_ends_in_two(tmp_path):
    with command("evaluate", tmp_path, "digits", "--json") as process:
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 2
    assert stdout == ""
    assert stderr.strip().count("\n") == 0
    assert "no model folder" in stderr


def test_control_c_ends_in_a_sentence_and_the_rest_is_done_later(compared, tmp_path):
    data = compared[0]
    arguments = ["compare", data, "--target", "kind", "--methods", "map,ibnn", "--out", tmp_path / "o"]
    arguments += ["--epochs", 100_000]
    with command(*arguments) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "o" / "checkpoints" / "map-0.json").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(2)
        os.kill(process.pid, signal.SIGINT)
        stderr = process.communicate(timeout=60)[1]
    # A shell shows 130 for both: Python itself ends by the signal where it interrupted an exec() of a string.
    assert process.returncode in (130, -signal.SIGINT)
    assert "Stopped." in stderr
    assert "Traceback" not in stderr


def test_seeds_alone_decide_a_run(compared, tmp_path):
    _, out, arguments, _ = compared
    arguments = [tmp_path / "again" if argument == out else argument for argument in arguments]
    torch.manual_seed(99)
    run(*arguments)
    for name in ("map-0", "ibnn-1"):
        first, second = (json.loads((root / "runs" / f"{name}.json").read_text()) for root in (out, tmp_path / "again"))
        for score in ("error", "nll", "brier", "ece", "auroc_outside"):
            assert first["scores"][score] == second["scores"][score]


def test_train_knows_whose_model_its_folder_holds(tmp_path):
    arguments = ["train", table(tmp_path / "t.csv"), "--target", "kind", "--epochs", 1, "--out", tmp_path / "m"]
    for method in ("map", "ibnn", "map"):
        run(*arguments, "--method", method)
        assert json.loads((tmp_path / "m" / "config.json").read_text())["method"] == method


def test_names_cannot_steer_the_terminal(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\x1b]0;owned\x07,b\n1,2\n3,4\n")
    result = run("compare", path, "--target", "kind", status=2)
    assert "owned" in result.stderr
    assert "\x1b" not in result.stderr


def test_images_in_folders(tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    for name, level in {"dark <b>": 60, "light $x$": 190}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(10):
            pixels = np.clip(generator.normal(level, 30, size=(12, 10, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{index}.png")
    run("compare", "photos", "--methods", "map", "--epochs", 5, "--lr", 0.01, "--out", "o")
    run("predict", "o/models/map", "photos", "--out", "p.csv")
    rows = read(tmp_path / "p.csv")
    assert rows[0]["file"] == "dark <b>/0.png"
    assert np.mean([row["prediction"] == row["file"].split("/")[0] for row in rows]) > 0.8
    assert json.loads(run("evaluate", "o/models/map", "photos", "--json").stdout)["rows"] == 4  # held out
    assert "<b>" not in (tmp_path / "o" / "report.html").read_text()


def test_a_missing_package_is_named_before_any_training(compared, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("compare", compared[0], "--target", "kind", "--out", tmp_path / "o", status=2)
    assert "posterity[all]" in result.stderr
    assert not (tmp_path / "o").exists()


def test_numbers_that_json_lacks_become_null():
    assert plain({"a": [float("inf"), 1.0], "b": (float("nan"),)}) == {"a": [None, 1.0], "b": [None]}


def test_method_names_may_be_spelled_freely():
    assert study.names(" MAP, ibnn ,map") == ["map", "ibnn"]
    assert study.names("all") == list(posterity.methods())
    with pytest.raises(posterity.Error, match="No method is named"):
        study.names(" ,")


def test_judging_needs_no_target(regression):
    _, model, _ = regression
    posterior = posterity.load(model)
    x = torch.zeros(3, next(iter(posterior.network.parameters())).shape[1])
    prediction, y = runs.judged(posterior, x, None, posterior.preprocessing, 4, 0)
    assert y is None
    assert evaluation.is_regression(prediction)
    assert float(prediction.mean.mean()) > 100


def test_classes_with_few_test_rows_are_told_of(tmp_path):
    data = table(tmp_path / "table.csv", rows=200)
    data.write_text(data.read_text().replace("yes", "rare", 1))
    result = run("train", data, "--target", "kind", "--method", "map", "--epochs", 1, "--out", tmp_path / "m")
    assert "fewer than 5 test rows of 'rare' (" in result.stderr
