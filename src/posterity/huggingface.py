"""Hugging Face: posteriors in `transformers.Trainer`, and in folders beside a pretrained model."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from posterity import schedules, storage
from posterity.errors import Error, require
from posterity.posterior import Posterior, count, positive
from posterity.predicting import predict
from posterity.pretrained import from_pretrained, save_pretrained
from posterity.streams import stream
from posterity.training import train_mode

transformers: Any = require("transformers")

__all__ = ["PosteriorModel", "Trainer", "from_pretrained", "save_pretrained"]


class PosteriorModel(nn.Module):
    """A posterior as a Trainer takes a model: `forward(labels, **inputs)` gives `{"loss"}` or `{"loss", "logits"}`.

    In training the loss is the posterior's own, per datum. In evaluation the logits are the logarithm of the mean
    probability over draws (regression: the mean), from the same functions in every call, and the loss is their
    negative log-likelihood per datum. In its `state_dict` a tied tensor stands once, as safetensors wants it.

    Args:
        posterior: any method, around any network that takes keyword arguments.
        size: N, the number of data in the training set; only training needs it.
        draws: functions in evaluation; by default what suits the method.
        seed: of these draws.
    """

    #: The loss is a mean over the batch: the Trainer divides it when it accumulates gradients.
    accepts_loss_kwargs = False
    _keys_to_ignore_on_save = None

    def __init__(self, posterior: Posterior, size: int | None = None, draws: int | None = None, seed: int = 0) -> None:
        super().__init__()
        self.posterior = posterior
        self.size = None if size is None else count(size, "size")
        if self.size is not None:
            posterior.training_size = self.size
        self.draws = None if draws is None else count(draws, "draws")
        self.seed = seed
        self.register_state_dict_post_hook(_once)
        self.register_load_state_dict_pre_hook(_again)

    def forward(self, labels: Tensor | None = None, *, beta: float = 1.0, **inputs: Any) -> dict[str, Tensor]:
        """The loss of a batch in training; what the posterior predicts, and its loss, in evaluation."""
        if self.training and labels is not None:
            if self.size is None:
                raise Error("Training needs size=, the number of data in the training set.")
            return {"loss": self.posterior.loss(inputs, labels, size=self.size, beta=beta)}
        generator = stream(self.seed, "draws")
        like = next(self.posterior.parameters(), torch.zeros(()))
        prediction = predict(self.posterior, inputs, self.draws, generator, progress=False).to(like.device)
        named = ("logits", "log_probs", "mean")
        outputs = {"logits": next(getattr(prediction, name) for name in named if hasattr(prediction, name))}
        return outputs if labels is None else {"loss": -prediction.log_prob(labels).mean(), **outputs}

    def train(self, mode: bool = True) -> "PosteriorModel":
        """Training or evaluation mode; frozen batch statistics stay as they are (see `posterity.training`)."""
        super().train(mode)
        if mode:
            train_mode(self.posterior)
        return self


class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
    """`transformers.Trainer` for a posterior: the β schedule, a rate of its own for the posterior, N from the data.

    Variational parameters take `lr_posterior` and no weight decay. `save_model` writes what `from_pretrained` opens.

    Args:
        model: a posterior, or a `PosteriorModel`.
        args: TrainingArguments.
        beta: weight of the divergence: a number, a schedule's name or a function of t, as in `posterity.fit`.
        lr_posterior: by default `args.learning_rate` times the method's own factor (10 for IBNN).
        size: N, by default the length of `train_dataset`.
        draws: functions in evaluation; by default what suits the method.
        options: what `transformers.Trainer` takes, by keyword.
    """

    def __init__(
        self,
        model: Posterior | PosteriorModel,
        args: Any = None,
        *,
        beta: schedules.Spec = "linear",
        lr_posterior: float | None = None,
        size: int | None = None,
        draws: int | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(model, (Posterior, PosteriorModel)):
            raise Error(f"The model must be a posterior, such as posterity.IBNN(model); got {type(model).__name__}.")
        if getattr(args, "label_smoothing_factor", 0):
            raise Error("A posterior's loss is a likelihood, which takes no label smoothing: set it to 0.")
        if isinstance(model, Posterior):
            data: Any = options.get("train_dataset")
            size = len(data) if size is None and hasattr(data, "__len__") else size
            model = PosteriorModel(model, size, draws)
        self.beta, self.posterior = schedules.beta(beta), model.posterior
        self.lr_posterior = None if lr_posterior is None else positive(lr_posterior, "lr_posterior", zero=True)
        super().__init__(model, args, **options)
        taken = inspect.signature(self.posterior.network.forward).parameters
        self._signature_columns = [*taken, "labels", "label", "label_ids"]

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **_: Any) -> Any:
        """The loss at the schedule's β."""
        outputs = model(**inputs, beta=self.beta(self.state.global_step / max(1, self.state.max_steps)))
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def create_optimizer(self, *args: Any) -> torch.optim.Optimizer:
        """The optimiser that `args` ask for, with groups of their own for the posterior and for the likelihood."""
        own = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(*args)
        if own:
            size = self.model.size if isinstance(self.model, PosteriorModel) else None
            _separate(optimizer, self.posterior, self.args.learning_rate, self.lr_posterior, size)
        return optimizer

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clip to `args.max_grad_norm`, each member of an ensemble alone; returns the norm of all before."""
        if self.posterior.models == 1:
            return super()._clip_grad_norm(model)
        self.accelerator.unscale_gradients()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        self.posterior.clip_gradients(self.args.max_grad_norm)
        return norm

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write what `from_pretrained` opens (for networks of your own, `posterity.load`); the tokenizer beside it."""
        if _internal_call:  # a checkpoint, which holds the whole state
            super().save_model(output_dir, _internal_call)
        elif self.args.should_save:
            folder = output_dir or self.args.output_dir
            theirs = isinstance(self.posterior.network, transformers.PreTrainedModel)
            (save_pretrained if theirs else storage.save)(self.posterior, folder)
            if self.processing_class is not None:
                self.processing_class.save_pretrained(folder)


def _separate(
    optimizer: torch.optim.Optimizer, posterior: Posterior, lr: float, lr_posterior: float | None, size: int | None
) -> None:
    """Move the posterior's and the likelihood's parameters to groups with their own rates and no weight decay."""
    sgd = isinstance(optimizer, torch.optim.SGD)
    for own in posterior.parameter_groups(size):
        if own.decay:
            continue
        its = own.learning_rate(lr, lr_posterior, sgd) * (posterior.rate if sgd and own.variational else 1.0)
        wanted = {id(p) for p in own.parameters}
        moved = [p for group in optimizer.param_groups for p in group["params"] if id(p) in wanted]
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in wanted]
        if moved:
            optimizer.add_param_group({"params": moved, "lr": its, "weight_decay": 0.0})


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor's numbers are: the same for tensors that are tied."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _once(module: PosteriorModel, state: dict[str, Tensor], *_: Any) -> None:
    """Keep one name of each tied tensor."""
    seen = set()
    for name, value in list(state.items()):
        if value.numel() and _place(value) in seen:
            del state[name]
        seen.add(_place(value))


def _again(module: PosteriorModel, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Give tied tensors all their names back."""
    own = module.posterior.state_dict(prefix=f"{prefix}posterior.")
    given = {_place(value): state[name] for name, value in own.items() if name in state and value.numel()}
    for name, value in own.items():
        if name not in state and _place(value) in given:
            state[name] = given[_place(value)]
