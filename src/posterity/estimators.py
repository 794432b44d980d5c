"""scikit-learn estimators for tables: any method by its name, with the preprocessing inside.

Networks, training and preprocessing are those of `posterity compare`: some rows are held out to find the best epoch.
What was learned of the columns travels with the posterior: `posterity.save(model.posterior_, "model/")` keeps both, and
`posterity predict` reads them.
"""

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from posterity import networks
from posterity.datasets import columns
from posterity.datasets.preprocessing import TablePreprocessing
from posterity.datasets.readers import from_frame
from posterity.datasets.weighting import ordered_rows, weighted_rows
from posterity.errors import Error, cut, require, short
from posterity.likelihoods import Categorical, Gaussian, Likelihood
from posterity.methods import TABLE
from posterity.posterior import Posterior, count, one_of
from posterity.predicting import predict
from posterity.prediction import GaussianPrediction
from posterity.randomness import leave_as_found, turn
from posterity.streams import stream
from posterity.training import fit

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d, validation
    from sklearn.utils.multiclass import check_classification_targets
except ImportError:
    require("sklearn")
    raise

SMALL = 200_000
"""Parameters of a network that one thread trains faster than several, which would wait for each other."""
ROWS = 10_000
"""Rows whose draws are in memory at the same time."""
LONGEST = 450
"""Characters of what scikit-learn says, beyond which a value must be in it."""
_NEW = "ensure_all_finite" in inspect.signature(check_array).parameters  # scikit-learn 1.6 or later
_ANY_VALUE = {"ensure_all_finite" if _NEW else "force_all_finite": False}

Table = dict[str, np.ndarray]


