"""Rules of reductions and cumulative reductions."""

from __future__ import annotations

from typing import Any

from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Rule
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.core.emit import emit_one


def _reduction(name: str) -> Rule:
    op = CATALOGUE[name]

    def rule(eqn: Equation, x: Tensor) -> Tensor:
        axes = tuple(sorted(eqn.ints("axes")))
        return emit_one(op, (x,), axes=axes, keepdims=False) if axes else x

    return rule


def _bool_reduction(name: str) -> Rule:
    reduce = _reduction(name)

    def rule(eqn: Equation, x: Tensor) -> Any:
        if x.dtype.kind != "b":
            eqn.refuse(f"of {x.dtype.name} (bit by bit) is not imported")
        return reduce(eqn, x)

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


RULES: dict[str, Rule] = {
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "cumlogsumexp": _running("CumLogSumExp"),
    "cummax": _running("CumMax"),
    "cummin": _running("CumMin"),
    "cumprod": _running("CumProd"),
    "cumsum": _running("CumSum"),
    "reduce_and": _bool_reduction("ReduceAll"),
    "reduce_max": _reduction("ReduceMax"),
    "reduce_min": _reduction("ReduceMin"),
    "reduce_or": _bool_reduction("ReduceAny"),
    "reduce_prod": _reduction("ReduceProd"),
    "reduce_sum": _reduction("ReduceSum"),
}
