"""Figures 2 and 3 of the iBNN paper: LeNet on Fashion-MNIST (Trinh, Kaski & Heinonen 2020).

The authors' script for these figures is not public, so the settings are the paper's recipe for VGG-16 on CIFAR-10, its
other network without batch normalisation, with K = 8: means from N(1, 0.75²), prior N(1, 0.3²), the divergence of the
mixture's mean, two samples a datum, SGD with Nesterov momentum and rates 0.05 and 1.2, a ramp of the divergence over
two thirds of the epochs; images are neither shifted nor mirrored.

At size `smoke` the images are scikit-learn's digits, enlarged.
"""

import math
import shutil
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import posterity
from posterity import datasets, evaluation, networks, plots
from posterity.errors import Error
from posterity.methods.ibnn import IBNN
from posterity.papers.reproduction import Bench, Outcome, Table
from posterity.plots.common import legend, panels
from posterity.report.canvas import FAINT, INK, color, described, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPONENTS, DRAWS = 8, 40  # 5 of each component, as the paper takes
ROWS = 10_000
CLASSES_SHOWN = 4
SIDE = 28

Pair = tuple[Tensor, Tensor]


def figure_2(bench: Bench) -> Outcome:
    """The components on the plane of their principal directions, over training loss and test error.

    The paper's directions are those of the weights U diag(μ_k), ours those of the means μ_k themselves, which need no
    weights: the plane is the plane of the components either way.
    """
    record, posterior = trained(bench)
    train, test, _ = images(record["settings"], bench.data_dir)
    rows = min(ROWS, len(test[1]))
    plane = plots.landscape(posterior, *train, test, resolution=3, rows=rows, progress=False)
    numbers = {
        "settings": record["settings"],
        "explained": plane.explained,
        "components": {"loss": plane.own[:-1, 0].tolist(), "error": plane.own[:-1, 1].tolist()},
        "without_noise": dict(zip(("loss", "error"), plane.own[-1].tolist(), strict=True)),
        "average": _measured(posterior.mean(), train, test, rows),
        "mixture": record["scores"],
        "rows": rows,
        **_spread(posterior),
    }
    figure = plots.components(
        posterior,
        *train,
        test,
        resolution=bench.pick(smoke=5, small=21, full=31),
        rows=bench.pick(smoke=50, small=2_000, full=5_000),
        progress=bench.progress,
    )
    return Outcome(numbers, [_components_table(numbers)], component_findings(numbers), figure)


def figure_3(bench: Bench) -> Outcome:
    """The most and the least certain test image of each of the first four classes, and every function's answer."""
    record, posterior = trained(bench)
    _, (x, y), names = images(record["settings"], bench.data_dir)
    functions = posterior.draw(DRAWS, torch.Generator().manual_seed(record["seed"]))
    device = next(posterior.parameters()).device
    with torch.no_grad():
        outputs = torch.cat([functions(part.to(device)).float().cpu() for part in x.split(1_000)], dim=1)
    probs = outputs.softmax(-1)
    mean = probs.mean(0)
    entropy = -torch.special.xlogy(mean, mean).sum(1)
    chosen = {
        kind: [_extreme(entropy, y == label, sign) for label in range(CLASSES_SHOWN)]
        for kind, sign in (("most certain", -1), ("least certain", 1))
    }
    numbers = {
        "settings": record["settings"],
        "inputs": {kind: [_answer(i, probs, entropy, y, names) for i in rows] for kind, rows in chosen.items()},
    }
    return Outcome(
        numbers,
        [_answers_table(numbers["inputs"])],
        answer_findings(numbers["inputs"], len(names)),
        _answers_picture(x, probs, numbers["inputs"], names),
    )


