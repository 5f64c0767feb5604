"""Carry shifted: which stacks a loop carries, and which it takes; the values do not change."""

from __future__ import annotations

import pytest

from graphc.config import CompileOptions
from graphc.ir.program import Program
from graphc.passes.core.peak import peak
from graphc.passes.core.validate import check_meaning
from graphc.passes.memory.carry_shifted import CarryShifted
from graphc.passes.memory.recompute import Recompute
from graphc.passes.memory.stack_pieces import Piece, Pieces
from graphc.passes.pipelines import on_device
from tests.passes.check import check, check_stays, program
from tests.passes.evaluate import evaluate
from tests.passes.generate_pairs import loop_pairs
from tests.passes.preserving import check_preserving, for_all, preserved

CARRY = CarryShifted()
HEAD = "program p(x: f32[2, 2], d: f32[2, 2], w: f32[4, 2, 2], s: f32[4, 2, 2])"
# This loop stacks the input and the output of each layer.
FORWARD = """%h, %in, %out = Scan(x, w) {consts=0, carries=1, length=4}
    : f32[2, 2], f32[4, 2, 2], f32[4, 2, 2] with layer(a0: f32[2, 2], a1: f32[2, 2]) {
    %0 = MatMul(a0, a1) : f32[2, 2]
    %1 = Tanh(%0) : f32[2, 2]
    return r0 = %1, r1 = a0, r2 = %1
  }"""
# This loop takes the derivative from the layer's output, and the gradient from its input.
BACKWARD = """%b, %g = Scan(d, IN, OUT) {consts=0, carries=1, length=4, reverse=true}
    : f32[2, 2], f32[4, 2, 2] with slopes(a0: f32[2, 2], a1: f32[2, 2], a2: f32[2, 2]) {
    %0 = Square(a2) : f32[2, 2]
    %1 = Multiply(a0, %0) : f32[2, 2]
    %2 = MatMul(a1, %1) {transpose_a=true} : f32[2, 2]
    return r0 = %1, r1 = %2
  }"""


def text(*nodes: str, taken: str = "%in", given: str = "%out", more: str = "") -> str:
    """A program of `nodes`, where LOOP and BACK stand for the two loops."""
    loops = {"LOOP": FORWARD, "BACK": BACKWARD.replace("IN", taken).replace("OUT", given)}
    lines = [loops.get(node, node) for node in nodes or ("LOOP", "BACK")]
    return "\n  ".join([f"{HEAD} {{", *lines, f"return b = %b, g = %g{more}", "}"])


def carried(first: str, stack: str, *, backwards: bool = True) -> str:
    """The backward loop that carries the output of a layer, starting with `first`."""
    return f"""%b, %q, %g = Scan(d, {first}, {stack})
        {{consts=0, carries=2, length=4, reverse={str(backwards).lower()}}}
        : f32[2, 2], f32[2, 2], f32[4, 2, 2]
        with slopes(a0: f32[2, 2], a1: f32[2, 2], a2: f32[2, 2]) {{
      %0 = Square(a1) : f32[2, 2]
      %1 = Multiply(a0, %0) : f32[2, 2]
      %2 = MatMul(a2, %1) {{transpose_a=true}} : f32[2, 2]
      return r0 = %1, r1 = a2, r2 = %2
    }}"""


WITHOUT_OUT = FORWARD.replace(", %out =", " =").replace("2], f32[4, 2, 2] with", "2] with")
WITHOUT_OUT = WITHOUT_OUT.replace(", r2 = %1", "")


def test_what_a_layer_gives_is_what_the_next_one_takes() -> None:
    check(CARRY, text(), text(WITHOUT_OUT, carried("%h", "%in")))


