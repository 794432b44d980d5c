"""One training loop for all methods."""

import contextlib
import dataclasses
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posterity import checkpoints, inputs, schedules
from posterity.errors import Error
from posterity.history import History
from posterity.likelihoods import Likelihood
from posterity.loading import Batch, Batches, numpy_seed
from posterity.posterior import Posterior
from posterity.prediction import predict

#: The likelihood's noise is one number that starts far from its value: at the network's rate it would lag behind.
NOISE_RATE = 10.0

Callback = Callable[[dict[str, float], Posterior], None]


@dataclasses.dataclass
class Settings:
    """What a run depends on; a checkpoint of other settings is refused."""

    epochs: int
    batch_size: int | None
    lr: float
    lr_posterior: float | None
    weight_decay: float
    optimizer: str
    precision: str
    clip: float | None
    schedule: str
    schedule_posterior: str
    beta: str
    seed: int
    size: int


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
    optimizer: str = "adam",
    schedule: schedules.Spec = "cosine",
    schedule_posterior: schedules.Spec | None = None,
    beta: schedules.Spec = "linear",
    seed: int | None = None,
    size: int | None = None,
    device: str | torch.device = "auto",
    precision: str = "no",
    compile: bool | str = False,
    clip: float | None = None,
    validation: Any = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 30.0,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> History:
    """Train a posterior.

    Args:
        posterior: any method; it is trained in place.
        data: `(x, y)` or `(x, y, weight)` of tensors or arrays, a Dataset or a DataLoader.
        likelihood: of y; it is attached to the posterior, and a learned noise is trained with it.
        epochs: passes over the data; by default as many as make about 5,000 steps, between 5 and 500.
        batch_size: rows in a step; by default about a fortieth of the data, between 16 and 128.
        lr: learning rate; by default 1e-3 for Adam, 0.05 for SGD.
        lr_posterior: that of the variational parameters, per component; by default `lr` times the method's own factor
            (10 for IBNN).
        weight_decay: on the network's parameters, never on variational ones.
        optimizer: "adam" (AdamW), or "sgd" (Nesterov momentum 0.9).
        schedule: of the rates: "cosine" (to zero), "constant", "piecewise" (the iBNN paper's), or a function of t,
            which goes from 0 to 1.
        schedule_posterior: of `lr_posterior`, where it differs.
        beta: weight of the divergence: a number, ("linear", f) for a ramp from 0 to 1 over the first f of training
            ("linear": f = 2/3, as in the iBNN paper), or a function of t.
        seed: of all that is random here; the global generator is then left as it was.
        size: N, for data without a length.
        device: "auto", or a torch device.
        precision: "no", "bf16" or "fp16": mixed precision.
        compile: compile the loss, by torch's default backend or the one named.
        clip: largest norm of the gradient.
        validation: data, or the share of the training data to hold out; the parameters of the epoch with the lowest
            negative log-likelihood on it are kept.
        checkpoint: a folder: the run is saved there as it goes, and goes on from what it finds there.
        checkpoint_every: seconds between two saves.
        callbacks: each is called after every epoch with the epoch's record and the posterior.
        progress: a progress bar; by default where standard error is a terminal.
    """
    where = _device(device)
    if likelihood is not None:
        posterior.likelihood = likelihood
    given_seed, seed = seed, _seed(seed)
    found = checkpoints.read(checkpoint) if checkpoint is not None else None
    if found is not None and given_seed is None:
        seed = found.settings["seed"]
    if isinstance(validation, float):
        data, validation = _held_out(data, validation, seed)
    batches = Batches(data, batch_size, shuffle=True, device=where)
    n = size or batches.size
    if not n:
        raise Error("The data have no length: give size=, the number of data in the training set.")
    steps_an_epoch = len(batches)
    if epochs is None:
        epochs = max(5, min(500, math.ceil(5_000 / steps_an_epoch)))
    if not isinstance(epochs, int) or epochs < 0:
        raise Error(f"epochs must be a whole number of at least 0; got {epochs!r}.")
    lr = ({"sgd": 0.05}.get(optimizer, 1e-3)) if lr is None else lr
    settings = Settings(
        epochs, batch_size, lr, lr_posterior, weight_decay, optimizer, precision, clip,
        _name(schedule), _name(schedule_posterior), _name(beta), seed, n,
    )  # fmt: skip
    run = _Run(posterior, settings, where, schedule, schedule_posterior, beta, epochs * steps_an_epoch, compile)
    history, start, best = History(), 0, None
    if found is not None:
        history, start, best = run.restore(found, settings)
    saver = checkpoints.Saver(checkpoint, checkpoint_every, dataclasses.asdict(settings))
    shown = sys.stderr.isatty() if progress is None else progress
    with _own_generators(where), _bar(epochs * steps_an_epoch, start, shown) as bar, _Stop(checkpoint) as stop:
        for epoch in range(start // max(1, steps_an_epoch), epochs):
            began, skip = time.perf_counter(), max(0, start - epoch * steps_an_epoch)
            run.posterior.train()
            for batch in batches.epoch(numpy_seed(seed, 1, epoch), skip):
                run.step(batch)
                bar.update(run.postfix())
                saver.maybe(lambda: run.state(history, best), force=stop.asked)  # noqa: B023
                stop.now()
            record = run.record(epoch + 1, time.perf_counter() - began)
            if validation is not None:
                record["validation"] = run.validate(validation)
                if best is None or record["validation"] < best["validation"]:
                    best = {"validation": record["validation"], "epoch": epoch + 1, "state": run.snapshot()}
            history.append(record)
            saver.maybe(lambda: run.state(history, best), force=epoch + 1 == epochs)  # noqa: B023
            for callback in callbacks:
                callback(record, posterior)
    if best is not None:
        posterior.load_state_dict(best["state"])
        history.best = int(best["epoch"])
    posterior.eval()
    return history


class _Run:
    """The moving parts of a run: optimiser, rates, the step counter and what the loss was."""

    def __init__(
        self,
        posterior: Posterior,
        settings: Settings,
        device: torch.device,
        schedule: schedules.Spec,
        schedule_posterior: schedules.Spec | None,
        beta: schedules.Spec,
        total: int,
        compile: bool | str,
    ) -> None:
        self.posterior, self.settings, self.total = posterior.to(device), settings, max(1, total)
        self.beta = schedules.beta(beta)
        self.accelerator = _accelerator(device, settings.precision)
        groups = _groups(posterior, settings)
        rates = (schedules.rate(schedule), schedules.rate(schedule_posterior or schedule))
        self.rates = [(group["lr"], rates[group.pop("posterior")]) for group in groups]
        self.optimizer = _optimizer(settings.optimizer, groups, device)
        objective = _Objective(posterior, settings.size)
        self.objective = self.accelerator.prepare(objective) if self.accelerator.num_processes > 1 else objective
        if compile:
            self.objective = torch.compile(self.objective, backend="inductor" if compile is True else compile)
        self.count = 0
        self.sum = torch.zeros((), device=device)
        self.since, self.last_loss, self.last_divergence = 0, math.nan, 0.0
        self.look_every = 1 if device.type == "cpu" else 50

    def step(self, batch: Batch) -> None:
        """One step of the optimiser; all that is random in it is a function of the seed and the step's number."""
        torch.manual_seed(numpy_seed(self.settings.seed, 2, self.count))
        t = self.count / self.total
        for group, (rate, schedule) in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * schedule(t)
        if batch.y is None:
            raise Error("Training needs answers: the data give inputs alone.")
        beta = torch.tensor(self.beta(t), device=self.sum.device)
        with self.accelerator.autocast():
            loss = self.objective(batch.x, batch.y, batch.weight, beta)
        self.optimizer.zero_grad(set_to_none=True)
        self.accelerator.backward(loss)
        if self.settings.clip is not None:
            self.accelerator.clip_grad_norm_(self.posterior.parameters(), self.settings.clip)
        if self.count % self.look_every == 0:
            self._look(loss)
        self.optimizer.step()
        self.sum += loss.detach()
        self.count += 1
        self.since += 1

    def _look(self, loss: Tensor) -> None:
        """Read the loss back; stop before a step that would spoil the parameters."""
        self.last_loss = float(loss.detach())
        if math.isfinite(self.last_loss) and math.isfinite(float(self.sum)):
            return
        divergence = float(self.posterior.divergence().detach())
        cause = (
            "the divergence from the prior is not finite: lower lr_posterior"
            if not math.isfinite(divergence)
            else "the likelihood is not finite: look for NaN or huge values in the data, or lower lr"
        )
        raise Error(
            f"The loss at step {self.count} is {self.last_loss}. The likely cause: {cause}. The last checkpoint, where "
            "one is kept, is from before."
        )

    def postfix(self) -> dict[str, str] | None:
        """The loss and its two terms, for the progress bar, now and then."""
        if self.count % 50 != 1:
            return None
        divergence = self._divergence()
        return {
            "loss": f"{self.last_loss:.3f}",
            "nll": f"{self.last_loss - divergence:.3f}",
            "kl/N": f"{divergence:.3f}",
        }

    def _divergence(self) -> float:
        """β · penalty / N as of now."""
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            self.last_divergence = float(self.posterior.divergence())
            penalty = float(self.posterior.penalty())
        return self.beta((self.count - 1) / self.total) * penalty / self.settings.size

    def record(self, epoch: int, seconds: float) -> dict[str, float]:
        """What an epoch was like."""
        mean = float(self.sum) / max(1, self.since)
        weighted = self._divergence()
        record = {
            "epoch": epoch,
            "step": self.count,
            "loss": mean,
            "nll": mean - weighted,
            "divergence": self.last_divergence,
            "beta": self.beta((self.count - 1) / self.total),
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "seconds": seconds,
        }
        self.sum.zero_()
        self.since = 0
        return record

    def validate(self, data: Any) -> float:
        """Mean negative log-likelihood on held-out data."""
        self.posterior.eval()
        batches, total, rows = Batches(data, 1024, device=self.sum.device), 0.0, 0
        draws = min(self.posterior.draws, 32)
        generator = torch.Generator().manual_seed(numpy_seed(self.settings.seed, 3))
        for batch in batches.epoch(0):
            prediction = predict(self.posterior, batch.x, draws, generator)
            total -= float(prediction.log_prob(batch.y).sum())
            rows += len(prediction)
        self.posterior.train()
        return total / rows

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of all parameters and buffers."""
        return {name: value.detach().clone() for name, value in self.posterior.state_dict().items()}

    def state(self, history: History, best: dict[str, Any] | None) -> checkpoints.State:
        """All that is needed to go on."""
        if not math.isfinite(float(self.sum)):
            raise Error(f"The loss is not finite at step {self.count}: lower the learning rate.")
        return checkpoints.State(
            dataclasses.asdict(self.settings),
            {"count": self.count, "since": self.since, "history": list(history), "last_loss": self.last_loss},
            {"sum": self.sum},
            dict(self.posterior.state_dict()),
            checkpoints.flatten_optimizer(self.optimizer),
            best,
        )

    def restore(self, found: checkpoints.State, settings: Settings) -> tuple[History, int, dict[str, Any] | None]:
        """Go on from a checkpoint: its history, the step to go on with, and the best parameters so far."""
        different = [k for k, v in dataclasses.asdict(settings).items() if found.settings.get(k) != v]
        if different:
            raise Error(
                f"The checkpoint folder holds a run with another {', '.join(different)}: use another folder for this "
                "run, or the same settings to go on with that one."
            )
        try:
            self.posterior.load_state_dict(found.posterior)
            checkpoints.unflatten_optimizer(self.optimizer, found.optimizer)
        except (RuntimeError, KeyError) as error:
            raise Error(f"The checkpoint does not belong to this posterior: {error}") from error
        self.count, self.since = found.progress["count"], found.progress["since"]
        self.last_loss = found.progress["last_loss"]
        self.sum.copy_(found.extra["sum"])
        return History(found.progress["history"]), self.count, found.best


class _Objective(nn.Module):
    """The loss as a module, which is what can be compiled and distributed."""

    def __init__(self, posterior: Posterior, size: int) -> None:
        super().__init__()
        self.posterior, self.size = posterior, size

    def forward(self, x: Any, y: Tensor, weight: Tensor | None, beta: Tensor) -> Tensor:
        return self.posterior.loss(x, y, size=self.size, beta=beta, weight=weight)


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


def _groups(posterior: Posterior, settings: Settings) -> list[dict[str, Any]]:
    """Parameter groups: the network's, the likelihood's, and the posterior's own."""
    own = {id(p): p for p in posterior.variational()}
    noise = {id(p): p for p in posterior.likelihood.parameters()}
    rest = [p for p in posterior.parameters() if id(p) not in own and id(p) not in noise and p.requires_grad]
    factor = posterior.rate if settings.optimizer == "sgd" else 1.0
    lr_posterior = settings.lr * posterior.relative_rate if settings.lr_posterior is None else settings.lr_posterior
    groups = [
        {"params": rest, "lr": settings.lr, "weight_decay": settings.weight_decay, "posterior": False},
        {"params": list(noise.values()), "lr": NOISE_RATE * settings.lr, "weight_decay": 0.0, "posterior": False},
        {
            "params": [p for p in own.values() if p.requires_grad],
            "lr": lr_posterior * factor,
            "weight_decay": 0.0,
            "posterior": True,
        },
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise Error("There is nothing to train: no parameter requires a gradient.")
    return groups


def _optimizer(name: str, groups: list[dict[str, Any]], device: torch.device) -> torch.optim.Optimizer:
    fused = device.type == "cuda"
    if name == "adam":
        return torch.optim.AdamW(groups, fused=fused)
    if name == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, nesterov=True, fused=fused)
    raise Error(f"optimizer must be 'adam' or 'sgd'; got {name!r}.")


def _accelerator(device: torch.device, precision: str) -> Any:
    if precision not in ("no", "bf16", "fp16"):
        raise Error(f"precision must be 'no', 'bf16' or 'fp16'; got {precision!r}.")
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    if AcceleratorState._shared_state:
        AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(mixed_precision=precision, cpu=device.type == "cpu")


def _device(device: str | torch.device) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise Error(f"{device!r} is no device: use 'auto', 'cpu' or 'cuda'.") from error


def _seed(seed: int | None) -> int:
    if seed is None:
        return int(torch.randint(2**62, ()))
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise Error(f"seed must be a whole number of at least 0; got {seed!r}.")
    return seed


def _name(spec: schedules.Spec | None) -> str:
    """What a checkpoint remembers of a schedule."""
    return getattr(spec, "__qualname__", type(spec).__name__) if callable(spec) else repr(spec)


def _held_out(data: Any, share: float, seed: int) -> tuple[Any, Any]:
    """Split data in memory into a training and a validation part."""
    if not 0 < share < 1:
        raise Error(f"validation must be data or a share between 0 and 1; got {share}.")
    everything = Batches(data, 1).memory
    if everything is None:
        raise Error("A share can be held out of data in memory only: give validation data of their own.")
    rows = Batches(data, 1).size or 0
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(numpy_seed(seed, 4)))
    held = max(1, round(share * rows))
    if held >= rows:
        raise Error(f"{rows} rows are too few to hold out {share:.0%} of them.")

    def part(chosen: Tensor) -> tuple[Any, ...]:
        return tuple(inputs.take(p, chosen) for p in everything if p is not None)

    return part(order[held:]), part(order[:held])


