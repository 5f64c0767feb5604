"""JoinWindows: windows of one tensor become one stack, as text before and after the pass."""

from __future__ import annotations

import pytest

from graphc.passes.rolling.join_windows import JoinWindows
from graphc.passes.rolling.roll_repeats import RollRepeats
from graphc.passes.simplify.prune import Prune
from tests.passes.check import check, check_pair, check_stays, program

JOIN = JoinWindows(fewest=3)


def test_slices_at_consecutive_places() -> None:
    check_pair(
        JOIN,
        """
        x: f32[2, 4]
        %0 = Tanh(x) : f32[2, 4]
        %1 = Slice(%0) {starts=[0, 1], limits=[2, 2], strides=[1, 1]} : f32[2, 1]
        %2 = Slice(%0) {starts=[0, 2], limits=[2, 3], strides=[1, 1]} : f32[2, 1]
        %3 = Slice(%0) {starts=[0, 3], limits=[2, 4], strides=[1, 1]} : f32[2, 1]
        return a = %1, b = %2, c = %3
        =>
        %0 = Tanh(x) : f32[2, 4]
        %1 = Slice(%0) {starts=[0, 1], limits=[2, 4], strides=[1, 1]} : f32[2, 3]
        %2 = Reshape(%1) {shape=[2, 3, 1]} : f32[2, 3, 1]
        %3, %4, %5 = Unstack(%2) {axis=1} : f32[2, 1], f32[2, 1], f32[2, 1]
        return a = %3, b = %4, c = %5
        """,
    )


def test_wide_slices_with_gaps_in_any_order() -> None:
    """Every third pair of columns; the last group of three is not complete."""
    check_pair(
        JOIN,
        """
        x: f32[12]
        %0 = Slice(x) {starts=[6], limits=[8], strides=[1]} : f32[2]
        %1 = Slice(x) {starts=[0], limits=[2], strides=[1]} : f32[2]
        %2 = Slice(x) {starts=[3], limits=[5], strides=[1]} : f32[2]
        return a = %0, b = %1, c = %2
        =>
        %0 = Slice(x) {starts=[0], limits=[9], strides=[1]} : f32[9]
        %1 = Reshape(%0) {shape=[3, 3]} : f32[3, 3]
        %2 = Slice(%1) {starts=[0, 0], limits=[3, 2], strides=[1, 1]} : f32[3, 2]
        %3, %4, %5 = Unstack(%2) {axis=0} : f32[2], f32[2], f32[2]
        return a = %5, b = %3, c = %4
        """,
    )


def test_constant_indices() -> None:
    check_pair(
        JOIN,
        """
        x: f32[3, 2]
        %0 = Constant() {value=i32[] 0} : i32[]
        %1 = Constant() {value=i32[] 1} : i32[]
        %2 = Constant() {value=i32[] -1} : i32[]
        %3 = Take(x, %0) {axis=0} : f32[2]
        %4 = Take(x, %1) {axis=0} : f32[2]
        %5 = Take(x, %2) {axis=0, mode="fill"} : f32[2]
        return a = %3, b = %4, c = %5
        =>
        %0, %1, %2 = Unstack(x) {axis=0} : f32[2], f32[2], f32[2]
        return a = %0, b = %1, c = %2
        """,
    )


@pytest.mark.parametrize(
    "starts", [(0, 1, 2), (0, 2, 5), (0, 2)], ids=["overlap", "no regular distance", "too few"]
)
def test_slices_that_stay(starts: tuple[int, ...]) -> None:
    lines = [
        f"%{i} = Slice(x) {{starts=[{s}], limits=[{s + 2}], strides=[1]}} : f32[2]"
        for i, s in enumerate(starts)
    ]
    names = ", ".join(f"y{i} = %{i}" for i in range(len(starts)))
    nodes = "\n".join(lines)
    check_stays(JOIN, f"program p(x: f32[8]) {{\n{nodes}\nreturn {names}\n}}")


