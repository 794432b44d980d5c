import json

import pytest
import torch
from torch import nn

from posterity import networks
from posterity.errors import Error

EVERY = {
    "lenet": {},
    "lenet-caffe": {},
    "mlp": {"inputs": 784, "outputs": 3, "hidden": [5, 4], "activation": "tanh", "dropout": 0.1},
    "preact-resnet": {"depth": 8},
    "resnet": {"depth": 8},
    "resnet50": {"classes": 7},
    "smallconv": {"in_channels": 1, "classes": 4, "size": 8},
    "vgg16": {"dropout": 0.5},
    "wideresnet": {"depth": 10, "width": 1},
}


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def noisy_inputs(network: nn.Module) -> int:
    return sum(
        module.in_features if isinstance(module, nn.Linear) else module.in_channels
        for module in network.modules()
        if isinstance(module, nn.Linear | nn.Conv2d)
    )


@pytest.mark.parametrize(
    ("name", "arguments", "count", "nodes"),
    [
        ("lenet", {}, 41_806, 207),
        ("lenet-caffe", {}, 431_080, 1_321),
        ("vgg16", {}, 15_245_130, 5_251),
        ("vgg16", {"classes": 100}, 15_291_300, 5_251),
        ("wideresnet", {}, 36_489_290, 9_475),
        ("wideresnet", {"classes": 100}, 36_546_980, 9_475),
        ("wideresnet", {"depth": 16, "width": 4}, 2_751_146, 2_019),
        ("resnet", {"depth": 20}, 269_722, None),
        ("resnet", {"depth": 56}, 853_018, None),
        ("resnet50", {}, 25_557_032, 24_579),
    ],
)
def test_sizes_are_the_papers(name, arguments, count, nodes):
    with torch.device("meta"):
        network = networks.create(name, **arguments)
    assert parameters(network) == count
    assert nodes is None or noisy_inputs(network) == nodes


@pytest.mark.parametrize(("width", "times"), [(2, 4), (4, 16), (8, 64)])
def test_lenet_of_twice_the_width_has_about_four_times_the_parameters(width, times):
    assert parameters(networks.LeNet(width=width)) / 41_806 == pytest.approx(times, rel=0.05)


@pytest.mark.parametrize(
    ("name", "arguments", "shape", "classes"),
    [
        ("lenet", {"classes": 7}, (2, 1, 28, 28), 7),
        ("lenet-caffe", {}, (2, 1, 28, 28), 10),
        ("vgg16", {"classes": 5}, (2, 3, 32, 32), 5),
        ("wideresnet", {"depth": 10, "width": 2, "in_channels": 1}, (2, 1, 32, 32), 10),
        ("preact-resnet", {"depth": 8}, (2, 3, 24, 24), 5),
        ("preact-resnet", {"depth": 8, "in_channels": 1}, (2, 1, 9, 14), 5),
        ("resnet", {"depth": 8}, (2, 3, 32, 32), 10),
        ("resnet50", {"classes": 6}, (2, 3, 40, 33), 6),
        ("mlp", {"inputs": 12, "outputs": 3}, (2, 3, 2, 2), 3),
        ("mlp", {"inputs": 4, "outputs": 1, "hidden": []}, (2, 4), 1),
    ],
)
def test_outputs_have_a_row_for_each_input(name, arguments, shape, classes):
    assert networks.create(name, **arguments).eval()(torch.randn(shape)).shape == (2, classes)


@pytest.mark.parametrize("sides", [(8, 8), (9, 12), (28, 28), (31, 17), (64, 64)])
def test_smallconv_takes_any_size(sides):
    network = networks.SmallConv(in_channels=2, classes=3, size=sides)
    assert network(torch.randn(2, 2, *sides)).shape == (2, 3)
    assert network(torch.randn(1, 2, 24, 40)).shape == (1, 3)


def test_wideresnet_stride_sits_on_the_second_convolution_unless_asked():
    authors, usual = networks.WideResNet(10, 1), networks.WideResNet(10, 1, stride_on_first=True)
    assert [authors.blocks[1].conv1.stride, authors.blocks[1].conv2.stride] == [(1, 1), (2, 2)]
    assert [usual.blocks[1].conv1.stride, usual.blocks[1].conv2.stride] == [(2, 2), (1, 1)]
    assert {m.momentum for m in authors.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


def test_vgg_convolutions_start_with_the_fan_out_variance():
    weight = networks.VGG16().features[0].weight
    assert weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=4 / (2 * weight.numel()) ** 0.5)


