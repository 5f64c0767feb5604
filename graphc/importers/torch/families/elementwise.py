"""Arithmetic, comparisons, bits, activations, casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.torch.call import Call, Rule
from graphc.importers.torch.dtypes import dtype_of
from graphc.importers.torch.families.slopes import at_least, at_most, magnitude
from graphc.ir.node import Tensor


def unary(function: Callable[[Any], Any]) -> Rule:
    """A function of one tensor, computed in the dtype of the result if that is floating."""

    def rule(call: Call, x: Any) -> Any:
        if isinstance(x, Tensor) and x.dtype.kind == "c":  # its result may be real
            return function(x)
        return function(call.own(x) if call.dtype.kind in "fcV" else call.tensor(x))

    return rule


def _same(function: Callable[[Any], Any]) -> Rule:
    """A function of one tensor, in its own dtype."""
    return lambda call, x, *rest, **options: function(call.tensor(x))


def _sign(x: Any) -> Any:
    return x if x.dtype.kind == "b" else ops.sign(x)


def _signbit(x: Any) -> Any:
    return ops.zeros_like(x) if x.dtype.kind == "b" else ops.signbit(x)


def _binary(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda call, x, y: function(call.own(x), call.own(y))


def _compared(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda call, x, y: function(*together(call, x, y))


def together(call: Call, x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands in the dtype in which PyTorch compares them."""
    given = [v for v in (x, y) if isinstance(v, Tensor)]
    dtype = given[0].dtype
    for v in given[1:]:
        dtype = _wider(given[0], v)
    for v in (x, y):
        if isinstance(v, float) and dtype.kind in "iub":
            dtype = np.dtype(np.float32)
        if isinstance(v, int) and not isinstance(v, bool) and dtype.kind == "b":
            dtype = np.dtype(np.int64)
    return call.tensor(x, dtype), call.tensor(y, dtype)


def _wider(a: Tensor, b: Tensor) -> np.dtype[Any]:
    order = "biufVc"
    kinds = [order.index(t.dtype.kind) for t in (a, b)]
    if (a.ndim == 0) != (b.ndim == 0) and min(kinds) // 3 == max(kinds) // 3:
        return (b if a.ndim == 0 else a).dtype
    if a.dtype.kind in "biuf" and b.dtype.kind in "biuf":
        if "f" in (a.dtype.kind, b.dtype.kind):
            return max((t.dtype for t in (a, b) if t.dtype.kind == "f"), key=lambda d: d.itemsize)
        return np.promote_types(a.dtype, b.dtype)
    return a.dtype if kinds[0] >= kinds[1] else b.dtype


def _add(call: Call, x: Any, y: Any, *, alpha: Any = 1) -> Any:
    if call.dtype.kind == "b":
        return ops.logical_or(call.own(x), call.own(y))
    y = call.own(y)
    return call.own(x) + (y if alpha == 1 else y * call.tensor(alpha, call.dtype))


def _sub(call: Call, x: Any, y: Any, *, alpha: Any = 1) -> Any:
    y = call.own(y)
    return call.own(x) - (y if alpha == 1 else y * call.tensor(alpha, call.dtype))


