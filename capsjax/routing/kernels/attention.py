"""One iteration of routing by agreement as three JAX primitives: forward, tangent, cotangent.

  r_i· = softmax_j(scale · <P_i W_ij, q_j>)       s_j = Σ_i r_ij P_i W_ij

Written as two derivatives of E with a softmax between them, an iteration sends [*batch, I, J]
logits and couplings through memory. As an operation of its own, a platform can do it in one pass
over the children. The tangent is linear in the tangents of P, W and q; the cotangent is its
transpose, recomputes what it needs from P, W and q, and so keeps no couplings for the way back.
Everything else, and platforms without such a kernel, use the two derivatives of E.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jaxtyping import Array

from capsjax.routing.kernels import adapter, forms
from capsjax.routing.kernels.derivatives import (
    abstract,
    agreement,
    batched,
    combine,
    one_at_a_time,
)
from capsjax.routing.kernels.terms import sizes_of

_LETTERS = "pkq"
_TANGENTS = {"p": "P", "k": "K", "q": "w"}  # letters of arrays shaped like P, W and q

_Outputs = tuple[Array, Array]


def attend(poses: Array, kernel: Array, parents: Array, *, scale: float) -> _Outputs:
    """The sums s [*batch, J, A, Y] and the couplings r [*batch, I, J]."""
    sums, coupling = attention_p.bind(*adapter.alike([poses, kernel, parents]), scale=scale)
    return sums, coupling


def _compose(poses: Array, kernel: Array, parents: Array, *, scale: float) -> _Outputs:
    """The iteration as derivatives of E."""
    coupling = jax.nn.softmax(scale * agreement(poses, kernel, parents), axis=-1)
    return combine(coupling, poses, kernel), coupling


def _compose_tangent(*args: Array, scale: float, wrt: str) -> _Outputs:
    """The tangents of sums and couplings for those of the operands in `wrt`."""
    values = dict(zip(_LETTERS, args[:3], strict=True))
    rates = dict(zip(wrt, args[3:], strict=True))

    def f(varied: dict[str, Array]) -> _Outputs:
        xs = values | varied
        return _compose(xs["p"], xs["k"], xs["q"], scale=scale)

    return jax.jvp(f, ({letter: values[letter] for letter in wrt},), (rates,))[1]


def _compose_cotangent(*args: Array, scale: float, wrt: str, coupled: bool) -> list[Array]:
    """The cotangents of the operands in `wrt`, for those of the sums and, if any, the couplings."""
    values = dict(zip(_LETTERS, args[:3], strict=True))

    def f(varied: dict[str, Array]) -> Any:
        xs = values | varied
        outputs = _compose(xs["p"], xs["k"], xs["q"], scale=scale)
        return outputs if coupled else outputs[0]

    _, pull_back = jax.vjp(f, {letter: values[letter] for letter in wrt})
    (cotangents,) = pull_back(args[3:] if coupled else args[3])
    return [cotangents[letter] for letter in wrt]


# What a program is lowered to.

_Chosen = tuple[Callable[..., Any], bool]


def _form(target: adapter.Target, avals: Sequence[Any]) -> forms.Form:
    return forms.choose(target, sizes_of(_LETTERS, avals[:3]), avals[0].dtype)


def _choose(target: adapter.Target, avals: Sequence[Any], *, scale: float) -> _Chosen:
    form = _form(target, avals)
    if form.attend is None:
        return partial(_compose, scale=scale), form.is_kernel
    kernel_of_sums = form.attend

    def evaluate(poses: Array, kernel: Array, parents: Array) -> _Outputs:
        # XLA removes whichever of the two nothing asks for, which is nearly always the coupling.
        coupling = jax.nn.softmax(scale * agreement(poses, kernel, parents), axis=-1)
        return kernel_of_sums(poses, kernel, parents, scale=scale), coupling

    return evaluate, True


def _choose_tangent(
    target: adapter.Target, avals: Sequence[Any], *, scale: float, wrt: str
) -> _Chosen:
    return partial(_compose_tangent, scale=scale, wrt=wrt), _form(target, avals).is_kernel


def _choose_cotangent(
    target: adapter.Target, avals: Sequence[Any], *, scale: float, wrt: str, coupled: bool
) -> _Chosen:
    form = _form(target, avals)
    if form.attend_backward is None or coupled:
        f = partial(_compose_cotangent, scale=scale, wrt=wrt, coupled=coupled)
        return f, form.is_kernel
    kernel_of_gradients = form.attend_backward

    def evaluate(poses: Array, kernel: Array, parents: Array, cotangent: Array) -> list[Array]:
        gradients = kernel_of_gradients(poses, kernel, parents, cotangent, scale=scale)
        return [gradients[letter] for letter in wrt]

    return evaluate, True


# Types.


def _abstract(*avals: Any, scale: float) -> list[Any]:
    return [abstract(_LETTERS, avals[:3], letter) for letter in "qc"]


def _abstract_tangent(*avals: Any, scale: float, wrt: str) -> list[Any]:
    return [abstract(_LETTERS, avals[:3], letter) for letter in "qc"]


def _abstract_cotangent(*avals: Any, scale: float, wrt: str, coupled: bool) -> list[Any]:
    return [abstract(_LETTERS, avals[:3], letter) for letter in wrt]


# Rules of differentiation.


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, scale: float) -> Any:
    rates = {
        letter: adapter.instantiate(tangent)
        for letter, tangent in zip(_LETTERS, tangents, strict=True)
        if not adapter.is_zero(tangent)
    }
    out = attention_p.bind(*primals, scale=scale)
    args = adapter.alike([*primals, *rates.values()])
    return out, tangent_p.bind(*args, scale=scale, wrt="".join(rates))


def _jvp_of(composed: Callable[..., Any]) -> Callable[..., Any]:
    """Further derivatives: those of the derivatives of E."""

    def rule(primals: Sequence[Array], tangents: Sequence[Any], **params: Any) -> Any:
        rates = [adapter.instantiate(tangent) for tangent in tangents]
        out, out_tangents = jax.jvp(partial(composed, **params), tuple(primals), tuple(rates))
        return list(out), list(out_tangents)

    return rule


def _transpose_tangent(
    cotangents: Sequence[Any], *primals: Any, scale: float, wrt: str
) -> list[Any]:
    known, rates = primals[:3], primals[3:]
    if all(adapter.is_zero(cotangent) for cotangent in cotangents):
        return [None] * len(primals)
    unknown = [letter for letter, rate in zip(wrt, rates, strict=True) if adapter.is_unknown(rate)]
    coupled = not adapter.is_zero(cotangents[1])
    outer = [adapter.instantiate(x) for x in cotangents[: 1 + coupled]]
    results = cotangent_p.bind(
        *adapter.alike([*known, *outer]), scale=scale, wrt="".join(unknown), coupled=coupled
    )
    found = dict(zip(unknown, results, strict=True))
    return [None] * 3 + [found.get(letter) for letter in wrt]


def _transpose_cotangent(
    cotangents: Sequence[Any], *primals: Any, scale: float, wrt: str, coupled: bool
) -> list[Any]:
    """The transpose of the transpose: the tangent."""
    rates = {letter: x for letter, x in zip(wrt, cotangents, strict=True) if not adapter.is_zero(x)}
    if not rates:
        return [None] * len(primals)
    args = adapter.alike([*primals[:3], *rates.values()])
    results = tangent_p.bind(*args, scale=scale, wrt="".join(rates))
    asked = primals[3:]
    return [None] * 3 + [
        result if adapter.is_unknown(x) else None
        for result, x in zip(results[: 1 + coupled], asked, strict=True)
    ]


# Rules of vectorisation.


def _batch_of(
    bind: Callable[..., Any],
    letters: Callable[..., str],
    to_kernel: Callable[..., bool] = lambda **params: False,
) -> Callable[..., Any]:
    def rule(args: Sequence[Array], axes: Sequence[Any], **params: Any) -> Any:
        names = letters(**params)
        operands = batched(names, args, axes, to_kernel=to_kernel(**params))
        if operands is None:
            out = one_at_a_time(lambda *xs: bind(*xs, **params), args, axes)
        else:
            xs = operands[0] | operands[1]
            out = bind(*(xs[name] for name in names), **params)
        return out, [0] * len(out)

    return rule


def _tangent_letters(*, scale: float, wrt: str) -> str:
    return _LETTERS + "".join(_TANGENTS[letter] for letter in wrt)


def _cotangent_letters(*, scale: float, wrt: str, coupled: bool) -> str:
    return _LETTERS + "wc"[: 1 + coupled]


attention_p = adapter.define(
    "capsjax_attention", abstract=_abstract, choose=_choose, multiple_results=True
)
tangent_p = adapter.define(
    "capsjax_attention_tangent",
    abstract=_abstract_tangent,
    choose=_choose_tangent,
    multiple_results=True,
)
cotangent_p = adapter.define(
    "capsjax_attention_cotangent",
    abstract=_abstract_cotangent,
    choose=_choose_cotangent,
    multiple_results=True,
)
adapter.set_rules(attention_p, jvp=_jvp, batch=_batch_of(attention_p.bind, lambda scale: _LETTERS))
adapter.set_rules(
    tangent_p,
    jvp=_jvp_of(_compose_tangent),
    batch=_batch_of(tangent_p.bind, _tangent_letters),
    transpose=_transpose_tangent,
)
adapter.set_rules(
    cotangent_p,
    jvp=_jvp_of(_compose_cotangent),
    batch=_batch_of(cotangent_p.bind, _cotangent_letters, lambda scale, wrt, coupled: "k" in wrt),
    transpose=_transpose_cotangent,
)
