"""The test inputs from certain to uncertain, one at a time, to go through with a slider."""

import base64
import io
import math
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from posterity.errors import require
from posterity.report.canvas import picture, short
from posterity.report.comparison import Comparison
from posterity.wording import number

LARGEST = 160
"""Pixels of an image's longer side; larger ones are made smaller."""
COLUMNS = 16
"""How many columns of a table's row are shown."""


def explorer(comparison: Comparison) -> str:
    """The section as HTML, of one method; empty where none has a gallery."""
    name = comparison.shown("gallery")
    if name is None:
        return ""
    gallery = comparison.summaries[name]["gallery"]
    items = "".join(_item(comparison, entry, place, len(gallery)) for place, entry in enumerate(gallery))
    words = (
        f"Test data sorted by how uncertain {name} is. Where it is uncertain, look whether you would be, too: noise is "
        "what no amount of data would settle, ignorance what more data like this would."
    )
    return (
        "<section><h2>From certain to uncertain</h2>"
        f'<p class="note">{escape(words)}</p>'
        '<p><label for="certainty" hidden>Move from the most certain to the least certain</label>'
        f'<input class="certainty" id="certainty" type="range" min="0" max="{len(gallery) - 1}" value="0" hidden>'
        '<span class="ends" hidden><span>most certain</span><span>least certain</span></span></p>'
        f'<div class="items">{items}</div></section>'
    )


def _item(comparison: Comparison, entry: Mapping[str, Any], place: int, count: int) -> str:
    answer, details = (_class if comparison.task == "classification" else _number)(comparison, entry)
    total = entry["aleatoric"] + entry["epistemic"]
    unit = "nats" if comparison.task == "classification" else "variance"
    noise, ignorance = number(entry["aleatoric"], 3), number(entry["epistemic"], 3)
    parts = f"uncertainty {number(total, 3)} ({unit}): noise {noise}, ignorance {ignorance}"
    shown = _shown(comparison, entry["index"], answer)
    wide = "" if shown else ' class="wide"'
    words = escape(f"{place + 1} of {count}: {answer}", quote=True)
    return (
        f'<div class="item" data-words="{words}">{shown}'
        f"<div{wide}><p>{escape(answer)}</p>{details}<p>{escape(parts)}</p></div></div>"
    )


def _class(comparison: Comparison, entry: Mapping[str, Any]) -> tuple[str, str]:
    """What it says in words, and a bar for each of the likeliest classes."""
    names = [comparison.class_name(index) for index in entry["classes"]]
    truth = comparison.class_name(entry["true"])
    right = entry["classes"][0] == entry["true"]
    answer = f"says {names[0]}, {100 * entry['probs'][0]:.1f} % sure: {'right' if right else f'wrong, it is {truth}'}"
    bars = "".join(
        f'<div class="bar{" truth" if index == entry["true"] else ""}"><span>{escape(name)}</span>'
        f'<i style="width:{100 * min(1.0, max(0.0, value)):.1f}%"></i>'
        f'<data value="{value:.4g}">{100 * value:.1f} %</data></div>'
        for index, name, value in zip(entry["classes"], names, entry["probs"], strict=True)
    )
    return answer, bars


def _number(comparison: Comparison, entry: Mapping[str, Any]) -> tuple[str, str]:
    mean, low, high, truth = (number(entry[key]) for key in ("mean", "low", "high", "true"))
    inside = entry["low"] <= entry["true"] <= entry["high"]
    answer = f"says {mean}, 90 % sure of {low} to {high}: it is {truth}, {'inside' if inside else 'outside'}"
    return answer, ""


def _shown(comparison: Comparison, index: int, answer: str) -> str:
    """The input itself: a picture, or the columns of a table."""
    if comparison.images is not None and index < len(comparison.images):
        return f'<img src="{_png(comparison.images[index])}" alt="{escape(f"Test image {index}: {answer}")}">'
    row = comparison.rows.get(index)
    if not row:
        return ""
    more = len(row) - COLUMNS
    cells = "".join(
        f"<dt>{escape(short(name, 40))}</dt><dd>{escape(short(value, 40))}</dd>"
        for name, value in list(row.items())[:COLUMNS]
    )
    rest = f"<dt>and {more} more</dt><dd></dd>" if more > 0 else ""
    return f"<dl>{cells}{rest}</dl>"


def _png(image: Any) -> str:
    """An image [channels, height, width] as the address of a PNG that holds it."""
    step = math.ceil(max(np.shape(image)[1:]) / LARGEST)
    pixels = picture(np.asarray(image)[:, ::step, ::step])
    buffer = io.BytesIO()
    library: Any = require("matplotlib.image")
    library.imsave(buffer, pixels, cmap="gray", vmin=0, vmax=1, format="png", metadata={"Software": None})
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
