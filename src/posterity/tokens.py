"""A class for every token, as token classifiers and language models give it: `[batch, tokens, classes]`."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from posterity.errors import Error
from posterity.likelihoods import LIKELIHOODS, Categorical, Likelihood
from posterity.prediction import KINDS, CategoricalPrediction


class Tokens(Categorical):
    """One of C classes for every token; outputs are logits `[batch, tokens, C]`, y holds indices `[batch, tokens]`.

    The log-likelihood of a datum is the sum over its tokens, so N (`size`) counts sequences.

    Args:
        weight: one weight per class, which multiplies the log-likelihood of that class.
        ignore: label of what is not observed (padding, the further parts of a word): it contributes nothing.
        shift: the output at a token is compared with the label of the next one, as causal language models have it.

    Example:
        >>> import posterity, torch
        >>> logits, labels = torch.zeros(1, 2, 5, 10), torch.zeros(2, 5, dtype=torch.long)
        >>> labels[1, 3:] = -100  # padding
        >>> likelihood = posterity.Tokens(shift=True)
        >>> likelihood.log_prob(logits, labels) / torch.tensor(0.1).log()  # how many tokens counted
        tensor([[4., 2.]])
    """

    def __init__(self, weight: Tensor | list[float] | None = None, ignore: int = -100, shift: bool = False) -> None:
        super().__init__(weight, ignore)
        self.shift = bool(shift)

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """log softmax(outputs)[y], summed over tokens: outputs `[draws, batch, tokens, C]` → `[draws, batch]`."""
        if outputs.dim() != 4 or y.dim() != 2:
            raise Error(
                f"Outputs of shape {tuple(outputs.shape)} and labels of shape {tuple(y.shape)} are not a class for "
                "every token: [draws, batch, tokens, classes] and [batch, tokens] needed."
            )
        return super().log_prob(self.by_class(outputs), self.labels(y))

    def by_class(self, outputs: Tensor) -> Tensor:
        """Outputs `[draws, batch, tokens, C]` as `[draws, batch, C, tokens]`."""
        return outputs.movedim(-1, 2)

    def labels(self, y: Tensor) -> Tensor:
        """The label that each token's output is compared with: with `shift` the next one's, and none for the last."""
        y = super().labels(y)
        return F.pad(y[:, 1:].long(), (0, 1), value=self.ignore) if self.shift and y.dim() == 2 else y

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain values."""
        return super().config() | {"shift": self.shift}


class TokensPrediction(CategoricalPrediction):
    """Probabilities of classes, `[batch, classes, tokens]`; each uncertainty is `[batch, tokens]`."""

    shift = False

    @property
    def logits(self) -> Tensor:
        """`log_probs` as the network lays them out, `[batch, tokens, classes]`."""
        return self.log_probs.movedim(1, 2)

    def log_prob(self, y: Tensor) -> Tensor:
        """Log probability of the observed classes, summed over the tokens of a sequence."""
        return Tokens(ignore=self.ignore, shift=self.shift).log_prob(self.logits.unsqueeze(0), y).squeeze(0)

    def labels(self, y: Tensor) -> Tensor:
        """The label that each token's probabilities are compared with; `ignore` where there is none."""
        return Tokens(ignore=self.ignore, shift=self.shift).labels(y)

    @classmethod
    def gather(cls, parts: Iterable[Tensor], likelihood: Likelihood) -> "TokensPrediction":
        """From the outputs `[some draws, batch, tokens, classes]` of the same rows, taken part by part."""
        assert isinstance(likelihood, Tokens)
        made = super().gather(map(likelihood.by_class, parts), likelihood)
        assert isinstance(made, TokensPrediction)
        made.shift = likelihood.shift
        return made

    @classmethod
    def join(cls, predictions: Sequence[CategoricalPrediction]) -> "TokensPrediction":
        """Predictions of successive rows as one."""
        if len({prediction.log_probs.shape[2] for prediction in predictions}) > 1:
            raise Error(
                "The batches differ in their number of tokens: pad all sequences to one length, or predict each."
            )
        made = super().join(predictions)
        assert isinstance(made, TokensPrediction)
        made.shift = getattr(predictions[0], "shift", False)
        return made


LIKELIHOODS["tokens"] = Tokens
KINDS[Tokens] = TokensPrediction
