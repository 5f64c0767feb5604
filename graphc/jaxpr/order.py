"""Rules of sorting."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.node import Tensor
from graphc.jaxpr.equation import Equation, Rule
from graphc.jaxpr.shapes import inverse, transposed
from graphc.ops.emit import emit_node
from graphc.ops.sorting import SORT, top_k


def _sort(eqn: Equation, *operands: Tensor) -> Sequence[Tensor]:
    axis, keys = int(eqn.params["dimension"]), int(eqn.params["num_keys"])
    return emit_node(SORT, operands, axis=axis, keys=keys).outputs


def _top_k(eqn: Equation, x: Tensor) -> Sequence[Tensor]:
    axis = int(eqn.params["axis"])
    order = (*[i for i in range(x.ndim) if i != axis], axis)
    results = top_k(transposed(x, order), int(eqn.params["k"]))
    return [transposed(y, inverse(order)) for y in results]


RULES: dict[str, Rule] = {"sort": _sort, "top_k": _top_k}