def test_a_stack_of_slices() -> None:
    """The program after `RollRepeats` if the last layer is outside the loop."""
    apart = "%0, %1, %2, %3 = Unstack(%in) : f32[2, 2], f32[2, 2], f32[2, 2], f32[2, 2]"
    again = "%4 = Tanh(x) : f32[2, 2]\n  %5 = Stack(%1, %2, %3, %4) : f32[4, 2, 2]"
    check(
        CARRY,
        text("LOOP", apart, again, "BACK", given="%5"),
        text(WITHOUT_OUT, "%4 = Tanh(x) : f32[2, 2]", carried("%4", "%in")),
    )


def test_parts_of_one_stack() -> None:
    """The first value is a slice of the stack that remains."""
    head = HEAD.replace("s: f32[4, 2, 2]", "s: f32[5, 2, 2]")
    part = "Slice(s) {starts=[START, 0, 0], limits=[END, 2, 2], strides=[1, 1, 1]}"
    early = part.replace("START", "0").replace("END", "4")
    late = part.replace("START", "1").replace("END", "5")
    last = part.replace("START", "4").replace("END", "5")
    before = text(f"%in = {early} : f32[4, 2, 2]", f"%out = {late} : f32[4, 2, 2]", "BACK").replace(
        HEAD, head
    )
    after = text(
        f"%in = {early} : f32[4, 2, 2]",
        f"%l = {last} : f32[1, 2, 2]",
        "%o = Reshape(%l) {shape=[2, 2]} : f32[2, 2]",
        carried("%o", "%in"),
    ).replace(HEAD, head)
    check(CARRY, before, after)


def test_a_stack_turned_around() -> None:
    """The second loop iterates in the order of the reversed stack."""
    turned = "%r = Reverse(%in) {axes=[0]} : f32[4, 2, 2]\n  "
    turned += "%t = Reverse(%out) {axes=[0]} : f32[4, 2, 2]"
    before = text("LOOP", turned, "BACK", taken="%r", given="%t")
    kept = "%r = Reverse(%in) {axes=[0]} : f32[4, 2, 2]"
    check(
        CARRY,
        before.replace("length=4, reverse=true", "length=4, reverse=false"),
        text(WITHOUT_OUT, kept, carried("%h", "%r", backwards=False)),
    )


def test_a_loop_in_the_same_direction() -> None:
    """Here, the input of a layer is what the previous iteration took from the other stack."""
    before = program(text().replace("reverse=true", "reverse=false"))
    after, changed = CARRY.run(before)
    assert changed == 1
    first, second = after.nodes
    assert len(first.outputs) == 2
    assert second.inputs[1] is after.input_tensors()[0]
    assert second.inputs[2] is first.outputs[1]
    assert check_meaning(before, after, evaluate, 0) is None


def test_one_stack_taken_twice() -> None:
    back = BACKWARD.replace("IN, OUT", "%in, %out, %out")
    back = back.replace("a2: f32[2, 2])", "a2: f32[2, 2], a3: f32[2, 2])")
    before = program(text("LOOP", back.replace("Multiply(a0, %0)", "Multiply(a3, %0)")))
    after, changed = CARRY.run(before)
    assert changed == 1 and len(after.nodes[1].inputs) == 3
    assert check_meaning(before, after, evaluate, 0) is None


def test_a_stack_joined_with_the_last_value() -> None:
    rest = "Slice(s) {starts=[1, 0, 0], limits=[4, 2, 2], strides=[1, 1, 1]} : f32[3, 2, 2]"
    last = "%1 = Reshape(x) {shape=[1, 2, 2]} : f32[1, 2, 2]"
    joined = "%2 = Concatenate(%0, %1) {axis=0} : f32[4, 2, 2]"
    before = program(text(f"%0 = {rest}", last, joined, "BACK", taken="s", given="%2"))
    after, changed = CARRY.run(before)
    assert changed == 1
    assert not any(node.op.name == "Concatenate" for node in after.nodes)
    assert check_meaning(before, after, evaluate, 0) is None


