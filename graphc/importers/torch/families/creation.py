"""Tensors that are made: filled ones, ranges, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.torch.call import Call, Rule, within_reason
from graphc.ir.dims import DimExpr
from graphc.ops.core.emit import dim_value


def _full(call: Call, shape: Any, value: Any, **options: Any) -> Any:
    filled = value if hasattr(value, "dtype") else call.tensor(value, call.dtype)
    return ops.broadcast_to(call.own(filled), list(shape))


def _filled(value: Any) -> Rule:
    return lambda call, shape, *rest, **options: _full(call, shape, value)


def _filled_like(value: Any) -> Rule:
    return lambda call, x, **options: _full(call, x.shape, value)


def _new_filled(value: Any) -> Rule:
    return lambda call, x, shape, *rest, **options: _full(call, shape, value)


def _arange(call: Call, start: Any, end: Any = None, step: Any = 1, **options: Any) -> Any:
    if end is None:
        start, end = 0, start
    if not any(isinstance(v, DimExpr) for v in (start, end, step)):
        within_reason(int((end - start) // step), "elements")
        return ops.constant(np.arange(start, end, step, dtype=call.dtype))
    count = end - start if step == 1 else -((start - end) // step)
    steps = ops.arange(count, dtype=call.dtype)
    first = dim_value(start, call.dtype) if isinstance(start, DimExpr) else start
    return steps * step + first if step != 1 else steps + first


def _linspace(call: Call, start: Any, end: Any, count: int, **options: Any) -> Any:
    return ops.cast(ops.linspace(start, end, count, dtype="float64"), call.dtype)


def _eye(call: Call, rows: Any, columns: Any = None, **options: Any) -> Any:
    return ops.eye(rows, columns if isinstance(columns, (int, DimExpr)) else None, 0, call.dtype)


def _fill(call: Call, x: Any, value: Any) -> Any:
    return _full(call, x.shape, value)


def _tril_indices(call: Call, rows: int, columns: int, offset: int = 0, **options: Any) -> Any:
    within_reason(rows * columns, "elements")
    return ops.constant(np.stack(np.tril_indices(rows, offset, columns)))


def _triu_indices(call: Call, rows: int, columns: int, offset: int = 0, **options: Any) -> Any:
    within_reason(rows * columns, "elements")
    return ops.constant(np.stack(np.triu_indices(rows, offset, columns)))


def _window(function: Callable[..., Any]) -> Rule:
    def rule(
        call: Call, length: int, periodic: bool = True, *parameters: float, **options: Any
    ) -> Any:
        within_reason(length, "elements")
        if length <= 1:
            return ops.ones((length,), call.dtype)
        return ops.constant(function(length + periodic, *parameters)[:length].astype(call.dtype))

    return rule


def _hamming(length: int, alpha: float = 0.54, beta: float = 0.46) -> Any:
    return alpha - beta * np.cos(2 * np.pi * np.arange(length) / (length - 1))


_WINDOWS: Final[dict[str, Callable[..., Any]]] = {
    "bartlett": np.bartlett,
    "blackman": np.blackman,
    "hamming": _hamming,
    "hann": np.hanning,
    "kaiser": lambda length, beta=12.0: np.kaiser(length, beta),
}
_OVERLOADS: Final = ("default", "periodic", "periodic_alpha", "periodic_alpha_beta", "beta")

RULES: Final[dict[str, Rule]] = {
    **{
        f"aten.{name}_window.{overload}": _window(function)
        for name, function in _WINDOWS.items()
        for overload in _OVERLOADS
    },
    "aten.arange.default": _arange,
    "aten.arange.start": _arange,
    "aten.arange.start_step": _arange,
    "aten.empty.memory_format": _filled(0),
    "aten.empty_like.default": _filled_like(0),
    "aten.empty_permuted.default": _filled(0),
    "aten.empty_strided.default": _filled(0),
    "aten.eye.default": _eye,
    "aten.eye.m": _eye,
    "aten.fill.Scalar": _fill,
    "aten.fill.Tensor": _fill,
    "aten.full.default": _full,
    "aten.full_like.default": lambda call, x, value, **options: _full(call, x.shape, value),
    "aten.linspace.default": _linspace,
    "aten.new_empty.default": _new_filled(0),
    "aten.new_empty_strided.default": _new_filled(0),
    "aten.new_full.default": lambda call, x, shape, value, **options: _full(call, shape, value),
    "aten.new_ones.default": _new_filled(1),
    "aten.new_zeros.default": _new_filled(0),
    "aten.one_hot.default": lambda call, x, classes=-1: ops.one_hot(x, classes, "int64"),
    "aten.ones.default": _filled(1),
    "aten.ones_like.default": _filled_like(1),
    "aten.scalar_tensor.default": lambda call, value, **options: call.own(value),
    "aten.tril.default": lambda call, x, k=0: ops.tril(x, k),
    "aten.tril_indices.default": _tril_indices,
    "aten.triu.default": lambda call, x, k=0: ops.triu(x, k),
    "aten.triu_indices.default": _triu_indices,
    "aten.zeros.default": _filled(0),
    "aten.zeros_like.default": _filled_like(0),
}
