"""Labels and indices are checked before a GPU meets them; what only a GPU shows is in test_gpu."""

import numpy as np
import pytest
import torch

import posterity
from common import generator, mlp, seeded
from posterity import device_checks, functions, inputs, training

X, ROWS = torch.arange(12.0).view(4, 3), torch.tensor([0, 3])


@pytest.mark.parametrize(
    "taken",
    [
        lambda rows: X[rows],
        lambda rows: X[:, rows - 1],
        lambda rows: X.index_select(0, rows),
        lambda rows: X.gather(0, rows.view(1, 2)),
        lambda rows: X.clone().index_add_(0, rows, torch.ones(2, 3)),
        lambda rows: torch.zeros(4, 3).scatter_add(0, rows.view(2, 1), torch.ones(2, 1)),
        lambda rows: torch.zeros(4, 3).index_put((rows,), torch.ones(2, 3)),
        lambda rows: torch.nn.functional.embedding(rows, X),
    ],
)
def test_a_row_number_that_is_out_of_range_is_found_before_the_operator_runs(taken):
    with device_checks.IndexChecks():
        assert taken(ROWS).isfinite().all()
        with pytest.raises(IndexError, match=r"index (4|3) is out of range for an axis of \1"):
            taken(ROWS + 1)


def test_masks_and_numbers_from_the_end_are_no_mistakes():
    with device_checks.IndexChecks():
        assert len(X[X > 5]) == 6
        assert torch.equal(X[torch.tensor([-4, -1])], X[ROWS])
        with pytest.raises(IndexError, match="index -5"):
            X[torch.tensor([-5])]


def test_in_a_recorded_step_a_label_out_of_range_makes_the_loss_nan_and_others_keep_theirs():
    likelihood, outputs = posterity.Categorical(), torch.randn(2, 4, 3, generator=generator())
    y = torch.tensor([2, 0, -100, 1])
    recorded = torch.compile(likelihood.log_prob, backend="eager", fullgraph=True)
    torch.testing.assert_close(recorded(outputs, y), likelihood.log_prob(outputs, y))
    found = recorded(outputs, torch.tensor([2, 3, -100, -1]))
    assert found.isnan()[0].tolist() == [False, True, False, True]


def test_a_kernel_that_asserted_is_explained():
    with pytest.raises(posterity.Error, match="not below the number of classes"), device_checks.assertions_explained():
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")
    with pytest.raises(torch.AcceleratorError, match="other"), device_checks.assertions_explained():
        raise torch.AcceleratorError("CUDA error: other")


def test_a_device_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert training.find_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(posterity.Error, match="no cuda:7 here: the last of 2 CUDA devices is cuda:1"):
        training.find_device("cuda:7")


def test_whole_numbers_of_rare_types_become_usual_ones():
    for x in (np.array([1, 65_535], np.uint16), torch.tensor([1, 65_535], dtype=torch.uint16)):
        assert inputs.as_tensors(x).dtype == torch.int64
        assert inputs.as_tensors(x).tolist() == [1, 65_535]


@pytest.mark.parametrize("saves", [True, False])
def test_exported_functions_hold_no_operator_of_vmap_where_torch_cannot_save_it(saves, monkeypatch):
    monkeypatch.setattr(functions, "SAVES_VMAP", saves)
    drawn = posterity.BayesByBackprop(seeded(mlp), seed=0).draw(3, generator=generator())
    x = torch.randn(7, 5, generator=generator())
    program = torch.export.export(drawn, (x,))
    assert any("vmap" in str(node.target) for node in program.graph.nodes) == saves
    torch.testing.assert_close(program.module()(x), drawn(x))
