"""CapsNet (Sabour et al. 2017)."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from capsjax.functional import safe_norm, to_unit
from capsjax.layers import Decoder, DenseCapsules, PrimaryCapsules, conv2d
from capsjax.models.interface import Output, check_images
from capsjax.routing import dynamic_routing


@dataclass(frozen=True)
class CapsNetConfig:
    """Sizes of a CapsNet; the defaults are the paper's.

    Attributes:
      features: channels of the first convolution.
      kernel_size: of both convolutions (stride 1, then 2, no padding).
      primary_channels: capsules per position of the primary capsules.
      primary_pose: their size.
      class_pose: size of the class capsules.
      num_iterations: r, of dynamic routing.
      routing_bias: a learned bias in the class capsules, as in the released code.
      decoder: whether to build the decoder.
      decoder_features: sizes of its hidden layers.
      width: multiplies features, primary_channels and decoder_features, for small machines.
    """

    features: int = 256
    kernel_size: int = 9
    primary_channels: int = 32
    primary_pose: int = 8
    class_pose: int = 16
    num_iterations: int = 3
    routing_bias: bool = False
    decoder: bool = True
    decoder_features: tuple[int, ...] = (512, 1024)
    width: float = 1.0

    def __post_init__(self):
        positive = {
            "features": self.features,
            "kernel_size": self.kernel_size,
            "primary_channels": self.primary_channels,
            "primary_pose": self.primary_pose,
            "class_pose": self.class_pose,
            "num_iterations": self.num_iterations,
            "width": self.width,
        }
        for name, value in positive.items():
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")


class CapsNet(nnx.Module):
    """Two convolutions, primary capsules, class capsules by dynamic routing, a decoder.

    Sabour et al. 2017, figures 1 and 2. 8,215,568 parameters for 28×28×1 and ten classes.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        config: CapsNetConfig = CapsNetConfig(),
        *,
        rngs: nnx.Rngs,
    ):
        k = config.kernel_size
        height, width, channels = input_shape
        # k and another k with stride 2, without padding, must leave one position.
        smallest = 2 * k - 1
        if min(height, width) < smallest:
            raise ValueError(
                f"input_shape {height}×{width} is too small for two {k}×{k} convolutions: "
                f"the smallest is {smallest}×{smallest}; enlarge the images or lower kernel_size"
            )
        positions = ((height - 2 * k + 1) // 2 + 1) * ((width - 2 * k + 1) // 2 + 1)

        def scaled(n: int) -> int:
            return max(1, round(n * config.width))

        features, primary_channels = scaled(config.features), scaled(config.primary_channels)
        self.input_shape = input_shape
        self.num_classes = num_classes
        self.conv = conv2d(channels, features, k, rngs=rngs)
        self.primary = PrimaryCapsules(
            features, primary_channels, config.primary_pose, kernel_size=k, rngs=rngs
        )
        self.classes = DenseCapsules(
            positions * primary_channels,
            config.primary_pose,
            num_classes,
            config.class_pose,
            routing=partial(dynamic_routing, num_iterations=config.num_iterations),
            use_bias=config.routing_bias,
            kernel_init=nnx.initializers.truncated_normal(0.1),  # as in the released code
            rngs=rngs,
        )
        self.decoder = (
            Decoder(
                num_classes,
                config.class_pose,
                self.input_shape,
                features=[scaled(n) for n in config.decoder_features],
                rngs=rngs,
            )
            if config.decoder
            else nnx.data(None)
        )

    def __call__(
        self,
        images: Float[Array, "n h w c"] | UInt8[Array, "n h w c"],
        *,
        mask: Float[Array, "n classes"] | None = None,
        keys: PRNGKeyArray | None = None,
        capture: bool = False,
    ) -> Output:
        """Classifies and reconstructs a batch.

        Args:
          images: floats in [0, 1], or uint8, which are scaled to [0, 1].
          mask: which class poses the decoder sees: the true class in training. None: the class
            with the longest capsule.
          keys: not used: nothing here is random.
          capture: return what the routings gave, by layer name.
        """
        check_images(images, self.input_shape)
        features = nnx.relu(self.conv(to_unit(images)))
        poses = self.primary(features)
        routed = self.classes(poses.reshape(poses.shape[0], -1, poses.shape[-1]))
        lengths = safe_norm(routed.poses)
        reconstruction = None
        if self.decoder is not None:
            if mask is None:
                mask = jax.nn.one_hot(jnp.argmax(lengths, axis=-1), self.num_classes)
            reconstruction = self.decoder(routed.poses, mask)
        return Output(lengths, routed.poses, reconstruction, {"classes": routed} if capture else {})
