"""Gradients of JAX's convolutions become graphc's operators for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from jax import lax
from jax import numpy as jnp

import graphc as gc
from tests.near import assert_near

OPTIONS = gc.CompileOptions(cache=None)
LAYOUTS = {
    1: [("NWC", "WIO", "NWC"), ("NCW", "OIW", "NCW")],
    2: [
        ("NHWC", "HWIO", "NHWC"),
        ("NCHW", "OIHW", "NCHW"),
        ("NHWC", "OHWI", "NCHW"),
        ("CHWN", "IHWO", "CHWN"),
    ],
}


def numbers(shape: Any, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def with_gradients(convolve: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, w: Any, dy: Any) -> Any:
        y, pull = jax.vjp(convolve, x, w)
        return y, pull(dy)

    return run


def convolutions(executable: Any) -> dict[str, int]:
    names = [node.op.name for node in executable.program.walk()]
    return dict(Counter(name for name in names if name.startswith("Conv")))


ALL = {"Conv": 1, "ConvInputGradient": 1, "ConvKernelGradient": 1}


@pytest.mark.parametrize("layout", LAYOUTS[2][:3], ids=str)
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 1), (2, 0))])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_each_gradient_is_its_operator(
    layout: Any, strides: Any, padding: Any, groups: int
) -> None:
    sizes = {"N": 2, "H": 12, "W": 10, "C": 4}
    kernel = {"H": 3, "W": 2, "I": 4 // groups, "O": 8}
    x = numbers([sizes[axis] for axis in layout[0]], 0)
    w = numbers([kernel[axis] for axis in layout[1]], 1)

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, padding, dimension_numbers=layout, feature_group_count=groups
        )

    run = with_gradients(convolve)
    dy = numbers(convolve(x, w).shape, 2)
    jitted = gc.jit(run, options=OPTIONS)
    for got, want in zip(
        jax.tree.leaves(jitted(x, w, dy)), jax.tree.leaves(run(x, w, dy)), strict=True
    ):
        assert_near(got, np.asarray(want), 1e-4, 1e-4)
    assert convolutions(jitted.executable) == ALL


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    rank = draw(st.sampled_from([1, 2, 2]))
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    some = st.integers

    def each(values: Any) -> Any:
        return tuple(draw(values) for _ in range(rank))

    return {
        "layout": draw(st.sampled_from(LAYOUTS[rank])),
        "batch": draw(some(1, 3)),
        "channels": 4,
        "filters": groups * draw(some(1, 2)),
        "groups": groups,
        "space": each(some(3, 9)),
        "window": each(some(1, 4)),
        "strides": each(some(1, 3)),
        "dilation": each(some(1, 2)),
        "spread": each(st.sampled_from([1, 1, 1, 2])),
        "padding": each(st.tuples(some(-1, 2), some(-1, 3))),
    }


def by_taps(case: dict[str, Any], x: Any, w: Any) -> Any:
    """The convolution without XLA's, which reads beyond its operand for some padding."""
    images, kernel, results = case["layout"]
    axes = "HW"[-len(case["space"]) :]
    x = jnp.transpose(x, [images.index(axis) for axis in f"N{axes}C"])
    w = jnp.transpose(w, [kernel.index(axis) for axis in f"{axes}IO"])
    rows = zip(case["padding"], case["spread"], strict=True)
    x = lax.pad(x, 0.0, [(0, 0, 0), *((*pad, spread - 1) for pad, spread in rows), (0, 0, 0)])
    grouped = x.reshape(*x.shape[:-1], case["groups"], -1)
    parts = []
    for tap in np.ndindex(*case["window"]):
        places = [slice(None)]
        for n, at, size, step, gap in zip(
            x.shape[1:-1], tap, case["window"], case["strides"], case["dilation"], strict=True
        ):
            places.append(slice(at * gap, n - (size - 1 - at) * gap, step))
        factors = w[tap].reshape(w.shape[-2], case["groups"], -1)
        parts.append(jnp.einsum("n...gi,igo->n...go", grouped[tuple(places)], factors))
    y = sum(parts)
    y = y.reshape(*y.shape[:-2], -1)
    return jnp.transpose(y, [f"N{axes}C".index(axis) for axis in results])


XLA_ABORTS = {
    "layout": LAYOUTS[2][2], "batch": 2, "channels": 4, "filters": 2, "groups": 1, "space": (4, 7),
    "window": (4, 2), "strides": (2, 2), "dilation": (1, 1), "spread": (1, 1),
    "padding": ((0, 3), (1, 2)),
}  # fmt: skip
XLA_ABORTS_FORWARD = XLA_ABORTS | {
    "layout": LAYOUTS[2][0], "space": (3, 4), "strides": (1, 1), "spread": (2, 2),
    "padding": ((3, 0), (0, 0)),
}  # fmt: skip


@pytest.mark.slow
@settings(max_examples=40)
@given(case=cases())
@example(case=XLA_ABORTS)
@example(case=XLA_ABORTS_FORWARD)
def test_any_convolution_equals_its_sum(case: dict[str, Any]) -> None:
    images, kernel, _ = case["layout"]
    axes = "HW" if len(case["space"]) == 2 else "W"
    sizes = {"N": case["batch"], "C": case["channels"]}
    sizes.update(zip(axes, case["space"], strict=True))
    window = {"I": case["channels"] // case["groups"], "O": case["filters"]}
    window.update(zip(axes, case["window"], strict=True))
    x = numbers([sizes[axis] for axis in images], 0)
    w = numbers([window[axis] for axis in kernel], 1)

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            *(x, w, case["strides"], case["padding"]),
            lhs_dilation=case["spread"],
            rhs_dilation=case["dilation"],
            dimension_numbers=case["layout"],
            feature_group_count=case["groups"],
        )

    try:
        shape = jax.eval_shape(convolve, x, w).shape
    except (ValueError, TypeError):  # the window does not fit
        assume(False)
    assume(np.prod(shape) > 0)
    run, dy = with_gradients(convolve), numbers(shape, 2)
    got = gc.jit(run, options=OPTIONS)(x, w, dy)
    want = jax.jit(with_gradients(partial(by_taps, case)))(x, w, dy)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_near(ours, np.asarray(theirs), 1e-4, 1e-4)


