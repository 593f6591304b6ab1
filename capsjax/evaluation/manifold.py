"""Whether a representation keeps a known plane of shifts (Lin et al. 2018, section 3.2)."""

from typing import Any

import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Num
from scipy.spatial import cKDTree, procrustes

from capsjax._extras import extra
from capsjax._names import lookup
from capsjax.evaluation.batches import in_batches, outline
from capsjax.layers.bound import bound

# Where the paper looks: the capsules after the first routing ("Cap1"), and the dense layer in
# their place ("Linear1").
MIDDLE = {"lin2018_capsnet": "capsules1", "lin2018_cnn": "dense1"}


def shift_grid(max_shift: int = 4) -> Float[np.ndarray, "n 2"]:
    """Lists (row, column) shifts in the order of `multimnist`'s "shift_grid": 81 in the paper."""
    shifts = np.arange(-max_shift, max_shift + 1.0)
    return np.stack(np.meshgrid(shifts, shifts, indexing="ij"), axis=-1).reshape(-1, 2)


def representations(
    model: nnx.Module, images: Num[np.ndarray, "n h w c"], layer: str, *, batch_size: int = 128
) -> Float[np.ndarray, "n features"]:
    """Returns the output of `layer`, a name in the captured `features`, for each image, flattened.

    Raises ValueError if the network has no such layer.
    """
    lookup("layer", layer, outline(model, images.shape[1:]).features)
    return in_batches(bound(_layer, name=layer), model, (images,), batch_size=batch_size)


def embed(
    representations: Float[np.ndarray, "n features"], *, seed: int = 0
) -> Float[np.ndarray, "n 2"]:
    """Returns points in the plane by scikit-learn's exact t-SNE, initialised with PCA."""
    with extra("data"):  # takes a second to import
        from sklearn.manifold import TSNE

    tsne = TSNE(init="pca", method="exact", random_state=seed)
    return tsne.fit_transform(np.asarray(representations, np.float32))


def fit_to(
    points: Float[np.ndarray, "n d"], target: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "n d"]:
    """Returns `points` moved, turned, mirrored and scaled to fit `target` best (Procrustes)."""
    centre = np.mean(target, axis=0)
    _, fitted, _ = procrustes(target, points)  # of length 1, around 0
    return fitted * np.linalg.norm(target - centre) + centre


def chamfer_distance(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "m d"]) -> float:
    """Returns the mean distance to the nearest point of the other set, over both directions."""
    return float((cKDTree(b).query(a)[0].mean() + cKDTree(a).query(b)[0].mean()) / 2)


def grid_distance(
    embedding: Float[np.ndarray, "n 2"], grid: Float[np.ndarray, "n 2"] | None = None
) -> float:
    """Returns the Chamfer distance, in pixels of shift, between the grid and the fitted embedding.

    The paper does not say how it aligns the two, nor which variant of the distance it means.
    """
    grid = shift_grid() if grid is None else grid
    return chamfer_distance(fit_to(embedding, grid), grid)


def _layer(model: Any, images: Array, *, name: str) -> Array:
    return model(images, capture=True).features[name].reshape(len(images), -1)
