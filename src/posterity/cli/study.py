"""A comparison from start to end: every method with every seed, then metrics, report and models."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import posterity
from posterity import datasets, report
from posterity.cli import provenance, runs
from posterity.cli.console import Output, Stages
from posterity.cli.facts import described, facts
from posterity.cli.folder import Folder, read, write
from posterity.cli.provenance import NOTE
from posterity.errors import Error, require
from posterity.evaluation.differences import LEVEL
from posterity.report import Comparison
from posterity.report.comparison import SCORES
from posterity.wording import did_you_mean

FAR_AWAY = "inputs pushed far away"
RARE = 5
"""Test rows of a class, of which scores say little where there are fewer."""


def names(given: str) -> list[str]:
    """Method names from `a,b` or `all`, each once."""
    known = list(posterity.methods())
    asked = [name.strip().lower() for name in given.split(",") if name.strip()]
    if not asked:
        raise Error(f"No method is named: give some of {', '.join(known)}, or all.")
    chosen = list(dict.fromkeys(known if asked == ["all"] else asked))
    for name in chosen:
        if name not in known:
            hint = did_you_mean(name, known)
            raise Error(f"There is no method {name!r}.{hint} The methods are {', '.join(known)}.")
    return chosen


class Study:
    """Runs what is not yet done in its folder, and writes what was found.

    Args:
        settings: data and training
        methods: short names
        seeds: one run a method each; the first one's models are kept
        path: the folder of results
        output: where to tell of progress
        alone: one method only, whose model lies in the folder itself
    """

    def __init__(
        self,
        settings: runs.Settings,
        methods: Sequence[str],
        seeds: Sequence[int],
        path: Path,
        output: Output,
        alone: bool = False,
    ) -> None:
        if alone and len(methods) != 1:
            raise Error(f"Name one method, not {len(methods)}: to train several, use  posterity compare.")
        self.settings, self.methods, self.seeds, self.output = settings, methods, list(seeds), output
        self.path, self.alone = path, alone
        self.report = path / "report.html"
        self.failures: dict[str, str] = {}
        self._data: dict[int, Any] = {}

    def run(self) -> dict[str, Any]:
        """Do it, and return what `metrics.json` holds."""
        started = time.perf_counter()
        # What the report needs must not be found missing after hours of training.
        require("matplotlib")
        with self.output.working():
            with self.output.stage(f"Reading {self.settings.data}"):
                first = self._load(self.seeds[0])
            _tell_of_rare_classes(first)
            self.folder = Folder(self.path, self.settings.arguments())
            records = self._records()
            if not any(records.values()):
                raise Error(next(iter(self.failures.values())))
            runs.worth(records)
            seconds = time.perf_counter() - started
            result = self._metrics(first, {m: found for m, found in records.items() if found}, seconds)
            with self.output.stage("Summarising the scores"):
                self.comparison = self._comparison(first, records, result)
                if len(self.comparison.methods) > 1:
                    result["best"] = winners(self.comparison)
            write(self.path / "metrics.json", result)
            with self.output.stage("Drawing the report"):
                report.write(self.comparison, self.report)
        self.output.scores(self.comparison)
        return result

    def raise_failures(self) -> None:
        """End with an error if any run failed, once all that did not is written."""
        if self.failures:
            raise Error(" ".join(f"{run} failed: {why}" for run, why in self.failures.items()))

    def _records(self) -> dict[str, list[dict[str, Any]]]:
        """The records of each method, in the order of the seeds, from the folder or from a new run."""
        found: dict[str, list[dict[str, Any]]] = {method: [] for method in self.methods}
        total, count = len(self.methods) * len(self.seeds), 0
        for seed in self.seeds:
            for method in self.methods:
                count += 1
                label = f"[{count}/{total}] {method}, seed {seed}"
                record = self._finished(method, seed)
                if record is not None:
                    self.output.step(f"{label}: done before")
                else:
                    record = self._new(method, seed, label)
                    if record is not None:
                        self.output.step(f"{label}: {_outcome(record['scores'])}")
                if record is not None:
                    found[method].append(record)
            self._data = {key: value for key, value in self._data.items() if key == self.seeds[0]}
        return found

    def _finished(self, method: str, seed: int) -> dict[str, Any] | None:
        """The record of a run that need not be repeated: of the first seed, its model must be there as well."""
        if seed == self.seeds[0]:
            model = self._model(method)
            if not (model / "config.json").is_file() or read(model / NOTE) != self.folder.run(method, seed):
                return None
        return self.folder.record(method, seed)

    def _new(self, method: str, seed: int, label: str) -> dict[str, Any] | None:
        """A new run's record; None where it failed, so that one method's trouble does not cost the others."""
        data = self._load(seed)
        checkpoint = self.folder.begin(method, seed)
        try:
            posterior, record = runs.execute(
                self.settings, data, method, seed, checkpoint, self.output.interactive, Stages(self.output, label)
            )
        except Error as error:
            self.failures[f"{method} with seed {seed}"] = str(error)
            self.output.step(f"{method}, seed {seed}, failed: {error}")
            return None
        if seed == self.seeds[0]:
            model = self._model(method)
            (model / NOTE).unlink(missing_ok=True)
            posterity.save(posterior, model, preprocessing=data.preprocessing)
            provenance.write(model, data)
            write(model / NOTE, self.folder.run(method, seed))
        return self.folder.finish(method, seed, record)

    def _model(self, method: str) -> Path:
        return self.path if self.alone else self.path / "models" / method

    def _load(self, seed: int) -> Any:
        if seed not in self._data:
            self._data[seed] = self.settings.load(seed)
        return self._data[seed]

    def _metrics(self, data: Any, records: dict[str, list[dict[str, Any]]], seconds: float) -> dict[str, Any]:
        settings = self.settings.arguments()
        return {
            "data": data.name,
            "task": data.task,
            "target": data.preprocessing.target,
            "rows": {"train": len(data.train[1]), "test": len(data.test[1])},
            "outside": data.outside_name or None,
            "methods": {method: runs.mean_and_deviation(found) for method, found in records.items()},
            "failures": self.failures,
            "seed": self.seeds[0],
            "seeds": self.seeds,
            "settings": {key: value for key, value in settings.items() if key not in ("data", "content")},
            "seconds": seconds,
            **facts(),
        }

    def _comparison(self, data: Any, records: dict[str, list[dict[str, Any]]], result: dict[str, Any]) -> Comparison:
        classes = tuple(data.preprocessing.classes or ())
        x = data.test[0]
        about = {
            "rows to train on": f"{len(data.train[0]):,}",
            "rows to test on": f"{len(x):,}",
            "inputs": " × ".join(map(str, x.shape[1:])),
            "classes" if classes else "target": len(classes) or data.preprocessing.target,
        }
        settings = {key: value for key, value in result["settings"].items() if value is not None}
        made = {
            **described(result),
            "seconds of training": f"{sum(r['scores']['train_seconds'] for f in records.values() for r in f):.1f}",
            "seeds": ", ".join(map(str, self.seeds)),
            "settings": ", ".join(f"{key} {value}" for key, value in settings.items() if key != "version"),
        }
        if self.failures:
            made["failed"] = " ".join(f"{run}: {why}" for run, why in self.failures.items())
        return Comparison(
            title=data.name,
            task=data.task,
            methods=result["methods"],
            seeds=len(self.seeds),
            data=about,
            facts=made,
            summaries={
                m: found[0]["summary"]
                for m, found in records.items()
                if found and found[0]["arguments"]["seed"] == self.seeds[0]
            },
            evidence=runs.evidence(records),
            design=runs.design(records),
            classes=classes,
            target=data.preprocessing.target,
            outside={"far away": FAR_AWAY}.get(data.outside_name, data.outside_name),
            folder="." if self.alone else "models/{method}",
            **shown(x, data.preprocessing),
        )


def winners(comparison: Comparison) -> dict[str, Any]:
    """Of each score the methods that are best and cannot be told apart; none where no difference can be told."""
    ranked = [score for score in comparison.scores() if SCORES[score].goal is not None]
    found = {score: sorted(comparison.best(score)) for score in ranked}
    return {"of": comparison.about, "confidence": 1 - LEVEL, "scores": found}


def shown(x: Any, preprocessing: Any) -> dict[str, Any]:
    """The test inputs as a report shows them: images as they are, the rows of a table in words."""
    if x.dim() == 4:
        return {"images": x.cpu().numpy()}
    if preprocessing.kind == "table":
        return {"rows": Rows(x, preprocessing)}
    return {}


class Rows(Mapping[int, dict[str, str]]):
    """The rows of a table by number, each put in words when it is asked for."""

    def __init__(self, x: Any, preprocessing: Any) -> None:
        self._x, self._preprocessing = x, preprocessing

    def __getitem__(self, index: int) -> dict[str, str]:
        if not 0 <= index < len(self._x):
            raise KeyError(index)
        row: dict[str, str] = self._preprocessing.decode(self._x[index : index + 1])[0]
        return row

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._x)))

    def __len__(self) -> int:
        return len(self._x)


def _outcome(scores: dict[str, Any]) -> str:
    shown = [score for score in ("error", "rmse", "nll") if scores.get(score) is not None]
    numbers = [f"{SCORES[score].label} {SCORES[score].text(scores[score])}" for score in shown]
    return ", ".join([*numbers, f"{scores['train_seconds']:.1f} s"])


def _tell_of_rare_classes(data: datasets.Data) -> None:
    """A note where there are too few test rows of a class for the scores to say anything of it."""
    names = data.preprocessing.classes
    counts = [] if names is None else torch.bincount(data.test[1].flatten(), minlength=len(names)).tolist()
    rare = [f"{name!r} ({count})" for name, count in zip(names or (), counts, strict=False) if count < RARE]
    if rare:
        more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
        warnings.warn(
            f"There are fewer than {RARE} test rows of {', '.join(rare[:5])}{more}: the scores say little of how well "
            "these are told from the others.",
            stacklevel=2,
        )
