"""A training run, step by step: the step counter, what the loss was, and what a checkpoint keeps of it."""

import contextlib
import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from posterity import checkpoints, fingerprints, inputs, schedules
from posterity.device_checks import embeddings_checked, without_index_checks
from posterity.errors import Error
from posterity.explaining import explained
from posterity.graphs import Graph
from posterity.history import History
from posterity.loading import Batch
from posterity.objective import Objective, arrange, compiled, layout
from posterity.optimisers import described, groups, optimizer_of, rates_of
from posterity.plausibility import first_step_checks
from posterity.posterior import Posterior
from posterity.processes import Accelerate, Processes
from posterity.randomness import reseed, turn
from posterity.run_settings import Settings
from posterity.streams import numpy_seed, seed_of
from posterity.validation import FEWEST, measure

#: Steps between two looks at the loss on a device, each of which waits for it.
LOOK_EVERY = 50
#: β that differs by no more than this part from its final value has reached it.
SETTLED = 0.01


class Run:
    """One run of `fit`, step by step."""

    def __init__(
        self,
        posterior: Posterior,
        settings: Settings,
        device: torch.device,
        accelerate: Accelerate,
        rates: tuple[schedules.Schedule, schedules.Schedule],
        beta: schedules.Schedule,
        compile: bool | str,
        graph: bool = False,
        augment: Callable[[Any], Any] | None = None,
        optimizer: str | Callable[[list[dict[str, Any]]], torch.optim.Optimizer] = "adam",
        per_target: bool = False,
    ) -> None:
        self.per_target = per_target
        self.seen: Any = None
        self.posterior, self.settings, self.steps = posterior.to(device), settings, settings.steps
        self.accelerate, self.accelerator, self.beta = accelerate, accelerate.accelerator, beta
        with accelerate.turn():
            self.processes = Processes(self.accelerator)
        self.layout = layout(posterior, device, settings.precision)
        arrange(posterior.network, self.layout)
        graph = graph and device.type == "cuda" and self.processes.count == 1 and self.accelerator.scaler is None
        self.objective: Any = self.processes.wrap(Objective(posterior, settings.size, augment, self.layout))
        of = groups(
            posterior,
            settings.lr,
            settings.lr_posterior,
            settings.weight_decay,
            settings.size,
            settings.optimizer == "sgd",
        )
        self.optimizer = optimizer_of(optimizer, of, settings.lr)
        if callable(optimizer):
            own = settings.functions | {"optimizer": fingerprints.of_values(checkpoints.group_numbers(self.optimizer))}
            self.settings = dataclasses.replace(settings, optimizer=described(self.optimizer), functions=own)
        self.rates = rates_of(posterior, self.optimizer, rates)
        for group in self.optimizer.param_groups if graph else ():  # a graph reads the rates from the device
            group["lr"] = torch.tensor(group["lr"], device=device)
            group |= {"capturable": True} if "capturable" in group else {}
        self.compiled = None if not compile else compiled(self.objective, "inductor" if compile is True else compile)
        self.rows: int | None = None
        self.held = 1024  # rows of held-out data at a time
        self.dtype = inputs.like(posterior).dtype
        self.epochs = self.count = self.since = 0
        # The loss and its likelihood, summed over an epoch's steps; its other term in the last step; and β. All are
        # those of one network, where several are trained side by side.
        self.sum, self.nll, self.term, self.beta_now = (torch.zeros((), device=device) for _ in range(4))
        self.advance: Callable[[Batch], Tensor] = Graph(self._advance, device) if graph else self._advance
        self.last_loss = math.nan
        self.looks = device.type == "cpu"

    def step(self, batch: Batch) -> None:
        """One step of the optimiser; all that is random in it is a function of the seed and the step's number."""
        if batch.y is None:
            raise Error("Training needs answers: the data give inputs alone.")
        t = self._time(self.since)
        if self.since == self.steps:
            warnings.warn(
                f"The data give more than {self.steps} batches, which size={self.settings.size:,} stands for: this "
                "epoch goes on until they end, at the rates that it has now. Give their true size, and data that end.",
                stacklevel=3,
            )
        for group, (rate, schedule) in zip(self.optimizer.param_groups, self.rates, strict=True):
            now = rate * schedule(t) / self._targets(batch)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(now)
            else:
                group["lr"] = now
        self.beta_now.fill_(self.beta(t))
        self.seen = batch.x
        seed = numpy_seed(self.settings.seed, 2, self.count)
        first = contextlib.nullcontext() if self.count else first_step_checks(self.posterior, batch)
        with self.accelerate.turn(), turn(self.sum.device, seed), first:
            loss = self.advance(batch).detach()
        own = loss if self.posterior.models == 1 else loss / self.posterior.models
        self.sum += own
        self.nll += own - self.term
        if not self.looks and self.count % LOOK_EVERY == 0:
            self._look(loss)
        self.count += 1
        self.since += 1

    def _targets(self, batch: Batch) -> int:
        """How many targets of a row the loss sums over, where the rate is for one of them."""
        return max(1, batch.y.numel() // len(batch.y)) if self.per_target else 1

    def _time(self, since: int) -> float:
        """From 0 to 1, what part of training is done after so many steps of an epoch, which may have more."""
        return (self.epochs * self.steps + min(since, self.steps - 1)) / max(1, self.settings.epochs * self.steps)

    def _advance(self, batch: Batch) -> Tensor:
        """The loss, its gradient and the step; nothing waits for a device."""
        x = inputs.apply(batch.x, lambda tensor: tensor.to(self.dtype) if tensor.is_floating_point() else tensor)
        # The first step finds out about the network. An epoch's last batch may be smaller, which is not worth another
        # compilation.
        if self.compiled is None or self.rows is None or inputs.rows(x) != self.rows:
            with self._index_checks():
                loss = self._gradient(self.objective, x, batch)
            self.rows = inputs.rows(x) if self.rows is None else self.rows
        else:
            try:
                loss = self._gradient(self.compiled, x, batch)
            except Exception as error:
                if not any(kind.__name__ == "TorchDynamoException" for kind in type(error).__mro__):
                    raise
                reseed(numpy_seed(self.settings.seed, 2, self.count), self.sum.device)
                loss, self.compiled = self._gradient(self.objective, x, batch), None
                reason = str(error).strip().partition("\n")[0]
                warnings.warn(f"The step cannot be compiled, so it runs as it is: {reason}", stacklevel=2)
        scaler = self.accelerator.scaler  # Accelerate unscales and steps only what it has prepared
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        if self.settings.clip is not None:
            self.posterior.clip_gradients(self.settings.clip * self._targets(batch))
        if self.looks:
            self._look(loss)
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
            scaler.update()
        return loss

    def _index_checks(self) -> contextlib.AbstractContextManager[None]:
        """On a device labels and indices are checked in the first epoch, which sees them all: a check waits."""
        if self.sum.device.type == "cpu":
            return contextlib.nullcontext()
        return without_index_checks() if self.epochs else embeddings_checked(self.posterior.network)

    def _gradient(self, objective: Any, x: Any, batch: Batch) -> Tensor:
        with self.accelerator.autocast(), explained(self.posterior.network, x):
            loss: Tensor = objective(x, batch.y, self._weight(batch), self.beta_now, batch.share)
        self._keep_term()
        self.optimizer.zero_grad(set_to_none=True)
        self.accelerator.backward(loss)
        self.processes.reduce()
        return loss

    @torch.no_grad()
    def _keep_term(self) -> None:
        """β · penalty / N of this step: as the loss had it or, where a loss of the user's own does not tell, anew."""
        weighed, self.posterior.weighed = self.posterior.weighed, None
        if weighed is None:
            with self.processes.whole():
                weighed = self.beta_now * self.posterior.penalty() / self.settings.size
        self.term.copy_(weighed if self.posterior.models == 1 else weighed / self.posterior.models)

    def _weight(self, batch: Batch) -> Tensor | None:
        """Of each row, such that the mean of all processes' losses is the loss of the whole batch."""
        if batch.share is None:
            return batch.weight
        start, stop, rows, counts = batch.share
        factor = self.processes.count * (stop - start) / rows if counts else 0.0
        ones = torch.ones(stop - start, dtype=self.dtype, device=self.sum.device)
        return factor * (ones if batch.weight is None else batch.weight)

    def _look(self, loss: Tensor) -> None:
        """Read the loss back and stop if it is not finite: on a CPU before the step that would spoil the parameters."""
        self.last_loss = float(self.processes.mean(loss)) / self.posterior.models
        if not math.isfinite(self.last_loss) or not math.isfinite(float(self.sum)):
            self._complain(self.last_loss)

    def _complain(self, loss: float) -> NoReturn:
        finite = math.isfinite(self._divergence())
        if not finite and not self.looks:  # found some steps later, when all parameters are NaN
            cause = "NaN, huge values or unknown labels in the data, or too high rates: lower lr or lr_posterior"
        elif not finite:
            cause = "the divergence from the prior is not finite: lower lr_posterior"
        else:
            cause = "the likelihood is not finite: look for NaN, huge values or unknown labels in the data, or lower lr"
        raise Error(
            f"The loss at step {self.count} is {loss}. The likely cause: {cause}. The last checkpoint, where one is "
            "kept, is from before."
        )

    def _divergence(self) -> float:
        """As of now."""
        seed = seed_of(self.settings.seed, "divergence")
        with torch.no_grad(), turn(self.sum.device, seed), self.processes.whole():
            return float(self.posterior.divergence())

    def postfix(self, shown: bool) -> dict[str, str] | None:
        """The negative log-likelihood, and apart from it KL/N and its weight, for a bar that is shown, now and then."""
        if self.count % LOOK_EVERY != 1 or not shown:
            return None
        weighed, beta = float(self.term), float(self.beta_now)
        terms = {"nll": self.last_loss - weighed, "kl/N": weighed / beta if beta else math.nan, "beta": beta}
        return {name: f"{value:.3f}" for name, value in terms.items() if math.isfinite(value)}

    def record(self, epoch: int, began: float) -> dict[str, float]:
        """An epoch's mean negative log-likelihood and loss, of one network, and the divergence at its end."""
        if not self.since:
            raise Error(
                f"The data gave no batch in epoch {epoch}: a stream must start anew whenever it is iterated, and be no "
                "shorter than a batch of a loader that drops the last one."
            )
        steps, t = self.since, self._time(self.since - 1)
        mean = float(self.processes.mean(self.sum)) / steps  # waits for the device
        seconds = time.perf_counter() - began
        if not math.isfinite(mean):
            self._complain(mean)
        divergence = self._divergence()
        record = {
            "epoch": epoch,
            "step": self.count,
            "nll": float(self.processes.mean(self.nll)) / steps,
            "loss": mean,
            "divergence": divergence,
            "divergence_per_row": divergence / self.settings.size,
            "beta": self.beta(t),
            "lr": self.rates[0][0] * self.rates[0][1](t),
            "seconds": seconds,
        }
        self.sum.zero_()
        self.nll.zero_()
        self.epochs, self.since = epoch, 0
        return record

    def settled(self, record: Mapping[str, float]) -> bool:
        """Whether an epoch's parameters may be kept: the divergence, where there is one, had its final weight.

        Before that an epoch is chosen for how little the prior had to say yet.
        """
        total = max(1, self.settings.epochs * self.steps)
        final = self.beta((total - 1) / total)
        return not record["divergence"] or abs(record["beta"] - final) <= SETTLED * abs(final)

    def validate(self, data: Any, draws: int = FEWEST, shown: bool = False) -> float:
        """Mean negative log-likelihood of held-out data under so many draws, the same ones every time."""
        seed = numpy_seed(self.settings.seed, 3)
        measured = measure(self.posterior, data, draws, seed, self.held, self.processes, shown)
        self.posterior.train()
        return measured

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of all parameters and buffers."""
        return {name: value.detach().clone() for name, value in self._whole_state().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take parameters and buffers from a snapshot or a checkpoint."""
        now = self.posterior.state_dict()
        scatter = self.processes.scatter
        try:
            self.posterior.load_state_dict({k: scatter(v, now[k]) if k in now else v for k, v in state.items()})
        except RuntimeError as error:
            raise ValueError(_misfit(state, now) or str(error)) from error

    def _whole_state(self) -> dict[str, Tensor]:
        return self.processes.gather(self.posterior.state_dict())

    def state(self, history: History, best: dict[str, Any] | None) -> checkpoints.State:
        """All that is needed to go on; every process must ask for it."""
        total = self.processes.mean(self.sum)
        if not math.isfinite(float(total)):
            self._complain(float(total))
        names = ("count", "since", "last_loss")
        return checkpoints.State(
            dataclasses.asdict(self.settings),
            {
                "history": list(history),
                "groups": checkpoints.group_numbers(self.optimizer),
                **{name: getattr(self, name) for name in names},
            },
            {"sum": total, "nll": self.processes.mean(self.nll)},
            self._whole_state(),
            self.processes.gather(checkpoints.flatten_optimizer(self.optimizer)),
            best,
        )

    def restore(self, found: checkpoints.State) -> tuple[History, dict[str, Any] | None]:
        """Go on from a checkpoint: its history, and the best parameters so far."""
        if different := self.settings.differences(found.settings):
            raise Error(
                f"The checkpoint folder holds a run with another {', '.join(different)}: use another folder for this "
                "run, or the same settings to go on with that one."
            )
        try:
            for state in (found.posterior, {} if found.best is None else found.best["state"]):
                _check_numbers(state, self.posterior.state_dict())
            self.load(found.posterior)
            checkpoints.unflatten_optimizer(
                self.optimizer, found.optimizer, self.processes.scatter, found.progress["groups"]
            )
            self.sum.copy_(found.extra["sum"])
            self.nll.copy_(found.extra["nll"])
            history = History(found.progress["history"])
            self.epochs, self.count, self.since = len(history), found.progress["count"], found.progress["since"]
            if not 0 <= self.since <= self.count or len(history) > self.settings.epochs:
                raise ValueError("its counts of steps do not agree")
            self.last_loss = found.progress["last_loss"]
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            raise Error(
                f"The checkpoint does not belong to this posterior: {error}. Use another folder for this run."
            ) from error
        number = found.best is not None and math.isfinite(found.best["validation"])
        return history, found.best if number else None


def _check_numbers(found: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> None:
    """Raise a ValueError where there are other numbers than a network can have, or none where it has some."""
    for name, value in found.items():
        own = now.get(name)
        if own is not None and value.is_complex() != own.is_complex():
            raise ValueError(f"its {name} holds numbers of type {value.dtype}")
        if bool(value.isnan().any()) and (own is None or not bool(own.isnan().any())):
            raise ValueError(f"its {name} holds what is no number")


def _misfit(found: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> str:
    """The first thing in which saved parameters are not those of now, in words."""
    for name in sorted(found.keys() | now.keys()):
        if name not in found or name not in now:
            return f"it has {'no' if name not in found else 'a'} {name}"
        if found[name].shape != now[name].shape:
            return f"its {name} is of shape {tuple(found[name].shape)}, here it is {tuple(now[name].shape)}"
    return ""
