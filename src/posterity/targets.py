"""A look at the targets before training starts."""

import warnings
from typing import Any

import numpy as np
from torch import Tensor

from posterity import inputs
from posterity.errors import Error
from posterity.likelihoods import Categorical, Gaussian, Likelihood

#: Targets whose mean or standard deviation is larger, or whose standard deviation is smaller than one over it, are
#: warned of.
FAR = 30.0


def look_at_targets(likelihood: Likelihood, data: Any) -> None:
    """Reject targets of which none is observed; warn of real ones far from mean 0 and standard deviation 1.

    Networks start there, and take long to leave.
    """
    y = data[1] if isinstance(data, tuple) and len(data) > 1 else None
    if not isinstance(y, (Tensor, np.ndarray)) or len(y) < 2:
        return
    y = inputs.as_tensors(y)
    if isinstance(likelihood, Categorical) and bool((likelihood.labels(y) == likelihood.ignore).all()):
        raise Error(f"All labels are {likelihood.ignore}, which marks what is not observed: nothing can be learned.")
    if not isinstance(likelihood, Gaussian):
        return
    values = y.detach().double()
    mean, std = float(values.mean()), float(values.std())
    if abs(mean) > FAR or std > FAR or 0 < std < 1 / FAR:
        warnings.warn(
            f"The targets have mean {mean:.3g} and standard deviation {std:.3g}, and a network starts at 0 and 1: "
            "standardise them, and give predictions back their units by `rescale`. (The command line and "
            "PosteriorRegressor do it by themselves.)",
            stacklevel=3,
        )
