"""State in shared buffers: which groups programs propose. The values do not change."""

import numpy as np
import pytest

import graphc as gc
from graphc.errors import StateError
from graphc.ir.parse import parse_program
from graphc.ir.types import parse_type
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from graphc.runtime.buffers.layout import Buffer, Group, StateLayout, groups_of
from graphc.runtime.buffers.packing import pack, repack, unpack
from graphc.runtime.buffers.state_buffers import physical, propose
from graphc.runtime.targets.prepare import evaluate
from tests.compiling import optimised
from tests.near import assert_near

# Two blocks. Their weights are stacked, read and assigned in the form that loop rolling leaves.
ROLLED = """
program p(x: f32[3], w0: state f32[3], w1: state f32[3], b: state f32[2]) {
  %0 = Stack(w0, w1) : f32[2, 3]
  %1 = Multiply(%0, x) : f32[2, 3]
  %2 = ReduceSum(%1) {axes=[0, 1]} : f32[]
  %3, %4 = Unstack(%1) : f32[3], f32[3]
  return loss = %2, state w0 = %3, state w1 = %4
}
"""
# One of the blocks is read separately, and the new values are stacked in another order.
LOOSE = """
program p(x: f32[3], w0: state f32[3], w1: state f32[3], w2: state f32[3]) {
  %0 = Stack(w0, w1, w2) : f32[3, 3]
  %1 = ReduceSum(%0) {axes=[0, 1]} : f32[]
  %2 = Add(w1, x) : f32[3]
  %3 = Exp(w0) : f32[3]
  return a = %1, b = w2, state w1 = %3, state w0 = %2
}
"""
# An optimizer: momentum and a step for three parameters of different shapes.
MOMENTUM = """
program p(
  g0: f32[3], g1: f32[2, 2], g2: f32[1], rate: f32[],
  p0: state f32[3], p1: state f32[2, 2], p2: state f32[1],
  m0: state f32[3], m1: state f32[2, 2], m2: state f32[1], big: state f32[70, 70], n: state i32[]
) {
  %0 = Multiply(m0, rate) : f32[3]
  %1 = Multiply(m1, rate) : f32[2, 2]
  %2 = Multiply(m2, rate) : f32[1]
  %3 = Add(%0, g0) : f32[3]
  %4 = Add(%1, g1) : f32[2, 2]
  %5 = Add(%2, g2) : f32[1]
  %6 = Subtract(p0, %3) : f32[3]
  %7 = Subtract(p1, %4) : f32[2, 2]
  %8 = Subtract(p2, %5) : f32[1]
  %9 = ReduceSum(%6) {axes=[0]} : f32[]
  %10 = ReduceSum(big) {axes=[0, 1]} : f32[]
  return a = %9, b = %10, c = n, state p0 = %6, state p1 = %7, state p2 = %8,
    state m0 = %3, state m1 = %4, state m2 = %5
}
"""
# Some members are assigned, one is only assigned, some are only read, one is assigned to another.
SPARSE = """
program p(a: state f32[2], b: state f32[2], c: state f32[], d: state f32[3], x: f32[2]) {
  %0 = Exp(x) : f32[2]
  %1 = Add(c, c) : f32[]
  return s = %1, state b = a, state e = %0
}
"""
# All variables are assigned, and none is read.
BLIND = """
program p(x: f32[2], y: f32[3]) {
  %0 = Exp(y) : f32[3]
  return state u = x, state v = %0
}
"""
DTYPES = """
program p(
  a: state bool[2], b: state bool[3], c: state bf16[2], d: state bf16[], e: state f64[2],
  f: state f64[1, 2], g: state i4[2], h: state i4[2], i: state c64[2], j: state c64[]
) {
  %0 = LogicalNot(a) : bool[2]
  %1 = Add(c, d) : bf16[2]
  %2 = Multiply(f, e) : f64[1, 2]
  %3 = Add(i, j) : c64[2]
  return q = b, state a = %0, state c = %1, state f = %2, state h = g, state i = %3
}
"""
FLAT, STACKED = "flat", "stacked"
ALONE: tuple[Group, ...] = ()
CASES = [
    (ROLLED, None),
    (ROLLED, ALONE),
    (ROLLED, (Group(FLAT, ("w0", "w1", "b")),)),
    (ROLLED, (Group(STACKED, ("w1", "w0")),)),
    (LOOSE, None),
    (LOOSE, (Group(FLAT, ("w2", "w0", "w1")),)),
    (LOOSE, (Group(STACKED, ("w1", "w2")),)),
    (LOOSE, (Group(STACKED, ("rest3", "w0", "w1", "w2")),)),
    (MOMENTUM, None),
    (MOMENTUM, (Group(FLAT, ("m1", "p2", "m0", "p1", "p0", "m2")),)),
    (MOMENTUM, (Group(FLAT, ("p0", "p1")), Group(FLAT, ("m1", "m0", "m2", "p2")))),
    (MOMENTUM, (Group(STACKED, ("p1", "m1")), Group(FLAT, ("m0", "m2", "big")))),
    (SPARSE, None),
    (SPARSE, (Group(FLAT, ("a", "b", "c", "d", "e")),)),
    (SPARSE, (Group(FLAT, ("e", "d")), Group(STACKED, ("a", "b")))),
    (BLIND, None),
    (BLIND, (Group(FLAT, ("v", "rest", "u")),)),
    (DTYPES, None),
]


