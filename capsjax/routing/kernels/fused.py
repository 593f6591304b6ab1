"""Operations made of derivatives of E and Q that a platform may do in one pass over the children.

Written out, such an operation sends arrays [*batch, I, J] through memory between its parts. As a
primitive it has a tangent and a cotangent, and each of the three can be one kernel. The tangent is
linear in the tangents of the operands; the cotangent is its transpose, and recomputes what it
needs. Platforms without such a kernel use the parts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jaxtyping import Array

from capsjax.routing.kernels import adapter, forms
from capsjax.routing.kernels.derivatives import abstract, batch_rule, own_axes
from capsjax.routing.kernels.terms import Operands, sizes_of

Results = list[Array]


class Fused:
    """An operation, its tangent and its cotangent, as three primitives.

    Tangent and cotangent are functions of what is `known` (operands, and results that are kept),
    linear in their `inputs`: tangents of operands, or cotangents of results. Their `outputs` are
    tangents of results, or cotangents of operands. All four are letters, see terms.py.

    Args:
      name: what it is called in a jaxpr.
      operands: their letters.
      results: letters of operands that have the shapes of the results.
      compose: from operands to the list of results, by derivatives of E and Q.
      kept: results that tangent and cotangent are given instead of computing them again. They are
        those of `compose` given them after the operands, and held fixed.
      forward: from a form to its kernel for the operation, or None. Arguments as for `compose`.
      backward: from a form to its kernel for the cotangent, or None. The kernel takes operands and
        kept results, and cotangents, each in a dict by letter, and the letters `wrt` of the
        cotangents asked for; it returns these in a dict.
      cotangents: the results that must have cotangents, and no others, for that kernel.
    """

    def __init__(
        self,
        name: str,
        *,
        operands: str,
        results: str,
        compose: Callable[..., Results],
        kept: str = "",
        forward: Callable[[forms.Form], Callable[..., Results] | None] = lambda form: None,
        backward: Callable[[forms.Form], Callable[..., Operands] | None],
        cotangents: str,
    ):
        self.operands, self.results, self.kept = operands, results, kept
        self.known = operands + kept
        self.compose, self.forward, self.backward = compose, forward, backward
        self.cotangents = cotangents

        define = partial(
            adapter.define, abstract=self._types, own_axes=self._own_axes, multiple_results=True
        )
        self._operation = define(name, choose=self._choose)
        self._tangent = define(f"{name}_tangent", choose=self._choose_tangent)
        self._cotangent = define(f"{name}_cotangent", choose=self._choose_cotangent)
        adapter.set_rules(
            self._operation,
            jvp=self._jvp,
            batch=batch_rule(self._operation, lambda: (operands, results)),
        )
        for primitive, transpose, composed in (
            (self._tangent, self._cotangent, self._compose_tangent),
            (self._cotangent, self._tangent, self._compose_cotangent),
        ):
            adapter.set_rules(
                primitive,
                jvp=self._jvp_of(composed),
                batch=batch_rule(primitive, lambda inputs, outputs: (self.known + inputs, outputs)),
                transpose=self._transposed_by(transpose),
            )

    def __call__(self, *operands: Array) -> Results:
        """Computes the results."""
        return self._operation.bind(*adapter.alike(operands))

    # Tangent and cotangent by derivatives of E and Q.

    def _vary(self, known: Operands, letters: str, outputs: str) -> tuple[Any, Operands]:
        """Returns the `outputs` as a function of some operands, and where to linearise it."""

        def f(varied: Operands) -> Results:
            results = dict(zip(self.results, self.compose(*(known | varied).values()), strict=True))
            return [results[letter] for letter in outputs]

        return f, {letter: known[letter] for letter in letters}

    def _compose_tangent(self, *args: Array, inputs: str, outputs: str) -> Results:
        known, rates = self._split(args, inputs)
        f, at = self._vary(known, inputs, outputs)
        return jax.jvp(f, (at,), (rates,))[1]

    def _compose_cotangent(self, *args: Array, inputs: str, outputs: str) -> Results:
        known, cotangents = self._split(args, inputs)
        f, at = self._vary(known, outputs, inputs)
        (gradients,) = jax.vjp(f, at)[1](list(cotangents.values()))
        return [gradients[letter] for letter in outputs]

    def _split(self, args: Sequence[Array], inputs: str) -> tuple[Operands, Operands]:
        """Returns the arguments by letter: what is known, and the inputs."""
        number = len(self.known)
        known, rest = args[:number], args[number:]
        return dict(zip(self.known, known, strict=True)), dict(zip(inputs, rest, strict=True))

    # What a program is lowered to.

    def _form(self, target: adapter.Target, avals: Sequence[Any]) -> forms.Form:
        sizes = sizes_of(dict(zip(self.operands, avals, strict=False)))
        return forms.choose(target, sizes, avals[0].dtype)

    def _choose(self, target: adapter.Target, avals: Sequence[Any]) -> adapter.Choice:
        form = self._form(target, avals)
        return self.forward(form) or self.compose, form.is_kernel

    def _choose_tangent(
        self, target: adapter.Target, avals: Sequence[Any], **letters: str
    ) -> adapter.Choice:
        return partial(self._compose_tangent, **letters), self._form(target, avals).is_kernel

    def _choose_cotangent(
        self, target: adapter.Target, avals: Sequence[Any], *, inputs: str, outputs: str
    ) -> adapter.Choice:
        form = self._form(target, avals)
        kernel = self.backward(form) if inputs == self.cotangents else None
        if kernel is None:
            return partial(self._compose_cotangent, inputs=inputs, outputs=outputs), form.is_kernel

        def evaluate(*args: Array) -> Results:
            gradients = kernel(*self._split(args, inputs), wrt=outputs)
            return [gradients[letter] for letter in outputs]

        return evaluate, form.is_kernel

    def _types(self, *avals: Any, outputs: str | None = None, **_: Any) -> list[Any]:
        letters = self.results if outputs is None else outputs
        return [abstract(self.operands, avals[: len(self.operands)], letter) for letter in letters]

    def _own_axes(self, inputs: str | None = None, **_: Any) -> list[int]:
        return own_axes(self.operands if inputs is None else self.known + inputs)

    # Rules of differentiation.

    def _jvp(self, primals: Sequence[Array], tangents: Sequence[Any]) -> Any:
        rates = adapter.nonzero(self.operands, tangents)
        out = self._operation.bind(*primals)
        kept = [x for letter, x in zip(self.results, out, strict=True) if letter in self.kept]
        args = adapter.alike([*primals, *kept, *rates.values()])
        return out, self._tangent.bind(*args, inputs="".join(rates), outputs=self.results)

    def _jvp_of(self, composed: Callable[..., Results]) -> Callable[..., Any]:
        """Defines further derivatives: those of the derivatives of E and Q."""

        def rule(primals: Sequence[Array], tangents: Sequence[Any], **params: Any) -> Any:
            rates = [adapter.instantiate(tangent) for tangent in tangents]
            return jax.jvp(partial(composed, **params), tuple(primals), tuple(rates))

        return rule

    def _transposed_by(self, other: Any) -> Callable[..., list[Any]]:
        """Makes tangent and cotangent each other's transpose."""

        def rule(cotangents: Sequence[Any], *args: Any, inputs: str, outputs: str) -> list[Any]:
            rates = adapter.nonzero(outputs, cotangents)
            if not rates:
                return [None] * len(args)
            known, linear = args[: len(self.known)], args[len(self.known) :]
            unknown = [a for a, x in zip(inputs, linear, strict=True) if adapter.is_unknown(x)]
            operands = adapter.alike([*known, *rates.values()])
            values = other.bind(*operands, inputs="".join(rates), outputs="".join(unknown))
            avals = [x.aval for x in linear if adapter.is_unknown(x)]
            by_letter = dict(zip(unknown, map(adapter.with_sharding, values, avals), strict=True))
            return [None] * len(known) + [by_letter.get(letter) for letter in inputs]

        return rule
