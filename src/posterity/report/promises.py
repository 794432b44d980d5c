"""What can be promised with each method, and whether the promise was kept on data it was not made from."""

from html import escape
from typing import Any

from posterity.report.comparison import Comparison

ABSTAINING = (
    "The test data were halved. One half set a threshold: answers more uncertain than that are withheld, so that at "
    "most the stated share of those given is wrong, with 95 % confidence. The other half shows the share of answers "
    "given, and of these the share that was wrong. A dash means that so few data cannot promise it. A set holds the "
    "true class in at least 95 % of cases; the fewer classes it needs, the better."
)
INTERVALS = (
    "The test data were halved. One half stretched or shrank the method's intervals so that they hold the truth in at "
    "least 90 % of cases, whatever the method is worth; the other half shows their mean width and how often they held "
    "it. The narrower, the better."
)


def table(comparison: Comparison) -> str:
    """The section as HTML; empty where nothing can be promised."""
    found = {m: s["promises"] for m, s in comparison.summaries.items() if s.get("promises") and m in comparison.methods}
    if not found:
        return ""
    if comparison.task == "classification":
        risks = [entry["risk"] for entry in next(iter(found.values()))["abstention"]]
        heads = [f"given, ≤ {100 * risk:.0f} % wrong" for risk in risks] + [
            "classes in a 95 % set",
            "which held the truth",
        ]
        rows = {
            m: [_kept(e) for e in p["abstention"]] + [f"{p['sets']['size']:.2f}", _percent(p["sets"]["coverage"])]
            for m, p in found.items()
        }
        words = ABSTAINING
    else:
        heads = ["width of a 90 % interval", "which held the truth"]
        rows = {m: [f"{p['intervals']['width']:.4g}", _percent(p["intervals"]["coverage"])] for m, p in found.items()}
        words = INTERVALS
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in ("method", *heads))
    body = "".join(
        f'<tr><th scope="row">{escape(m)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for m, cells in rows.items()
    )
    return (
        '<section><h2>What can be promised?</h2><div class="scroll" tabindex="0" role="region" '
        f'aria-label="Promises of each method"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f'<p class="note">{escape(words)}</p></section>'
    )


def _kept(entry: dict[str, Any]) -> str:
    if not entry["kept"]:
        return "–"
    return f"{100 * entry['kept']:.0f} % ({100 * entry['wrong']:.1f} % wrong)"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