def test_a_sum_of_padded_pieces() -> None:
    """Gradients of slices are added in this order, from the last to the first."""
    check_pair(
        JOIN,
        """
        a: f32[2, 1], b: f32[2, 1], c: f32[2, 1]
        %0 = Constant() {value=f32[] 0.0} : f32[]
        %1 = Pad(c, %0) {pads=[[0, 0, 0], [2, 1, 0]]} : f32[2, 4]
        %2 = Pad(b, %0) {pads=[[0, 0, 0], [1, 2, 0]]} : f32[2, 4]
        %3 = Add(%1, %2) : f32[2, 4]
        %4 = Pad(a, %0) {pads=[[0, 0, 0], [0, 3, 0]]} : f32[2, 4]
        %5 = Add(%3, %4) : f32[2, 4]
        return y = %5
        =>
        %0 = Stack(a, b, c) {axis=1} : f32[2, 3, 1]
        %1 = Reshape(%0) {shape=[2, 3]} : f32[2, 3]
        %2 = Constant() {value=f32[] 0.0} : f32[]
        %3 = Pad(%1, %2) {pads=[[0, 0, 0], [0, 1, 0]]} : f32[2, 4]
        return y = %3
        """,
    )


def test_pieces_without_the_axis_and_one_more_operand() -> None:
    check_pair(
        JOIN,
        """
        a: f32[2], b: f32[2], c: f32[2], d: f32[2, 3]
        %0 = Constant() {value=f32[] 0.0} : f32[]
        %1 = Reshape(a) {shape=[2, 1]} : f32[2, 1]
        %2 = Pad(%1, %0) {pads=[[0, 0, 0], [0, 2, 0]]} : f32[2, 3]
        %3 = Add(d, %2) : f32[2, 3]
        %4 = Reshape(b) {shape=[2, 1]} : f32[2, 1]
        %5 = Pad(%4, %0) {pads=[[0, 0, 0], [1, 1, 0]]} : f32[2, 3]
        %6 = Add(%3, %5) : f32[2, 3]
        %7 = Reshape(c) {shape=[2, 1]} : f32[2, 1]
        %8 = Pad(%7, %0) {pads=[[0, 0, 0], [2, 0, 0]]} : f32[2, 3]
        %9 = Add(%6, %8) : f32[2, 3]
        return y = %9
        =>
        %0 = Stack(a, b, c) {axis=1} : f32[2, 3]
        %1 = Add(d, %0) : f32[2, 3]
        return y = %1
        """,
    )


def test_a_gap_and_a_piece_by_itself() -> None:
    check_pair(
        JOIN,
        """
        a: f32[1], b: f32[1], c: f32[1], d: f32[1]
        %0 = Constant() {value=f32[] 0.0} : f32[]
        %1 = Pad(a, %0) {pads=[[0, 8, 0]]} : f32[9]
        %2 = Pad(b, %0) {pads=[[2, 6, 0]]} : f32[9]
        %3 = Add(%1, %2) : f32[9]
        %4 = Pad(c, %0) {pads=[[4, 4, 0]]} : f32[9]
        %5 = Add(%3, %4) : f32[9]
        %6 = Pad(d, %0) {pads=[[7, 1, 0]]} : f32[9]
        %7 = Add(%5, %6) : f32[9]
        return y = %7
        =>
        %0 = Stack(a, b, c) {axis=0} : f32[3, 1]
        %1 = Constant() {value=f32[] 0.0} : f32[]
        %2 = Pad(%0, %1) {pads=[[0, 0, 0], [0, 1, 0]]} : f32[3, 2]
        %3 = Reshape(%2) {shape=[6]} : f32[6]
        %4 = Constant() {value=f32[] 0.0} : f32[]
        %5 = Pad(%3, %4) {pads=[[0, 3, 0]]} : f32[9]
        %6 = Constant() {value=f32[] 0.0} : f32[]
        %7 = Pad(d, %6) {pads=[[7, 1, 0]]} : f32[9]
        %8 = Add(%5, %7) : f32[9]
        return y = %8
        """,
    )


