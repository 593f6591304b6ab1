"""An autoencoder that takes an image apart into slots (Locatello et al. 2020)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float

from capsjax.layers import SlotAttention
from capsjax.models.config import Config, positive, scalable
from capsjax.models.grids import Window, convolutions
from capsjax.models.model import Keys, Mask, Model, Network, Output, Pixels, ScoreKind


@dataclass(frozen=True)
class SlotAutoencoderConfig(Config):
    """Sizes of a slot autoencoder; the defaults are those for Tetrominoes on two cores.

    Attributes:
      features: channels of the convolutions.
      num_layers: convolutions of the encoder, and of the decoder.
      kernel_size: of the encoder's convolutions.
      decoder_kernel: of the decoder's.
      patch: pixels along each side of what is one position of the map; 1 is published.
      num_slots: J.
      slot_size: of the slots.
      mlp_size: units of the hidden layer in slot attention.
      num_iterations: of slot attention.
      implicit: see `capsjax.layers.SlotAttention`.
    """

    features: int = scalable(64)
    num_layers: int = positive(2)
    kernel_size: int = positive(3)
    decoder_kernel: int = positive(1)
    patch: int = positive(5)
    num_slots: int = positive(4)
    slot_size: int = positive(64)
    mlp_size: int = positive(128)
    num_iterations: int = positive(3)
    implicit: bool = False


class SlotAutoencoder(Model):
    """Convolutions, slot attention, and a spatial broadcast decoder for each slot.

    Locatello et al. 2020, section 2.2 and appendix D. The decoder draws each slot's part of the
    image and how strongly it claims each pixel; a softmax over the slots turns claims into masks,
    and the reconstruction is the sum of the parts weighted by them. The first slots are drawn anew
    for each image in training, and are the same for all images in evaluation. Scores are logits of
    a linear layer on the slots (the largest over the slots), whose gradient stops at the slots.
    """

    def build(self, config: SlotAutoencoderConfig, rngs: nnx.Rngs) -> None:
        height, width, channels = self.input_shape
        features, slot_size = config.features, config.slot_size
        self.patch = config.patch
        self.grid = (-(-height // self.patch), -(-width // self.patch))
        above, same = [features] * config.num_layers, {"padding": "SAME", "rngs": rngs}
        self.patches = nnx.Linear(self.patch**2 * channels, features, rngs=rngs)
        windows = [Window(config.kernel_size)] * config.num_layers
        self.encoder = convolutions([features, *above], windows, **same)
        self.encoder_places = nnx.Linear(4, features, rngs=rngs)
        self.norm = nnx.LayerNorm(features, rngs=rngs)
        self.hidden = nnx.Linear(features, features, rngs=rngs)
        self.inputs_of_slots = nnx.Linear(features, features, rngs=rngs)
        sizes = features, config.num_slots, slot_size, config.mlp_size
        r, implicit = config.num_iterations, config.implicit
        self.slots = SlotAttention(*sizes, num_iterations=r, implicit=implicit, rngs=rngs)
        self.decoder_places = nnx.Linear(4, slot_size, rngs=rngs)
        windows = [Window(config.decoder_kernel)] * config.num_layers
        self.decoder = convolutions([slot_size, *above], windows, **same)
        self.pixels = nnx.Linear(features, self.patch**2 * (channels + 1), rngs=rngs)
        self.classifier = nnx.Linear(slot_size, self.num_classes, rngs=rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "map", "slots" (with their coupling), "parts" and "masks"."""
        height, width, _ = self.input_shape
        x = nnx.relu(self.patches(self._to_patches(images)))
        for conv in self.encoder:
            x = nnx.relu(conv(x))
        x = x + self.encoder_places(self._places().astype(x.dtype))
        inputs = self.inputs_of_slots(nnx.relu(self.hidden(self.norm(x))))
        routed = self.slots(lax.collapse(inputs, 1, 3), keys=keys)
        slots = routed.poses  # [n, J, S]
        y = slots[:, :, None, None] + self.decoder_places(self._places().astype(x.dtype))
        y = lax.collapse(y, 0, 2)
        for conv in self.decoder:
            y = nnx.relu(conv(y))
        decoded = self._to_pixels(self.pixels(y))[:, :height, :width]
        decoded = decoded.reshape(*slots.shape[:2], *decoded.shape[1:])  # [n, J, h, w, c + 1]
        parts, masks = decoded[..., :-1], jax.nn.softmax(decoded[..., -1], axis=1)
        reconstruction = jnp.sum(masks[..., None] * parts, axis=1)
        scores = jnp.max(self.classifier(lax.stop_gradient(slots)), axis=1)
        features = {"map": x, "slots": slots, "parts": parts, "masks": masks}
        return Output(scores, None, reconstruction, {"slots": routed}, features, ScoreKind.LOGITS)

    def _places(self) -> Float[Array, "rows columns 4"]:
        """Returns the distances of each position from the four sides, in [0, 1]."""
        y, x = jnp.meshgrid(*(jnp.linspace(0, 1, n) for n in self.grid), indexing="ij")
        return jnp.stack([y, x, 1 - y, 1 - x], axis=-1)

    def _to_patches(self, images: Pixels) -> Float[Array, "n rows columns pixels"]:
        """Puts each patch's pixels in one vector, black pixels filling the last row and column."""
        n, height, width, channels = images.shape
        (rows, columns), p = self.grid, self.patch
        margins = [(0, 0), (0, rows * p - height), (0, columns * p - width), (0, 0)]
        # One axis at a time, as JAX needs it where the batch is sharded over explicit axes.
        x = jnp.pad(images, margins).reshape(n, rows, p, columns * p, channels)
        x = x.reshape(n, rows, p, columns, p, channels)
        return lax.collapse(jnp.swapaxes(x, 2, 3), 3)

    def _to_pixels(self, x: Float[Array, "n rows columns pixels"]) -> Float[Array, "n h w c"]:
        """Inverts `_to_patches`, for any number of channels."""
        (n, rows, columns, _), p = x.shape, self.patch
        x = jnp.swapaxes(x.reshape(n, rows, columns, p, p, x.shape[-1] // p**2), 2, 3)
        return lax.collapse(lax.collapse(x, 3, 5), 1, 3)


NETWORKS = {"slots_tetrominoes": Network(SlotAutoencoder, SlotAutoencoderConfig(), (35, 35, 3), 7)}
