"""What a comparison found, in sentences for a reader who does not know the scores."""

from posterity.report.comparison import SCORES, Comparison


def verdict(comparison: Comparison) -> list[str]:
    """Sentences: whose probabilities to trust, who is right most often, who notices the unfamiliar."""
    if len(comparison.methods) < 2:
        return _alone(comparison)
    sentences = []
    by_nll = _winner(comparison, "nll")
    accuracy = "error" if comparison.task == "classification" else "rmse"
    by_accuracy = _winner(comparison, accuracy)
    if by_nll is not None:
        kind = "probabilities" if comparison.task == "classification" else "predictive distribution"
        verb = "fit" if comparison.task == "classification" else "fits"
        text = f"Use {by_nll} here: its {kind} {verb} the truth best (NLL {comparison.written(by_nll, 'nll')}"
        if "map" in comparison.methods and by_nll != "map" and comparison.value("map", "nll") is not None:
            text += f"; a plain network, map, has {comparison.written('map', 'nll')}"
        sentences.append(f"{text}).")
    if by_accuracy is not None:
        what = "makes the fewest mistakes" if accuracy == "error" else "misses by the least"
        who = "It also" if by_accuracy == by_nll else by_accuracy
        sentences.append(f"{who} {what} ({SCORES[accuracy].label} {comparison.written(by_accuracy, accuracy)}).")
    by_outside = _winner(comparison, "auroc_outside")
    if by_outside is not None and (comparison.value(by_outside, "auroc_outside") or 0) > 0.5:
        sentences.append(
            f"{by_outside} notices {comparison.outside} best (AUROC {comparison.written(by_outside, 'auroc_outside')})."
        )
    if sentences and _too_close(comparison):
        sentences.append("The best two differ by less than their standard errors in NLL: take them as equal.")
    if by_nll is not None:
        sentences += _price(comparison, by_nll) + _caution(comparison, by_nll)
    return sentences


def _price(comparison: Comparison, name: str) -> list[str]:
    """What a method costs beside the plain network."""
    own, plain = (
        comparison.value(method, "train_seconds") if method in comparison.methods else None for method in (name, "map")
    )
    if name == "map" or own is None or not plain:
        return []
    sentences = [f"{name} takes {own / plain:.1f} times as long to train as map."]
    worth = comparison.value(name, "ensemble_equivalent")
    if worth is not None and name != "ensemble" and worth > 1:
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


def _winner(comparison: Comparison, score: str) -> str | None:
    best = comparison.best(score)
    return next((name for name in comparison.methods if name in best), None)


def _too_close(comparison: Comparison) -> bool:
    """Whether the two lowest NLLs are within the standard error of their difference."""
    ranked = sorted(
        (value, comparison.standard_error(name, "nll"))
        for name in comparison.methods
        if (value := comparison.value(name, "nll")) is not None
    )
    if comparison.seeds < 2 or len(ranked) < 2:
        return False
    (first, a), (second, b) = ranked[:2]
    return second - first < (a**2 + b**2) ** 0.5
