import jax
import jax.numpy as jnp
import pytest
from _benchmark.operations import operations
from jax import lax


def count(function, *shapes):
    return operations(jax.make_jaxpr(function)(*map(jnp.ones, shapes)).jaxpr)


def test_a_matrix_product():
    found = count(lambda x, y: jnp.tanh(x @ y), (3, 5), (5, 7))
    assert found == (2 * 3 * 5 * 7, 3 * 7, 4 * (15 + 35 + 21))


def test_loops_by_their_length():
    once = count(lambda x: jnp.sum(x @ x), (4, 4))
    loop = count(lambda x: lax.fori_loop(0, 6, lambda i, y: y @ x, x), (4, 4))
    mapped = count(lambda x: lax.map(lambda row: jnp.sum(x @ row), x), (4, 4))
    assert loop.products == 6 * once.products
    assert mapped[:2] == once[:2]
    with pytest.raises(ValueError, match="cannot be counted"):
        count(lambda x: lax.while_loop(lambda y: y[0, 0] < 9, lambda y: y @ x, x), (4, 4))


def test_a_strided_convolution_and_its_gradients_cost_the_same():
    def convolution(x, kernel):
        return lax.conv_general_dilated(
            x, kernel, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    shapes = (2, 20, 20, 8), (9, 9, 8, 16)
    forward = count(convolution, *shapes).products
    assert forward == 2 * (2 * 6 * 6 * 16) * 9 * 9 * 8
    # The forward pass once more, and two gradients.
    both = count(jax.grad(lambda *xy: convolution(*xy).sum(), (0, 1)), *shapes).products
    assert both == 3 * forward
