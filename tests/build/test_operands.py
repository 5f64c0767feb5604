"""Operations that a symbolic tensor does not support, and the errors."""

import re

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError
from tests.near import assert_near


@pytest.mark.parametrize(
    "use, words",
    [
        (bool, "has no truth value"),
        (iter, "cannot be iterated over"),
        (float, "has no value"),
        (int, "has no value"),
        (np.asarray, "has no value"),
    ],
)
@pytest.mark.parametrize("kind", ["tensor", "variable"])
def test_a_tensor_has_no_value_while_the_graph_is_built(use, words: str, kind: str) -> None:
    with gc.Graph():
        operand = gc.constant(1.0) if kind == "tensor" else gc.variable(1.0, name="v")
        with pytest.raises(GraphError, match=words) as caught:
            use(operand)
    assert re.search(r"test_operands\.py:\d+", str(caught.value))
    assert "hint:" in str(caught.value)


def test_operators_of_tensors_are_those_of_numpy() -> None:
    a = np.array([[1.5, -2.0], [3.0, 0.5]], np.float32)
    g = gc.Graph()
    with g:
        x = gc.constant(a)
        results = [
            x + 1, 1 - x, x * x, 2 / x, x // 0.75, 7 % x, x**2, 2**x, -x, abs(x), x @ x,
            x < 1, x <= 1.5, x > 1, x >= 0.5, x[0], x[:, ::-1], ~(x > 1), (x > 1) & (x < 2),
            (x > 1) | (x < 0), a - x,
        ]  # fmt: skip
    wanted = [
        a + 1, 1 - a, a * a, 2 / a, a // 0.75, 7 % a, a**2, 2**a, -a, abs(a), a @ a,
        a < 1, a <= 1.5, a > 1, a >= 0.5, a[0], a[:, ::-1], ~(a > 1), (a > 1) & (a < 2),
        (a > 1) | (a < 0), a - a,
    ]  # fmt: skip
    for got, expected in zip(gc.Session(g).run(results), wanted, strict=True):
        assert_near(got, expected, rtol=1e-6)
