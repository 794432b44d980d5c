import base64
import functools
import hashlib
import re
from html.parser import HTMLParser

import pytest
import torch

from posterity import evaluation, report
from posterity.prediction import CategoricalPrediction, GaussianPrediction
from posterity.report import Comparison, plots, sections
from posterity.report.comparison import SCORES
from posterity.report.words import verdict

HOSTILE = '<script>alert("x")</script> $\\frac{ & </svg> \' {0} %s \x00\n'


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def curves(score, place=0):
    lines = [
        {"strength": s, score: 0.1 + 0.4 * s + 0.05 * place, "total": 1 + s, "aleatoric": 1.0, "epistemic": s}
        for s in (0.0, 0.5, 1.0)
    ]
    return {"noise": lines, "attack": lines}


def classification(name="digits", classes=("zero", "one", "two"), images=True, **changes):
    y = torch.arange(40) % 3
    summaries, methods = {}, {}
    for index, method in enumerate(("map", "ibnn")):
        prediction = CategoricalPrediction(torch.log_softmax(random(40, 3, seed=index), 1), torch.zeros(40))
        outside = CategoricalPrediction(torch.log_softmax(random(20, 3, seed=9), 1), torch.zeros(20))
        summaries[method] = evaluation.summarise(prediction, y, outside) | {"stress": curves("error", index)}
        summaries[method]["history"] = {"epoch": [1, 2], "nll": [2.0, 1.0], "divergence": [3.0, 4.0]}
        summaries[method]["history"] |= {"validation": [1.5, 2.5], "kept": [3, 1.25]}
        found = evaluation.score(prediction, y)
        methods[method] = found | {f"{score}_std": 0.01 for score in found} | {"train_seconds": 1.5}
        methods[method]["auroc_outside"] = summaries[method]["outside"]["auroc_epistemic"]
    given = {
        "title": name,
        "task": "classification",
        "methods": methods,
        "seeds": 4,
        "data": {"rows": 40},
        "facts": {"command": f"posterity compare {name}"},
        "summaries": summaries,
        "classes": tuple(classes),
        "outside": name,
        "images": random(40, 1, 5, 5) if images else None,
    }
    return Comparison(**(given | changes))


def regression(target="price", **changes):
    y = random(50, 1)
    prediction = GaussianPrediction(random(3, 50, 1, seed=1), random(3, 50, 1, seed=2).exp())
    methods = {
        "map": evaluation.score(prediction, y),
        "bbb": {"rmse": None, "nll": float("nan"), "crps": 1.0},
    }
    summaries = {"map": evaluation.summarise(prediction, y) | {"stress": curves("rmse")}}
    given = {"title": "t", "task": "regression", "methods": methods, "summaries": summaries, "target": target}
    given["rows"] = {index: {"rooms <b>": f"{index}", target: "a & b"} for index in range(50)}
    return Comparison(**(given | changes))


@functools.cache
def rendered():
    return report.page(classification())


class Outline(HTMLParser):
    """Collects tags, addresses and whether the elements close in order."""

    VOID = ("meta", "br", "img", "input", "path", "use", "image", "rect")

    def __init__(self, text):
        super().__init__()
        self.tags, self.stack, self.links, self.ids, self.references = [], [], [], [], []
        self.attributes = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("src", "href", "xlink:href"):
                self.links.append(value)
            if name == "id":
                self.ids.append(value)
            if value:
                self.references += re.findall(r"url\(#([^)]+)\)", value)
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.stack.pop() == tag


@pytest.mark.parametrize("comparison", [classification(), regression()], ids=["classification", "regression"])
def test_page_is_whole_and_asks_nothing_of_the_network(comparison):
    text = report.page(comparison)
    outline = Outline(text)
    assert outline.stack == []
    assert outline.tags.count("script") == 1
    assert not re.search(r"https?://", text)
    assert "@import" not in text
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in outline.links)


def test_the_only_script_that_may_run_sorts_the_table():
    text = report.page(classification())
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    head, body = re.search(r"<thead>(.*?)</thead><tbody>(.*?)</tbody>", text, re.DOTALL).groups()
    assert head.count("<th ") == head.count('<button type="button">') > 3
    for row in body.split("</tr>")[:-1]:
        assert row.count("data-value=") == head.count("<th ")


