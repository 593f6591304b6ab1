import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from capsjax.evaluation import ensemble
from capsjax.models import ScoreKind
from tests.models.building import apply, build

SHAPE = (9, 9, 2)  # neither grey nor in colour


def member(seed):
    options = {"features": 2, "class_pose": 4, "primary_channels": 2, "kernel_size": 3}
    return build("sabour2017_capsnet", SHAPE, 3, seed=seed, reconstruction="none", **options)


def test_scores_are_the_mean_of_the_members():
    members = [member(seed) for seed in range(3)]
    images = jax.random.uniform(jax.random.key(0), (2, *SHAPE))
    task = {"input_shape": SHAPE, "class_names": ("a", "b", "c")}
    configs = [ml_collections.ConfigDict({"task": task, "data": {}})] * 3
    output = apply(ensemble.join(members, configs), images, capture=True)
    expected = jnp.mean(jnp.stack([apply(m, images).scores for m in members]), axis=0)
    np.testing.assert_allclose(output.scores, expected, rtol=1e-5)
    assert output.score_kind is ScoreKind.LENGTHS
    assert output.poses is None
    assert {f"member{i}/classes" for i in range(3)} == set(output.routed)