def nhwc(x: Any, w: Any, **how: Any) -> Any:
    more = {"window_strides": (1, 1), "padding": "SAME", **how}
    return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **more)


def test_what_is_no_gradient_stays_a_convolution() -> None:
    x, w = numbers((2, 8, 8, 3), 0), numbers((3, 3, 3, 4), 1)

    def of_channels_first(x: Any, w: Any) -> Any:  # sums over the first axes, with a small window
        return lax.conv_general_dilated(
            *(x.transpose(3, 1, 2, 0), w.transpose(2, 0, 1, 3), (1, 1), "SAME"),
            dimension_numbers=("CHWN", "IHWO", "CHWN"),
        )

    for function in (
        of_channels_first,
        lambda x, w: nhwc(x, w, padding="VALID", rhs_dilation=(3, 3)),
        lambda x, w: nhwc(x, jnp.flip(w, 0)),  # reversed along one of the axes
        lambda x, w: nhwc(x, jnp.flip(w, (0, 1)), window_strides=(2, 2)),
        lambda x, w: nhwc(x[:, :3, :3], w, padding="VALID"),  # the window is the image
    ):
        jitted = gc.jit(function, options=OPTIONS)
        assert_near(jitted(x, w), np.asarray(function(x, w)), 1e-4, 1e-4)
        assert convolutions(jitted.executable) == {"Conv": 1}


def test_a_batch_with_a_name_and_second_derivatives() -> None:
    x, w = numbers((3, 8, 8, 2), 0), numbers((3, 3, 2, 4), 1)

    def loss(x: Any, w: Any) -> Any:
        return jnp.sum(jnp.tanh(nhwc(x, w, window_strides=(2, 2))) ** 2)

    with gc.Graph() as graph:
        images = gc.placeholder((None, 8, 8, 2), name="images")
        kernel = gc.placeholder((3, 3, 2, 4), name="kernel")
        slope = gc.from_jax(jax.grad(loss, 1))(images, kernel)
        (second,) = gc.gradients(gc.reduce_sum(slope**2), [images])
    got = gc.Session(graph).run([slope, second], {images: x, kernel: w})
    want = jax.grad(loss, 1)(x, w)
    assert_near(got[0], np.asarray(want), 1e-4, 1e-4)
    assert "ConvKernelGradient" in [node.op.name for node in graph.nodes]
    twice = jax.grad(lambda x: jnp.sum(jax.grad(loss, 1)(x, w) ** 2))(x)
    assert_near(got[1], np.asarray(twice), 1e-3, 1e-3)


def small(x: Any, w: Any) -> Any:
    return lax.conv(x, w, (1, 1), "SAME")


def descended(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: jnp.tanh(small(x, w)).sum())(w)


IN_BODIES: dict[str, Callable[..., Any]] = {
    "stacked layers": lambda x, ws: lax.scan(lambda h, w: (jnp.tanh(small(h, w)), None), x, ws)[0],
    "kernel in a carry": lambda x, ws: lax.scan(
        lambda w, x: (descended(w, x), None), ws[0], jnp.stack([x, 2 * x])
    )[0],
    "fori_loop": lambda x, ws: lax.fori_loop(0, 3, lambda i, w: descended(w, x), ws[0]),
    "while_loop": lambda x, ws: lax.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, descended(c[1], x)), (0, ws[0])
    )[1],
    "branches": lambda x, ws: lax.cond(x.sum() > 0, small, lambda x, w: x, x, ws[0]),
    "checkpointed layers": jax.grad(
        lambda x, ws: lax.scan(jax.checkpoint(lambda h, w: (jnp.tanh(small(h, w)), None)), x, ws)[
            0
        ].sum(),
        argnums=1,
    ),
}


@pytest.mark.parametrize("function", IN_BODIES.values(), ids=IN_BODIES)
def test_kernels_that_bodies_take(function: Callable[..., Any]) -> None:
    x, ws = numbers((2, 4, 6, 5), 0), numbers((3, 4, 4, 3, 3), 1)
    jitted = gc.jit(function, options=OPTIONS)
    assert_near(jitted(x, ws), np.asarray(jax.jit(function)(x, ws)), 1e-4, 1e-4)
    assert jitted.notes == []


def test_a_kernel_that_a_body_of_graphc_takes() -> None:
    x, ws = numbers((2, 4, 6, 5), 0), numbers((3, 4, 4, 3, 3), 1)
    with gc.Graph() as graph:
        convolve = gc.from_jax(small)
        y, _ = gc.scan(lambda h, w: (convolve(h, w), h), gc.constant(x), gc.constant(ws))
    want = lax.scan(lambda h, w: (small(h, w), None), x, ws)[0]
    assert_near(gc.Session(graph).run(y), np.asarray(want), 1e-3, 1e-3)


def test_convolutions_of_integers_are_no_gradients() -> None:
    x, w = np.ones((1, 2, 5, 5), np.int32), np.arange(18, dtype=np.int32).reshape(1, 2, 3, 3)
    jitted = gc.jit(lambda x, w: small(x, jnp.flip(w, (2, 3))), options=OPTIONS)
    assert_near(jitted(x, w), np.asarray(small(x, w[:, :, ::-1, ::-1])), 0)
    assert jitted.notes == []
