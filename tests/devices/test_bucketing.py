"""Bucketing joins exchanges: fewer exchanges with the same values."""

from __future__ import annotations

import math

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.devices import DataParallel
from graphc.devices.bucketing import BucketCollectives
from graphc.errors import AttributeValueError, DTypeError, ShapeError
from graphc.ir.parse import parse_program
from graphc.ir.program import Program
from graphc.ir.verify import verify
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.core.emit import emit_node
from graphc.ops.structure.collective import ALL_REDUCE, EXCHANGES
from graphc.runtime.step.executable import Executable
from tests.near import assert_near
from tests.passes.check import check, check_stays, program

# -- the pass ----------------------------------------------------------------------------------


def test_gradients_fill_buckets_in_the_order_in_which_they_get_ready() -> None:
    """With 16, 8, 16 and 4 bytes and buckets of 24 bytes, the first two share a bucket."""
    check(
        BucketCollectives(24),
        """
        program p(a: f32[4], b: f32[2], c: f32[4], d: f32[1]) {
          %a = AllReduce(a) {op="sum"} : f32[4]
          %0 = Negative(%a) : f32[4]
          %1 = Negative(b) : f32[2]
          %b = AllReduce(%1) {op="sum"} : f32[2]
          %c = AllReduce(c) {op="sum"} : f32[4]
          %d = AllReduce(d) {op="sum"} : f32[1]
          return a = %0, b = %b, c = %c, d = %d
        }
        """,
        """
        program p(a: f32[4], b: f32[2], c: f32[4], d: f32[1]) {
          %1 = Negative(b) : f32[2]
          %a, %b = AllReduce(a, %1) {op="sum"} : f32[4], f32[2]
          %0 = Negative(%a) : f32[4]
          %c, %d = AllReduce(c, d) {op="sum"} : f32[4], f32[1]
          return a = %0, b = %b, c = %c, d = %d
        }
        """,
    )


def test_an_array_that_fills_a_bucket_is_alone_and_the_open_one_stays_open() -> None:
    check(
        BucketCollectives(16),
        """
        program p(a: f32[1], b: f32[5], c: f32[2]) {
          %a = AllReduce(a) {op="sum"} : f32[1]
          %b = AllReduce(b) {op="sum"} : f32[5]
          %c = AllReduce(c) {op="sum"} : f32[2]
          return a = %a, b = %b, c = %c
        }
        """,
        """
        program p(a: f32[1], b: f32[5], c: f32[2]) {
          %b = AllReduce(b) {op="sum"} : f32[5]
          %a, %c = AllReduce(a, c) {op="sum"} : f32[1], f32[2]
          return a = %a, b = %b, c = %c
        }
        """,
    )


def test_batch_statistics_do_not_wait_for_gradients() -> None:
    """A sum that another sum needs is joined only with its like: here both moments of a batch."""
    check(
        BucketCollectives(),
        """
        program p(x: f32[4], y: f32[4], g: f32[4]) {
          %g = AllReduce(g) {op="sum"} : f32[4]
          %0 = AllReduce(x) {op="sum"} : f32[4]
          %1 = AllReduce(y) {op="sum"} : f32[4]
          %2 = Multiply(%0, %1) : f32[4]
          %3 = AllReduce(%2) {op="sum"} : f32[4]
          return g = %g, h = %3
        }
        """,
        """
        program p(x: f32[4], y: f32[4], g: f32[4]) {
          %0, %1 = AllReduce(x, y) {op="sum"} : f32[4], f32[4]
          %2 = Multiply(%0, %1) : f32[4]
          %g, %3 = AllReduce(g, %2) {op="sum"} : f32[4], f32[4]
          return g = %g, h = %3
        }
        """,
    )


def test_no_two_that_wait_for_each_other_or_differ_in_kind() -> None:
    check_stays(
        BucketCollectives(),
        """
        program p(x: f32[4], h: f16[4]) {
          %0 = AllReduce(x) {op="sum"} : f32[4]
          %1 = Negative(%0) : f32[4]
          %2 = AllReduce(%1) {op="sum"} : f32[4]
          %3 = AllReduce(h) {op="sum"} : f16[4]
          %4 = AllReduce(x) {op="max"} : f32[4]
          return a = %2, b = %3, c = %4
        }
        """,
    )


