"""What a comparison found, in sentences for a reader who does not know the scores."""

from posterity.report.comparison import SCORES, Comparison
from posterity.wording import listed, number


def choice(comparison: Comparison) -> str | None:
    """The method to use: of those whose NLL cannot be told from the lowest, the one that trains in the least time.

    That is the one-standard-error rule (Breiman et al., 1984): the cheapest of those that are as good as the best.
    """
    ranked = comparison.ranked("nll")
    seconds = {m: s for m in comparison.tied("nll") if (s := comparison.value(m, "train_seconds")) is not None}
    return min(seconds, key=seconds.__getitem__, default=ranked[0] if ranked else None)


def verdict(comparison: Comparison) -> list[str]:
    """Sentences: whose probabilities to trust, who is right most often, who notices the unfamiliar."""
    if len(comparison.methods) < 2:
        return _alone(comparison)
    name = choice(comparison)
    sentences = _accuracy(comparison, name) + _outside(comparison)
    if name is None:
        return sentences
    return [_use(comparison, name), *sentences, *_price(comparison, name), *_caution(comparison, name)]


def _use(comparison: Comparison, name: str) -> str:
    """Which method to use, and why that one."""
    alike = comparison.tied("nll")
    if len(alike) > 1:
        seconds = comparison.value(name, "train_seconds")
        why = "has the lowest" if seconds is None else f"is the quickest to train ({number(seconds, 2)} s)"
        values = _span(comparison, alike, "nll")
        near = ", within one standard error" if " to " in values else ""
        return f"Use {name} here: {listed(alike)} cannot be told apart (NLL {values}{near}), and {name} {why}."
    kind, verb = (
        ("probabilities", "fit") if comparison.task == "classification" else ("predictive distribution", "fits")
    )
    text = f"Use {name} here: its {kind} {verb} the truth best (NLL {comparison.written(name, 'nll')}"
    if "map" in comparison.methods and name != "map" and comparison.value("map", "nll") is not None:
        text += f"; a plain network, map, has {comparison.written('map', 'nll')}"
    return f"{text})."


def _accuracy(comparison: Comparison, name: str | None) -> list[str]:
    """Who is right most often, or misses by the least."""
    score = "error" if comparison.task == "classification" else "rmse"
    alike = comparison.tied(score)
    if not alike:
        return []
    values = f"{SCORES[score].label} {_span(comparison, alike, score)}"
    if len(alike) > 1 and name in alike:
        better = "makes clearly fewer mistakes" if score == "error" else "misses by clearly less"
        return [f"No other method {better} ({values})."]
    who, ending = ("It also" if alike == [name] else listed(alike)), ("" if len(alike) > 1 else "s")
    most = f"make{ending} the fewest mistakes" if score == "error" else f"miss{ending and 'es'} by the least"
    return [f"{who} {most} ({values})."]


def _outside(comparison: Comparison) -> list[str]:
    """Who notices the unfamiliar, if anyone does."""
    alike = comparison.tied("auroc_outside")
    if not alike:
        return []
    verb = "notices" if len(alike) == 1 else "notice"
    values = _span(comparison, alike, "auroc_outside")
    return [f"{listed(alike)} {verb} {comparison.outside} best (AUROC {values})."]


def _span(comparison: Comparison, names: list[str], score: str) -> str:
    """From the lowest of these methods' values to the highest, or the one that all have."""
    ordered = [name for name in comparison.ranked(score) if name in names]
    low, high = (comparison.written(name, score) for name in (ordered[0], ordered[-1]))
    return low if low == high else f"{low} to {high}"


def _price(comparison: Comparison, name: str) -> list[str]:
    """What a method costs beside the plain network."""
    own, plain = (
        comparison.value(method, "train_seconds") if method in comparison.methods else None for method in (name, "map")
    )
    if name == "map" or own is None or not plain:
        return []
    sentences = [f"{name} takes {own / plain:.1f} times as long to train as map."]
    worth = comparison.value(name, "ensemble_equivalent")
    told = comparison.best("ensemble_equivalent")
    if worth is not None and told and name != "ensemble" and worth > 1:
        sentences.append(f"Its calibrated probabilities are worth {worth:.1f} networks trained apart.")
    return sentences


def _caution(comparison: Comparison, name: str) -> list[str]:
    """When not to trust even the best."""
    sentences = []
    off, covered = comparison.value(name, "ece"), comparison.value(name, "coverage90")
    if off is not None and off > 0.05:
        sentences.append(
            f"The confidence of {name} is still off by {comparison.written(name, 'ece')}: do not take it as a rate."
        )
    if covered is not None and covered < 0.85:
        held = comparison.written(name, "coverage90")
        sentences.append(f"The 90 % intervals of {name} hold only {held} of the truths: they are too narrow.")
    noticed = comparison.value(name, "auroc_outside")
    if noticed is not None and noticed < 0.8:
        sentences.append(f"{name} does not reliably notice {comparison.outside}: do not rely on it there.")
    return sentences + _breaking(comparison, name)


def _breaking(comparison: Comparison, name: str) -> list[str]:
    """The first strength of noise or rotation at which a method fails, and whether it says so."""
    key, most = ("error", 0.1) if comparison.task == "classification" else ("rmse", 0.0)
    for kind, words in {"rotation": "Rotated by {:.0f} degrees", "noise": "With {:.0%} of noise mixed in"}.items():
        curve = comparison.summaries.get(name, {}).get("stress", {}).get(kind, ())
        for line in curve:
            if line[key] > max(2 * curve[0][key], most):
                written = [f"{v:.0%}" if key == "error" else SCORES[key].text(v) for v in (line[key], curve[0][key])]
                how = "{} wrong ({} without it)" if key == "error" else "off by {} ({} without it)"
                unsure = line["total"] / max(curve[0]["total"], 1e-12)
                rises = f"its uncertainty is then {unsure:.1f} times as high"
                warns = rises if unsure > 1 else "its uncertainty does not rise, so it does not warn you"
                told = f"{words.format(line['strength'])}, {name} is {how.format(*written)}; {warns}."
                return [told.replace("%", " %")]
    return []


def _alone(comparison: Comparison) -> list[str]:
    sentences = []
    for name in comparison.methods:
        if comparison.value(name, "error") is not None:
            sentences.append(
                f"{name} is wrong in {comparison.written(name, 'error')} of cases, and what it says of its "
                f"confidence is off by {comparison.written(name, 'ece')} on average."
            )
        elif comparison.value(name, "rmse") is not None:
            sentences.append(
                f"{name} typically misses by {comparison.written(name, 'rmse')} (in the target's units), and "
                f"its 90 % intervals hold the truth in {comparison.written(name, 'coverage90')} of cases."
            )
    return sentences
