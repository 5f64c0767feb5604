"""Rules of reductions, cumulative reductions and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import numpy as jnp
from jax.extend.core import jaxpr_as_fun

from graphc.ir.dims import product
from graphc.ir.dtypes import is_complex
from graphc.ir.node import Tensor
from graphc.jaxpr.equation import COLLECTIVES, Equation, Results, Rule
from graphc.jaxpr.primitives import primitive
from graphc.jaxpr.shapes import inverse, transposed
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.core.emit import emit_node, emit_one
from graphc.ops.elementwise.complex_parts import imag, make_complex, real
from graphc.ops.reductions.approximate import approx_top_k
from graphc.ops.reductions.reduction_rules import may_be_empty
from graphc.ops.reductions.sorting import SORT, top_k


def _reduction(name: str) -> Rule:
    op = CATALOGUE[name]

    def rule(eqn: Equation, x: Tensor) -> Tensor:
        axes = tuple(sorted(eqn.ints("axes")))
        # JAX's extremes have a value for no elements too.
        empty: dict[str, Any] = (
            {"allow_empty": may_be_empty(x, axes)} if "allow_empty" in op.attrs else {}
        )
        return emit_one(op, (x,), axes=axes, keepdims=False, **empty) if axes else x

    return rule


def _bool_reduction(name: str) -> Rule:
    reduce = _reduction(name)

    def rule(eqn: Equation, x: Tensor) -> Any:
        return reduce(eqn, x) if x.dtype.kind == "b" else primitive(eqn, x)  # bit by bit

    return rule


def _over_mapped_axes(name: str) -> Rule:
    """A collective over axes of `jax.vmap`, which are axes of the operand."""
    op = CATALOGUE[name]

    def rule(eqn: Equation, *operands: Tensor) -> Sequence[Tensor]:
        axes = eqn.params["axes"]
        if eqn.params["axis_index_groups"] is not None or any(isinstance(a, str) for a in axes):
            eqn.refuse(*COLLECTIVES)
        places = tuple(sorted(map(int, axes)))
        return [emit_one(op, (x,), axes=places, keepdims=False) for x in operands]

    return rule


def _position(name: str) -> Rule:
    op = CATALOGUE[name]

    def rule(eqn: Equation, x: Tensor) -> Tensor:
        (axis,) = eqn.ints("axes")
        return emit_one(op, (x,), axis=axis, dtype=eqn.type.dtype)

    return rule


def _running(name: str) -> Rule:
    op = CATALOGUE[name]

    def rule(eqn: Equation, x: Tensor) -> Tensor:
        params = eqn.params
        return emit_one(op, (x,), axis=int(params["axis"]), reverse=bool(params["reverse"]))

    return rule


def _sort(eqn: Equation, *operands: Tensor) -> Sequence[Tensor]:
    """Complex numbers are sorted by their real parts, then by their imaginary ones, as in JAX."""
    axis, keys = int(eqn.params["dimension"]), int(eqn.params["num_keys"])
    is_split = [is_complex(x.dtype) for x in operands]
    count = keys + sum(is_split[:keys])
    parts = [
        part
        for x, split in zip(operands, is_split, strict=True)
        for part in ((real(x), imag(x)) if split else (x,))
    ]
    found = iter(emit_node(SORT, parts, axis=axis, keys=count).outputs)
    return [make_complex(next(found), next(found)) if split else next(found) for split in is_split]


def _top_k(eqn: Equation, x: Tensor) -> Sequence[Tensor]:
    axis = int(eqn.params["axis"])
    order = (*[i for i in range(x.ndim) if i != axis], axis)
    results = top_k(transposed(x, order), int(eqn.params["k"]))
    return [transposed(y, inverse(order)) for y in results]


def _approx_top_k(eqn: Equation, x: Tensor) -> Results:
    params = eqn.params
    k, alone = int(params["k"]), int(params["reduction_input_size_override"]) <= 0
    if not (k > 0 and alone and params["aggregate_to_topk"]):
        return primitive(eqn, x)  # a part of a distributed search
    axis = int(params["reduction_dimension"]) % x.ndim
    order = (*[i for i in range(x.ndim) if i != axis], axis)
    found = approx_top_k(
        transposed(x, order), k, float(params["recall_target"]), smallest=not params["is_max_k"]
    )
    return [transposed(y, inverse(order)) for y in found]


def _reduce(eqn: Equation, *operands: Tensor) -> Sequence[Tensor | None]:
    """A reduction by a function, which is associative: pairs are joined until one value is left."""
    count = len(operands) // 2
    axes = eqn.ints("dimensions")
    length = product([operands[0].shape[axis] for axis in axes])
    if not isinstance(length, int):
        eqn.refuse("over a named size is not imported", "give the placeholders ints")
    joined = jax.vmap(jaxpr_as_fun(eqn.params["jaxpr"]))

    def join(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        shape = jnp.broadcast_shapes(*[x.shape for x in (*left, *right)])
        flat = [jnp.broadcast_to(x, shape).reshape(-1) for x in (*left, *right)]
        return [y.reshape(shape) for y in joined(*flat)]

    def reduced(*values: Any) -> list[Any]:
        rows = [jnp.moveaxis(x, axes, range(len(axes))) for x in values[:count]]
        rows = [x.reshape(length, *x.shape[len(axes) :]) for x in rows]
        while rows[0].shape[0] > 1:
            half = rows[0].shape[0] // 2
            pairs = join([x[:half] for x in rows], [x[half : 2 * half] for x in rows])
            rows = [jnp.concatenate([y, x[2 * half :]]) for x, y in zip(rows, pairs, strict=True)]
        first = [jnp.broadcast_to(x, rows[0].shape[1:]) for x in values[count:]]
        return join(first, [x[0] for x in rows]) if length else first

    jaxpr = jax.make_jaxpr(reduced)(*[eqn.symbols.struct(t.type) for t in operands])
    return eqn.inline(jaxpr, operands, eqn.used)


RULES: dict[str, Rule] = {
    "reduce": _reduce,
    "approx_top_k": _approx_top_k,
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "cumlogsumexp": _running("CumLogSumExp"),
    "cummax": _running("CumMax"),
    "cummin": _running("CumMin"),
    "cumprod": _running("CumProd"),
    "cumsum": _running("CumSum"),
    "pmax": _over_mapped_axes("ReduceMax"),
    "pmin": _over_mapped_axes("ReduceMin"),
    "psum": _over_mapped_axes("ReduceSum"),
    "reduce_and": _bool_reduction("ReduceAll"),
    "reduce_max": _reduction("ReduceMax"),
    "reduce_min": _reduction("ReduceMin"),
    "reduce_or": _bool_reduction("ReduceAny"),
    "reduce_prod": _reduction("ReduceProd"),
    "reduce_sum": _reduction("ReduceSum"),
    "sort": _sort,
    "top_k": _top_k,
}