PADS = """%0 = Constant() {value=f32[] 0.0} : f32[]
%1 = Pad(a, %0) {pads=[[0, 4, 0]]} : f32[6]
%2 = Pad(b, %0) {pads=[[SECOND]]} : f32[6]
%3 = Add(%1, %2) : f32[6]
%4 = OTHER : f32[6]
%5 = Add(%4, e) : f32[6]
%6 = Pad(c, %0) {pads=[[4, 0, 0]]} : f32[6]
%7 = Add(%5, %6) : f32[6]
return y = %7, z = RESULT"""


@pytest.mark.parametrize(
    ("second", "other", "result"),
    [
        # Overlapping windows, and a second other operand: both would change the order of additions.
        ("1, 3, 0", "Identity(%3)", "%7"),
        ("2, 2, 0", "Add(%3, e)", "%7"),
        ("2, 2, 0", "Tanh(%3)", "%7"),  # no sum
        ("2, 2, 0", "Identity(%3)", "%3"),  # a partial sum has another use
    ],
)
def test_sums_that_stay(second: str, other: str, result: str) -> None:
    nodes = PADS.replace("SECOND", second).replace("OTHER", other).replace("RESULT", result)
    nodes = nodes.replace("Add(%4, e)", "Add(%3, e)") if other == "Identity(%3)" else nodes
    check_stays(JOIN, f"program p(a: f32[2], b: f32[2], c: f32[2], e: f32[6]) {{\n{nodes}\n}}")


def test_windows_written_one_by_one() -> None:
    check_pair(
        JOIN,
        """
        a: f32[1, 2], b: f32[1, 2], c: f32[1, 2]
        %0 = Constant() {value=f32[] 0.0} : f32[]
        %1 = BroadcastTo(%0) {shape=[3, 2]} : f32[3, 2]
        %2 = Constant() {value=i32[] 0} : i32[]
        %3 = DynamicUpdateSlice(%1, a, %2, %2) : f32[3, 2]
        %4 = Constant() {value=i32[] 1} : i32[]
        %5 = DynamicUpdateSlice(%3, b, %4, %2) : f32[3, 2]
        %6 = Constant() {value=i32[] -1} : i32[]
        %7 = DynamicUpdateSlice(%5, c, %6, %2) : f32[3, 2]
        return y = %7
        =>
        %0 = Stack(a, b, c) {axis=0} : f32[3, 1, 2]
        %1 = Reshape(%0) {shape=[3, 2]} : f32[3, 2]
        return y = %1
        """,
    )


def test_reads_look_past_updates_of_other_windows() -> None:
    """The adjoint of such writes reads them so."""
    check(
        JOIN,
        """
        program p(dy: f32[3], z: f32[1]) {
          %0 = Constant() {value=i32[] 0} : i32[]
          %1 = Constant() {value=i32[] 1} : i32[]
          %2 = Constant() {value=i32[] 2} : i32[]
          %3 = Take(dy, %2) {axis=0} : f32[]
          %4 = DynamicUpdateSlice(dy, z, %2) : f32[3]
          %5 = Take(%4, %1) {axis=0} : f32[]
          %6 = DynamicUpdateSlice(%4, z, %1) : f32[3]
          %7 = Take(%6, %0) {axis=0} : f32[]
          %8 = DynamicUpdateSlice(%6, z, %0) : f32[3]
          return a = %3, b = %5, c = %7, d = %8
        }
        """,
        """
        program p(dy: f32[3], z: f32[1]) {
          %0, %1, %2 = Unstack(dy) {axis=0} : f32[], f32[], f32[]
          %3 = Constant() {value=i32[] 0} : i32[]
          %4 = Constant() {value=i32[] 1} : i32[]
          %5 = Constant() {value=i32[] 2} : i32[]
          %6 = DynamicUpdateSlice(dy, z, %5) : f32[3]
          %7 = DynamicUpdateSlice(%6, z, %4) : f32[3]
          %8 = DynamicUpdateSlice(%7, z, %3) : f32[3]
          return a = %2, b = %1, c = %0, d = %8
        }
        """,
    )