def types_of(program):
    found = {p.name: p.tensor.type for p in (*program.ports("state"), *program.new_state())}
    return {**found, "rest": parse_type("f32[2]"), "rest3": parse_type("f32[3]")}


def sample(type, seed):
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=type.shape) * 4).astype(type.dtype)


@pytest.mark.parametrize("text, groups", CASES)
@optimised()  # without optimization, the two programs round differently on JAX 0.12
def test_a_program_means_the_same_in_other_buffers(text, groups) -> None:
    program = parse_program(text, CATALOGUE)
    plain = StateLayout(types_of(program))
    layout = plain.with_groups(propose(program, plain) if groups is None else groups)
    if groups is not None:
        assert groups_of(layout.buffers) == [*groups] or len(layout.buffers) < len(plain.buffers)
    local = physical(program, layout)
    verify(local, "bound")
    state = {n: sample(t, i) for i, (n, t) in enumerate(layout.types.items())}
    feeds = {p.name: sample(p.tensor.type, 100 + i) for i, p in enumerate(program.ports("feed"))}
    wanted = run(program, {**feeds, **state})
    buffers = {b.name: pack(b, state) for b in layout.buffers}
    got = run(local, {**feeds, **buffers})
    for buffer in layout.buffers:
        if ("state", buffer.name) in got:
            for name, value in unpack(buffer, got.pop(("state", buffer.name))).items():
                expected = wanted.pop(("state", name), state[name])
                np.testing.assert_array_equal(value, expected, name)
    assert got.keys() == wanted.keys()
    for key, value in got.items():
        assert_near(value, wanted[key], rtol=1e-6)


def run(program, values):
    results = evaluate(program, [values[port.name] for port in program.inputs])
    return {(p.kind, p.name): v for p, v in zip(program.outputs, results, strict=True)}


def ops(program):
    return [node.op.name for node in program.nodes]


def proposed(text):
    program = parse_program(text, CATALOGUE)
    layout = StateLayout(types_of(program))
    layout = layout.with_groups(propose(program, layout))
    return layout, physical(program, layout)


def test_state_in_the_used_layout_costs_nothing() -> None:
    layout, local = proposed(ROLLED)
    assert groups_of(layout.buffers) == [Group(STACKED, ("w0", "w1"))]
    assert ops(local) == ["Multiply", "ReduceSum"]
    assert [p.name for p in local.inputs] == ["x", "stacked:w0+1", "b"]
    assert [p.name for p in local.outputs] == ["loss", "stacked:w0+1"]


def test_updates_of_many_variables_become_one() -> None:
    layout, local = proposed(MOMENTUM)
    groups = [Group(FLAT, ("p0", "p1", "p2")), Group(FLAT, ("m0", "m1", "m2"))]
    assert groups_of(layout.buffers) == groups
    found = ops(local)
    # Only p0 is read separately. The gradients are joined, and other nodes use the buffers.
    assert found.count("Concatenate") == 1
    assert found.count("Subtract") == 2 and found.count("Multiply") == 2
    assert "Split" not in found