def test_resnet_keys_are_those_of_the_published_weights():
    keys = set(networks.ResNet(20).state_dict())
    assert {"conv1.weight", "layer2.0.conv1.weight", "layer3.2.bn2.running_var", "linear.bias"} <= keys
    assert not any("shortcut" in key for key in keys)


def test_resnet50_has_the_names_and_shapes_of_torchvisions():
    with torch.device("meta"):
        state = networks.ResNet50().state_dict()
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    assert len(shapes) == 320
    assert {key.split(".")[0] for key in shapes} == {"conv1", "bn1", "layer1", "layer2", "layer3", "layer4", "fc"}
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert shapes["layer1.0.downsample.1.running_mean"] == (256,)
    assert shapes["layer2.3.conv2.weight"] == (128, 128, 3, 3)
    assert shapes["layer3.5.bn3.num_batches_tracked"] == ()
    assert shapes["layer4.0.conv1.weight"] == (512, 1024, 1, 1)
    assert shapes["fc.weight"] == (1000, 2048)
    assert [key for key in shapes if key.endswith("downsample.0.weight")] == [
        f"layer{stage}.0.downsample.0.weight" for stage in (1, 2, 3, 4)
    ]


def test_resnet50_strides_on_the_middle_convolution_and_shrinks_32_times():
    network, sides = networks.ResNet50(classes=2).eval(), []
    for stage in (network.maxpool, network.layer1, network.layer2, network.layer3, network.layer4):
        stage.register_forward_hook(lambda *args: sides.append(args[2].shape[-1]))
    network(torch.zeros(1, 3, 64, 64))
    assert sides == [16, 16, 8, 4, 2]
    assert [m.stride for m in (network.layer2[0].conv1, network.layer2[0].conv2)] == [(1, 1), (2, 2)]


def test_option_a_shortcut_subsamples_and_pads_channels_with_zeros():
    block = networks.ResNet(8).layer2[0].eval()
    nn.init.zeros_(block.bn2.weight)
    x = torch.rand(1, 16, 4, 4)
    expected = torch.zeros(1, 32, 2, 2)
    expected[:, 8:24] = x[:, :, ::2, ::2]
    assert torch.equal(block(x), expected)


@pytest.mark.parametrize("name", networks.names())
def test_a_recipe_survives_json_and_rebuilds_the_same_architecture(name):
    network = networks.create(name, **EVERY[name])
    twin = networks.rebuild(json.loads(json.dumps(network.recipe)))
    assert type(twin) is type(network)
    assert repr(twin) == repr(network)
    twin.load_state_dict(network.state_dict())
    assert twin.recipe == network.recipe


@pytest.mark.parametrize(
    "recipe",
    [
        None,
        {},
        {"name": "lenet"},
        {"name": "lenet", "arguments": {}, "code": "import os"},
        {"name": "os.system", "arguments": {}},
        {"name": ["lenet"], "arguments": {}},
        {"name": "lenet", "arguments": []},
        {"name": "lenet", "arguments": {"clases": 10}},
        {"name": "lenet", "arguments": {"classes": "ten"}},
        {"name": "lenet", "arguments": {"classes": -1}},
        {"name": "lenet", "arguments": {"width": 10**30}},
        {"name": "lenet", "arguments": {"width": 100_000}},
        {"name": "mlp", "arguments": {"inputs": 2, "outputs": 1, "hidden": 3}},
        {"name": "mlp", "arguments": {"inputs": 2, "outputs": 1, "activation": "exec"}},
        {"name": "mlp", "arguments": {"inputs": 2, "outputs": 1, "hidden": [float("nan")]}},
        {"name": "mlp", "arguments": {"inputs": 2, "outputs": 1, "dropout": 2}},
        {"name": "mlp", "arguments": {"inputs": 2, "outputs": 1, "activation": []}},
        {"name": "resnet", "arguments": {"depth": 21}},
        {"name": "resnet", "arguments": {"depth": 600_002}},
        {"name": "wideresnet", "arguments": {"depth": None}},
        {"name": "smallconv", "arguments": {"size": []}},
        {"name": "smallconv", "arguments": {"size": {}}},
        {"name": "lenet", "arguments": {"name": "mlp"}},
    ],
)
def test_a_bad_recipe_is_an_error_that_says_so(recipe):
    with pytest.raises(Error):
        networks.rebuild(recipe)


def test_an_unknown_name_lists_the_names():
    with pytest.raises(Error, match="lenet-caffe"):
        networks.create("lenet5")


def test_unknown_arguments_show_what_is_taken():
    with pytest.raises(Error, match=r"in_channels.*clases"):
        networks.create("lenet", clases=3)
