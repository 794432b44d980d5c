"""One trained image classifier of a table: data, network, method and recipe in, scores out."""

from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.data import DataLoader

import posterity
from posterity import datasets, evaluation, networks
from posterity.augmentation import CropFlip
from posterity.datasets import files
from posterity.datasets.data import split
from posterity.evaluation import corruptions
from posterity.papers.forgetful import ForgetfulMNF
from posterity.papers.kept import kept, kept_rates
from posterity.papers.outliers import Crops, outlier_scores, standardised, under_both_attacks, weight_summary
from posterity.papers.reproduction import Bench
from posterity.prediction import PARTS

#: Mean and standard deviation of the channels, as the paper's code takes them, whatever the data.
STANDARDS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "pixels": ((0.0,), (1.0,)),
}
#: Of the posterior's rate. Table 7: from .2 to .05 over 4 of 15 epochs, after the sixth.
SCHEDULES = {"table 7": lambda t: 1 - 0.75 * min(max(15 * t - 6, 0.0) / 4, 1.0)}
#: Of the divergence's weight in the Bayes by Hypernet paper: 0 for 5 of 100 epochs (20 of 200), then a ramp over 15;
#: and the first 20 of the 100, for those who train no longer. And a tenth of the usual one.
BETAS = {
    "bbh first 20": lambda t: min(max(20 * t - 5, 0.0) / 15, 1.0),
    "bbh mnist": lambda t: min(max(100 * t - 5, 0.0) / 15, 1.0),
    "bbh cifar": lambda t: min(max(200 * t - 20, 0.0) / 15, 1.0),
    "a tenth": lambda t: 0.1 * min(1.5 * t, 1.0),
}
#: Those of the Bayes by Hypernet paper, in whose TensorFlow RMSProp ε = 1e-5 stands below the root.
OPTIMIZERS = {
    "adam 1e-5": lambda groups: torch.optim.Adam(groups, eps=1e-5),
    "rmsprop 1e-5": lambda groups: torch.optim.RMSprop(groups, alpha=0.9, eps=1e-5**0.5),
}
#: How a network is trained on a GPU.
ON_GPU: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16", "compile": True, "graph": True},
    "float32": {"graph": True},
    "float32, compiled": {"compile": True, "graph": True},
}
#: By short name; a further one is of the papers alone.
METHODS: dict[str, Any] = posterity.methods() | {"forgetful-mnf": ForgetfulMNF}