# The second carry is the value of the first one in the previous iteration.
DELAYED = """%h, %k, %in, %early, %out = Scan(x, d, w) {consts=0, carries=2, length=4}
    : f32[2, 2], f32[2, 2], f32[4, 2, 2], f32[4, 2, 2], f32[4, 2, 2]
    with layer(a0: f32[2, 2], a1: f32[2, 2], a2: f32[2, 2]) {
    %0 = MatMul(a0, a2) : f32[2, 2]
    %1 = Tanh(%0) : f32[2, 2]
    return r0 = %1, r1 = a0, r2 = a0, r3 = a1, r4 = %1
  }"""
DELAYED_ONLY = DELAYED.replace(", %out =", " =").replace("2], f32[4, 2, 2]\n", "2]\n")
DELAYED_ONLY = DELAYED_ONLY.replace(", r4 = %1", "")


def carried_once(text: str) -> Program:
    """The result of the pass for a program in which it finds one stack."""
    before = program(text)
    after, changed = CARRY.run(before)
    assert changed == 1
    assert check_meaning(before, after, evaluate, 0) is None
    return after


def test_a_carry_of_a_carry() -> None:
    before = text(DELAYED_ONLY, "BACK", given="%early").replace("reverse=true", "reverse=false")
    after = carried_once(before)
    assert after.nodes[1].inputs[1] is after.input_tensors()[1]  # the first value of that carry


def test_a_first_slice_in_a_stack_that_stays() -> None:
    """The slice is taken from that stack, so the stack is not carried too, though it could be."""
    back = BACKWARD.replace("IN, OUT", "%in, %early, %out")
    back = back.replace("a2: f32[2, 2])", "a2: f32[2, 2], a3: f32[2, 2])")
    after = carried_once(text(DELAYED, back.replace("Multiply(a0, %0)", "Multiply(a3, %0)")))
    assert [node.op.name for node in after.nodes] == ["Scan", "Slice", "Reshape", "Scan"]
    assert after.nodes[1].attrs["starts"] == (2, 0, 0)
    assert after.nodes[1].inputs[0] is after.nodes[3].inputs[-1]


def test_two_loops_in_a_row() -> None:
    """The first input of the second loop is the last output of the first loop."""
    again = FORWARD.replace("%h, %in, %out", "%k, %in2, %out2").replace("(x, w)", "(%h, s)")
    joined = "%i = Concatenate(%in, %in2) {axis=0} : f32[8, 2, 2]\n  "
    joined += "%o = Concatenate(%out, %out2) {axis=0} : f32[8, 2, 2]"
    back = BACKWARD.replace("IN, OUT", "%i, %o").replace("4", "8")
    after = carried_once(text("LOOP", again, joined, back))
    assert [node.op.name for node in after.nodes].count("Concatenate") == 1


def test_a_first_slice_of_an_argument() -> None:
    """The argument is in memory although the loop does not take it."""
    joined = JOINED.replace("  %1 = Multiply(w, w) : f32[4, 2, 2]\n", "").replace("(%1)", "(w)")
    carried_once(text(joined, "BACK", taken="s", given="%3"))


def test_every_second_slice() -> None:
    head = HEAD.replace("s: f32[4, 2, 2]", "s: f32[9, 2, 2]")
    part = "= Slice(s) {starts=[START, 0, 0], limits=[END, 2, 2], strides=[2, 1, 1]} : f32[4, 2, 2]"
    early = part.replace("START", "0").replace("END", "7")
    late = part.replace("START", "2").replace("END", "9")
    carried_once(text(f"%in {early}", f"%out {late}", "BACK").replace(HEAD, head))


def test_stacks_of_what_is_the_same_in_each_iteration() -> None:
    loop = FORWARD.replace("Scan(x, w) {consts=0", "Scan(d, x, w) {consts=1")
    loop = loop.replace("layer(", "layer(c: f32[2, 2], ")
    carried_once(text(loop.replace("r1 = a0, r2 = %1", "r1 = c, r2 = c"), "BACK"))


def test_one_stack_taken_twice_and_given_back() -> None:
    back = BACKWARD.replace("IN, OUT", "%in, %out, %out")
    back = back.replace("a2: f32[2, 2])", "a2: f32[2, 2], a3: f32[2, 2])")
    carried_once(text("LOOP", back.replace("r1 = %2", "r1 = a3")))


