"""Draw the README's picture: python docs/pictures.py"""

from pathlib import Path

import torch
from matplotlib.figure import Figure

import posterity

FOLDER = Path(__file__).parent / "images"


def regression() -> None:
    """A curve seen in two places: the network alone, and as a distribution over functions."""
    torch.manual_seed(0)
    x = torch.cat([torch.rand(40, 1) - 1.5, torch.rand(40, 1) + 0.5])
    y = torch.sin(4 * x) + 0.15 * torch.randn(80, 1)
    grid = torch.linspace(-3.5, 3.5, 400)[:, None]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, method, title in zip(
        panels, (posterity.MAP, posterity.IBNN), ("the network", "its posterior (iBNN)"), strict=True
    ):
        network = posterity.networks.MLP(1, 1, hidden=(64, 64), activation="relu")
        posterior = method(network, seed=0)
        posterity.fit(posterior, (x, y), posterity.Gaussian(), epochs=1000, seed=0, progress=False)
        prediction = posterity.predict(posterior, grid, 200, torch.Generator().manual_seed(0))
        low, high = prediction.interval(0.9)
        axes.fill_between(grid[:, 0], low[:, 0], high[:, 0], color="C0", alpha=0.2, lw=0, label="90 % interval")
        functions = posterior.draw(8, torch.Generator().manual_seed(1))(grid).detach()
        for function in functions:
            axes.plot(grid[:, 0], function[:, 0], color="C0", lw=0.6, alpha=0.6)
        axes.plot(grid[:, 0], prediction.mean[:, 0], color="C0", lw=1.8, label="mean")
        axes.scatter(x[:, 0], y[:, 0], s=8, color="black", zorder=3, label="data")
        axes.set(title=title, ylim=(-3, 3), xlabel="x")
    panels[0].set_ylabel("y")
    panels[1].legend(frameon=False, loc="upper center", ncols=3, fontsize=8)
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / "regression.png", dpi=130)


if __name__ == "__main__":
    regression()
