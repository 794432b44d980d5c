"""Inputs as they come, for a posterior that keeps the preprocessing it was trained with."""

import os
from typing import Any

import numpy as np
from torch import Tensor

from posterity import inputs
from posterity.errors import Error
from posterity.posterior import Posterior


def is_raw(posterior: Posterior, data: Any) -> bool:
    """Whether data are as they come, not as the network takes them.

    Files and folders are, and for a posterior that keeps its preprocessing frames, arrays and lists of rows.
    """
    if isinstance(data, (str, os.PathLike)):
        return True
    frame = hasattr(data, "columns") and hasattr(data, "to_numpy")  # of pandas, of polars, or of another
    rows = isinstance(data, np.ndarray) or (isinstance(data, list) and not inputs.tensors(data))
    return posterior.preprocessing is not None and (frame or rows)


def prepared(posterior: Posterior, data: Any) -> Any:
    """Inputs as the network takes them: raw ones as the posterior's own were prepared, others as they are."""
    if not is_raw(posterior, data):
        return data
    from posterity import datasets

    known = posterior.preprocessing
    if known is None:
        raise Error("This posterior keeps no preprocessing to read files with: give the inputs as a tensor.")
    in_file = isinstance(data, (str, os.PathLike))
    return datasets.read_inputs(data, known)[0] if in_file else known.inputs(data)


def prepared_data(posterior: Posterior, data: Any) -> Any:
    """Data to train with: beside raw inputs answers are raw too, unless they are a tensor; all else stays as it is."""
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3) or not is_raw(posterior, data[0]):
        return data
    x, (y, *weight) = prepared(posterior, data[0]), data[1:]
    return x, y if isinstance(y, Tensor) else posterior.preprocessing.targets(y), *weight
