"""The gradients of a convolution as they are lowered inside loops on CPU."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from jax import lax

import graphc as gc
from graphc.ops.nn.plain_conv import plain_input_gradient, plain_kernel_gradient
from tests.near import assert_near

CASES = [
    dict(strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1)),
    dict(strides=(2, 3), padding=((0, 1), (2, 1)), dilation=(1, 1)),
    dict(strides=(1, 2), padding=((3, 2), (1, 0)), dilation=(2, 1)),
    dict(strides=(3, 1), padding=((0, 0), (0, 0)), dilation=(1, 3)),
    dict(strides=(2, 2), padding=((4, 4), (5, 5)), dilation=(2, 2)),  # wider than the kernel
    dict(strides=(2,), padding=((0, 1),), dilation=(2,)),
    dict(strides=(1, 2, 1), padding=((1, 0), (2, 1), (0, 0)), dilation=(2, 1, 1)),
]


@pytest.mark.parametrize("attrs", CASES, ids=str)
def test_they_are_those_of_jax(attrs):
    rng = np.random.default_rng(0)
    rank = len(attrs["strides"])
    size, window = (9, 11, 4)[:rank], (3, 2, 2)[:rank]
    x = rng.standard_normal((2, *size, 3)).astype(np.float32)
    w = rng.standard_normal((*window, 3, 4)).astype(np.float32)
    space = "HWD"[:rank]

    def conv(x, w):
        return lax.conv_general_dilated(
            x,
            w,
            attrs["strides"],
            attrs["padding"],
            rhs_dilation=attrs["dilation"],
            dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
        )

    y, pull = jax.vjp(conv, x, w)
    dy = rng.standard_normal(y.shape).astype(np.float32)
    dx, dw = pull(dy)
    got = plain_input_gradient(dy, w, size=size, groups=1, **attrs)
    assert_near(got, dx, rtol=1e-4, atol=1e-4)
    got = plain_kernel_gradient(x, dy, size=window, groups=1, **attrs)
    assert_near(got, dw, rtol=1e-4, atol=1e-4)


def test_a_loop_on_cpu_has_no_other_form_of_convolution():
    """XLA:CPU runs any other form with its generic routine if it is inside a loop."""
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2, 6, 6, 3), name="x")
        w = gc.variable(np.ones((3, 3, 3, 3), np.float32), name="w")
        step = lambda h, _: (gc.tanh(gc.nn.conv2d(h, w, padding="same")), None)  # noqa: E731
        last, _ = gc.scan(step, x, length=3)
        slopes = gc.gradients(gc.reduce_sum(last), [w, x])
    text = gc.compile(graph, slopes, {x: x.shape}).stablehlo()
    forms = re.findall(r"dim_numbers = (.*?->\[[^\]]*\])", text)
    assert len(forms) == 3 and set(forms) == {"[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"}
