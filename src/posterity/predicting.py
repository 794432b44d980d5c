"""From a posterior and data to a prediction: data are read, functions drawn, as many at a time as there is room for."""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from posterity import inputs, loading
from posterity.adaptive import Rounds
from posterity.device_checks import assertions_explained
from posterity.errors import Error
from posterity.explaining import explained, sequence_first
from posterity.functions import Functions
from posterity.logits import checked_outputs
from posterity.normalisation import shared_statistics
from posterity.posterior import Posterior, as_generator, checked, count
from posterity.prediction import GaussianPrediction, kind
from posterity.preparing import is_raw, prepared
from posterity.progress import Bar, wanted
from posterity.state import sharing


@torch.no_grad()
@assertions_explained()
def predict(
    posterior: Posterior,
    data: Any,
    samples: int | str | None = None,
    generator: torch.Generator | None = None,
    *,
    seed: int | None = None,
    batch_size: int | None = None,
    tolerance: float = 0.05,
    pairs: bool = False,
    compile: bool = False,
    progress: bool | None = None,
) -> Any:
    """What a posterior says of some rows: the average over `samples` drawn functions, with its uncertainty.

    What comes back is a `Prediction`; which numbers it has beside its uncertainties depends on the likelihood.

    Args:
        posterior: a trained posterior; nothing of it changes.
        data: inputs as a tensor, array, tuple or mapping, or a Dataset or DataLoader (answers in it are left out).
            Rows are on axis 0, so recurrent layers and Transformers need `batch_first=True`, or a module around the
            network whose forward is `network(x.transpose(0, 1))`. A posterior that keeps its
            preprocessing, as those of the command line do, takes an array, a list of rows, a data frame, or the path of
            a table or of images, as they are: the prediction is then in the target's own units. Tensors are taken for
            what its preprocessing makes, and go to the network.
        samples: how many functions; by default what suits the method (one for MAP, 5 per component for IBNN but at
            least 40). With "auto" that is the most, and a row stops at a part of them (a tenth, a fifth, a half) once
            it is settled; `prediction.samples` then says how many each took.
        generator: of the draws; without one, torch's global generator is used.
        seed: in place of a generator: the draws have a stream of their own, unlike that of a constructor or of `fit`
            with the same seed.
        batch_size: rows at a time; by default what suits the machine, or all rows where they interact in the network
            (attention between rows, batch normalisation without running statistics), as those of a graph do.
        tolerance: with "auto", a row is settled when the 95 % intervals of every class's probability and of its total
            and epistemic uncertainty (nats) are within ± tolerance and the leading class is the first beyond its
            interval. Of real numbers: those of mean, standard deviation and its epistemic part, in units of the
            predictive standard deviation. Of maps, the mean over positions.
        pairs: draw noise in pairs of opposite sign, for IBNN (best with a multiple of 2 · components) and
            BayesByBackprop: means are then far closer to their limit, spreads known as from half as many draws.
        compile: compile what is done with a part of the rows, which takes seconds and makes the rest about twice as
            fast: for tens of thousands of rows. To use the same functions again and again, call `functions.compile()`
            on drawn ones.
        progress: a progress bar where it takes more than two seconds; by default where standard error is a terminal.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> posterior = posterity.DeepEnsemble(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)))
        >>> posterior.likelihood = posterity.Gaussian(std=0.1)  # else `fit` attaches it
        >>> prediction = posterity.predict(posterior, torch.randn(8, 2))
        >>> prediction.mean.shape, prediction.means.shape  # of five members
        (torch.Size([8, 1]), torch.Size([5, 8, 1]))
        >>> low, high = prediction.interval(0.9)
        >>> bool((low < high).all())
        True
    """
    checked(posterior)
    generator = as_generator(seed, generator, "draws")
    batch_size = None if batch_size is None else count(batch_size, "batch_size")
    if is_raw(posterior, data):
        said = predict(
            posterior,
            prepared(posterior, data),
            samples,
            generator,
            batch_size=batch_size,
            tolerance=tolerance,
            pairs=pairs,
            compile=compile,
            progress=progress,
        )
        known = posterior.preprocessing
        return said.rescale(known.target_mean, known.target_std) if isinstance(said, GaussianPrediction) else said
    if isinstance(data, DataLoader) and loading.rearranges(data):
        warnings.warn(
            "The loader shuffles its rows or drops the last: the prediction has those that it gives, in its order.",
            stacklevel=4,
        )
    if why := shared_statistics(posterior):
        warnings.warn(why, stacklevel=4)
    if isinstance(samples, str) and samples == "auto":
        if pairs or compile:
            why = "needs independent draws" if pairs else "runs on ever fewer rows, each time with other shapes"
            raise Error(f'samples="auto" {why}: give a number of samples for that.')
        with sharing():
            rounds = Rounds(posterior, tolerance, generator)
        with _bar(data, progress) as bar:
            return _of_rows(posterior, rounds, data, batch_size, bar)
    prediction, drawn = None, 0
    draws: Any = posterior.draws if samples is None else samples
    draws = count(draws, "samples")
    once = compile or isinstance(data, (Dataset, DataLoader))  # which may give other rows another time
    with _bar(data, progress) as bar:
        for n in _turns(posterior, draws, once):
            functions = _draw(posterior, n, generator, pairs, compile)
            part = _of_rows(posterior, functions, data, batch_size, bar, 1 / draws)
            prediction = part if prediction is None else prediction.mixed(part, drawn / (drawn + n))
            drawn += n
    return prediction


