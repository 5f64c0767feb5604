"""Whole models as ONNX: layouts, open sizes, loops, names, files, errors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import graphc as gc  # noqa: E402
from graphc.errors import (  # noqa: E402
    AttributeValueError,
    FetchError,
    ModelExportError,
)
from graphc.exporters.onnx import (  # noqa: E402
    aside,
    entry,
)
from graphc.exporters.onnx.aside import Aside  # noqa: E402
from graphc.exporters.onnx.program import ProgramWriter  # noqa: E402
from graphc.importers.onnx import reading  # noqa: E402
from graphc.ir.mapped import is_constant  # noqa: E402
from tests.near import assert_near  # noqa: E402
from tests.passes.check import program  # noqa: E402

RNG = np.random.default_rng(0)


def run(path: Path, **feeds: Any) -> Any:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {name: np.asarray(value) for name, value in feeds.items()})


def ops_of(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def images(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def network(x: gc.Tensor, training: Any = False) -> gc.Tensor:
    """Convolutions with norms, a residual connection, pooling."""
    h = gc.nn.Conv2D(8, 3, padding="SAME", name="first")(x)
    h = gc.nn.relu(gc.nn.BatchNorm(name="norm")(h, training=training))
    more = gc.nn.Conv2D(8, 3, padding="SAME", name="second")(h)
    h = gc.nn.max_pool(gc.nn.relu(h + more), 2, 2)
    h = gc.concat([h, gc.nn.avg_pool(h, 3, 1, padding="SAME")], axis=-1)
    h = gc.reduce_mean(h, axis=(1, 2))
    return gc.nn.Dense(3, name="out")(gc.nn.Dropout(0.5)(h, training=training))


def test_images_are_transposed_once(tmp_path: Path) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", 8, 8, 3), name="x")
        y = network(x)
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    gc.to_onnx(session, path, gc.Signature({"x": x}, {"y": y}))
    found = ops_of(path)
    assert found["Transpose"] == 1, found  # of the input
    assert found["Conv"] == 2 and found["BatchNormalization"] == 1
    names = {tensor.name for tensor in onnx.load(path).graph.initializer}
    assert {"out/kernel", "norm/scale", "first/kernel.transposed"} <= names
    for batch in (1, 5):
        value = images(batch, 8, 8, 3)
        assert_near(run(path, x=value)[0], session.run(y, {x: value}), rtol=1e-5)


def test_transposes_behind_a_convolution_are_composed_in_order(tmp_path: Path) -> None:
    """The permutations do not commute, and a vector over the channels follows them."""
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((2, 5, 6, 3), name="x")
        h = gc.nn.Conv2D(4, 3, name="conv")(x)
        turned = gc.nn.relu(gc.transpose(h, (0, 2, 1, 3))) + np.arange(4, dtype=np.float32)
        y = gc.reduce_max(gc.transpose(turned, (1, 0, 3, 2)), axis=1)
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    gc.to_onnx(session, path, gc.Signature({"x": x}, {"turned": turned, "y": y}))
    value = images(2, 5, 6, 3)
    for a, b in zip(run(path, x=value), session.run([turned, y], {x: value}), strict=True):
        assert_near(a, b, rtol=1e-5)


def test_what_a_trained_model_predicts(tmp_path: Path) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", 8, 8, 3), name="x")
        training = gc.placeholder((), "bool", name="training")
        y = network(x, training)
        train = gc.minimize(gc.reduce_mean(y**2), optax.sgd(0.1))
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    value = images(4, 8, 8, 3)
    for _ in range(3):
        session.run(train, {x: value, training: True})
    signature = gc.Signature({"x": x}, {"y": y}, freeze=True, given={training: False})
    gc.to_onnx(session, path, signature)
    assert ops_of(path)["BatchNormalization"] == 0  # folded into the convolution
    want = session.run(y, {x: value, training: False})
    assert_near(run(path, x=value)[0], want, rtol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_widened_int8_take_the_narrow_operands(
    transposed: bool, tmp_path: Path
) -> None:
    w = RNG.integers(-128, 128, (4, 300), dtype=np.int8)
    with gc.Graph() as graph:
        x = gc.placeholder((3, 300), "int8", name="x")
        wide = gc.cast(gc.variable(w if transposed else w.T, name="w"), "int32")
        y = gc.matmul(gc.cast(x, "int32"), wide, transpose_b=transposed)
        z = gc.cast(x, "int32").T @ gc.maximum(gc.cast(x, "int32"), 0)
    path = tmp_path / "m.onnx"
    gc.to_onnx(gc.Session(graph), path, gc.Signature({"x": x}, {"y": y, "z": z}))
    written = onnx.load(path).graph
    assert ops_of(path)["MatMul"] == ops_of(path)["MatMulInteger"] == 1
    weights = [t.data_type for t in written.initializer if t.name.startswith("w")]
    assert weights == [onnx.TensorProto.INT8]
    a = RNG.integers(-128, 128, (3, 300), dtype=np.int8)
    rows = a.astype(np.int32)
    found = run(path, x=a)
    assert np.array_equal(found[0], rows @ w.T.astype(np.int32))
    assert np.array_equal(found[1], rows.T @ np.maximum(rows, 0))


def test_products_of_widened_bfloat16_stay_products_of_floats(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((3, 4), "bfloat16", name="x")
        y = gc.cast(x, "float32") @ gc.cast(gc.ones((4, 2), "bfloat16"), "float32")
    gc.to_onnx(gc.Session(graph), tmp_path / "m.onnx", gc.Signature({"x": x}, {"y": y}))
    assert ops_of(tmp_path / "m.onnx")["MatMul"] == 1


@pytest.mark.parametrize("opset", (16, 17, 18, 20, 21, 23, onnx.defs.onnx_opset_version()))
def test_every_version_of_onnx(opset: int, tmp_path: Path) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", "time", 8), name="x")
        block = gc.nn.TransformerBlock(8, heads=2, causal=True)
        y = gc.reduce_max(block(x), axis=1)
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    gc.to_onnx(session, path, gc.Signature({"x": x}, {"y": y}), opset=opset)
    assert onnx.load(path).opset_import[0].version == opset
    if opset > 23:
        return  # this onnxruntime may be too old
    for shape in ((1, 3, 8), (2, 5, 8)):
        value = images(*shape)
        assert_near(run(path, x=value)[0], session.run(y, {x: value}), rtol=1e-5)


def test_loops_and_branches(tmp_path: Path) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder(("batch", "time", 3), name="x")
        n = gc.placeholder((), "int32", name="n")
        states = gc.nn.LSTM(4, name="lstm")(x)
        _, grown = gc.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2.0), (0, gc.reduce_sum(states))
        )
        size = gc.cast(gc.size(x, 0), "float32")
        y = gc.switch(n, [lambda: grown, lambda: -grown, lambda: grown + size])
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    gc.to_onnx(session, path, gc.Signature({"x": x, "n": n}, {"y": y, "states": states}))
    assert {"Loop", "Scan", "If"} <= set(ops_of(path))
    for turns, shape in ((0, (1, 4, 3)), (1, (2, 6, 3)), (5, (3, 1, 3))):
        value = images(*shape)
        got = run(path, x=value, n=np.int32(turns))
        for a, b in zip(got, session.run([y, states], {x: value, n: turns}), strict=True):
            assert_near(a, b, rtol=1e-5)


def test_back_to_onnx_and_in_again(tmp_path: Path) -> None:
    """Keeps names and an unused input, and the model can still be trained after the way back."""
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    helper = onnx.helper
    ports = [
        helper.make_tensor_value_info(name, 1, ["N", 3]) for name in ("input.1", "unused", "out.1")
    ]
    weights = onnx.numpy_helper.from_array(images(3, 3), "layer.weight")
    nodes = [
        helper.make_node("MatMul", ["input.1", "layer.weight"], ["h"]),
        helper.make_node("Tanh", ["h"], ["out.1"]),
    ]
    graph = helper.make_graph(nodes, "g", ports[:2], ports[2:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), first)
    model = gc.from_onnx(first).to_graph()
    signature = model.signature()
    names = dict(zip(signature.inputs, model.inputs, strict=True))
    names |= dict(zip(signature.outputs, model.outputs, strict=True))
    gc.to_onnx(gc.Session(model.graph), second, signature, names=names)
    back = onnx.load(second).graph
    assert [port.name for port in back.input] == ["input.1", "unused"]
    assert [port.name for port in back.output] == ["out.1"]
    assert [tensor.name for tensor in back.initializer] == ["layer.weight"]
    assert [node.op_type for node in back.node] == ["MatMul", "Tanh"]
    assert back.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    value = images(2, 3)
    feeds = {"input.1": value, "unused": value}
    assert_near(run(second, **feeds)[0], run(first, **feeds)[0], rtol=1e-6)
    again = gc.from_onnx(second, trainable=True).to_graph()
    with again.graph:
        loss = gc.reduce_mean(again.outputs["out.1"] ** 2)
        train = gc.minimize(loss, optax.sgd(0.1))
    session = gc.Session(again.graph)
    losses = [session.run([loss, train], {again.inputs["input.1"]: value})[0] for _ in range(5)]
    assert losses[-1] < losses[0]


MAP = """
    program p(a: f32[5, 3, 4], w: f32[4, 2], v: i32[]) {
      %0, %1 = Map(a, w, v) {mapped=1, length=5} : f32[5, 3, 2], i32[5]
          with body(x: f32[3, 4], w: f32[4, 2], v: i32[]) {
        %0 = MatMul(x, w) : f32[3, 2]
        %1 = Add(v, v) : i32[]
        return r0 = %0, r1 = %1
      }
      return products = %0, doubled = %1
    }