def test_names_inside_figures_are_unique_and_resolve():
    outline = Outline(rendered())
    assert len(set(outline.ids)) == len(outline.ids)
    targets = outline.references + [link[1:] for link in outline.links if link.startswith("#")]
    assert targets
    assert set(targets) <= set(outline.ids)


def test_hostile_names_stay_text():
    comparison = classification(name=HOSTILE, classes=(HOSTILE, "$$", "<img src=x onerror=alert(1)>"))
    text = report.page(comparison)
    outline = Outline(text)
    assert outline.stack == []
    assert outline.tags.count("script") == 1
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in outline.links)
    assert not any(name.startswith("on") for name in outline.attributes)
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("comparison", [classification(), regression()], ids=["classification", "regression"])
def test_every_figure_is_told_in_words_with_its_numbers(comparison):
    text = report.page(comparison)
    told = re.findall(r'<svg[^>]* role="img" aria-label="([^"]+)"', text)
    assert len(told) == text.count("<svg") > 3
    assert sum(bool(re.search(r"\d", words)) for words in told) >= len(told) - 2  # the strips hold names alone
    assert len(set(told)) == len(told)


def test_the_gallery_goes_from_the_most_certain_to_the_least_with_its_inputs():
    text = report.page(classification())
    items = re.findall(r'<div class="item" data-words="(\d+) of (\d+): says', text)
    assert [int(place) for place, _ in items] == list(range(1, len(items) + 1))
    assert {int(count) for _, count in items} == {len(items)}
    assert text.count('<img src="data:image/png;base64,') == len(items)
    unsure = [float(value) for value in re.findall(r"<p>uncertainty ([\d.e-]+) ", text)]
    assert len(unsure) == len(items)
    assert unsure == sorted(unsure)
    text = report.page(regression())
    assert "<dt>rooms &lt;b&gt;</dt>" in text
    assert "<b>" not in text


def test_a_promise_that_cannot_be_made_is_a_dash_and_one_that_was_made_shows_what_came_of_it():
    made = {"abstention": [{"risk": 0.01, "kept": 0.0, "wrong": None}, {"risk": 0.05, "kept": 0.9, "wrong": 0.02}]}
    made["sets"] = {"size": 1.25, "coverage": 0.96}
    text = report.page(classification(summaries={"map": {"promises": made}}))
    row = re.search(r'<th scope="row">map</th>(.*?)</tr>', text.split("<h2>What can be promised?")[1])[1]
    assert re.findall(r"<td>(.*?)</td>", row) == ["–", "90 % (2.0 % wrong)", "1.25", "96.0 %"]
    assert "What can be promised?" not in report.page(classification(summaries={}))


def test_each_kind_of_uncertainty_is_said_to_tell_the_unfamiliar_or_not():
    comparison = classification()
    found = comparison.summaries["ibnn"]["outside"]["detection"]
    text = report.page(comparison).split("<h2>Which uncertainty notices the unfamiliar?")[1]
    row = re.search(r'<th scope="row">ibnn</th>(.*?)</tr>', text)[1]
    shown = re.findall(r"<td>(.*?)</td>", row)
    assert shown[:4] == [f"{found[name]['auroc']:.3f}" for name in ("total", "epistemic", "aleatoric", "confidence")]
    assert shown[-1] == f"{100 * found['epistemic']['fpr95']:.1f} %"
    assert "Which uncertainty notices" not in report.page(regression())


def test_the_summary_says_at_what_strength_the_chosen_method_breaks():
    sentences = " ".join(verdict(classification()))
    assert "With 50 % of noise mixed in, " in sentences
    assert "times as high" in sentences


def test_hostile_target_stays_text():
    outline = Outline(report.page(regression(target=HOSTILE)))
    assert outline.stack == []
    assert outline.tags.count("script") == 1


def test_every_figure_of_the_task_is_there():
    titles = {make.__name__ for make in sections.SECTIONS if make(classification()) is not None}
    assert titles == {"scores", "reliability", "selection", "inside_outside", "stress", "training", "extremes"}
    titles = {make.__name__ for make in sections.SECTIONS if make(regression()) is not None}
    assert titles == {"scores", "coverage", "predicted_true", "selection", "stress"}


def test_page_without_summaries_still_has_its_table():
    text = report.page(classification(summaries={}, images=False))
    assert "<table>" in text
    assert "Can the confidence" not in text


def test_missing_values_are_dashes_and_never_best():
    comparison = regression()
    assert comparison.written("bbb", "rmse") == "–"
    assert comparison.best("rmse") == set()
    assert comparison.best("crps") == set()  # without rows or seeds nothing tells a difference from chance


