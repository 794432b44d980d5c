import pytest
from torch import nn

from posterity.papers import sizes
from posterity.papers.reproduction import Bench, Entry, reproduce


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("sizes"))
    return reproduce(Entry("ibnn-table-1", "Weights and nodes", sizes.table_1), bench)


@pytest.mark.parametrize(
    ("network", "weights", "nodes"),
    [
        ("LeNet", 41_806, 207),
        ("AlexNet", 61_100_840, 18_307),
        ("VGG16-small", 15_245_130, 5_251),
        ("VGG16-large", 138_357_544, 36_995),
        ("ResNet50", 25_557_032, 24_579),
        ("WideResNet-28x10", 36_489_290, 9_475),
    ],
)
def test_weights_and_nodes_are_those_of_the_architectures(outcome, network, weights, nodes):
    assert (outcome.numbers[network]["weights"], outcome.numbers[network]["nodes"]) == (weights, nodes)


def test_only_lenet_differs_from_the_printed_table(outcome):
    wrong = [line for line in outcome.findings if "differs" in line]
    assert len(wrong) == 1
    assert wrong[0].startswith("LeNet")
    assert "23 nodes printed, 207 counted" in wrong[0]
    assert "1,800 weights a node printed, 202 counted" in wrong[0]
    row = outcome.tables[0].rows[0]
    assert row[0] == "LeNet"
    assert row[-2:] == ["1800×", "202×"]


def test_counting_allocates_nothing_and_follows_the_rule_of_ibnn():
    seen = []

    def build():
        seen.append(nn.Sequential(nn.Conv2d(3, 7, 3), nn.Flatten(), nn.Linear(28, 5), nn.BatchNorm1d(5)))
        return seen[0]

    assert sizes.count(build) == {"weights": 7 * 28 + 29 * 5 + 10, "noisy_layers": 2, "nodes": 3 + 28}
    assert {parameter.device.type for parameter in seen[0].parameters()} == {"meta"}


def test_findings_follow_the_numbers():
    counted = {name: {"weights": 10_000_000, "noisy_layers": 1, "nodes": 10} for name in sizes.PUBLISHED}
    said = sizes.findings(counted)
    assert sum("differs from the paper" in line for line in said) == len(sizes.PUBLISHED)
    assert "1,000,000" in said[-1]
