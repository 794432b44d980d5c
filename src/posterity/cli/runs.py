"""One run: one method, one seed. Data in, a trained model and a record of plain numbers out."""

import hashlib
import inspect
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import posterity
from posterity import datasets, evaluation
from posterity.cli.folder import read
from posterity.errors import Error
from posterity.evaluation.card import card_of
from posterity.evaluation.differences import Design
from posterity.evaluation.summary import numbers
from posterity.history import History
from posterity.outputs import outputs
from posterity.streams import stream

ENERGY_DRAWS = 10
POINTS = 100
"""Of a training curve that a report shows."""
SMALL = 200_000
"""Parameters of a network that one thread trains faster than several, which would wait for each other."""
GIVEN = {
    "network",
    "posterior",
    "data",
    "likelihood",
    "epochs",
    "batch_size",
    "seed",
    "generator",
    "device",
    "graph",
    "validation",
    "checkpoint",
    "progress",
}
"""Arguments that a run has from elsewhere than from `tune`."""
LARGEST = 1e6
"""Of any number in the settings that `tune` found."""
HASHED = 2**28
"""Files up to this many bytes are known by their content, larger ones by size and time."""


@dataclass(frozen=True)
class Settings:
    """What the runs of one command share; None leaves a choice to the library."""

    data: str
    target: str | None = None
    task: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    samples: int | str | None = None
    data_dir: Path | None = field(default=None)
    device: str = "auto"
    tuned: dict[str, Any] | None = None
    """What `tune` found: the method and its arguments, and those of `fit`."""
    hold_out: bool = True
    """Whether some of the training rows choose the epoch that is kept."""
    varying_noise: bool = False
    """Whether the network says how noisy each row is, where numbers are predicted."""

    def __post_init__(self) -> None:
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise Error(f"The learning rate --lr must be a number above 0, not {self.lr}.")

    def load(self, seed: int) -> Any:
        """The data, split by that seed."""
        data = datasets.load(self.data, target=self.target, task=self.task, seed=seed, data_dir=self.data_dir)
        if self.varying_noise and data.task == "classification":
            raise Error("The target is a class, which has no noise to learn: leave --varying-noise out.")
        return data

    def arguments(self) -> dict[str, Any]:
        """All that a run's result depends on besides method and seed, as JSON values."""
        shared = asdict(self)
        del shared["data_dir"], shared["device"]
        if shared["tuned"] is None:
            del shared["tuned"]
        return shared | {"content": fingerprint(Path(self.data)), "version": posterity.__version__}


def fingerprint(path: Path) -> str | None:
    """What changes when a file or a folder does; None where there is neither."""
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
    else:
        return None
    digest = hashlib.sha256()
    for file in files:
        status = file.stat()
        digest.update(f"{file.relative_to(path)}\0{status.st_size}\0".encode(errors="surrogateescape"))
        if path.is_file() and status.st_size <= HASHED:
            digest.update(file.read_bytes())
        else:
            digest.update(str(status.st_mtime_ns).encode())
    return digest.hexdigest()


def tuned(path: Path | None) -> dict[str, Any] | None:
    """The settings in a file that `tune` wrote."""
    if path is None:
        return None
    found = read(path)
    parts = [] if found is None else [found.get(part) for part in ("posterior", "fit")]
    plain = all(isinstance(p, dict) and all(isinstance(v, int | float) for v in p.values()) for p in parts)
    build = posterity.methods().get(str(found["method"])) if found and "method" in found else None
    if not found or not plain or build is None:
        raise Error(f"{path} holds no settings: name the best.json of  posterity tune.")
    for function, part in ((build, "posterior"), (posterity.fit, "fit")):
        known = inspect.signature(function).parameters.keys() - GIVEN
        if wrong := [key for key, value in found[part].items() if key not in known or not abs(value) <= LARGEST]:
            raise Error(f"{path} holds a setting {wrong[0][:50]!r} that {part} cannot have.")
    return {key: found[key] for key in ("method", "posterior", "fit")}


def likelihood(data: Any, varying_noise: bool = False) -> Any:
    """Of the targets, given what the network says."""
    if data.task == "classification":
        return posterity.Categorical()
    return posterity.Gaussian(heteroscedastic=varying_noise)


