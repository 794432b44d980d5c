"""What is trained for the tables of Bayes by Hypernet, at every size and under both protocols.

published   as in the authors' code: Adam with ε = 1e-5 at a constant 0.001 (BbH RMSProp at 0.0001) in batches of
            100, the prior N(0, 1) (MNF N(0, e)); MAP and MC-dropout have a decay of 1 / N in the gradient. BbH has the
            layer-wise generators without centre and jitter, the nearest-neighbour divergence of 5 draws of which one
            meets the data. The divergence of BbH and MNF has no weight for the first 5 of 100 epochs (CIFAR5: 20 of
            200), which then rises over 15. BbB starts at log σ² = −9 (CIFAR5: −30). MC-dropout drops half after each
            hidden layer, the ensemble trains on FGSM images with ε = 0.01 too. MNF has no divergence of convolutions,
            which the code never adds.
fair        the library's defaults for every method, and the same optimiser, epochs, batches and draws.
other       those that draw weights, as they are by default, with a tenth of the divergence; MNF as published, but with
            all of its divergence, as in its own paper. In table 3 BbH with a prior that follows the fan-in, as those of
            BbB, MNF and LIVI do (its own, N(0, 3²), is wide for a layer of 800 inputs), and BbH with generators whose
            five draws each meet a part of the batch, and a rate that falls: with noise that all tensors share, with
            noise of their own, and with wider generators too.

At size `small` the divergence of the published protocol is divided by the published number of images, so that it has
its published weight beside the likelihood of one, and where it rises that is of the first 20 epochs.

What differs from the code: at size `small`, where steps are few, all have AdamW. Generators start at the scale of the
fan-in (TensorFlow's start is 25 times too small). The size of the noise is not published: it is 8. MNF's σ are not
clipped. BatchNorm does not see the test images: functions that are drawn have the
statistics of training images, measured for each of them.
"""

import math
from dataclasses import replace
from typing import Any

from posterity.papers.cells import Cell
from posterity.papers.reproduction import Bench

METHODS = {
    "MAP": "map",
    "ensemble": "ensemble",
    "BbB": "bbb",
    "MC-dropout": "dropout",
    "MNF": "mnf",
    "BbH": "bbh",
    "iBNN": "ibnn",
    "LIVI": "livi",
}
TENTH, WHOLE = "a tenth of the divergence", "as published, with all of its divergence"
#: What is set in other ways in tables 3 and 4, beside the two protocols: method, what is changed, the cell's ending.
OTHER = {
    "mnist": (
        ("BbB", TENTH, "bbb"),
        ("MNF", TENTH, "mnf"),
        ("BbH", TENTH, "bbh-tenth"),
        ("BbH", "a prior by fan-in", "bbh-fan-in"),
        ("BbH", "every draw meets the data, shared noise", "bbh-shared"),
        ("BbH", "every draw meets the data, own noise", "bbh-own"),
        ("BbH", "every draw meets the data, own noise, wider", "bbh-wide"),
        ("LIVI", TENTH, "livi"),
        ("MNF", WHOLE, "mnf-whole"),
    ),
    "cifar5": (
        ("BbB", TENTH, "bbb-tenth"),
        ("MNF", TENTH, "mnf-tenth"),
        ("BbH", TENTH, "bbh-tenth"),
        ("LIVI", TENTH, "livi-tenth"),
        ("MNF", WHOLE, "mnf-whole"),
    ),
}
#: Those that the slides compare.
SLIDES = tuple(METHODS)[:6]
#: The hypernet's successor, beside hypernets that are set in other ways than by default.
SUCCESSOR = "LIVI, by default"
PROTOCOLS = {"published": "as published", "fair": "with the library's defaults"}
LAYOUTS = {"single": "single", "sliced": "sliced", "layer-wise": "tensor"}
#: Hidden layers of the layer-wise generators: the published ones make 222 million parameters.
HIDDEN = {"smoke": [8, 8, 4], "small": [64, 256, 16], "full": [64, 256, 512]}
#: Hidden layers with which the three kinds of generators have about equally many parameters: 2.2 million, or 390,000
#: for the LeNet of the small size.
EQUAL = {
    "smoke": {"single": [8, 8, 4], "sliced": [8, 8, 4], "layer-wise": [8, 8, 4]},
    "small": {"single": [64, 256, 350], "sliced": [64, 128, 128], "layer-wise": [32, 64, 8]},
    "full": {"single": [64, 256, 600], "sliced": [64, 256, 450], "layer-wise": [64, 64, 4]},
}
#: Weights that the single generator makes at a time: 130 times 3,316 are LeNet's 431,080.
CHUNK = 3_316
#: Members of the published ensemble, which are slow to train on FGSM images.
MEMBERS = {"smoke": 2, "small": 3, "full": 10}
#: Only these are drawn in a network with BatchNorm, whose scales and shifts are points.
DRAWN = ["*conv*", "linear"]
N = {"mnist": 55_000, "cifar5": 25_000}

