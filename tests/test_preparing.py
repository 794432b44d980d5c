"""What comes as it is in a file is prepared alike, wherever a posterior that keeps its preprocessing takes inputs."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

import posterity
from posterity import diagnostics
from posterity.datasets import tables

ROWS = 60


@pytest.fixture(scope="module")
def trained():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(50, 10, ROWS), "b": random.normal(0, 0.1, ROWS)})
    frame["y"] = 20 * frame.a + 300 * frame.b + random.normal(0, 5, ROWS)
    table = {name: frame[name].to_numpy() for name in frame}
    data = tables.load("made", table, "y", "regression", 0)
    network = torch.nn.Sequential(
        torch.nn.Linear(2, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    posterior = posterity.MCDropout(network, seed=0)
    posterity.fit(posterior, data.train, posterity.Gaussian(), epochs=20, seed=0, progress=False)
    posterior.preprocessing = data.preprocessing
    return posterior, frame


def means(posterior, x):
    return posterity.predict(posterior, x, seed=0).mean


def test_frames_arrays_rows_and_lists_are_the_same(trained):
    posterior, frame = trained
    rows = frame[["a", "b"]]
    expected = means(posterior, rows)
    for given in (rows.to_numpy(), rows.to_numpy().tolist(), rows.to_dict("records")):
        torch.testing.assert_close(means(posterior, given), expected)
    part = rows.to_dict("records")
    del part[0]["b"]
    with pytest.warns(UserWarning, match="'b': 1 of 60 rows have no value"):
        torch.testing.assert_close(means(posterior, part)[1:], expected[1:])


def test_normalised_and_distilled_they_are_prepared_too(trained):
    posterior, frame = trained
    rows = frame[["a", "b"]].to_numpy()
    ready = posterior.preprocessing.inputs(rows)
    torch.testing.assert_close(
        means(posterity.Normalised(posterior, rows), rows), means(posterity.Normalised(posterior, ready), rows)
    )
    students = [
        posterity.distil(posterior, copy.deepcopy(posterior.network), x, epochs=1, seed=0, progress=False)
        for x in (rows, ready, (rows, frame.y.to_numpy()))
    ]
    for student in students[1:]:
        torch.testing.assert_close(means(students[0], rows), means(student, rows))


def test_training_takes_what_prediction_takes(trained):
    posterior, frame = trained
    rows, y = frame[["a", "b"]].to_numpy(), frame.y.to_numpy()
    ready = posterior.preprocessing.inputs(rows), posterior.preprocessing.targets(y)
    found = []
    for data in ((rows, y), (frame[["a", "b"]], frame.y), (rows, ready[1]), ready):
        again = copy.deepcopy(posterior)
        posterity.fit(again, data, epochs=2, seed=0, progress=False, validation=data)
        found.append(means(again, rows))
    for other in found[1:]:
        torch.testing.assert_close(found[0], other)


def test_diagnostics_take_them_with_answers_in_their_own_units(trained):
    posterior, frame = trained
    rows, y = frame[["a", "b"]].to_numpy(), frame.y.to_numpy()
    ready, scaled = posterior.preprocessing.inputs(rows), posterior.preprocessing.targets(y)
    seeds = [torch.Generator().manual_seed(0) for _ in range(2)]
    assert diagnostics.check(posterior, rows, y, generator=seeds[0]) == diagnostics.check(
        posterior, ready, scaled, generator=seeds[1]
    )
    numbers = [
        diagnostics.effective_number(posterior, x, generator=torch.Generator().manual_seed(0)) for x in (rows, ready)
    ]
    assert numbers[0] == pytest.approx(numbers[1])


def test_what_cannot_be_prepared_is_told(trained):
    posterior, _ = trained
    for wrong in ([[1.0, 2.0], [3.0]], np.ma.masked_array(np.ones((2, 2)), [[True, False], [False, False]])):
        with pytest.raises(posterity.Error):
            posterity.predict(posterior, wrong)


def test_a_check_of_raw_rows_takes_raw_answers_of_any_kind():
    plain = posterity.MAP(torch.nn.Linear(2, 1))
    plain.likelihood = posterity.Gaussian()
    with pytest.raises(posterity.Error, match="keeps no preprocessing"):
        diagnostics.check(plain, "rows.csv", np.zeros(3))
    random = np.random.default_rng(0)
    table = {"a": random.normal(0, 1, ROWS)}
    table["y"] = np.where(table["a"] > 0, "high", "low")
    data = tables.load("made", table, "y", "classification", 0)
    network = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    named = posterity.MCDropout(network, layers="2", rate=0.2)
    posterity.fit(named, data.train, epochs=20, seed=0, progress=False)
    named.preprocessing = data.preprocessing
    rows, numbers = table["a"][:, None], data.preprocessing.targets(table["y"])
    expected = diagnostics.check(named, rows, numbers, generator=torch.Generator().manual_seed(0))
    assert diagnostics.check(named, rows, table["y"], generator=torch.Generator().manual_seed(0)) == expected


def test_a_frame_of_any_library_is_read_by_its_names():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(50, 9, 40), "b": rng.normal(size=40)})
    model = posterity.PosteriorRegressor("map", epochs=2, random_state=0).fit(frame, 3 * frame["a"])

    class Frame:
        """What a frame has that is not of pandas."""

        columns = ("b", "a")

        def __getitem__(self, name):
            return frame[name].to_numpy()

        def to_numpy(self):
            return frame[["b", "a"]].to_numpy()

    expected = posterity.predict(model.posterior_, frame).mean
    torch.testing.assert_close(posterity.predict(model.posterior_, Frame()).mean, expected)
