"""Depthwise convolutions tap by tap on CPUs: values, gradients, and where they are used."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import graphc as gc
from graphc.ops.nn import depthwise
from tests.near import assert_near

RNG = np.random.default_rng(0)

# sizes [batch, ..., channels], window, strides, padding, dilation
CASES = [
    ((2, 9, 4), (4,), (1,), ((3, 0),), (1,)),
    ((2, 8, 7, 3), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    ((1, 9, 8, 5), (3, 2), (2, 3), ((0, 1), (1, 0)), (1, 1)),
    ((2, 9, 9, 2), (3, 3), (1, 2), ((2, 2), (2, 2)), (2, 2)),
    ((2, 7, 8, 3), (2, 3), (2, 2), ((4, 3), (5, 0)), (1, 2)),  # windows in the padding alone
    ((1, 10, 11, 2), (1, 1), (3, 2), ((0, 0), (0, 0)), (1, 1)),  # elements without a window
    ((2, 5, 4, 6, 3), (2, 3, 3), (1, 2, 1), ((1, 0), (1, 1), (0, 2)), (1, 1, 1)),
]


def by_jax(x: Any, w: Any, attrs: dict[str, Any]) -> Any:
    places = "".join("HWD"[i] for i in range(x.ndim - 2))
    return lax.conv_general_dilated(
        x, w, attrs["strides"], attrs["padding"], rhs_dilation=attrs["dilation"],
        dimension_numbers=(f"N{places}C", f"{places}IO", f"N{places}C"),
        feature_group_count=x.shape[-1],
    )  # fmt: skip


@pytest.mark.parametrize(("sizes", "window", "strides", "padding", "dilation"), CASES)
def test_values_and_gradients(
    sizes: Any, window: Any, strides: Any, padding: Any, dilation: Any
) -> None:
    attrs = {"strides": strides, "padding": padding, "dilation": dilation}
    with jax.enable_x64(True):
        x, w = jax.numpy.asarray(RNG.normal(size=sizes)), RNG.normal(size=(*window, 1, sizes[-1]))
        want, transposed = jax.vjp(lambda x, w: by_jax(x, w, attrs), x, jax.numpy.asarray(w))
        dy = jax.numpy.asarray(RNG.normal(size=want.shape))
        dx, dw = transposed(dy)
        assert_near(depthwise.conv_by_taps(x, w, attrs), want, rtol=1e-13)
        got = depthwise.input_gradient_by_taps(dy, w, sizes[1:-1], attrs)
        assert_near(got, dx, rtol=1e-13)
        assert_near(depthwise.kernel_gradient_by_taps(x, dy, window, attrs), dw, rtol=1e-13)


@pytest.mark.parametrize("sizes", [(1, 3000, 8), (1, 1, 3000, 8), (40, 75, 8)])
def test_the_kernels_gradient_takes_no_memory_for_each_tap(sizes: tuple[int, ...]) -> None:
    window = (*(1,) * (len(sizes) - 3), 31)
    shape = (*window, 8, 1)
    with gc.Graph() as graph:
        x, w = gc.placeholder(sizes, name="x"), gc.constant(np.zeros(shape, "f"))
        y = gc.nn.depthwise_conv(x, w, padding="same")
        dw = gc.gradients(gc.reduce_sum(y * x), [w])[0]
    options = gc.CompileOptions(cache=None)
    compiled = gc.compile(graph, dw, {x: sizes}, options=options)
    assert compiled.memory()["temporaries"] < 5 * 4 * math.prod(sizes)
    value = RNG.normal(size=sizes).astype("f")
    got, _ = compiled(compiled.init(), {x: value})
    attrs: dict[str, Any] = {"strides": (1,) * len(window), "dilation": (1,) * len(window)}
    attrs["padding"] = tuple([(n // 2, n // 2) for n in window])
    with jax.enable_x64(True):
        wide = jax.numpy.asarray(value.astype("d"))
        zero = jax.numpy.zeros((*window, 1, 8))
        want = jax.grad(lambda w: (by_jax(wide, w, attrs) * wide).sum())(zero)
    assert_near(got, np.reshape(want, shape), rtol=1e-5)


def step(
    sizes: Any, window: Any, multiplier: int = 1, dtype: str = "float32"
) -> tuple[gc.Graph, Any, list[Any], tuple[int, ...]]:
    channels = sizes[-1]
    shape = (*window, channels, multiplier)
    with gc.Graph() as graph:
        x = gc.placeholder(sizes, dtype, name="x")
        w = gc.placeholder(shape, dtype, name="w")
        y = gc.nn.depthwise_conv(x, w, padding="same")
        fetches = [y, *gc.gradients(gc.reduce_sum(y * y), [x, w])]
    return graph, (x, w), fetches, shape


@pytest.mark.parametrize(
    ("sizes", "window", "multiplier", "dtype", "convolutions"),
    [
        ((2, 6, 5, 4), (3, 3), 1, "float32", 0),
        ((2, 6, 5, 4), (3, 3), 2, "float32", 3),
        ((1, 9, 9, 4), (8, 8), 1, "float32", 3),
        ((2, 6, 5, 4), (3, 3), 1, "bfloat16", 3),
    ],
)
def test_where_it_is_used(
    sizes: Any, window: Any, multiplier: int, dtype: str, convolutions: int
) -> None:
    graph, (x, w), fetches, shape = step(sizes, window, multiplier, dtype)
    options = gc.CompileOptions(cache=None)
    compiled = gc.compile(graph, fetches, {x: sizes, w: shape}, options=options)
    assert compiled.stablehlo().count("stablehlo.convolution") == convolutions
    xs, ws = RNG.normal(size=sizes), RNG.normal(size=shape)
    got, _ = compiled(compiled.init(), {x: xs, w: ws})
    attrs: Any = {
        "strides": (1, 1),
        "padding": [((n - 1) // 2, n // 2) for n in window],
        "dilation": (1, 1),
    }

    def loss(x: Any, w: Any) -> Any:
        y = by_jax(x, w.reshape(*window, 1, -1), attrs)
        return (y * y).sum(), y

    with jax.enable_x64(True):
        (_, y), (dx, dw) = jax.value_and_grad(loss, (0, 1), has_aux=True)(xs, ws)
    for one, other in zip(got, (y, dx, dw), strict=True):
        assert_near(one, other, rtol=2e-2 if dtype == "bfloat16" else 2e-5)


@pytest.mark.parametrize(
    ("platforms", "convolves"), [(["cpu"], False), (["cuda"], True), (["cpu", "cuda"], True)]
)
def test_other_platforms_convolve(platforms: list[str], convolves: bool) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2, 6, 5, 4), name="x")
        y = gc.nn.depthwise_conv(x, gc.constant(RNG.normal(size=(3, 3, 4, 1)).astype("f")))
    function, state = gc.to_jax(graph, y)
    given = {"x": jax.ShapeDtypeStruct((2, 6, 5, 4), np.float32)}
    exported = jax.export.export(jax.jit(function), platforms=platforms)(state, given)
    assert ("stablehlo.convolution" in exported.mlir_module()) == convolves


def test_derivatives_of_the_jax_function() -> None:
    """JAX differentiates the form for CPUs."""
    with gc.Graph() as graph:
        x = gc.placeholder((1, 6, 5, 2), name="x")
        w = gc.placeholder((3, 3, 2, 1), name="w")
        y = gc.reduce_sum(gc.nn.depthwise_conv(x, w, strides=2, padding="same") ** 2)
        want = gc.gradients(y, [x, w])
    function, state = gc.to_jax(graph, y)
    feeds = {"x": RNG.normal(size=x.shape), "w": RNG.normal(size=w.shape)}
    feeds = {name: value.astype("f") for name, value in feeds.items()}
    got = jax.grad(lambda given: function(state, given)[0])(feeds)
    ours = gc.Session(graph).run(want, feeds)
    for one, other in zip((got["x"], got["w"]), ours, strict=True):
        assert_near(one, other, rtol=1e-5)


def test_open_sizes_in_an_artifact(tmp_path: Path) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder(("batch", "h", 5, 4), name="x")
        kernel = gc.constant(RNG.normal(size=(3, 3, 4, 1)).astype("f"))
        y = gc.nn.depthwise_conv(x, kernel, padding="same")
    session = gc.Session(graph)
    signatures = {"predict": gc.Signature({"x": x}, {"y": y})}
    gc.save(session, tmp_path / "m.gcx", signatures=signatures, platforms=["cpu", "cuda"])
    for size in (6, 9):
        value = RNG.normal(size=(3, size, 5, 4)).astype("f")
        got = gc.load(tmp_path / "m.gcx").signatures["predict"](x=value)["y"]
        assert_near(got, session.run(y, {x: value}), rtol=1e-6)
