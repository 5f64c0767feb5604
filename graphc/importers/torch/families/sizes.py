"""Sizes and numbers of Python: arithmetic on them, and checks, which need no nodes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from graphc import ops
from graphc.importers.torch.call import Call, Refused, Rule
from graphc.ir.node import Tensor

_BITS: Final = 200  # of a number; sizes have 64 at most


def _plain(function: Callable[..., Any]) -> Rule:
    def rule(call: Call, *args: Any) -> Any:
        found = function(*args)
        if isinstance(found, int) and found.bit_length() > _BITS:
            raise Refused(f"gives a number of {found.bit_length()} bits")
        return found

    return rule


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and exponent > _BITS:
        raise Refused(f"with the exponent {exponent} is not supported")
    return operator.pow(base, exponent)


def _equality(plain: Callable[[Any, Any], Any], of_tensors: Callable[[Any, Any], Any]) -> Rule:
    """Numbers may be values of tensors, and `==` of those is the identity."""

    def rule(call: Call, x: Any, y: Any) -> Any:
        known = not isinstance(x, Tensor) and not isinstance(y, Tensor)
        return plain(x, y) if known else of_tensors(call.tensor(x), call.tensor(y))

    return rule


def _chosen(call: Call, condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, bool):
        return yes if condition else no
    return ops.where(call.tensor(condition), call.tensor(yes), call.tensor(no))


def _nothing(call: Call, *args: Any, **options: Any) -> Any:
    return None


def _resized(call: Call, x: Any, shape: Any, **options: Any) -> Any:
    """The first elements in another shape."""
    wanted, given = math.prod(shape), math.prod(x.shape)
    if not isinstance(wanted, int) or not isinstance(given, int) or wanted > given:
        raise Refused("to more elements is not supported: they would have no values")
    return ops.reshape(ops.ravel(x)[:wanted], tuple(shape))


RULES: Final[dict[str, Rule]] = {
    **{
        name: _plain(getattr(operator, name))
        for name in (
            *("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "and_", "or_"),
            *("lt", "le", "gt", "ge", "getitem", "not_"),
        )
    },
    "eq": _equality(operator.eq, ops.equal),
    "ne": _equality(operator.ne, ops.not_equal),
    "pow": _plain(_power),
    "aten.sym_numel.default": lambda call, x: math.prod(x.shape),
    "aten.resize_.default": _resized,
    "aten.sym_is_contiguous.default": lambda call, x, *rest: True,  # tensors have no other layout
    "aten.sym_storage_offset.default": lambda call, x: 0,
    "aten.sym_stride.int": lambda call, x, axis: math.prod(x.shape[axis % x.ndim + 1 :]),
    **{
        f"aten.{name}.default": lambda call, x: ops.reshape(x, ())
        for name in ("_local_scalar_dense", "item")
    },
    "aten.sym_size.int": lambda call, x, axis: x.shape[axis],
    "aten._assert_async.msg": _nothing,
    "aten._assert_scalar.default": _nothing,
    "aten.sym_constrain_range.default": _nothing,
    "aten.sym_constrain_range_for_size.default": _nothing,
    "sym_float": _plain(float),
    "sym_int": _plain(int),
    "sym_ite": _chosen,
    "sym_max": _plain(max),
    "sym_min": _plain(min),
}
