"""An error shows a value in a line, however large the value is."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import posterity
from posterity.errors import Error, cut, short

ROWS = [[float(i)] * 3 for i in range(300)]
LARGE = {
    "list": ROWS,
    "tensor": torch.tensor(ROWS),
    "array": np.array(ROWS),
    "text": "x" * 5000,
    "mapping": {str(i): ROWS for i in range(30)},
    "network": torch.nn.Sequential(*[torch.nn.Linear(1, 1) for _ in range(50)]),
}
X = torch.zeros(30, 3)
MODEL = posterity.MAP(torch.nn.Linear(3, 1))
MODEL.likelihood = posterity.Gaussian()
PREDICTION = posterity.predict(MODEL, X)
CALLS = {
    "epochs": lambda v: posterity.fit(MODEL, (X, X[:, :1]), posterity.Gaussian(), epochs=v),
    "lr": lambda v: posterity.fit(MODEL, (X, X[:, :1]), posterity.Gaussian(), lr=v),
    "likelihood": lambda v: posterity.fit(MODEL, (X, X[:, :1]), v),
    "schedule": lambda v: posterity.fit(MODEL, (X, X[:, :1]), posterity.Gaussian(), schedule=v),
    "optimizer": lambda v: posterity.fit(MODEL, (X, X[:, :1]), posterity.Gaussian(), epochs=1, optimizer=v),
    "beta": lambda v: posterity.fit(MODEL, (X, X[:, :1]), posterity.Gaussian(), epochs=1, beta=v),
    "samples": lambda v: posterity.predict(MODEL, X, samples=v),
    "seed": lambda v: posterity.predict(MODEL, X, seed=v),
    "generator": lambda v: MODEL.draw(2, generator=v),
    "rate": lambda v: posterity.MCDropout(torch.nn.Linear(3, 1), rate=v),
    "level": lambda v: PREDICTION.interval(v),
    "coverage": lambda v: posterity.evaluation.conformal_intervals(PREDICTION, X[:, :1], v),
    "network": lambda v: posterity.networks.create("mlp", inputs=v, outputs=1),
    "data": lambda v: posterity.datasets.load("digits", seed=v),
    "task": lambda v: posterity.datasets.load("digits", task=v),
    "options": lambda v: posterity.PosteriorRegressor("map", options=[v]).fit(X.numpy(), np.arange(30)),
    "random_state": lambda v: posterity.PosteriorRegressor(random_state=v).fit(X.numpy(), np.arange(30)),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", LARGE)
def test_an_error_shows_a_large_value_in_a_line(call, kind):
    if (call, kind) in {("optimizer", "network"), ("schedule", "network"), ("beta", "network")}:
        return  # may be called, and so is taken for a function
    with pytest.raises(Error) as found:
        CALLS[call](LARGE[kind])
    assert len(str(found.value)) < 500
    assert "\n" not in str(found.value)


def test_small_values_are_shown_whole_and_large_arrays_by_their_shape():
    values = (0.5, "adam", None, [64, 64], {"components": 8}, torch.tensor(0.5), np.array([0.5, 0.25]))
    assert [short(value) for value in values] == [repr(value) for value in values]
    assert short(torch.zeros(30, 3)) == "Tensor of shape [30, 3]"
    assert short(np.zeros(9)) == "ndarray of shape [9]"
    assert short("x" * 5000).startswith("'xxx")
    assert cut("  two\n lines ") == "two lines"
    assert cut("a" * 500 + "b" * 500, 100) == "a" * 49 + " … " + "b" * 48


def test_no_error_shows_what_it_got_at_full_length():
    source = Path(posterity.__file__).parent
    for path in source.rglob("*.py"):
        assert not re.findall(r"(?:got|not) \{[^{}]*!r\}", path.read_text(encoding="utf-8")), path