def _bar(data: Any, progress: bool | None) -> Bar:
    """Of the rows of data, where they can be counted."""
    rows = loading.length(data.dataset if isinstance(data, DataLoader) else data)
    if not isinstance(data, (Dataset, DataLoader)):
        rows = inputs.rows(inputs.as_tensors(data)) if isinstance(data, (Mapping, tuple)) else rows
    return Bar(rows, wanted(progress), unit="row", name="prediction", delay=2.0)


def _counted(stream: Iterator[Tensor], rows: int, each: float, bar: Bar) -> Iterator[Tensor]:
    """The outputs of a stream, each function's of which is a part of the work on its rows."""
    for outputs in stream:
        yield outputs
        bar.update(count=rows * len(outputs) * each)


def _turns(posterior: Posterior, samples: int, once: bool) -> list[int]:
    """How many functions to draw and to hold, turn by turn."""
    turn = samples if once or posterior.turn is None else posterior.turn
    return [min(turn, samples - start) for start in range(0, samples, turn)]


def _of_rows(
    posterior: Posterior, functions: Any, data: Any, batch_size: int | None, bar: Bar, each: float = 1.0
) -> Any:
    """What functions, or rounds of them, predict of the data; each is such a part of all the work."""
    like, likelihood = inputs.like(posterior), posterior.likelihood
    make = kind(likelihood)
    home = data.device if isinstance(data, Tensor) else torch.device("cpu")
    parts = []
    drawn = functions.sets[0] if isinstance(functions, Rounds) else functions
    for x in loading.input_batches(data, batch_size, like.device, drawn, 8192 if like.is_cuda else 1024):
        masked = loading.check_finite(x)
        x = inputs.apply(x, lambda t: t.to(like.dtype) if t.is_floating_point() else t)
        with explained(posterior.network, x):
            for part in functions.parts(x):
                if isinstance(functions, Rounds):
                    parts.append(functions.predict(part, make).to(home))
                    bar.update(count=inputs.rows(part) or 0)
                else:
                    stream = _counted(functions.stream(part), inputs.rows(part) or 0, each, bar)
                    parts.append(make.gather(checked_outputs(stream, likelihood), likelihood).to(home))
                if not parts[1:] and (why := sequence_first(posterior.network, part)):
                    if len(parts[0].total) != inputs.rows(part):
                        raise Error(why)
                    warnings.warn(why, stacklevel=5)
                if masked and bool(parts[-1].total.isnan().any()):
                    raise Error("The inputs hold −∞, and what the network makes of it is no number: fill it first.")
    if not parts:
        raise Error("There is nothing to predict: the data have no rows.")
    prediction = make.join(parts)
    if isinstance(functions, Rounds):
        prediction.samples = torch.cat([part.samples for part in parts])
    return prediction


def _draw(posterior: Any, n: int, generator: torch.Generator | None, pairs: bool, compile: bool) -> Functions:
    if pairs and "pairs" not in inspect.signature(posterior.draw).parameters:
        raise Error(f"{type(posterior).__name__} has no noise to draw in pairs: leave pairs out.")
    with sharing():
        functions: Functions = posterior.draw(n, generator, **({"pairs": True} if pairs else {}))
    if compile:
        functions.compile()
    return functions
