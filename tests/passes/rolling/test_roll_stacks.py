"""RollRepeats: stacked operands and results of loops, from state, constants and other loops."""

from __future__ import annotations

from graphc.passes.rolling.roll_repeats import RollRepeats
from tests.passes.check import check, program
from tests.passes.rolling.models import ROLL, layers, rolls, text


def test_the_backward_pass_takes_the_stacks_of_the_forward_pass_without_a_copy() -> None:
    """The reverse scan takes results of each iteration and the carry at the iteration's start."""
    rolls(
        """
        %0 = Multiply(x, a) : f32[2]
        %1 = Tanh(%0) : f32[2]
        %2 = Multiply(%1, b) : f32[2]
        %3 = Tanh(%2) : f32[2]
        %4 = Multiply(%3, c) : f32[2]
        %5 = Tanh(%4) : f32[2]
        %6 = Multiply(z, %5) : f32[2]
        %7 = Multiply(%6, %3) : f32[2]
        %8 = Multiply(%6, c) : f32[2]
        %9 = Multiply(%8, %3) : f32[2]
        %10 = Multiply(%9, %1) : f32[2]
        %11 = Multiply(%9, b) : f32[2]
        %12 = Multiply(%11, %1) : f32[2]
        %13 = Multiply(%12, x) : f32[2]
        %14 = Multiply(%12, a) : f32[2]
        return dx = %14, da = %13, db = %10, dc = %7
        """,
        """
        %0 = Stack(a, b, c) : f32[3, 2]
        %1, %2, %3 = Scan(x, %0) {consts=0, carries=1, length=3} : f32[2], f32[3, 2], f32[3, 2]
            with forward(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          return r0 = %1, r1 = %1, r2 = a0
        }
        %4, %5 = Scan(z, %2, %3, %0) {consts=0, carries=1, length=3, reverse=true}
            : f32[2], f32[3, 2]
            with backward(a0: f32[2], a1: f32[2], a2: f32[2], a3: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Multiply(%0, a2) : f32[2]
          %2 = Multiply(%0, a3) : f32[2]
          return r0 = %2, r1 = %1
        }
        %6, %7, %8 = Unstack(%5) : f32[2], f32[2], f32[2]
        return dx = %4, da = %6, db = %7, dc = %8
        """,
    )


def test_tied_weights_are_shared_and_the_sum_of_their_gradients_is_carried() -> None:
    """The gradient of the last layer starts the sum, so this iteration stays outside."""
    rolls(
        f"""
        {layers("aaaa")}
        %8 = Multiply(z, %5) : f32[2]
        %9 = Multiply(z, a) : f32[2]
        %10 = Multiply(%9, %3) : f32[2]
        %11 = Add(%8, %10) : f32[2]
        %12 = Multiply(%9, a) : f32[2]
        %13 = Multiply(%12, %1) : f32[2]
        %14 = Add(%11, %13) : f32[2]
        %15 = Multiply(%12, a) : f32[2]
        %16 = Multiply(%15, x) : f32[2]
        %17 = Add(%14, %16) : f32[2]
        %18 = Multiply(%15, a) : f32[2]
        return y = %7, da = %17, dx = %18
        """,
        """
        %0, %1, %2 = Scan(a, x) {consts=1, carries=1, length=4, unroll=4}
            : f32[2], f32[4, 2], f32[4, 2] with forward(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a1, a0) : f32[2]
          %1 = Tanh(%0) : f32[2]
          return r0 = %1, r1 = a1, r2 = %1
        }
        %3, %4, %5, %6 = Unstack(%2) : f32[2], f32[2], f32[2], f32[2]
        %7 = Multiply(z, %5) : f32[2]
        %8 = Slice(%1) {starts=[0, 0], limits=[3, 2], strides=[1, 1]} : f32[3, 2]
        %9, %10 = Scan(a, z, %7, %8) {consts=1, carries=2, length=3, reverse=true, unroll=4}
            : f32[2], f32[2] with backward(a0: f32[2], a1: f32[2], a2: f32[2], a3: f32[2]) {
          %0 = Multiply(a1, a0) : f32[2]
          %1 = Multiply(%0, a3) : f32[2]
          %2 = Add(a2, %1) : f32[2]
          return r0 = %0, r1 = %2
        }
        %11 = Multiply(%9, a) : f32[2]
        return y = %0, da = %10, dx = %11
        """,
    )


