"""RollRepeats: repeated nodes become loops, as text before and after the pass."""

from __future__ import annotations

from graphc.passes.rolling.roll_repeats import RollRepeats
from tests.passes.check import check, check_stays, program
from tests.passes.rolling.models import ROLL, layers, rolls, text


def test_layers_become_one_loop_over_their_stacked_parameters() -> None:
    rolls(
        """
        %0 = Multiply(x, a) : f32[2]
        %1 = Tanh(%0) : f32[2]
        %2 = Multiply(%1, b) : f32[2]
        %3 = Tanh(%2) : f32[2]
        %4 = Multiply(%3, c) : f32[2]
        %5 = Tanh(%4) : f32[2]
        return y = %5
        """,
        """
        %0 = Stack(a, b, c) : f32[3, 2]
        %1 = Scan(x, %0) {consts=0, carries=1, length=3} : f32[2]
            with body(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          return r0 = %1
        }
        return y = %1
        """,
    )


def test_two_kinds_that_alternate_are_one_iteration() -> None:
    rolls(
        f"""
        {layers("a")}
        {layers("b", "%1", 2, "Relu")}
        {layers("c", "%3", 4)}
        {layers("d", "%5", 6, "Relu")}
        {layers("e", "%7", 8)}
        {layers("f", "%9", 10, "Relu")}
        return y = %11
        """,
        """
        %0 = Stack(a, c, e) : f32[3, 2]
        %1 = Stack(b, d, f) : f32[3, 2]
        %2 = Scan(x, %0, %1) {consts=0, carries=1, length=3} : f32[2]
            with body(a0: f32[2], a1: f32[2], a2: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          %2 = Multiply(%1, a2) : f32[2]
          %3 = Relu(%2) : f32[2]
          return r0 = %3
        }
        return y = %2
        """,
    )


def test_iterations_begin_where_the_fewest_values_pass() -> None:
    """Iterations do not begin at the first Add, although it is like those at their end."""
    rolls(
        """
        %0 = Negative(d) : f32[2]
        %1 = Add(d, %0) : f32[2]
        %2 = Multiply(%1, a) : f32[2]
        %3 = Tanh(%2) : f32[2]
        %4 = Add(%1, %3) : f32[2]
        %5 = Multiply(%4, b) : f32[2]
        %6 = Tanh(%5) : f32[2]
        %7 = Add(%4, %6) : f32[2]
        %8 = Multiply(%7, c) : f32[2]
        %9 = Tanh(%8) : f32[2]
        %10 = Add(%7, %9) : f32[2]
        return y = %10
        """,
        """
        %0 = Negative(d) : f32[2]
        %1 = Add(d, %0) : f32[2]
        %2 = Stack(a, b, c) : f32[3, 2]
        %3 = Scan(%1, %2) {consts=0, carries=1, length=3} : f32[2]
            with body(a0: f32[2], a1: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          %2 = Add(a0, %1) : f32[2]
          return r0 = %2
        }
        return y = %3
        """,
    )


def test_a_mask_that_was_left_in_the_first_iteration_goes_before_the_loop() -> None:
    check(
        ROLL,
        """
        program p(x: f32[2], a: state f32[2], b: state f32[2], c: state f32[2], n: i32[2]) {
          %0 = Multiply(x, a) : f32[2]
          %1 = Constant() {value=i32[2] [0, 1]} : i32[2]
          %2 = Less(%1, n) : bool[2]
          %3 = Constant() {value=f32[] 0.0} : f32[]
          %4 = Where(%2, %0, %3) : f32[2]
          %5 = Multiply(%4, b) : f32[2]
          %6 = Where(%2, %5, %3) : f32[2]
          %7 = Multiply(%6, c) : f32[2]
          %8 = Where(%2, %7, %3) : f32[2]
          return y = %8
        }
        """,
        """
        program p(x: f32[2], a: state f32[2], b: state f32[2], c: state f32[2], n: i32[2]) {
          %0 = Constant() {value=i32[2] [0, 1]} : i32[2]
          %1 = Less(%0, n) : bool[2]
          %2 = Constant() {value=f32[] 0.0} : f32[]
          %3 = Stack(a, b, c) : f32[3, 2]
          %4 = Scan(%1, %2, x, %3) {consts=2, carries=1, length=3} : f32[2]
              with body(a0: bool[2], a1: f32[], a2: f32[2], a3: f32[2]) {
            %0 = Multiply(a2, a3) : f32[2]
            %1 = Where(a0, %0, a1) : f32[2]
            return r0 = %1
          }
          return y = %4
        }
        """,
    )


