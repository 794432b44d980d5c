"""The report: one HTML file that needs nothing from outside itself."""

import base64
import hashlib
import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from posterity.report.canvas import SERIES, SERIES_DARK, svg
from posterity.report.comparison import SCORES, Comparison
from posterity.report.sections import SECTIONS, Section
from posterity.report.words import verdict


def _series(colors: tuple[str, ...]) -> str:
    return "".join(f"--series-{index}:{value};" for index, value in enumerate(colors))


STYLE = f"""
:root{{color-scheme:light;--paper:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#59626d;--faint:#d8dce2;
--best:#17704a;{_series(SERIES)}}}
@media (prefers-color-scheme:dark){{:root{{color-scheme:dark;--paper:#14171b;--card:#1c2026;--ink:#e8eaed;
--soft:#a8b0ba;--faint:#3a414b;--best:#58c896;{_series(SERIES_DARK)}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
overflow-wrap:anywhere}}
main{{max-width:68rem;margin:0 auto;padding:2rem 1rem 4rem}}
h1{{font-size:1.8rem;line-height:1.2;margin:.2rem 0}}
h2{{font-size:1.2rem;margin:0 0 .6rem}}
.kind{{color:var(--soft);margin:0;letter-spacing:.04em;font-size:.9rem}}
.facts{{color:var(--soft);margin:.2rem 0 1.5rem}}
section{{background:var(--card);border:1px solid var(--faint);border-radius:12px;padding:1.2rem;
margin:1rem 0}}
.verdict p{{font-size:1.08rem;margin:.35rem 0;max-width:46rem}}
.scroll{{overflow-x:auto}}
table{{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}}
th,td{{padding:.42rem .55rem;font-size:.95rem;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--faint)}}
th:first-child,td:first-child{{text-align:left}}
thead th{{color:var(--soft);font-weight:600;font-size:.88rem}}
thead button{{all:unset;cursor:pointer;border-radius:4px}}
thead button:focus-visible{{outline:2px solid currentColor;outline-offset:2px}}
thead th[aria-sort] button::after{{content:" ▲";font-size:.8em}}
thead th[aria-sort=descending] button::after{{content:" ▼"}}
tbody th{{font-weight:600}}
tbody tr:last-child>*{{border-bottom:0}}
small{{font-size:.8em;font-weight:400;color:var(--soft)}}
.best{{font-weight:700;color:var(--best)}}
.swatch{{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.5em}}
figure{{margin:0}}
.panels{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(17rem,100%),1fr));gap:.8rem}}
.panels.large{{grid-template-columns:minmax(0,40rem)}}
.panels.medium{{grid-template-columns:repeat(auto-fit,minmax(min(22rem,100%),1fr))}}
svg{{display:block;width:100%;height:auto;color:var(--ink)}}
svg text{{font-family:inherit!important}}
figcaption,.note{{color:var(--soft);max-width:46rem;margin:.8rem 0 0;font-size:.95rem}}
dl{{display:grid;max-width:60rem;margin:0;font-size:.95rem;
grid-template-columns:minmax(6rem,auto) 1fr;gap:.3rem 1.2rem}}
dt{{color:var(--soft)}}
dd{{margin:0}}
pre{{margin:0;overflow-x:auto}}
code{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.92em}}
@media print{{section{{break-inside:avoid}}}}
"""


SCRIPT = """
for (const button of document.querySelectorAll("thead button")) button.addEventListener("click", () => {
  const head = button.closest("th"), body = button.closest("table").tBodies[0], place = head.cellIndex;
  const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  const value = row => row.cells[place].dataset.value;
  const rows = [...body.rows].sort((a, b) => {
    const x = value(a), y = value(b);
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (place ? x - y : x.localeCompare(y));
  });
  body.append(...rows);
});
"""
"""Sorts the table by the column whose heading is pressed; the only script that the page lets run."""


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
{"".join(_figures(section, index) for index, section in enumerate(sections))}
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
    marks = " ★ marks the best of a column." if any(best.values()) else ""
    meanings = "".join(
        f"<dt>{escape(SCORES[score].label)}</dt><dd>{escape(SCORES[score].meaning)}</dd>" for score in scores
    )
    return (
        '<section><h2>Scores on the test data</h2><div class="scroll"><table>'
        f'<thead><tr><th scope="col">{_button("method")}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="note">{escape(count[:1].upper() + count[1:])}.{marks}</p>'
        f'<dl class="note">{meanings}</dl></section>'
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
    """How to load the model with the lowest NLL; it lies beside the page."""
    scored = {name: value for name in comparison.methods if (value := comparison.value(name, "nll")) is not None}
    if not scored:
        return ""
    new = "new.csv" if comparison.images is None else "new_images/"
    lines = (
        "import posterity",
        f'posterior = posterity.load("models/{min(scored, key=scored.__getitem__)}")',
        f'x, _ = posterity.datasets.read_inputs("{new}", posterior.preprocessing)',
        "prediction = posterity.predict(posterior, x)  # .epistemic is high where it guesses",
    )
    return f"<section><h2>Use the best model</h2><pre><code>{escape(chr(10).join(lines))}</code></pre></section>"


def _facts(facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<dt>{escape(str(key))}</dt><dd>{_code(value) if key == 'command' else escape(str(value))}</dd>"
        for key, value in facts.items()
    )
    return f"<section><h2>How this was made</h2><dl>{rows}</dl></section>" if rows else ""


def _code(value: object) -> str:
    return f"<code>{escape(str(value))}</code>"
