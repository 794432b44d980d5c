"""One training loop for all methods."""

import contextlib
import copy
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase

from posterity import checkpoints, fingerprints, inputs, schedules
from posterity.device_checks import assertions_explained
from posterity.errors import Error, short
from posterity.fit_checks import check_outcome, check_precision
from posterity.history import History
from posterity.holdout import as_pair, first_rows, hold_out
from posterity.interaction import interacts, trained_whole
from posterity.likelihoods import Likelihood
from posterity.loading import Batches, warn_of_weights
from posterity.normalisation import trained_norms
from posterity.objective import arrange
from posterity.parameter_groups import LR, SGD_CLIP
from posterity.posterior import Posterior, checked, count, positive, whole_seed
from posterity.preparing import prepared_data
from posterity.processes import Accelerate, team
from posterity.progress import Bar, Stop, wanted
from posterity.randomness import leave_as_found
from posterity.run_settings import Settings
from posterity.running import LOOK_EVERY, Run
from posterity.storage import storable
from posterity.streams import numpy_seed, stream
from posterity.targets import look_at_targets
from posterity.validation import improves, plan, warn_of_none

#: Of a training whose length is not given: enough for a few hundred rows, whatever their number.
STEPS = 5_000
Callback = Callable[[dict[str, float], Posterior], None]


