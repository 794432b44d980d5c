"""The papers' tables and figures, run again: `posterity reproduce NAME`."""

from posterity.errors import Error
from posterity.papers import bbh, ibnn
from posterity.papers.reproduction import SIZES, Bench, Entry, Outcome, Table, reproduce
from posterity.wording import did_you_mean

__all__ = ["SIZES", "Bench", "Entry", "Outcome", "Table", "entries", "find", "reproduce"]


def entries() -> dict[str, Entry]:
    """All that can be run again, by name."""
    return {entry.name: entry for entry in (*ibnn.ENTRIES, *bbh.ENTRIES)}


def find(name: str) -> Entry:
    """The entry of that name."""
    found = entries()
    if name not in found:
        hint = did_you_mean(name, found)
        raise Error(f"There is no table or figure {name!r}.{hint} The names are {', '.join(found)}.")
    return found[name]
