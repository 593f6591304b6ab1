"""Operations made of derivatives of E and Q that a platform may do in one pass over the children.

Written out, such an operation sends arrays [*batch, I, J] through memory between its parts. As a
primitive it has a tangent and a cotangent, and each of the three can be one kernel. The tangent is
linear in the tangents of the operands; the cotangent is its transpose, and recomputes what it
needs. Platforms without such a kernel use the parts.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jaxtyping import Array

from capsjax.routing.kernels import adapter, forms
from capsjax.routing.kernels.derivatives import (
    abstract,
    batched,
    one_at_a_time,
    same_sharding,
)
from capsjax.routing.kernels.terms import KERNELS, Operands, sizes_of

Kernel = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Fused:
    """An operation, its tangent and its cotangent, as three primitives.

    Attributes:
      name: what it is called in a jaxpr.
      operands: their letters, see terms.py.
      results: letters of operands that have the shapes of the results.
      compose: from operands to the list of results, by derivatives of E and Q.
      about: the same, given the results in `kept` after the operands. Tangents are those of this
        function, with these results held fixed.
      kept: results that tangent and cotangent are given instead of computing them again.
      forward: from a form to its kernel for the operation, or None. Arguments as for `compose`.
      backward: from a form and the letters of the results that have cotangents to its kernel for
        the cotangent, or None. The kernel takes operands, kept results and cotangents, each in a
        dict by letter, and the letters `wrt` of the cotangents asked for; it returns these in a
        dict.
    """

    name: str
    operands: str
    results: str
    compose: Callable[..., list[Array]]
    about: Callable[..., list[Array]]
    kept: str = ""
    forward: Callable[[forms.Form], Kernel | None] = lambda form: None
    backward: Callable[[forms.Form, str], Kernel | None] = lambda form, of: None
    _operation: Any = dataclasses.field(init=False)
    _tangent: Any = dataclasses.field(init=False)
    _cotangent: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        parts: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
            "": (self._types_of_results, self._choose),
            "_tangent": (self._types_of_results, self._choose_tangent),
            "_cotangent": (self._types_of_cotangents, self._choose_cotangent),
        }
        operation, tangent, cotangent = (
            adapter.define(self.name + part, abstract=types, choose=choose, multiple_results=True)
            for part, (types, choose) in parts.items()
        )
        for field, primitive in (
            ("_operation", operation),
            ("_tangent", tangent),
            ("_cotangent", cotangent),
        ):
            object.__setattr__(self, field, primitive)
        adapter.set_rules(
            operation, jvp=self._jvp, batch=self._batch(operation, lambda: self.operands)
        )
        adapter.set_rules(
            tangent,
            jvp=self._jvp_of(self._compose_tangent),
            batch=self._batch(tangent, lambda wrt, **_: self._known + wrt),
            transpose=self._transpose_tangent,
        )
        adapter.set_rules(
            cotangent,
            jvp=self._jvp_of(self._compose_cotangent),
            batch=self._batch(cotangent, lambda of, **_: self._known + of),
            transpose=self._transpose_cotangent,
        )

    def __call__(self, *operands: Array) -> list[Array]:
        """The results."""
        return self._operation.bind(*same_sharding(self.operands, operands))

    @property
    def _known(self) -> str:
        """What tangent and cotangent are given first."""
        return self.operands + self.kept

    # Tangent and cotangent by derivatives of E and Q.

    def _vary(self, known: Sequence[Array], wrt: str) -> tuple[Any, Operands]:
        """`about` as a function of the operands in `wrt`, and where it is to be linearised."""
        values = dict(zip(self._known, known, strict=True))

        def f(varied: Operands) -> list[Array]:
            return self.about(*(values | varied).values())

        return f, {letter: values[letter] for letter in wrt}

    def _compose_tangent(self, *args: Array, wrt: str) -> list[Array]:
        known, rates = args[: len(self._known)], args[len(self._known) :]
        f, at = self._vary(known, wrt)
        return jax.jvp(f, (at,), (dict(zip(wrt, rates, strict=True)),))[1]

    def _compose_cotangent(self, *args: Array, of: str, wrt: str) -> list[Array]:
        known, cotangents = args[: len(self._known)], args[len(self._known) :]
        f, at = self._vary(known, wrt)

        def chosen(varied: Operands) -> list[Array]:
            results = dict(zip(self.results, f(varied), strict=True))
            return [results[letter] for letter in of]

        (found,) = jax.vjp(chosen, at)[1](list(cotangents))
        return [found[letter] for letter in wrt]

    # What a program is lowered to.

    def _form(self, target: adapter.Target, avals: Sequence[Any]) -> forms.Form:
        sizes = sizes_of(self.operands, avals[: len(self.operands)])
        return forms.choose(target, sizes, avals[0].dtype)

    def _choose(self, target: adapter.Target, avals: Sequence[Any]) -> tuple[Kernel, bool]:
        form = self._form(target, avals)
        return self.forward(form) or self.compose, form.is_kernel

    def _choose_tangent(
        self, target: adapter.Target, avals: Sequence[Any], *, wrt: str
    ) -> tuple[Kernel, bool]:
        form = self._form(target, avals)
        return partial(self._compose_tangent, wrt=wrt), form.is_kernel

    def _choose_cotangent(
        self, target: adapter.Target, avals: Sequence[Any], *, of: str, wrt: str
    ) -> tuple[Kernel, bool]:
        form = self._form(target, avals)
        kernel = self.backward(form, of)

        def evaluate(*args: Array) -> list[Array]:
            if kernel is None:
                return self._compose_cotangent(*args, of=of, wrt=wrt)
            known, cotangents = args[: len(self._known)], args[len(self._known) :]
            found = kernel(
                dict(zip(self._known, known, strict=True)),
                dict(zip(of, cotangents, strict=True)),
                wrt=wrt,
            )
            return [found[letter] for letter in wrt]

        return evaluate, form.is_kernel

    # Types.

    def _types_of_results(self, *avals: Any, **_: Any) -> list[Any]:
        return [abstract(self.operands, avals[: len(self.operands)], r) for r in self.results]

    def _types_of_cotangents(self, *avals: Any, wrt: str, **_: Any) -> list[Any]:
        return [abstract(self.operands, avals[: len(self.operands)], letter) for letter in wrt]

    # Rules of differentiation.

    def _jvp(self, primals: Sequence[Array], tangents: Sequence[Any]) -> Any:
        rates = {
            letter: adapter.instantiate(tangent)
            for letter, tangent in zip(self.operands, tangents, strict=True)
            if not adapter.is_zero(tangent)
        }
        out = self._operation.bind(*primals)
        kept = [x for letter, x in zip(self.results, out, strict=True) if letter in self.kept]
        args = adapter.alike([*primals, *kept, *rates.values()])
        return out, self._tangent.bind(*args, wrt="".join(rates))

    def _jvp_of(self, composed: Callable[..., list[Array]]) -> Callable[..., Any]:
        """Further derivatives: those of the derivatives of E and Q."""

        def rule(primals: Sequence[Array], tangents: Sequence[Any], **params: Any) -> Any:
            rates = [adapter.instantiate(tangent) for tangent in tangents]
            return jax.jvp(lambda *xs: composed(*xs, **params), tuple(primals), tuple(rates))

        return rule

    def _transpose_tangent(self, cotangents: Sequence[Any], *primals: Any, wrt: str) -> list[Any]:
        known, rates = primals[: len(self._known)], primals[len(self._known) :]
        known_cotangents = {
            letter: x
            for letter, x in zip(self.results, cotangents, strict=True)
            if not adapter.is_zero(x)
        }
        if not known_cotangents:
            return [None] * len(primals)
        asked = [
            letter for letter, rate in zip(wrt, rates, strict=True) if adapter.is_unknown(rate)
        ]
        results = self._cotangent.bind(
            *adapter.alike([*known, *known_cotangents.values()]),
            of="".join(known_cotangents),
            wrt="".join(asked),
        )
        found = dict(zip(asked, results, strict=True))
        return [None] * len(known) + [found.get(letter) for letter in wrt]

    def _transpose_cotangent(
        self, cotangents: Sequence[Any], *primals: Any, of: str, wrt: str
    ) -> list[Any]:
        """The transpose of the transpose: the tangent."""
        known, asked = primals[: len(self._known)], primals[len(self._known) :]
        rates = {a: x for a, x in zip(wrt, cotangents, strict=True) if not adapter.is_zero(x)}
        if not rates:
            return [None] * len(primals)
        args = adapter.alike([*known, *rates.values()])
        results = self._tangent.bind(*args, wrt="".join(rates))
        found = dict(zip(self.results, results, strict=True))
        return [None] * len(known) + [
            found[letter] if adapter.is_unknown(x) else None
            for letter, x in zip(of, asked, strict=True)
        ]

    # Rule of vectorisation.

    def _batch(self, primitive: Any, letters: Callable[..., str]) -> Callable[..., Any]:
        def rule(args: Sequence[Array], axes: Sequence[Any], **params: Any) -> Any:
            to_kernel = primitive is self._cotangent and any(a in KERNELS for a in params["wrt"])
            operands = batched(letters(**params), args, axes, to_kernel=to_kernel)
            if operands is None:
                out = one_at_a_time(lambda *xs: primitive.bind(*xs, **params), args, axes)
            else:
                out = primitive.bind(*operands, **params)
            return out, [0] * len(out)

        return rule
