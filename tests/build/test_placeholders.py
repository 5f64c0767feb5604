"""`gc.placeholder`: dims, names, the batch axis; `gc.trace`; `gc.TensorSpec`."""

import jax
import numpy as np
import pytest

from graphc.build import TensorSpec, constant, name_scope, placeholder, trace, variable
from graphc.errors import AttributeValueError, DTypeError, GraphcError, GraphError, ShapeError
from graphc.ir.dims import symbol
from graphc.ir.graph import Graph
from graphc.ir.node import Tensor


@pytest.mark.parametrize(
    ("shape", "text", "batch_axis"),
    [
        ((3, 4), "f32[3, 4]", None),
        ((), "f32[]", None),
        (5, "f32[5]", None),
        ((None, 784), "f32[x_0, 784]", 0),
        ((None, None), "f32[x_0, x_1]", 0),
        ((8, None), "f32[8, x_1]", None),
        (("batch", 7), "f32[batch, 7]", 0),
        (("n", 7), "f32[n, 7]", None),
        (["2*n", "n + 1"], "f32[2*n, n + 1]", None),
        ((symbol("n") * 3, np.int64(2)), "f32[3*n, 2]", None),
        ((0, 2), "f32[0, 2]", None),
    ],
)
def test_dims_and_default_batch_axis(shape: object, text: str, batch_axis: int | None) -> None:
    with Graph() as graph:
        x = placeholder(shape, name="x")
    assert str(x.type) == text
    assert x.node.attrs["batch_axis"] == batch_axis
    assert x.name == "x:0"
    assert graph.tensor("x") is x


def test_each_none_is_a_size_of_its_own_and_each_name_one() -> None:
    with Graph():
        x, y = placeholder((None,), name="x"), placeholder((None,), name="y")
        p, q = placeholder(("n",)), placeholder(("n", "batch"))
    assert x.shape != y.shape
    assert p.shape[0] == q.shape[0]
    assert q.shape[1] == symbol("batch")


def test_names_are_unique_in_their_scope() -> None:
    with Graph():
        names = [placeholder((None,), name="x").name for _ in range(2)]
        with name_scope("a"):
            inner = placeholder((None,), name="x")
        unnamed = placeholder(())
    assert names == ["x:0", "x_1:0"]
    assert inner.name == "a/x:0"
    assert str(inner.type) == "f32[a.x_0]"
    assert unnamed.name == "Placeholder:0"


@pytest.mark.parametrize(("given", "kept"), [(0, 0), (1, 1), (-1, 1), (None, None), ("default", 0)])
def test_batch_axis(given: object, kept: int | None) -> None:
    with Graph():
        assert placeholder((None, 4), batch_axis=given).node.attrs["batch_axis"] == kept


def test_dtypes() -> None:
    with Graph():
        assert placeholder((), "int32").dtype == np.int32
        assert placeholder((), np.float64).dtype == np.float64
        assert placeholder((), "bf16").dtype.name == "bfloat16"


def test_a_spec_gives_shape_dtype_and_name() -> None:
    with Graph():
        x = placeholder(TensorSpec((None, 3), "int8", "pixels"))
        y = placeholder(TensorSpec(("batch",)), name="y")
    assert (x.name, str(x.type)) == ("pixels:0", "i8[pixels_0, 3]")
    assert (y.name, y.node.attrs["batch_axis"]) == ("y:0", 0)


def test_specs_are_values() -> None:
    assert TensorSpec([2, None], "f32") == TensorSpec((2, None), np.float32)
    assert hash(TensorSpec((2,))) == hash(TensorSpec([2]))
    with pytest.raises(AttributeError):
        TensorSpec((2,)).name = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: placeholder((-1, 3)), ShapeError, r"(?s)placeholder: -1 is not a size.*None"),
        (lambda: placeholder((1.5,)), ShapeError, r"placeholder: 1.5 is not a dim"),
        (lambda: placeholder((True,)), ShapeError, r"placeholder: True is not a size"),
        (lambda: placeholder(("2 $ n",)), ShapeError, r"(?s)'2 \$ n' is not a dim.*2\*batch"),
        (lambda: placeholder(None), ShapeError, r"the rank must be known"),
        (lambda: placeholder((2,), "text"), DTypeError, r"'text' is not a dtype"),
        (lambda: placeholder((2,), "flaot32"), DTypeError, "did you mean 'float32'"),
        (lambda: placeholder((2,), name="a b"), AttributeValueError, r"'a b' is not a name"),
        (lambda: placeholder((2,), name=""), AttributeValueError, r"'' is not a name"),
        (
            lambda: placeholder((2, 3), batch_axis=2),
            AttributeValueError,
            r"batch_axis must be an axis of \(2, 3\) or None, got 2",
        ),
        (lambda: TensorSpec((-2,)), ShapeError, r"TensorSpec: -2 is not a size"),
    ],
)
def test_bad_input_names_the_users_line(call, error: type[GraphcError], match: str) -> None:
    with Graph() as graph, pytest.raises(error, match=match) as info:
        call()
    if error is not DTypeError:  # the IR raises this; it does not know the user's line
        assert "test_placeholders.py:" in str(info.value)
    assert len(graph) == 0


def test_no_graph_and_no_body() -> None:
    with pytest.raises(GraphError, match=r"(?s)no graph is being built.*with graph:"):
        placeholder((2,))
    with (
        Graph() as graph,
        Graph(parent=graph),
        pytest.raises(GraphError, match=r"(?s)the body .* arguments.*before the body"),
    ):
        placeholder((2,))


def test_trace_names_and_collections() -> None:
    def model(images: Tensor, labels: Tensor, *more: Tensor) -> dict[str, object]:
        return {"b": images + 1.0, "a": (labels, more[0]), "none": None}

    graph = trace(
        model,
        TensorSpec((None, 4)),
        TensorSpec((None,), "int32", "y"),
        np.zeros((2, 3), np.float64),
        jax.ShapeDtypeStruct((5,), np.int8),
        seed=3,
    )
    inputs, outputs = graph.collection("inputs"), graph.collection("outputs")
    assert [t.name for t in inputs] == ["images:0", "y:0", "more_0:0", "more_1:0"]
    assert [str(t.type) for t in inputs] == ["f32[images_0, 4]", "i32[y_0]", "f64[2, 3]", "i8[5]"]
    assert outputs == [inputs[1], inputs[2], graph.tensor("Add:0")]  # sorted by keys
    assert (graph.seed, graph.name) == (3, "model")


def test_trace_of_variables_and_numbers() -> None:
    def model(x: Tensor) -> list[object]:
        return [variable(2.0, name="w"), 3, np.float64(4), np.float16(5)]

    read, three, four, five = trace(model, TensorSpec(())).collection("outputs")
    assert read.node.op.name == "ReadVariable"
    assert [t.dtype for t in (three, four, five)] == [np.int32, np.float32, np.float16]


def test_trace_refuses_what_is_no_spec_and_no_result() -> None:
    with pytest.raises(AttributeValueError, match=r"(?s)'x' is not a spec.*gc.TensorSpec"):
        trace(lambda x: x, "x")
    with pytest.raises(GraphError, match=r"trace: nothing returned nothing"):
        trace(lambda x: None, TensorSpec(()), name="nothing")
    with pytest.raises(
        GraphError, match=r"(?s)returned 'text', which is not a tensor of this graph"
    ):
        trace(lambda x: "text", TensorSpec(()))
    with Graph():
        foreign = constant(1.0)
    with pytest.raises(GraphError, match=r"(?s)Constant:0.*belongs to another graph"):
        trace(lambda x: foreign, TensorSpec(()))