def test_two_values_are_carried_one_of_them_to_new_state() -> None:
    rolls(
        """
        %0 = Multiply(x, g) : f32[2]
        %1 = Tanh(%0) : f32[2]
        %2 = Add(g, a) : f32[2]
        %3 = Multiply(%1, %2) : f32[2]
        %4 = Tanh(%3) : f32[2]
        %5 = Add(%2, b) : f32[2]
        %6 = Multiply(%4, %5) : f32[2]
        %7 = Tanh(%6) : f32[2]
        %8 = Add(%5, c) : f32[2]
        return y = %7, state g = %8
        """,
        """
        %0 = Stack(a, b, c) : f32[3, 2]
        %1, %2 = Scan(x, g, %0) {consts=0, carries=2, length=3} : f32[2], f32[2]
            with body(a0: f32[2], a1: f32[2], a2: f32[2]) {
          %0 = Multiply(a0, a1) : f32[2]
          %1 = Tanh(%0) : f32[2]
          %2 = Add(a1, a2) : f32[2]
          return r0 = %1, r1 = %2
        }
        return y = %1, state g = %2
        """,
    )


def test_one_value_is_carried_twice_where_it_begins_as_two() -> None:
    rolls(
        """
        %0 = Negative(x) : f32[2]
        %1 = Add(%0, y) : f32[2]
        %2 = Negative(%1) : f32[2]
        %3 = Add(%2, %1) : f32[2]
        %4 = Negative(%3) : f32[2]
        %5 = Add(%4, %3) : f32[2]
        return y = %5
        """,
        """
        %0, %1 = Scan(x, y) {consts=0, carries=2, length=3, unroll=4} : f32[2], f32[2]
            with body(a0: f32[2], a1: f32[2]) {
          %0 = Negative(a0) : f32[2]
          %1 = Add(%0, a1) : f32[2]
          return r0 = %1, r1 = %1
        }
        return y = %0
        """,
    )


def test_a_value_of_two_iterations_back_is_carried_twice() -> None:
    rolls(
        """
        %0 = Add(x, y) : f32[2]
        %1 = Add(%0, x) : f32[2]
        %2 = Add(%1, %0) : f32[2]
        %3 = Add(%2, %1) : f32[2]
        %4 = Add(%3, %2) : f32[2]
        %5 = Add(%4, %3) : f32[2]
        return y = %5, before = %4, first = %0
        """,
        """
        %0, %1, %2 = Scan(x, y) {consts=0, carries=2, length=6, unroll=4}
            : f32[2], f32[2], f32[6, 2]
            with body(a0: f32[2], a1: f32[2]) {
          %0 = Add(a0, a1) : f32[2]
          return r0 = %0, r1 = a0, r2 = %0
        }
        %3, %4, %5, %6, %7, %8 = Unstack(%2)
            : f32[2], f32[2], f32[2], f32[2], f32[2], f32[2]
        return y = %0, before = %7, first = %3
        """,
    )


def test_layers_that_take_the_value_of_the_last_but_one() -> None:
    """Such layers occur in the couplings of a normalizing flow."""
    turns = [
        f"%{2 * i} = Multiply(%{2 * i - 1}, {w}) : f32[2]\n"
        f"%{2 * i + 1} = Add(%{2 * i - 3}, %{2 * i}) : f32[2]"
        for i, w in enumerate("abcdefg")
    ]
    names = {"%-1": "x", "%-3": "y"}
    lines = "\n".join(turns)
    for name, instead in names.items():
        lines = lines.replace(f"{name},", f"{instead},").replace(f"({name}", f"({instead}")
    rolls(
        f"{lines}\nreturn y = %13",
        """
        %0 = Stack(a, b, c, d, e, f, g) : f32[7, 2]
        %1, %2 = Scan(x, y, %0) {consts=0, carries=2, length=7} : f32[2], f32[2]
            with body(a0: f32[2], a1: f32[2], a2: f32[2]) {
          %0 = Multiply(a0, a2) : f32[2]
          %1 = Add(a1, %0) : f32[2]
          return r0 = %1, r1 = a0
        }
        return y = %1
        """,
    )


