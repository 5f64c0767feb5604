"""Whole models: names, sizes, control flow, functions, training, files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper
from sklearn.datasets import load_digits

import graphc as gc
from graphc.errors import ModelFileError, ModelImportError, UnknownNameError
from graphc.importers.onnx.entry import compute_known
from graphc.ir.dtypes import as_dtype
from tests.importers.onnx.models import check, model, reference, results
from tests.near import assert_near

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3)).astype(np.float32)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def mlp() -> onnx.ModelProto:
    """64 -> 32 -> 10, with a named batch size and a reshape that uses shapes."""
    weights = {
        "fc1.weight": (RNG.normal(size=(32, 64)) * 0.1).astype(np.float32),
        "fc1.bias": np.zeros(32, np.float32),
        "fc2.weight": (RNG.normal(size=(10, 32)) * 0.1).astype(np.float32),
        "minus": np.array([-1], np.int64),
        "zero": np.array(0, np.int64),
    }
    nodes = [
        node("Shape", "images", "shape"),
        node("Gather", "shape zero", "count"),
        node("Unsqueeze", "count zero_axis", "rows"),
        node("Concat", "rows minus", "flat_shape", axis=0),
        node("Reshape", "images flat_shape", "flat"),
        node("Gemm", "flat fc1.weight fc1.bias", "hidden", transB=1),
        node("Relu", "hidden", "active"),
        node("Gemm", "active fc2.weight", "logits", transB=1),
    ]
    weights["zero_axis"] = np.array([0], np.int64)
    images = np.zeros((2, 8, 8), np.float32)
    return model(nodes, {"images": images}, ["logits"], weights, shapes={"images": ["batch", 8, 8]})


def test_sizes_stay_named_and_weights_have_their_names() -> None:
    proto = mlp()
    layer = gc.from_onnx(proto, trainable=["fc*.weight"])
    assert (
        layer.inputs["images"].shape == ("batch", 8, 8)
        or str(layer.inputs["images"].shape[0]) == "batch"
    )
    alone = layer.to_graph()
    assert str(alone.outputs["logits"].shape[0]) == "batch"
    assert [v.name for v in alone.graph.variables.values()] == [
        "fc1.weight",
        "fc1.bias",
        "fc2.weight",
    ]
    assert [v.name for v in alone.variables.values() if v.trainable] == ["fc1.weight", "fc2.weight"]
    for count in (1, 5):
        images = RNG.normal(size=(count, 8, 8)).astype(np.float32)
        check(proto, {"images": images}, rtol=1e-4)
    assert gc.from_onnx(proto, sizes={"batch": 4}).inputs["images"].shape[0] == 4


def test_an_expansion_as_torch_exports_it() -> None:
    """PyTorch's export replaces -1 by the operand's size: `where(wanted == -1, ones, wanted)`."""
    weights = {
        "token": RNG.normal(size=(1, 1, 3)).astype(np.float32),
        "zero": np.array([0]),
        "rest": np.array([-1, -1]),
        "rank": np.array([3]),
        "minus": np.array(-1),
    }
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "count"),
        node("Concat", "count rest", "wanted", axis=0),
        node("ConstantOfShape", "rank", "ones", value=helper.make_tensor("o", 7, [1], [1])),
        node("Mul", "ones minus", "all_minus"),
        node("Equal", "wanted all_minus", "absent"),
        node("Where", "absent ones wanted", "full"),
        node("Expand", "token full", "tokens"),
        node("Concat", "tokens x", "y", axis=1),
    ]
    x = RNG.normal(size=(2, 4, 3)).astype(np.float32)
    proto = model(nodes, {"x": x}, ["y"], weights, shapes={"x": ["batch", 4, 3]})
    check(proto, {"x": x})
    assert str(gc.from_onnx(proto).to_graph().outputs["y"].shape[0]) == "batch"


def test_a_model_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    digits = load_digits()
    x, y = (digits.images / 16).astype(np.float32), digits.target.astype(np.int32)
    with gc.Graph(seed=0) as graph:
        images = gc.placeholder(("batch", 8, 8), name="images")
        labels = gc.placeholder(("batch",), "int32", name="labels")
        logits = gc.from_onnx(mlp(), trainable=True)(images)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=labels))
        train = gc.minimize(loss, optax.adam(1e-2), name="train")
    with gc.Session(graph) as session:
        for _ in range(60):
            session.run(train, {images: x, labels: y})
        accuracy = np.mean(np.argmax(session.run(logits, {images: x}), -1) == y)
        assert accuracy > 0.97
        want = session.run(logits, {images: x[:3]})
        signature = gc.Signature({"images": images}, {"logits": logits})
        gc.save(session, tmp_path / "m.gcx", signatures={"predict": signature})
    got = gc.load(tmp_path / "m.gcx").signatures["predict"](images=x[:3])["logits"]
    assert_near(got, want, rtol=1e-5)


def test_moving_averages_are_updated_by_a_training_step() -> None:
    ones = np.ones(3, np.float32)
    weights = {"scale": ones, "bias": ones * 0, "mean": ones * 0, "var": ones}
    nodes = [node("BatchNormalization", "x scale bias mean var", "y m v", training_mode=1)]
    proto = model(nodes, {"x": X}, ["y", "m", "v"], weights)
    with gc.Graph() as graph:
        x = gc.placeholder((2, 3), name="x")
        layer = gc.from_onnx(proto, trainable="scale")
        loss = gc.reduce_mean(gc.square(layer(x)["y"] - 1.0))
        train = gc.minimize(loss, optax.sgd(0.1))
    with gc.Session(graph) as session:
        session.run(train, {x: X})
        want = reference(proto, {"x": X})
        assert_near(session.get("mean"), want[1], rtol=1e-5)
        assert_near(session.get("var"), want[2], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_moving_averages_of_narrow_floats_keep_their_dtype(dtype: str) -> None:
    ones = np.ones(3, as_dtype(dtype))
    weights = {"scale": ones, "bias": ones * 0, "mean": ones * 0, "var": ones}
    nodes = [node("BatchNormalization", "x scale bias mean var", "y m v", training_mode=1)]
    proto = model(nodes, {"x": X.astype(as_dtype(dtype))}, ["y", "m", "v"], weights)
    with gc.Graph() as graph:
        x = gc.placeholder((2, 3), dtype, name="x")
        outputs = gc.from_onnx(proto)(x)
    wide = X.astype(as_dtype(dtype)).astype(np.float64)
    mean, var = wide.mean(0), wide.var(0)
    wanted = {"y": (wide - mean) / np.sqrt(var + 1e-5), "m": 0.1 * mean, "v": 0.9 + 0.1 * var}
    for name, got in gc.Session(graph).run(outputs, {x: X.astype(as_dtype(dtype))}).items():
        assert got.dtype == as_dtype(dtype)
        assert_near(np.asarray(got, np.float64), wanted[name], 0.02, 0.01)


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    return helper.make_graph(nodes, "body", inputs, outputs)


def scalar(name: str, kind: int = TensorProto.FLOAT, shape: Any = ()) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.mark.parametrize("flag", [True, False])
def test_if(flag: bool) -> None:
    then = graph([node("Neg", "x", "a")], [], [scalar("a")])
    other = graph([node("Exp", "x", "b")], [], [scalar("b")])
    nodes = [node("If", "flag", "y", then_branch=then, else_branch=other)]
    inputs = {"x": X, "flag": np.array(flag)}
    check(model(nodes, inputs, ["y"]), inputs)
    check(model(nodes, {"x": X}, ["y"], {"flag": np.array(flag)}), {"x": X})


def test_branches_of_different_types_name_the_sizes_to_give() -> None:
    """As in silero-vad, which asks whether a signal is one window long."""
    then = graph([node("ReduceSum", "x", "a", keepdims=0)], [], [scalar("a", shape=None)])
    other = graph([node("Identity", "x", "b")], [], [scalar("b", shape=None)])
    nodes = [node("If", "flag", "y", then_branch=then, else_branch=other)]
    proto = model(nodes, {"x": X, "flag": np.array(True)}, ["y"], shapes={"x": ["batch", "time"]})
    with pytest.raises(ModelImportError, match=r"named sizes \('batch', 'time'\) or inputs"):
        gc.from_onnx(proto)


def loop_body(condition: Any) -> Any:
    nodes = [
        node("Add", "total x", "next"),
        node("Cast", "i", "fi", to=TensorProto.FLOAT),
        node("Mul", "next fi", "row"),
        condition,
    ]
    ports = [scalar("i", TensorProto.INT64), scalar("go", TensorProto.BOOL), scalar("total")]
    return graph(nodes, ports, [scalar("going", TensorProto.BOOL), scalar("next"), scalar("row")])


def test_a_loop_with_a_known_number_of_iterations_stacks_its_results() -> None:
    nodes = [node("Loop", "n t0 x", "last rows", body=loop_body(node("Identity", "go", "going")))]
    weights = {"n": np.array(4), "t0": np.array(True)}
    last, rows = results(model(nodes, {"x": X}, ["last", "rows"], weights), {"x": X})
    assert_near(last, 5 * X, rtol=1e-6)
    want = [i * (i + 2) * X for i in range(4)]
    assert_near(rows, want, rtol=1e-6)


def test_a_loop_that_ends_by_its_condition() -> None:
    body = graph(
        [
            node("Add", "total total", "next"),
            node("ReduceSum", "next", "sum", keepdims=0),
            node("Less", "sum limit", "going"),
        ],
        [scalar("i", TensorProto.INT64), scalar("go", TensorProto.BOOL), scalar("total")],
        [scalar("going", TensorProto.BOOL), scalar("next")],
    )
    nodes = [node("Loop", "n t0 x", "last", body=body)]
    inputs = {"x": np.abs(X), "n": np.array(50), "limit": np.array(100, np.float32)}
    check(model(nodes, inputs, ["last"], {"t0": np.array(True)}), inputs)


def test_a_loop_without_a_limit_counts_in_int64() -> None:
    body = graph(
        [
            node("Mul", "i i", "square"),
            node("Add", "total square", "next"),
            node("Less", "next limit", "going"),
        ],
        [scalar("i", TensorProto.INT64), scalar("go", TensorProto.BOOL), scalar("total")],
        [scalar("going", TensorProto.BOOL), scalar("next")],
    )
    nodes = [helper.make_node("Loop", ["", "go0", "t0"], ["last"], body=body)]
    inputs = {"t0": np.array(2), "limit": np.array(100)}
    check(model(nodes, inputs, ["last"], {"go0": np.array(True)}), inputs)


def test_scan() -> None:
    body = graph(
        [node("Add", "s row", "next"), node("Mul", "next row", "out")],
        [scalar("s"), scalar("row")],
        [scalar("next"), scalar("out")],
    )
    nodes = [node("Scan", "s0 x", "last rows", body=body, num_scan_inputs=1)]
    inputs = {"s0": np.zeros(3, np.float32), "x": X}
    check(model(nodes, inputs, ["last", "rows"]), inputs)


def test_functions_of_the_model_and_of_the_standard() -> None:
    double = helper.make_function(
        "own", "Twice", ["a"], ["b"],
        [helper.make_node("Mul", ["a", "factor"], ["b"])],
        [helper.make_opsetid("", 23)],
    )  # fmt: skip
    constant = helper.make_node("Constant", [], ["factor"], value_float=2.0)
    double.node.insert(0, constant)
    nodes = [
        helper.make_node("Twice", ["x"], ["t"], domain="own"),
        node("MeanVarianceNormalization", "t", "y", axes=[1]),
    ]
    proto = model(nodes, {"x": X}, ["y"], functions=[double], domains=["own"])
    check(proto, {"x": X}, rtol=1e-4)


def test_sequences_are_resolved_at_import() -> None:
    nodes = [
        node("SplitToSequence", "x", "rows", axis=0, keepdims=0),
        node("SequenceAt", "rows one", "last"),
        node("SequenceInsert", "rows last", "more"),
        node("ConcatFromSequence", "more", "y", axis=0, new_axis=1),
    ]
    proto = model(nodes, {"x": X}, ["y"], {"one": np.array(1)})
    np.testing.assert_array_equal(results(proto, {"x": X})[0], X[[0, 1, 1]])


def test_strings_are_computed_at_import() -> None:
    nodes = [node("StringConcat", "a b", "y")]
    graph = helper.make_graph(
        nodes, "text",
        [scalar("a", TensorProto.STRING, (2,)), scalar("b", TensorProto.STRING, (2,))],
        [scalar("y", TensorProto.STRING, (2,))],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    (found,) = compute_known(proto, {"a": ["x", "y"], "b": ["1", "2"]})
    assert found.tolist() == ["x1", "y2"]
    with pytest.raises(ModelImportError, match="StringConcat takes strings that are known"):
        gc.from_onnx(proto)


def test_all_that_is_missing_is_in_one_error() -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], domain="com.acme", name="first"),
        helper.make_node("Frobnicate", ["x"], ["b"], domain="com.acme"),
        node("NonZero", "x", "c"),
        node("Exp", "a", "d"),
    ]
    proto = model(nodes, {"x": X}, ["d", "b", "c"], domains=["com.acme"])
    with pytest.raises(ModelImportError) as caught:
        gc.from_onnx(proto)
    assert "2 operators of the model cannot be imported" in caught.value.what
    assert caught.value.details == (
        "com.acme.Frobnicate is not imported  (model:1, node 'first', model:2, node 'b')",
        "NonZero has a result whose size depends on values; it is only computed at import  "
        "(model:3, node 'c')",
    )


def test_errors_name_the_node() -> None:
    proto = model([node("MatMul", "x x", "y")], {"x": X}, ["y"])
    with pytest.raises(gc.errors.ShapeError, match=r"in MatMul \(model:1, node 'y'\)"):
        gc.from_onnx(proto)


def test_a_value_that_must_be_known() -> None:
    inputs = {"x": X, "shape": np.array([3, 2])}
    proto = model([node("Reshape", "x shape", "y")], inputs, ["y"])
    with pytest.raises(ModelImportError, match="Reshape needs the shape at import"):
        gc.from_onnx(proto)
    check(proto, inputs, fixed={"shape": inputs["shape"]})
    for bad in ({"fixed": {"shap": 1}}, {"sizes": {"batch": 1}}):
        with pytest.raises(UnknownNameError, match="which the model does not have"):
            gc.from_onnx(proto, **bad)


# -- files -------------------------------------------------------------------------------------


def test_external_data_is_read_from_the_folder_of_the_model_alone(tmp_path: Path) -> None:
    proto = model([node("MatMul", "x w", "y")], {"x": X}, ["y"], {"w": np.eye(3, dtype=np.float32)})
    path = tmp_path / "inner" / "m.onnx"
    path.parent.mkdir()
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    np.testing.assert_array_equal(results(str(path), {"x": X})[0], X)
    with pytest.raises(ModelFileError, match="the model is not from a file"):
        gc.from_onnx(path.read_bytes())
    (tmp_path / "w.bin").write_bytes((path.parent / "w.bin").read_bytes())
    for location in ("../w.bin", str(tmp_path / "w.bin"), "none.bin"):
        broken = onnx.load(path, load_external_data=False)
        for entry in broken.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = location
        path.write_bytes(broken.SerializeToString())
        with pytest.raises(ModelFileError, match="is not in the model's folder"):
            gc.from_onnx(path)
    os.truncate(path.parent / "w.bin", 8)
    broken.graph.initializer[0].external_data[0].value = "w.bin"
    path.write_bytes(broken.SerializeToString())
    with pytest.raises(ModelFileError, match="too short"):
        gc.from_onnx(path)


def forged(change: Any) -> onnx.ModelProto:
    proto = mlp()
    change(proto)
    return proto


FORGED = {
    "a huge shape": (lambda p: p.graph.initializer[0].dims.extend([1 << 40]), "data for at most"),
    "a negative size": (lambda p: p.graph.initializer[0].dims.__setitem__(0, -3), "has the shape"),
    "no versions": (lambda p: p.ClearField("opset_import"), "which versions"),
    "no graph": (lambda p: p.ClearField("graph"), "holds no graph"),
    "a circle": (
        lambda p: p.graph.node[0].input.__setitem__(0, "logits"),
        "nothing computes before",
    ),
    "a missing result": (
        lambda p: p.graph.output[0].__setattr__("name", "z"),
        "not computed by any",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_models(name: str) -> None:
    change, text = FORGED[name]
    with pytest.raises(ModelFileError, match=text):
        gc.from_onnx(forged(change))


def test_functions_that_call_each_other_for_ever() -> None:
    call = helper.make_node("F", ["a"], ["b"], domain="own")
    function = helper.make_function(
        "own", "F", ["a"], ["b"], [call], [helper.make_opsetid("own", 1)]
    )
    nodes = [helper.make_node("F", ["x"], ["y"], domain="own")]
    proto = model(nodes, {"x": X}, ["y"], functions=[function], domains=["own"])
    with pytest.raises(ModelFileError, match="call each other"):
        gc.from_onnx(proto)


def test_altered_bytes_give_clear_errors(rounds) -> None:
    data = bytearray(mlp().SerializeToString())
    rng = np.random.default_rng(5)
    for _ in range(rounds(200, 5000)):
        bad = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            bad[rng.integers(len(bad))] = rng.integers(256)
        if rng.random() < 0.2:
            bad = bad[: rng.integers(len(bad))]
        try:
            gc.from_onnx(bytes(bad))
        except gc.errors.GraphcError as error:
            assert str(error)


def test_faults_that_altered_bytes_found() -> None:
    proto = mlp()
    del proto.graph.node[0].output[:]
    proto.graph.node[0].name = ""
    with pytest.raises(ModelFileError, match="which nothing computes"):
        gc.from_onnx(proto)
    data = mlp().SerializeToString()
    name = mlp().graph.input[0].name.encode()
    with pytest.raises(ModelFileError, match="not UTF-8"):
        gc.from_onnx(data.replace(name, b"\xff" * len(name)))
    proto = mlp()
    proto.graph.input[0].type.tensor_type.elem_type = 38
    with pytest.raises(ModelImportError, match="element type 38"):
        gc.from_onnx(proto)


def test_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x80\x04\x95not a model")
    with pytest.raises(ModelFileError, match="is not an ONNX file"):
        gc.from_onnx(tmp_path / "m.onnx")
    with pytest.raises(ModelFileError, match="cannot be read"):
        gc.from_onnx(tmp_path / "none.onnx")
    with pytest.raises(ModelFileError, match="takes a path, bytes or a ModelProto, got int"):
        gc.from_onnx(3)


def test_the_suite_of_onnx(rounds) -> None:
    """A part of onnx's backend tests; `python -m benchmarks.onnx_suite` runs all of them."""
    from benchmarks.onnx_suite import PASSED, SuiteCase, cases, run_case

    found: dict[str, str] = {}
    for case in cases(("simple", "pytorch-operator"), "" if rounds(0, 1) else "[aeiou]_?[a-m]"):
        assert isinstance(case, SuiteCase)
        found[case.name] = run_case(case)
    wrong = {name: how for name, how in found.items() if how not in PASSED}
    assert len(found) > 20
    assert wrong.keys() <= {"test_gradient_of_add", "test_gradient_of_add_and_mul"}