def fit(
    posterior: Posterior,
    data: Any,
    likelihood: Likelihood | None = None,
    *,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    lr_posterior: float | None = None,
    weight_decay: float = 1e-4,
    optimizer: str | Callable[[list[dict[str, Any]]], torch.optim.Optimizer] = "adam",
    schedule: schedules.Spec = "cosine",
    schedule_posterior: schedules.Spec | None = None,
    beta: schedules.Spec | None = None,
    seed: int | None = None,
    size: int | None = None,
    device: str | torch.device = "auto",
    precision: str = "no",
    compile: bool | str = False,
    graph: bool = False,
    clip: float | None = None,
    augment: Callable[[Any], Any] | None = None,
    validation: Any = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 30.0,
    callbacks: Callback | Sequence[Callback] = (),
    progress: bool | None = None,
) -> History:
    """Train a posterior. What comes back is a list with one record for each epoch: loss, its parts, rates, seconds.

    Parameters that require no gradient stay as they are, and so do the running statistics of a batch normalisation
    whose own parameters are such (see `train_mode`).

    Args:
        posterior: any method; it is trained in place.
        data: `(x, y)` or `(x, y, weight)` of tensors or arrays, a Dataset or a DataLoader. A row of weight 2 counts as
            that row twice, also against the prior, so weights are 1 in the mean where each row counts once. A mapping,
            or batches that are mappings, hold the targets as "labels" and the network's keyword arguments beside them.
            Rows are on axis 0, so recurrent layers and Transformers need `batch_first=True`, or a module around the
            network whose forward is `network(x.transpose(0, 1))`. The items of a Dataset may use a posterior, but not
            wait for other threads that do.
        likelihood: of y; a copy is attached to the posterior, and a learned noise is trained with it: it is
            `posterior.likelihood` that holds what was learned.
        epochs: passes over the data; by default as many as make about 5,000 steps, and at least 5.
        batch_size: rows in a step; by default about a fortieth of the data, between 16 and 128. Of data in memory whose
            rows interact in the network's evaluation mode (attention between rows, graphs, batch normalisation without
            running statistics) every step has all rows, in their order, unless this is smaller.
        lr: learning rate; by default 1e-3 for Adam. For SGD 0.05 over the targets that the loss of a row sums over
            (pixels, labels, outputs), with `clip` at 0.3 times their number.
        lr_posterior: that of the variational parameters, per component; by default `lr` times the method's own factors
            (10 for IBNN); `posterior.parameter_groups(N)` has all of them. What starts at random follows `lr` up, not
            down: where a pretrained network is fine-tuned at 1e-5, it has the rate that belongs to 1e-3. So has a
            learned noise, whose rate is ten times `lr` (under SGD, where nothing is held up, `lr`).
        weight_decay: on the network's parameters, never on variational ones.
        optimizer: "adam" (AdamW), "sgd" (Nesterov momentum 0.9), or a function that makes one of torch's from the list
            of parameter groups, each with its rate, from `lr`, and its decay:
            `lambda groups: torch.optim.RMSprop(groups)`.
        schedule: of the rates: "cosine" (to zero), "constant", "piecewise" (the iBNN paper's), or a function of t,
            which goes from 0 to 1.
        schedule_posterior: of `lr_posterior`, where it differs.
        beta: weight of the divergence: a number, ("linear", f) for a ramp from 0 to 1 over the first f of training
            ("linear": f = 2/3, as in the iBNN paper), or a function of t. By default "linear"; with `validation`
            a ramp of 500 steps, where that is shorter, for methods whose weights are points, or that fit closely (IBNN,
            LIVI, BayesByHypernet).
        seed: of all that is random here; the global generator is then left as it was.
        size: N, for data without a length: a stream, or a loader of whole batches.
        device: "auto", or a torch device.
        precision: "no", "bf16" or "fp16": mixed precision.
        compile: compile the loss, by torch's default backend or the one named.
        graph: on a CUDA device, replay the whole step as one graph: many times faster for small networks, and the same
            numbers. Batches of other shapes, and a step that cannot be captured, run as they are. The network must
            do the same in every step: a count or a coin of Python's own would be frozen.
        clip: largest norm of the gradient.
        augment: a function that changes the inputs of every step, on the device (see `posterity.augmentation`).
        validation: data, or the share of the training data to hold out (by weight, where rows interact); the parameters
            of the epoch with the lowest negative log-likelihood on it are kept, of those in which β had its final value
            (methods without a divergence: of all). "auto" holds out a tenth, of fewer than 500 rows 50 or a fifth. It
            is measured with few draws, and every so many epochs that it costs about a third of the training at most:
            the last one always is.
        checkpoint: a folder: the run is saved there as it goes, and goes on from what it finds there; a run with other
            settings, or other data in memory, is refused. What workers of a loader draw that outlive an epoch
            (`persistent_workers=True`) is not drawn again.
        checkpoint_every: seconds between two saves.
        callbacks: one or several; each is called after every epoch with the epoch's record and the posterior.
        progress: a progress bar; by default where standard error is a terminal.

    Example:
        >>> import posterity, torch
        >>> from torch import nn
        >>> x, y = torch.randn(60, 2), torch.arange(60) % 3
        >>> posterior = posterity.IBNN(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)))
        >>> history = posterity.fit(posterior, (x, y), posterity.Categorical(), epochs=2, seed=0, progress=False)
        >>> [record["epoch"] for record in history]
        [1, 2]
        >>> posterity.predict(posterior, x).probs.shape
        torch.Size([60, 3])
    """
    where = find_device(device)
    checked(posterior)
    check_precision(posterior)
    if likelihood is not None and not isinstance(likelihood, Likelihood):
        raise Error(f"likelihood must be an object such as posterity.Categorical(); got {short(likelihood)}.")
    if likelihood is not None:
        posterior.likelihood = copy.deepcopy(likelihood)
    if checkpoint is not None:
        storable(posterior.state_dict())
        if not isinstance(checkpoint, str | os.PathLike):
            raise Error(f"checkpoint must be the name of a folder; got {short(checkpoint)}.")
    found = None if checkpoint is None else checkpoints.read(checkpoint)
    seed = found.settings["seed"] if found is not None and seed is None else _seed(seed)
    data, validation = (prepared_data(posterior, as_pair(part)) for part in (data, validation))
    rows = None if batch_size is None else count(batch_size, "batch_size")
    posterior.to(where)  # its network is tried on a few rows
    part = 1.0  # of the rows, which is learned from
    if isinstance(validation, float | str):
        # Runs of before were not stratified, and go on with the rows that they have.
        stratified = found is None or "functions" in found.settings
        data, validation = hold_out(data, validation, seed, stratified, lambda x: interacts(posterior, x, rows))
        if validation is not None and validation[0] is data[0]:  # held out by weight
            left = int(data[2].count_nonzero())
            size, part = left if size is None else size, left / len(data[2])
    rank, processes = team()
    batches = Batches(data, rows, True, where, rank, processes)
    batches.size = batches.size if size is None else count(size, "size")
    if not batches.size:
        what = "The loader gives whole batches" if batches.whole else "The data have no length"
        raise Error(f"{what}: give size=, the number of data in the training set.")
    if batches.memory is not None and trained_whole(posterior, batches.memory.x, rows, processes):
        batches.batch_size, batches.shuffle = batches.rows or 1, False
    if batches.memory is not None and batches.memory.weight is not None:
        warn_of_weights(part * float(batches.memory.weight.sum()), int(batches.memory.weight.count_nonzero()))
    look_at_targets(posterior.likelihood, data)
    steps = len(batches)
    if not steps:
        raise Error("The data give no batch at all: a loader that drops its last batch may be left with none.")
    epochs = max(5, math.ceil(STEPS / steps)) if epochs is None else count(epochs, "epochs", least=0)
    rates = schedules.rate(schedule), schedules.rate(schedule_posterior or schedule)
    if beta is None:
        ramp = None if validation is None else posterior.validation_ramp
        beta = "linear" if ramp is None else ("linear", min(2 / 3, ramp / max(1, epochs * steps)))
    functions = {
        "schedule": fingerprints.of_schedule(rates[0]),
        "beta": fingerprints.of_schedule(schedules.beta(beta)),
    }
    if schedule_posterior is not None:
        functions["schedule_posterior"] = fingerprints.of_schedule(rates[1])
    if augment is not None:
        functions["augment"] = fingerprints.of_function(augment)
    known = None if checkpoint is None and processes == 1 else batches.memory
    sgd = isinstance(optimizer, str) and optimizer == "sgd"
    by_default = sgd and lr is None
    settings = Settings(
        epochs=epochs,
        batch_size=batch_size,
        lr=LR["sgd" if sgd else "adam"] if lr is None else positive(lr, "lr", zero=True),
        lr_posterior=None if lr_posterior is None else positive(lr_posterior, "lr_posterior", zero=True),
        weight_decay=positive(weight_decay, "weight_decay", zero=True),
        optimizer=optimizer if isinstance(optimizer, str) else _name(optimizer),
        precision=precision,
        clip=(SGD_CLIP if by_default else None) if clip is None else positive(clip, "clip"),
        schedule=_name(schedule),
        schedule_posterior=_name(schedule_posterior),
        beta=_name(beta),
        augment=None if augment is None else _name(augment),
        seed=seed,
        size=batches.size,
        data=None if known is None else inputs.fingerprint([known, validation]),
        steps=steps,
        posterior=posterior.config(),
        likelihood={"name": type(posterior.likelihood).__name__, **posterior.likelihood.config()},
        functions=functions,
    )
    posterior.training_size = batches.size
    saver = checkpoints.Saver(checkpoint, positive(checkpoint_every, "checkpoint_every", zero=True))
    history, best = History(), None
    called = [callbacks] if callable(callbacks) else callbacks or ()
    with assertions_explained(), contextlib.ExitStack() as stack, torch.enable_grad():
        run = Run(
            posterior,
            settings,
            where,
            Accelerate(where, precision),
            rates,
            schedules.beta(beta),
            compile,
            graph,
            augment,
            optimizer,
            by_default,
        )
        if run.layout == torch.channels_last:
            stack.callback(arrange, posterior.network, torch.contiguous_format)
        if found is not None:
            history, best = run.restore(found)
        alike = {name: value for name, value in functions.items() if name != "augment"}  # which may know its process
        run.processes.agree(vars(run.settings) | {"functions": alike, "checkpoint": run.count})
        done = run.since  # steps of the epoch that was stopped
        stack.enter_context(leave_as_found())
        held = None
        if validation is not None:
            apart = Batches(validation, 1)
            held = plan(posterior, epochs, batches.rows or batches.size, apart.size or batches.size)
            if apart.memory is not None and interacts(posterior, apart.memory.x):
                run.held = apart.size or run.held
            elif apart.memory is not None and run.processes.count == 1:
                run.validate(first_rows(apart.memory))  # a mistake in them comes out now, not after an epoch
        shown = wanted(progress) and run.processes.main
        bar = stack.enter_context(Bar(epochs * steps, shown, run.count, name="training"))
        stop = stack.enter_context(Stop(checkpoint))

        def save(end: bool = False) -> None:
            """Save and stop, where it is time to or someone asks for it; all processes agree on that."""
            if run.processes.count > 1 and not end and where.type != "cpu" and run.count % LOOK_EVERY:
                return
            due, asked = run.processes.any(saver.due or end, stop.asked)
            if saver.folder is not None and (due or asked):
                state = run.state(history, best)
                if run.processes.main:
                    saver.write(state)
                saver.last = time.monotonic()
            stop.now(asked)

        for epoch in range(len(history), epochs):
            began = time.perf_counter()
            train_mode(posterior)
            for batch in batches.epoch(numpy_seed(seed, 1, epoch), skip=done):
                run.step(batch)
                bar.update(run.postfix(bar.shown))
                if run.since != steps:  # the last step is saved with the epoch's record
                    save()
            done = 0
            record = run.record(epoch + 1, began)
            if held is not None and held.due(epoch + 1, epochs):
                with bar.stage("validation"):
                    record["validation"] = run.validate(validation, held.draws, shown)
                if run.settled(record) and improves(record, best):
                    best = {"validation": record["validation"], "epoch": epoch + 1, "state": run.snapshot()}
            history.append(record)
            save(end=epoch + 1 == epochs)
            for callback in called if run.processes.main else ():
                callback(record, posterior)
        run.processes.end()
    if best is None:
        warn_of_none(history.column("validation"))
    else:
        posterior.load_state_dict(best["state"])
        history.best = int(best["epoch"])
    posterior.eval()
    with leave_as_found():
        check_outcome(posterior, run.seen if run.processes.count == 1 else None, stream(seed, "check"))
    return history