def _rsub(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _sub(call, y, x, alpha=alpha)


def _mul(call: Call, x: Any, y: Any) -> Any:
    if call.dtype.kind == "b":
        return ops.logical_and(call.own(x), call.own(y))
    return call.own(x) * call.own(y)


def _div(call: Call, x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    x, y = call.own(x), call.own(y)
    if rounding_mode is None:
        return ops.divide(x, y)
    if rounding_mode == "floor":
        return ops.floor_divide(x, y)
    if call.dtype.kind in "iu":
        floor = ops.floor_divide(x, y)
        inexact = ops.logical_and(ops.not_equal(floor * y, x), ops.less(floor, 0))
        return floor + ops.cast(inexact, call.dtype)
    return ops.trunc(ops.divide(x, y))


def _pow(call: Call, x: Any, y: Any) -> Any:
    if isinstance(y, (int, float)) and y == 2:
        return ops.square(call.own(x))
    if isinstance(y, float) and y == 0.5:
        return ops.sqrt(call.own(x))
    if isinstance(y, int) and isinstance(x, Tensor):
        return ops.power(call.own(x), y)
    return ops.power(call.own(x), call.own(y))


def _clamp(call: Call, x: Any, low: Any = None, high: Any = None, **bounds: Any) -> Any:
    low, high = bounds.get("min", low), bounds.get("max", high)
    x = call.own(x)
    if low is not None:
        x = (ops.maximum if isinstance(low, Tensor) else at_least)(x, call.own(low))
    if high is not None:
        x = (ops.minimum if isinstance(high, Tensor) else at_most)(x, call.own(high))
    return x


def _where(call: Call, condition: Any, x: Any, y: Any) -> Any:
    return ops.where(condition, call.own(x), call.own(y))


def _to(call: Call, x: Any, *args: Any, **kwargs: Any) -> Any:
    return call.own(x)


def _lerp(call: Call, start: Any, end: Any, weight: Any) -> Any:
    return start + call.own(weight) * (end - start)


def _addcmul(call: Call, x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return call.own(x) + call.tensor(value, call.dtype) * call.own(a) * call.own(b)


def _addcdiv(call: Call, x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return call.own(x) + call.tensor(value, call.dtype) * (call.own(a) / call.own(b))


def _isclose(
    call: Call, x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, nan: bool = False
) -> Any:
    return ops.isclose(x, y, rtol=rtol, atol=atol, equal_nan=nan)


def _nan_to_num(call: Call, x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    return ops.nan_to_num(x, nan=nan or 0.0, posinf=posinf, neginf=neginf)


def _shift(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda call, x, y: function(call.own(x), call.own(y))


def _to_dtype(call: Call, x: Any, dtype: Any, *rest: Any, **options: Any) -> Any:
    return ops.cast(call.tensor(x), dtype_of(dtype))


def _polar(call: Call, size: Any, angle: Any) -> Any:
    return ops.cast(size * ops.cos(angle), call.dtype) + 1j * ops.cast(
        size * ops.sin(angle), call.dtype
    )


def _view_as_complex(call: Call, x: Any) -> Any:
    from graphc.ops.elementwise.complex_parts import complex as join

    return join(x[..., 0], x[..., 1])


_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "abs": magnitude,
    "acos": ops.arccos,
    "acosh": ops.arccosh,
    "asin": ops.arcsin,
    "asinh": ops.arcsinh,
    "atan": ops.arctan,
    "atanh": ops.arctanh,
    "ceil": ops.ceil,
    "cos": ops.cos,
    "cosh": ops.cosh,
    "deg2rad": ops.deg2rad,
    "digamma": ops.digamma,
    "erf": ops.erf,
    "erfc": ops.erfc,
    "erfinv": ops.erfinv,
    "exp": ops.exp,
    "exp2": ops.exp2,
    "expm1": ops.expm1,
    "floor": ops.floor,
    "frac": lambda x: x - ops.trunc(x),
    "i0": ops.i0,
    "lgamma": ops.gammaln,
    "log": ops.log,
    "log10": ops.log10,
    "log1p": ops.log1p,
    "log2": ops.log2,
    "neg": ops.negative,
    "positive": lambda x: x,
    "rad2deg": ops.rad2deg,
    "reciprocal": ops.reciprocal,
    "round": ops.rint,
    "rsqrt": ops.rsqrt,
    "sgn": _sign,
    "sign": _sign,
    "sin": ops.sin,
    "sinc": ops.sinc,
    "sinh": ops.sinh,
    "special_entr": ops.entr,
    "special_i0e": ops.i0e,
    "special_i1": ops.i1,
    "special_i1e": ops.i1e,
    "special_log_ndtr": ops.log_ndtr,
    "special_ndtri": ops.ndtri,
    "sqrt": ops.sqrt,
    "square": lambda x: ops.square(ops.cast(x, "int64") if x.dtype.kind == "b" else x),
    "tan": ops.tan,
    "trunc": ops.trunc,
}
_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "atan2": ops.arctan2,
    "gcd": ops.gcd,
    "lcm": ops.lcm,
    "special_xlog1py": ops.xlog1py,
    "special_zeta": ops.zeta,
    "bitwise_and": lambda x, y: (
        ops.logical_and(x, y) if x.dtype.kind == "b" else ops.bitwise_and(x, y)
    ),
    "bitwise_or": lambda x, y: (
        ops.logical_or(x, y) if x.dtype.kind == "b" else ops.bitwise_or(x, y)
    ),
    "bitwise_xor": lambda x, y: (
        ops.logical_xor(x, y) if x.dtype.kind == "b" else ops.bitwise_xor(x, y)
    ),
    "copysign": ops.copysign,
    "floor_divide": ops.floor_divide,
    "fmax": ops.fmax,
    "fmin": ops.fmin,
    "fmod": ops.fmod,
    "hypot": ops.hypot,
    "igamma": ops.gammainc,
    "igammac": ops.gammaincc,
    "ldexp": lambda x, n: x * ops.exp2(n),
    "logaddexp": ops.logaddexp,
    "logaddexp2": ops.logaddexp2,
    "maximum": ops.maximum,
    "minimum": ops.minimum,
    "nextafter": ops.nextafter,
    "remainder": ops.remainder,
    "xlogy": ops.xlogy,
}
_COMPARED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": ops.equal,
    "ge": ops.greater_equal,
    "gt": ops.greater,
    "le": ops.less_equal,
    "lt": ops.less,
    "ne": ops.not_equal,
}


def _as_bool(function: Callable[..., Any]) -> Rule:
    def rule(call: Call, *operands: Any) -> Any:
        return function(
            *(ops.not_equal(x, 0) if x.dtype.kind != "b" else x for x in map(call.tensor, operands))
        )

    return rule


def _bitwise_not(call: Call, x: Any) -> Any:
    return ops.logical_not(x) if x.dtype.kind == "b" else ops.bitwise_not(x)


def _all_overloads(name: str, rule: Rule, *overloads: str) -> dict[str, Rule]:
    return {f"aten.{name}.{overload}": rule for overload in overloads}


RULES: Final[dict[str, Rule]] = {
    **{f"aten.{name}.default": unary(function) for name, function in _UNARY.items()},
    **{
        f"aten.{name}.{overload}": _binary(function)
        for name, function in _BINARY.items()
        for overload in (
            "default",
            "Tensor",
            "Scalar",
            "Scalar_Tensor",
            "Tensor_Scalar",
            "Scalar_Self",
            "Scalar_Other",
            "self_scalar",
            "other_scalar",
        )
    },
    **{
        f"aten.{name}.{overload}": _compared(function)
        for name, function in _COMPARED.items()
        for overload in ("Tensor", "Scalar")
    },
    **_all_overloads("add", _add, "Tensor", "Scalar"),
    **_all_overloads("sub", _sub, "Tensor", "Scalar"),
    **_all_overloads("rsub", _rsub, "Tensor", "Scalar"),
    **_all_overloads("mul", _mul, "Tensor", "Scalar"),
    **_all_overloads("div", _div, "Tensor", "Scalar", "Tensor_mode", "Scalar_mode"),
    **_all_overloads("pow", _pow, "Tensor_Tensor", "Tensor_Scalar", "Scalar"),
    **_all_overloads("clamp", _clamp, "default", "Tensor"),
    **_all_overloads("where", _where, "self", "ScalarSelf", "ScalarOther", "Scalar"),
    **_all_overloads("lerp", _lerp, "Scalar", "Tensor"),
    **_all_overloads("bitwise_left_shift", _shift(ops.left_shift), "Tensor", "Tensor_Scalar"),
    **_all_overloads("bitwise_right_shift", _shift(ops.right_shift), "Tensor", "Tensor_Scalar"),
    **_all_overloads("__lshift__", _shift(ops.left_shift), "Tensor", "Scalar"),
    **_all_overloads("__rshift__", _shift(ops.right_shift), "Tensor", "Scalar"),
    **_all_overloads("to", _to, "dtype", "dtype_layout", "device", "other", "prim_Device"),
    "aten._assert_tensor_metadata.default": lambda call, *args, **options: None,
    "aten.complex.default": lambda call, re, im: ops.complex(re, im),
    "aten.frexp.Tensor": lambda call, x: ops.frexp(x),
    "aten.polygamma.default": lambda call, n, x: ops.polygamma(n, call.own(x)),
    "aten._conj.default": lambda call, x: ops.conj(x),
    "aten._to_copy.default": _to,
    "aten.addcdiv.default": _addcdiv,
    "aten.addcmul.default": _addcmul,
    "aten.alias.default": _same(lambda x: x),
    "aten.angle.default": _same(ops.angle),
    "aten.bitwise_not.default": _bitwise_not,
    "aten.clamp_max.default": lambda call, x, high: at_most(call.own(x), call.own(high)),
    "aten.clamp_min.default": lambda call, x, low: at_least(call.own(x), call.own(low)),
    "aten.clone.default": _same(lambda x: x),
    "aten._conj_physical.default": _same(ops.conj),
    "aten.conj_physical.default": _same(ops.conj),
    "aten.contiguous.default": _same(lambda x: x),
    "aten.copy.default": lambda call, x, source, *rest: ops.broadcast_to(call.own(source), x.shape),
    "aten.detach.default": _same(ops.stop_gradient),
    "aten.imag.default": _same(ops.imag),
    "aten.isclose.default": _isclose,
    "aten.isfinite.default": _same(ops.isfinite),
    "aten.isinf.default": _same(ops.isinf),
    "aten.isnan.default": _same(ops.isnan),
    "aten.lift_fresh_copy.default": _same(lambda x: x),
    "aten.logical_and.default": _as_bool(ops.logical_and),
    "aten.logical_not.default": _as_bool(ops.logical_not),
    "aten.logical_or.default": _as_bool(ops.logical_or),
    "aten.logical_xor.default": _as_bool(ops.logical_xor),
    "aten.nan_to_num.default": _nan_to_num,
    "aten.polar.default": _polar,
    "aten.real.default": _same(ops.real),
    "aten.round.decimals": lambda call, x, *, decimals: ops.round(x, decimals),
    "aten.signbit.default": _same(_signbit),
    "aten.type_as.default": _to,
    "aten.view_as_complex.default": _view_as_complex,
    "aten.view_as_real.default": lambda call, x: ops.stack([ops.real(x), ops.imag(x)], axis=-1),
    "prims.convert_element_type.default": _to_dtype,
    "aten.atan2.out": lambda call, y, x, *, out: ops.arctan2(y, x),
}