class _Estimator(BaseEstimator):
    """What classifier and regressor share: reading tables, training, drawing."""

    def __init__(
        self,
        method: str = "ibnn",
        *,
        hidden: int | Sequence[int] = (64, 64),
        network: Callable[[int, int], nn.Module] | None = None,
        options: Mapping[str, Any] | None = None,
        likelihood: Likelihood | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        validation: float | str | None = "auto",
        fit_options: Mapping[str, Any] | None = None,
        samples: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
    ) -> None:
        self.method = method
        self.hidden = hidden
        self.network = network
        self.options = options
        self.likelihood = likelihood
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.validation = validation
        self.fit_options = fit_options
        self.samples = samples
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the preprocessing and train the posterior.

        Args:
            X: a data frame or an array `[n, features]`. Numbers and dates are standardised, texts and categories are
                one-hot; where a number is missing it is the median, and a further input says so.
            y: the answers, `[n]`; for regression also `[n, outputs]`.
            sample_weight: `[n]`; a row of weight 0 is left out. Where all weights are whole and their sum is at most
                ten times the number of rows, a row of weight 2 is two such rows, to the bit; other weights multiply the
                log-likelihood of their row.

        The order of the rows makes no difference.
        """
        if y is None:
            raise Error(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        with _same_words():
            table, answers = self._table(X, reset=True), self._answers(y)
            check_consistent_length(X, answers)
            common = getattr(table, "decimal", "")
            table, answers, weight = ordered_rows(*weighted_rows(table, answers, _weights(sample_weight, len(answers))))
            self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        targets, outputs, likelihood, known = self._learn(answers)
        declared = _declared(X)
        learned = [_column(name, values, name in declared, common) for name, values in table.items()]
        used = [column for column in learned if column is not None]
        if not used:
            raise Error("No column can be used as an input: each is constant, empty, or looks like names or ids.")
        known["target"] = str(getattr(y, "name", None) or "y")
        self.preprocessing_ = TablePreprocessing(features=self._names, columns=used, **known)
        inputs = self.preprocessing_.encode(table, {column.name: column.format for column in used})
        posterior = self._posterior(inputs.shape[1], outputs)
        data = (inputs, targets) if weight is None else (inputs, targets, weight)
        with _one_thread(posterior):
            self.history_ = fit(posterior, data, likelihood, seed=self.seed_, **self._settings())
        # In double precision what is said of a row does not depend, by rounding, on the rows beside it.
        self.posterior_ = posterior.double()
        self.posterior_.preprocessing = self.preprocessing_
        return self

    def predict_posterior(self, X: Any, samples: int | None = None) -> Any:
        """All that the posterior says of some rows: a `posterity.Prediction`, the same at every call.

        It has `total`, `aleatoric` and `epistemic` uncertainty, `[n]` each, and `probs` `[n, classes]` or, in the units
        of y, `mean`, `std`, `interval(0.9)` and `quantile(q)`.

        Args:
            X: a data frame or an array `[n, features]`, as `fit` took it.
            samples: functions drawn; by default those of the constructor.
        """
        return self._ask(self._inputs(X), samples)

    def _inputs(self, X: Any) -> Tensor:
        """Raw rows as the network takes them, `[n, inputs]`."""
        validation.check_is_fitted(self, "posterior_")
        with _same_words():
            return self.preprocessing_.inputs(self._table(X, reset=False))

    def _ask(self, inputs: Tensor, samples: int | None = None, generator: torch.Generator | None = None) -> Any:
        """What the posterior says of inputs; without a generator, by the same functions every time."""
        generator = stream(self.seed_, "draws") if generator is None else generator
        return predict(self.posterior_, inputs, self.samples if samples is None else samples, generator)

    def _posterior(self, inputs: int, outputs: int) -> Posterior:
        """The method around a new network."""
        cls: Any = TABLE[one_of(self.method, tuple(TABLE), "method")]
        options = _options(self.options, cls, "options")
        if isinstance(self.network, nn.Module) or not (self.network is None or callable(self.network)):
            raise Error("network must be a function that takes the numbers of inputs and outputs and makes a network.")
        with leave_as_found(), turn(seed=self.seed_):
            if self.network is not None:
                network = self.network(inputs, outputs)
            else:
                widths = self.hidden if isinstance(self.hidden, Sequence | np.ndarray) else [self.hidden]
                hidden = [count(width, "hidden") for width in widths]
                network = networks.create("mlp", inputs=inputs, outputs=outputs, hidden=hidden)
        return cls(network, seed=self.seed_, **options)  # type: ignore[no-any-return]

    def _settings(self) -> dict[str, Any]:
        """What `posterity.fit` is told. A user's network may not do the same in every step, as a graph needs."""
        held = self.validation
        if held not in (None, "auto") and (not isinstance(held, float) or not 0 < held < 1):
            raise Error(f"validation must be 'auto', None or a share between 0 and 1; got {short(held)}.")
        settings = {name: getattr(self, name) for name in ("epochs", "batch_size", "lr", "device", "validation")}
        settings |= {"graph": self.network is None, "progress": False}
        return settings | _options(self.fit_options, fit, "fit_options")

    def _table(self, X: Any, reset: bool) -> Table:
        """Raw columns by name; a later table's take the names of the first one's, by their place."""
        frame = hasattr(X, "columns") and hasattr(X, "iloc")
        if not frame:
            X = check_array(X, dtype=None, **_ANY_VALUE)
        if _NEW:
            validation.validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            self._check_feature_names(X, reset=reset)
            self._check_n_features(X, reset=reset)
        if reset:
            self._names = [str(name) for name in X.columns] if frame else [f"x{i}" for i in range(X.shape[1])]
            if len(set(self._names)) < len(self._names):
                raise Error("Several columns have the same name: rename all but one.")
            if len(X) < 2:
                raise Error(f"Training needs at least two rows; here n_samples = {len(X)}.")
        return from_frame(X.set_axis(self._names, axis=1)) if frame else dict(zip(self._names, X.T, strict=True))

    def _answers(self, y: Any) -> np.ndarray:
        """The training answers, checked: `[n]` or `[n, outputs]`."""
        raise NotImplementedError

    def _learn(self, y: np.ndarray) -> tuple[Tensor, int, Likelihood, dict[str, Any]]:
        """Answers as the likelihood takes them, outputs the network needs, the likelihood, what is to be kept of y."""
        raise NotImplementedError

    def _own(self, kind: type[Likelihood]) -> Any:
        """A copy of the likelihood that was given, which `fit` may train."""
        if self.likelihood is not None and not isinstance(self.likelihood, kind):
            raise Error(f"likelihood must be a posterity.{kind.__name__}; got {short(self.likelihood)}.")
        return copy.deepcopy(self.likelihood)

    def __getstate__(self) -> dict[str, Any]:
        """A pickle may be read where there is no GPU."""
        state = dict(super().__getstate__())
        if "posterior_" in state and next(state["posterior_"].parameters()).device.type != "cpu":
            state["posterior_"] = copy.deepcopy(state["posterior_"]).cpu()
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        """The same, for scikit-learn before 1.6."""
        return {"allow_nan": True, "requires_y": True, "X_types": ["2darray", "categorical", "string"]}


