"""Votes of any magnitude: every form of the attention step agrees with the plain one."""

import contextlib
import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.routing import DenseVotes
from capsjax.routing.kernels import attend, interpreted, without_kernels
from capsjax.routing.kernels.terms import Sizes
from capsjax.routing.votes import attend as attend_to
from tests.routing.kernels import problems

SIZES = {
    "matrices": Sizes((3,), children=3, parents=4, rows=2, columns=2, width=2),
    "vectors": Sizes((3,), children=3, parents=4, rows=1, columns=4, width=2),
    "numbers": Sizes((3,), children=3, parents=4, rows=1, columns=1, width=1),
}
LARGEST = 100  # 2¹⁰⁰ is 1.3e30
OVERFLOW = range(112, 144)  # here some of the agreements fit in float32


def dense(p, k, q):
    votes = jnp.einsum("niax,ixjy->nijay", p, k)
    sums, coupling = attend_to(DenseVotes(votes.reshape(*votes.shape[:3], -1)), flat(q))
    return sums.reshape(q.shape), coupling


def flat(x):
    return x.reshape(*x.shape[:2], -1)


@contextlib.contextmanager
def products():
    with interpreted("cuda"), without_kernels():
        yield


FORMS = {
    "dense": (dense, contextlib.nullcontext),
    "cpu": (attend, contextlib.nullcontext),
    "products": (attend, products),
    "tpu": (attend, functools.partial(interpreted, "tpu")),
    "cuda": (attend, functools.partial(interpreted, "cuda")),
}


def arguments(sizes, exponent_of_votes, exponent_of_parents):
    operands = problems.problem(sizes)
    p, k, q = (np.asarray(operands[letter], np.float32) for letter in "pkq")
    return np.ldexp(p, exponent_of_votes), k, np.ldexp(q, exponent_of_parents)


@functools.cache
def compiled(form, sizes):
    function, context = FORMS[form]
    with context():
        return jax.jit(lambda *xs: function(*xs)).lower(*arguments(sizes, 0, 0)).compile()


def plain(p, k, q):
    """With all votes written out, in float32."""
    with np.errstate(all="ignore"):
        votes = np.einsum("niax,ixjy->nijay", p, k)
        logits = np.sum(votes * q[:, None], axis=(-2, -1))
        values = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
        coupling = values / np.sum(values, axis=-1, keepdims=True)
        return np.einsum("nij,nijay->njay", coupling, votes), coupling


exponents = st.integers(-LARGEST, LARGEST)


@pytest.mark.parametrize("size", SIZES)
@hypothesis.given(of_votes=exponents, of_parents=exponents)
@hypothesis.example(of_votes=LARGEST, of_parents=0)
@hypothesis.example(of_votes=LARGEST, of_parents=LARGEST)
@hypothesis.example(of_votes=-LARGEST, of_parents=-LARGEST)
@hypothesis.settings(deadline=None)
def test_every_form_agrees(size, of_votes, of_parents):
    hypothesis.assume(of_votes + of_parents not in OVERFLOW)
    values = arguments(SIZES[size], of_votes, of_parents)
    expected = plain(*values)
    finite = of_votes + of_parents < OVERFLOW.start
    for x in expected:
        assert np.all(np.isfinite(x)) if finite else np.all(np.isnan(x))
    for form in FORMS:
        for ours, theirs in zip(compiled(form, SIZES[size])(*values), expected, strict=True):
            if finite:
                scale = np.max(np.abs(theirs))
                assert np.max(np.abs(ours - theirs)) <= 1e-4 * scale, form
            else:
                assert np.all(np.isnan(ours)), form
