"""AR CapsNet: attention routing between capsules (Choi et al. 2019)."""

import math
from dataclasses import dataclass, replace
from itertools import product

import jax
from flax import nnx
from jax import lax
from jaxtyping import Array, Key

from capsjax import layers
from capsjax.functional import relu, safe_norm
from capsjax.models.config import fraction, not_negative, positive, scalable
from capsjax.models.model import Keys, Mask, Network, Output, Pixels
from capsjax.models.reconstruction import ReconstructingModel, Reconstruction


@dataclass(frozen=True)
class ARCapsNetConfig(Reconstruction):
    """Sizes of an AR CapsNet; the defaults are those for MNIST.

    Attributes:
      features: channels of the two convolutions.
      channels: capsule channels of all layers but the last.
      primary_pose: pose size of the primary capsules.
      pose_size: of all layers above.
      num_conv_caps: conv-caps layers. The first halves the grid, further ones add their input.
      keep: fraction in (0, 1] of the inputs of conv-caps and fully-conv layers that dropout keeps.
    """

    features: int = scalable(64)
    channels: int = scalable(8)
    primary_pose: int = positive(16)
    pose_size: int = positive(32)
    num_conv_caps: int = not_negative(1)
    keep: float = fraction(0.5)
    decoder_features: tuple[int, ...] = scalable((512, 512))


class ARCapsNet(ReconstructingModel):
    """Convolutions, primary capsules, conv-caps, a capsule for each class, a decoder.

    Choi et al. 2019, figure 1 and section 4. 5,312,528 parameters for MNIST. All convolutions but
    the last are padded (SAME), so that any image is large enough.
    """

    def build(self, config: ARCapsNetConfig, rngs: nnx.Rngs) -> None:
        features, channels, pose_size = config.features, config.channels, config.primary_pose
        height, width, image_channels = self.input_shape
        self.keep = config.keep
        self.conv1 = layers.conv2d(image_channels, features, 3, padding="SAME", rngs=rngs)
        self.norm1 = layers.batch_norm(features, rngs=rngs)
        self.conv2 = layers.conv2d(features, features, 3, padding="SAME", rngs=rngs)
        self.norm2 = layers.batch_norm(features, rngs=rngs)
        activation = nnx.Sequential(relu, layers.CapsuleActivation(channels, pose_size, rngs=rngs))
        sizes = features, channels, pose_size
        self.primary = layers.PrimaryCapsules(
            *sizes, kernel_size=3, padding="SAME", activation=activation, rngs=rngs
        )
        self.conv_caps: nnx.List[layers.AttentionConvCapsules] = nnx.List([])
        for i in range(config.num_conv_caps):
            strides = 2 if i == 0 else 1
            layer = layers.AttentionConvCapsules(
                channels, pose_size, channels, config.pose_size, strides=strides, rngs=rngs
            )
            self.conv_caps.append(layer)
            pose_size = config.pose_size
        scale = 4 if config.num_conv_caps else 2
        grid = (math.ceil(height / scale), math.ceil(width / scale))
        self.classes = layers.AttentionFullCapsules(
            grid, channels, pose_size, self.num_classes, config.pose_size, rngs=rngs
        )
        self.build_decoder(config, config.pose_size, rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "conv", "primary", "conv_caps1" …, "classes"."""
        x = nnx.relu(self.norm1(self.conv1(images)))
        x = nnx.relu(self.norm2(self.conv2(x)))
        # On TPUs a barrier: recomputed for the gradient of the next kernel, and fused with that of
        # a normalisation, this would overflow the stack of the compiler for TPU v6e.
        x = lax.platform_dependent(x, tpu=lax.optimization_barrier, default=lambda x: x)
        poses = self.primary(x)
        features, routed = {"conv": x, "primary": poses}, {}
        for i, layer in enumerate(self.conv_caps, start=1):
            out = layer(self._drop(poses, keys, i))
            # Each summand has been through tanh; the sum does not go through it again.
            poses = out.poses if i == 1 else poses + out.poses
            features[f"conv_caps{i}"] = poses
            routed[f"conv_caps{i}"] = out._replace(poses=poses)
        out = self.classes(self._drop(poses, keys, 0))
        features["classes"], routed["classes"] = out.poses, out
        # Components lie in (−1, 1): a pose is at most √D long (eq. 10).
        scores = safe_norm(out.poses) / math.sqrt(out.poses.shape[-1])
        reconstruction = self.reconstruct(out.poses, scores, mask)
        return Output(scores, out.poses, reconstruction, routed, features)

    def _drop(self, poses: Array, keys: Key[Array, "n"] | None, layer: int) -> Array:
        if keys is not None:
            keys = jax.vmap(lambda key: jax.random.fold_in(key, layer))(keys)
        return layers.dropout(poses, keys, keep=self.keep)


_MNIST = ARCapsNetConfig()
_AFFNIST = replace(_MNIST, pose_size=16)
_CIFAR10 = replace(_MNIST, num_conv_caps=4)

_SHAPE = (32, 32, 3)

# Table 2: the parameters that it prints for conv-caps layers from 0 and poses of 16 and 32. It
# prints 8.4M for (2, 32), where the sum that gives its other nine numbers is 8,332,928.
_TABLE_2 = ["7.3M", "12.6M", "3.5M", "7.7M", "3.7M", None, "3.8M", "8.9M", "4.0M"]

NETWORKS = {
    "choi2019_mnist": Network(ARCapsNet, _MNIST, parameters="5.31M"),
    "choi2019_affnist": Network(ARCapsNet, _AFFNIST, (40, 40, 1)),
    "choi2019_cifar10": Network(ARCapsNet, _CIFAR10, _SHAPE, parameters="9.6M"),
}
NETWORKS |= {
    f"choi2019_cifar10_{n}x{d}": Network(
        ARCapsNet, replace(_MNIST, num_conv_caps=n, pose_size=d), _SHAPE, 10, printed
    )
    for (n, d), printed in zip(product(range(5), (16, 32)), _TABLE_2, strict=False)
}