"""


def test_sizes_below_zero_are_divided_as_in_python(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("n",), name="x")
        n = x.shape[0]
        y = gc.stack(
            [gc.cast(size, "float32") for size in ((n - 5) // 2, -(-n // 3), (3 - n) // 4)]
        )
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    gc.to_onnx(session, path, gc.Signature({"x": x}, {"y": y}))
    for size in range(1, 9):
        (got,) = run(path, x=np.zeros(size, np.float32))
        assert got.tolist() == [(size - 5) // 2, -(-size // 3), (3 - size) // 4]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_padding_of_a_named_size(mode: str, tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2, "n"), name="x")
        y = gc.pad(x, ((0, 0), (4, 7)), mode)
    path = tmp_path / "model.onnx"
    gc.to_onnx(gc.Session(graph), path, gc.Signature({"x": x}, {"y": y}))
    for size in (1, 2, 5):
        value = images(2, size)
        (got,) = run(path, x=value)
        np.testing.assert_array_equal(got, np.pad(value, ((0, 0), (4, 7)), mode))


def test_a_map_of_the_passes(tmp_path: Path) -> None:
    """No user function makes a map."""
    start, path = program(MAP), tmp_path / "map.onnx"
    names = {port.name: port.name for port in (*start.inputs, *start.outputs)}
    outputs = [(port.name, port.tensor) for port in start.outputs]
    graph = ProgramWriter(start, {}, 21, names).write(
        "map", ["a", "w", "v"], outputs, {}, Aside(False)
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]), path)
    a, w = images(5, 3, 4), images(4, 2)
    products, doubled = run(path, a=a, w=w, v=np.int32(3))
    assert_near(products, a @ w, rtol=1e-6)
    assert doubled.tolist() == [6] * 5


def test_a_norm_of_each_device(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((3, 4), name="x")
        norm = gc.nn.BatchNorm(local=True, name="norm")(x, training=True)
    assert "LocalBatchNorm" in [node.op.name for node in graph.nodes]
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    gc.to_onnx(session, path, gc.Signature({"x": x}, {"norm": norm}))
    value = images(3, 4)
    assert_near(run(path, x=value)[0], session.run(norm, {x: value}), rtol=1e-5)


# -- files ---------------------------------------------------------------------------------------


def test_large_weights_in_their_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((2, 32), name="x")
        y = gc.nn.Dense(32, name="dense")(x)
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    signature, value = gc.Signature({"x": x}, {"y": y}), images(2, 32)
    other = tmp_path / "model.onnx.mine.data"
    other.write_text("not ours")
    gc.to_onnx(session, path, signature, external_data=True)
    (first,) = (p for p in tmp_path.glob("model.onnx.*.data") if p != other)
    assert first.stat().st_size == 32 * 32 * 4
    before = session.run(y, {x: value})
    assert_near(run(path, x=value)[0], before, rtol=1e-5)

    session.set("dense/kernel", images(32, 32))
    write = entry.write

    def interrupted(target: Any, data: bytes) -> None:
        if Path(target).suffix == ".onnx":
            raise KeyboardInterrupt
        write(target, data)

    with monkeypatch.context() as patch:
        patch.setattr(entry, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gc.to_onnx(session, path, signature, external_data=True)
    assert_near(run(path, x=value)[0], before, rtol=1e-5)  # the old model keeps its data
    gc.to_onnx(session, path, signature, external_data=True)
    assert_near(run(path, x=value)[0], session.run(y, {x: value}), rtol=1e-5)
    assert not first.exists() and other.exists()
    gc.to_onnx(session, path, signature)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", other.name]


def test_a_model_that_is_too_large_for_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tensors are written from the arrays, and are read where they are."""
    graph, rng = gc.Graph(seed=0), np.random.default_rng(0)
    with graph:
        x = gc.placeholder((2, 33), name="x")
        w = gc.variable(rng.normal(size=(33, 20)).astype(np.float32), name="w")
        v = gc.variable(rng.normal(size=(20, 37)).astype(np.float32), name="v")
        y = gc.transpose(gc.matmul(gc.matmul(x, w), v)) + gc.variable(np.ones(2, np.float32))
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    signature, value = gc.Signature({"x": x}, {"y": y}), images(2, 33)
    monkeypatch.setattr(aside, "LARGEST", 2000)
    gc.to_onnx(session, path, signature)
    (data,) = tmp_path.glob("*.data")
    assert data.stat().st_size == 4 * (20 * 37 + 33 * 20) + 48  # from a multiple of 64 bytes on
    onnx.checker.check_model(str(path), full_check=True)
    wanted = session.run(y, {x: value})
    assert_near(run(path, x=value)[0], wanted, rtol=1e-5)
    monkeypatch.setattr(reading, "LARGE_FILE", 1)
    monkeypatch.setattr(reading, "LARGE_ARRAY", 1)
    model = gc.from_onnx(path)
    assert is_constant(model.weights["w"])
    made = model.to_graph()
    got = gc.Session(made.graph).run(made.outputs["y"], {made.inputs["x"]: value})
    assert_near(got, wanted, rtol=1e-5)
    monkeypatch.setattr(entry, "LARGEST", 2000)
    with pytest.raises(ModelExportError, match="at most 2 GiB"):
        gc.to_onnx(session, path, signature, external_data=False)


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with gc.Graph() as graph:
        x = gc.placeholder((2, 2), name="x")
        y = gc.linalg.cholesky(x)
    with pytest.raises(ModelExportError):
        gc.to_onnx(gc.Session(graph), path, gc.Signature({"x": x}, {"y": y}))
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