def train_mode(posterior: Posterior) -> Posterior:
    """`posterior.train()`, but batch normalisation that is frozen (see `trained_norms`) stays in evaluation mode.

    Else its running statistics would move under weights that do not.
    """
    posterior.train()
    trained = {id(norm) for norm in trained_norms(posterior)}
    for module in posterior.network.modules():
        if isinstance(module, _NormBase) and id(module) not in trained:
            module.eval()
    return posterior


class TensorBoard:
    """A callback that writes each epoch's record for TensorBoard."""

    def __init__(self, folder: str | Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder))

    def __call__(self, record: dict[str, float], posterior: Posterior) -> None:
        """Write one epoch's record."""
        for name, value in record.items():
            self.writer.add_scalar(name, value, int(record["epoch"]))
        self.writer.flush()


def find_device(device: str | torch.device) -> torch.device:
    """The device of that name, "auto" a GPU where there is one."""
    if device == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if team()[1] > 1 else torch.device("cuda")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise Error(f"{short(device)} is no device: use 'auto', 'cpu' or 'cuda'.") from error
    if found.type == "cuda":
        devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not devices:
            raise Error("There is no CUDA device here: use device='cpu' or 'auto'.")
        if (found.index or 0) >= devices:
            raise Error(f"There is no {found} here: the last of {devices} CUDA devices is cuda:{devices - 1}.")
    return found


def _seed(seed: int | None) -> int:
    return int(torch.randint(2**62, ())) if seed is None else whole_seed(seed)


def _name(spec: Any) -> str:
    """What a checkpoint remembers of a schedule or another function."""
    return getattr(spec, "__qualname__", type(spec).__name__) if callable(spec) else repr(spec)
