"""Tables of what was measured: each method's contenders over the fastest library that offers it."""

from typing import Any

from benchmarks.measure import ratios
from benchmarks.peers.contract import DROPOUT, ENSEMBLE, MEAN_FIELD
from benchmarks.peers.driver import Entry

WHATS = ("fresh", "once", "step")
OWN, PLAIN = "posterity", "posterity: torch"
#: The most that a prediction may cost over the fastest library's, by method: draws made in the call, and before it.
AIMS = {MEAN_FIELD: {"fresh": 1.0, "once": 0.6}, DROPOUT: {"fresh": 1.0, "once": 0.6}, ENSEMBLE: {"fresh": 1.1}}

Seconds = dict[str, dict[str, list[float]]]


def tables(entries: list[Entry], seconds: Seconds, peaks: dict[str, float]) -> dict[str, Any]:
    """By method, the fastest library (`base`) and a row for every contender; and how the aims are met."""
    methods = {}
    for method in dict.fromkeys(entry.method for entry in entries):
        group = [entry for entry in entries if entry.method == method]
        bases = {what: fastest(group, seconds[what]) for what in ("fresh", "step")}
        rows = {
            entry.name: {what: row(entry.name, what, seconds, bases) for what in WHATS} | {"memory": peaks[entry.name]}
            for entry in group
        }
        methods[method] = {"base": bases, "rows": rows}
    return {"methods": methods, "aims": aims(methods)}


def fastest(group: list[Entry], seconds: dict[str, list[float]]) -> str:
    """The fastest contender of another library; where none offers the method, the plain network in plain torch."""
    others = [entry.name for entry in group if entry.library != OWN and entry.name in seconds]
    return min(others, key=lambda name: sorted(seconds[name])[len(seconds[name]) // 2], default=PLAIN)


def row(name: str, what: str, seconds: Seconds, bases: dict[str, str]) -> dict[str, float] | None:
    """Ratio with quartiles, and milliseconds; draws made before are compared with the fastest that makes them."""
    if name not in seconds[what]:
        return None
    against = "step" if what == "step" else "fresh"
    base = seconds[against].get(bases[against])
    if base is None:
        return None
    return ratios({name: seconds[what][name], "base": base}, "base")[name]


def aims(methods: dict[str, Any]) -> list[dict[str, Any]]:
    """What each of posterity's methods may cost over the fastest library that offers it, and what it does."""
    found = []
    for method, limits in AIMS.items():
        rows = methods.get(method, {"rows": {}})["rows"]
        for what, most in limits.items():
            found += [
                {"contender": name, "what": what, "most": most, "ratio": values[what]["ratio"]}
                for name, values in rows.items()
                if name.startswith(OWN) and values[what] and len(rows) > 1
            ]
    return found


def text(content: dict[str, Any]) -> str:
    """The same for a terminal."""
    lines = []
    for method, table in content["methods"].items():
        lines.append(f"{method}, over {table['base']['fresh']} (steps: {table['base']['step']})")
        for name, values in table["rows"].items():
            cells = "  ".join(f"{what} {_cell(values[what])}" for what in WHATS)
            lines.append(f"  {name:<46} {cells}  {values['memory']:6.1f} MiB")
    for name, about in content["libraries"].items():
        taken = about.get("import")
        lines.append(f"import {name}: " + (f"{taken['seconds']:.3f} s" if taken else f"left out, {about['error']}"))
    lines += [f"left out: {name}, {why}" for name, why in content["failed"].items()]
    for aim in content["aims"]:
        kept = "held" if aim["ratio"] <= aim["most"] else "MISSED"
        lines.append(f"aim {aim['contender']}, {aim['what']}: at most {aim['most']}, is {aim['ratio']:.2f}: {kept}")
    return "\n".join(lines)


def _cell(values: dict[str, float] | None) -> str:
    if values is None:
        return f"{'–':^30}"
    return f"{values['ms']:7.1f} ms {values['ratio']:5.2f} ({values['low']:.2f}–{values['high']:.2f})"
