"""Convolutions, pooling, norms, losses and dropout on named sizes: types, symbolic export."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import export, lax

import graphc as gc
from graphc.autodiff import gradients
from graphc.build.placeholders import placeholder
from graphc.errors import ShapeError
from graphc.ir.graph import Graph
from graphc.ir.program import Program
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import FUNCTIONS as F
from tests.laws.harness import functional
from tests.near import assert_near

STATE = [np.array([0, 7], np.uint32), np.zeros((), np.int32)]


def shape_of(tensor) -> str:
    return ", ".join(map(str, tensor.shape))


def test_types() -> None:
    with Graph() as graph:
        x = placeholder(("n", "h", "w", 4), "float32")
        w = placeholder((3, 3, 4, 8), "float32")
        y = F.conv2d(x, w, padding="same")
        assert shape_of(y) == "n, h, w, 8"
        assert shape_of(F.max_pool(y, 2)) == "n, floordiv(h, 2), floordiv(w, 2), 8"
        logits = placeholder(("a", 10), "float32")
        labels = placeholder(("b",), "int32")
        assert shape_of(F.sparse_softmax_cross_entropy(logits, labels)) == "a"
        assert graph.constraints.equal(logits.shape[0], labels.shape[0])


def test_same_padding_needs_the_size() -> None:
    with Graph():
        x = placeholder((None, "h", 8, 4), "float32")
        with pytest.raises(ShapeError, match="depends on the size h, which is not known yet"):
            F.max_pool(x, 3, 2, "same")


def test_same_padding_of_multiples_of_the_stride() -> None:
    with Graph() as graph:
        x = placeholder((1, "4*h", "4*w", 3), "float32")
        w = placeholder((3, 3, 3, 8), "float32")
        y = F.max_pool(F.conv2d(x, w, strides=2, padding="same"), 3, 2, "same")
        assert shape_of(y) == "1, h, w, 8"
    rng = np.random.default_rng(0)
    image, kernel = (rng.normal(size=s).astype(np.float32) for s in ((1, 8, 12, 3), (3, 3, 3, 8)))
    channels = ("NHWC", "HWIO", "NHWC")
    with gc.Session(graph) as session:
        got = session.run(y, {x: image, w: kernel})
    want = lax.conv_general_dilated(image, kernel, (2, 2), "SAME", dimension_numbers=channels)
    want = lax.reduce_window(want, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    assert_near(got, want, rtol=1e-5)


def network(x, w, scale, labels):
    """A loss through every operator of these families that has a batch axis."""
    y = F.relu(F.conv2d(x, w, padding="same"))
    y = F.batch_norm_training(y, scale, scale)[0]
    y = F.dropout(F.max_pool(y, 2), 0.25, seed=1)
    y = F.max_pool(y, 2, 1, padding=1, dilation=2)
    y = F.avg_pool(F.gelu(F.layer_norm(y, scale, scale)), 2, 1, padding=((1, 0), (0, 1)))
    y = y + F.attention(y, y, y, causal=True, dropout=0.25, seed=3)  # columns as heads
    logits = F.reduce_sum(F.softmax(y) + F.log_softmax(y), axis=(1, 2))
    logits = logits + gc.random.normal(logits.shape, seed=2)
    sigmoid = F.sigmoid_cross_entropy(logits, 0.5)
    dense = F.softmax_cross_entropy(logits, F.softmax(-logits))
    sparse = F.sparse_softmax_cross_entropy(logits, labels)
    return F.reduce_mean(sigmoid) + F.reduce_mean(dense + sparse)


def build(batch) -> Program:
    graph = Graph()
    shapes = [(batch, 8, 8, 3), (3, 3, 3, 4), (4,)]
    with graph:
        xs = [placeholder(shape, "float32") for shape in shapes]
        xs.append(placeholder((batch,), "int32"))
        loss = network(*xs)
        found = gradients(loss, xs[:3])
    return functional(graph, [loss, *found], xs)


def test_symbolic_export() -> None:
    """One export serves every batch size, with the values of the program for that size."""
    (n,) = export.symbolic_shape("n")
    specs = [
        jax.ShapeDtypeStruct((n, 8, 8, 3), np.float32),
        jax.ShapeDtypeStruct((3, 3, 3, 4), np.float32),
        jax.ShapeDtypeStruct((4,), np.float32),
        jax.ShapeDtypeStruct((n,), np.int32),
        *[jax.ShapeDtypeStruct(s.shape, s.dtype) for s in STATE],
    ]
    function = jax.jit(to_function(build("n"), sizes={"n": n}))
    exported = export.export(function, platforms=("cpu", "cuda"))(*specs)

    rng = np.random.default_rng(0)
    shapes = [(3, 8, 8, 3), (3, 3, 3, 4), (4,)]
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    arrays.append(rng.integers(0, 4, 3).astype(np.int32))
    wanted = jax.jit(to_function(build(3)))(*arrays, *STATE)
    for a, b in zip(exported.call(*arrays, *STATE), wanted, strict=True):
        assert_near(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_no_elements(name: str) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((3, "n"), name="x")
        y = getattr(gc, name)(x, axis=1)
        slope = gc.gradients(gc.sum(y), [x])[0]
    session = gc.Session(graph)
    for count in (0, 2):
        got, found = session.run([y, slope], {x: np.zeros((3, count), np.float32)})
        assert got.shape == found.shape == (3, count)
