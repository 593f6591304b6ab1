"""Functions with some of their arguments filled in, as attributes of modules."""

import functools


class bound(functools.partial):
    """A `functools.partial` that is equal to another of the same function and arguments.

    So the graphdefs of two equal networks are equal, and `nnx.jit` compiles them once.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bound) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple:
        return self.func, self.args, tuple(sorted(self.keywords.items()))