class PosteriorClassifier(ClassifierMixin, _Estimator):
    """A classifier of tables whose probabilities are means over a posterior of networks.

    Args:
        method: one of `posterity.methods()`.
        hidden: the widths of the network's hidden layers.
        network: a function of the numbers of inputs and outputs that makes another network.
        options: of the method, such as `{"components": 8}`.
        likelihood: of y, a `Categorical`; by default `Categorical()`.
        epochs, batch_size, lr: of training; by default what suits the size of the data.
        validation: the share of rows held out; the epoch with the lowest negative log-likelihood on them is kept. By
            default a tenth, of fewer than 500 rows 50 or a fifth. With None all rows train, to the end.
        fit_options: further options of `posterity.fit`, such as `{"weight_decay": 0.01}`.
        samples: functions drawn for a prediction; by default what suits the method.
        random_state: of all that is random; with an int, fits are the same every time. Predictions always are.
        device: "auto", or a torch device.

    A fitted one has `classes_`, `posterior_`, `history_`, `preprocessing_`, `seed_`, `n_features_in_` and, for data
    frames, `feature_names_in_`.

    Example:
        >>> import numpy, posterity
        >>> X = numpy.random.default_rng(0).normal(size=(60, 2))
        >>> y = numpy.where(X[:, 0] > 0, "right", "left")
        >>> model = posterity.PosteriorClassifier("ibnn", epochs=2, random_state=0).fit(X, y)
        >>> model.classes_.tolist(), model.predict_proba(X).shape
        (['left', 'right'], (60, 2))
        >>> model.predict_posterior(X).epistemic.shape
        torch.Size([60])
    """

    def predict(self, X: Any) -> np.ndarray:
        """The most probable classes, `[n]`."""
        chosen = self.predict_proba(X).argmax(1)
        return self.classes_[chosen]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities `[n, classes]`, in the order of `classes_`."""
        probs = self.predict_posterior(X).probs.numpy()
        if probs.shape[1] != len(self.classes_):
            raise Error(f"network= made one of {probs.shape[1]} outputs, but there are {len(self.classes_)} classes.")
        return probs  # type: ignore[no-any-return]

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms."""
        return self.predict_posterior(X).log_probs.numpy()

    def _answers(self, y: Any) -> np.ndarray:
        y = column_or_1d(y, warn=True)
        if columns.missing(y).any():
            raise Error("y has missing values (NaN, None or empty text): leave those rows out.")
        check_classification_targets(y)
        return y

    def _learn(self, y: np.ndarray) -> tuple[Tensor, int, Likelihood, dict[str, Any]]:
        self.classes_, numbers = np.unique(y, return_inverse=True)
        names = [columns.label(name) for name in self.classes_]
        if len(names) < 2:
            raise Error(f"y has only the class {names[0]!r}: there is nothing to tell apart.")
        return torch.as_tensor(numbers), len(names), self._own(Categorical) or Categorical(), {"classes": names}


