"""`posterity demo`, `compare` and `train`."""

from pathlib import Path
from typing import Annotated

import typer

from posterity.cli import options
from posterity.cli.console import Output
from posterity.cli.runs import Settings, tuned
from posterity.cli.study import Study, names
from posterity.errors import Error
from posterity.report.words import choice

DEMO_EPOCHS = 24
"""Enough for the digits; all methods together take about two minutes on two cores."""


def compare(
    data: options.Data,
    target: options.Target = None,
    task: options.TaskOption = None,
    methods: options.Methods = "all",
    seeds: options.Seeds = 1,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the results go.")] = Path("run"),
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    hold_out: options.HoldOut = True,
    varying_noise: options.VaryingNoise = False,
    samples: options.Samples = None,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Train several methods on your data and see whose uncertainty can be trusted.

    Example: `posterity compare houses.csv --target price --methods map,ensemble,ibnn --seeds 3 --out houses`

    It writes to the folder: `report.html` (open it in a browser), `metrics.json` (the scores), and `models/`
    (one folder a method, for `posterity predict`). A comparison that was stopped goes on where it was when the
    same command is started again.
    """
    settings = Settings(
        data,
        target,
        task,
        epochs,
        batch_size,
        lr,
        samples,
        data_dir,
        device,
        hold_out=hold_out,
        varying_noise=varying_noise,
    )
    output = Output(json)
    study = Study(settings, names(methods), range(seed, seed + seeds), out, output)
    result = study.run()
    output.say(f"The whole report: {study.report}")
    output.finish(result)
    study.raise_failures()


def demo(
    epochs: Annotated[int, typer.Option(metavar="N", min=1, help="Passes through the training data.")] = DEMO_EPOCHS,
    methods: options.Methods = "all",
    device: options.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """See it work, in less than three minutes: all methods on 1,797 small images of handwritten digits.

    Example: `posterity demo`

    The results go to the folder `demo` where you are. Nothing is downloaded.
    """
    output = Output(json)
    study = Study(Settings("digits", epochs=epochs, device=device), names(methods), [seed], Path("demo"), output)
    result = study.run()
    output.say(f"The whole report: {study.report}")
    output.say()
    output.say("Next, on a table of your own:  posterity compare my.csv --target COLUMN")
    model = choice(study.comparison)
    output.say(f"Predictions of the model to use:  posterity predict demo/models/{model} digits --out predictions.csv")
    output.finish(result)
    study.raise_failures()


def train(
    data: options.Data,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Which method (see `posterity methods`): ibnn if left out.", show_default=False
        ),
    ] = None,
    target: options.Target = None,
    task: options.TaskOption = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the model goes.")] = Path("model"),
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings that `posterity tune` found: its best.json.", show_default=False),
    ] = None,
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    hold_out: options.HoldOut = True,
    varying_noise: options.VaryingNoise = False,
    samples: options.Samples = None,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Train one method on your data and keep the model.

    Example: `posterity train houses.csv --target price --method ibnn --out model`

    The folder then holds the model (for `posterity predict` and `posterity evaluate`), `metrics.json` with its
    scores on test data that were kept apart, and `report.html`. If it was stopped, the same command goes on.
    """
    found = tuned(settings)
    if found is not None and method not in (None, found["method"]):
        raise Error(f"{settings} holds settings of {found['method']}, not of {method}: leave --method out.")
    chosen = method or (found or {"method": "ibnn"})["method"]
    given = Settings(
        data, target, task, epochs, batch_size, lr, samples, data_dir, device, found, hold_out, varying_noise
    )
    output = Output(json)
    study = Study(given, names(chosen), [seed], out, output, alone=True)
    result = study.run()
    output.say(f"The model is in {out}, the report in {study.report}")
    output.say(f"Next:  posterity predict {out} NEW_DATA --out predictions.csv")
    output.finish(result)
    study.raise_failures()
