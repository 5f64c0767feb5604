"""Update in loop: which updates move into the loop and which do not; the values do not change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from graphc.config import CompileOptions
from graphc.ir.node import is_among
from graphc.ir.program import Program
from graphc.ir.verify import verify
from graphc.passes.core.validate import check_meaning
from graphc.passes.memory.update_in_loop import UpdateInLoop
from graphc.passes.pipelines import on_device
from tests.passes.check import check, check_stays, program
from tests.passes.evaluate import evaluate
from tests.passes.preserving import check_preserving

MOVE = UpdateInLoop(smallest=1)

HEAD = "w: state f32[3, 4, 4], m: state f32[3, 4, 4], x: f32[2, 4], h: f32[3, 2, 4], r: f32[]"
# The gradients of three layers, the last layer first.
LOOP = """%d, %g = Scan(x, w, h) {consts=0, carries=1, length=3, reverse=true}
      : f32[2, 4], f32[3, 4, 4] with layer(a0: f32[2, 4], a1: f32[4, 4], a2: f32[2, 4]) {
    %0 = MatMul(a0, a1) {transpose_b=true} : f32[2, 4]
    %1 = MatMul(a2, a0) {transpose_a=true} : f32[4, 4]
    return r0 = %0, r1 = %1
  }"""
MOMENTUM = """%m, %w = Map(m, %g, w, r) {mapped=3, length=3} : f32[3, 4, 4], f32[3, 4, 4]
      with update(a0: f32[4, 4], a1: f32[4, 4], a2: f32[4, 4], a3: f32[]) {
    %0 = Multiply(a3, a0) : f32[4, 4]
    %1 = Add(%0, a1) : f32[4, 4]
    %2 = Subtract(a2, %1) : f32[4, 4]
    return r0 = %1, r1 = %2
  }"""
OLD_MOMENTUM = """%3 = Multiply(a0, a1) : f32[4, 4]
    %2 = Subtract(a2, %3)"""
RESULTS = "state w = %w, state m = %m"

LATE = "%late = After(a5, %4) : f32[2, 4]\n    "

# The loop that contains the momentum; `<first>` is the tensor with the first slice's number.
MOVED = """%i = Constant() {value=u32[] 2} : u32[]
  <more>
  %d, %m, %w, %e = Scan(r, x, m, w, <first>, h) {consts=1, carries=4, length=3, reverse=true}
      : f32[2, 4], f32[3, 4, 4], f32[3, 4, 4], u32[]
      with layer(a0: f32[], a1: f32[2, 4], a2: f32[3, 4, 4], a3: f32[3, 4, 4],
                 a4: u32[], a5: f32[2, 4]) {
    %z = Constant() {value=u32[] 0} : u32[]
    %1 = DynamicSlice(a2, a4, %z, %z) {sizes=[1, 4, 4], inside=true} : f32[1, 4, 4]
    %2 = DynamicSlice(a3, a4, %z, %z) {sizes=[1, 4, 4], inside=true} : f32[1, 4, 4]
    %3 = Reshape(%2) {shape=[4, 4]} : f32[4, 4]
    %4 = MatMul(a1, %3) {transpose_b=true} : f32[2, 4]
    %late = After(a5, %4) : f32[2, 4]
    %5 = MatMul(%late, a1) {transpose_a=true} : f32[4, 4]
    %6 = Reshape(%5) {shape=[1, 4, 4]} : f32[1, 4, 4]
    %7 = Multiply(a0, %1) : f32[1, 4, 4]
    %8 = Add(%7, %6) : f32[1, 4, 4]
    %9 = DynamicUpdateSlice(a2, %8, a4, %z, %z) : f32[3, 4, 4]
    %10 = DynamicSlice(%9, a4, %z, %z) {sizes=[1, 4, 4], inside=true} : f32[1, 4, 4]
    %11 = Subtract(%2, %10) : f32[1, 4, 4]
    %12 = After(%11, %4) : f32[1, 4, 4]
    %13 = DynamicUpdateSlice(a3, %12, a4, %z, %z) : f32[3, 4, 4]
    %14 = Constant() {value=u32[] 1} : u32[]
    %15 = Subtract(a4, %14) : u32[]
    return r0 = %4, r1 = %9, r2 = %13, r3 = %15
  }"""


def text(
    *nodes: str, loop: str = LOOP, update: str = MOMENTUM, results: str = RESULTS, head: str = HEAD
) -> str:
    """A program of `nodes`, the loop and the update; `nodes` may contain these two."""
    parts = nodes or ("LOOP", "UPDATE")
    lines = [part.replace("LOOP", loop).replace("UPDATE", update) for part in parts]
    return "\n  ".join([f"program p({head}) {{", *lines, f"return {results}", "}"])


def moved(more: str = "", first: str = "%i") -> str:
    return MOVED.replace("<more>", more).replace("<first>", first)


def test_parameters_and_momentum() -> None:
    """The gradient of the layer's input reads the old slice before the new one is written, and
    before the gradient of the parameters is computed."""
    results = f"dx = %d, {RESULTS}"
    check(MOVE, text(results=results), text(moved(), results=results))


EXCHANGED = '%9 = AllReduce(%5) {op="sum"} : f32[4, 4]'


def test_what_replicas_exchange_in_the_loop() -> None:
    """An iteration exchanges the gradient, then applies the sum.

    The product does not wait (`After`), so that the exchange can begin early.
    """
    inside = EXCHANGED.replace("%9", "%2").replace("%5", "%1")
    loop = LOOP.replace("return", f"{inside}\n    return").replace("r1 = %1", "r1 = %2")
    after = MOVED.replace("%9 =", "%16 =").replace("%9,", "%16,").replace("r1 = %9", "r1 = %16")
    after = after.replace(LATE, "").replace("MatMul(%late, a1)", "MatMul(a5, a1)")
    after = after.replace("%6 = Reshape(%5)", f"{EXCHANGED}\n    %6 = Reshape(%9)")
    after = after.replace("<more>", "").replace("<first>", "%i")
    check(MOVE, text(loop=loop), text(after))


def waiting(before: str) -> int:
    """The number of nodes that wait for others in the loop that the pass writes."""
    after, changed = MOVE.run(program(before))
    assert changed == 1
    (loop,) = [node for node in after.nodes if node.op.name == "Scan"]
    return [node.op.name for node in loop.regions[0].nodes].count("After")


def test_which_products_wait() -> None:
    """Products that have something to wait for and an operand that is much smaller."""
    two = waiting(text())
    product = "DotGeneral(a2, a0) {lhs_contract=[0], rhs_contract=[0]}"
    assert waiting(text(loop=LOOP.replace("MatMul(a2, a0) {transpose_a=true}", product))) == two
    wide = text().replace("2, 4]", "3, 4]")  # 12 numbers, of 16
    assert waiting(wide) == two - 1
    unread = LOOP.replace("MatMul(a0, a1) {transpose_b=true}", "Tanh(a0)")
    assert waiting(text(loop=unread)) == 0


def test_what_replicas_exchange_after_the_loop() -> None:
    whole = '%s = AllReduce(%g) {op="sum"} : f32[3, 4, 4]'
    before = text("LOOP", whole, "UPDATE", update=MOMENTUM.replace("%g", "%s"))
    check_stays(MOVE, before)
    (note,) = MOVE.notes(program(before))
    assert "replicas exchange the gradients after the loop" in note


def test_pieces_of_stacks_stay() -> None:
    """Each of two replicas has half of the momentum."""
    update = """%m = Map(m, %g, r) {mapped=2, length=3} : f32[3, 2, 4]
      with update(a0: f32[2, 4], a1: f32[4, 4], a2: f32[]) {
    %0 = ShardSlice(a1) {axis=0, replicas=2} : f32[2, 4]
    %1 = Multiply(a2, a0) : f32[2, 4]
    %2 = Add(%1, %0) : f32[2, 4]
    return r0 = %2
  }"""
    head = HEAD.replace("m: state f32[3, 4, 4]", "m: state f32[3, 2, 4]")
    before = text(update=update, head=head, results="state m = %m")
    check_stays(MOVE, before)
    (note,) = MOVE.notes(program(before))
    assert "each replica updates a piece of it" in note


def test_what_reads_the_old_value_comes_before_the_loop() -> None:
    """A penalty: its value needs the parameters, and no gradient needs its value."""
    norm = "%s = Square(w) : f32[3, 4, 4]\n  %n = ReduceSum(%s) {axes=[0, 1, 2]} : f32[]"
    results = f"norm = %n, {RESULTS}"
    wait = f"{norm}\n  %a = After(%i, %n) : u32[]"
    check(
        MOVE,
        text("LOOP", norm, "UPDATE", results=results),
        text(moved(wait, "%a"), results=results),
    )


def test_the_other_stack_is_read_before_it_is_written() -> None:
    """The parameters need the old momentum: they are written first, and the momentum waits."""
    before = program(text(update=MOMENTUM.replace("%2 = Subtract(a2, %1)", OLD_MOMENTUM)))
    after, changed = MOVE.run(before)
    assert changed == 1
    (loop,) = [node for node in after.nodes if node.op.name == "Scan"]
    nodes = loop.regions[0].nodes
    first, second = [n for n in nodes if n.op.name == "DynamicUpdateSlice"]
    (wait,) = [n for n in nodes if n.outputs[0] is second.inputs[1]]
    assert wait.op.name == "After" and is_among(first.outputs[0], wait.inputs)
    assert check_meaning(before, after, evaluate, 0) is None


def test_what_is_known_before_the_loop_is_taken_by_it() -> None:
    """A schedule, and a stack of other terms of the gradients."""
    rate = "%r = Exp(r) : f32[]"
    update = MOMENTUM.replace("(m, %g, w, r) {mapped=3", "(m, %g, w, o, %r) {mapped=4")
    update = update.replace("a3: f32[])", "a4: f32[4, 4], a3: f32[])")
    update = update.replace("Subtract(a2, %1)", "Subtract(%3, %1)")
    update = update.replace("%2 =", "%3 = Add(a2, a4) : f32[4, 4]\n    %2 =")
    head = f"{HEAD}, o: f32[3, 4, 4]"
    before = program(text("LOOP", rate, "UPDATE", update=update, head=head))
    after, changed = MOVE.run(before)
    assert changed == 1
    verify(after, "functional")
    assert not any(node.op.name == "Map" for node in after.nodes)
    assert check_meaning(before, after, evaluate, 0) is None


def test_what_shares_nothing_stays_in_the_map() -> None:
    """Biases are small, so their update stays in one kernel after the loop."""
    loop = LOOP.replace("%d, %g =", "%d, %g, %b =").replace(
        "3, 4, 4] with", "3, 4, 4], f32[3, 4] with"
    )
    loop = loop.replace("return", "%2 = ReduceSum(a0) {axes=[0]} : f32[4]\n    return")
    loop = loop.replace("r1 = %1", "r1 = %1, r2 = %2")
    update = """%w, %c = Map(w, %g, c, %b, r) {mapped=4, length=3} : f32[3, 4, 4], f32[3, 4]
      with update(a0: f32[4, 4], a1: f32[4, 4], a2: f32[4], a3: f32[4], a4: f32[]) {
    %0 = Multiply(a4, a1) : f32[4, 4]
    %1 = Subtract(a0, %0) : f32[4, 4]
    %2 = Multiply(a4, a3) : f32[4]
    %3 = Subtract(a2, %2) : f32[4]
    return r0 = %1, r1 = %3
  }"""
    head = HEAD.replace("m: state f32[3, 4, 4]", "c: state f32[3, 4]")
    before = program(
        text(loop=loop, update=update, head=head, results="state w = %w, state c = %c")
    )
    after, changed = UpdateInLoop(smallest=100).run(before)
    assert changed == 1
    (left,) = [node for node in after.nodes if node.op.name == "Map"]
    assert [t.type.shape for t in left.outputs] == [(3, 4)]
    assert check_meaning(before, after, evaluate, 0) is None
    assert MOVE.run(before).changed == 2  # separately


SCALED = MOMENTUM.replace("w, r)", "w, %s)")
STAYS: dict[str, tuple[str, str]] = {
    "clipped by the norm of all gradients": (
        text(
            "LOOP",
            "%q = ReduceSum(%g) {axes=[0, 1, 2]} : f32[]\n  %s = Multiply(r, %q) : f32[]",
            "UPDATE",
            update=SCALED,
        ),
        "which is known only after the loop",
    ),
    "scaled by what the loop gives last": (
        text("LOOP", "%s = ReduceSum(%d) {axes=[0, 1]} : f32[]", "UPDATE", update=SCALED),
        "which is known only after the loop",
    ),
    "a gradient is fetched": (text(results=f"{RESULTS}, g = %g"), "is used elsewhere"),
    "a gradient is used again": (
        text("LOOP", "%q = Tanh(%g) : f32[3, 4, 4]", "UPDATE", results=f"{RESULTS}, q = %q"),
        "computes values that are not state",
    ),
    "the old value is fetched": (text(results=f"{RESULTS}, old = w"), "w is read after the loop"),
    "the old value is read after the loop": (
        text(
            "LOOP",
            "%z = DotGeneral(w, %d) {lhs_contract=[2], rhs_contract=[1]} : f32[3, 4, 2]",
            "UPDATE",
            results=f"{RESULTS}, z = %z",
        ),
        "w is read after the loop",
    ),
    "each turn reads all parameters": (
        text(
            loop=LOOP.replace("(x, w, h) {consts=0", "(w, x, w, h) {consts=1")
            .replace("layer(", "layer(a9: f32[3, 4, 4], ")
            .replace("return", "%2 = ReduceSum(a9) {axes=[0, 1, 2]} : f32[]\n    return")
        ),
        "w is read after the loop",
    ),
    "an update that is not elementwise": (
        text(update=MOMENTUM.replace("Multiply(a3, a0)", "MatMul(a0, a0)")),
        "MatMul '' is not elementwise",
    ),
    "each needs the other's old value": (
        text(
            update=MOMENTUM.replace("Multiply(a3, a0)", "Multiply(a2, a0)").replace(
                "%2 = Subtract(a2, %1)", OLD_MOMENTUM
            )
        ),
        "needs the old value of the other",
    ),
    "a value beside the state": (
        text(
            update=MOMENTUM.replace("%m, %w =", "%m, %w, %u =")
            .replace("3, 4, 4]\n", "3, 4, 4], f32[3, 4, 4]\n", 1)
            .replace("r1 = %2", "r1 = %2, r2 = %3")
            .replace("%2 =", "%3 = Tanh(%1) : f32[4, 4]\n    %2 ="),
            results=f"{RESULTS}, u = %u",
        ),
        "computes values that are not state",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_and_why(name: str) -> None:
    before, why = STAYS[name]
    check_stays(MOVE, before)
    (note,) = MOVE.notes(program(before))
    assert why in note and note.startswith("the update of "), note


SILENT = {
    "nothing is written": text(results="w = %w, m = %m"),
    "a loop of one turn": text().replace("length=3", "length=1").replace("[3, ", "[1, "),
    "a loop that is compiled without one": text().replace("reverse=true", "reverse=true, unroll=3"),
    "a length that is not known": text().replace("length=3", "length=n").replace("[3, ", "[n, "),
    "no state takes the gradient": text("LOOP", results="g = %g"),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_no_update(name: str) -> None:
    check_stays(MOVE, SILENT[name])
    assert MOVE.notes(program(SILENT[name])) == ()


def test_small_gradients_stay() -> None:
    assert UpdateInLoop(smallest=3 * 16 * 4).run(program(text())).changed == 1
    check_stays(UpdateInLoop(smallest=3 * 16 * 4 + 1), text())
    assert UpdateInLoop(smallest=1, slice=16 * 4).run(program(text())).changed == 1
    check_stays(UpdateInLoop(smallest=1, slice=16 * 4 + 1), text())
    assert UpdateInLoop(smallest=1, slice=65, budget=100).run(program(text())).changed == 1


def test_loops_that_would_be_compiled_without_one() -> None:
    """They change only if memory is short; then the forward pass over parameters is a loop too."""
    forward = """%y, %h = Scan(x, w) {consts=0, carries=1, length=3, unroll=3}
      : f32[2, 4], f32[3, 2, 4] with forward(a0: f32[2, 4], a1: f32[4, 4]) {
    %0 = MatMul(a0, a1) : f32[2, 4]
    return r0 = %0, r1 = a0
  }"""
    loop = LOOP.replace("(x, w, h)", "(%y, w, %h)").replace(
        "reverse=true", "reverse=true, unroll=3"
    )
    before = program(text(forward, "LOOP", "UPDATE", loop=loop))
    for stays in (UpdateInLoop(smallest=1), UpdateInLoop(smallest=1, budget=10**6)):
        assert stays.run(before).program is before
    for a_pass in (UpdateInLoop(smallest=1, whole=True), UpdateInLoop(smallest=1, budget=100)):
        after, changed = a_pass.run(before)
        scans = [node.attrs["unroll"] for node in after.nodes if node.op.name == "Scan"]
        assert changed == 1 and scans == [1, 1]
        assert check_meaning(before, after, evaluate, 0) is None


def test_where_it_runs() -> None:
    def runs(platform: str, budget: int | None = None, **options: Any) -> bool:
        passes = on_device(CompileOptions(**options), platform, budget)
        return "update-in-loop" in [a_pass.name for a_pass in passes]

    assert runs("cpu") and runs("cpu", 10) and runs("cpu", pipeline="O3")
    assert not runs("cpu", pipeline="O1") and not runs("cpu", donate=False)
    assert runs("gpu") and runs("gpu", 10)


# -- generated updates ----------------------------------------------------------------------


@st.composite
def updates(draw: Any) -> Program:
    """One to three stacks. Each is updated by an expression of the gradient, a scalar, a constant
    stack, old values, and new values of earlier stacks. Sometimes one must not move."""
    states = draw(st.integers(1, 3))
    names = ["%w", "%m", "%v"][:states]
    lines: list[str] = []
    new: list[str] = []
    for name in names:
        values = ["g", "o", name[1:], *new]
        if draw(st.integers(0, 5)) == 0:
            values += ["w", "m", "v"][:states]
        value = draw(st.sampled_from(values))
        for _ in range(draw(st.integers(1, 3))):
            other = draw(st.sampled_from([*values, "r", value]))
            op = draw(st.sampled_from(["Add", "Subtract", "Multiply", "Maximum"]))
            lines.append(f"%{len(lines)} = {op}({value}, {other}) : f32[2, 2]")
            value = f"%{len(lines) - 1}"
        lines.append(f"%{len(lines)} = Add({value}, g) : f32[2, 2]")
        lines.append(f"{name} = Subtract(%{len(lines) - 1}, {name[1:]}) : f32[2, 2]")
        new.append(name)
    old = ["w", "m", "v"][:states]
    kinds = ", ".join(f"{n}: f32[2, 2]" for n in ("g", "o", *old))
    heads = ", ".join(f"{n}: state f32[3, 2, 2]" for n in old)
    results = ", ".join(f"r{i} = {n}" for i, n in enumerate(names))
    reverse = str(draw(st.booleans())).lower()
    used = draw(st.sampled_from(["", "", "", ", g = %g", ", w = w"]))
    body = "\n    ".join(lines)
    return program(f"""program p({heads}, x: f32[2, 2], o: f32[3, 2, 2], r: f32[]) {{
      %d, %g = Scan(x, w) {{consts=0, carries=1, length=3, reverse={reverse}}}
          : f32[2, 2], f32[3, 2, 2] with layer(a0: f32[2, 2], a1: f32[2, 2]) {{
        %0 = MatMul(a0, a1) : f32[2, 2]
        %1 = Multiply(a0, a1) : f32[2, 2]
        return r0 = %0, r1 = %1
      }}
      {", ".join(names)} = Map(%g, o, {", ".join(old)}, r) {{mapped={2 + states}, length=3}}
          : {", ".join(["f32[3, 2, 2]"] * states)} with update({kinds}, r: f32[]) {{
        {body}
        return {results}
      }}
      return d = %d, {", ".join(f"state {o} = {n}" for o, n in zip(old, names, strict=True))}{used}
    }}""")


def test_generated_updates_mean_the_same() -> None:
    check_preserving(MOVE, updates(), examples=150, least=0.4)