#: Names of cells and the cells, by what a table calls them.
Named = dict[str, tuple[str, Cell]]


def methods(bench: Bench, place: str, protocol: str) -> list[str]:
    """Those that are trained."""
    if bench.size != "full" and place == "cifar5":
        return ["MAP", "BbB", "MC-dropout", "BbH"] if protocol == "published" else ["MAP", "BbB", "BbH", "iBNN", "LIVI"]
    return list(SLIDES if protocol == "published" else METHODS)


def contenders(bench: Bench, place: str, protocol: str) -> Named:
    """What a table holds, by method."""
    found = {m: (name(place, protocol, m), cell(bench, place, protocol, m)) for m in methods(bench, place, protocol)}
    if protocol == "published" and "MNF" in found:
        found["MNF"] = forgetful(bench, place)
    return found


def compared(bench: Bench, place: str, protocol: str) -> Named:
    """What a table shows: its contenders, and LIVI where it is none of them."""
    cells = contenders(bench, place, protocol)
    return cells if "LIVI" in cells else cells | {SUCCESSOR: contenders(bench, place, "fair")["LIVI"]}


def recorded(bench: Bench, cells: Named) -> dict[str, list[dict[str, Any]]]:
    """The records of each, those that there are."""
    found = {key: made.records(bench, name) for key, (name, made) in cells.items()}
    return {key: records for key, records in found.items() if records}


def name(place: str, protocol: str, method: str) -> str:
    """Of the cell."""
    return f"bbh-{place}-{protocol}-{METHODS[method]}"


def cell(bench: Bench, place: str, protocol: str, method: str) -> Cell:
    """A network of table 3 (MNIST) or 4 (CIFAR5)."""
    short, cifar = METHODS[method], place == "cifar5"
    epochs = bench.pick(smoke=1, small=8 if cifar else 6, full=200 if cifar else 100)
    fit: dict[str, Any] = {"epochs": epochs, "batch_size": 100}
    posterior: dict[str, Any] = {}
    dropout = 0.0
    if protocol == "published":
        posterior, dropout = _published(bench, place, short)
        decay = 1 / N[place] if short in ("map", "dropout") else 0.0
        fit |= {"lr": 1e-3, "schedule": "constant", "weight_decay": decay, "beta": 1.0}
        if bench.size == "small" and short in ("bbb", "mnf", "bbh"):
            fit |= {"size": N[place]}  # the divergence has the weight that it has in the published setting
        if short in ("bbh", "mnf"):
            fit |= {"beta": "bbh first 20" if bench.size == "small" else f"bbh {place.rstrip('5')}"}
        if short == "bbh":
            fit |= {"lr": bench.pick(smoke=1e-3, small=1e-3, full=1e-4)}
        if bench.size != "small":
            fit |= {"optimizer": "rmsprop 1e-5" if short == "bbh" else "adam 1e-5"}
    if cifar and short in ("bbb", "mnf", "bbh", "livi"):
        posterior["layers"] = DRAWN
    draws = None if short in ("map", "ensemble") else bench.pick(smoke=4, small=20, full=100)
    measured = bench.pick(smoke=50, small=1_000, full=2_000) if cifar and short not in ("map", "ensemble") else 0
    return _sized(bench, place, dropout, method=short, posterior=posterior, fit=fit, draws=draws, measured=measured)