def trained(bench: Bench) -> tuple[dict[str, Any], Any]:
    """The record and the posterior of figures 2 and 3, of the first seed: trained once, then read from the folder."""
    name, settings = f"fashion-lenet-ibnn-{COMPONENTS}", lenet(bench)
    folders = {seed: bench.folder / "models" / f"{name}-{seed}" for seed in bench.seeds}
    for seed, folder in folders.items():
        if not (folder / "config.json").is_file() and not bench.recorded and bench.only in name:
            (bench.folder / "cells" / f"{name}-{seed}.json").unlink(missing_ok=True)
    records = bench.cell(name, settings, _maker(bench, settings, folders))
    for record in records:
        folder = folders[record["seed"]]
        if (folder / "config.json").is_file():
            return record, posterity.load(folder)
    what = "--recorded" if bench.recorded else "--only"
    raise Error(f"The trained network of this figure is not in {bench.folder / 'models'}: run it without {what}.")


def lenet(bench: Bench) -> dict[str, Any]:
    """All that the network of figures 2 and 3 depends on besides the seed."""
    recipe = IBNN.recipe("vgg16-cifar10", COMPONENTS)
    return {
        "data": bench.pick(smoke="digits", small="fashion-mnist", full="fashion-mnist"),
        "images": bench.pick(smoke=200, small=None, full=None),
        "tested": bench.pick(smoke=100, small=None, full=None),
        "posterior": recipe["posterior"] | {"assignment": "authors"},
        "fit": recipe["fit"] | {"epochs": bench.pick(smoke=2, small=15, full=300)},
        "draws": DRAWS,
    }


