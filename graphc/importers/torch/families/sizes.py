"""Sizes and numbers of Python: arithmetic on them, and checks, which need no nodes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from graphc.importers.torch.call import Call, Rule


def _plain(function: Callable[..., Any]) -> Rule:
    return lambda call, *args: function(*args)


def _nothing(call: Call, *args: Any, **options: Any) -> Any:
    return None


RULES: Final[dict[str, Rule]] = {
    **{
        name: _plain(getattr(operator, name))
        for name in (
            *("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow", "and_", "or_"),
            *("eq", "ne", "lt", "le", "gt", "ge", "getitem", "not_"),
        )
    },
    "aten.sym_numel.default": lambda call, x: math.prod(x.shape),
    "aten.sym_size.int": lambda call, x, axis: x.shape[axis],
    "aten._assert_async.msg": _nothing,
    "aten._assert_scalar.default": _nothing,
    "aten.sym_constrain_range.default": _nothing,
    "aten.sym_constrain_range_for_size.default": _nothing,
    "sym_float": _plain(float),
    "sym_int": _plain(int),
    "sym_max": _plain(max),
    "sym_min": _plain(min),
}