def test_whiskers_are_standard_errors():
    comparison = classification()
    assert comparison.standard_error("map", "nll") == pytest.approx(0.01 / 2)
    assert comparison.written("map", "error").endswith(" ± 0.50 %")


def test_a_standard_error_has_the_decimals_of_its_mean():
    def written(value, error):
        return Comparison("t", "regression", {"a": {"rmse": value, "rmse_std": 2 * error}}, seeds=4).written(
            "a", "rmse"
        )

    assert written(21.318, 1.3662) == "21.32 ± 1.37"
    assert written(0.99931, 0.0007) == "0.9993 ± 0.0007"
    assert written(1234567.0, 51234.0) == "1,235,000 ± 51,000"
    assert written(4.567e-05, 1.2e-06) == "4.57e-05 ± 1.2e-06"
    assert written(100.0, 0.5) == "100.0 ± 0.5"


def test_large_numbers_have_commas_and_no_exponents():
    assert [SCORES["rmse"].text(value) for value in (368412.3, 62798.0, 1234.5, 0.0123)] == [
        *("368,400", "62,800", "1234", "0.0123")
    ]
    y = 4e5 + 1e5 * random(50, 1)
    prediction = GaussianPrediction(y[None] + 5e4 * random(3, 50, 1, seed=1), 1e9 * random(3, 50, 1, seed=2).exp())
    summary = evaluation.summarise(prediction, y) | {"stress": curves("rmse")}
    text = report.page(regression(methods={"map": evaluation.scorecard(prediction, y)}, summaries={"map": summary}))
    assert not re.search(r"\de\+\d", text)
    assert re.search(r"says \d{3},\d{3}, 90 % sure of", text)


@pytest.mark.parametrize(("rows", "unseen"), [(20, "1, 5 or 10"), (100, "1"), (400, "")])
def test_few_rows_are_said_to_judge_a_promise_of_classes_poorly(rows, unseen):
    # Two standard errors of a share r are more than r below 4 (1 − r) / r rows: 396, 76 and 36.
    made = {"abstention": [{"risk": risk, "kept": 0.9, "wrong": 0.0} for risk in (0.01, 0.05, 0.1)], "rows": rows}
    made["sets"] = {"size": 1.25, "coverage": 0.96}
    text = report.page(classification(summaries={"map": {"promises": made}}))
    said = re.findall(rf"Among the {rows} rows that judge this, a share of (.*?) % cannot be seen", text)
    assert said == ([unseen] if unseen else [])
    for entry in made["abstention"]:
        entry["kept"] = 0.0  # nothing was promised but the sets, of 5 %
    text = report.page(classification(summaries={"map": {"promises": made}}))
    assert ("a share of 5 % cannot be seen" in text) == (rows == 20)
    assert "a share of 1" not in text


@pytest.mark.parametrize(("rows", "few"), [(35, True), (37, False)])
def test_few_rows_are_said_to_judge_intervals_poorly(rows, few):
    made = {"intervals": {"width": 123456.0, "coverage": 1.0}, "rows": rows}
    text = report.page(regression(summaries={"map": {"promises": made}}))
    assert ("a share of 10 % cannot be seen" in text) == few
    assert "<td>123,500</td>" in text


def test_a_coin_is_not_said_to_notice_anything():
    methods = {"map": {"nll": 1.0, "auroc_outside": 0.5}, "ibnn": {"nll": 2.0, "auroc_outside": 0.3}}
    assert "notices" not in " ".join(verdict(Comparison("t", "classification", methods)))


def test_verdict_of_one_method_says_how_wrong_it_is():
    def sentence(task="classification", **scores):
        (only,) = verdict(Comparison("t", task, {"map": scores}))
        return only

    scores = {"error": 0.1, "ece": 0.04, "nll": 0.3}
    assert sentence(**scores) == "map is wrong in 10.00 % of cases, and its ECE is 4.00 %."
    chance = (
        "a calibrated model's would seem off by 3.00 % on so many rows, and by more than 5.00 % once in twenty times."
    )
    assert sentence(**scores, ece_expected=0.03, ece_limit=0.05) == (
        "map is wrong in 10.00 % of cases; its confidence is calibrated as far as so many rows can tell: off by "
        f"4.00 %, and {chance}"
    )
    assert sentence(**scores | {"ece": 0.06}, ece_expected=0.03, ece_limit=0.05) == (
        f"map is wrong in 10.00 % of cases, and its confidence is off by 6.00 %: {chance}"
    )
    scores = {"rmse": 2.0, "coverage90": 0.8}
    start = "map typically misses by 2.000 (in the target's units), and its 90 % intervals hold the truth in 80.00 %"
    assert sentence("regression", **scores) == f"{start} of cases."
    assert sentence("regression", **scores, coverage90_low=0.75, coverage90_high=1.0) == (
        f"{start} of cases (right ones: 75.00 % to 100.00 % on so many rows, in 95 of 100 cases)."
    )