def test_in_bodies_too() -> None:
    check(
        BucketCollectives(),
        """
        program p(x: f32[3]) {
          %0 = Call(x) : f32[3] with f(a0: f32[3]) {
            %0 = AllReduce(a0) {op="sum"} : f32[3]
            %1 = Square(a0) : f32[3]
            %2 = AllReduce(%1) {op="sum"} : f32[3]
            %3 = Add(%0, %2) : f32[3]
            return r0 = %3
          }
          return y = %0
        }
        """,
        """
        program p(x: f32[3]) {
          %0 = Call(x) : f32[3] with f(a0: f32[3]) {
            %1 = Square(a0) : f32[3]
            %0, %2 = AllReduce(a0, %1) {op="sum"} : f32[3], f32[3]
            %3 = Add(%0, %2) : f32[3]
            return r0 = %3
          }
          return y = %0
        }
        """,
    )


def test_pieces_go_together_in_rows() -> None:
    """One row of gradients for each replica. The row contains the replica's pieces in order."""
    check(
        BucketCollectives(),
        """
        program p(a: f32[2, 4], b: f32[4]) {
          %a = ReduceScatter(a) {axis=1, replicas=4} : f32[2, 1]
          %b = ReduceScatter(b) {axis=0, replicas=4} : f32[1]
          return a = %a, b = %b
        }
        """,
        """
        program p(a: f32[2, 4], b: f32[4]) {
          %0 = Reshape(a) {shape=[2, 4, 1]} : f32[2, 4, 1]
          %1 = Transpose(%0) {perm=[1, 0, 2]} : f32[4, 2, 1]
          %2 = Reshape(%1) {shape=[4, 2]} : f32[4, 2]
          %3 = Reshape(b) {shape=[4, 1]} : f32[4, 1]
          %4 = Reshape(%3) {shape=[4, 1]} : f32[4, 1]
          %5 = Concatenate(%2, %4) {axis=1} : f32[4, 3]
          %6 = ReduceScatter(%5) {axis=0, replicas=4} : f32[1, 3]
          %7, %8 = Split(%6) {axis=1, sizes=[2, 1]} : f32[1, 2], f32[1, 1]
          %a = Reshape(%7) {shape=[2, 1]} : f32[2, 1]
          %b = Reshape(%8) {shape=[1]} : f32[1]
          return a = %a, b = %b
        }
        """,
    )


def test_large_pieces_are_not_copied_for_it() -> None:
    check_stays(
        BucketCollectives(),
        """
        program p(a: f32[32768], b: f32[32768], c: f32[4]) {
          %a = ReduceScatter(a) {axis=0, replicas=4} : f32[8192]
          %b = ReduceScatter(b) {axis=0, replicas=4} : f32[8192]
          %c = ReduceScatter(c) {axis=0, replicas=4} : f32[1]
          return a = %a, b = %b, c = %c
        }
        """,
    )


def test_what_is_printed_keeps_its_order() -> None:
    check(
        BucketCollectives(),
        """
        program p(x: f32[3]) {
          %a = AllReduce(x) {op="sum"} : f32[3]
          Print(%a) {template="first"}
          %0 = Negative(x) : f32[3]
          Print(%0) {template="second"}
          %b = AllReduce(%0) {op="sum"} : f32[3]
          return y = %b
        }
        """,
        """
        program p(x: f32[3]) {
          %0 = Negative(x) : f32[3]
          %a, %b = AllReduce(x, %0) {op="sum"} : f32[3], f32[3]
          Print(%a) {template="first"}
          Print(%0) {template="second"}
          return y = %b
        }
        """,
    )


# -- random programs ---------------------------------------------------------------------------


@st.composite
def local_programs(draw: st.DrawFn) -> tuple[Program, int]:
    """Nodes that compute with inputs of three sizes, and many exchanges between the replicas. Also
    returns the number of replicas."""
    replicas = draw(st.sampled_from([2, 3, 4]))
    sizes = (1, 3, 3 * replicas)
    values = {size: [f"x{size}"] for size in sizes}
    attrs = f"{{axis=1, replicas={replicas}}}"
    lines = []
    for i in range(draw(st.integers(3, 20))):
        kind = draw(st.sampled_from(["Add", "Tanh", *["sum"] * 3, "max", *["pieces"] * 3]))
        size = draw(st.sampled_from(sizes[1:] if kind == "pieces" else sizes))
        a, b = (draw(st.sampled_from(values[size])) for _ in range(2))
        if kind == "pieces":
            name = "AllGather" if size == 3 else "ReduceScatter"
            node, size = f"{name}({a}) {attrs}", 3 * replicas if size == 3 else 3
        elif kind in ("sum", "max"):
            node = f'AllReduce({a}) {{op="{kind}"}}'
        else:
            node = f"{kind}({a}, {b})" if kind == "Add" else f"{kind}({a})"
        lines.append(f"%{i} = {node} : f64[2, {size}]")
        values[size].append(f"%{i}")
    outputs = [name for names in values.values() for name in names[1:]]
    inputs = ", ".join(f"x{size}: f64[2, {size}]" for size in sizes)
    results = ", ".join(f"r{i} = {name}" for i, name in enumerate(outputs))
    text = "\n".join([f"program p({inputs}) {{", *lines, f"return {results}", "}"])
    return parse_program(text, CATALOGUE), replicas