def test_named_sizes() -> None:
    check(
        ROLL,
        """
        program p(x: f32[n, 2], a: state f32[2], b: state f32[2], c: state f32[2]) {
          %0 = Multiply(x, a) : f32[n, 2]
          %1 = Tanh(%0) : f32[n, 2]
          %2 = Multiply(%1, b) : f32[n, 2]
          %3 = Tanh(%2) : f32[n, 2]
          %4 = Multiply(%3, c) : f32[n, 2]
          %5 = Tanh(%4) : f32[n, 2]
          %6 = Multiply(%1, %3) : f32[n, 2]
          return y = %5, inner = %6
        }
        """,
        """
        program p(x: f32[n, 2], a: state f32[2], b: state f32[2], c: state f32[2]) {
          %0 = Stack(a, b, c) : f32[3, 2]
          %1, %2 = Scan(x, %0) {consts=0, carries=1, length=3} : f32[n, 2], f32[3, n, 2]
              with body(a0: f32[n, 2], a1: f32[2]) {
            %0 = Multiply(a0, a1) : f32[n, 2]
            %1 = Tanh(%0) : f32[n, 2]
            return r0 = %1, r1 = %1
          }
          %3, %4, %5 = Unstack(%2) : f32[n, 2], f32[n, 2], f32[n, 2]
          %6 = Multiply(%3, %4) : f32[n, 2]
          return y = %1, inner = %6
        }
        """,
    )


def test_iterations_that_hold_loops_themselves() -> None:
    inner = """{consts=0, carries=1, length=4} : f32[2] with inner(a0: f32[2], a1: f32[2]) {
            %0 = Add(a0, a1) : f32[2]
            return r0 = %0
          }"""
    check(
        ROLL,
        f"""
        program p(x: f32[2], xs: f32[4, 2]) {{
          %0 = Scan(x, xs) {inner}
          %1 = Tanh(%0) : f32[2]
          %2 = Scan(%1, xs) {inner.replace("inner", "another")}
          %3 = Tanh(%2) : f32[2]
          %4 = Scan(%3, xs) {inner}
          %5 = Tanh(%4) : f32[2]
          return y = %5
        }}
        """,
        f"""
        program p(x: f32[2], xs: f32[4, 2]) {{
          %0 = Scan(xs, x) {{consts=1, carries=1, length=3, unroll=4}} : f32[2]
              with body(a0: f32[4, 2], a1: f32[2]) {{
            %0 = Scan(a1, a0) {inner}
            %1 = Tanh(%0) : f32[2]
            return r0 = %1
          }}
          return y = %0
        }}
        """,
    )
    other = inner.replace("Add", "Multiply")
    check_stays(
        ROLL,
        f"""
        program p(x: f32[2], xs: f32[4, 2]) {{
          %0 = Scan(x, xs) {inner}
          %1 = Tanh(%0) : f32[2]
          %2 = Scan(%1, xs) {other}
          %3 = Tanh(%2) : f32[2]
          %4 = Scan(%3, xs) {inner}
          %5 = Tanh(%4) : f32[2]
          return y = %5
        }}
        """,
    )


def test_bodies_are_rolled_too() -> None:
    check(
        ROLL,
        """
        program p(x: f32[2], xs: f32[4, 2]) {
          %0 = Scan(x, xs) {consts=0, carries=1, length=4} : f32[2]
              with body(u: f32[2], v: f32[2]) {
            %0 = Multiply(u, v) : f32[2]
            %1 = Tanh(%0) : f32[2]
            %2 = Multiply(%1, v) : f32[2]
            %3 = Tanh(%2) : f32[2]
            %4 = Multiply(%3, v) : f32[2]
            %5 = Tanh(%4) : f32[2]
            return r0 = %5
          }
          return y = %0
        }
        """,
        """
        program p(x: f32[2], xs: f32[4, 2]) {
          %0 = Scan(x, xs) {consts=0, carries=1, length=4} : f32[2]
              with body(u: f32[2], v: f32[2]) {
            %0 = Scan(v, u) {consts=1, carries=1, length=3, unroll=4} : f32[2]
                with body(a0: f32[2], a1: f32[2]) {
              %0 = Multiply(a1, a0) : f32[2]
              %1 = Tanh(%0) : f32[2]
              return r0 = %1
            }
            return r0 = %0
          }
          return y = %0
        }
        """,
    )


