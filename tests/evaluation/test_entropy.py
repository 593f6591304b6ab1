import math

import jax
import numpy as np
import pytest

from capsjax.evaluation.entropy import routing_entropies, true_class_shares
from capsjax.routing import coupling_entropy
from tests.models.building import build

IMAGES = np.asarray(jax.random.uniform(jax.random.key(0), (5, 12, 12, 1)))


def test_uniform_coupling_has_log_j():
    network = build(
        "gu2021_capsnet_nor", (12, 12, 1), 7, kernel_size=3, width=1 / 32, reconstruction="none"
    )
    entropies = routing_entropies(network, IMAGES)
    assert set(entropies) == {"classes"}
    np.testing.assert_allclose(entropies["classes"], np.full(5, math.log(7)), rtol=1e-5)
    shares = true_class_shares(network, IMAGES, np.eye(7)[[0, 1, 2, 3, 6]])
    np.testing.assert_allclose(shares, np.full(5, 1 / 7), rtol=1e-5)


def test_shares_of_true_classes(capsnet):
    """Over all classes they add up to 1; of several in an image they are the mean."""
    num_classes = capsnet(IMAGES[:1]).scores.shape[-1]
    each = [
        true_class_shares(capsnet, IMAGES, np.eye(num_classes)[[k] * 5]) for k in range(num_classes)
    ]
    np.testing.assert_allclose(np.sum(each, axis=0), 1, rtol=1e-5)
    assert np.ptp(each) > 1e-6
    both = np.eye(num_classes)[[0] * 5] + np.eye(num_classes)[[1] * 5]
    np.testing.assert_allclose(
        true_class_shares(capsnet, IMAGES, both), (each[0] + each[1]) / 2, rtol=1e-5
    )


def test_shares_of_class_numbers(capsnet):
    classes = capsnet(IMAGES[:1]).scores.shape[-1]
    with pytest.raises(ValueError, match=rf"such as np\.eye\({classes}\)\[labels\]; got shape"):
        true_class_shares(
            capsnet, np.zeros((classes, *IMAGES.shape[1:]), np.uint8), np.arange(classes)
        )


def test_batches_of_every_routing(capsnet):
    entropies = routing_entropies(capsnet, IMAGES, batch_size=2)
    assert list(entropies) == ["capsules1", "capsules2", "classes"]
    routed = jax.jit(lambda images: capsnet(images, capture=True).routed)(IMAGES)
    for name, found in entropies.items():
        expected = coupling_entropy(routed[name].coupling).mean(axis=-1)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_network_that_does_not_route(cnn):
    with pytest.raises(ValueError, match="ConvNet routes nothing"):
        routing_entropies(cnn, IMAGES)


def test_coupling_that_is_not_divided_over_parents():
    """In EM routing the last one divides children over classes, a layer below in part only."""
    images, targets = np.zeros((1, 32, 32, 3), np.float32), np.eye(3)[:1]
    options = {"width": 1 / 32, "normalize_over": "receptive_field"}
    network = build("tsai2020_em_cifar10_simple", (32, 32, 3), 3, **options)
    with pytest.raises(ValueError, match=r"conv_caps1: a child.s coupling does not add up"):
        routing_entropies(network, images)
    assert 0 < true_class_shares(network, images, targets) < 1
    network = build("choi2019_mnist", (12, 12, 1), 3, width=1 / 8, reconstruction="none")
    with pytest.raises(ValueError, match=r"classes: .* does not add up to 1"):
        true_class_shares(network, images[:, :12, :12, :1], targets)


def test_attention_routing_divides_parents():
    """The two channels of each layer share a parent."""
    network = build("choi2019_mnist", (12, 12, 1), 3, width=1 / 4, reconstruction="none")
    network.eval()
    entropies = routing_entropies(network, IMAGES)
    routed = jax.jit(lambda images: network(images, capture=True).routed)(IMAGES)
    assert entropies.keys() == routed.keys() == {"conv_caps1", "classes"}
    for name, found in entropies.items():
        coupling = np.asarray(routed[name].coupling, float).reshape(
            5, -1, *routed[name].coupling.shape[-2:]
        )
        expected = -(coupling * np.log(coupling)).sum(axis=-2).mean(axis=(-2, -1))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert (found < math.log(coupling.shape[-2]) - 1e-4).all()
