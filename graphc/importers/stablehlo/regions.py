"""Operations with regions: reductions, sorts, loops and branches; and calls of functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.importers.stablehlo.elementwise import CHLO
from graphc.importers.stablehlo.operation import NotKnownError, Operation, constant, parse_type
from graphc.ir.dtypes import int_range

Rule = Callable[..., Any]

_REDUCE: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "stablehlo.add": (lax.reduce_sum, lax.add),
    "stablehlo.and": (lax.reduce_and, lax.bitwise_and),
    "stablehlo.maximum": (lax.reduce_max, lax.max),
    "stablehlo.minimum": (lax.reduce_min, lax.min),
    "stablehlo.multiply": (lax.reduce_prod, lax.mul),
    "stablehlo.or": (lax.reduce_or, lax.bitwise_or),
}
_NEUTRAL: Mapping[str, Callable[[Any], Any]] = {
    "stablehlo.add": lambda dtype: 0,
    "stablehlo.and": lambda dtype: True if dtype == np.bool_ else -1,
    "stablehlo.multiply": lambda dtype: 1,
    "stablehlo.or": lambda dtype: 0,
    "stablehlo.maximum": lambda dtype: _extreme(dtype, -1),
    "stablehlo.minimum": lambda dtype: _extreme(dtype, 1),
}


def _extreme(dtype: Any, sign: int) -> Any:
    if dtype == np.bool_:
        return sign > 0
    if jnp.issubdtype(dtype, jnp.integer):
        least, most = int_range(dtype)
        return most if sign > 0 else least
    return sign * np.inf


def _monoid(op: Operation) -> str:
    """The only operation of a region, applied to its two arguments; "" if there is more."""
    block = op.block()
    *inner, last = [each.operation for each in block.operations]
    if len(inner) != 1 or len(block.arguments) != 2 or len(last.operands) != 1:
        return ""
    same = {*inner[0].operands} == {*block.arguments} and last.operands[0] == inner[0].results[0]
    return str(inner[0].name) if same else ""


def _reduce(op: Operation, *operands: Any) -> Any:
    count = len(operands) // 2
    xs, starts = operands[:count], operands[count:]
    axes = op.ints("dimensions")
    name = _monoid(op)
    if count == 1 and name in _REDUCE:
        reduced, combined = _REDUCE[name]
        result = reduced(xs[0], axes)
        if _is_neutral(starts[0], name):
            return result
        return combined(jnp.broadcast_to(starts[0], result.shape), result)
    function = op.function()

    def combine(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(function(*a, *b))

    return list(lax.reduce(tuple(xs), tuple(map(jnp.asarray, starts)), combine, axes))


def _is_neutral(start: Any, name: str) -> bool:
    if not isinstance(start, np.ndarray | np.generic):
        return False
    return bool(start == np.asarray(_NEUTRAL[name](start.dtype)).astype(start.dtype))


_WINDOWS: Mapping[str, Callable[..., Any]] = {
    "stablehlo.add": lax.add,
    "stablehlo.maximum": lax.max,
    "stablehlo.minimum": lax.min,
}


def _reduce_window(op: Operation, *operands: Any) -> Any:
    name = _monoid(op)
    if len(operands) != 2 or name not in _WINDOWS:
        raise NotKnownError("stablehlo.reduce_window with another function than a usual one")
    x, start = operands
    if not _is_neutral(start, name):
        raise NotKnownError("stablehlo.reduce_window with another initial value than the usual one")
    ones = (1,) * x.ndim
    padding = op.array("padding").reshape(-1, 2) if op.has("padding") else np.zeros((x.ndim, 2))
    return lax.reduce_window(
        x,
        start[()],
        _WINDOWS[name],
        op.ints("window_dimensions"),
        op.ints("window_strides", ones),
        [(int(low), int(high)) for low, high in padding],
        base_dilation=op.ints("base_dilations", ones),
        window_dilation=op.ints("window_dilations", ones),
    )


def _sort(op: Operation, *xs: Any) -> Any:
    """A sort whose comparator is a lexicographic order (the reader has checked this)."""
    keys, ascending = _keys(op, len(xs))
    axis, stable = op.number("dimension", -1), bool(op.number("is_stable"))
    if ascending:
        order = [*keys, *(i for i in range(len(xs)) if i not in keys)]
        results = lax.sort(
            [xs[i] for i in order], dimension=axis, is_stable=stable, num_keys=len(keys)
        )
        return [results[order.index(i)] for i in range(len(xs))]
    (key,) = keys
    x = xs[key]
    turned = lax.bitwise_not(x) if not jnp.issubdtype(x.dtype, jnp.inexact) else lax.neg(x)
    return list(lax.sort([turned, *xs], dimension=axis, is_stable=stable, num_keys=1)[1:])


def _keys(op: Operation, count: int) -> tuple[list[int], bool]:
    """The operands that are compared, most important first, and whether in ascending order. The
    comparator is asked: it is called with numbers."""
    compare = op.function()
    types = [argument.type for argument in op.block().arguments]
    dtypes = [parse_type(str(types[2 * i]))[1] for i in range(count)]

    def less(left: Sequence[int], right: Sequence[int]) -> bool:
        pairs = [
            (np.asarray(a, t), np.asarray(b, t))
            for a, b, t in zip(left, right, dtypes, strict=True)
        ]
        with jax.ensure_compile_time_eval():
            return bool(compare(*(value for pair in pairs for value in pair))[0])

    zero = [0] * count

    def one(i: int) -> list[int]:
        return [int(j == i) for j in range(count)]

    up = [i for i in range(count) if less(zero, one(i))]
    down = [i for i in range(count) if less(one(i), zero)]
    if up and not down:
        # The more important key decides.
        ranked = sorted(up, key=lambda i: sum(less(one(i), one(j)) for j in up if j != i))
        return ranked, True
    if len(down) == 1 and not up:
        return down, False
    raise NotKnownError("stablehlo.sort by keys of several directions")


def _while(op: Operation, *carry: Any) -> Any:
    condition, body = op.function(0), op.function(1)
    start = tuple(map(jnp.asarray, carry))
    trips = _trips(op.raw)
    if trips is not None:  # the loop has a gradient
        found, _ = lax.scan(lambda values, _: (tuple(body(*values)), None), start, length=trips)
        return list(found)
    return list(
        lax.while_loop(
            lambda values: jnp.reshape(condition(*values)[0], ()),
            lambda values: tuple(body(*values)),
            start,
        )
    )


def _trips(loop: Any) -> int | None:
    """How often a loop runs, if it counts from a constant to a constant by 1, as `lax.scan` and
    `lax.fori_loop` do; None if that is not known."""
    condition, body = (region.blocks[0] for region in loop.regions)
    goes_on = _made_by(_returned(condition)[0], "stablehlo.compare")
    if goes_on is None or "LT" not in str(goes_on.attributes["comparison_direction"]):
        return None
    counter, end = goes_on.operands[0], _integer(goes_on.operands[1])
    numbers = [i for i, each in enumerate(condition.arguments) if each == counter]
    if end is None or not numbers:
        return None
    begin = _integer(loop.operands[numbers[0]])
    added = _made_by(_returned(body)[numbers[0]], "stablehlo.add")
    if begin is None or added is None or added.operands[0] != body.arguments[numbers[0]]:
        return None
    return max(0, end - begin) if _integer(added.operands[1]) == 1 else None


def _returned(block: Any) -> list[Any]:
    return list(list(block.operations)[-1].operands)


def _made_by(value: Any, name: str) -> Any:
    """The operation with this name that makes a value; None if there is none."""
    owner = value.owner
    operation = getattr(owner, "operation", owner)
    return operation if getattr(operation, "name", None) == name else None


def _integer(value: Any) -> int | None:
    """The value of a constant scalar."""
    made = _made_by(value, "stablehlo.constant")
    if made is None:
        return None
    found = constant(made)
    return int(found) if found.ndim == 0 and found.dtype.kind in "iu" else None


def _case(op: Operation, index: Any) -> Any:
    count = len(op.raw.regions)
    chosen = jnp.where((index < 0) | (index >= count), count - 1, index)
    branches = [_branch(op, i) for i in range(count)]
    return list(lax.switch(chosen, branches))


def _branch(op: Operation, number: int) -> Callable[[], tuple[Any, ...]]:
    function = op.function(number)
    return lambda: tuple(map(jnp.asarray, function()))


def _composite(op: Operation, *values: Any) -> Any:
    name = op.text("name")
    if name == "chlo.top_k":
        k = int(op.attribute("composite_attributes")["k"].value)
        return list(lax.top_k(values[0], k))
    function = CHLO.get(name.removeprefix("chlo."))
    if function is not None and name.startswith("chlo.") and len(values) == 1:
        return function(values[0])
    return op.call(op.text("decomposition"), values)


def _custom_call(op: Operation, *values: Any) -> Any:
    target = op.text("call_target_name")
    name = target.removeprefix("mhlo.").removeprefix("chlo.")
    if target == "Sharding":
        return list(values)
    if name != target and name in CHLO:
        return CHLO[name](*values)
    raise NotKnownError(f"the custom call {target!r}")


RULES: Mapping[str, Rule] = {
    "chlo.top_k": lambda op, x: list(lax.top_k(x, op.number("k"))),
    "func.call": lambda op, *values: op.call(op.text("callee"), values),
    "stablehlo.case": _case,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.if": lambda op, which: list(lax.cond(which, _branch(op, 0), _branch(op, 1))),
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.sort": _sort,
    "stablehlo.while": _while,
}