def network(data: Any, seed: int, varying_noise: bool = False) -> nn.Module:
    """A network that fits the data: LeNet for 28 × 28 grey images, a small one for others, an MLP for tables."""
    x, outputs = data.train[0], data.outputs * (1 + varying_noise)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if x.dim() != 4 or min(x.shape[2:]) < 4:
            return posterity.networks.create("mlp", inputs=math.prod(x.shape[1:]), outputs=outputs)
        if tuple(x.shape[1:]) == (1, 28, 28):
            return posterity.networks.create("lenet", classes=outputs)
        channels, *size = x.shape[1:]
        return posterity.networks.create("smallconv", in_channels=channels, classes=outputs, size=list(size))


Stage = Callable[[str], AbstractContextManager[None]]
"""What is entered while something is done that a command tells of, with its name."""


def unseen(_: str, **__: Any) -> AbstractContextManager[None]:
    """A stage of which nothing is told."""
    return nullcontext()


def execute(
    settings: Settings, data: Any, method: str, seed: int, checkpoint: Path, progress: bool, stage: Any = unseen
) -> tuple[Any, dict[str, Any]]:
    """Train one method with one seed, from its checkpoint if there is one, and score it on the test data.

    Args:
        stage: entered with the name of each stage; training shows a bar of its own with `progress`.

    Returns the posterior and the record: `scores` and `summary`.
    """
    build: Any = posterity.methods()[method]
    net = network(data, seed, settings.varying_noise)
    if "OMP_NUM_THREADS" not in os.environ and sum(p.numel() for p in net.parameters()) < SMALL:
        torch.set_num_threads(1)
    tuned = settings.tuned if settings.tuned and settings.tuned["method"] == method else {"posterior": {}, "fit": {}}
    posterior = build(net, seed=seed, **tuned["posterior"])
    with stage("training", own_bar=progress):
        history = posterity.fit(
            posterior,
            data.train,
            likelihood=likelihood(data, settings.varying_noise),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            seed=seed,
            device=settings.device,
            graph=True,  # these networks do the same in every step
            validation="auto" if settings.hold_out else None,
            checkpoint=checkpoint,
            progress=progress,
            **tuned["fit"] | ({} if settings.lr is None else {"lr": settings.lr}),
        )
    posterior.preprocessing = data.preprocessing
    x, y = data.test
    scores, summary = assess(posterior, x, y, data.outside, settings.samples, seed, stage)
    scores["train_seconds"] = history.seconds
    tested = hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in data.test)).hexdigest()
    summary["rows"] = {"train": len(data.train[1]), "test": len(y), "tested": tested}
    summary["history"] = _curves(history)
    return posterior, {"scores": scores, "summary": summary}


