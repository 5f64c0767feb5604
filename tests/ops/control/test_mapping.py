"""`Map` runs one body on every slice at once. Only the pass `GroupAlike` makes it."""

from __future__ import annotations

from textwrap import dedent

import jax
import numpy as np
import pytest

from graphc.devices.replicate import Replicate
from graphc.errors import AttributeValueError, VerifyError
from graphc.ir.compare import difference
from graphc.ir.fingerprint import fingerprint
from graphc.ir.layouts import Sharded
from graphc.ir.parse import parse_program
from graphc.ir.program import Program
from graphc.ir.serial import dump_program, load_program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.control.mapping import MAP
from graphc.passes.simplify.prune import Prune
from tests.near import assert_near
from tests.passes.check import check, check_stays, program
from tests.passes.evaluate import evaluate

RNG = np.random.default_rng(0)

TWO_RESULTS = """
    program p(a: f32[5, 4], b: f32[5, 3, 4], w: f32[4, 2], v: i32[]) {
      %0, %1, %2 = Map(a, b, w, v) {mapped=2, length=5} : f32[5, 3, 2], f32[5, 4], i32[5]
          with body(x: f32[4], y: f32[3, 4], w: f32[4, 2], v: i32[]) {
        %0 = Add(y, x) : f32[3, 4]
        %1 = MatMul(%0, w) : f32[3, 2]
        %2 = Multiply(x, x) : f32[4]
        %3 = Add(v, v) : i32[]
        return r0 = %1, r1 = %2, r2 = %3
      }
      return products = %0, squares = %1, doubled = %2
    }
"""


def values(of: Program) -> list[np.ndarray]:
    """A value for each input."""
    return [
        np.asarray(RNG.standard_normal(t.type.shape) * 4).astype(t.type.dtype)
        for t in of.input_tensors()
    ]


def test_it_computes_what_a_loop_over_the_slices_does() -> None:
    """A result that depends only on shared operands is the same for each slice."""
    start = program(TWO_RESULTS)
    inputs = values(start)
    for got, wanted in zip(to_function(start)(*inputs), evaluate(start, inputs), strict=True):
        assert_near(got, wanted, rtol=1e-6)
        assert got.shape == wanted.shape and got.dtype == wanted.dtype


@pytest.mark.parametrize("length", [0, 1, 3])
def test_any_length_also_of_splits_and_loops(length: int) -> None:
    start = program(
        f"""
        program p(a: f32[{length}, 4], xs: f32[3, 2]) {{
          %0, %1 = Map(a, xs) {{mapped=1, length={length}}} : f32[{length}, 2], f32[{length}, 2]
              with body(x: f32[4], xs: f32[3, 2]) {{
            %0, %1 = Split(x) {{axis=0, sizes=[2, 2]}} : f32[2], f32[2]
            %2 = Scan(%0, xs) {{consts=0, carries=1, length=3}} : f32[2]
                with add(c: f32[2], t: f32[2]) {{
              %0 = Add(c, t) : f32[2]
              return r0 = %0
            }}
            return r0 = %2, r1 = %1
          }}
          return sums = %0, rest = %1
        }}
        """
    )
    a, xs = values(start)
    sums, rest = to_function(start)(a, xs)
    assert_near(sums, a[:, :2] + xs.sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rest, a[:, 2:])


def test_keys_and_random_numbers_of_each_slice_are_its_own() -> None:
    """Each slice draws as if it ran alone: one key for each dropout of a deep network."""
    draws = "{shape=[3], dtype=f32} : f32[3]"
    mapped = program(
        f"""
        program p(numbers: i32[4], key: u32[2]) {{
          %0 = Map(numbers, key) {{mapped=1, length=4}} : f32[4, 3] with b(i: i32[], k: u32[2]) {{
            %0 = FoldIn(k, i) : u32[2]
            %1 = RandomNormal(%0) {draws}
            return r0 = %1
          }}
          return draws = %0
        }}
        """
    )
    one = program(
        f"""
        program p(i: i32[], k: u32[2]) {{
          %0 = FoldIn(k, i) : u32[2]
          %1 = RandomNormal(%0) {draws}
          return draw = %1
        }}
        """
    )
    numbers, key = np.array([3, 1, 4, 1], np.int32), np.array([0, 7], np.uint32)
    (got,) = to_function(mapped)(numbers, key)
    wanted = [to_function(one)(i, key)[0] for i in numbers]
    np.testing.assert_array_equal(got, np.stack(wanted))
    assert len(np.unique(got)) == 9  # two numbers are equal


