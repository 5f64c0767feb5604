"""Operators whose inputs are all known at import: computed on the host.

Sizes, which may be named, are computed here by NumPy on arrays of objects. Everything else is
computed by the reference implementation of the package onnx, so strings and sequences work too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from graphc.importers.onnx.call import Call, Refused
from graphc.importers.onnx.values import Value, flattened, is_dims, is_known, plain
from graphc.ir.dim_limits import divided
from graphc.ir.dims import DimExpr, floor_division
from graphc.ir.dtypes import Array

# These draw random numbers, have bodies, only rename values, or have rules for known values.
_NEVER: Final = frozenset(
    [
        *("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "If", "Loop", "Scan", "SequenceMap"),
        *("LabelEncoder", "Optional", "OptionalGetElement", "OptionalHasElement"),
    ]
)
_LARGEST: Final = 1 << 22  # elements of a result


def can_compute(call: Call) -> bool:
    """Whether all inputs are known values, and there is at least one."""
    flat = list(flattened(call.inputs))
    return bool(flat) and call.op not in _NEVER and all(v is None or is_known(v) for v in flat)


def compute(call: Call, node: Any, domain: str, must: bool) -> list[Value] | None:
    """The results of a node; None if it has to be a node of the graph.

    Args:
        must: whether it cannot be a node of the graph.

    Raises:
        Refused: it cannot be a node, and the reference does not compute it.
    """
    rule = _ON_SIZES.get(call.op) if domain == "" else None
    arrays = [v for v in call.inputs if v is not None]
    small = all(isinstance(a, np.ndarray) and a.dtype.kind in "biO" for a in arrays)
    if rule is not None and small:
        try:
            found = rule(call)
        except Refused:
            found = None
        if found is not None:
            return [plain(np.asarray(found))]
    if any(is_dims(a) for a in arrays):
        return None
    if call.op == "GatherElements" and domain == "":
        return [_gather_elements(call)]
    try:
        return _by_reference(call, node, domain)
    except Refused:
        numbers = all(isinstance(a, np.ndarray) and a.dtype.kind not in "OSU" for a in arrays)
        if must or not numbers:
            raise
        return None


def _by_reference(call: Call, node: Any, domain: str) -> list[Value]:
    """The results by onnx's reference implementation.

    Raises:
        Refused: it does not compute this node.
    """
    from onnx import TypeProto, helper
    from onnx.reference import ReferenceEvaluator

    names = [name for name in node.input if name]
    values = [v for v in call.inputs if v is not None]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_value_info(name, TypeProto()) for name in dict.fromkeys(names)],
        [helper.make_value_info(name, TypeProto()) for name in node.output if name],
    )
    opsets = [helper.make_opsetid(domain, call.version)]
    model = helper.make_model(graph, opset_imports=opsets)
    try:
        feeds = dict(zip(names, values, strict=True))
        found = iter(ReferenceEvaluator(model).run(None, feeds))
    except Exception as error:  # the reference raises errors of many kinds
        raise Refused(f"cannot be computed at import: {error}") from error
    results = [_value(next(found)) if name else None for name in node.output]
    if any(isinstance(r, np.ndarray) and r.size > _LARGEST for r in results):
        raise Refused("has a result that is too large to be computed at import")
    return results


def _value(result: Any) -> Value:
    if isinstance(result, (list, tuple)):
        return [_value(item) for item in result]
    return None if result is None else np.asarray(result)


def _gather_elements(call: Call) -> Array:
    """The reference fails for more than 64 elements along the axis."""
    x, indices = call.need(0, "the tensor"), call.need(1, "the indices").astype(np.int64)
    axis = call.attr("axis", 0) % x.ndim
    where = [slice(None if i == axis else n) for i, n in enumerate(indices.shape)]
    try:
        return np.take_along_axis(x[tuple(where)], indices, axis)
    except (IndexError, ValueError) as error:
        raise Refused(f"cannot be computed at import: {error}") from error


# -- sizes -----------------------------------------------------------------------------------


def _array(call: Call, i: int) -> Array:
    value = call.inputs[i]
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _elementwise(function: Callable[..., Any]) -> Callable[[Call], Any]:
    def rule(call: Call) -> Any:
        a, b = (_array(call, i) for i in range(2))
        if a.dtype == object or b.dtype == object:
            return function(a.astype(object), b.astype(object))
        return None

    return rule


def _equal(call: Call) -> Any:
    """Whether sizes are equal, where that does not depend on named ones: a named size is never
    negative."""
    a, b = np.broadcast_arrays(_array(call, 0), _array(call, 1))
    found = [_same(x, y) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]
    return None if None in found else np.array(found, bool).reshape(a.shape)


def _same(a: Any, b: Any) -> bool | None:
    if bool(a == b):
        return True
    named = [v for v in (a, b) if isinstance(v, DimExpr)]
    numbers = [v for v in (a, b) if not isinstance(v, DimExpr)]
    return False if not named or any(v < 0 for v in numbers) else None


def _gather(call: Call) -> Any:
    indices = call.need(1, "the indices").astype(np.int64)
    return np.take(_array(call, 0), indices, axis=call.attr("axis", 0))


def _slice(call: Call) -> Any:
    x = _array(call, 0)
    starts = call.ints(1, "starts", "the starts") or []
    ends = call.ints(2, "ends", "the ends") or []
    axes = call.ints(3, "axes", "the axes") or list(range(len(starts)))
    steps = call.ints(4, "steps", "the steps") or [1] * len(starts)
    where = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        stop: int | None = end
        if step < 0 and end < -x.shape[axis]:
            stop = None
        where[axis] = slice(start, stop, step)
    return x[tuple(where)]


def _squeeze(call: Call) -> Any:
    axes = call.ints(1, "axes", "the axes")
    return np.squeeze(_array(call, 0), None if axes is None else tuple(axes))


def _unsqueeze(call: Call) -> Any:
    axes = call.ints(1, "axes", "the axes") or []
    return np.expand_dims(_array(call, 0), tuple(axes))


def _cast(call: Call) -> Any:
    return _array(call, 0) if call.attr("to") in (6, 7) and is_dims(call.inputs[0]) else None


def _product(call: Call) -> Any:
    x = _array(call, 0)
    if x.dtype != object or x.ndim != 1:
        return None
    total: Any = np.prod(x)
    return np.array([total] if call.attr("keepdims", 1) else total, object)


def _divide(call: Call) -> Any:
    """Integers are divided towards zero. A result that is no size becomes a node."""
    found = _elementwise(np.frompyfunc(divided, 2, 1))(call)
    return None if found is None or None in np.asarray(found).reshape(-1) else found


def _remainder(call: Call) -> Any:
    """The remainder has the sign of the divisor, as that of floor division."""
    b = _array(call, 1)
    if call.attr("fmod", 0) or any(isinstance(d, DimExpr) or d == 0 for d in b.reshape(-1)):
        return None
    return _elementwise(np.frompyfunc(_modulo, 2, 1))(call)


def _modulo(a: Any, b: Any) -> Any:
    sign = 1 if b > 0 else -1
    return a - floor_division(sign * a, sign * b) * b


_ON_SIZES: Final[dict[str, Callable[[Call], Any]]] = {
    "Add": _elementwise(np.add),
    "Sub": _elementwise(np.subtract),
    "Mul": _elementwise(np.multiply),
    "Div": _divide,
    "Cast": _cast,
    "Concat": lambda call: np.concatenate(
        [np.asarray(v).astype(object) for v in call.inputs], call.attr("axis", 0)
    ),
    "Equal": _equal,
    "Gather": _gather,
    "Identity": lambda call: _array(call, 0),
    "Mod": _remainder,
    "ReduceProd": _product,
    "Reshape": lambda call: _array(call, 0).reshape([int(d) for d in call.need(1, "the shape")]),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Where": lambda call: np.where(call.need(0, "the condition"), _array(call, 1), _array(call, 2)),
}
