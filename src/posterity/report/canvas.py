"""Figures that suit the page: one look, and colours that follow the reader's light or dark theme."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from posterity.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#22262b"
FAINT = "#d3d7dc"
SERIES = ("#0f6cbd", "#c4520a", "#23845a", "#b3266f", "#7353ba", "#8a6d00", "#00828f", "#5f6670")
SERIES_DARK = ("#63b0f4", "#f59a5b", "#58c896", "#f07db4", "#b39bf0", "#d9bb47", "#4cc7d4", "#a9b1bb")
"""One colour a method: the first list for light pages, the second for dark ones."""

_LOOK = {
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.unicode_minus": True,
    "font.size": 10,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "text.color": INK,
    # Names come from users' files: a dollar sign in one is a dollar sign.
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


def color(index: int) -> str:
    """The colour of the method at that place in the comparison."""
    return SERIES[index % len(SERIES)]


@contextmanager
def drawing(width: float = 5.6, height: float = 3.6) -> Iterator[tuple["Figure", "Axes"]]:
    """A figure of that size in inches with one pair of axes, in the page's look; pyplot is not involved."""
    matplotlib: Any = require("matplotlib")
    figures: Any = require("matplotlib.figure")
    with matplotlib.rc_context(_LOOK):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.add_subplot()


def short(name: object, length: int = 22) -> str:
    """A user's name on one line, cut where it is too long for a label."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(name)).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def described(figure: "Figure", *sentences: str) -> "Figure":
    """The figure with a description in plain words as its label, for those who cannot see it; notebooks show it."""
    figure.set_label(" ".join(sentence for sentence in sentences if sentence))
    figure._repr_png_ = MethodType(_png, figure)  # type: ignore[attr-defined]
    return figure


def _png(figure: "Figure") -> bytes:
    """What a notebook shows where it has no other way: it knows the figures of pyplot alone."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def picture(image: Any) -> Any:
    """[channels, height, width] to [height, width, 3] or [height, width], between 0 and 1."""
    pixels = np.asarray(image, dtype=np.float64)
    pixels = pixels.transpose(1, 2, 0) if pixels.shape[0] == 3 else pixels.mean(axis=0)
    low, high = float(pixels.min()), float(pixels.max())
    return (pixels - low) / (high - low or 1.0)


def svg(figure: "Figure", salt: str) -> str:
    """The figure as an inline SVG element: no prolog, no metadata, no addresses, themed colours, its label in words.

    Args:
        figure: what to draw
        salt: makes the names inside unlike those of other figures on the page
    """
    matplotlib: Any = require("matplotlib")
    buffer = io.StringIO()
    with matplotlib.rc_context({**_LOOK, "svg.hashsalt": salt}), warnings.catch_warnings():
        # Labels in scripts that the measuring font lacks are still written, and the browser has the glyphs.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    head, body = text.split(">", 1)
    head = re.sub(r' (xmlns(:\w+)?|width|height|version)="[^"]*"', "", head)
    body = re.sub(r'<g id="[A-Za-z][\w.]*_\d+"', "<g", body)
    for index, value in enumerate(SERIES):
        body = body.replace(value, f"var(--series-{index})")
    body = body.replace(INK, "currentColor").replace(FAINT, "var(--faint)")
    words = (
        f'role="img" aria-label="{escape(short(label, 2000))}"'
        if (label := figure.get_label())
        else 'aria-hidden="true"'
    )
    return f"{head} {words}>{body}"