def others(bench: Bench, place: str) -> Named:
    """The cells of `OTHER` that are trained: those of methods that are trained by default too."""
    rows = [row for row in OTHER[place] if row[0] in methods(bench, place, "fair")]
    made = {f"{method}, {words}": other(bench, place, method, ending) for method, words, ending in rows}
    return made | {SUCCESSOR: contenders(bench, place, "fair")["LIVI"]}


def forgetful(bench: Bench, place: str) -> tuple[str, Cell]:
    """The name and the cell of MNF as the authors' code has it."""
    made = cell(bench, place, "published", "MNF")
    posterior = made.posterior | {"forgotten": "*conv*"}
    return f"bbh-{place}-other-forgetful-mnf", replace(made, method="forgetful-mnf", posterior=posterior)


def other(bench: Bench, place: str, method: str, ending: str) -> tuple[str, Cell]:
    """The name and the cell of a row of `OTHER`."""
    name = f"bbh-{place}-other-{ending}"
    if ending == "mnf-whole":
        return f"bbh-{place}-published-mnf", cell(bench, place, "published", method)
    fair = method != "BbH" or ending in ("bbh-tenth", "bbh-fan-in")
    made = cell(bench, place, "fair" if fair else "published", method)
    posterior, fit = dict(made.posterior), made.fit | {"beta": "a tenth"}
    if ending == "bbh-fan-in":
        posterior, fit = posterior | {"prior_std": None}, made.fit
    elif not fair:
        posterior |= {"samples": 5, "slice_batch": True, "shared": ending == "bbh-shared"}
        narrow = bench.pick(smoke=[8, 8, 4], small=HIDDEN["small"], full=[64, 256, 64])
        posterior["hidden"] = [*narrow[:2], 4 * narrow[2]] if ending == "bbh-wide" else narrow
        fit = made.fit | {
            "optimizer": "adam",
            "schedule": "cosine",
            "lr": bench.pick(smoke=1e-3, small=1e-3, full=3e-4),
        }
    return name, replace(made, posterior=posterior, fit=fit)


def layout(bench: Bench, kind: str, equal: bool) -> tuple[str, Cell]:
    """The name and the cell of one kind of generator; with `equal` those of equal size.

    At size `small` they make the weights of the iBNN paper's LeNet, a tenth as many: a single generator of all of
    LeNet-Caffe learns nothing in minutes. With 5,000 images there are then as many weights an image as published.
    """
    made = cell(bench, "mnist", "published", "BbH")
    if kind == "layer-wise" and not equal and bench.size != "small":
        return name("mnist", "published", "BbH"), made
    published = bench.pick(smoke=[8, 8, 4], small=[64, 256, 512], full=HIDDEN["full"])
    if bench.size == "small":
        fit = {key: value for key, value in made.fit.items() if key != "size"} | {"epochs": 20}
        made = replace(made, network={"name": "lenet", "arguments": {}}, fit=fit, attacked=0, weighed=0)
        published = [64, 256, 64] if kind == "layer-wise" else published
    made.posterior.update({"layout": LAYOUTS[kind], "hidden": EQUAL[bench.size][kind] if equal else published})
    if kind == "single" and bench.size == "full":
        made.posterior["chunk"] = CHUNK
    return f"bbh-mnist-{kind}{'-equal' if equal else ''}", made


