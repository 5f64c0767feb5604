"""GpuRecomputeActivations: derivatives of activations are recomputed where they are used."""

from __future__ import annotations

import pytest

from graphc.ops.catalogue import CATALOGUE
from graphc.passes.gpu.gpu_recompute_activations import EXPENSIVE, GpuRecomputeActivations
from tests.passes.check import check, check_stays, program

AGAIN = GpuRecomputeActivations(smallest=0)


def layer(backward: str, result: str) -> str:
    """y = sigmoid(x @ w) * (x @ w) @ v, and nodes of its backward pass."""
    return f"""
        program p(x: f32[4, 4], w: state f32[4, 4], v: state f32[4, 4], dy: f32[4, 4]) {{
          %0 = MatMul(x, w) : f32[4, 4]
          %1 = Sigmoid(%0) : f32[4, 4]
          %2 = Multiply(%0, %1) : f32[4, 4]
          %3 = MatMul(%2, v) : f32[4, 4]
          %4 = Multiply(%3, dy) : f32[4, 4]
          %5 = MatMul(%4, v) {{transpose_b=true}} : f32[4, 4]
          {backward}
          return y = %3, dz = {result}
        }}
    """


def test_the_backward_pass_computes_the_derivative_of_what_is_stored() -> None:
    check(
        AGAIN,
        layer(
            """
          %6 = Multiply(%2, %1) : f32[4, 4]
          %7 = Subtract(%1, %6) : f32[4, 4]
          %8 = Multiply(%5, %7) : f32[4, 4]
            """,
            "%8",
        ),
        layer(
            """
          %6 = Fence(%0) {number=0} : f32[4, 4]
          %7 = Sigmoid(%6) : f32[4, 4]
          %8 = Fence(%2) {number=0} : f32[4, 4]
          %9 = Multiply(%8, %7) : f32[4, 4]
          %10 = Subtract(%7, %9) : f32[4, 4]
          %11 = Multiply(%5, %10) : f32[4, 4]
            """,
            "%11",
        ),
    )


STAYS = {
    "cheap": ("%6 = Multiply(%0, %0) : f32[4, 4]\n%7 = Multiply(%5, %6) : f32[4, 4]", "%7"),
    "of nothing later": ("%6 = Multiply(%1, %0) : f32[4, 4]", "%6"),
    "stored": ("%6 = Multiply(%5, %2) : f32[4, 4]", "%6"),
    "of three values": (
        """
          %6 = Tanh(x) : f32[4, 4]
          %7 = Multiply(%6, w) : f32[4, 4]
          %8 = Multiply(%7, dy) : f32[4, 4]
          %9 = Multiply(%5, %8) : f32[4, 4]
        """,
        "%9",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    check_stays(AGAIN, layer(*STAYS[name]))


def test_small_values_stay() -> None:
    nodes = "%6 = Multiply(%5, %1) : f32[4, 4]"
    check_stays(GpuRecomputeActivations(), layer(nodes, "%6"))
    check_stays(GpuRecomputeActivations(smallest=65), layer(nodes, "%6"))
    assert GpuRecomputeActivations(smallest=64).run(program(layer(nodes, "%6"))).changed == 1


def test_the_functions_are_operators() -> None:
    assert CATALOGUE.keys() >= EXPENSIVE
