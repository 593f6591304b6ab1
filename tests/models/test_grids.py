import pytest

from capsjax.models.grids import Window, grids


def test_each_grid():
    windows = [Window(3, 2, padding=1), Window(1), Window(3, 2), Window(3)]
    assert grids((32, 31, 3), windows) == [(16, 16), (16, 16), (7, 7), (5, 5)]


@pytest.mark.parametrize(
    "windows",
    [
        [Window(3, 2, padding=1), Window(3, 2), Window(3)],
        [Window(4, 2, padding=1), Window(2, 2), Window(3)],
        [Window(9, 2, padding=4)],
    ],
)
def test_the_smallest_image_is_the_smallest(windows):
    works = [size for size in range(1, 40) if _works(size, windows)]
    assert works == list(range(works[0], 40))
    if works[0] > 1:
        message = rf"the smallest is {works[0]}×{works[0]}"
        with pytest.raises(ValueError, match=message):
            grids((40, works[0] - 1, 1), windows)


def _works(size, windows):
    for window in windows:
        if size + 2 * window.padding < window.kernel_size:
            return False
        size = (size + 2 * window.padding - window.kernel_size) // window.strides + 1
    return size >= 1
