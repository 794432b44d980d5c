"""Small tables: what can be promised with each method, and which of its uncertainties tells the unfamiliar."""

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from posterity.evaluation.promises import INTERVALS as LEVEL
from posterity.evaluation.promises import SETS
from posterity.report.comparison import Comparison
from posterity.wording import listed, number

ABSTAINING = (
    "The test data were halved. One half set a threshold: answers more uncertain than that are withheld, so that at "
    "most the stated share of those given is wrong, with 95 % confidence{chosen}. The other half shows the share of "
    "answers given, and of these the share that was wrong. A dash means that it cannot be promised: there are too few "
    "data, or too many of the answers are wrong however certain. A set holds the true class in at least 95 % of "
    "cases{chosen}; the fewer classes it needs, the better."
)
INTERVALS = (
    "The test data were halved. One half stretched or shrank the method's intervals so that they hold the truth in at "
    "least 90 % of cases{chosen}, whatever the method is worth; the other half shows their mean width and how often "
    "they held it. The narrower, the better."
)
CHOSEN = ", whichever of the {count} methods you choose by this table"


MEASURES = {
    "total": "total",
    "epistemic": "epistemic",
    "aleatoric": "aleatoric",
    "confidence": "1 − confidence",
    "energy": "energy",
}


def promises(comparison: Comparison) -> str:
    """What was promised from one half of the data, and kept on the other; empty where nothing can be promised."""
    asked = [m for m, s in comparison.summaries.items() if s.get("promises") and m in comparison.methods]
    found = {m: p for m in asked if (p := _guaranteed(comparison.summaries[m], len(asked)))}
    if not found:
        return ""
    first = next(iter(found.values()))
    if comparison.task == "classification":
        given = {entry["risk"] for p in found.values() for entry in p["abstention"] if entry["kept"]}
        risks = sorted(given | {round(1 - SETS, 2)})
        heads = [f"given, ≤ {100 * entry['risk']:.0f} % wrong" for entry in first["abstention"]] + [
            "classes in a 95 % set",
            "which held the truth",
        ]
        rows = {m: [_kept(e) for e in p["abstention"]] + _sets(p["sets"]) for m, p in found.items()}
        words = ABSTAINING
    else:
        risks = [round(1 - LEVEL, 2)]
        heads = ["width of a 90 % interval", "which held the truth"]
        rows = {m: [number(p["intervals"]["width"]), _percent(p["intervals"]["coverage"])] for m, p in found.items()}
        words = INTERVALS
    words = words.format(chosen=CHOSEN.format(count=len(asked)) if len(asked) > 1 else "")
    return _section("What can be promised?", heads, rows, _few(first.get("rows"), risks) + words)


def _guaranteed(summary: Mapping[str, Any], methods: int) -> dict[str, Any] | None:
    """The guarantees that allow for a choice among so many methods, or the next larger number of them; None without."""
    if methods == 1:
        return dict(summary["promises"])
    known = {int(count): found for count, found in summary.get("promises_among", {}).items()}
    return known.get(min((count for count in known if count >= methods), default=0))


def _sets(found: dict[str, Any]) -> list[str]:
    return ["–", "–"] if found["size"] is None else [f"{found['size']:.2f}", _percent(found["coverage"])]


def _few(rows: int | None, risks: list[float]) -> str:
    """A sentence where so few rows judge a promise that one just kept looks like one with no exception at all.

    That is where two standard errors of the risk r, 2 √(r (1 − r) / rows), are more than r itself.
    """
    unseen = [f"{100 * risk:.0f}" for risk in risks if rows and 2 * math.sqrt(risk * (1 - risk) / rows) > risk]
    if not unseen:
        return ""
    return (
        f"Among the {rows} rows that judge this, a share of {listed(unseen, 'or')} % cannot be seen (two standard "
        "errors are more than that): take it as a hint, not as a result. "
    )


def detection(comparison: Comparison) -> str:
    """AUROC of each kind of uncertainty, and two more scores of the epistemic one; empty without data from outside."""
    found = {
        m: s["outside"]["detection"]
        for m, s in comparison.summaries.items()
        if m in comparison.methods and s.get("outside", {}).get("detection")
    }
    if not found:
        return ""
    measures = [name for name in MEASURES if any(name in scores for scores in found.values())]
    heads = [*(MEASURES[name] for name in measures), "AUPR, epistemic", "FPR at 95 %, epistemic"]
    rows = {
        m: [
            *(f"{scores[name]['auroc']:.3f}" if name in scores else "–" for name in measures),
            f"{scores['epistemic']['aupr']:.3f}",
            _percent(scores["epistemic"]["fpr95"]),
        ]
        for m, scores in found.items()
    }
    words = (
        f"How well each kind of uncertainty tells {comparison.outside} from test data: AUROC, where 1 is always and "
        "0.5 never. AUPR counts the share of real alarms among all; FPR at 95 % is the share of test data under false "
        "alarm when 95 % of the others are found. Where the total does better than its epistemic part, the others are "
        "merely ambiguous to the network, not unknown."
    )
    return _section("Which uncertainty notices the unfamiliar?", heads, rows, words)


def _section(title: str, heads: list[str], rows: dict[str, list[str]], words: str) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in ("method", *heads))
    body = "".join(
        f'<tr><th scope="row">{escape(m)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for m, cells in rows.items()
    )
    return (
        f'<section><h2>{escape(title)}</h2><div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="note">{escape(words)}</p></section>'
    )


def _kept(entry: dict[str, Any]) -> str:
    if not entry["kept"]:
        return "–"
    return f"{100 * entry['kept']:.0f} % ({100 * entry['wrong']:.1f} % wrong)"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
