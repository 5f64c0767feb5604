"""Rules of sorting."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Rule
from graphc.jaxpr.primitives import primitive
from graphc.jaxpr.shapes import inverse, transposed
from graphc.ops.core.emit import emit_node
from graphc.ops.reductions.approximate import approx_top_k
from graphc.ops.reductions.sorting import SORT, top_k


def _sort(eqn: Equation, *operands: Tensor) -> Sequence[Tensor]:
    axis, keys = int(eqn.params["dimension"]), int(eqn.params["num_keys"])
    return emit_node(SORT, operands, axis=axis, keys=keys).outputs


def _top_k(eqn: Equation, x: Tensor) -> Sequence[Tensor]:
    axis = int(eqn.params["axis"])
    order = (*[i for i in range(x.ndim) if i != axis], axis)
    results = top_k(transposed(x, order), int(eqn.params["k"]))
    return [transposed(y, inverse(order)) for y in results]


def _approx_top_k(eqn: Equation, x: Tensor) -> Sequence[Tensor]:
    params = eqn.params
    k, alone = int(params["k"]), int(params["reduction_input_size_override"]) <= 0
    if not (k > 0 and alone and params["aggregate_to_topk"]):
        return primitive(eqn, x)  # part of a search that is distributed
    axis = int(params["reduction_dimension"]) % x.ndim
    order = (*[i for i in range(x.ndim) if i != axis], axis)
    found = approx_top_k(
        transposed(x, order), k, float(params["recall_target"]), smallest=not params["is_max_k"]
    )
    return [transposed(y, inverse(order)) for y in found]


RULES: dict[str, Rule] = {"approx_top_k": _approx_top_k, "sort": _sort, "top_k": _top_k}