def _curves(history: History) -> dict[str, list[float]]:
    """What the report draws of a history: `validation` has epochs of its own, for it is not measured in each."""
    every = -(-len(history) // POINTS)
    curves = {key: history.column(key)[::every] for key in ("epoch", "nll", "divergence")}
    measured = [record for record in history if "validation" in record]
    every = max(1, -(-len(measured) // POINTS))
    curves |= {
        "validation_epoch": [record["epoch"] for record in measured][::every],
        "validation": [record["validation"] for record in measured][::every],
    }
    if history.best is not None:
        curves["kept"] = [history.best, history[history.best - 1]["validation"]]
    return curves


def assess(
    posterior: Any,
    x: Tensor,
    y: Tensor,
    outside: Tensor | None,
    samples: int | str | None,
    seed: int,
    stage: Stage = unseen,
) -> tuple[dict[str, float], dict[str, Any]]:
    """All that is said of a trained posterior: its scores, and the numbers behind a report's figures.

    Args:
        posterior: with its preprocessing.
        x: the test inputs, and y: their targets, as the network takes them.
        outside: inputs unlike any it was trained on.
        samples: functions to draw; by default what suits the method.
        seed: of the draws.
        stage: entered with the name of each stage.
    """
    with stage("predicting the test rows"):
        started = time.perf_counter()
        prediction, truth = judged(posterior, x, y, posterior.preprocessing, samples, seed)
        seconds = time.perf_counter() - started
    if not bool(torch.isfinite(prediction.total).all()):
        raise Error("The predictions are not all finite numbers: train again with a lower learning rate, --lr.")
    elsewhere = logits = None
    if outside is not None:
        with stage("predicting OOD inputs"):
            elsewhere = judged(posterior, outside, None, posterior.preprocessing, samples, seed)[0]
            if posterior.preprocessing.classes:
                logits = _outputs(posterior, x, seed), _outputs(posterior, outside, seed)
    with stage("scoring"):
        summary = evaluation.summarise(prediction, truth, elsewhere, logits)
        rows = evaluation.losses(prediction, truth)
        found = evaluation.evidence(prediction, truth, elsewhere, rows)
    with stage("predicting corrupted inputs"):
        summary["stress"] = _stress(posterior, x, y, seed)
    summary["evidence"] = {score: [numbers(sample) for sample in samples] for score, samples in found.items()}
    scores = card_of(prediction, truth, rows) | {
        "predict_seconds": seconds,
        "epistemic_inside": summary["uncertainty"]["epistemic"],
    }
    if elsewhere is not None:
        scores["epistemic_outside"] = summary["outside"]["epistemic_outside"]
        scores["auroc_outside"] = summary["outside"]["auroc_epistemic"]
        scores["auroc_outside_limit"] = summary["outside"]["auroc_epistemic_limit"]
        detected = summary["outside"]["detection"]["epistemic"]
        scores |= {"aupr_outside": detected["aupr"], "fpr95_outside": detected["fpr95"]}
    if isinstance(posterior, posterity.DeepEnsemble) and "nll_calibrated" in scores:
        with stage("scoring ensembles of fewer members"):
            functions = posterior.draw(posterior.members)
            summary["sizes"] = evaluation.by_size(functions, posterior.likelihood, x, y)
    return scores, summary


def _outputs(posterior: Any, x: Tensor, seed: int) -> Tensor:
    """What a few drawn functions say of x, before it is turned into probabilities: [draws, batch, classes]."""
    functions = posterior.draw(min(ENERGY_DRAWS, posterior.draws), stream(seed, "energy"))
    return outputs(functions, x)


def _stress(posterior: Any, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
    """Curves of robustness, in the target's own units."""
    curves = evaluation.robustness(posterior, x, y, seed=seed)
    std = posterior.preprocessing.target_std if posterior.preprocessing.classes is None else 1.0
    units = {"rmse": std, "total": std**2, "aleatoric": std**2, "epistemic": std**2}
    kept = ("strength", "error", *units)
    return {
        name: [{key: line[key] * units.get(key, 1.0) for key in kept if key in line} for line in curve]
        for name, curve in curves.items()
    }


def judged(
    posterior: Any, x: Tensor, y: Tensor | None, preprocessing: Any, samples: int | str | None, seed: int
) -> tuple[Any, Any]:
    """A prediction and the truth, in the target's own units; the draws are those of the seed."""
    prediction = posterity.predict(posterior, x, samples=samples, seed=seed)
    if evaluation.is_regression(prediction):
        mean, std = preprocessing.target_mean, preprocessing.target_std
        prediction = prediction.rescale(mean, std)
        y = None if y is None else y.double() * torch.as_tensor(std) + torch.as_tensor(mean)
    return prediction, y


def evidence(records: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, dict[str, dict[int, Any]]]:
    """Per method, score and seed, what each row adds to the score, as arrays."""
    found: dict[str, dict[str, dict[int, Any]]] = {method: {} for method in records}
    for method, runs in records.items():
        for run in runs:
            for score, samples in run["summary"].get("evidence", {}).items():
                seeds = found[method].setdefault(score, {})
                seeds[run["arguments"]["seed"]] = [np.array(sample, dtype=float) for sample in samples]
    return found


def design(records: Mapping[str, Sequence[dict[str, Any]]]) -> Design:
    """How the rows of the seeds hang together."""
    rows = [run["summary"].get("rows", {}) for found in records.values() for run in found]
    tested = {row.get("tested") for row in rows}
    overlap = max((row["test"] / row["train"] for row in rows if row), default=1.0)
    return Design(same_rows=len(tested) == 1 and None not in tested, overlap=overlap)


def worth(records: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Add `ensemble_equivalent` to the scores of every run whose seed has an ensemble of the same data."""
    sizes = {r["arguments"]["seed"]: r["summary"].get("sizes") for r in records.get("ensemble", ())}
    for record in (record for found in records.values() for record in found):
        curve, own = sizes.get(record["arguments"]["seed"]), record["scores"].get("nll_calibrated")
        if curve and own is not None and math.isfinite(own):
            record["scores"]["ensemble_equivalent"] = evaluation.ensemble_equivalent(own, curve).number


def mean_and_deviation(records: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Over seeds, each score's mean, and its standard deviation as `<score>_std` (None for one seed)."""
    result: dict[str, float | None] = {}
    for score in records[0]["scores"]:
        values = [record["scores"][score] for record in records if record["scores"].get(score) is not None]
        result[score] = statistics.fmean(values) if values else math.nan
        result[f"{score}_std"] = statistics.stdev(values) if len(values) > 1 else None
    return result
