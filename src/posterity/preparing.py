"""Inputs as they come, for a posterior that keeps the preprocessing it was trained with."""

import os
from typing import Any

import numpy as np

from posterity import inputs
from posterity.errors import Error
from posterity.posterior import Posterior


def is_raw(posterior: Posterior, data: Any) -> bool:
    """Whether data are as they come, not as the network takes them.

    Files and folders are, and for a posterior that keeps its preprocessing frames, arrays and lists of rows.
    """
    if isinstance(data, (str, os.PathLike)):
        return True
    frame = hasattr(data, "columns") and hasattr(data, "iloc")  # pandas need not be there
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