def bound(bench: Bench, kind: str) -> tuple[str, Cell]:
    """The name and the cell of one kind of generator by the library's defaults; the kind "chunked" is one of them."""
    made, beside = cell(bench, "mnist", "fair", "BbH"), layout(bench, "sliced", True)[1]
    if kind == "chunked" and made.network == beside.network:
        return name("mnist", "fair", "BbH"), made
    posterior: dict[str, Any] = {}
    if kind != "chunked":
        posterior = {"layout": LAYOUTS[kind], "hidden": EQUAL[bench.size][kind]}
        posterior |= {"chunk": CHUNK} if kind == "single" and bench.size == "full" else {}
    fit = made.fit | {"epochs": beside.fit["epochs"]}
    made = replace(made, network=beside.network, fit=fit, posterior=posterior, attacked=0, weighed=0)
    return f"bbh-mnist-{kind}-bound", made


def livi(bench: Bench) -> tuple[str, Cell]:
    """The name and the cell of LIVI beside the generators, with the network and the epochs that these have."""
    made, beside = cell(bench, "mnist", "fair", "LIVI"), layout(bench, "sliced", False)[1]
    if made.network == beside.network:
        return name("mnist", "fair", "LIVI"), made
    fit = made.fit | {"epochs": beside.fit["epochs"]}
    return "bbh-mnist-livi", replace(made, network=beside.network, fit=fit, attacked=0, weighed=0)


def one_number(bench: Bench) -> tuple[str, Cell]:
    """The name and the cell of the single generator whose noise is one number, the default of the authors' code."""
    made = layout(bench, "single", False)[1]
    return "bbh-mnist-single-noise-1", replace(made, posterior=made.posterior | {"noise": 1})


def _published(bench: Bench, place: str, short: str) -> tuple[dict[str, Any], float]:
    """Arguments of the method, and the dropout of the network."""
    cifar = place == "cifar5"
    of: dict[str, dict[str, Any]] = {
        "ensemble": {"members": min(MEMBERS[bench.size], 5 if cifar else 10), "adversarial": 0.01},
        "bbb": {
            "prior_std": 1.0,
            "init_std": math.exp(-15 if cifar else -4.5),
            "parametrisation": "log_variance",
            "estimator": "weights",
        },
        "mnf": {
            "r": "paper",
            "prior_std": math.exp(0.5),
            "init_std": math.exp(-9.5),
            "init_noise": math.sqrt(0.1),
        },
        "bbh": {
            "layout": "tensor",
            "divergence": "nearest",
            "neighbours": 5,
            "centre": False,
            "jitter": 0.0,
            "prior_std": 1.0,
            "hidden": HIDDEN[bench.size],
        },
    }
    if short == "dropout" and bench.size == "smoke" and not cifar:
        return {"rate": 0.5}, 0.0  # that LeNet has none of its own
    return dict(of.get(short, {})), 0.5 if short == "dropout" else 0.0


def _sized(bench: Bench, place: str, dropout: float, **options: Any) -> Cell:
    """A cell at the size of the bench: images in [0, 1], those of CIFAR5 in crops, each standardised."""
    if place == "mnist":
        caffe = {"name": "lenet-caffe", "arguments": {"in_channels": 1, "classes": 10, "dropout": dropout}}
        network = {"name": "lenet", "arguments": {}} if bench.size == "smoke" else caffe
        sizes = bench.pick(
            smoke={"images": 100, "tested": 50, "outside": 50, "attacked": 10, "weighed": 10, "enlarge": 4, "crop": 28},
            small={"images": 5_000, "tested": 1_000, "outside": 1_000, "attacked": 50, "weighed": 100},
            full={"images": N[place], "outside": 10_000, "attacked": 100, "weighed": 100},
        )
    else:
        arguments = {"depth": bench.pick(smoke=8, small=14, full=32), "dropout": dropout}
        arguments |= {"classes": 10, "in_channels": 1} if bench.size == "smoke" else {"classes": 5}
        network = {"name": "preact-resnet", "arguments": arguments}
        sizes = bench.pick(
            smoke={"images": 100, "tested": 50, "outside": 50, "enlarge": 4, "crops": 24},
            small={"images": 2_000, "tested": 1_000, "outside": 1_000, "crops": 24},
            full={"outside": 5_000, "crops": 24},
        )
    data = "digits" if bench.size == "smoke" else place
    return Cell(data, network, augment=False, standard="pixels", gpu="float32", **sizes, **options)
