"""Small ONNX models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphc as gc
from tests.near import assert_near

NEWEST = 23


def info(name: str, value: Any, shape: Sequence[Any] | None = None) -> Any:
    """The type of an input or output with this value."""
    array = np.asarray(value)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if shape is None else shape)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    weights: Mapping[str, Any] = {},
    *,
    opset: int = NEWEST,
    shapes: Mapping[str, Sequence[Any]] = {},
    functions: Sequence[Any] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model whose inputs have the types of `inputs`; `shapes` may name sizes."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [info(name, value, shapes.get(name)) for name, value in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def reference(proto: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    """The results of onnx's reference implementation."""
    return ReferenceEvaluator(proto).run(None, dict(inputs))


def results(proto: Any, inputs: Mapping[str, Any], **options: Any) -> list[Any]:
    """The results of graphc."""
    alone = gc.from_onnx(proto, **options).to_graph()
    fixed = options.get("fixed", {})
    feeds = {alone.inputs[name]: v for name, v in inputs.items() if name not in fixed}
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        return [np.asarray(v) for v in session.run(list(alone.outputs.values()), feeds)]


def check(proto: Any, inputs: Mapping[str, Any], rtol: float = 1e-5, **options: Any) -> None:
    """Checks that graphc's results equal those of the reference, also in dtype and shape."""
    for got, want in zip(results(proto, inputs, **options), reference(proto, inputs), strict=True):
        want = np.asarray(want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert_near(got, want, rtol=rtol, atol=1e-6)


def check_gradient(
    proto: Any, inputs: Mapping[str, Any], fixed: Mapping[str, Any] = {}, rtol: float = 2e-4
) -> None:
    """Checks the derivative of the result "y" for the input "in0", along one direction, against
    finite differences. The inputs are in float64."""
    alone = gc.from_onnx(proto, fixed=fixed).to_graph()
    rng = np.random.default_rng(1)
    with alone.graph:
        x, y = alone.inputs["in0"], alone.outputs["y"]
        weighted = gc.reduce_sum(y * rng.normal(size=y.shape))
        (gradient,) = gc.gradients(weighted, [x])
    feeds = {t: inputs[name] for name, t in alone.inputs.items()}
    direction = rng.normal(size=x.shape)
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        slope = np.sum(np.asarray(session.run(gradient, feeds)) * direction)
        step = 1e-6
        ends = [
            float(session.run(weighted, {**feeds, x: feeds[x] + sign * step * direction}))
            for sign in (1, -1)
        ]
    assert_near(slope, (ends[0] - ends[1]) / (2 * step), rtol=rtol, atol=1e-6)
