import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import posterity
from common import generator
from posterity import evaluation, plots
from posterity.errors import Error
from posterity.history import History
from posterity.prediction import BernoulliPrediction, CategoricalPrediction, GaussianPrediction

Figure = pytest.importorskip("matplotlib.figure").Figure


def classification(n: int = 200, classes: int = 4, seed: int = 0) -> tuple[CategoricalPrediction, Tensor]:
    g = generator(seed)
    y = torch.randint(classes, (n,), generator=g)
    outputs = torch.randn(n, classes, generator=g) + 1.5 * nn.functional.one_hot(y, classes)
    outputs = 2 * outputs + torch.randn(6, n, classes, generator=g)
    return CategoricalPrediction.gather([outputs], posterity.Categorical()), y


def regression(n: int = 150, outputs: int = 1, seed: int = 0) -> tuple[GaussianPrediction, Tensor]:
    g = generator(seed)
    means = torch.randn(n, outputs, generator=g) + 0.3 * torch.randn(7, n, outputs, generator=g)
    variances = 0.2 + torch.rand(1, n, outputs, generator=g).expand(7, -1, -1)
    y = means[0] + variances[0].sqrt() * torch.randn(n, outputs, generator=g)
    return GaussianPrediction(means, variances), y


def posterior(components: int = 3, likelihood: posterity.Likelihood | None = None, outputs: int = 3) -> posterity.IBNN:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs))
    made = posterity.IBNN(network, components, init_std=0.5, seed=0)
    made.likelihood = likelihood or posterity.Categorical()
    return made


def blobs(n: int = 90) -> tuple[Tensor, Tensor]:
    y = torch.arange(n) % 3
    return torch.randn(n, 2, generator=generator(1)) + torch.tensor([[0.0, 2.0], [2.0, 0.0], [-2.0, -2.0]])[y], y


def every_figure() -> dict[str, Figure]:
    (p, y), (q, _) = classification(), classification(seed=1)
    r, t = regression()
    history = History([{"epoch": e, "nll": 1.0 / e, "divergence": 2.0 * e} for e in (1, 2, 3)])
    stress = {"strengths": [0, 1], "error": [0.1, 0.4], "aleatoric": [0.1, 0.2], "epistemic": [0.0, 0.3]}
    return {
        "reliability": plots.reliability({"map": p, "ibnn": q}, y),
        "entropies": plots.entropies(p, q),
        "risk_coverage": plots.risk_coverage({"a": p, "b": q}, y),
        "under_stress": plots.under_stress(stress),
        "fan": plots.fan(torch.linspace(-1, 1, len(r)), r, functions=3),
        "interval_calibration": plots.interval_calibration(r, t),
        "extremes": plots.extremes(p, torch.rand(len(p), 3, 4, 4, generator=generator()), y),
        "components": plots.components(posterior(), *blobs(), resolution=5),
        "training": plots.training(history),
    }


def test_every_figure_is_described_labelled_and_can_be_written_as_svg() -> None:
    for name, figure in every_figure().items():
        assert isinstance(figure, Figure)
        label = figure.get_label()
        assert label.endswith("."), name
        assert len(label) > 40, name
        assert "nan" not in label, name
        assert any(axes.get_xlabel() for axes in figure.axes), name
        assert any(axes.get_ylabel() for axes in figure.axes), name
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg")
        assert "<svg" in buffer.getvalue(), name


