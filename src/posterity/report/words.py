"""What a comparison found, in sentences for a reader who does not know the scores."""

from posterity.report.comparison import SCORES, Comparison
from posterity.wording import listed, number

WORTH_A_WORD = 0.02
"""An ECE up to this is no reason to distrust a confidence, however many rows show it."""
RISES = 1.05
"""Times the uncertainty of inputs as they are, from which it is said to rise: less is written as 1.0."""
ROUNDING = 1e-9
SEEDS = 5
"""With fewer, Student's t has so wide tails that only large differences between trainings are beyond chance."""


def choice(comparison: Comparison) -> str | None:
    """The method to use: of those whose NLL cannot be told from the lowest, the one that trains in the least time."""
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
    sentences = [_use(comparison, name), *sentences, *_price(comparison, name)]
    return [*sentences, *_trainings(comparison), *_caution(comparison, name)]


def _use(comparison: Comparison, name: str) -> str:
    """Which method to use, and why that one."""
    alike = comparison.tied("nll")
    if len(alike) > 1:
        seconds = comparison.value(name, "train_seconds")
        why = "has the lowest" if seconds is None else f"is the quickest to train ({number(seconds, 2)} s)"
        values = _span(comparison, alike, "nll")
        tested = ", tested at the 5 % level" if " to " in values else ""
        return f"Use {name} here: {listed(alike)} cannot be told apart (NLL {values}{tested}), and {name} {why}."
    kind, verb = (
        ("probabilities", "fit") if comparison.task == "classification" else ("predictive distribution", "fits")
    )
    best = f"Use {name} here: its {kind} {verb} the truth best"
    if comparison.seeds < 2:
        best = f"Use this {name}: of the networks trained here, its {kind} {verb} rows like these best"
    text = f"{best} (NLL {comparison.written(name, 'nll')}"
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
    how = "best" if comparison.best("auroc_outside") else "equally well, as far as can be told"
    values = _span(comparison, alike, "auroc_outside")
    return [f"{listed(alike)} {verb} {comparison.outside} {how} (AUROC {values})."]


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
    better = comparison.differ(name, "map", "nll_calibrated")
    if worth is not None and better and name != "ensemble" and worth > 1:
        largest = len(comparison.summaries.get("ensemble", {}).get("sizes") or ())
        least = "at least " if worth == largest else ""
        sentences.append(f"Its calibrated probabilities are worth {least}{worth:.1f} networks trained apart.")
    return sentences


def _trainings(comparison: Comparison) -> list[str]:
    """What so few seeds cannot say: with one where something is said to be best, with some where nothing is."""
    score = "error" if comparison.task == "classification" else "rmse"
    if 1 < comparison.seeds < SEEDS and len(comparison.tied("nll")) > 1:
        return [f"With {comparison.seeds} seeds only large differences between methods can be told."]
    if comparison.seeds > 1 or not any(comparison.best(name) for name in ("nll", score, "auroc_outside")):
        return []
    return [
        "All this compares the networks trained here, one of each method: whether a method would be ahead if trained "
        f"again, only more seeds show (--seeds {SEEDS})."
    ]


def miscalibrated(comparison: Comparison, name: str) -> bool:
    """Whether the ECE is above what a calibrated model has on as many rows in 95 of 100 cases.

    With several seeds both are means over them, which makes the test the stricter.
    """
    off, limit = comparison.value(name, "ece"), comparison.value(name, "ece_limit")
    return off is not None and limit is not None and off > (1 + ROUNDING) * limit


def too_narrow(comparison: Comparison, name: str) -> bool:
    """Whether the 90 % intervals hold fewer truths than right ones do on as many rows in 97.5 of 100 cases."""
    covered, least = comparison.value(name, "coverage90"), comparison.value(name, "coverage90_low")
    return covered is not None and least is not None and covered < (1 - ROUNDING) * least


def _by_chance(comparison: Comparison, name: str) -> str:
    """The ECE of a calibrated model on the same rows, in words."""
    expected, limit = (SCORES["ece"].text(comparison.value(name, score)) for score in ("ece_expected", "ece_limit"))
    return f"{expected} on so many rows, and by more than {limit} once in twenty times"


def _caution(comparison: Comparison, name: str) -> list[str]:
    """When not to trust even the best."""
    sentences = []
    off = comparison.value(name, "ece")
    if off is not None and off > WORTH_A_WORD and miscalibrated(comparison, name):
        sentences.append(
            f"The confidence of {name} is off by {comparison.written(name, 'ece')}, where that of a calibrated model "
            f"would seem off by {_by_chance(comparison, name)}: do not take it as a rate."
        )
    covered = comparison.value(name, "coverage90")
    if covered is not None and covered < 0.85 and too_narrow(comparison, name):
        least = SCORES["coverage90"].text(comparison.value(name, "coverage90_low"))
        sentences.append(
            f"The 90 % intervals of {name} hold only {comparison.written(name, 'coverage90')} of the truths, where "
            f"right ones would hold at least {least}: they are too narrow."
        )
    noticed = comparison.value(name, "auroc_outside_limit")
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
                warns = rises if unsure >= RISES else "its uncertainty hardly rises, so it does not warn you"
                told = f"{words.format(line['strength'])}, {name} is {how.format(*written)}; {warns}."
                return [told.replace("%", " %")]
    return []


def _alone(comparison: Comparison) -> list[str]:
    sentences = []
    for name in comparison.methods:
        if comparison.value(name, "error") is not None:
            sentences.append(
                f"{name} is wrong in {comparison.written(name, 'error')} of cases{_confidence(comparison, name)}."
            )
        elif comparison.value(name, "rmse") is not None:
            ends = [comparison.value(name, f"coverage90_{end}") for end in ("low", "high")]
            right = " to ".join(SCORES["coverage90"].text(end) for end in ends)
            sentences.append(
                f"{name} typically misses by {comparison.written(name, 'rmse')} (in the target's units), and "
                f"its 90 % intervals hold the truth in {comparison.written(name, 'coverage90')} of cases"
                + ("." if None in ends else f" (right ones: {right} on so many rows, in 95 of 100 cases).")
            )
    return sentences


def _confidence(comparison: Comparison, name: str) -> str:
    """The end of a sentence: how far the stated confidence is off, and whether that is more than chance."""
    if comparison.value(name, "ece") is None:
        return ""
    off = comparison.written(name, "ece")
    if comparison.value(name, "ece_limit") is None:
        return f", and its ECE is {off}"
    chance = f"a calibrated model's would seem off by {_by_chance(comparison, name)}"
    if miscalibrated(comparison, name):
        return f", and its confidence is off by {off}: {chance}"
    return f"; its confidence is calibrated as far as so many rows can tell: off by {off}, and {chance}"
