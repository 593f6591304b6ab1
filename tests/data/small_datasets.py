"""Small datasets of random images, as TFDS and users write them."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("ant", "bee", "cat")


def random_images(count: int, *, size=(6, 5), channels: int = 1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, *size, channels), dtype=np.uint8)


def png(image: np.ndarray) -> io.BytesIO:
    """TFDS encodes arrays with TensorFlow only, but takes encoded files as they are."""
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, "png")
    file.seek(0)
    return file


def write_tfds(
    directory: Path,
    name: str = "tiny",
    *,
    version: str = "1.0.0",
    config: str | None = None,
    features: Callable[[], dict] | None = None,
    supervised_keys: tuple[str, str] | None = None,
    splits: Mapping[str, Sequence[dict]],
) -> Path:
    """Prepares a set in `directory` as TFDS does and returns NAME[/CONFIG]/VERSION."""
    import tensorflow_datasets as tfds

    def default_features() -> dict:
        return {
            "image": tfds.features.Image(shape=(None, None, 1), encoding_format="png"),
            "label": tfds.features.ClassLabel(names=CLASSES),
        }

    configs = [tfds.core.BuilderConfig(name=config, version=version)] if config else []

    # Registered, the same class could not be made twice.
    class TinyBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version(version)
        BUILDER_CONFIGS = configs
        pkg_dir_path = directory

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict((features or default_features)()),
                supervised_keys=supervised_keys,
                disable_shuffling=True,
            )

        def _split_generators(self, dl_manager):
            return {split: enumerate(examples) for split, examples in splits.items()}

        def _generate_examples(self):
            raise NotImplementedError

    TinyBuilder.name = name
    builder = TinyBuilder(data_dir=directory, file_format="array_record")
    builder.download_and_prepare()
    return Path(builder.data_dir)


def tiny_examples(count: int, **kwargs) -> list[dict]:
    images = random_images(count, **kwargs)
    return [{"image": png(image), "label": i % 3} for i, image in enumerate(images)]


def write_image(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(image).getvalue())