def test_notebooks_show_a_figure_without_pyplot() -> None:
    figure = plots.reliability(*classification())
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_matplotlib_is_loaded_when_a_figure_is_made_and_pyplot_never() -> None:
    code = (
        f"import io, sys; sys.path[:0] = {[p for p in sys.path if p]!r}\n"
        "import torch, posterity.plots as plots; assert 'matplotlib' not in sys.modules\n"
        "from posterity.prediction import GaussianPrediction as P\n"
        "plots.fan(torch.arange(4.), P(torch.randn(3, 4, 1), torch.ones(3, 4, 1))).savefig(io.BytesIO())\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reliability_bars_are_the_bins_and_counts_sum_to_the_data() -> None:
    (p, y), (q, _) = classification(), classification(seed=1)
    figure = plots.reliability({"a": p, "b": q}, y, bins=10)
    for column, prediction in enumerate((p, q)):
        bins = evaluation.reliability(prediction.probs, y, 10)
        filled = bins.share > 0
        upper, lower = figure.axes[column], figure.axes[2 + column]
        assert [bar.get_height() for bar in upper.patches] == pytest.approx(bins.accuracy[filled].tolist())
        assert [bar.get_x() for bar in upper.patches] == pytest.approx((filled.nonzero().flatten() / 10).tolist())
        assert sum(bar.get_height() for bar in lower.patches) == len(y)
        dots = next(line for line in upper.lines if line.get_marker() == "o")
        assert dots.get_xdata() == pytest.approx(bins.confidence[filled].numpy())
    assert f"ECE {evaluation.ece(q.probs, y, 10):.3f}" in figure.axes[1].get_title()


def test_reliability_leaves_out_what_is_not_observed() -> None:
    p, y = classification()
    y[:50] = p.ignore
    figure = plots.reliability(p, y)
    assert sum(bar.get_height() for bar in figure.axes[1].patches) == len(y) - 50


def test_reliability_of_yes_and_no_and_of_many_panels() -> None:
    probs = torch.rand(40, 1, generator=generator())
    yes = BernoulliPrediction(probs, torch.zeros(40, 1))
    y = (probs > 0.5).long().flatten()
    assert len(plots.reliability({str(i): yes for i in range(5)}, y).axes) == 10
    assert "ECE" in plots.reliability(yes, y).axes[0].get_title()


@pytest.mark.parametrize("part", ["total", "aleatoric", "epistemic"])
def test_entropy_histograms_hold_every_datum_once(part: str) -> None:
    (p, _), (q, _) = classification(), classification(80, seed=1)
    figure = plots.entropies(p, q, part=part, bins=12)
    inside, outside = (patch.get_data() for patch in figure.axes[0].patches)
    for found, prediction in ((inside, p), (outside, q)):
        expected, _ = np.histogram(getattr(prediction, part).double().numpy(), bins=found.edges)
        assert found.values == pytest.approx(expected / len(prediction))
        assert found.values.sum() == pytest.approx(1)
    auroc = evaluation.auroc(getattr(p, part), getattr(q, part))
    assert f"{auroc:.3f}" in figure.axes[0].get_title()


def test_histograms_of_a_regression_are_of_standard_deviations() -> None:
    (p, _), (q, _) = regression(outputs=2), regression(outputs=2, seed=1)
    figure = plots.entropies({"m": p}, {"m": q})
    assert "standard deviation" in figure.axes[0].get_xlabel()
    inside = figure.axes[0].patches[0].get_data()
    deviations = p.total.double().mean(1).sqrt().clamp(max=inside.edges[-1])
    assert inside.values == pytest.approx(np.histogram(deviations.numpy(), inside.edges)[0] / len(p))


def test_rounding_is_not_taken_for_epistemic_uncertainty() -> None:
    log_probs = torch.randn(50, 4, generator=generator(), dtype=torch.float64).log_softmax(1)
    entropy = -(log_probs.exp() * log_probs).sum(1)
    inside, outside = CategoricalPrediction(log_probs, entropy), CategoricalPrediction(log_probs, entropy - 1e-7)
    assert "AUROC 0.500" in plots.entropies(inside, outside, part="epistemic").axes[0].get_title()


def test_risk_coverage_is_what_a_loop_over_answers_finds() -> None:
    p, y = classification(60)
    line = plots.risk_coverage(p, y).axes[0].lines[0]
    order = sorted(range(60), key=lambda i: float(p.total[i]))
    wrong = [float(p.probs[i].argmax() != y[i]) for i in order]
    for share, risk in zip(line.get_xdata(), line.get_ydata(), strict=True):
        kept = round(float(share) * 60)
        assert float(risk) == pytest.approx(sum(wrong[:kept]) / kept)
    assert float(line.get_xdata()[-1]) == 1
    assert len(line.get_xdata()) == 59


def test_risk_coverage_of_a_regression_is_the_rmse_of_those_kept() -> None:
    p, y = regression(40)
    line = plots.risk_coverage({"a": p}, y, part="aleatoric").axes[0].lines[0]
    order = p.aleatoric.flatten().argsort()
    squares = (p.mean - y).flatten()[order].square()
    assert float(line.get_ydata()[19]) == pytest.approx(float(squares[:20].mean().sqrt()), rel=1e-5)


def test_under_stress_stacks_the_parts() -> None:
    records = [
        {"severity": float(s), "error": 0.1 * s, "nll": 9.0, "total": 0.3 + s, "aleatoric": 0.2, "epistemic": 0.1 + s}
        for s in range(4)
    ]
    figure = plots.under_stress({"ibnn": records, "map": plots.Stress.of(records)}, strength="severity")
    accuracy, first, _ = figure.axes
    assert list(accuracy.lines[0].get_ydata()) == pytest.approx([1, 0.9, 0.8, 0.7])
    assert list(first.lines[0].get_ydata()) == pytest.approx([0.3, 1.3, 2.3, 3.3])
    lower, upper = (fill.get_paths()[0].vertices[:, 1] for fill in first.collections)
    assert (lower.min(), lower.max()) == pytest.approx((0, 0.2))
    assert (upper.min(), upper.max()) == pytest.approx((0.2, 3.3))
    assert first.get_xlabel() == "severity"
    assert plots.Stress([1, 2], [0, 0], [1, 1], [2, 3]).total == (3, 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"strengths": [1, 0]}, "rising order"),
        ({"strengths": []}, "for each of the 0"),
        ({"error": [0.5, 1.5]}, "between 0 and 1"),
        ({"error": [0.5]}, "one number for each"),
        ({"error": ["x", 0]}, "list of numbers"),
        ({"epistemic": [float("nan"), 0]}, "not finite"),
        ({"epistemic": [-0.1, 0]}, "not be negative"),
        ({"total": [3, 3]}, "their sum"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused(change: dict[str, list[float]], words: str) -> None:
    good = {"strengths": [0, 1], "error": [0.1, 0.4], "aleatoric": [0.1, 0.2], "epistemic": [0.0, 0.3]}
    with pytest.raises(Error, match=words):
        plots.under_stress(good | change)


def test_curves_of_another_kind_are_refused() -> None:
    with pytest.raises(Error, match="epistemic"):
        plots.under_stress([{"eps": 0.0, "error": 0.1, "aleatoric": 0.1}])
    for curves in ([], 3, {}, {"a": 3}):
        with pytest.raises(Error, match="curve"):
            plots.under_stress(curves)


def test_fan_bands_are_the_mean_and_multiples_of_the_deviations() -> None:
    p, _ = regression(30)
    x = torch.randperm(30, generator=generator()).double()
    figure = plots.fan(x, p, deviations=(1, 3))
    order = x.argsort()
    mean = p.mean.flatten().double()[order]
    bands = figure.axes[0].collections
    parts = [(p.total, 3), (p.total, 1), (p.epistemic, 3), (p.epistemic, 1)]
    for band, (variance, k) in zip(bands, parts, strict=True):
        reach = k * variance.flatten().double()[order].sqrt()
        vertices = band.get_paths()[0].vertices
        for i in (0, 7, 29):
            ys = vertices[vertices[:, 0] == i][:, 1]
            assert (ys.min(), ys.max()) == pytest.approx((float(mean[i] - reach[i]), float(mean[i] + reach[i])))
    aleatoric, epistemic = (line.get_ydata() for line in figure.axes[1].lines)
    assert aleatoric == pytest.approx(p.aleatoric.flatten()[order].sqrt().numpy(), rel=1e-5)
    assert epistemic == pytest.approx(p.epistemic.flatten()[order].sqrt().numpy(), rel=1e-5)


def test_fan_shows_data_and_functions_of_the_chosen_output() -> None:
    p, y = regression(20, outputs=2)
    x = torch.arange(20.0).unsqueeze(1)
    lines = plots.fan(x, p, (x, y[:, 1]), functions=7, output=1).axes[0].lines
    assert len(lines) == 7 + 2
    assert lines[3].get_ydata() == pytest.approx(p.means[3, :, 1].numpy())
    assert lines[8].get_ydata() == pytest.approx(y[:, 1].numpy())
    given = torch.randn(2, 20, 1, generator=generator())
    line = plots.fan(-x, p, functions=given).axes[0].lines[1]
    assert line.get_ydata() == pytest.approx(given[1, :, 0].flip(0).numpy())


def test_interval_calibration_is_the_coverage_of_intervals() -> None:
    (p, y), (q, _) = regression(), regression(seed=1)
    figure = plots.interval_calibration({"a": p, "b": q}, y, levels=torch.tensor([0.3, 0.8]))
    for line, prediction in zip(figure.axes[0].lines[1:], (p, q), strict=True):
        for level, share in zip(line.get_xdata(), line.get_ydata(), strict=True):
            low, high = prediction.interval(float(level))
            assert share == pytest.approx(float(((y >= low) & (y <= high)).double().mean()))
    assert figure.legends
    assert not plots.interval_calibration(p, y).legends


def test_extremes_show_images_in_order_with_their_probabilities() -> None:
    p, y = classification(30)
    images = torch.rand(30, 1, 5, 5, generator=generator())
    grid = np.array(plots.extremes(p, images, y, n=3, top=2, names=["ant", "bee", "cat", "dog"]).axes).reshape(4, 3)
    order = p.total.argsort()
    for row, expected in ((0, order[:3]), (2, order.flip(0)[:3])):
        for column, index in enumerate(expected.tolist()):
            assert np.allclose(grid[row, column].images[0].get_array(), images[index, 0])
            bars = grid[row + 1, column]
            probs, classes = p.probs[index].topk(2)
            assert [bar.get_width() for bar in bars.patches] == pytest.approx(probs.tolist())
            words = [text.get_text() for text in bars.get_yticklabels()]
            assert words == [("ant", "bee", "cat", "dog")[c] for c in classes]


def test_extremes_scale_standardised_images_together_and_keep_colours() -> None:
    p, _ = classification(6)
    images = torch.randn(6, 3, 4, 4, generator=generator())
    axes = plots.extremes(p, images, n=6).axes[0]
    expected = (images - images.min()) / (images.max() - images.min())
    assert np.allclose(axes.images[0].get_array(), expected[p.total.argmin()].permute(1, 2, 0))
    yes = BernoulliPrediction(torch.rand(6, 1, generator=generator()), torch.zeros(6, 1))
    bars = plots.extremes(yes, images[:, 0], torch.ones(6), n=1).axes[1].patches
    assert [bar.get_width() for bar in bars] == pytest.approx(sorted(_both(yes), reverse=True))


def _both(yes: BernoulliPrediction) -> list[float]:
    p = float(yes.probs[yes.total.argmin()])
    return [p, 1 - p]


@torch.no_grad()
def direct(model: posterity.IBNN, noise: Tensor, x: Tensor) -> Tensor:
    """The network's outputs with the noise of one point, by hand."""
    first, last = model.network[0], model.network[2]
    return last(torch.tanh(first(x * noise[:2])) * noise[2:])


def test_components_lie_on_the_surface_with_the_loss_of_their_means() -> None:
    model, (x, y), (u, v) = posterior(), blobs(), blobs(60)
    found = plots.landscape(model, x, y, (u, v), resolution=9)
    assert found.explained == pytest.approx(1)
    for k, noise in enumerate(model.means.detach()):
        loss = nn.functional.cross_entropy(direct(model, noise, x), y)
        error = (direct(model, noise, u).argmax(1) != v).double().mean()
        assert found.own[k].tolist() == pytest.approx([float(loss), float(error)], rel=1e-4)
    plain = nn.functional.cross_entropy(direct(model, torch.ones(model.nodes), x), y)
    assert found.own[3, 0] == pytest.approx(float(plain), rel=1e-4)
    distances = torch.cdist(found.positions, found.positions)
    assert torch.allclose(distances, torch.cdist(model.means, model.means).double(), atol=1e-4)
    centre = model.means.detach().double().mean(0)
    to_nodes = torch.linalg.lstsq(found.positions, model.means.detach().double() - centre).solution
    for row, column in ((0, 0), (2, 7), (8, 3)):
        place = torch.stack([found.axes[0][column], found.axes[1][row]])
        noise = (centre + place @ to_nodes).float()
        loss = nn.functional.cross_entropy(direct(model, noise, x), y)
        assert found.loss[row, column] == pytest.approx(float(loss), rel=1e-3)


def test_the_drawn_surface_meets_the_components() -> None:
    model, (x, y) = posterior(), blobs()
    figure = plots.components(model, x, y, resolution=41)
    found = plots.landscape(model, x, y, resolution=41)
    panel = figure.axes[0]
    dots = next(c for c in panel.collections if len(c.get_offsets()) == 3)
    assert np.allclose(dots.get_offsets(), found.positions)
    assert np.allclose(dots.get_array(), found.own[:3, 0])
    a, b = (axis.numpy() for axis in found.axes)
    for (p, q), own in zip(found.positions.tolist(), found.own[:3, 0].tolist(), strict=True):
        rows = [np.interp(p, a, row) for row in found.loss.numpy()]
        assert np.interp(q, b, rows) == pytest.approx(own, rel=0.02)
    assert panel.get_title() == "training loss"
    assert figure.axes[1].get_title() == "training error"


def test_components_need_no_random_numbers_and_leave_them_alone() -> None:
    model, (x, y) = posterior(5), blobs()
    state = torch.get_rng_state()
    first, second = (plots.landscape(model, x, y, resolution=4, rows=20) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.loss, second.loss)
    assert torch.equal(first.positions, second.positions)
    assert 0 < first.explained < 1


def test_components_of_a_regression_show_the_rmse_and_of_yes_and_no_the_share_wrong() -> None:
    x, y = blobs()
    model = posterior(2, posterity.Gaussian(std=0.5), outputs=1)
    found = plots.landscape(model, x, y.float(), resolution=3)
    off = direct(model, model.means[1].detach(), x).squeeze(1) - y
    assert found.own[1, 1] == pytest.approx(float(off.square().mean().sqrt()), rel=1e-4)
    assert plots.components(model, x, y.float(), resolution=3).axes[-1].get_ylabel() == "RMSE"
    model = posterior(2, posterity.Bernoulli(), outputs=1)
    found = plots.landscape(model, x, (y > 0).float(), resolution=3)
    wrong = (direct(model, model.means[0].detach(), x).squeeze(1) > 0) != (y > 0)
    assert found.own[0, 1] == pytest.approx(float(wrong.double().mean()))


def test_a_flat_surface_is_drawn_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    model, (x, _) = posterior(), blobs()
    with torch.no_grad():
        model.network[2].weight.zero_()
    plots.components(model, x, torch.zeros(len(x), dtype=torch.long), resolution=4).savefig(io.BytesIO())
    assert not [w for w in recwarn if "contour" in str(w.message).lower()]


def test_components_that_span_no_plane_are_refused() -> None:
    x, y = blobs()
    with pytest.raises(Error, match="at least two"):
        plots.components(posterior(1), x, y)
    model = posterior(2)
    with torch.no_grad():
        model.means[1] = model.means[0]
    with pytest.raises(Error, match="same place"):
        plots.components(model, x, y)
    with torch.no_grad():
        model.means[1] = 2 - model.means[0]
    with pytest.raises(Error, match="one line"):
        plots.components(model, x, y)
    with pytest.raises(Error, match="IBNN"):
        plots.components(posterity.MAP(nn.Linear(2, 3)), x, y)
    with pytest.raises(Error, match="as many answers"):
        plots.components(posterior(), x, y[:-1])
    with pytest.raises(Error, match="pair"):
        plots.components(posterior(), x, y, test=x)


def test_training_curves_are_those_of_the_history() -> None:
    history = History([{"epoch": e, "nll": 1.0 / e, "divergence": 2.0} for e in (1, 2, 3)])
    history.best = 2
    figure = plots.training(history)
    assert list(figure.axes[0].lines[0].get_ydata()) == history.column("nll")
    assert "epoch 2 were kept" in figure.get_label()
    for bad in (History(), [{"epoch": 1}]):
        with pytest.raises(Error, match=r"no epochs|History"):
            plots.training(bad)


def test_the_wrong_kind_of_prediction_is_refused() -> None:
    (p, y), (r, t) = classification(), regression()
    x, images = torch.arange(200.0), torch.rand(200, 4, 4)
    calls = [
        lambda: plots.reliability(r, t),
        lambda: plots.interval_calibration(p, y),
        lambda: plots.fan(x, p),
        lambda: plots.extremes(r, images[:150]),
        lambda: plots.entropies(p, r),
        lambda: plots.risk_coverage({"p": p, "r": r}, y),
    ]
    for call in calls:
        with pytest.raises(Error, match="real numbers"):
            call()
    for call in (lambda: plots.reliability(p.probs, y), lambda: plots.risk_coverage([p], y), lambda: plots.fan(x, 3)):
        with pytest.raises(Error, match=r"posterity\.predict"):
            call()
    for call in (lambda: plots.fan(x, {"a": r}), lambda: plots.extremes({"a": p}, images)):
        with pytest.raises(Error, match="one prediction"):
            call()
    with pytest.raises(Error, match="no prediction"):
        plots.reliability({}, y)
    with pytest.raises(Error, match="same names"):
        plots.entropies({"a": p}, {"b": p})
    with pytest.raises(Error, match="part must be"):
        plots.entropies(p, p, part="both")


def test_shapes_that_do_not_fit_are_refused() -> None:
    (p, y), (r, t) = classification(), regression()
    x, images = torch.arange(150.0), torch.rand(200, 1, 4, 4)
    cases = {
        "200 predictions": [
            lambda: plots.reliability(p, y[:-1]),
            lambda: plots.extremes(p, images, y[:5]),
            lambda: plots.extremes(p, images[:5]),
        ],
        "do not fit": [
            lambda: plots.risk_coverage(p, torch.zeros(200, 3)),
            lambda: plots.interval_calibration(r, t.repeat(1, 2)),
        ],
        "one number for each row": [
            lambda: plots.fan(x[:-1], r),
            lambda: plots.fan(torch.zeros(150, 2), r),
            lambda: plots.fan(x, r, (x, x[:3])),
            lambda: plots.fan(x, r, functions=torch.zeros(2, 3)),
        ],
        "values \\[n, batch\\]": [lambda: plots.fan(x, r, functions=x)],
        "pair": [lambda: plots.fan(x, r, x)],
        "no output": [lambda: plots.fan(x, r, output=1)],
        "positive": [lambda: plots.fan(x, r, deviations=(0,))],
        "three channels": [
            lambda: plots.extremes(p, torch.rand(200, 2, 4, 4)),
            lambda: plots.extremes(p, torch.rand(200, 9)),
        ],
        "one colour": [lambda: plots.extremes(p, torch.ones(200, 1, 4, 4))],
        "4 classes but 2 names": [lambda: plots.extremes(p, images, names=["a", "b"])],
        "Levels": [lambda: plots.interval_calibration(r, t, levels=torch.tensor([0.5, 1.0]))],
        "class indices": [lambda: plots.reliability(p, y + 0.5)],
        "not observed": [lambda: plots.reliability(p, torch.full((200,), -100))],
    }
    for words, calls in cases.items():
        for call in calls:
            with pytest.raises(Error, match=words):
                call()
    with pytest.raises(Error, match="not finite"):
        plots.interval_calibration(GaussianPrediction(r.means, r.variances * float("nan")), t)