JOINED = """%0 = Slice(s) {starts=[1, 0, 0], limits=[4, 2, 2], strides=[1, 1, 1]} : f32[3, 2, 2]
  %1 = Multiply(w, w) : f32[4, 2, 2]
  %2 = Slice(%1) {starts=[0, 0, 0], limits=[1, 2, 2], strides=[1, 1, 1]} : f32[1, 2, 2]
  %3 = Concatenate(%0, %2) {axis=0} : f32[4, 2, 2]"""
STAYS = {
    "the other stack is fetched": text(more=", out = %out"),
    "the other stack is used again": text(
        "LOOP", "BACK", "%r = ReduceSum(%out) {axes=[0]} : f32[2, 2]", more=", r = %r"
    ),
    "arguments": text("BACK", taken="w", given="s"),
    "later by two": text(
        "LOOP",
        "%0, %1, %2, %3 = Unstack(%in) : f32[2, 2], f32[2, 2], f32[2, 2], f32[2, 2]",
        "%4 = Stack(%2, %3, x, d) : f32[4, 2, 2]",
        "BACK",
        given="%4",
    ),
    "one slice is another": text(
        "LOOP",
        "%0, %1, %2, %3 = Unstack(%in) : f32[2, 2], f32[2, 2], f32[2, 2], f32[2, 2]",
        "%4 = Stack(%1, %1, %3, d) : f32[4, 2, 2]",
        "BACK",
        given="%4",
    ),
    "the first slice is in a stack that would have to stay": text(
        JOINED, "BACK", taken="s", given="%3"
    ),
    "the loop takes the whole stack too": text(
        "LOOP",
        BACKWARD.replace("Scan(d, IN, OUT) {consts=0", "Scan(%out, d, %in, %out) {consts=1")
        .replace("slopes(", "slopes(a9: f32[4, 2, 2], ")
        .replace("%0 =", "%3 = ReduceSum(a9) {axes=[0]} : f32[2, 2]\n    %0 =")
        .replace("Square(a2)", "Multiply(a2, %3)"),
    ),
    "one iteration": text().replace("length=4", "length=1").replace("f32[4, ", "f32[1, "),
    "the first slice is a value that no tensor holds": text(DELAYED_ONLY, "BACK", given="%early"),
    "the same of one row, of which the last value is no stack": text(
        DELAYED_ONLY.replace("MatMul", "Multiply"),
        BACKWARD.replace("IN, OUT", "%in, %early").replace(
            "MatMul(a1, %1) {transpose_a=true}", "Multiply(a1, %1)"
        ),
    ).replace("2, 2", "1, 2"),
    "the last values of carries that are as long": text(
        """%early, %late = Scan(w, s) {consts=0, carries=2, length=4}
    : f32[4, 2, 2], f32[4, 2, 2] with layer(a0: f32[4, 2, 2], a1: f32[4, 2, 2]) {
    %0 = Tanh(a0) : f32[4, 2, 2]
    return r0 = %0, r1 = a0
  }""",
        BACKWARD.replace("IN, OUT", "%early, %late").replace("true", "false"),
    ),
    "stacked along another axis": text(
        "LOOP",
        "%0, %1 = Unstack(%out) {axis=1} : f32[4, 2], f32[4, 2]",
        "%2 = Stack(%0, %1) {axis=1} : f32[4, 2, 2]",
        "BACK",
        given="%2",
    ),
    "slices along another axis": text(
        "LOOP",
        "%0, %1, %2, %3 = Unstack(%in) {axis=1} : f32[2, 2], f32[2, 2], f32[2, 2], f32[2, 2]",
        "%4 = Stack(%1, %2, %3, x) : f32[4, 2, 2]",
        "BACK",
        given="%4",
    ).replace("2, 2", "4, 4"),
    "other columns": text(
        "%in = Slice(s) {starts=[0, 0, 0], limits=[4, 2, 2], strides=[1, 1, 1]} : f32[4, 2, 2]",
        "%out = Slice(s) {starts=[1, 0, 2], limits=[5, 2, 4], strides=[1, 1, 1]} : f32[4, 2, 2]",
        "BACK",
    ).replace("s: f32[4, 2, 2]", "s: f32[5, 2, 4]"),
    "joined along another axis": text(
        "%0 = Slice(s) {starts=[0, 0, 0], limits=[4, 1, 2], strides=[1, 1, 1]} : f32[4, 1, 2]",
        "%1 = Slice(s) {starts=[1, 0, 0], limits=[5, 1, 2], strides=[1, 1, 1]} : f32[4, 1, 2]",
        "%in = Concatenate(%0, %1) {axis=1} : f32[4, 2, 2]",
        "%out = Concatenate(%1, %0) {axis=1} : f32[4, 2, 2]",
        "BACK",
    ).replace("s: f32[4, 2, 2]", "s: f32[5, 1, 2]"),
    "slices turned around": text(
        "LOOP",
        "%r = Reverse(%in) {axes=[0]} : f32[4, 2, 2]",
        "%t = Reverse(%out) {axes=[0, 1]} : f32[4, 2, 2]",
        BACKWARD.replace("IN, OUT", "%r, %t").replace("true", "false"),
    ),
    "the layer changes what it took": text(
        FORWARD.replace("r1 = a0", "r1 = %0"), "BACK"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    check_stays(CARRY, STAYS[name])


def test_a_length_that_is_not_known() -> None:
    check_stays(CARRY, text().replace("length=4", "length=n").replace("f32[4, ", "f32[n, "))


def test_where_it_runs() -> None:
    """After products are hoisted out of loops, which takes stacks, and before updates are moved."""
    for platform in ("cpu", "gpu"):
        names = [each.name for each in on_device(CompileOptions(), platform, None)]
        place = names.index("carry-shifted")
        assert names.index("hoist-products") < place < names.index("update-in-loop")
        passes = on_device(CompileOptions(pipeline="O1"), platform, None)
        assert "carry-shifted" not in [each.name for each in passes]
        passes = on_device(CompileOptions(), platform, 10)
        (recompute,) = [each for each in passes if isinstance(each, Recompute)]
        assert [each.name for each in recompute.then] == ["carry-shifted", "update-in-loop"]


@pytest.mark.slow
def test_generated_loops_mean_the_same() -> None:
    check_preserving(CARRY, loop_pairs(), examples=200, least=0.1)


def test_recomputing_knows_what_is_saved() -> None:
    before = program(text())
    small = peak(CARRY.run(before).program)
    assert small < peak(before)
    after, changed = Recompute(small, (CARRY,)).run(before)
    assert after is before and changed == 0


@pytest.mark.slow
def test_after_recomputing() -> None:
    """Loops that recompute values, with and without segments."""

    def run(before: Program, seed: int) -> None:
        for share in (0.4, 0.7):
            recomputed = Recompute(int(share * peak(before)), (CARRY,)).run(before).program
            preserved(CARRY, recomputed, seed, evaluate, exactly=True)

    for_all(loop_pairs(), run)


@pytest.mark.parametrize(("place", "first"), [(10**9 - 1, 1), (10**9 - 2, 0), (1, 1), (0, 0)])
def test_carries_that_change_places_are_found_in_few_steps(place: int, first: int) -> None:
    """The number of steps does not grow with the length of the loop."""
    swapped = program("""program p(x: f32[2], d: f32[2]) {
  %a, %b, %s = Scan(x, d) {consts=0, carries=2, length=1000000000}
    : f32[2], f32[2], f32[1000000000, 2] with swap(a0: f32[2], a1: f32[2]) {
    return r0 = a1, r1 = a0, r2 = a0
  }
  return s = %s
}""")
    (stack,) = swapped.output_tensors()
    assert Pieces(swapped).at(stack, place) == Piece(swapped.input_tensors()[first])