def test_loops_and_their_nodes_have_common_names() -> None:
    nodes, x = [], "x"
    for i, w in enumerate("abc"):
        nodes.append(f'%{2 * i} = Multiply({x}, {w}) : f32[2] as "block{i}/Multiply"')
        nodes.append(f'%{2 * i + 1} = Tanh(%{2 * i}) : f32[2] as "block{i}/out/Tanh"')
        x = f"%{2 * i + 1}"
    before = program(text("\n".join([*nodes, "return y = %5"])))
    scan = ROLL.run(before).program.nodes[-1]
    assert scan.op.name == "Scan" and scan.name == "block*"
    assert [node.name for node in scan.regions[0].nodes] == ["block*/Multiply", "block*/out/Tanh"]
    for place, node in enumerate(scan.regions[0].nodes):
        turns = [(each.name, each.source) for each in before.nodes[place::2]]
        assert node.source is not None and node.source.turns == tuple(turns)
        assert str(node.source) == str(turns[0][1])
    assert scan.source == before.nodes[0].source


def parameters(layer: str, shared: int) -> list[tuple[int, int]]:
    """(iterations, nodes per iteration) of the loops over four layers, forward and backward."""
    states = ", ".join(f"{name}: state f32[2, 2]" for name in "abcd")
    lines, h = [], "x"
    for name in "abcd":
        lines += [
            f"%m{name} = MatMul({h}, {name}) : f32[2, 2]",
            f"%h{name} = Tanh(%m{name}) : f32[2, 2]",
        ]
        h = f"%h{name}"
    g = h
    for name in "dcba":
        lines += [line.format(n=name, g=g) for line in layer.splitlines()]
        g = f"%g{name}"
    source = f"program p(x: f32[2, 2], {states}) {{\n" + "\n".join(lines) + f"\nreturn g = {g}\n}}"
    result = RollRepeats(saved=12, work=0, shared=shared).run(program(source)).program
    return [
        (node.attrs["length"], len(node.regions[0].nodes))
        for node in result.nodes
        if node.op.name == "Scan"
    ]


def test_small_loops_over_parameters_that_another_loop_stacks() -> None:
    """The forward pass saves 6 nodes, which alone would not be enough."""
    layer = """%a{n} = Multiply({g}, %h{n}) : f32[2, 2]
%b{n} = Exp(%a{n}) : f32[2, 2]
%c{n} = Subtract(%b{n}, {g}) : f32[2, 2]
%g{n} = MatMul(%c{n}, {n}) {{transpose_b=true}} : f32[2, 2]"""
    assert parameters(layer, shared=4) == [(4, 2), (4, 4)]
    assert parameters(layer, shared=5) == [(4, 4)]


def test_iterations_that_share_their_parameters_may_be_fewer() -> None:
    """Four iterations over x and y, and four over separate variables."""
    nodes = []
    for i, weight in enumerate([*"yyyy", *"abcd"]):
        activation = "Sigmoid" if i < 4 else "Tanh"
        before = f"%{2 * i - 1}" if i else "x"
        nodes.append(f"%{2 * i} = Multiply({before}, {weight}) : f32[2]")
        nodes.append(f"%{2 * i + 1} = {activation}(%{2 * i}) : f32[2]")
    before = program(text("\n".join([*nodes, "return y = %15"])))
    for turns, steps, lengths in ((4, None, [4, 4]), (6, None, []), (6, 4, [4]), (6, 5, [])):
        rolled = RollRepeats(turns=turns, steps=steps, saved=4, work=0).run(before).program
        scans = [node for node in rolled.nodes if node.op.name == "Scan"]
        assert [node.attrs["length"] for node in scans] == lengths


def test_a_loop_over_parameters_that_another_one_stacks_may_have_an_iteration_less() -> None:
    """Four layers forward and three of them backward; the minimum is otherwise four iterations."""
    nodes = [layers("abcd"), "%30 = Negative(%7) : f32[2]", layers("dcb", "%30", 40, "Sigmoid")]
    before = program(text("\n".join([*nodes, "return y = %45"])))
    for steps, lengths in ((None, [4]), (4, [3, 3])):
        rolled = RollRepeats(turns=4, steps=steps, saved=4, work=0).run(before).program
        scans = [node for node in rolled.nodes if node.op.name == "Scan"]
        assert [node.attrs["length"] for node in scans] == lengths