def test_constants_of_the_iterations_become_one_constant() -> None:
    """The dropout keys of layers are an example: each layer folds in another number."""
    check(
        ROLL,
        """
        program p(x: f32[2], k: state u32[2]) {
          %0 = Constant() {value=i32[] 5} : i32[]
          %1 = FoldIn(k, %0) : u32[2]
          %2, %3 = Dropout(x, %1) {rate=0.5} : f32[2], bool[2]
          %4 = Constant() {value=i32[] 6} : i32[]
          %5 = FoldIn(k, %4) : u32[2]
          %6, %7 = Dropout(%2, %5) {rate=0.5} : f32[2], bool[2]
          %8 = Constant() {value=i32[] 7} : i32[]
          %9 = FoldIn(k, %8) : u32[2]
          %10, %11 = Dropout(%6, %9) {rate=0.5} : f32[2], bool[2]
          return y = %10
        }
        """,
        """
        program p(x: f32[2], k: state u32[2]) {
          %0 = Constant() {value=i32[3] [5, 6, 7]} : i32[3]
          %1 = Scan(k, x, %0) {consts=1, carries=1, length=3, unroll=4} : f32[2]
              with body(a0: u32[2], a1: f32[2], a2: i32[]) {
            %0 = FoldIn(a0, a2) : u32[2]
            %1, %2 = Dropout(a1, %0) {rate=0.5} : f32[2], bool[2]
            return r0 = %1
          }
          return y = %1
        }
        """,
    )


def test_of_constants_and_state_a_stack_is_made() -> None:
    rolls(
        """
        %0 = Constant() {value=f32[2] [1.0, 2.0]} : f32[2]
        %1 = Multiply(x, %0) : f32[2]
        %2 = Tanh(%1) : f32[2]
        %3 = Multiply(%2, b) : f32[2]
        %4 = Tanh(%3) : f32[2]
        %5 = Multiply(%4, y) : f32[2]
        %6 = Tanh(%5) : f32[2]
        return y = %6
        """,
        """
        %0 = Constant() {value=f32[2] [1.0, 2.0]} : f32[2]
        %1 = Stack(%0, b, y) : f32[3, 2]
        %2 = Scan(x, %1) {consts=0, carries=1, length=3, unroll=4} : f32[2]
            with body(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          return r0 = %1
        }
        return y = %2
        """,
    )


def test_values_of_single_iterations_are_cut_from_a_stack_but_the_last_carry_is_there() -> None:
    rolls(
        f"""
        {layers("abc")}
        %6 = Negative(%1) : f32[2]
        return second = %2, last = %5, other = %6, again = %3
        """,
        """
        %0 = Stack(a, b, c) : f32[3, 2]
        %1, %2, %3 = Scan(x, %0) {consts=0, carries=1, length=3} : f32[2], f32[3, 2], f32[3, 2]
            with body(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          return r0 = %1, r1 = %1, r2 = %0
        }
        %4, %5, %6 = Unstack(%2) : f32[2], f32[2], f32[2]
        %7, %8, %9 = Unstack(%3) : f32[2], f32[2], f32[2]
        %10 = Negative(%4) : f32[2]
        return second = %8, last = %1, other = %10, again = %5
        """,
    )


def test_a_value_of_one_iteration_may_be_shared_by_a_later_loop() -> None:
    rolls(
        f"""
        {layers("aaa")}
        %6 = Multiply(y, %1) : f32[2]
        %7 = Negative(%6) : f32[2]
        %8 = Multiply(%7, %1) : f32[2]
        %9 = Negative(%8) : f32[2]
        %10 = Multiply(%9, %1) : f32[2]
        %11 = Negative(%10) : f32[2]
        return y = %11
        """,
        """
        %0, %1 = Scan(a, x) {consts=1, carries=1, length=3, unroll=4} : f32[2], f32[3, 2]
            with first(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a1, a0) : f32[2]
          %1 = Tanh(%0) : f32[2]
          return r0 = %1, r1 = %1
        }
        %2, %3, %4 = Unstack(%1) : f32[2], f32[2], f32[2]
        %5 = Scan(%2, y) {consts=1, carries=1, length=3, unroll=4} : f32[2]
            with second(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a1, a0) : f32[2]
          %1 = Negative(%0) : f32[2]
          return r0 = %1
        }
        return y = %5
        """,
    )


