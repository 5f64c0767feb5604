"""Exchange in loops: each iteration sums, over replicas, the slice that the loop stacks."""

from __future__ import annotations

import pytest

from graphc.devices.exchange_in_loops import ExchangeInLoops
from graphc.passes.core.peak import peak
from tests.passes.check import check, check_stays, program

BEFORE = """
program p(x: f32[4, 1024, 1024], c: f32[1024, 1024]) {
  %c, %y, %z = Scan(c, x) {consts=0, carries=1, length=4, reverse=true}
      : f32[1024, 1024], f32[4, 1024, 1024], f32[4, 1024]
      with body(c: f32[1024, 1024], x: f32[1024, 1024]) {
    %d = Multiply(c, x) : f32[1024, 1024]
    %s = ReduceSum(%d) {axes=[0], keepdims=false} : f32[1024]
    return r0 = %d, r1 = %d, r2 = %s
  }
  %g = AllReduce(%y) {op="sum"} : f32[4, 1024, 1024]
  %h = AllReduce(%z) {op="sum"} : f32[4, 1024]
  return c = %c, g = %g, h = %h
}
"""


def test_large_slices_are_exchanged_in_the_body() -> None:
    """The carry does not change, and small slices are still exchanged together."""
    check(
        ExchangeInLoops(),
        BEFORE,
        """
        program p(x: f32[4, 1024, 1024], c: f32[1024, 1024]) {
          %c, %g, %z = Scan(c, x) {consts=0, carries=1, length=4, reverse=true}
              : f32[1024, 1024], f32[4, 1024, 1024], f32[4, 1024]
              with body(a0: f32[1024, 1024], a1: f32[1024, 1024]) {
            %d = Multiply(a0, a1) : f32[1024, 1024]
            %e = AllReduce(%d) {op="sum"} : f32[1024, 1024]
            %s = ReduceSum(%d) {axes=[0], keepdims=false} : f32[1024]
            return r0 = %d, r1 = %e, r2 = %s
          }
          %h = AllReduce(%z) {op="sum"} : f32[4, 1024]
          return c = %c, g = %g, h = %h
        }
        """,
    )


def nested(exchange: str = "") -> str:
    """A loop around the loop, as several steps in one call."""
    body = BEFORE.replace("program p(", "with step(").replace("c = %c, g = %g, h = %h", "%OUT")
    body = body.replace("%OUT", "r0 = %c, r1 = %g, r2 = %h").strip()
    return f"""
    program q(x: f32[4, 1024, 1024], c: f32[1024, 1024]) {{
      %c, %g, %h = Scan(x, c) {{consts=1, carries=1, length=2}}
          : f32[1024, 1024], f32[2, 4, 1024, 1024], f32[2, 4, 1024]
          {body}
      {exchange}
      return c = %c
    }}
    """


def test_steps_in_a_call_are_a_loop_around_the_loop() -> None:
    """The outer loop carries the results of the exchanged program."""
    before = program(nested())
    after, changed = ExchangeInLoops().run(before)
    assert changed == 1
    (step,) = after.nodes
    loop, rest = [node for node in step.regions[0].nodes if node.op.name in ("Scan", "AllReduce")]
    assert "AllReduce" in [node.op.name for node in loop.regions[0].nodes]
    assert rest.inputs[0] is loop.outputs[2]


def test_small_iterations() -> None:
    """The slices of an iteration have 1 MB in these cases."""
    text = BEFORE.replace("1024", "512")
    check_stays(ExchangeInLoops(turn=2**20 + 1), text)
    assert ExchangeInLoops(turn=2**20).run(program(text)).changed == 1


def test_only_programs_that_need_much() -> None:
    before = program(BEFORE)
    needed = peak(before)
    assert ExchangeInLoops(budget=needed).run(before).changed == 0
    assert ExchangeInLoops(budget=needed - 1).run(before).changed == 1


@pytest.mark.parametrize(
    ("platform", "fast", "budget", "found"),
    [
        ("cpu", False, None, [ExchangeInLoops(turn=2**18)]),
        ("gpu", True, 10, [ExchangeInLoops()]),
        ("gpu", False, 10, [ExchangeInLoops(budget=10)]),
        ("gpu", False, None, []),
    ],
)
def test_where_it_runs(
    platform: str, fast: bool, budget: int | None, found: list[ExchangeInLoops]
) -> None:
    assert ExchangeInLoops.on(platform, fast, budget) == found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("g = %g,", "g = %g, y = %y,"),  # the value before the exchange is used too
        ("AllReduce(%y)", "AllReduce(x)"),
        ("1024", "512"),  # too small
    ],
)
def test_others_stay(old: str, new: str) -> None:
    check_stays(ExchangeInLoops(), BEFORE.replace(old, new))


def test_the_last_carry_is_exchanged_after_the_loop() -> None:
    text = BEFORE.replace("(%y)", "(%c)").replace("c = %c, ", "")
    check_stays(ExchangeInLoops(), text.replace("4, 1024, 1024]\n  %h", "1024, 1024]\n  %h"))


def test_a_loop_in_a_loop_counts_with_that_one() -> None:
    exchange = '%e = AllReduce(%g) {op="sum"} : f32[2, 4, 1024, 1024]'
    assert ExchangeInLoops().run(program(nested(exchange))).changed == 2


def test_the_budget_is_that_of_the_whole_program() -> None:
    before = program(nested())
    needed = peak(before)
    assert peak(before.nodes[0].regions[0]) < needed
    assert ExchangeInLoops(budget=needed - 1).run(before).changed == 1


def test_what_a_body_takes_and_gives_is_exchanged() -> None:
    after, changed = ExchangeInLoops().run(program(BEFORE.replace("r1 = %d", "r1 = x")))
    assert changed == 1
    body = after.nodes[0].regions[0]
    (exchange,) = [node for node in body.nodes if node.op.name == "AllReduce"]
    assert exchange.inputs[0] is body.input_tensors()[1]
    assert body.output_tensors()[1] is exchange.outputs[0]
