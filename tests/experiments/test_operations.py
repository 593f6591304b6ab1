import jax
import jax.numpy as jnp
import pytest
from _benchmark.operations import collectives, operations
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


def test_collectives_in_the_text_of_a_module():
    text = """
      %x = f32[2,3]{1,0} add(f32[2,3]{1,0} %a, f32[2,3]{1,0} %b)
      %r = (f32[2,3]{1,0}, s32[], bf16[4]{0}) all-reduce(%x, %y, %z), to_apply=%add
      ROOT %g = f32[8,16]{1,0} all-gather(f32[1,16]{1,0} %p), dimensions={0}
    """
    assert collectives(text) == {"all-reduce": (1, 24 + 4 + 8), "all-gather": (1, 512)}