@contextlib.contextmanager
def _own_generators(device: torch.device) -> Iterator[None]:
    """Leave the global generators as they were found."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


class _Stop:
    """Ctrl-C with a checkpoint folder: the step under way is finished and saved first. A second one stops at once."""

    def __init__(self, checkpoint: str | Path | None) -> None:
        self.folder, self.asked = checkpoint, False
        self.active = checkpoint is not None and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "_Stop":
        if self.active:
            self.before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def now(self) -> None:
        """Stop here, if asked to; all is saved."""
        if self.asked:
            raise KeyboardInterrupt(
                f"Training was stopped and saved in {self.folder}: the same call goes on from there."
            )

    def __exit__(self, *_: object) -> None:
        if self.active:
            signal.signal(signal.SIGINT, self.before)


class _bar:
    """tqdm where it is wanted, else nothing."""

    def __init__(self, total: int, start: int, shown: bool) -> None:
        self.bar = None
        if shown:
            from tqdm import tqdm

            self.bar = tqdm(total=total, initial=start, unit="step", file=sys.stderr, dynamic_ncols=True, leave=False)

    def __enter__(self) -> "_bar":
        return self

    def update(self, postfix: dict[str, str] | None) -> None:
        if self.bar is not None:
            self.bar.update()
            if postfix:
                self.bar.set_postfix(postfix)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