def reductions(local: Program) -> list[int]:
    """The number of bytes in each exchange."""
    return [
        max(sum(map(byte_count, n.inputs)), sum(map(byte_count, n.outputs)))
        for n in local.walk()
        if n.op in EXCHANGES
    ]


def byte_count(tensor: gc.Tensor) -> int:
    return math.prod(map(int, tensor.type.shape)) * tensor.type.dtype.itemsize


@settings(max_examples=150, derandomize=True, deadline=None)
@given(local_programs(), st.integers(1, 500))
def test_any_program_stays_valid_and_has_no_bucket_that_could_take_more(
    drawn: tuple[Program, int], size: int
) -> None:
    local, _ = drawn
    joined = BucketCollectives(size).run(local).program
    verify(joined, "local")
    before, after = reductions(local), reductions(joined)
    assert sum(before) == sum(after)
    assert BucketCollectives(size).run(joined).program is joined
    assert all(count < size + max(before) for count in after)


@pytest.mark.slow
@settings(max_examples=16, derandomize=True, deadline=None)
@given(local_programs(), st.integers(1, 500))
def test_any_program_means_the_same(drawn: tuple[Program, int], size: int) -> None:
    local, replicas = drawn
    joined = BucketCollectives(size).run(local).program
    functions = [to_function(p, axis_name="replica", replicas=replicas) for p in (local, joined)]
    both = jax.pmap(lambda *xs: [f(*xs) for f in functions], "replica")
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(replicas, *t.type.shape)) for t in local.input_tensors()]
    with jax.enable_x64(True):
        expected, got = ([np.asarray(v) for v in values] for values in both(*xs))
    for a, b in zip(expected, got, strict=True):
        assert_near(b, a, rtol=1e-13, atol=1e-13)


# -- whole training steps ----------------------------------------------------------------------


Job = tuple[gc.Graph, list[gc.Tensor], dict[str, tuple[int, ...]]]


def perceptron() -> Job:
    """12 layers of different sizes: no pass rolls them, and they are too large to share buffers."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 66), "float64", name="x")
        h = x
        for i in range(12):
            h = gc.nn.Dense(66 + i, activation=gc.tanh, name=f"h{i}", dtype="float64")(h)
        loss = gc.reduce_mean(gc.square(h), name="loss")
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
    return graph, [train, loss], {"x": (8, 66)}


def convolutional(norms: bool = False) -> Job:
    """A network with batch norm; the moments of the batch are also sums over the replicas."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((None, 4, 4, 24), "float64", name="x")
        h = x
        for i in range(2):
            h = gc.nn.Conv2D(24 + i, 3, name=f"c{i}", dtype="float64", padding="same")(h)
            if norms:
                h = gc.nn.BatchNorm(name=f"n{i}", dtype="float64")(h, training=True)
            h = gc.nn.relu(h)
        h = gc.nn.Dense(11, name="out", dtype="float64")(gc.flatten(h, 1))
        loss = gc.reduce_mean(gc.square(h - 1.0), name="loss")
        train = gc.minimize(loss, optax.sgd(0.1, momentum=0.9), name="train")
    return graph, [train, loss], {"x": (8, 4, 4, 24)}


def step_of(job: Job, **options: object) -> Executable:
    graph, fetches, shapes = job
    strategy = DataParallel(4, **options)  # type: ignore[arg-type]
    return gc.compile(
        graph, fetches, shapes, strategy=strategy, options=gc.CompileOptions(cache=None)
    )


def all_reduces(hlo: str) -> int:
    return hlo.count(" all-reduce(") + hlo.count(" all-reduce-start(")


