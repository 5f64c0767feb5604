"""How many iterations of a loop are compiled as one: the estimate and its use."""

from __future__ import annotations

import jax
import numpy as np

from graphc.lowering.emit_jax import to_function
from graphc.passes.rolling.roll_repeats import RollRepeats
from tests.passes.check import program


def unroll(shape: str, weights: str, state: str = "state") -> int:
    """How many iterations of the loop over `x * w` are compiled as one."""
    lines, x = [], "x"
    for place, w in enumerate(weights):
        lines.append(f"%{place} = Multiply({x}, {w}) : f32[{shape}]")
        x = f"%{place}"
    ports = ", ".join(f"{w}: {state} f32[{shape}]" for w in sorted(set(weights)))
    nodes = "\n".join(lines)
    text = f"program p(x: f32[{shape}], {ports}) {{\n{nodes}\nreturn y = {x}\n}}"
    scan = RollRepeats(turns=3, saved=1, work=0).run(program(text)).program.nodes[-1]
    turns: int = scan.attrs["unroll"]
    return turns


def test_only_tiny_iterations_without_parameters_of_their_own_are_unrolled() -> None:
    assert unroll("4", "aaaa") == 4
    assert unroll("4", "abcd", state="feed") == 4
    assert unroll("4", "abcd") == 1
    assert unroll("64, 64", "aaaa") == 1
    assert unroll("n", "aaaa") == 1  # n may be large


def test_the_requested_unrolling_reaches_the_compiled_loop() -> None:
    start = program(
        """
        program p(x: f32[2]) {
          %0 = Scan(x) {consts=0, carries=1, length=8, unroll=3} : f32[2] with body(a0: f32[2]) {
            %0 = Tanh(a0) : f32[2]
            return r0 = %0
          }
          return y = %0
        }
        """
    )
    assert "unroll=3" in str(jax.make_jaxpr(to_function(start))(np.zeros(2, np.float32)))
