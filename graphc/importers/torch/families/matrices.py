"""Matrix products and linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from graphc import ops
from graphc.importers.torch.call import Call, Refused, Rule
from graphc.importers.torch.families.reductions import vector_norm
from graphc.importers.torch.families.slopes import at_least, root
from graphc.ops import linalg


def _matmul(call: Call, x: Any, y: Any, *rest: Any) -> Any:
    return ops.matmul(call.own(x), call.own(y))


def _linear(call: Call, x: Any, w: Any, bias: Any = None) -> Any:
    y = ops.matmul(x, ops.transpose(w)) if w.ndim == 2 else ops.matmul(x, w)
    return y if bias is None else y + bias


def _scaled(call: Call, c: Any, product: Any, beta: Any, alpha: Any) -> Any:
    product = product if alpha == 1 else product * call.tensor(alpha, call.dtype)
    if beta == 0:
        return product
    return product + (c if beta == 1 else c * call.tensor(beta, call.dtype))


def _addmm(call: Call, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled(call, c, ops.matmul(a, b), beta, alpha)


def _addr(call: Call, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled(call, c, ops.outer(a, b), beta, alpha)


def _einsum(call: Call, equation: str, operands: Any, *, path: Any = None) -> Any:
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    if not arrow or "..." not in left or "..." in right:
        return ops.einsum(equation, *operands)
    # PyTorch sums the axes of `...` that the result does not have.
    y = ops.einsum(f"{left}->...{right}", *operands)
    return ops.reduce_sum(y, axis=tuple(range(y.ndim - len(right))))


def _bilinear(call: Call, a: Any, b: Any, w: Any, bias: Any = None) -> Any:
    y = ops.einsum("...i,oij,...j->...o", a, w, b)
    return y if bias is None else y + bias


def _distance(call: Call, a: Any, b: Any, p: float = 2.0, mode: Any = None) -> Any:
    return vector_norm(ops.expand_dims(a, -2) - ops.expand_dims(b, -3), p, (a.ndim,), False)


def _cosine(call: Call, a: Any, b: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    def norm(x: Any) -> Any:
        return at_least(root(ops.reduce_sum(ops.square(x), axis=dim, keepdims=True)), eps)

    a, b = a / norm(a), b / norm(b)
    return ops.reduce_sum(a * b, axis=dim)


def _grouped(
    call: Call, x: Any, w: Any, ends: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Rows of x [rows, in] times the matrix [in, out] of their group; `ends` says where each group
    ends."""
    if ends is None or x.ndim != 2 or bias is not None:
        raise Refused("is supported for rows in groups only")
    starts = ops.concatenate([ops.zeros((1,), ends.dtype), ends[:-1]])
    return ops.ragged_dot(x, w, ops.cast(ends - starts, "int32"))


def _plain(function: Callable[..., Any]) -> Rule:
    return lambda call, *args, **options: function(*args)


def _cross_of_three(call: Call, a: Any, b: Any, dim: int | None = None) -> Any:
    """The old form, along the first axis of size 3."""
    if dim is None:
        dim = next((i for i, size in enumerate(a.shape) if size == 3), -1)
    return ops.cross(a, b, axis=dim)


RULES: Final[dict[str, Rule]] = {
    "aten._cdist_forward.default": _distance,
    "aten._grouped_mm.default": _grouped,
    "transformers.grouped_mm_fallback.default": _grouped,
    "aten.addbmm.default": lambda call, c, a, b, beta=1, alpha=1: _scaled(
        call, c, ops.reduce_sum(ops.matmul(a, b), axis=0), beta, alpha
    ),
    "aten.addmm.default": _addmm,
    "aten.addmv.default": _addmm,
    "aten.addr.default": _addr,
    "aten.baddbmm.default": _addmm,
    "aten.bilinear.default": _bilinear,
    "aten.bmm.default": _matmul,
    "aten.cdist.default": _distance,
    "aten.cosine_similarity.default": _cosine,
    "aten.dot.default": _matmul,
    "aten.einsum.default": _einsum,
    "aten.cross.default": _cross_of_three,
    "aten.linalg_cross.default": lambda call, a, b, dim=-1: ops.cross(a, b, axis=dim),
    "aten.linear.default": _linear,
    "aten.linalg_det.default": _plain(linalg.det),
    "aten.linalg_inv.default": _plain(linalg.inv),
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.mv.default": _matmul,
    "aten.outer.default": _plain(ops.outer),
    "aten.trace.default": lambda call, x: ops.reduce_sum(ops.diagonal(x)),
    "aten.vdot.default": _plain(ops.vdot),
}