@dataclass(frozen=True)
class Cell:
    """What a trained network of a table depends on, besides the seed; all of it plain values.

    Args:
        data: a built-in name.
        network: a network's recipe, `{"name": …, "arguments": …}`.
        method: a short name of `METHODS`.
        posterior: arguments of the method.
        fit: arguments of `fit`.
        draws: of the prediction; None for the method's own number.
        standard: a name of `STANDARDS`, or None for the data's own mean and deviation.
        augment: whether images are shifted and mirrored.
        images, tested: how many of the training and test images are used, the first ones; None for all.
        held_out: score on a tenth of the training images, which are not trained on, and leave the test images alone.
        enlarge: repeat every pixel so many times each way.
        crop: then keep so many pixels each way, those in the middle; None for all.
        start: the file of trained weights that the network starts from, `pretrained/NAME` below a data folder.
        disturbed: images on which uncertainty under noise is measured too (figure 8).
        outside: images from outside the data that are told from the test images, the first ones.
        attacked: test images that are attacked, the first ones.
        weighed: draws of the weights that are summarised, where the method draws weights.
        crops: in training, random squares of so many pixels, each standardised; the middle ones in tests.
        measured: training images on which the batch statistics of each drawn function are measured; 0 for none.
        gpu: a name of `ON_GPU`.
    """

    data: str
    network: dict[str, Any]
    method: str
    posterior: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)
    draws: int | None = None
    standard: str | None = None
    augment: bool = True
    images: int | None = None
    tested: int | None = None
    held_out: bool = False
    enlarge: int = 1
    crop: int | None = None
    start: str | None = None
    disturbed: int = 0
    outside: int = 0
    attacked: int = 0
    weighed: int = 0
    crops: int = 0
    measured: int = 0
    gpu: str = "bf16"

    def records(self, bench: Bench, name: str) -> list[dict[str, Any]]:
        """The cell's records, one for each seed."""
        return bench.cell(name, self.settings(), lambda seed, checkpoint: self.run(bench, seed, checkpoint))

    def settings(self) -> dict[str, Any]:
        """What differs from the defaults."""
        usual = {field.name: field.default for field in fields(self)}
        return {key: value for key, value in asdict(self).items() if value != usual[key]}

    def run(self, bench: Bench, seed: int, checkpoint: Path) -> dict[str, Any]:
        """Train and score once."""
        train, test, black = self.parts(bench)
        beyond = self.beyond(bench) if self.outside else None
        cuda = bench.device != "cpu" and torch.cuda.is_available()
        how = ON_GPU[self.gpu] if cuda else {}
        fit = dict(self.fit)
        if isinstance(train, DataLoader):
            del fit["batch_size"]
        if fit.get("schedule_posterior") in SCHEDULES:
            fit["schedule_posterior"] = SCHEDULES[fit["schedule_posterior"]]
        if isinstance(fit.get("beta"), str):
            fit["beta"] = BETAS.get(fit["beta"], fit["beta"])
        if "optimizer" in fit:
            fit["optimizer"] = OPTIMIZERS.get(fit["optimizer"], fit["optimizer"])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = networks.rebuild(self.network)
        found: dict[str, Any] = {"precision": self.gpu if cuda else "float32"}
        if self.start is not None:
            network.load_state_dict(trained(self.start, bench), strict=False)
            network = network.to("cuda" if cuda else "cpu")
            found["start"] = self._scored(posterity.MAP(network), test, seed)
        build: Any = METHODS[self.method]
        posterior = build(network, seed=seed, **kept(self.method, self.posterior))
        history = posterity.fit(
            posterior,
            train,
            seed=seed,
            device=bench.device,
            checkpoint=checkpoint,
            checkpoint_every=120.0,
            augment=Crops(self.crops) if self.crops else CropFlip(4, fill=black) if self.augment else None,
            progress=bench.progress,
            **how,
            **kept_rates(build, fit),
        )
        size = sum(p.numel() for p in posterior.parameters() if p.requires_grad)
        found |= {"train_seconds": history.seconds, "parameters": size, "tested": len(test[1])}
        drawn = posterity.Normalised(posterior, self.seen(bench)) if self.measured else posterior
        found |= self._scored(drawn, test, seed, beyond) | self._under_attack(drawn, test, seed)
        if self.weighed:
            found["weights"] = weight_summary(posterior, self.weighed, seed)
        if self.method == "dropout":  # the same network without dropout is the paper's row "SGD"
            found["undisturbed"] = self._scored(posterity.MAP(network), test, seed)
        every, columns = -(-len(history) // 100), ("epoch", "nll", "divergence", "seconds")
        return found | {"history": {key: history.column(key)[::every] for key in columns}}

    def parts(self, bench: Bench) -> tuple[Any, tuple[Any, Tensor], list[float]]:
        """Training data, test inputs and answers as the network takes them, and what black is there."""
        loaded = _loaded(self.data, bench.data_dir)
        pre: Any = loaded.preprocessing
        _, (mean, std) = self._standards(pre)
        x, y = loaded.train[0][: self.images], loaded.train[1][: self.images]
        train, test = (x, y), (loaded.test[0][: self.tested], loaded.test[1][: self.tested])
        if self.held_out:
            rest, held = split(len(y), 0, labels=y.numpy(), part=0.1)
            train, test = (x[rest], y[rest]), (x[held], y[held])
        ready = self._inputs(train[0], pre, train=True), self._inputs(test[0], pre)
        return (ready[0], train[1]), (ready[1], test[1]), (-mean / std).flatten().tolist()

    def seen(self, bench: Bench) -> Tensor:
        """Some of the training images, as the network takes them in tests."""
        loaded = _loaded(self.data, bench.data_dir)
        return self._inputs(loaded.train[0][: self.measured], loaded.preprocessing)

    def beyond(self, bench: Bench) -> Tensor:
        """The images from outside the data, as the network takes them."""
        loaded = _loaded(self.data, bench.data_dir)
        if loaded.outside is None:  # MNIST's is notMNIST, which is downloaded here, or it is said what to do
            datasets.load("notmnist", data_dir=bench.data_dir)
            _loaded.cache_clear()
            loaded = _loaded(self.data, bench.data_dir)
        assert loaded.outside is not None
        return self._inputs(loaded.outside[: self.outside], loaded.preprocessing)

    def _standards(self, pre: Any) -> Any:
        """Mean and deviation of the channels as the data come and as the network takes them, `[1, channels, 1, 1]`."""
        chosen = (pre.mean, pre.std) if self.standard is None else STANDARDS[self.standard]
        return tuple(tuple(torch.tensor(v).view(1, -1, 1, 1) for v in pair) for pair in ((pre.mean, pre.std), chosen))

    def _inputs(self, x: Tensor, pre: Any, train: bool = False) -> Tensor:
        own, (mean, std) = self._standards(pre)
        x = x if self.standard is None else (x * own[1] + own[0] - mean) / std
        x = x.repeat_interleave(self.enlarge, 2).repeat_interleave(self.enlarge, 3) if self.enlarge > 1 else x
        kept = self.crop if train or not self.crops else self.crops
        edge = 0 if kept is None else (x.shape[2] - kept) // 2
        x = x[:, :, edge : edge + kept, edge : edge + kept].contiguous() if kept else x
        return standardised(x) if self.crops and not train else x

    def _scored(
        self, posterior: Any, test: tuple[Any, Tensor], seed: int, beyond: Tensor | None = None
    ) -> dict[str, Any]:
        x, y = test
        with self._precision(posterior):
            prediction = self._predicted(posterior, x, seed)
            bins = evaluation.reliability(prediction.probs, y)
            found: dict[str, Any] = {
                "scores": evaluation.score(prediction, y)
                | {part: float(getattr(prediction, part).mean()) for part in PARTS},
                "reliability": {key: value.tolist() for key, value in bins._asdict().items()},
            }
            if beyond is not None:
                found["outliers"] = outlier_scores(prediction, self._predicted(posterior, beyond, seed), y)
            if self.disturbed:
                found["noise"] = self._noise(posterior, x[: self.disturbed], y[: self.disturbed], seed)
        return found

    def _under_attack(self, posterior: Any, test: tuple[Any, Tensor], seed: int) -> dict[str, Any]:
        """What attacks do, where they are asked for."""
        if not self.attacked:
            return {}
        x, y = test[0][: self.attacked], test[1][: self.attacked]
        with self._precision(posterior):
            return {"attacks": under_both_attacks(posterior, x, y, self.draws, seed)}

    def _precision(self, posterior: Any) -> Any:
        half = next(posterior.parameters()).device.type == "cuda" and self.gpu == "bf16"
        return torch.autocast("cuda", dtype=torch.bfloat16, enabled=half)

    def _predicted(self, posterior: Any, x: Any, seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        return posterity.predict(posterior, x, self.draws, generator, batch_size=5_000).to("cpu")

    def _noise(self, posterior: Any, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
        kinds: dict[str, tuple[Any, tuple[float, ...]]] = {
            "Gaussian": (corruptions.gaussian_mixing, corruptions.GAUSSIAN_LEVELS),
            "salt and pepper": (corruptions.salt_and_pepper_mixing, corruptions.SALT_AND_PEPPER_LEVELS),
        }
        return {
            name: corruptions.under(
                posterior, x, y, corruption, levels, samples=self.draws, generator=torch.Generator().manual_seed(seed)
            )
            for name, (corruption, levels) in kinds.items()
        }


@lru_cache(maxsize=1)
def _loaded(name: str, data_dir: Path | None) -> datasets.Data:
    """The data, which cells that follow each other share."""
    return datasets.load(name, data_dir=data_dir)


def trained(name: str, bench: Bench) -> dict[str, Tensor]:
    """Trained weights from `pretrained/NAME` below a data folder, or from the folder of results."""
    made = bench.folder / name
    if not made.is_file():
        made = files.get(files.Collection("pretrained weights", "pretrained", (name,)), bench.data_dir) / name
    return load_file(made)
