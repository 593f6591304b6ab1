"""Functions with some of their arguments filled in, as attributes of modules."""

import functools


class bound(functools.partial):
    """A `partial` that is equal to another, so that `nnx.jit` compiles two equal networks once."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bound) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple:
        return self.func, self.args, tuple(sorted(self.keywords.items()))