def test_each_result_of_a_node_is_stacked_by_itself() -> None:
    check(
        ROLL,
        """
        program p(x: f32[2, 2], s: state f32[2]) {
          %0, %1, %2 = LayerNormGradient(x, s, x) {epsilon=0.1} : f32[2, 2], f32[2], f32[2]
          %3 = Tanh(%0) : f32[2, 2]
          %4, %5, %6 = LayerNormGradient(%3, s, %3) {epsilon=0.1} : f32[2, 2], f32[2], f32[2]
          %7 = Tanh(%4) : f32[2, 2]
          %8, %9, %10 = LayerNormGradient(%7, s, %7) {epsilon=0.1} : f32[2, 2], f32[2], f32[2]
          %11 = Tanh(%8) : f32[2, 2]
          return y = %11, scale1 = %5, offset0 = %2, offset2 = %10
        }
        """,
        """
        program p(x: f32[2, 2], s: state f32[2]) {
          %0, %1, %2 = Scan(s, x) {consts=1, carries=1, length=3, unroll=4}
              : f32[2, 2], f32[3, 2], f32[3, 2] with body(a0: f32[2], a1: f32[2, 2]) {
            %0, %1, %2 = LayerNormGradient(a1, a0, a1) {epsilon=0.1} : f32[2, 2], f32[2], f32[2]
            %3 = Tanh(%0) : f32[2, 2]
            return r0 = %3, r1 = %1, r2 = %2
          }
          %3, %4, %5 = Unstack(%1) : f32[2], f32[2], f32[2]
          %6, %7, %8 = Unstack(%2) : f32[2], f32[2], f32[2]
          return y = %0, scale1 = %4, offset0 = %6, offset2 = %8
        }
        """,
    )


def test_a_later_loop_over_fewer_iterations_takes_a_part() -> None:
    rolls(
        """
        %0 = Tanh(x) : f32[2]
        %1 = Add(%0, y) : f32[2]
        %2 = Tanh(%1) : f32[2]
        %3 = Add(%2, y) : f32[2]
        %4 = Tanh(%3) : f32[2]
        %5 = Add(%4, y) : f32[2]
        %6 = Tanh(%5) : f32[2]
        %7 = Add(%6, y) : f32[2]
        %8 = Tanh(%7) : f32[2]
        %9 = Add(%8, y) : f32[2]
        %10 = Multiply(%9, %6) : f32[2]
        %11 = Negative(%10) : f32[2]
        %12 = Multiply(%11, %4) : f32[2]
        %13 = Negative(%12) : f32[2]
        %14 = Multiply(%13, %2) : f32[2]
        %15 = Negative(%14) : f32[2]
        return y = %15
        """,
        """
        %0, %1 = Scan(y, x) {consts=1, carries=1, length=5, unroll=4} : f32[2], f32[5, 2]
            with body(a0: f32[2], a1: f32[2]) {
          %0 = Tanh(a1) : f32[2]
          %1 = Add(%0, a0) : f32[2]
          return r0 = %1, r1 = %0
        }
        %2 = Slice(%1) {starts=[1, 0], limits=[4, 2], strides=[1, 1]} : f32[3, 2]
        %3 = Scan(%0, %2) {consts=0, carries=1, length=3, reverse=true, unroll=4} : f32[2]
            with body(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Negative(%0) : f32[2]
          return r0 = %1
        }
        return y = %3
        """,
    )


def test_where_orders_differ_the_one_of_most_stacks_wins_and_the_others_are_turned() -> None:
    """The last loop takes u t s and %5 %3 %1 backwards without a copy, and reverses %0 %2 %4."""
    rolls(
        """
        %0 = Tanh(x) : f32[2]
        %1 = Add(%0, y) : f32[2]
        %2 = Tanh(%1) : f32[2]
        %3 = Add(%2, y) : f32[2]
        %4 = Tanh(%3) : f32[2]
        %5 = Add(%4, y) : f32[2]
        %6 = Maximum(%5, %1) : f32[2]
        %7 = Multiply(%6, %4) : f32[2]
        %8 = Add(%7, %5) : f32[2]
        %9 = Maximum(%8, %3) : f32[2]
        %10 = Multiply(%9, %2) : f32[2]
        %11 = Add(%10, %3) : f32[2]
        %12 = Maximum(%11, %5) : f32[2]
        %13 = Multiply(%12, %0) : f32[2]
        %14 = Add(%13, %1) : f32[2]
        return y = %14
        """,
        """
        %0, %1, %2 = Scan(y, x) {consts=1, carries=1, length=3, unroll=4}
            : f32[2], f32[3, 2], f32[3, 2] with body(a0: f32[2], a1: f32[2]) {
          %0 = Tanh(a1) : f32[2]
          %1 = Add(%0, a0) : f32[2]
          return r0 = %1, r1 = %1, r2 = %0
        }
        %3 = Reverse(%1) {axes=[0]} : f32[3, 2]
        %4 = Scan(%0, %3, %2, %1) {consts=0, carries=1, length=3, reverse=true, unroll=4} : f32[2]
            with body(a0: f32[2], a1: f32[2], a2: f32[2], a3: f32[2]) {
          %0 = Maximum(a0, a1) : f32[2]
          %1 = Multiply(%0, a2) : f32[2]
          %2 = Add(%1, a3) : f32[2]
          return r0 = %2
        }
        return y = %4
        """,
    )


