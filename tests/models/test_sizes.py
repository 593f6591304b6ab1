"""Numbers of parameters: published, following from published text, or of sizes chosen here."""

import pytest

from capsjax.training.state import num_parameters
from tests.models.building import outline


def count(name, input_shape=None, num_classes=None, **overrides):
    """Number of parameters of the network `name`, without the memory for them."""
    return num_parameters(outline(name, input_shape, num_classes, **overrides))


CAPSNET = 8_215_568


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("sabour2017_capsnet", CAPSNET),
        ("gu2021_capsnet", 13_475_648),
        ("gu2021_capsnet_nor", 13_475_648),
        ("gu2021_aff_capsnet", 7_578_688),
        ("gu2021_aff_capsnet_dr", 7_578_688),
        ("gu2021_convnet_avg", 5_332_234),
        ("gu2021_convnet_fc", 35_445_522),
        # "The same number of parameters as in CapsNet", and the dense layer's biases
        ("gu2021_convnet_cr", CAPSNET + 160),
        ("gu2021_convnet_cr_sf", CAPSNET + 160),
        ("gu2021_convnet_r", CAPSNET + 160 + 161 * 10),
        ("sabour2017_cnn_multimnist", 24_563_978),
        ("lin2018_capsnet", 11_924_224),  # sizes that were chosen
        ("lin2018_capsnet_deeper", 11_924_224 + 32 * 8 * 32 * 8),
        ("lin2018_cnn", 11_886_090),
        ("lin2018_cnn_deeper", 11_886_090 + 257 * 256),
        ("choi2019_mnist", 5_312_528),
        ("choi2019_affnist", 3_500_832),
        ("choi2019_cifar10", 9_566_336),
        ("choi2019_cifar10_0x16", 7_293_152),
        ("choi2019_cifar10_0x32", 12_637_312),
        ("choi2019_cifar10_1x16", 3_519_840),
        ("choi2019_cifar10_1x32", 7_716_224),
        ("choi2019_cifar10_2x16", 3_678_688),
        ("choi2019_cifar10_2x32", 8_332_928),
        ("choi2019_cifar10_3x16", 3_837_536),
        ("choi2019_cifar10_3x32", 8_949_632),
        ("choi2019_cifar10_4x16", 3_996_384),
        ("tsai2020_cifar10_simple", 561_297),
        ("tsai2020_cifar10_resnet", 1_828_817),
        ("tsai2020_cifar100_simple", 1_462_989),
        ("tsai2020_cifar100_resnet", 2_799_629),
        ("tsai2020_ablation_a", 561_297 - 3 * 32),
        ("tsai2020_ablation_b", 561_297),
        ("tsai2020_ablation_c", 561_297 + 257 * 32 + 2 * (32 + 32 + 10)),
        ("tsai2020_diverse_matrix", 9_963_969),
        ("tsai2020_diverse_vector", 42_478_017),
        ("tsai2020_diverse_matrix_42m", 41_593_281),
        ("tsai2020_em_cifar10_simple", 452_788),
        ("tsai2020_em_cifar100_simple", 499_048),
        ("tsai2020_em_cifar10_resnet", 1_710_580),
        ("tsai2020_em_cifar100_resnet", 1_756_840),
        ("tsai2020_dynamic_cifar10_simple", 7_992_576),
        ("tsai2020_dynamic_cifar100_simple", 31_585_536),
        ("tsai2020_dynamic_cifar10_resnet", 12_451_136),
        ("tsai2020_dynamic_cifar100_resnet", 36_044_096),
        ("tsai2020_dynamic_diverse", 42_478_592),
        ("tsai2020_cnn_cifar10", 18_919_434),
        ("tsai2020_cnn_cifar100", 19_011_684),
        ("tsai2020_cnn_diverse", 19_553_162),
        ("tsai2020_cnn_diverse_dense", 42_490_762),
        ("tsai2020_resnet18_cifar10", 11_173_962),
        ("tsai2020_resnet18_cifar100", 11_220_132),
        # The grid stays small: larger images have no more capsules.
        ("picture_capsnet_64", 3_111_395),
        ("picture_capsnet_96", 2_256_227),
        ("slots_tetrominoes", 157_419),
    ],
)
def test_sizes(name, parameters):
    assert count(name) == parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("efficient_capsnet_mnist", 161_824),
        ("efficient_capsnet_multimnist", 154_656),
        ("efficient_capsnet_smallnorb", 151_664),
        ("sabour2017_capsnet", 6_804_224),
    ],
)
def test_sizes_without_the_decoder(name, parameters):
    """ "161K", "154K", "151K": Mazzia et al. cut off the digits."""
    assert count(name, reconstruction="none") == parameters


def test_sizes_of_options_and_other_images():
    assert count("sabour2017_capsnet", routing_bias=True) == CAPSNET + 160
    # "11.74M parameters" (Choi et al. 2019), less its cut last digits
    assert count("sabour2017_capsnet", (32, 32, 3)) == 11_749_120
    assert count("gu2021_convnet_fc", (28, 28, 1), padding="SAME") == 35_445_522  # beside CapsNet
    # Takes the same input; the widths are chosen, not published.
    capsnet = count("gu2021_capsnet", (36, 36, 1))
    assert count("gu2021_convnet_fc_lk") == pytest.approx(capsnet, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("gu2021_capsnet", {3: 16.1, 5: 14.4, 7: 13.5, 9: 13.5, 11: 14.3}),
        ("gu2021_convnet_fc", {3: 49.5, 7: 25.2, 9: 18.8, 11: 16.19}),
        ("gu2021_convnet_avg", {3: 0.59, 7: 3.23, 11: 7.96}),
    ],
)
def test_published_sizes_of_other_kernels(name, millions):
    """Gu et al. 2021, table 3."""
    near = {"abs": 0.05} if name == "gu2021_capsnet" else {"rel": 0.01}
    for kernel_size, printed in millions.items():
        assert count(name, kernel_size=kernel_size) / 1e6 == pytest.approx(printed, **near)


def test_two_published_sizes_do_not_follow_from_the_text():
    """The other three of ConvNet-Avg do, but for the last digit printed."""
    assert count("gu2021_convnet_avg", kernel_size=5) == 1_647_882  # printed: 1.70M
    assert count("gu2021_convnet_avg", kernel_size=9) == 5_332_234  # printed: 5.30M
