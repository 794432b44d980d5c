"""What the first step of training looks at: mistakes that would train on, without an error."""

import contextlib
from collections.abc import Iterator

from posterity.errors import Error
from posterity.loading import Batch
from posterity.logits import probability_warnings
from posterity.posterior import Posterior
from posterity.readings import BOTH, check_parts


@contextlib.contextmanager
def first_step_checks(posterior: Posterior, batch: Batch) -> Iterator[None]:
    """Training with this batch in here: its parts are what they seem, and the network's outputs no probabilities."""
    check_parts(batch.x, batch.y, batch.weight, posterior.network)
    try:
        with probability_warnings(posterior):
            yield
    except Error as error:
        if batch.weight is None or not any(why in str(error) for why in ("do not fit", "needs class indices")):
            raise
        raise Error(f"{error} {BOTH}") from error
