"""Options of the tasks whose images are made from another set's."""

from dataclasses import dataclass

from capsjax.data.tasks.source_splits import Reader, Splits, check_canvas, read_splits


@dataclass(frozen=True)
class Generated:
    """What these tasks have in common; each has its own defaults.

    Attributes:
      source: of the images, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
      canvas: rows and columns.
      max_shift: of each object; pixels from the middle, either way along each axis.
      test_versions: examples per image in the test sets.
      seed: of the evaluation sets.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    train_fraction: float = 1.0
    canvas: int = 40
    max_shift: int = 6
    test_versions: int = 1
    seed: int = 0

    def splits(self, read: Reader) -> Splits:
        """The source's images; raises ValueError unless they fit on the canvas."""
        splits = read_splits(self.source, self.validation_fraction, self.train_fraction, read)
        check_canvas(splits.train, self.canvas, self.max_shift)
        return splits