def test_a_group_in_another_order_keeps_the_buffer() -> None:
    types = {name: parse_type("f32[2]") for name in "abc"}
    layout = StateLayout(types).with_groups([Group(STACKED, ("a", "b"))])
    assert layout.with_groups([Group(STACKED, ("b", "a"))]) is layout
    grown = layout.with_groups([Group(STACKED, ("c", "b", "a"))])
    assert [buffer.members for buffer in grown.buffers] == [("c", "b", "a")]


def test_a_layout_grows_by_whole_buffers_only() -> None:
    types = {n: parse_type("f32[2]") for n in "abcdef"}
    layout = StateLayout(types).with_groups([Group(FLAT, ("a", "b")), Group(FLAT, ("e", "f"))])
    assert [b.name for b in layout.buffers] == ["flat:a+1", "c", "d", "flat:e+1"]
    grown = layout.with_groups(
        [
            Group(STACKED, ("b", "c")),  # only a part of a buffer
            Group(STACKED, ("d", "d")),
            Group(STACKED, ("d", "z")),
            Group(STACKED, ("b", "a", "c")),
        ]
    )
    assert [b.name for b in grown.buffers] == ["stacked:b+2", "d", "flat:e+1"]
    assert list(grown.types) == list("abcdef")
    assert grown.with_groups(groups_of(grown.buffers)) is grown
    mixed = StateLayout({"a": parse_type("f32[2]"), "b": parse_type("f32[3]")})
    assert len(mixed.with_groups([Group(STACKED, ("a", "b"))]).buffers) == 2


def test_values_move_between_any_two_layouts() -> None:
    types = {name: parse_type("f32[]" if name == "c" else "f32[2]") for name in "abcd"}
    plain = StateLayout(types)
    layouts = [
        plain,
        plain.with_groups([Group(FLAT, ("c", "a", "d", "b"))]),
        plain.with_groups([Group(STACKED, ("d", "a"))]),
    ]
    values = {name: sample(type, i) for i, (name, type) in enumerate(types.items())}
    for old in layouts:
        for new in layouts:
            there = repack(old, [pack(b, values) for b in old.buffers], new, lambda _: None)
            for buffer, value in zip(new.buffers, there, strict=True):
                for name, got in unpack(buffer, value).items():
                    np.testing.assert_array_equal(got, values[name])
    wanted = layouts[1].with_buffers(layouts[2].buffers[:1])
    assert [b.name for b in wanted.buffers] == ["c", "stacked:d+1", "b"]


def test_a_layout_of_other_variables_is_refused() -> None:
    program = parse_program(ROLLED, CATALOGUE)
    with pytest.raises(StateError, match=r"has no '(w1|b)'"):
        physical(program, StateLayout({"w0": parse_type("f32[3]")}))
    with pytest.raises(StateError, match="not so: 'a', 'b'"):
        StateLayout({"a": parse_type("f32[3]")}, [Buffer.own("b", parse_type("f32[3]"))])


def test_elements_that_share_a_byte_stay_alone() -> None:
    layout, _ = proposed(DTYPES)
    grouped = {name for group in groups_of(layout.buffers) for name in group.members}
    assert grouped.isdisjoint("gh")


def test_operators_that_look_at_neighbours_are_not_joined() -> None:
    text = """
    program p(a: state f32[4], b: state f32[4], c: state f32[2, 2], d: state f32[2, 2]) {
      %0 = CumSum(a) {axis=0} : f32[4]
      %1 = CumSum(b) {axis=0} : f32[4]
      %2 = Transpose(c) {perm=[1, 0]} : f32[2, 2]
      %3 = Transpose(d) {perm=[1, 0]} : f32[2, 2]
      return state a = %0, state b = %1, state c = %2, state d = %3
    }
    """
    _, local = proposed(text)
    assert ops(local).count("CumSum") == 2 and ops(local).count("Transpose") == 2


def test_variables_that_get_different_arrays_in_one_step() -> None:
    """A former fault: constants of several shapes were compared as if they were scalars."""
    graph = gc.Graph()
    with graph:
        variables = [gc.variable(np.ones(n, np.float32), name=f"v{n}") for n in (2, 3)]
        step = gc.group(*[v.assign(np.arange(v.shape[0], dtype=np.float32)) for v in variables])
    with gc.Session(graph) as session:
        session.run(step)
        found = {name: list(value) for name, value in session.values().items()}
    assert found == {"v2": [0, 1], "v3": [0, 1, 2]}
