"""`posterity tune`: a search for a method's settings."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from posterity.cli import options, runs
from posterity.cli.console import Output
from posterity.cli.facts import facts
from posterity.cli.folder import write
from posterity.cli.study import names
from posterity.errors import Error, require


def tune(
    data: options.Data,
    method: Annotated[str, typer.Option(metavar="NAME", help="Which method (see `posterity methods`).")] = "ibnn",
    target: options.Target = None,
    task: options.TaskOption = None,
    trials: Annotated[
        int, typer.Option(metavar="N", min=1, help="Stop when the study has so many finished trials, of all workers.")
    ] = 40,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the results go.")] = Path("tuned"),
    study: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A database that workers share, such as `postgresql://user@host/name`; by default a file in FOLDER.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the study in its database.")] = "posterity",
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    varying_noise: options.VaryingNoise = False,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Search for the settings of a method that suit your data, on a tenth of the training rows held out.

    Example: `posterity tune houses.csv --target price --method ibnn --trials 40 --out tuned`

    It writes `best.json` (for `posterity train --settings tuned/best.json`) and `tuned.png`, which shows what
    mattered. Start the same command several times, on one machine or on many (with --study), and they work on the same
    study; one that was stopped goes on when it is started again, and loses no finished trial.
    """
    output = Output(json)
    chosen = names(method)
    if len(chosen) != 1:
        raise Error(f"Name one method to tune, not {len(chosen)}.")
    require("matplotlib")
    from posterity.tuning import Search

    settings = runs.Settings(
        data, target, task, epochs, batch_size, data_dir=data_dir, device=device, varying_noise=varying_noise
    )
    with output.working():
        with output.stage(f"Reading {data}"):
            loaded = settings.load(seed)
        options_of_fit: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "device": device, "graph": True}
        search = Search(
            chosen[0],
            loaded.train,
            lambda: runs.network(loaded, seed, varying_noise),
            lambda: runs.likelihood(loaded, varying_noise),
            out,
            url=study,
            name=name,
            facts=settings.arguments() | {"seed": seed},
            seed=seed,
            **options_of_fit,
        )
        search.run(trials, output.step)
        best, weights = search.best(), search.importances()
        write(out / "best.json", best)
        result = {
            "best": best,
            "importance": weights,
            "trials": [
                {"number": t.number, "state": t.state.name.lower(), "nll": t.value, **t.params} for t in search.finished
            ],
            **facts(),
        }
        write(out / "tuned.json", result)
        search.figure().savefig(out / "tuned.png", dpi=110)
    rows: list[Any] = [
        [key, f"{value:.4g}", f"{weights[key]:.0%}" if key in weights else "–"]
        for key, value in {**best["posterior"], **best["fit"]}.items()
    ]
    output.table(["setting", "best", "importance"], rows, numbers=True)
    defaults = next((t.value for t in search.finished if t.number == 0 and t.value is not None), None)
    beside = "" if defaults is None else f"; the first trial, of the defaults, has {defaults:.4f}"
    output.say(
        f"Held-out NLL {best['nll']:.4f}, trial {best['trial'] + 1} of {len(search.finished)}{beside}. The lowest of "
        f"several on the same held-out rows is lower than on new ones. A picture: {out}/tuned.png"
    )
    # The best settings are those for just these: a rate that suits 5 epochs does not suit 100.
    given = {"target": target, "task": task, "epochs": epochs, "batch-size": batch_size, "data-dir": data_dir}
    where = "".join(f" --{name} {shlex.quote(str(v))}" for name, v in given.items() if v is not None)
    where += " --varying-noise" * varying_noise
    output.say(
        f"Next:  posterity train {shlex.quote(data)}{where} --settings {shlex.quote(str(out))}/best.json --out model"
    )
    output.finish(result)