def test_concatenated_pieces() -> None:
    check_pair(
        JOIN,
        """
        a: f32[2, 4], b: f32[2, 4], c: f32[2, 4]
        %0 = Reshape(a) {shape=[2, 1, 4]} : f32[2, 1, 4]
        %1 = Reshape(b) {shape=[2, 1, 4]} : f32[2, 1, 4]
        %2 = Reshape(c) {shape=[2, 1, 4]} : f32[2, 1, 4]
        %3 = Concatenate(%0, %1, %2) {axis=1} : f32[2, 3, 4]
        return y = %3
        =>
        %0 = Stack(a, b, c) {axis=1} : f32[2, 3, 4]
        return y = %0
        """,
    )


def test_bodies_are_joined_too() -> None:
    body = """with body(u: f32[3], v: f32[3]) {
            %0 = Slice(u) {starts=[0], limits=[1], strides=[1]} : f32[1]
            %1 = Slice(u) {starts=[1], limits=[2], strides=[1]} : f32[1]
            %2 = Slice(u) {starts=[2], limits=[3], strides=[1]} : f32[1]
            %3 = Concatenate(%2, %1, %0) {axis=0} : f32[3]
            return r0 = %3
          }"""
    before = program(f"""
        program p(x: f32[3], xs: f32[4, 3]) {{
          %0 = Scan(x, xs) {{consts=0, carries=1, length=4}} : f32[3] {body}
          return y = %0
        }}
        """)
    (scan,) = JOIN.run(before).program.nodes
    assert [n.op.name for n in scan.regions[0].nodes] == ["Reshape", "Unstack", "Stack", "Reshape"]


def test_steps_over_a_sequence_and_back_are_two_loops() -> None:
    """h = tanh(x[:, t] + h) over four steps, and the gradient of x."""
    lines = ["%zero = Constant() {value=f32[] 0.0} : f32[]", "%x = Sin(x) : f32[2, 6]"]
    h = "h"
    for t in range(6):
        lines += [
            f"%s{t} = Slice(%x) {{starts=[0, {t}], limits=[2, {t + 1}], strides=[1, 1]}}"
            " : f32[2, 1]",
            f"%a{t} = Add(%s{t}, {h}) : f32[2, 1]",
            f"%h{t} = Tanh(%a{t}) : f32[2, 1]",
        ]
        h = f"%h{t}"
    dy, total = "g", ""
    for t in reversed(range(6)):
        lines += [
            f"%q{t} = Square(%h{t}) : f32[2, 1]",
            f"%d{t} = Multiply({dy}, %q{t}) : f32[2, 1]",
            f"%p{t} = Pad(%d{t}, %zero) {{pads=[[0, 0, 0], [{t}, {5 - t}, 0]]}} : f32[2, 6]",
        ]
        dy = f"%d{t}"
        if total:
            lines.append(f"%t{t} = Add({total}, %p{t}) : f32[2, 6]")
        total = f"%t{t}" if total else f"%p{t}"
    source = "\n".join(lines)
    before = program(
        f"program p(x: f32[2, 6], h: f32[2, 1], g: f32[2, 1]) {{\n{source}\n"
        f"return y = {h}, dx = {total}\n}}"
    )
    joined = Prune().run(JOIN.run(before).program).program
    rolled = Prune().run(RollRepeats(turns=3, saved=4, work=0).run(joined).program).program
    kinds = [node.op.name for node in rolled.nodes]
    assert kinds == ["Sin", "Reshape", "Transpose", "Scan", "Scan", "Transpose", "Reshape"]
    scans = [node for node in rolled.nodes if node.op.name == "Scan"]
    assert [(n.attrs["length"], len(n.regions[0].nodes)) for n in scans] == [(6, 2), (6, 2)]
