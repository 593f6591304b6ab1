"""Functions with some of their arguments filled in, as attributes of modules."""

import functools
from typing import Any

from flax import nnx


class bound(functools.partial):
    """A `functools.partial` compared by value: `nnx.jit` compiles two equal networks only once."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bound) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @classmethod
    def of(cls, routing: Any) -> Any:
        """Makes `routing` and partials in it `bound`; raises ValueError if one holds a module."""
        if not isinstance(routing, functools.partial):
            return routing
        keywords = {name: cls.of(value) for name, value in routing.keywords.items()}
        made = cls(routing.func, *map(cls.of, routing.args), **keywords)
        for value in (*made.args, *made.keywords.values()):
            if isinstance(value, nnx.Module):
                raise ValueError(
                    f"routing must not be a partial that holds a module, {type(value).__name__}, "
                    "which would not be trained: write a module that has both, such as "
                    "capsjax.layers.InvertedAttention"
                )
        try:
            hash(made)
        except TypeError:  # of arrays, say
            return routing
        return made

    @property
    def _parts(self) -> tuple:
        return self.func, self.args, tuple(sorted(self.keywords.items()))
