"""Matrix products, einsum, determinants."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Call, Rule
from graphc.ops import linalg


def _gemm(call: Call) -> Any:
    a, b = call.x(0), call.x(1)
    a = ops.transpose(a) if call.attr("transA", 0) else a
    b = ops.transpose(b) if call.attr("transB", 0) else b
    alpha, beta = call.attr("alpha", 1.0), call.attr("beta", 1.0)
    product = ops.matmul(a, b)
    if alpha != 1.0:
        product = product * _number(alpha, product)
    if not call.has(2):
        return product
    c = call.x(2)
    return product + (c if beta == 1.0 else c * _number(beta, c))


def _number(value: float, like: Any) -> Any:
    return int(value) if like.dtype.kind in "iu" else value


RULES: Final[dict[str, Rule]] = {
    "Det": lambda call: linalg.det(call.x()),
    "Einsum": lambda call: ops.einsum(call.attr("equation").replace(" ", ""), *call.xs()),
    "Gemm": _gemm,
    "MatMul": lambda call: ops.matmul(call.x(0), call.x(1)),
}
