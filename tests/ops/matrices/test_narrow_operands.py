"""Products of widened int8 and bf16 operands are lowered with the narrow operands."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import graphc as gc
from graphc.devices.strategy import DataParallel
from graphc.lowering.emit_jax import to_function
from graphc.ops.matrices.narrow_operands import narrow_in_products
from graphc.runtime.session import Session
from tests.compiling import optimised
from tests.near import assert_near
from tests.passes.check import program

RNG = np.random.default_rng(0)
WIDE = {"int8": "int32", "bfloat16": "float32"}
ROWS = (((1,), (0,)), ((), ()))


def numbers(dtype, *shape):
    """Numbers whose sums of products are exact in any order."""
    return jnp.asarray(RNG.integers(-128, 128, shape), dtype)


def wide_sums(dimensions, dtype):
    """The product of arrays of any dtype, with sums in `dtype`."""
    return lambda a, b: lax.dot_general(a, b, dimensions, preferred_element_type=dtype)


def lowered(text, *args):
    return jax.jit(to_function(program(text))).lower(*args).as_text()


def products(stablehlo):
    """The types of the operands and the result of each product, as in "i8 i8 i32"."""
    lines = [line for line in stablehlo.splitlines() if "dot_general" in line]
    return [" ".join(re.findall(r"x([a-z]+\d+)>", line.rsplit(" : ", 1)[1])) for line in lines]


@pytest.mark.parametrize(
    ("narrow", "wide", "found"),
    [
        ("i8", "i32", "i8 i8 i32"),
        ("bf16", "f32", "bf16 bf16 f32"),
        ("u8", "i32", "i32 i32 i32"),
        ("f16", "f32", "f32 f32 f32"),
        ("i8", "f32", "f32 f32 f32"),
        ("f32", "bf16", "bf16 bf16 bf16"),
    ],
)
def test_operands_of_the_lowered_product(narrow, wide, found) -> None:
    names = {"i8": "int8", "u8": "uint8", "f16": "float16", "f32": "float32", "bf16": "bfloat16"}
    a, b = numbers(names[narrow], 4, 3), numbers(names[narrow], 3, 5)
    for product in ("MatMul(%0, %1)", "DotGeneral(%0, %1) {lhs_contract=[1], rhs_contract=[0]}"):
        text = f"""
            program p(a: {narrow}[4, 3], b: {narrow}[3, 5]) {{
              %0 = Cast(a) {{dtype={wide}}} : {wide}[4, 3]
              %1 = Cast(b) {{dtype={wide}}} : {wide}[3, 5]
              %2 = {product} : {wide}[4, 5]
              return y = %2
            }}
        """
        assert products(lowered(text, a, b)) == [found]


def test_one_wide_operand_keeps_both_wide() -> None:
    """Operands of two dtypes, whether cast or not, are multiplied in the wide one."""
    text = """
        program p(a: i8[4, 4], b: i32[4, 4], c: u8[4, 4]) {
          %0 = Cast(a) {dtype=i32} : i32[4, 4]
          %1 = Cast(c) {dtype=i32} : i32[4, 4]
          %2 = MatMul(%0, b) : i32[4, 4]
          %3 = MatMul(%0, %1) : i32[4, 4]
          %4 = MatMul(%0, %0) : i32[4, 4]
          return x = %2, y = %3, z = %4
        }
    """
    args = numbers("int8", 4, 4), numbers("int32", 4, 4), numbers("uint8", 4, 4)
    assert products(lowered(text, *args)) == ["i32 i32 i32", "i32 i32 i32", "i8 i8 i32"]


FORMS = {
    "rows": ((6, 32), (32, 8), ROWS),
    "transposed": ((32, 6), (8, 32), (((0,), (1,)), ((), ()))),
    "a vector": ((32,), (32, 8), (((0,), (0,)), ((), ()))),
    "batches": ((3, 6, 32), (3, 8, 32), (((2,), (2,)), ((0,), (0,)))),
    "rows of matrices": ((3, 6, 32), (32, 8), (((2,), (0,)), ((), ()))),
    "two axes": ((6, 4, 8), (4, 8, 5), (((1, 2), (0, 1)), ((), ()))),
    "leading axes": ((4, 8, 6), (4, 8, 5), (((0, 1), (0, 1)), ((), ()))),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [*WIDE, "uint8", "float16"])
def test_imported_products_equal_those_of_jax(dtype, form) -> None:
    of_a, of_b, dimensions = FORMS[form]
    product = wide_sums(dimensions, WIDE.get(dtype, "int32" if dtype == "uint8" else "float32"))
    a, b = numbers(dtype, *of_a), numbers(dtype, *of_b)
    got, want = gc.jit(product)(a, b), product(a, b)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", WIDE)
def test_no_wide_copy_of_the_weights(dtype) -> None:
    x, w = numbers(dtype, 64, 512), numbers(dtype, 512, 512)
    product = wide_sums(ROWS, WIDE[dtype])
    with optimised():
        jitted = gc.jit(product)
        got = jitted(x, w)
        compiled = jax.jit(product).lower(x, w).compile()
    allowed = compiled.memory_analysis().temp_size_in_bytes
    assert jitted.memory()["temporaries"] <= allowed < w.size
    np.testing.assert_array_equal(got, product(x, w))


@pytest.mark.parametrize("dtype", WIDE)
def test_products_in_loops(dtype) -> None:
    product = wide_sums(ROWS, WIDE[dtype])

    def scanned(xs, w):
        return lax.scan(lambda count, x: (count + 1, product(x, w)), 0, xs)[1]

    xs, w = numbers(dtype, 5, 4, 32), numbers(dtype, 32, 8)
    np.testing.assert_array_equal(gc.jit(scanned)(xs, w), scanned(xs, w))


def test_gradients_of_bf16() -> None:
    def loss(a, b):
        return (wide_sums(ROWS, "float32")(a, b) ** 2).sum()

    a, b = (jnp.asarray(RNG.normal(size=s), "bfloat16") for s in ((6, 32), (32, 8)))
    with gc.Graph() as graph:
        x, y = (gc.placeholder(v.shape, "bfloat16") for v in (a, b))
        total = gc.sum(gc.square(gc.cast(x, "float32") @ gc.cast(y, "float32")))
        slopes = gc.gradients(total, [x, y])
    wanted = jax.grad(loss, (0, 1))(a, b)
    imported = gc.jit(jax.grad(loss, (0, 1)))(a, b)
    for found in (imported, Session(graph).run(slopes, {x: a, y: b})):
        for got, want in zip(found, wanted, strict=True):
            assert got.dtype == want.dtype
            assert_near(got.astype("float32"), want.astype("float32"), 1e-2)


@pytest.mark.parametrize("dtype", WIDE)
def test_named_sizes_and_four_devices(dtype) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 32), dtype, name="x", batch_axis=0)
        w = gc.placeholder((32, 8), dtype, name="w")
        y = gc.cast(x, WIDE[dtype]) @ gc.cast(w, WIDE[dtype])
        across = gc.cast(x, WIDE[dtype]).T @ gc.cast(x, WIDE[dtype])  # summed over the devices
    b = numbers(dtype, 32, 8)
    alone, together = Session(graph), Session(graph, strategy=DataParallel(4))
    for rows in (4, 8):
        a = numbers(dtype, rows, 32)
        wide = a.astype(WIDE[dtype])
        for session in (alone, together):
            product, gram = session.run([y, across], {x: a, w: b})
            np.testing.assert_array_equal(product, wide @ b.astype(WIDE[dtype]))
            np.testing.assert_array_equal(gram, wide.T @ wide)


@pytest.mark.parametrize("rows", [8, 1])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", WIDE)
def test_frozen_weights_stay_narrow_for_several_rows(dtype, transposed, rows) -> None:
    w = np.asarray(numbers(dtype, 64, 64))
    with gc.Graph() as graph:
        x = gc.placeholder((rows, 64), dtype, name="x")
        weights = gc.cast(gc.variable(w, name="w"), WIDE[dtype])
        y = gc.matmul(gc.cast(x, WIDE[dtype]), weights, transpose_b=transposed, name="y")
    frozen = gc.freeze(Session(graph), [x], [y])
    assert [str(v.dtype) for v in frozen.variables.values()] == [dtype if rows > 1 else WIDE[dtype]]
    a = numbers(dtype, rows, 64)
    got = Session(frozen).run("y", {"x": a})
    wide = np.asarray(a).astype(WIDE[dtype])
    np.testing.assert_array_equal(got, wide @ (w.T if transposed else w).astype(WIDE[dtype]))


@pytest.mark.parametrize("dtype", WIDE)
def test_frozen_weights_stay_narrow_if_their_sums_are_frozen_too(dtype) -> None:
    w = np.asarray(numbers(dtype, 64, 64))
    with gc.Graph() as graph:
        x = gc.placeholder((8, 64), dtype, name="x")
        weights = gc.cast(gc.variable(w, name="w"), WIDE[dtype])
        y = gc.cast(x, WIDE[dtype]) @ weights + gc.sum(weights, axis=0)
    frozen = gc.freeze(Session(graph), [x], {"y": y})
    assert [str(v.dtype) for v in frozen.variables.values()] == [dtype]  # the sum is a constant
    a = numbers(dtype, 8, 64)
    wide, kernel = (np.asarray(v).astype(WIDE[dtype]) for v in (a, w))
    np.testing.assert_array_equal(Session(frozen).run("y", {"x": a}), wide @ kernel + kernel.sum(0))


@pytest.mark.parametrize("dtype", WIDE)
def test_loops_take_shared_weights_narrow(dtype) -> None:
    product = wide_sums(ROWS, WIDE[dtype])

    def layers(x, w):
        for _ in range(12):
            x = jnp.clip(product(x, w) // 128, -127, 127).astype(dtype)
        return x

    x, w = numbers(dtype, 4, 32), numbers(dtype, 32, 32)
    jitted = gc.jit(layers)
    np.testing.assert_array_equal(jitted(x, w), layers(x, w))


ONE_ROW = {
    "MatMul(%0, %1) : i32[3, 2]": False,
    "MatMul(%0, %2) : i32[3, 1]": True,
    "MatMul(%2, %1) {transpose_a=true} : i32[1, 2]": True,
    "MatMul(%0, %3) {transpose_b=true} : i32[3, 1]": True,
    "DotGeneral(%0, %1) {lhs_contract=[1], rhs_contract=[0]} : i32[3, 2]": False,
    "DotGeneral(%3, %1) {lhs_contract=[1], rhs_contract=[0]} : i32[1, 2]": True,
    "DotGeneral(%0, %2) {lhs_contract=[1], rhs_contract=[0]} : i32[3, 1]": True,
}


@pytest.mark.parametrize("product", ONE_ROW)
def test_casts_of_one_row_are_computed(product) -> None:
    found = program(f"""
        program p(a: i8[3, 4], b: i8[4, 2], c: i8[4, 1], d: i8[1, 4]) {{
          %0 = Cast(a) {{dtype=i32}} : i32[3, 4]
          %1 = Cast(b) {{dtype=i32}} : i32[4, 2]
          %2 = Cast(c) {{dtype=i32}} : i32[4, 1]
          %3 = Cast(d) {{dtype=i32}} : i32[1, 4]
          %4 = {product}
          return y = %4
        }}
    """)
    taken = set(found.nodes[-1].inputs)
    assert bool(taken & narrow_in_products(found)) is not ONE_ROW[product]


@pytest.mark.parametrize("dtype", ["int4", "int64", "float32"])
def test_float64_is_not_the_sum_of_any_dtype(dtype):
    """NumPy finds None and float64 equal."""
    text = f"""
        program p(a: {"f32" if dtype == "float32" else dtype.replace("int", "i")}[3, 4]) {{
          %0 = Cast(a) {{dtype=f64}} : f64[3, 4]
          %1 = MatMul(%0, %0) {{transpose_b=true}} : f64[3, 3]
          return out = %1
        }}
    """
    assert narrow_in_products(program(text)) == set()
    with gc.Graph() as graph:
        a = gc.placeholder((3, 4), dtype, name="a")
        wide = gc.cast(a, "float64")
        product = gc.matmul(wide, wide, transpose_b=True)
    values = (np.arange(12).reshape(3, 4) % 7).astype(a.type.dtype)
    want = values.astype("float64") @ values.astype("float64").T
    assert np.array_equal(gc.Session(graph).run(product, {a: values}), want)