class PosteriorRegressor(RegressorMixin, _Estimator):
    """A regressor of tables whose answers are distributions, in the units of y.

    By default one noise is learned for all rows; `likelihood=posterity.Gaussian(heteroscedastic=True)` lets the network
    say how noisy each row is, `Gaussian(std=2.0)` says it in the units of y, and `Gaussian(initial=2.0)` where to begin
    to learn it. y may have several columns, each with a noise of its own.

    Args:
        method: one of `posterity.methods()`.
        hidden: the widths of the network's hidden layers.
        network: a function of the numbers of inputs and outputs that makes another network.
        options: of the method, such as `{"components": 8}`.
        likelihood: of y, a `Gaussian`; by default `Gaussian()`.
        epochs, batch_size, lr: of training; by default what suits the size of the data.
        validation: the share of rows held out; the epoch with the lowest negative log-likelihood on them is kept. By
            default a tenth, of fewer than 500 rows 50 or a fifth. With None all rows train, to the end.
        fit_options: further options of `posterity.fit`, such as `{"weight_decay": 0.01}`.
        samples: functions drawn for a prediction; by default what suits the method.
        random_state: of all that is random; with an int, fits are the same every time. Predictions always are.
        device: "auto", or a torch device.

    A fitted one has `posterior_`, `history_`, `preprocessing_`, `seed_`, `n_features_in_` and, for data frames,
    `feature_names_in_`.

    Example:
        >>> import numpy, posterity
        >>> X = numpy.random.default_rng(0).normal(size=(60, 2))
        >>> model = posterity.PosteriorRegressor("ibnn", epochs=2, random_state=0).fit(X, 3 * X[:, 0] + 5)
        >>> mean, std = model.predict(X, return_std=True)
        >>> mean.shape, std.shape, bool((std > 0).all())
        ((60,), (60,), True)
        >>> model.sample_y(X, n_samples=4).shape
        (60, 4)
    """

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Means `[n]` (or `[n, outputs]`); with `return_std`, the standard deviations of y beside them."""
        said = [(part.mean, part.std) for part in map(self._ask, self._inputs(X).split(ROWS))]
        mean, std = (torch.cat(parts).numpy() for parts in zip(*said, strict=True))
        return (mean, std) if return_std else mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0) -> np.ndarray:
        """Draws of y, `[n, n_samples]` (or `[n, outputs, n_samples]`): a column is one function with its noise."""
        with _same_words():
            generator = torch.Generator().manual_seed(int(check_random_state(random_state).randint(2**31 - 1)))
        drawn = self._ask(self._inputs(X), n_samples, generator)
        noise = torch.randn(drawn.means.shape, generator=generator, dtype=drawn.means.dtype)
        return (drawn.means + drawn.variances.sqrt() * noise).movedim(0, -1).numpy()

    def _ask(self, inputs: Tensor, samples: int | None = None, generator: torch.Generator | None = None) -> Any:
        """The same in the units of y: `mean` is `[n]` for y of one axis, `[n, outputs]` for two."""
        said = super()._ask(inputs, samples, generator).rescale(self._mean, self._std)
        return said if self._mean.dim() else GaussianPrediction(said.means.squeeze(-1), said.variances.squeeze(-1))

    def _answers(self, y: Any) -> np.ndarray:
        return check_array(y, ensure_2d=False, dtype=np.float64, copy=True, input_name="y")

    def _learn(self, y: np.ndarray) -> tuple[Tensor, int, Likelihood, dict[str, Any]]:
        if (np.abs(y) > columns.LARGEST).any():
            raise Error("y holds numbers that are too large: divide them by a power of ten.")
        if (y.min(0) == y.max(0)).any():
            raise Error("y, or a column of it, is the same in all rows: there is nothing to learn.")
        self._mean, self._std = torch.as_tensor(y.mean(0)), torch.as_tensor(y.std(0))
        targets = ((torch.as_tensor(y) - self._mean) / self._std).float().reshape(len(y), -1)
        one = self._mean.numel() == 1
        moments = {"target_mean": self._mean, "target_std": self._std}
        known = {name: value.item() if one else value.tolist() for name, value in moments.items()}
        outputs, likelihood = targets.shape[1], self._own(Gaussian)
        if likelihood is None:
            noise: Any = torch.ones(outputs) if outputs > 1 else 1.0
            likelihood = Gaussian(initial=noise)
        elif likelihood.heteroscedastic:
            outputs *= 2
        else:
            log_std = (likelihood.log_std.detach() - self._std.log()).float()
            likelihood.log_std = nn.Parameter(log_std) if likelihood.learned else log_std
        return targets, outputs, likelihood, known

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        return {"multioutput": True}


def _declared(X: Any) -> set[str]:
    """The columns of a data frame that are of the type `category`."""
    return {str(name) for name, kind in getattr(X, "dtypes", {}).items() if str(kind) == "category"}


def _column(name: str, values: np.ndarray, declared: bool, common: str) -> columns.Column | None:
    """What a column becomes: one declared a category is one, whatever its values look like."""
    if not declared:
        return columns.fit(name, values, common)
    found = set(columns.labels(values))
    if len(found) > columns.MOST_CATEGORIES:
        warnings.warn(f"Column {name!r} is left out: {len(found)} categories are more than {columns.MOST_CATEGORIES}.")
    if not 1 < len(found) <= columns.MOST_CATEGORIES:
        return None
    return columns.Column(
        name, "category", categories=tuple(sorted(found, key=lambda text: (text is None, text or "")))
    )


def _options(given: Any, of: Callable[..., Any], name: str) -> dict[str, Any]:
    """A dictionary of options that `of` takes and the estimator leaves open."""
    if not isinstance(given, Mapping | None):
        raise Error(f"{name} must be a dictionary; got {short(given)}.")
    taken = {"network", "posterior", "data", "likelihood", "seed", "generator"}
    known = [key for key in inspect.signature(of).parameters if key not in taken]
    if unknown := [key for key in given or {} if key not in known]:
        raise Error(f"{name} holds {unknown[0]!r}; the options of {of.__name__} are {', '.join(known)}.")
    return dict(given or {})


def _weights(sample_weight: Any, rows: int) -> np.ndarray | None:
    """The weights of rows, checked."""
    if sample_weight is None:
        return None
    weight = check_array(sample_weight, ensure_2d=False, dtype=np.float32, input_name="sample_weight")
    if weight.shape != (rows,):
        raise Error(f"sample_weight must be of shape ({rows},), one number per row; it is {weight.shape}.")
    if (weight < 0).any() or not weight.any():
        raise Error("sample_weight must hold no negative weight, and more than zeros.")
    return weight


@contextlib.contextmanager
def _same_words() -> Iterator[None]:
    """What scikit-learn's checks refuse is refused in the same words, as the library's error."""
    try:
        yield
    except Error:
        raise
    except (TypeError, ValueError) as error:
        said = str(error)
        raise Error(said if len(said) < LONGEST else cut(said, LONGEST)) from error


@contextlib.contextmanager
def _one_thread(posterior: Posterior) -> Iterator[None]:
    """One thread for the training of a small network."""
    threads = torch.get_num_threads()
    if sum(parameter.numel() for parameter in posterior.parameters()) < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