def test_with_as_many_stacks_each_way_a_loop_goes_forwards() -> None:
    """The second loop takes a b c without a copy, and reverses x %1 %3."""
    rolls(
        f"""
        {layers("abc")}
        %6 = Multiply(%5, %3) : f32[2]
        %7 = Maximum(%6, a) : f32[2]
        %8 = Multiply(%7, %1) : f32[2]
        %9 = Maximum(%8, b) : f32[2]
        %10 = Multiply(%9, x) : f32[2]
        %11 = Maximum(%10, c) : f32[2]
        return y = %11
        """,
        """
        %0 = Stack(a, b, c) : f32[3, 2]
        %1, %2 = Scan(x, %0) {consts=0, carries=1, length=3} : f32[2], f32[3, 2]
            with first(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          return r0 = %1, r1 = a0
        }
        %3 = Reverse(%2) {axes=[0]} : f32[3, 2]
        %4 = Scan(%1, %3, %0) {consts=0, carries=1, length=3} : f32[2]
            with second(a0: f32[2], a1: f32[2], a2: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Maximum(%0, a2) : f32[2]
          return r0 = %1
        }
        return y = %4
        """,
    )


def test_two_loops_over_the_same_parameters_share_a_stack() -> None:
    before = f"{layers('abc')}\n{layers('abc', '%5', 6, 'Relu')}\nreturn y = %11"
    rolled = RollRepeats(3, 4, 0).run(program(text(before))).program
    assert [node.op.name for node in rolled.nodes] == ["Stack", "Scan", "Scan"]


def test_loops_over_the_same_layers_begin_at_the_same_layer() -> None:
    """The first half of the first layer differs, so forward iterations could begin inside a layer
    and have as few carries. The backward loop would then need parts of the stacks."""
    count = 6
    lines, x = [], "x"
    for i in range(count):
        first = f"Multiply({x}, a{i})" if i else f"Add({x}, a{i})"
        lines += [
            f"%h{i} = {first} : f32[2]",
            f"%t{i} = Tanh(%h{i}) : f32[2]",
            f"%g{i} = Multiply(%t{i}, b{i}) : f32[2]",
            f"%y{i} = Sin(%g{i}) : f32[2]",
        ]
        x = f"%y{i}"
    dy = "x"
    for i in reversed(range(count)):
        lines += [
            f"%u{i} = Multiply({dy}, %y{i}) : f32[2]",
            f"%v{i} = Multiply(%u{i}, b{i}) : f32[2]",
            f"%w{i} = Multiply(%v{i}, %t{i}) : f32[2]",
            f"%z{i} = Multiply(%w{i}, a{i}) : f32[2]",
            f"%e{i} = Cos(%z{i}) : f32[2]",
        ]
        dy = f"%e{i}"
    ports = ", ".join(f"{name}{i}: state f32[2]" for i in range(count) for name in "ab")
    body = "\n".join(lines)
    before = program(f"program p(x: f32[2], {ports}) {{\n{body}\nreturn y = {x}, dx = {dy}\n}}")
    nodes = RollRepeats(turns=3, saved=4, work=0).run(before).program.nodes
    forward, backward = (node for node in nodes if node.op.name == "Scan")
    assert forward.attrs["length"] == backward.attrs["length"] == count - 1
    assert not forward.attrs["reverse"] and backward.attrs["reverse"]
    stacked = {t for node in nodes if node.op.name == "Stack" for t in node.outputs}
    assert len(stacked) == 2 and stacked <= set(forward.inputs) & set(backward.inputs)
