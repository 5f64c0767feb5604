"""Graphs that today's TensorFlow does not make: old names, text files, truncated files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import ArgumentError, ModelFileError, ModelImportError, UnknownNameError
from graphc.train.tensorflow.schema import messages
from tests.near import assert_near

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def node(graph: Any, op: str, *inputs: str, name: str | None = None, **attrs: Any) -> str:
    """Adds a node; attributes are ints, floats, bools, bytes, arrays or lists of bytes."""
    made = graph.node.add(name=name or op, op=op, input=inputs)
    for key, value in attrs.items():
        field = made.attr[key]
        if isinstance(value, bool):
            field.b = value
        elif isinstance(value, bytes):
            field.s = value
        elif isinstance(value, float):
            field.f = value
        elif isinstance(value, int):
            field.i = value
        elif isinstance(value, np.ndarray):
            field.tensor.dtype = {"f": 1, "i": 3}[value.dtype.kind]
            field.tensor.tensor_content = value.tobytes()
            for size in value.shape:
                field.tensor.tensor_shape.dim.add(size=size)
        elif value and isinstance(value[0], bytes):
            field.list.s.extend(value)
        else:
            field.list.i.extend(value)
    return made.name


def placeholder(graph: Any, *shape: int, name: str = "x", op: str = "Placeholder") -> str:
    node(graph, op, name=name)
    graph.node[-1].attr["dtype"].type = 1
    for size in shape:
        graph.node[-1].attr["shape"].shape.dim.add(size=size)
    return name


def const(graph: Any, name: str, value: Any) -> str:
    return node(graph, "Const", name=name, value=np.asarray(value))


def run(graph: Any, output: str, **feeds: Any) -> Any:
    made = gc.from_graphdef(graph, output).to_graph()
    session = gc.Session(made.graph)
    return session.run(made.outputs[output], {made.inputs[k]: v for k, v in feeds.items()})


@pytest.fixture
def graph() -> Any:
    return messages().GraphDef()


def test_top_k_with_an_attribute(graph: Any) -> None:
    node(graph, "TopK", placeholder(graph, 3, 4), k=2)
    np.testing.assert_array_equal(run(graph, "TopK", x=X), X[:, :1:-1])


def test_sizes_that_are_split(graph: Any) -> None:
    """So `tf.signal.frame` takes a shape apart."""
    node(graph, "Shape", placeholder(graph, -1, 4))
    const(graph, "counts", np.array([1, -1], np.int32))
    const(graph, "axis", np.int32(0))
    node(graph, "SplitV", "Shape", "counts", "axis", num_split=2)
    const(graph, "scalar", np.zeros(0, np.int32))
    node(graph, "Reshape", "SplitV:1", "scalar", name="size")
    const(graph, "one", np.int32(1))
    node(graph, "Range", "axis", "size", "one")
    node(graph, "Cast", "Range", name="floats")
    graph.node[-1].attr["SrcT"].type, graph.node[-1].attr["DstT"].type = 3, 1
    node(graph, "AddV2", "x", "floats")
    np.testing.assert_array_equal(run(graph, "AddV2", x=X), X + np.arange(4))


def test_batch_norm_of_the_first_version(graph: Any) -> None:
    inputs = [const(graph, n, np.float32(v) * np.ones(4, np.float32)) for n, v in
              {"m": 1, "v": 4, "beta": 0.5, "gamma": 3}.items()]  # fmt: skip
    node(graph, "BatchNormWithGlobalNormalization", placeholder(graph, 1, 1, 3, 4), *inputs,
         variance_epsilon=0.0, scale_after_normalization=True)  # fmt: skip
    got = run(graph, "BatchNormWithGlobalNormalization", x=X[None, None])
    assert_near(got, (X[None, None] - 1) / 2 * 3 + 0.5, rtol=1e-6)


def test_products_that_the_optimiser_fuses(graph: Any) -> None:
    w = const(graph, "w", np.eye(4, dtype=np.float32))
    b = const(graph, "b", np.float32([-5, -5, 0, 1]))
    node(graph, "_FusedMatMul", placeholder(graph, 3, 4), w, b, fused_ops=[b"BiasAdd", b"Relu"])
    got = run(graph, "_FusedMatMul", x=X)
    assert_near(got, np.maximum(X + np.float32([-5, -5, 0, 1]), 0), rtol=1e-7)


@pytest.mark.parametrize("op", ["_FusedConv2D", "_FusedDepthwiseConv2dNative"])
def test_convolutions_that_the_optimiser_fuses(graph: Any, op: str) -> None:
    shape = (1, 1, 4, 4) if op == "_FusedConv2D" else (1, 1, 4, 1)
    w = const(graph, "w", np.ones(shape, np.float32))
    b = const(graph, "b", np.float32([-5, -5, 0, 1]))
    node(graph, op, placeholder(graph, 1, 1, 3, 4), w, b, fused_ops=[b"BiasAdd", b"LeakyRelu"],
         leakyrelu_alpha=0.5, strides=[1, 1, 1, 1], padding=b"SAME")  # fmt: skip
    own = X.sum(1, keepdims=True) if op == "_FusedConv2D" else X
    y = own + np.float32([-5, -5, 0, 1])
    assert_near(run(graph, op, x=X[None, None])[0, 0], np.where(y > 0, y, y / 2), rtol=1e-7)


def test_batch_norm_with_a_side_input(graph: Any) -> None:
    ones = const(graph, "ones", np.ones(4, np.float32))
    zeros = const(graph, "zeros", np.zeros(4, np.float32))
    x = placeholder(graph, 1, 1, 3, 4)
    node(graph, "_FusedBatchNormEx", x, ones, zeros, zeros, ones, x, is_training=False,
         epsilon=0.0, num_side_inputs=1, activation_mode=b"Relu")  # fmt: skip
    assert_near(run(graph, "_FusedBatchNormEx", x=X[None, None])[0, 0], 2 * X, rtol=1e-6)


def test_channels_first(graph: Any) -> None:
    w = const(graph, "w", np.ones((3, 3, 2, 1), np.float32))
    node(graph, "Conv2D", placeholder(graph, 1, 2, 4, 5), w, strides=[1, 1, 2, 2],
         padding=b"SAME", data_format=b"NCHW")  # fmt: skip
    node(graph, "MaxPool", "Conv2D", ksize=[1, 1, 2, 2], strides=[1, 1, 1, 1], padding=b"VALID",
         data_format=b"NCHW")  # fmt: skip
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 5)).astype(np.float32)
    wanted = run_in_nhwc(x)
    assert_near(run(graph, "MaxPool", x=x), wanted.transpose(0, 3, 1, 2), rtol=1e-5)


def run_in_nhwc(x: Any) -> Any:
    graph = messages().GraphDef()
    w = const(graph, "w", np.ones((3, 3, 2, 1), np.float32))
    node(graph, "Conv2D", placeholder(graph, 1, 4, 5, 2), w, strides=[1, 2, 2, 1], padding=b"SAME")
    node(graph, "MaxPool", "Conv2D", ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding=b"VALID")
    return np.asarray(run(graph, "MaxPool", x=x.transpose(0, 2, 3, 1)))


def test_a_text_file(graph: Any, tmp_path: Any) -> None:
    from google.protobuf import text_format

    node(graph, "Square", placeholder(graph, -1, 4))
    (tmp_path / "g.pbtxt").write_text(text_format.MessageToString(graph))
    model = gc.from_graphdef(tmp_path / "g.pbtxt")
    assert model.outputs == ("Square",)
    assert model.inputs["x"].shape[1] == 4


def test_weights_of_a_frozen_graph_are_variables(graph: Any) -> None:
    w = const(graph, "layer/kernel", np.ones((4, 2), np.float32))
    node(graph, "MatMul", placeholder(graph, -1, 4), w)
    model = gc.from_graphdef(graph, "MatMul", trainable=True)
    made = model.to_graph()
    assert [(n, v.trainable) for n, v in made.variables.items()] == [("layer/kernel", True)]
    assert next(iter(model.inputs["x"].shape)) == made.inputs["x"].shape[0]


def test_queues_and_iterators_are_cut_off(graph: Any) -> None:
    node(graph, "FIFOQueueV2", name="queue")
    node(graph, "QueueDequeueManyV2", "queue", const(graph, "n", np.int32(3)), name="batch")
    graph.node[-1].attr["component_types"].list.type.extend([1, 3])
    node(graph, "Square", "batch:0", name="y")
    with pytest.raises(ArgumentError, match="does not say its shape") as error:
        gc.from_graphdef(graph, "y")
    assert "gc.TensorSpec" in str(error.value)
    model = gc.from_graphdef(graph, "y", inputs={"batch:0": gc.TensorSpec((None, 4))})
    with gc.Graph() as built:
        y = model(gc.constant(X))
    np.testing.assert_array_equal(gc.Session(built).run(y), X**2)


def test_strings_are_refused_as_results(graph: Any) -> None:
    node(graph, "Identity", placeholder(graph, -1))
    graph.node[0].attr["dtype"].type = 7
    with pytest.raises(ModelImportError, match="got strings that are known only in a run"):
        gc.from_graphdef(graph, "Identity")


def test_parsed_strings_are_refused_as_inputs(graph: Any) -> None:
    node(graph, "ReadFile", placeholder(graph, -1), name="read")
    node(graph, "Identity", "read")
    with pytest.raises(ArgumentError, match="takes strings") as error:
        gc.from_graphdef(graph, "Identity")
    assert "choose inputs behind the parsing of strings" in str(error.value)


def test_all_refusals_are_in_one_error(graph: Any) -> None:
    x = placeholder(graph, -1, 4)
    for name in ("Foo", "Bar"):
        x = node(graph, name, x, name=f"net/{name}")
    with pytest.raises(ModelImportError, match="2 operators") as error:
        gc.from_graphdef(graph, "net/Bar")
    text = str(error.value)
    assert "Foo is not imported  (the node net/Foo)" in text
    assert "Bar is not imported  (the node net/Bar)" in text


def test_what_is_behind_an_input_is_not_needed(graph: Any) -> None:
    node(graph, "Square", node(graph, "Foo", placeholder(graph, 4)), name="y")
    model = gc.from_graphdef(graph, "y", inputs={"Foo": gc.TensorSpec((4,))})
    assert list(model.inputs) == ["Foo"]


def test_an_error_in_a_call_names_tensorflows_node(graph: Any) -> None:
    w = const(graph, "w", np.ones((4, 2), np.float32))
    node(graph, "MatMul", placeholder(graph, -1, -1), w, name="dense/MatMul")
    model = gc.from_graphdef(graph, "dense/MatMul")
    with gc.Graph(), pytest.raises(gc.errors.ShapeError) as error:
        model(gc.ones((3, 5)))
    assert "TensorFlow node dense/MatMul (MatMul)" in str(error.value)


def test_names_that_are_not_in_the_graph(graph: Any) -> None:
    node(graph, "Square", placeholder(graph, 4), name="result")
    with pytest.raises(UnknownNameError, match="did you mean 'result'"):
        gc.from_graphdef(graph, "resul")


def test_files_of_other_kinds(graph: Any, tmp_path: Any) -> None:
    with pytest.raises(ModelFileError, match="cannot be read"):
        gc.from_graphdef(tmp_path / "none.pb")
    for data in (b"", b"\x00" * 50, b"PK\x03\x04 not a graph", b"node { nam"):
        with pytest.raises(ModelFileError):
            gc.from_graphdef(data)
    with pytest.raises(ArgumentError, match="a graph is a path, bytes or a GraphDef"):
        gc.from_graphdef(3)


def test_a_summary_does_not_matter(graph: Any) -> None:
    x = placeholder(graph, 4)
    node(graph, "HistogramSummary", "tag", x)
    node(graph, "Square", x, "^HistogramSummary", name="y")
    np.testing.assert_array_equal(run(graph, "y", x=X[0]), X[0] ** 2)


def test_missing_operators_and_refused_arguments_are_in_one_error(graph: Any) -> None:
    x = placeholder(graph, 2, 4)
    node(graph, "Foo", x)
    node(graph, "Reshape", x, node(graph, "Cast", x, name="sizes"))
    graph.node[-2].attr["DstT"].type = 3
    with pytest.raises(ModelImportError, match="2 operators") as error:
        gc.from_graphdef(graph, ["Foo", "Reshape"])
    text = str(error.value)
    assert "Foo is not imported" in text and "Reshape needs a constant for a shape" in text
