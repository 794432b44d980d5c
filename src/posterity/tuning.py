"""A search for a method's settings on held-out data, by any number of workers on one study.

A study lives in a database (by default a file of SQLite), so that workers share it by its URL, a worker that is killed
costs at most its own trial, which another takes up, and a search that was stopped goes on. Needs optuna.
"""

import json
import math
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import posterity
from posterity import inputs
from posterity.datasets.data import split
from posterity.errors import Error, require
from posterity.plots.common import panels
from posterity.report.canvas import INK, color, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Of the training data, held out; all trials of a study meet the same.
HELD_OUT = 0.1
#: Seconds between two signs of life of a worker, and after how many it is taken for dead.
BEAT, DEAD = 10, 60
RETRIES = 3


class Search:
    """Trials of a method's settings on one data set; the lowest negative log-likelihood of held-out rows is best.

    Args:
        method: a short name of `posterity.methods()`.
        data: training rows `(x, y)`; a tenth of them is held out.
        network: makes a fresh network.
        likelihood: makes the likelihood.
        folder: of checkpoints and, by default, of the study.
        url: of a database; by default a file in the folder.
        name: of the study in it.
        facts: what the trials depend on; a study of others is refused.
        seed: of the trials; every worker looks elsewhere.
        options: further arguments of `fit`.
    """

    def __init__(
        self,
        method: str,
        data: tuple[Any, Any],
        network: Callable[[], torch.nn.Module],
        likelihood: Callable[[], Any],
        folder: Path,
        *,
        url: str | None = None,
        name: str = "posterity",
        facts: dict[str, Any] | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        optuna: Any = require("optuna")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.method, self.network, self.likelihood, self.folder = method, network, likelihood, folder
        self.seed, self.options, self.optuna = seed, options, optuna
        self.space = posterity.methods()[method].space
        x, y = data
        one_class = y.numel() == len(y) and isinstance(likelihood(), posterity.Categorical)
        parts = split(len(y), 0, labels=y.flatten().numpy() if one_class else None, part=HELD_OUT)
        self.train, self.held = ((inputs.take(x, rows), y[rows]) for rows in map(torch.as_tensor, parts))
        folder.mkdir(parents=True, exist_ok=True)
        path = (folder / "study.db").resolve()
        self.study = self._study(url or f"sqlite:///{path}", name)
        known = self.study.user_attrs.get("facts")
        facts = json.loads(json.dumps({"method": method, **(facts or {})}))
        if known is None:
            self.study.set_user_attr("facts", facts)
        elif known != facts:
            different = ", ".join(key for key in facts if facts[key] != known.get(key)) or "something"
            raise Error(f"The study holds trials with another {different}: use another --out, or --name, for this one.")

    def _study(self, url: str, name: str) -> Any:
        optuna = self.optuna
        sqlite = url.startswith("sqlite")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                storage = optuna.storages.RDBStorage(
                    url,
                    engine_kwargs={"connect_args": {"timeout": 60}} if sqlite else None,
                    heartbeat_interval=BEAT,
                    grace_period=DEAD,
                    heartbeat_stale_trial_callback=_again,
                )
            return optuna.create_study(
                storage=storage,
                study_name=name,
                load_if_exists=True,
                sampler=optuna.samplers.TPESampler(multivariate=True, constant_liar=True),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=5),
            )
        except (ImportError, optuna.exceptions.OptunaError) as error:
            raise Error(f"The study at {url} cannot be opened: {error}.") from error
        except Exception as error:  # a database has errors of its own
            reason = str(error).strip().partition("\n")[0]
            raise Error(f"The study at {url} cannot be opened: {reason}.") from error

    @property
    def finished(self) -> list[Any]:
        """Trials that came to an end: measured, or given up as worse than most."""
        states = self.optuna.trial.TrialState
        return self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))  # type: ignore[no-any-return]

    def run(self, trials: int, say: Callable[[str], None] = lambda _: None) -> None:
        """Try settings until the study has so many finished trials, whoever made them."""
        states = self.optuna.trial.TrialState
        enough = self.optuna.study.MaxTrialsCallback(trials, states=(states.COMPLETE, states.PRUNED))

        def told(study: Any, trial: Any) -> None:
            value = f"{trial.value:.4f}" if trial.state == states.COMPLETE else trial.state.name.lower()
            best = f", best {study.best_value:.4f}" if self._measured() else ""
            say(f"[{len(self.finished)}/{trials}] {_words(trial.params)}: {value}{best}")

        if not self.finished and not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(self._defaults(), skip_if_exists=True)
        if len(self.finished) < trials:
            self.study.optimize(self._trial, callbacks=[told, enough], catch=(Error,))

    def best(self) -> dict[str, Any]:
        """The best settings: `{"method": …, "posterior": …, "fit": …, "nll": …, "trial": …}`."""
        if not self._measured():
            raise Error("No trial has been measured yet.")
        trial = self.study.best_trial
        return {"method": self.method, "nll": trial.value, "trial": trial.number, **self._split(trial.params)}

    def importances(self) -> dict[str, float]:
        """How much of the differences between trials each setting explains; empty where they are too few."""
        if len(self._measured()) < 4:
            return {}
        try:
            found = self.optuna.importance.get_param_importances(self.study)
        except (RuntimeError, ValueError):  # all trials alike
            return {}
        return {name: float(value) for name, value in found.items()}

    def figure(self) -> "Figure":
        """Held-out NLL against each setting, the most important first."""
        weights = self.importances()
        names = sorted((entry[1] for entry in self.space), key=lambda name: -weights.get(name, 0.0))
        trials = [trial for trial in self._measured() if math.isfinite(trial.value)]
        with panels(1, len(names), max(5.0, 2.6 * len(names)), 3.1, sharey=True) as (figure, grid):
            for axes, name in zip(grid[0], names, strict=True):
                points = [(trial.params[name], trial.value) for trial in trials if name in trial.params]
                if points:
                    axes.scatter(*zip(*points, strict=True), color=color(0), s=18, alpha=0.7)
                if trials:
                    best = min(trials, key=lambda trial: trial.value)
                    axes.plot(best.params[name], best.value, "*", color=INK, markersize=13)
                space = next(space for _, other, *space in self.space if other == name)
                ends = space[0] if isinstance(space[0], list) else [space[0], math.sqrt(space[0] * space[1]), space[1]]
                axes.set_xscale("log")
                axes.set_xticks(ends, [f"{end:.3g}" for end in ends])
                axes.minorticks_off()
                axes.set_xlim(0.7 * ends[0], 1.4 * ends[-1])
                axes.set(xlabel=name, title=f"{weights[name]:.0%}" if name in weights else "")
            grid[0][0].set_ylabel("NLL of held-out rows")
        words = ", ".join(f"{name} {weight:.0%}" for name, weight in weights.items()) or "not known yet"
        return described(
            figure,
            f"Held-out NLL of {len(trials)} trials against each setting. What explains the differences: {words}.",
        )

    def _fresh(self) -> torch.nn.Module:
        """A network, the same in every trial."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self.network()

    def _measured(self) -> list[Any]:
        return self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.COMPLETE,))  # type: ignore[no-any-return]

    def _defaults(self) -> dict[str, Any]:
        """What the library would take, so that the best is never worse; what is computed from the data is left out."""
        build: Any = posterity.methods()[self.method]
        built = build(self._fresh(), seed=self.seed)
        config = built.config()
        found = {}
        for where, name, *space in self.space:
            usual = {"lr": 1e-3, "weight_decay": 1e-4, "lr_posterior": 1e-3 * built.relative_rate}
            value = usual.get(name) if where == "fit" else config.get(name)
            inside = isinstance(value, (int, float)) and (
                value in space[0] if isinstance(space[0], list) else space[0] <= value <= space[1]
            )
            if inside:
                found[name] = value
        return found

    def _trial(self, trial: Any) -> float:
        optuna = self.optuna
        params = {
            name: trial.suggest_categorical(name, space[0])
            if isinstance(space[0], list)
            else trial.suggest_float(name, *space, log=True)
            for _, name, *space in self.space
        }
        chosen = self._split(params)
        checkpoint = self.folder / "checkpoints" / f"trial-{trial.user_attrs.get('first', trial.number)}"

        def report(record: dict[str, float], _: Any) -> None:
            if "validation" in record:
                trial.report(record["validation"], int(record["epoch"]))
                if trial.should_prune():
                    raise optuna.TrialPruned

        try:
            build: Any = posterity.methods()[self.method]
            posterior = build(self._fresh(), seed=self.seed, **chosen["posterior"])
            history = posterity.fit(
                posterior,
                self.train,
                self.likelihood(),
                seed=self.seed,
                validation=self.held,
                checkpoint=checkpoint,
                callbacks=[report],
                progress=False,
                **self.options,
                **chosen["fit"],
            )
        except KeyboardInterrupt:
            _again(self.study, trial)
            raise
        except BaseException:
            shutil.rmtree(checkpoint, ignore_errors=True)
            raise
        shutil.rmtree(checkpoint, ignore_errors=True)
        trial.set_user_attr("epoch", history.best)
        return math.nan if history.best is None else history[history.best - 1]["validation"]

    def _split(self, params: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Settings by where they go: to the method, or to `fit`."""
        places = {name: where for where, name, *_ in self.space}
        return {where: {n: v for n, v in params.items() if places.get(n) == where} for where in ("posterior", "fit")}


def _again(study: Any, trial: Any) -> None:
    """Queue a trial whose worker died or was stopped; it goes on from its checkpoint where that is at hand."""
    tries = trial.user_attrs.get("tries", 0) + 1
    if tries <= RETRIES:
        first = trial.user_attrs.get("first", trial.number)
        study.enqueue_trial(trial.params, user_attrs={"first": first, "tries": tries})


def _words(params: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in params.items())
