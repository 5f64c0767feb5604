"""What all importers share: calls, names of variables, graphs, errors."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.errors import ArgumentError, DTypeError, ModelImportError, ShapeError, UnknownNameError
from graphc.importers.core.model import ImportedModel, ModelSource
from graphc.importers.core.refusals import Refusal, refuse_all
from graphc.importers.core.weights import Weight, variable_name, with_trainable

WEIGHTS = {
    "fc.weight": Weight(np.arange(6, dtype=np.float32).reshape(3, 2), trainable=True),
    "fc.count": Weight(np.array(3, np.int32)),
}


def affine(model: ImportedModel, inputs):
    x, y = inputs
    product = gc.matmul(x, model.weight("fc.weight"))
    return [product, y + gc.cast(model.weight("fc.count").read(), "float32")]


def model(name: str | None = None, **options) -> ImportedModel:
    inputs = (
        gc.TensorSpec(("batch", 3), "float32", "x"),
        gc.TensorSpec((2,), "float32", "in put:1"),
    )
    return ImportedModel(
        ModelSource("from_test", "net", inputs, ("out.1", "sum"), WEIGHTS, affine, **options), name
    )


X, Y = np.ones((4, 3), np.float32), np.array([1, 2], np.float32)


def test_a_call_makes_variables_with_the_names_of_the_weights() -> None:
    with gc.Graph() as graph:
        net = model()
        first = net(gc.constant(X), Y)
        with gc.name_scope("other"):
            net(**{"x": X, "in put:1": Y})
    assert [v.name for v in net.variables] == ["fc.weight", "fc.count"]
    assert [v.name for v in net.trainable_variables] == ["fc.weight"]
    with gc.Session(graph) as session:
        got = session.run(first)
    np.testing.assert_array_equal(got["out.1"], X @ WEIGHTS["fc.weight"].array)
    np.testing.assert_array_equal(got["sum"], [4, 5])


def test_scopes_before_the_names() -> None:
    with gc.Graph(), gc.name_scope("left"):
        net, named = model(), model("encoder")
        net(X, Y)
        named(X, Y)
    assert net.variables[0].name == "left/fc.weight"
    assert named.variables[0].name == "left/encoder/fc.weight"


def test_as_a_part_of_a_layer() -> None:
    class Whole(gc.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = model(), gc.nn.Dense(1)

        def __call__(self, x):
            return self.head(self.body(x, Y)["out.1"])

    with gc.Graph():
        whole = Whole()
        whole(X)
    assert {v.name for v in whole.variables} == {
        "fc.weight",
        "fc.count",
        "dense/kernel",
        "dense/bias",
    }


def test_a_graph_of_the_model_alone(tmp_path) -> None:
    alone = model().to_graph()
    assert alone.inputs["x"].shape[0] == alone.outputs["out.1"].shape[0]
    with gc.Session(alone.graph) as session:
        feeds = dict(zip(alone.inputs.values(), (X, Y), strict=True))
        want = session.run(alone.outputs, feeds)["out.1"]
        gc.save(session, tmp_path / "m.gcx", signatures={"predict": alone.signature()})
    got = gc.load(tmp_path / "m.gcx").signatures["predict"](x=X, in_put_1=Y)
    np.testing.assert_array_equal(got["out_1"], want)
    assert alone.variables["fc.weight"].name == "fc.weight"


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "text"),
    [
        ((X,), {}, ArgumentError, "its inputs are x, in put:1; got 1 arguments"),
        ((X, Y, Y), {}, ArgumentError, "got 3 arguments"),
        ((X, Y), {"x": X}, ArgumentError, "got 2 arguments, x="),
        ((X,), {"z": Y}, ArgumentError, "got 1 arguments, z="),
        ((X[0], Y), {}, ShapeError, r"input 'x' has the shape \(batch, 3\)"),
        ((X[:, :2], Y), {}, ShapeError, r"input 'x' has the shape \(batch, 3\)"),
    ],
)
def test_wrong_arguments(args, kwargs, error, text) -> None:
    with gc.Graph(), pytest.raises(error, match=text):
        model()(*args, **kwargs)


def test_a_tensor_of_another_dtype() -> None:
    with gc.Graph(), pytest.raises(DTypeError, match="input 'x' is float32, got int32"):
        model()(gc.constant(X.astype(np.int32)), Y)


def test_which_weights_are_trainable() -> None:
    def chosen(trainable) -> list[str]:
        found = with_trainable("from_test", WEIGHTS, trainable)
        return [name for name, weight in found.items() if weight.trainable]

    assert chosen(True) == ["fc.weight"] == chosen("fc.*") == chosen(["*.weight"]) == chosen(None)
    assert chosen(False) == []
    with pytest.raises(UnknownNameError, match=r"no floating weight matches trainable='fc\.count'"):
        chosen("fc.count")
    with pytest.raises(gc.errors.AttributeValueError, match="must be True, False or patterns"):
        chosen(3)


def test_names_that_variables_cannot_have() -> None:
    assert variable_name("a b(1)//c:0") == "a_b_1_/c_0"
    assert variable_name(":") == "_"


def test_all_refusals_in_one_error() -> None:
    refuse_all("from_test", [], "none")
    refusals = [Refusal("Foo", where=f"net.py:{i}") for i in range(5)] + [Refusal("Bar", "is old")]
    with pytest.raises(ModelImportError) as caught:
        refuse_all("from_test", refusals, "write it with gc operators")
    assert caught.value.details == (
        "Foo is not imported  (net.py:0, net.py:1, net.py:2, ...)",
        "Bar is old",
    )
