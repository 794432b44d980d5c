"""What becomes of a prediction as its inputs get worse."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posterity.errors import Error, require
from posterity.plots.common import layout, legend, listing, panels
from posterity.report.canvas import INK, color, described, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRENGTHS = ("strength", "severity", "eps")
"""What a record may call the strength."""


@dataclass(frozen=True)
class Stress:
    """A classification at several strengths of a corruption or an attack; each field has one number per strength."""

    strengths: Sequence[float]
    """How strong, in the corruption's own units, in rising order."""
    error: Sequence[float]
    """The share of wrong answers."""
    aleatoric: Sequence[float]
    """Mean aleatoric uncertainty, in nats."""
    epistemic: Sequence[float]
    """Mean epistemic uncertainty, in nats."""
    total: Sequence[float] | None = None
    """Mean predictive entropy, in nats: the sum of the two parts, which it is by default."""

    def __post_init__(self) -> None:
        if self.total is None:
            object.__setattr__(self, "total", [a + e for a, e in zip(self.aleatoric, self.epistemic, strict=False)])
        for name in ("strengths", "error", "aleatoric", "epistemic", "total"):
            object.__setattr__(self, name, _numbers(getattr(self, name), name))
            if len(getattr(self, name)) != len(self.strengths):
                raise Error(f"{name} must hold one number for each of the {len(self.strengths)} strengths.")
        if not self.strengths or any(b <= a for a, b in zip(self.strengths, self.strengths[1:], strict=False)):
            raise Error("strengths must be one or more numbers in rising order.")
        if not all(0 <= value <= 1 for value in self.error):
            raise Error("error must hold shares of wrong answers, between 0 and 1.")
        assert self.total is not None
        parts = zip(self.total, self.aleatoric, self.epistemic, strict=True)
        if any(min(a, e) < 0 or abs(t - a - e) > 1e-3 * max(1.0, t) for t, a, e in parts):
            raise Error("The parts of the uncertainty must not be negative, and total must be their sum.")

    @classmethod
    def of(cls, curve: Any) -> "Stress":
        """From a Stress, a mapping of its fields, or records such as `evaluation` makes, one for each strength.

        A record holds `error`, `aleatoric`, `epistemic` and, as `strength`, `severity` or `eps`, the strength.
        """
        if isinstance(curve, Stress):
            return curve
        if isinstance(curve, Mapping):
            columns = curve
        elif isinstance(curve, Sequence) and curve and all(isinstance(line, Mapping) for line in curve):
            key = next((key for key in STRENGTHS if key in curve[0]), STRENGTHS[0])
            keys = {"strengths": key, **{name: name for name in ("error", "aleatoric", "epistemic", "total")}}
            columns = {name: [line.get(k) for line in curve] for name, k in keys.items() if k in curve[0]}
        else:
            raise Error(f"A curve is a Stress, a mapping of its fields, or a list of records; got {curve!r:.80}.")
        missing = {"strengths", "error", "aleatoric", "epistemic"} - set(columns)
        if missing:
            raise Error(f"A curve needs {', '.join(sorted(missing))} too: one number for each strength.")
        return cls(**{name: columns[name] for name in cls.__dataclass_fields__ if name in columns})


def under_stress(curves: Any, *, strength: str = "strength") -> "Figure":
    """Accuracy against the strength of a corruption or an attack, and a panel each of entropy, split in two parts.

    Below is the aleatoric part, on top of it the epistemic one; their sum is the predictive entropy (Trinh et al. 2020,
    figure 8).

    Args:
        curves: a `Stress`, a mapping of its fields or a list of records (see `Stress.of`), or several of these by name
        strength: what the axis is called, with its unit
    """
    one = not isinstance(curves, Mapping) or "strengths" in curves
    found = {str(name): Stress.of(curve) for name, curve in ({"": curves} if one else curves).items()}
    if not found:
        raise Error("There is no curve to plot.")
    rows, columns = layout(1 + len(found))
    with panels(rows, columns, 3.1 * columns, 0.5 + 2.7 * rows) as (figure, grid):
        first, *rest = grid.flat
        for place, (name, curve) in enumerate(found.items()):
            right = [1 - value for value in curve.error]
            first.plot(curve.strengths, right, "o-", markersize=4, color=color(place), label=short(name, 16))
        first.set(ylim=(0, 1.02), xlabel=short(strength, 30), ylabel="accuracy (share right)", title="accuracy")
        if len(found) > 1:
            first.legend(fontsize=8)
        top = 1.05 * max(max(curve.total or (0.0,)) for curve in found.values()) or 1.0
        for place, (axes, (name, curve)) in enumerate(zip(rest, found.items(), strict=False)):
            stack(axes, curve, color(place))
            axes.set(ylim=(0, top), xlabel=short(strength, 30), ylabel="mean entropy (nats)")
            axes.set_title(short(name, 20) or "uncertainty")
        for axes in rest[len(found) :]:
            axes.remove()
        legend(figure, keys())
    ends = {name: f"{1 - curve.error[0]:.3g} to {1 - curve.error[-1]:.3g}" for name, curve in found.items()}
    rise = {name: f"{curve.total[0]:.3g} to {curve.total[-1]:.3g}" for name, curve in found.items() if curve.total}
    return described(
        figure,
        f"Accuracy and predictive entropy, split into aleatoric and epistemic parts, against {strength}.",
        f"From the weakest to the strongest, accuracy goes from {listing(ends)}; entropy in nats from {listing(rise)}.",
    )


def stack(axes: Any, curve: Stress, paint: str) -> None:
    """The aleatoric part from zero, the epistemic one on it, and their sum as a line."""
    style = {"color": paint, "linewidth": 0}
    axes.fill_between(curve.strengths, 0, curve.aleatoric, alpha=0.3, **style)
    axes.fill_between(curve.strengths, curve.aleatoric, curve.total, alpha=0.75, **style)
    axes.plot(curve.strengths, curve.total, "o-", color=INK, markersize=3, linewidth=1.2)
    axes.margins(x=0.03)


def keys() -> list[Any]:
    """Grey samples: in each panel light is aleatoric and dark epistemic, in the colour of its curve."""
    patch: Any = require("matplotlib.patches").Patch
    line: Any = require("matplotlib.lines").Line2D
    return [
        patch(color=INK, alpha=0.25, linewidth=0, label="aleatoric"),
        patch(color=INK, alpha=0.6, linewidth=0, label="epistemic"),
        line([], [], color=INK, marker="o", markersize=3, linewidth=1.2, label="total"),
    ]


def _numbers(values: Any, name: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise Error(f"{name} must be a list of numbers, one for each strength.") from error
    if not all(map(math.isfinite, numbers)):
        raise Error(f"{name} holds numbers that are not finite.")
    return numbers