# Programs with a batch, and the number of collectives that they need.
REPLICATED = {
    "the batch is an inner axis": (
        """
        program p(a: f32[3, 8, 4], w: state f32[4, 2]) {
          batch_axis a=1
          %0 = Map(a, w) {mapped=1, length=3} : f32[3, 8, 2] with body(x: f32[8, 4], w: f32[4, 2]) {
            %0 = MatMul(x, w) : f32[8, 2]
            return r0 = %0
          }
          return y = %0
        }
        """,
        0,
    ),
    "the batch is the mapped axis, which is made whole": (
        """
        program p(a: f32[8, 4]) {
          batch_axis a=0
          %0 = Map(a) {mapped=1, length=8} : f32[8, 4] with body(x: f32[4]) {
            %0 = Tanh(x) : f32[4]
            return r0 = %0
          }
          return y = %0
        }
        """,
        1,
    ),
    "the shared operand is cut": (
        """
        program p(w: state f32[3, 4, 2], x: f32[8, 4]) {
          batch_axis x=0
          %0 = Map(w, x) {mapped=1, length=3} : f32[3, 8, 2] with body(w: f32[4, 2], x: f32[8, 4]) {
            %0 = MatMul(x, w) : f32[8, 2]
            return r0 = %0
          }
          return y = %0
        }
        """,
        0,
    ),
    "sums over the batch inside": (
        """
        program p(a: f32[3, 8, 4], b: state f32[3, 4]) {
          batch_axis a=1
          %0 = Map(a, b) {mapped=2, length=3} : f32[3, 4] with body(x: f32[8, 4], b: f32[4]) {
            %0 = ReduceSum(x) {axes=[0]} : f32[4]
            %1 = Tanh(%0) : f32[4]
            %2 = Add(%1, b) : f32[4]
            return r0 = %2
          }
          return y = %0
        }
        """,
        1,
    ),
    "partial sums go in": (
        """
        program p(x: f32[8, 3, 4], b: state f32[3, 4]) {
          batch_axis x=0
          %0 = ReduceSum(x) {axes=[0]} : f32[3, 4]
          %1, %2 = Map(%0, b) {mapped=2, length=3} : f32[3, 4], f32[3, 4]
              with body(g: f32[4], b: f32[4]) {
            %0 = Subtract(b, g) : f32[4]
            %1 = Negative(g) : f32[4]
            return r0 = %0, r1 = %1
          }
          return new = %1, slope = %2
        }
        """,
        1,  # before the map, not once for each result
    ),
}


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("name", REPLICATED)
def test_on_several_devices_it_gives_what_it_gives_on_one(name: str, replicas: int) -> None:
    text, collectives = REPLICATED[name]
    start = program(text)
    local = Replicate(replicas).replicate(start)
    verify(local.program, "local")
    assert local.collectives == collectives
    inputs = values(start)
    pieces = [
        np.stack(
            np.split(x, replicas, layout.axis) if isinstance(layout, Sharded) else [x] * replicas
        )
        for x, layout in zip(inputs, local.inputs, strict=True)
    ]
    function = to_function(local.program, axis_name="replica", replicas=replicas)
    results = jax.pmap(function, axis_name="replica")(*pieces)
    for got, layout, wanted in zip(
        results, local.outputs, to_function(start)(*inputs), strict=True
    ):
        whole = np.concatenate(got, layout.axis) if isinstance(layout, Sharded) else got[-1]
        assert_near(whole, wanted, rtol=1e-5, atol=1e-5)


def test_text_and_file_bring_it_back() -> None:
    start = program(TWO_RESULTS)
    again = parse_program(print_program(start), CATALOGUE)
    assert difference(start, again) is None
    manifest, arrays = dump_program(start)
    assert difference(start, load_program(manifest, arrays, CATALOGUE)) is None
    assert fingerprint(again) == fingerprint(start)


def test_pruning_leaves_out_results_with_the_work_and_operands_behind_them() -> None:
    check(
        Prune(),
        TWO_RESULTS.replace("return products = %0, squares = %1, doubled = %2", "return s = %1"),
        """
        program p(a: f32[5, 4], b: f32[5, 3, 4], w: f32[4, 2], v: i32[]) {
          %0 = Map(a) {mapped=1, length=5} : f32[5, 4] with body(a0: f32[4]) {
            %0 = Multiply(a0, a0) : f32[4]
            return r0 = %0
          }
          return s = %0
        }
        """,
        prune=False,
    )
    check_stays(Prune(), TWO_RESULTS)


def test_a_map_of_shared_operands_alone_still_runs() -> None:
    """Pruning leaves this map if only a result without mapped operands is used."""
    text = TWO_RESULTS.replace("return products = %0, squares = %1, doubled = %2", "return d = %2")
    pruned = Prune().run(program(text)).program
    (node,) = pruned.nodes
    assert node.attrs["mapped"] == 0 and len(node.inputs) == 1
    (got,) = to_function(pruned)(*[np.zeros(1)] * 3, np.int32(21))
    np.testing.assert_array_equal(got, [42] * 5)


FAULTS = [
    ("a: f32[5, 4]", "a: f32[6, 4]", "lengths of mapped operands differ, 6 and 5"),
    ("a: f32[5, 4]", "a: f32[]", "a mapped operand needs a leading axis"),
    ("Map(a, b, w, v)", "Map(a, b, w)", "the body takes 4 values, and gets 3"),
    ("Map(a, b, w, v)", "Map(a, b, v, w)", r"takes f32\[4, 2\] for value 2, and gets i32\[\]"),
    ("w: f32[4, 2]", "w: i32[4, 2]", r"takes f32\[4, 2\] for value 2, and gets i32\[4, 2\]"),
    ("a: f32[5, 4]", "a: f32[5, 6]", "sizes of value 0 given to the body .* differ, 6 and 4"),
    ("mapped=2", "mapped=1", r"takes f32\[3, 4\] for value 1, and gets f32\[5, 3, 4\]"),
    ("mapped=2", "mapped=3", "lengths of mapped operands differ, 4 and 5"),
    ("f32[5, 3, 2], f32[5, 4]", "f32[4, 3, 2], f32[5, 4]", "its results have other types"),
    ("length=5", "length=n", "needs 5 == n"),
]


@pytest.mark.parametrize(("old", "new", "message"), FAULTS)
def test_faults_are_found(old: str, new: str, message: str) -> None:
    assert old in TWO_RESULTS
    text = dedent(TWO_RESULTS).strip().replace(old, new, 1)
    with pytest.raises(VerifyError, match=message):
        verify(parse_program(text, CATALOGUE), "functional")


def test_attributes_are_checked() -> None:
    with pytest.raises(AttributeValueError, match="mapped must"):
        MAP.complete({"mapped": -1, "length": 3})
    with pytest.raises(AttributeValueError, match="needs the attribute 'length'"):
        MAP.complete({"mapped": 1})
