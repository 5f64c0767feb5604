"""The user's source line is found through layers of other code."""

import jax
import pytest

from graphc.build import placeholder
from graphc.errors import ShapeError
from graphc.ir.graph import Graph


def test_a_function_that_jax_maps_over_a_nest_is_the_users() -> None:
    with Graph():
        x, y = placeholder((2,)), placeholder((3,))
        with pytest.raises(ShapeError, match=r"test_source\.py:\d+"):
            jax.tree.map(lambda a: a + y, [x])


def test_a_method_that_jax_calls_names_the_line_of_the_map() -> None:
    with Graph():
        x, y = placeholder((2,)), placeholder((3,))
        with pytest.raises(ShapeError, match=r"test_source\.py:\d+") as info:
            jax.tree.map(type(x).__add__, [x], [y])
    assert "tree_util" not in str(info.value)
