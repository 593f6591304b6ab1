import numpy as np
import pytest

from capsjax.analysis.robustness import AMOUNTS, accuracy_curve
from capsjax.analysis.transformations import FACTORS, motions
from tests.analysis.centroids import Centroids, dots


def test_dots_that_cross_the_middle():
    images = dots((0, -3), (2, -1), (1, 1), (-1, 3))
    labels = np.array([0, 0, 1, 1])
    amounts = [-4, -2, 0, 2, 4]
    curve = accuracy_curve(Centroids(), images, labels, "x", amounts, batch_size=3)
    np.testing.assert_allclose(curve, [0.5, 0.75, 1, 0.75, 0.5])
    curve = accuracy_curve(Centroids(), images, labels, "y", amounts, batch_size=3)
    np.testing.assert_allclose(curve, 1)
    curve = accuracy_curve(Centroids(), images, labels, "rotation", [0, 180])
    np.testing.assert_allclose(curve, [1, 0])


def test_amounts_are_motions():
    assert set(AMOUNTS) == set(FACTORS)
    for factor, amounts in AMOUNTS.items():
        motions(factor, amounts)
        assert np.isclose(amounts, 1 if factor == "scale" else 0).any(), "the image as it is"


def test_images_of_another_size(capsnet):
    with pytest.raises(ValueError, match=r"images must have shape \[n, 12, 12, 1\]"):
        accuracy_curve(capsnet, dots((0, 0)), np.array([0]), "x", [0])


def test_too_few_labels():
    with pytest.raises(ValueError, match="one integer for each of the 2 images"):
        accuracy_curve(Centroids(), dots((0, 0), (1, 1)), np.array([0]), "x", [0])