def test_writing_replaces_the_file_and_leaves_nothing_else(tmp_path):
    path = report.write(classification(), tmp_path / "report.html")
    report.write(regression(), path)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert "regression" in path.read_text(encoding="utf-8")


def test_a_name_that_no_encoding_takes_is_still_written(tmp_path):
    path = report.write(classification(name="half \udcff"), tmp_path / "report.html")
    assert "half ?" in path.read_text(encoding="utf-8")


def test_figures_follow_the_readers_theme():
    text = rendered()
    assert "currentColor" in text
    assert "prefers-color-scheme:dark" in text
    assert "var(--series-1)" in text


def test_drawing_leaves_matplotlib_as_it_was():
    import matplotlib

    before = dict(matplotlib.rcParams)
    report.page(classification())
    assert dict(matplotlib.rcParams) == before


def test_the_page_says_how_to_load_the_best_model_what_it_costs_and_when_not_to_trust_it():
    scores = {"nll": 0.5, "error": 0.1, "ece": 0.2, "auroc_outside": 0.6, "train_seconds": 10.0}
    scores |= {"ece_expected": 0.03, "ece_limit": 0.05, "auroc_outside_limit": 0.7}
    evidence = {name: {"nll": {0: [nll + 0.01 * random(50).numpy()]}} for name, nll in (("map", 0.5), ("ibnn", 0.4))}
    methods = {"map": scores, "ibnn": scores | {"nll": 0.4, "train_seconds": 25.0}}
    comparison = Comparison("t", "classification", methods, evidence=evidence)
    text = report.page(comparison)
    assert "models/ibnn" in text
    assert "ibnn takes 2.5 times as long to train as map." in text
    assert "do not take it as a rate" in text
    assert "does not reliably notice" in text
    fine = scores | {"ece": 0.01, "auroc_outside": 0.95, "auroc_outside_limit": 0.96}
    methods = {"map": scores, "ibnn": fine | {"nll": 0.4}}
    text = report.page(Comparison("t", "classification", methods, evidence=evidence))
    assert "do not take it as a rate" not in text
    assert "does not reliably notice" not in text


def test_what_a_method_is_worth_is_a_bound_where_it_is_as_good_as_the_largest_ensemble():
    scores = {"nll": 0.5, "nll_std": 0.001, "nll_calibrated": 0.5, "nll_calibrated_std": 0.001, "train_seconds": 10.0}
    methods = {"map": scores, "ibnn": scores | {"nll": 0.4, "nll_calibrated": 0.4}}
    for worth, words in ((5.0, "are worth at least 5.0 networks"), (3.2, "are worth 3.2 networks")):
        found = methods | {"ibnn": methods["ibnn"] | {"ensemble_equivalent": worth}}
        summaries = {"ensemble": {"sizes": [0.5, 0.48, 0.46, 0.44, 0.42]}}
        comparison = Comparison("t", "classification", found, seeds=3, summaries=summaries)
        assert words in " ".join(verdict(comparison))


def test_the_epoch_that_was_kept_is_marked():
    comparison = classification()
    figure = plots.training(comparison.summaries, {"map": 0, "ibnn": 1})
    assert "Kept, as the best on rows held out, was the epoch of map 3, ibnn 3." in figure.get_label()
    marked = [line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert marked == [[[3.0, 1.25]]] * 2  # which may lie between the epochs of the curve
    assert "with a dot" in sections.training(comparison).words
    for summary in comparison.summaries.values():
        summary["history"]["validation"] = []
        del summary["history"]["kept"]
    assert "dashed" not in sections.training(comparison).words
    figure = plots.training(comparison.summaries, {"map": 0, "ibnn": 1})
    assert len(figure.axes[0].lines) == 2
    assert "Kept" not in figure.get_label()
