"""The methods, one file each, and the table of their short names."""

from posterity.methods.bbb import BayesByBackprop
from posterity.methods.bbh import BayesByHypernet
from posterity.methods.dropout import MCDropout
from posterity.methods.ensemble import DeepEnsemble
from posterity.methods.ibnn import IBNN
from posterity.methods.livi import LIVI
from posterity.methods.map import MAP
from posterity.methods.mnf import MNF
from posterity.posterior import Posterior

TABLE: dict[str, type[Posterior]] = {
    "map": MAP,
    "ensemble": DeepEnsemble,
    "dropout": MCDropout,
    "bbb": BayesByBackprop,
    "mnf": MNF,
    "bbh": BayesByHypernet,
    "ibnn": IBNN,
    "livi": LIVI,
}


def table() -> dict[str, type[Posterior]]:
    """Short name → class. Every class is built by `cls(network)` alone, with defaults that work.

    Example:
        >>> import posterity
        >>> list(posterity.methods())
        ['map', 'ensemble', 'dropout', 'bbb', 'mnf', 'bbh', 'ibnn', 'livi']
        >>> posterity.methods()["ibnn"] is posterity.IBNN
        True
    """
    return dict(TABLE)