def images(settings: Mapping[str, Any], data_dir: Path | None) -> tuple[Pair, Pair, list[str]]:
    """Training and test images [n, 1, 28, 28] with their classes, and the names of these."""
    loaded = datasets.load(settings["data"], data_dir=data_dir)

    def part(pair: Any, most: int | None) -> Pair:
        x, y = pair[0][:most], pair[1][:most]
        times = -(-SIDE // x.shape[-1])
        if times > 1:
            x = x.repeat_interleave(times, 2).repeat_interleave(times, 3)
        edge = (x.shape[-1] - SIDE) // 2
        return x[:, :, edge : edge + SIDE, edge : edge + SIDE].contiguous(), y

    return (
        part(loaded.train, settings["images"]),
        part(loaded.test, settings["tested"]),
        list(loaded.preprocessing.classes or []),
    )


def _maker(
    bench: Bench, settings: dict[str, Any], folders: Mapping[int, Path]
) -> Callable[[int, Path], dict[str, Any]]:
    """Trains the network of figures 2 and 3, and keeps it."""

    def make(seed: int, checkpoint: Path) -> dict[str, Any]:
        train, (x, y), _ = images(settings, bench.data_dir)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = networks.LeNet()
        posterior = posterity.IBNN(network, seed=seed, **settings["posterior"])
        history = posterity.fit(
            posterior,
            train,
            seed=seed,
            device=bench.device,
            graph=bench.device != "cpu" and torch.cuda.is_available(),
            checkpoint=checkpoint,
            progress=bench.progress,
            **settings["fit"],
        )
        shutil.rmtree(folders[seed], ignore_errors=True)
        posterity.save(posterior.cpu(), folders[seed])
        prediction = posterity.predict(posterior, x, settings["draws"], torch.Generator().manual_seed(seed))
        return {"train_seconds": history.seconds, "scores": evaluation.score(prediction, y)}

    return make


@torch.no_grad()
def _measured(function: Any, train: Pair, test: Pair, rows: int) -> dict[str, float]:
    """Training loss and test error of one function, on the rows that `plots.landscape` takes."""

    def some(pair: Pair) -> Pair:
        chosen = torch.linspace(0, len(pair[1]) - 1, min(rows, len(pair[1])), dtype=torch.float64).round().long()
        return pair[0][chosen], pair[1][chosen]

    (x, y), (x_test, y_test) = some(train), some(test)
    return {
        "loss": float(torch.nn.functional.cross_entropy(function(x)[0], y)),
        "error": float((function(x_test)[0].argmax(1) != y_test).double().mean()),
    }


def _spread(posterior: Any) -> dict[str, float]:
    """How far components lie from their average, how wide each is, and how far that average is from 1, per node."""
    means, stds = posterior.means.detach().double(), posterior.stds.detach().double()
    return {
        "distance": float((means - means.mean(0)).square().mean().sqrt()),
        "noise": float(stds.square().mean().sqrt()),
        "shift": float((means.mean(0) - 1).square().mean().sqrt()),
    }


def component_findings(numbers: Mapping[str, Any]) -> list[str]:
    """Do the components populate one wide mode, and does their mixture generalise better than one network?"""
    losses, errors = numbers["components"]["loss"], numbers["components"]["error"]
    loss, error = statistics.fmean(losses), statistics.fmean(errors)
    middle, mixture, star = numbers["average"], numbers["mixture"], numbers["without_noise"]
    one = "lie around one mode" if middle["loss"] <= max(losses) else "do not lie around one mode"
    wide = (
        "farther apart than they are wide" if numbers["distance"] > numbers["noise"] else "no farther apart than wide"
    )
    better = "is lower than" if mixture["error"] < error else "is not lower than"
    best = "lower" if mixture["error"] < star["error"] else "not lower"
    return [
        f"The plane holds {numbers['explained']:.0%} of the components' spread, which are {wide}: a node's multiplier "
        f"differs by {numbers['distance']:.2f} between components and varies by {numbers['noise']:.2f} within one.",
        f"The components {one}: their average has a training loss of {middle['loss']:.3f}, they themselves "
        f"{min(losses):.3f} to {max(losses):.3f}.",
        f"The mixture's test error ({mixture['error']:.2%}) {better} that of its components' means ({error:.2%} on "
        f"average, at training loss {loss:.3f}), and {best} than that of the network without noise "
        f"({star['error']:.2%}, at training loss {star['loss']:.3f}), whose multipliers of 1 differ by "
        f"{numbers['shift']:.2f} a node from the components' average.",
    ]


def _components_table(numbers: Mapping[str, Any]) -> Table:
    rows = [
        [f"component {k + 1}", f"{loss:.4f}", f"{100 * error:.2f}"]
        for k, (loss, error) in enumerate(
            zip(numbers["components"]["loss"], numbers["components"]["error"], strict=True)
        )
    ]
    for name, key in (("average of the components", "average"), ("network without noise", "without_noise")):
        rows.append([name, f"{numbers[key]['loss']:.4f}", f"{100 * numbers[key]['error']:.2f}"])
    rows.append([f"mixture, {DRAWS} functions", "–", f"{100 * numbers['mixture']['error']:.2f}"])
    title = f"Components' means as single networks ({numbers['rows']:,} images), and the mixture"
    return Table(title, ["network", "training loss", "test error, %"], rows)


def _extreme(entropy: Tensor, among: Tensor, sign: int) -> int:
    """The index of the highest (sign 1) or lowest (−1) entropy among some."""
    return int(torch.where(among, sign * entropy, -math.inf).argmax())


def _answer(index: int, probs: Tensor, entropy: Tensor, y: Tensor, names: list[str]) -> dict[str, Any]:
    """What the functions say of one input."""
    answers = probs[:, index].argmax(1)
    mean = probs[:, index].mean(0)
    top = int(mean.argmax())
    return {
        "index": index,
        "class": names[int(y[index])],
        "answer": names[top],
        "probability": float(mean[top]),
        "entropy": float(entropy[index]),
        "answers": len(answers.unique()),
        "agreeing": float((answers == top).double().mean()),
    }


def _answers_table(inputs: Mapping[str, list[dict[str, Any]]]) -> Table:
    rows = [
        [
            kind,
            row["class"],
            row["answer"],
            f"{row['probability']:.3f}",
            f"{row['entropy']:.3f}",
            str(row["answers"]),
            f"{row['agreeing']:.0%}",
        ]
        for kind, found in inputs.items()
        for row in found
    ]
    columns = ["test image", "class", "answer", "its probability", "entropy, nats"]
    return Table(
        f"The extremes of the first {CLASSES_SHOWN} classes",
        [*columns, f"different answers of {DRAWS} functions", "functions that agree"],
        rows,
    )


def answer_findings(inputs: Mapping[str, list[dict[str, Any]]], classes: int) -> list[str]:
    """Are the answers diverse where the model is uncertain?"""
    sure, unsure = (inputs[kind] for kind in ("most certain", "least certain"))
    agree = [statistics.fmean(row["agreeing"] for row in rows) for rows in (sure, unsure)]
    different = [statistics.fmean(row["answers"] for row in rows) for rows in (sure, unsure)]
    entropy = [statistics.fmean(row["entropy"] for row in rows) for rows in (sure, unsure)]
    diverse = different[1] > different[0]
    return [
        f"Functions give {'diverse' if diverse else 'no more diverse'} answers where the model is uncertain: on "
        f"average {different[1]:.1f} different ones for the least certain images ({agree[1]:.0%} of the functions "
        f"agree with the mixture), {different[0]:.1f} for the most certain ({agree[0]:.0%} agree).",
        f"The entropy is {entropy[0]:.2g} nats for the most certain and {entropy[1]:.2f} for the least certain, of "
        f"{math.log(classes):.2f} at most.",
    ]


def _answers_picture(
    x: Tensor, probs: Tensor, inputs: Mapping[str, list[dict[str, Any]]], names: list[str]
) -> "Figure":
    """A column for each class: the image, and below it every function's softmax output with their mean."""
    with panels(4, CLASSES_SHOWN, 9.6, 9.2, height_ratios=[1, 0.9] * 2) as (figure, grid):
        for place, (kind, rows) in enumerate(inputs.items()):
            for column, row in enumerate(rows):
                image, bars = grid[2 * place, column], grid[2 * place + 1, column]
                _image(image, x[row["index"], 0], f"{short(row['class'])}, {row['entropy']:.2f} nats")
                _bars(bars, probs[:, row["index"]], names.index(row["class"]), names)
                bars.tick_params(labelleft=not column)
            grid[2 * place, 0].set_ylabel(kind, fontweight="bold")
            grid[2 * place + 1, 0].set_ylabel("probability")
        legend(figure)
    words = [
        f"{kind}: " + ", ".join(f"{r['class']} answered {r['answer']} with {r['probability']:.2f}" for r in rows)
        for kind, rows in inputs.items()
    ]
    return described(
        figure,
        f"The most and the least certain test image of {CLASSES_SHOWN} classes, with the softmax outputs of",
        f"{DRAWS} functions. {'; '.join(words)}.",
    )


def _image(axes: Any, pixels: Tensor, caption: str) -> None:
    axes.imshow(pixels, cmap="gray_r", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, edgecolor=FAINT)
    axes.set_title(caption, fontsize=9, fontweight="normal")


def _bars(axes: Any, probs: Tensor, truth: int, names: list[str]) -> None:
    """Bars of the mean over functions [functions, classes], dots of each."""
    mean = probs.mean(0)
    for index in range(len(names)):
        name = "mean, true class" if index == truth else "mean, other classes"
        axes.bar(index, float(mean[index]), color=color(1 if index == truth else 0), alpha=0.6, label=name)
    shift = torch.linspace(-0.3, 0.3, len(probs))
    for index in range(len(names)):
        dots = {"color": INK, "markersize": 1.8, "alpha": 0.55, "linestyle": "", "label": "one function"}
        axes.plot(index + shift, probs[:, index], marker="o", **dots)
    axes.set_xticks(range(len(names)), [short(name, 11) for name in names], rotation=90, fontsize=8)
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    axes.grid(False, axis="x")
