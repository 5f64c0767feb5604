"""`gc.from_stablehlo` compared with JAX itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import graphc as gc
from graphc.errors import ModelFileError, ModelImportError
from tests.near import assert_near

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 8, 8, 3)).astype(np.float32)
KERNEL = RNG.normal(size=(3, 3, 3, 4)).astype(np.float32)
MATRIX = RNG.normal(size=(4, 5)).astype(np.float32)
ROWS = RNG.normal(size=(3, 4)).astype(np.float32)


def cnn(w, x):  # type: ignore[no-untyped-def]
    y = lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = lax.reduce_window(jax.nn.relu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    z = y.mean((1, 2)) @ jnp.asarray(MATRIX)
    return {"probs": jax.nn.softmax(z), "top": lax.top_k(z, 2)[1], "g": jax.nn.gelu(z, False)}


def grouped(w, x):  # type: ignore[no-untyped-def]
    return lax.conv_general_dilated(
        jnp.tile(x, (1, 1, 1, 2)), w, (1, 1), [(1, 0), (0, 2)], rhs_dilation=(2, 1),
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2,
    )  # fmt: skip


def loops(x):  # type: ignore[no-untyped-def]
    carry, ys = lax.scan(lambda c, row: (c * 0.5 + row.sum(), jnp.tanh(c)), jnp.zeros(()), x)
    other = lax.cond(carry > 0, lambda a: a * 2, lambda a: a - 1, carry)
    return carry, ys, other, lax.switch(jnp.argmax(x[0]) % 3, [jnp.sin, jnp.cos, jnp.abs], x)


def indexing(x):  # type: ignore[no-untyped-def]
    return (
        jnp.take(x, jnp.array([1, 0, 7]), axis=1),
        x.at[0, 1].add(3.0),
        x.at[jnp.array([0, 2])].set(1.0),
        x.at[1].max(0.0),
        lax.dynamic_slice(x, (1, 2), (2, 2)),
        lax.dynamic_update_slice(x, x[:2, :2], (1, 1)),
        jnp.pad(x, ((1, 0), (0, 2)), constant_values=5.0),
        x[::-1, ::2],
    )


def sorting(x):  # type: ignore[no-untyped-def]
    return (
        jnp.sort(x, axis=0),
        jnp.argsort(-x, axis=-1),
        -jnp.sort(-x, axis=-1),
        jnp.argmax(x, axis=-1),
        jnp.argmin(x, axis=0),
        jnp.lexsort((x[0], jnp.round(x[1]))),
        jnp.cumsum(x, axis=0),
        jnp.median(x),
    )


def reductions(x):  # type: ignore[no-untyped-def]
    return (
        x.sum(), x.max(0), x.min(1), x.prod(), (x > 0).all(0), (x > 0).any(1), jnp.var(x),
        jax.nn.logsumexp(x, axis=1), lax.reduce(x, 1.5, lax.add, (0,)),
        lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "SAME"),
    )  # fmt: skip


def elements(x):  # type: ignore[no-untyped-def]
    n = (x * 100).astype(jnp.int32)
    return (
        jnp.round(x), jnp.sign(x), jnp.cbrt(x), jnp.expm1(x), jnp.log1p(abs(x)), lax.erf(x),
        jnp.arctan2(x, x + 1), x.astype(jnp.bfloat16).astype(jnp.float32), n << 2, n // 7, n % 7,
        lax.population_count(n), jnp.where(x > 0, x, -x), jnp.clip(x, -0.5, 0.5),
        lax.bitcast_convert_type(x, jnp.int32), jnp.sinh(x), lax.erf_inv(x / 4), abs(x) ** 1.5,
    )  # fmt: skip


def drawing(x):  # type: ignore[no-untyped-def]
    return x + jax.random.normal(jax.random.key(3), x.shape)


def narrow(x):  # type: ignore[no-untyped-def]
    weights = jnp.asarray(np.arange(20.0).reshape(4, 5), jnp.bfloat16)
    return (x.astype(jnp.bfloat16) @ weights).astype(jnp.float32)


def transforms(x):  # type: ignore[no-untyped-def]
    a = x[:, :3] @ x[:, :3].T + 3 * jnp.eye(3)
    return jnp.abs(jnp.fft.fft(x)), jnp.fft.irfft(jnp.fft.rfft(x)), lax.complex(x, -x).real, a


def complex_constants(x):  # type: ignore[no-untyped-def]
    # Long constants are written as bytes, short ones as numbers.
    waves = np.exp(1j * np.arange(x.size)).astype(np.complex64).reshape(x.shape)
    few = np.array([1.5 - 2j, np.nan, complex(0, -np.inf)], np.complex64)
    return x * (2 - 0.5j), x * waves, few, x + np.full(x.shape, 1j, np.complex64), x[:, :0] * 1j


PROGRAMS = [
    (cnn, (KERNEL, IMAGE)),
    (grouped, (KERNEL, IMAGE)),
    *((f, (ROWS,)) for f in (loops, indexing, sorting, reductions, elements, drawing, narrow)),
    (transforms, (ROWS,)),
    (complex_constants, (ROWS,)),
    (complex_constants, (np.ones((17, 20), np.float32),)),
]


def exported_of(function, *args):  # type: ignore[no-untyped-def]
    return export.export(jax.jit(function))(*[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in args])


def check(model, want, args, tolerance=2e-6):  # type: ignore[no-untyped-def]
    made = model.to_graph()
    feeds = dict(zip(made.inputs.values(), args, strict=True))
    got = gc.Session(made.graph).run(list(made.outputs.values()), feeds)
    for a, b in zip(jax.tree.leaves(want), got, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        wide = np.complex128 if np.iscomplexobj(a) else np.float64
        assert_near(np.asarray(b).astype(wide), np.asarray(a).astype(wide), tolerance, tolerance)
    return {node.op.name for node in made.graph.nodes}


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=lambda v: getattr(v, "__name__", ""))
def test_programs_are_visible_nodes(function, args) -> None:  # type: ignore[no-untyped-def]
    model = gc.from_stablehlo(exported_of(function, *args), opaque=False)
    ops = check(model, jax.jit(function)(*args), args)
    assert "Lowered" not in ops


@pytest.mark.parametrize("form", ["serialized", "text", "portable"])
def test_files_and_bytes(form, tmp_path) -> None:  # type: ignore[no-untyped-def]
    exported = exported_of(cnn, KERNEL, IMAGE)
    data = {
        "serialized": bytes(exported.serialize()),
        "text": exported.mlir_module().encode(),
        "portable": exported.mlir_module_serialized,
    }[form]
    path = tmp_path / "program.mlir"
    path.write_bytes(data)
    want = jax.jit(cnn)(KERNEL, IMAGE)
    for source in (path, str(path), data, data.decode() if form == "text" else data):
        model = gc.from_stablehlo(source, opaque=False)
        assert model.outputs == ("g", "probs", "top")
        assert list(model.weights) == ["constant_0"]
    check(model, want, (KERNEL, IMAGE))


def test_an_unknown_operation_makes_one_node() -> None:
    def lapack(x):  # type: ignore[no-untyped-def]
        a = x[:, :3] @ x[:, :3].T
        return {"l": jnp.linalg.cholesky(a + 3 * jnp.eye(3)), "e": jnp.linalg.eigvalsh(a)}

    exported = exported_of(lapack, ROWS)
    want = jax.jit(lapack)(ROWS)
    for source in (exported, exported.mlir_module()):
        ops = check(gc.from_stablehlo(source), want, (ROWS,))
        assert "Lowered" in ops
    with pytest.raises(ModelImportError, match="cannot be imported") as caught:
        gc.from_stablehlo(exported, opaque=False)
    assert any("lapack" in line for line in caught.value.details)


def test_constants_are_trainable_variables() -> None:
    import optax

    model = gc.from_stablehlo(exported_of(lambda x: jnp.tanh(x @ jnp.asarray(MATRIX)), ROWS))
    graph = gc.Graph(seed=0)
    with graph:
        loss = gc.reduce_mean(gc.square(model(ROWS)), name="loss")
        train = gc.minimize(loss, optax.sgd(0.1))
    session = gc.Session(graph)
    first = float(session.run(loss))
    for _ in range(5):
        session.run(train)
    assert float(session.run(loss)) < first
    np.testing.assert_array_equal(model.weights["constant_0"], MATRIX)


def test_named_sizes_are_given() -> None:
    (b,) = export.symbolic_shape("b")
    spec = jax.ShapeDtypeStruct((2 * b, 4), "float32")
    exported = export.export(jax.jit(lambda x: x @ jnp.ones((4, 2)) + x.shape[0]))(spec)
    with pytest.raises(ModelImportError, match=r"size 2\*b is not known"):
        gc.from_stablehlo(exported)
    model = gc.from_stablehlo(bytes(exported.serialize()), sizes={"b": 3}, opaque=False)
    assert model.inputs["x0"].shape == (6, 4)
    x = np.ones((6, 4), np.float32)
    check(model, [x @ np.ones((4, 2), np.float32) + 6], (x,))


def test_programs_of_several_platforms() -> None:
    exported = export.export(jax.jit(jnp.sin), platforms=("cuda", "cpu"))(
        jax.ShapeDtypeStruct((3,), "float32")
    )
    x = np.arange(3, dtype=np.float32)
    check(gc.from_stablehlo(exported, opaque=False), [np.sin(x)], (x,))


def test_64_bits() -> None:
    with jax.enable_x64(True):
        exported = exported_of(lambda x: (x * 3.0, x.astype("int64") + 2**40), np.ones(3))
    x = np.array([1.0, 2.0, 3.0])
    check(gc.from_stablehlo(exported, opaque=False), [x * 3, x.astype(np.int64) + 2**40], (x,))


CUSTOM = """module {
  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.custom_call @xla_python_cpu_callback(%arg0) : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""
OPEN = """module {
  func.func public @main(%arg0: tensor<?xf32>) -> tensor<?xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<?xf32>
    return %0 : tensor<?xf32>
  }
}
"""
OTHER = OPEN.replace("?", "2").replace("stablehlo.add", "mhlo.add")


@pytest.mark.one_jax
def test_what_may_not_run_is_refused() -> None:
    with pytest.raises(ModelImportError, match="xla_python_cpu_callback"):
        gc.from_stablehlo(CUSTOM)
    with pytest.raises(ModelImportError, match="open sizes"):
        gc.from_stablehlo(OPEN)
    with pytest.raises(ModelImportError, match=r"mhlo\.add"):
        gc.from_stablehlo(OTHER)
    with pytest.raises(ModelFileError, match="cannot be read"):
        gc.from_stablehlo("/no/such.mlir")
    with pytest.raises(ModelFileError, match="int is not a program"):
        gc.from_stablehlo(3)
    for data in (b"", b"\x00" * 50, b"ML\xefR", b"module {", b"not a module\n"):
        with pytest.raises(ModelFileError, match="not a program"):
            gc.from_stablehlo(data)


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize("form", ["serialized", "text", "portable"])
def test_damaged_files_give_errors(form: str) -> None:
    exported = exported_of(cnn, KERNEL, IMAGE)
    good = {
        "serialized": bytes(exported.serialize()),
        "text": exported.mlir_module().encode(),
        "portable": exported.mlir_module_serialized,
    }[form]
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        data = bytearray(good)
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
        try:
            gc.from_stablehlo(bytes(data))
        except (ModelFileError, ModelImportError):
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("form", ["scan", "fori_loop", "from a value", "to a value", "by two"])
def test_loops_that_count_are_loops_of_that_many_turns(form: str) -> None:
    """Loops with a known trip count have a gradient; for other loops, the count is unknown."""

    def program(x, n):
        if form == "scan":
            return jax.lax.scan(lambda c, i: (jnp.sin(c) + i, c), x, jnp.arange(4.0))
        if form == "by two":
            return jax.lax.while_loop(
                lambda c: c[0] < 8, lambda c: (c[0] + 2, jnp.sin(c[1])), (0, x)
            )[1]
        begin, end = (n, 4) if form == "from a value" else (0, n if form == "to a value" else 4)
        return jax.lax.fori_loop(begin, end, lambda i, c: jnp.sin(c) * i, x)

    x, n = np.linspace(0.1, 1.0, 3, dtype=np.float32), np.int32(1)
    wanted = jax.tree.leaves(program(x, n))[0]
    model = gc.from_stablehlo(jax.export.export(jax.jit(program))(x, n)).to_graph()
    kinds = {node.op.name for node in model.graph.nodes}
    known = form in ("scan", "fori_loop")
    assert ("Scan" in kinds) == known and ("While" in kinds) != known
    result = next(iter(model.outputs.values()))
    feeds = dict(zip(model.inputs.values(), (x, n), strict=False))
    assert_near(gc.Session(model.graph).run(result, feeds), wanted, rtol=1e-5)
    if known:
        with model.graph, model.graph.extend():
            slope = gc.gradients(gc.reduce_sum(result), next(iter(model.inputs.values())))
        slopes = jax.grad(lambda x: jnp.sum(jax.tree.leaves(program(x, n))[0]))(x)
        assert_near(gc.Session(model.graph).run(slope, feeds), slopes, rtol=1e-5)
