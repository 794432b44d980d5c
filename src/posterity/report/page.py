"""The report: one HTML file that needs nothing from outside itself."""

import base64
import hashlib
import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from posterity.report import gallery, tables
from posterity.report.canvas import SERIES, svg
from posterity.report.comparison import SCORES, Comparison
from posterity.report.sections import SECTIONS, Section
from posterity.report.style import SCRIPT, STYLE
from posterity.report.words import choice, verdict


def page(comparison: Comparison) -> str:
    """The whole page as HTML. Whatever came from a user or a file is escaped."""
    title = escape(comparison.title)
    sections = [section for make in SECTIONS if (section := make(comparison)) is not None]
    data = " · ".join(f"{escape(str(key))}: {escape(str(value))}" for key, value in comparison.data.items())
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in verdict(comparison))
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'">
<title>{title} – posterity</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<p class="kind">posterity · {escape(comparison.task)}</p>
<h1>{title}</h1>
<p class="facts">{data}</p>
<section class="verdict"><h2>In short</h2>{sentences or "<p>There are no scores to show.</p>"}</section>
{_table(comparison)}
{tables.promises(comparison)}
{"".join(_figures(section, index) for index, section in enumerate(sections))}
{tables.detection(comparison)}
{gallery.explorer(comparison)}
{_use(comparison)}
{_facts(comparison.facts)}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def write(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write the page, all at once or not at all, and return where it is."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    # A file's name or class can hold half of a surrogate pair, which no encoding takes.
    partial.write_text(page(comparison), encoding="utf-8", errors="replace")
    partial.replace(path)
    return path


def _table(comparison: Comparison) -> str:
    scores = comparison.scores()
    best = {score: comparison.best(score) for score in scores}
    head = "".join(
        f'<th scope="col" title="{escape(SCORES[score].meaning)}">{_button(SCORES[score].label)}</th>'
        for score in scores
    )
    rows = []
    for index, name in enumerate(comparison.methods):
        cells = "".join(
            _cell(comparison.written(name, score), comparison.value(name, score), name in best[score])
            for score in scores
        )
        swatch = f'<span class="swatch" style="background:var(--series-{index % len(SERIES)})"></span>'
        rows.append(f'<tr><th scope="row" data-value="{escape(name)}">{swatch}{escape(name)}</th>{cells}</tr>')
    count = "1 seed" if comparison.seeds == 1 else f"means over {comparison.seeds} seeds ± standard errors"
    marks = f" ★ marks the best of a column and what cannot be told from it. {_rule(comparison)}"
    unmarked = [SCORES[score].label for score in scores if len(comparison.tied(score)) > 1 and not best[score]]
    if not any(best.values()):
        marks = f" No difference between {comparison.about} can be told. {_rule(comparison)}" if unmarked else ""
    elif unmarked:
        marks += f" None is marked where no difference can be told: {'; '.join(unmarked)}."
    meanings = "".join(
        f"<dt>{escape(SCORES[score].label)}</dt><dd>{escape(SCORES[score].meaning)}</dd>" for score in scores
    )
    return (
        "<section><h2>Scores on the test data</h2>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Scores"><table>'
        f'<thead><tr><th scope="col">{_button("method")}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="note">{escape(count[:1].upper() + count[1:])}.{marks}</p>'
        f'<dl class="note">{meanings}</dl></section>'
    )


def _rule(comparison: Comparison) -> str:
    """How differences are told from chance."""
    over = "rows" if comparison.seeds == 1 else "rows and seeds"
    about = "" if comparison.seeds > 1 else ", and about these networks only: another training may turn out otherwise"
    return (
        f"In a column of equal {comparison.about}, one is marked by chance in at most 5 % of cases (paired differences "
        f"over {over}, t-tests with Holm's correction over the methods{about})."
    )


def _cell(text: str, number: float | None, best: bool) -> str:
    value, _, spread = text.partition(" ± ")
    shown = escape(value) + (f" <small>± {escape(spread)}</small>" if spread else "")
    order = f'data-value="{"" if number is None else repr(float(number))}"'
    return f'<td class="best" {order}>★ {shown}</td>' if best else f"<td {order}>{shown}</td>"


def _button(label: str) -> str:
    """A heading that sorts its column when it is pressed."""
    return f'<button type="button">{escape(label)}</button>'


def _figures(section: Section, index: int) -> str:
    panels = "".join(f"<div>{svg(figure, f'{index}-{place}')}</div>" for place, figure in enumerate(section.figures))
    inches = section.figures[0].get_figwidth()
    size = " large" if inches > 5 else " medium" if inches > 4 else ""
    return (
        f"<section><h2>{escape(section.title)}</h2>"
        f'<figure role="group" aria-label="{escape(section.title)}"><div class="panels{size}">{panels}</div>'
        f"<figcaption>{escape(section.words)}</figcaption></figure></section>"
    )


def _use(comparison: Comparison) -> str:
    """How to load the model that the verdict names; it lies beside the page."""
    name = choice(comparison)
    if name is None:
        return ""
    new = "new.csv" if comparison.images is None else "new_images/"
    lines = (
        "import posterity",
        f'posterior = posterity.load("{comparison.folder.format(method=name)}")  # from the folder of this page',
        f'prediction = posterity.predict(posterior, "{new}", seed=0)  # .epistemic is high where it guesses',
    )
    code = escape("\n".join(lines))
    return (
        "<section><h2>Use the model</h2>"
        f'<pre tabindex="0" role="region" aria-label="How to load it"><code>{code}</code></pre></section>'
    )


def _facts(facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<dt>{escape(str(key))}</dt><dd>{_code(value) if key == 'command' else escape(str(value))}</dd>"
        for key, value in facts.items()
    )
    return f"<section><h2>How this was made</h2><dl>{rows}</dl></section>" if rows else ""


def _code(value: object) -> str:
    return f"<code>{escape(str(value))}</code>"
