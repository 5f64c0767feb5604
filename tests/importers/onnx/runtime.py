"""Models with operators of ONNX Runtime, run by both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper

from tests.importers.onnx.models import model, results
from tests.near import assert_near

DOMAIN = "com.microsoft"


def single(
    op: str,
    values: list[Any],
    attrs: dict[str, Any],
    outputs: Sequence[str] = ("y",),
    domain: str = DOMAIN,
) -> tuple[Any, dict[str, Any]]:
    """A model with one node, and its inputs by name. "" is a result that is not used."""
    names = ["" if value is None else f"in{i}" for i, value in enumerate(values)]
    inputs = {name: value for name, value in zip(names, values, strict=True) if name}
    node = helper.make_node(op, names, outputs, domain=domain, **attrs)
    domains = [domain] if domain else []
    proto = model([node], inputs, [o for o in outputs if o], opset=17, domains=domains)
    for output in proto.graph.output:
        output.ClearField("type")  # it is inferred
    proto.ir_version = 10
    return proto, inputs


def by_runtime(proto: Any, inputs: dict[str, Any]) -> list[Any]:
    """The results of ONNX Runtime, of the model as it is."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = proto if isinstance(proto, bytes) else proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, {name: np.asarray(v) for name, v in inputs.items()})
    return found


def compare(
    proto: Any, inputs: dict[str, Any], *, rtol: float = 1e-5, steps: int = 0, **options: Any
) -> None:
    """Checks that graphc's results equal those of ONNX Runtime.

    Args:
        proto: the model.
        inputs: the inputs by name.
        rtol: see `assert_near`.
        steps: by how many steps integers may differ, in at most 2 % of the places: both round
            after another sequence of operations.
        options: of `gc.from_onnx`.
    """
    want = by_runtime(proto, inputs)
    for g, w in zip(results(proto, inputs, **options), want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if w.dtype.kind in "iu":
            far = np.abs(g.astype(np.int64) - w.astype(np.int64))
            assert far.max() <= steps
            assert (far > 0).mean() <= 0.02
        else:
            hidden = (
                np.abs(w.astype(np.float64)) > 1e30
            )  # logits of keys that are not seen would set the bound
            np.testing.assert_array_equal(g[hidden], w[hidden])
            assert_near(np.where(hidden, 0, g), np.where(hidden, 0, w), rtol=rtol, atol=1e-6)