# -- errors --------------------------------------------------------------------------------------


def test_all_that_onnx_cannot_say_is_named_with_lines(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2, 2), name="x")
        y = gc.linalg.cholesky(x) + gc.gammaln(x)
        z = gc.abs(gc.complex(x, x))
    with pytest.raises(ModelExportError) as caught:
        gc.to_onnx(gc.Session(graph), tmp_path / "m.onnx", gc.Signature({"x": x}, {"y": y, "z": z}))
    text = str(caught.value)
    for part in ("Cholesky", "decomposition", "Lgamma", "special function", "Complex", "Abs"):
        assert part in text
    assert text.count("test_models.py") >= 4
    assert not list(tmp_path.iterdir())


def test_an_input_of_complex_numbers_that_nothing_uses(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x, y = gc.placeholder((3,), "complex64", name="x"), gc.constant(True)
    with pytest.raises(ModelExportError, match=r"the input 'x': complex64"):
        gc.to_onnx(gc.Session(graph), tmp_path / "m.onnx", gc.Signature({"x": x}, {"y": y}))


def test_branches_by_platform_are_those_of_cpus(tmp_path: Path) -> None:
    from jax import lax
    from jax import numpy as jnp

    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        y = gc.from_jax(
            lambda x: lax.platform_dependent(x, tpu=jnp.sin, cpu=jnp.tanh, default=jnp.cos)
        )(x)
        z = gc.from_jax(lambda x: lax.platform_dependent(x, tpu=jnp.sin, cuda=jnp.cos))(x)
    session, path = gc.Session(graph), tmp_path / "m.onnx"
    gc.to_onnx(session, path, gc.Signature({"x": x}, {"y": y}))
    values = np.arange(3, dtype=np.float32)
    (got,) = onnxruntime.InferenceSession(path).run(None, {"x": values})
    assert_near(got, np.tanh(values), rtol=1e-6)
    with pytest.raises(ModelExportError, match="no branch for CPUs"):
        gc.to_onnx(session, path, gc.Signature({"x": x}, {"z": z}))


def test_state_and_randomness_are_refused(tmp_path: Path) -> None:
    graph = gc.Graph(seed=0)
    with graph:
        x = gc.placeholder((2, 2), name="x")
        count = gc.variable(np.float32(0), name="count")
        noisy = x + gc.random.normal((2, 2))
        added, double = count.assign_add(1.0), x * 2
    session, path = gc.Session(graph), tmp_path / "m.onnx"
    with pytest.raises(AttributeValueError, match="no state"):
        gc.to_onnx(session, path, gc.Signature({"x": x}, {"y": double}, updates=[added]))
    with pytest.raises(ModelExportError, match=r"assign the variable 'count'"):
        gc.to_onnx(session, path, gc.Signature({}, {"y": added}))
    with pytest.raises(ModelExportError, match="random"):
        gc.to_onnx(session, path, gc.Signature({"x": x}, {"y": noisy}))
    with pytest.raises(FetchError):
        gc.to_onnx(session, path, gc.Signature({}, {"y": added}, freeze=True))


def test_arguments(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x, z = gc.placeholder(("n", 2), name="x"), gc.placeholder(("m", 2), name="z")
        y = x * 2
        both = x + z
    session, path = gc.Session(graph), tmp_path / "m.onnx"
    signature = gc.Signature({"x": x}, {"y": y})
    for wrong, match in (
        ({"opset": 15}, "from 16 to"),
        ({"opset": 1000}, "from 16 to"),
        ({"opset": True}, "opset must be an int"),
        ({"names": {"q": "x"}}, "no input or output"),
        ({"names": {"y": "x"}}, "one name"),
        ({"names": {"y": 3}}, "must be a string"),
        ({"names": "xy"}, "must be a dict"),
        ({"external_data": 1}, "must be a bool"),
    ):
        with pytest.raises(AttributeValueError, match=match):
            gc.to_onnx(session, path, signature, **wrong)
    with pytest.raises(AttributeValueError, match=r"must be a gc\.Signature"):
        gc.to_onnx(session, path, {"x": x})
    with pytest.raises(ModelExportError, match="cannot write"):
        gc.to_onnx(session, tmp_path / "none" / "m.onnx", signature)
    gc.to_onnx(session, path, gc.Signature({"x": x, "z": z}, {"y": both}))
    value = images(3, 2)
    assert_near(run(path, x=value, z=value)[0], 2 * value, rtol=1e-6)
