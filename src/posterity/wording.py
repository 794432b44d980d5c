"""How numbers are written for readers, and what a misspelt name may have meant."""

import difflib
from collections.abc import Callable, Iterable, Sequence

GROUPED = 10_000
"""From here on a comma stands between thousands: four digits may be a year."""
LARGEST = 1e15
"""From here on an exponent is the shorter way."""


def number(value: float, digits: int = 4) -> str:
    """A number of so many significant digits: 0.1234, 12.5, 1970, 368,400; an exponent where it is tiny or immense."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if GROUPED <= abs(rounded) < LARGEST else f"{rounded:.{max(4, digits)}g}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """The names with commas, and that word before the last: a, b and c."""
    return f" {last} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def did_you_mean(name: object, known: Iterable[str], cutoff: float = 0.6, write: Callable[[str], str] = str) -> str:
    """ " Did you mean …?" with the known names that are spelt like one, whatever their case; empty where none is.

    Args:
        name: what was asked for
        known: what there is
        cutoff: how alike they must be, from 0 to 1
        write: how a name is shown
    """
    folded = {key.lower(): key for key in known}
    near = difflib.get_close_matches(str(name).lower(), list(folded), n=3, cutoff=cutoff)
    return f" Did you mean {' or '.join(write(folded[key]) for key in near)}?" if near else ""
