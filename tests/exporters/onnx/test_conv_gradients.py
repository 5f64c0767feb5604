"""Gradients of convolutions as ONNX, in the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import jax  # noqa: E402
from jax import lax  # noqa: E402

import graphc as gc  # noqa: E402
from tests.exporters.onnx.test_models import images, run  # noqa: E402
from tests.near import assert_near  # noqa: E402

NHWC = ("NHWC", "HWIO", "NHWC")


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("padding", ["SAME", "VALID", ((2, 0), (0, 3))])
@pytest.mark.parametrize("batch", [3, "batch"])
def test_both_gradients_of_jax(
    tmp_path: Path, groups: int, strides: Any, padding: Any, batch: int | str
) -> None:
    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, padding, dimension_numbers=NHWC, feature_group_count=groups
        )

    def gradients(x: Any, w: Any, dy: Any) -> Any:
        return jax.vjp(convolve, x, w)[1](dy)

    x, w = images(3, 9, 8, 4), images(3, 2, 4 // groups, 8)
    dy = images(*jax.eval_shape(convolve, x, w).shape)
    with gc.Graph() as graph:
        given = {"x": x, "w": w, "dy": dy}
        fed = {
            name: gc.placeholder((*((batch,) if name != "w" else (3,)), *v.shape[1:]), name=name)
            for name, v in given.items()
        }
        dx, dw = gc.from_jax(gradients)(*fed.values())
    path = tmp_path / "model.onnx"
    gc.to_onnx(gc.Session(graph), path, gc.Signature(fed, {"dx": dx, "dw": dw}))
    assert {"ConvInputGradient", "ConvKernelGradient"} <= {n.op.name for n in graph.nodes}
    for got, want in zip(run(path, **given), gradients(x, w, dy), strict=True):
        assert_near(got, np.asarray(want), 1e-4, 1e-4)