@pytest.mark.slow
@pytest.mark.parametrize("build", [perceptron, convolutional])
def test_few_all_reduces(build: object) -> None:
    """Checks each device's program, JAX's lowered program and XLA's compiled program."""
    job: Job = build()  # type: ignore[operator]
    trained = [v for v in job[0].variables.values() if v.trainable]
    total = sum(math.prod(map(int, v.shape)) * v.dtype.itemsize for v in trained)
    apart = step_of(job, bucket_bytes=None).stages.local
    assert len(reductions(apart)) > 4
    for parts in range(1, 8):
        size = math.ceil(total / parts)
        joined = reductions(BucketCollectives(size).run(apart).program)
        assert len(joined) <= parts + 2
    step = step_of(job, bucket_bytes=total // 5)
    assert 2 < len(reductions(step.stages.local)) <= 6 + 2
    assert 2 < step.stablehlo().count("stablehlo.all_reduce") <= 6 + 2
    assert 0 < all_reduces(step.hlo()) <= 6 + 2


def test_statistics_of_batches_add_theirs_and_no_more() -> None:
    """Forward, one exchange for mean and variance in each of two layers. Backward, one in each
    layer. The loss joins the exchange of all gradients."""
    local = step_of(convolutional(norms=True)).stages.local
    assert len(reductions(local)) == 2 + 2 + 1


@pytest.mark.slow
@pytest.mark.parametrize("build", [perceptron, lambda: convolutional(norms=True)])
def test_training_equals_one_device(build: object) -> None:
    job: Job = build()  # type: ignore[operator]
    graph, fetches, shapes = job
    ((name, shape),) = shapes.items()
    one = gc.compile(graph, fetches, shapes, options=gc.CompileOptions(cache=None))
    four = step_of(job, bucket_bytes=2**12)
    a, b = one.init(), four.init()
    for i in range(5):
        feeds = {name: np.random.default_rng(i).normal(size=shape)}
        (_, loss), a = one(a, feeds)
        (_, loss4), b = four(b, feeds)
        assert_near(float(loss4), float(loss), rtol=1e-9)
    for variable in a:
        assert_near(b[variable], a[variable], rtol=1e-9, atol=1e-12)


def test_large_arrays_go_as_they_are() -> None:
    """Small arrays are concatenated. The large array is in the same bucket but stays separate."""
    local = program(
        """
        program p(a: f64[32769], b: f64[3], c: f64[2, 2], d: f64[32768]) {
          %a, %b, %c, %d = AllReduce(a, b, c, d) {op="sum"} : f64[32769], f64[3], f64[2, 2], f64[32768]
          return a = %a, b = %b, c = %c, d = %d
        }
        """  # noqa: E501
    )
    replicated = jax.pmap(to_function(local, axis_name="replica", replicas=2), "replica")
    shapes = [(2, 32769), (2, 3), (2, 2, 2), (2, 32768)]
    xs = [np.random.default_rng(0).normal(size=shape) for shape in shapes]
    with jax.enable_x64(True):
        assert replicated.lower(*xs).as_text().count("stablehlo.all_reduce") == 2
        found = [np.asarray(v) for v in replicated(*xs)]
    for x, y in zip(xs, found, strict=True):
        assert_near(y[1], x.sum(0), rtol=1e-15)


def test_the_cache_tells_sizes_apart_and_the_pass_can_be_left_out() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 2), name="x")
        sums = [gc.reduce_sum(x, 0), gc.reduce_sum(gc.square(x))]

    def made(size: int | None, **options: object) -> Executable:
        chosen = gc.CompileOptions(cache=None, **options)  # type: ignore[arg-type]
        strategy = DataParallel(2, bucket_bytes=size)
        return gc.compile(graph, sums, {x: (4, 2)}, strategy=strategy, options=chosen)

    joined, apart, other = made(100), made(None), made(200)
    assert apart.cache_key == made(0).cache_key
    assert len({joined.cache_key, apart.cache_key, other.cache_key}) == 3
    assert [len(reductions(step.stages.local)) for step in (joined, apart)] == [1, 2]
    assert "bucket-collectives" in str(joined.pass_report())
    left_out = made(100, without_passes=("bucket-collectives",))
    assert len(reductions(left_out.stages.local)) == 2


@pytest.mark.parametrize("size", [-1, 2.5, "25MB", True])
def test_what_is_no_size(size: object) -> None:
    with pytest.raises(AttributeValueError, match=r"(?s)bucket_bytes.*got .*test_bucketing\.py"):
        DataParallel(4, bucket_bytes=size)  # type: ignore[arg-type]


def test_bad_operands() -> None:
    with gc.Graph():
        x, h = gc.placeholder((2,), "float32"), gc.placeholder((2,), "float16")
        with pytest.raises(DTypeError, match="must have one dtype, got float32 and float16"):
            emit_node(ALL_REDUCE, (x, h), op="sum")
        with pytest.raises(ShapeError, match="needs at least one operand"):
            emit_node(ALL_REDUCE, (), op="sum")
