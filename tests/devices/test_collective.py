"""The collective operators, which occur only in local programs."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from graphc.build.placeholders import placeholder
from graphc.errors import AttributeValueError, GraphError, LayoutError, ShapeError
from graphc.ir.graph import Graph
from graphc.ir.layouts import REPLICATED
from graphc.lowering.emit_jax import to_function
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.structure.collective import (
    OPS,
    all_gather,
    all_reduce,
    on_replica_zero,
    reduce_scatter,
    replica_index,
    shard_slice,
)
from tests.laws.harness import functional

REPLICAS = 4


def replicated(build, *arrays):
    """The results of `build` on each replica; arrays are sharded along their first axis."""
    graph = Graph()
    with graph:
        xs = [placeholder(a.shape[1:], a.dtype) for a in arrays]
        results = build(*xs)
    program = functional(graph, results, xs)
    function = to_function(program, axis_name="replica", replicas=REPLICAS)
    with jax.enable_x64(True):
        found = jax.pmap(function, axis_name="replica")(*arrays)
        values = [np.asarray(v) for v in found]
    for value, tensor in zip(values, results, strict=True):
        assert value.shape[1:] == tensor.shape and value.dtype == tensor.dtype
    return values


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int32", "uint8"])
def test_all_reduce(dtype: str) -> None:
    x = np.arange(12).reshape(REPLICAS, 3).astype(jax.numpy.dtype(dtype))
    total, largest, smallest = replicated(
        lambda x: [all_reduce(x), all_reduce(x, "max"), all_reduce(x, "min")], x
    )
    wide = x.astype(np.float64)
    for got, wanted in ((total, wide.sum(0)), (largest, wide.max(0)), (smallest, wide.min(0))):
        np.testing.assert_array_equal(got.astype(np.float64), np.tile(wanted, (REPLICAS, 1)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_extremes_take_nan_and_infinity_as_one_device_does(dtype: str) -> None:
    """XLA's own collective returns -inf for the maximum of NaNs."""
    nan, inf = np.nan, np.inf
    x = np.array(
        [
            [nan, nan, 1.0, -5.0, inf, -inf, -0.0],
            [nan, 2.0, 1.0, -7.0, 1.0, -3.0, -1.0],
            [-nan, 1.0, nan, -6.0, 3.0, -4.0, -2.0],
            [nan, 3.0, 5.0, -9.0, -inf, -6.0, 0.0],
        ]
    )
    largest, smallest = replicated(
        lambda x: [all_reduce(x, "max"), all_reduce(x, "min")], x.astype(jax.numpy.dtype(dtype))
    )
    np.testing.assert_array_equal(largest[1].astype(np.float64), x.max(0))
    np.testing.assert_array_equal(smallest[1].astype(np.float64), x.min(0))


def test_all_reduce_of_bool_and_complex() -> None:
    flags = np.array([[False, True], [False, True], [True, True], [False, True]])
    waves = (np.arange(8) * (1 + 2j)).reshape(REPLICAS, 2).astype(np.complex64)
    some, every, total = replicated(
        lambda f, w: [all_reduce(f, "max"), all_reduce(f, "min"), all_reduce(w)], flags, waves
    )
    assert some.tolist() == [[True, True]] * REPLICAS
    assert every.tolist() == [[False, True]] * REPLICAS
    np.testing.assert_array_equal(total[3], waves.sum(0))


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_gather_and_slice_are_inverse(dtype: str) -> None:
    x = (np.arange(24) % 5).reshape(REPLICAS, 2, 3).astype(dtype)
    rows, columns, back, piece = replicated(
        lambda x: [
            all_gather(x, 0, REPLICAS),
            all_gather(x, 1, REPLICAS),
            shard_slice(all_gather(x, 1, REPLICAS), 1, REPLICAS),
            shard_slice(all_gather(x, 0, REPLICAS), 0, 2 * REPLICAS),
        ],
        x,
    )
    for replica in range(REPLICAS):
        np.testing.assert_array_equal(rows[replica], x.reshape(8, 3))
        np.testing.assert_array_equal(columns[replica], np.concatenate(list(x), axis=1))
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(piece, x.reshape(8, 1, 3)[:REPLICAS])


def test_reduce_scatter_gives_each_its_piece_of_the_sum() -> None:
    x = np.arange(4 * 8 * 4).reshape(REPLICAS, 8, 4).astype(np.float64)
    rows, columns, whole = replicated(
        lambda x: [
            reduce_scatter(x, 0, REPLICAS),
            reduce_scatter(x, 1, REPLICAS),
            all_gather(reduce_scatter(x, 1, REPLICAS), 1, REPLICAS),
        ],
        x,
    )
    total = x.sum(0)
    np.testing.assert_array_equal(rows.reshape(8, 4), total)
    np.testing.assert_array_equal(np.concatenate(list(columns), axis=1), total)
    np.testing.assert_array_equal(whole, np.tile(total, (REPLICAS, 1, 1)))


def test_replica_index() -> None:
    x = np.ones((REPLICAS, 3), np.float32)
    index, only, total = replicated(
        lambda x: [replica_index(), on_replica_zero(x), all_reduce(on_replica_zero(x))], x
    )
    assert index.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(only, x * [[1], [0], [0], [0]])
    np.testing.assert_array_equal(total, x)


def test_bad_input() -> None:
    with Graph():
        x = placeholder((6, 3), "float32")
        with pytest.raises(ShapeError, match=r"cannot be cut into 4 equal pieces[\s\S]*test_coll"):
            shard_slice(x, 0, REPLICAS)
        with pytest.raises(ShapeError, match="cannot be cut into 4 equal pieces"):
            reduce_scatter(x, 0, REPLICAS)
        with pytest.raises(ShapeError, match="axis 2 is out of range"):
            all_gather(x, 2, REPLICAS)
        with pytest.raises(AttributeValueError, match='op must be "sum", "max" or "min"'):
            all_reduce(x, "mean")


def test_alone_and_replicated_twice() -> None:
    graph = Graph()
    with graph:
        x = placeholder((4,), "float32")
        y = all_reduce(x)
    function = to_function(functional(graph, [y], [x]))
    with pytest.raises(
        GraphError, match="needs a data-parallel strategy: this run has no replicas"
    ):
        jax.jit(function)(np.zeros(4, np.float32))
    with pytest.raises(LayoutError, match="already replicated"):
        graph.producer(y).op.layout(None, graph.producer(y), REPLICATED)
    assert all(CATALOGUE[op.name] is op and not op.differentiable for op in OPS)
