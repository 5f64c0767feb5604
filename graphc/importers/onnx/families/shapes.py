"""Shapes: reading, changing, joining, splitting, padding, creating."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.dtypes import dtype_of
from graphc.importers.onnx.values import WeightRef, array_of, is_dims, size_behind
from graphc.ir.dim_limits import at_least_zero
from graphc.ir.dims import Dim, DimExpr, product
from graphc.ir.node import Tensor
from graphc.ops.core.emit import dim_value


def shape_of(call: Call, i: int = 0) -> tuple[Dim, ...]:
    """The shape of an input, without making a node for it."""
    value: Any = call.inputs[i]
    if isinstance(value, WeightRef):
        value = value.array
    shape: tuple[Dim, ...] = value.shape if isinstance(value, np.ndarray) else call.x(i).shape
    return shape


def _shape(call: Call) -> Any:
    dims = shape_of(call)
    rank = len(dims)
    start, end = call.attr("start", 0), call.attr("end", rank)
    return array_of(
        dims[slice(*(min(max(v + rank if v < 0 else v, 0), rank) for v in (start, end)))]
    )


def _size(call: Call) -> Any:
    total = product(shape_of(call))
    return np.array(total, np.int64 if isinstance(total, int) else object)


def _reshape(call: Call) -> Any:
    x = call.x()
    wanted = call.dims(1, "the shape") if call.has(1) else list(call.attr("shape"))
    if not call.attr("allowzero", 0):
        wanted = [
            x.shape[i] if isinstance(d, int) and d == 0 and i < x.ndim else d
            for i, d in enumerate(wanted)
        ]
    return ops.reshape(x, wanted)


def _flatten(call: Call) -> Any:
    x, axis = call.x(), call.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return ops.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


def _squeeze(call: Call) -> Any:
    """An axis with a named size is 1 in each run."""
    x, axes = call.x(), call.ints(1, "axes", "the axes")
    if axes is None or all(isinstance(x.shape[axis], int) for axis in axes):
        return ops.squeeze(x, None if axes is None else tuple(axes))
    gone = {axis % x.ndim for axis in axes}
    return ops.reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in gone))


def _unsqueeze(call: Call) -> Any:
    axes = call.ints(1, "axes", "the axes") or []
    return ops.expand_dims(call.x(), tuple(axes))


def _transpose(call: Call) -> Any:
    x = call.x()
    return ops.transpose(x, call.attr("perm") or tuple(range(x.ndim))[::-1])


def _expand(call: Call) -> Any:
    x, wanted = call.x(), call.dims(1, "the shape")
    rank = max(x.ndim, len(wanted))
    own, other = (1,) * (rank - x.ndim) + x.shape, [1] * (rank - len(wanted)) + wanted
    return ops.broadcast_to(x, [a if b == 1 else b for a, b in zip(own, other, strict=True)])


def _tile(call: Call) -> Any:
    if call.version < 6:
        raise Refused("of version 1 is not supported")
    x, counts = call.x(), call.dims(1, "the numbers of repeats")
    known = [n for n in counts if isinstance(n, int)]
    if len(known) == len(counts):
        return ops.tile(x, known)
    apart = tuple(size for pair in zip([1] * x.ndim, x.shape, strict=True) for size in pair)
    repeated = tuple(size for pair in zip(counts, x.shape, strict=True) for size in pair)
    joined = tuple(n * size for n, size in zip(counts, x.shape, strict=True))
    return ops.reshape(ops.broadcast_to(ops.reshape(x, apart), repeated), joined)


def _concat(call: Call) -> Any:
    xs = call.xs()
    return ops.concatenate(xs, call.attr("axis", 1 if call.version < 4 else 0))


def _split(call: Call) -> Any:
    x, axis = call.x(), call.attr("axis", 0)
    sizes = call.dims(1, "the sizes") if call.has(1) else call.attr("split")
    if sizes is None:
        count = call.attr("num_outputs") or len(call.outputs)
        whole = x.shape[axis % x.ndim]
        if not isinstance(whole, int):
            each: Any = whole // count
            sizes = [each] * count
        else:
            each = math.ceil(whole / count)
            sizes = [min(each, max(whole - i * each, 0)) for i in range(count)]
    return tuple(ops.split(x, sizes, axis))


def _slice(call: Call) -> Any:
    x = call.x()
    if call.version < 10:
        starts, ends = call.attr("starts"), call.attr("ends")
        axes = call.attr("axes") or list(range(len(starts)))
        steps: list[Any] = [1] * len(starts)
    else:
        starts, ends = call.dims(1, "the starts"), call.dims(2, "the ends")
        axes = call.ints(3, "axes", "the axes") or list(range(len(starts)))
        steps = call.ints(4, "steps", "the steps") or [1] * len(starts)
    where: list[Any] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        where[axis % x.ndim] = _bounds(start, end, step, x.shape[axis % x.ndim])
    return x[tuple(where)]


_FAR = 1_000_000_000
"""Bounds from here on mean the end of an axis with a named size: exporters write this number, or
the largest integer."""


def _bounds(start: Any, end: Any, step: int, size: Any) -> slice:
    """Bounds that are past the end mean the end."""
    if isinstance(end, int) and isinstance(size, int):
        if step < 0 and end < -size:
            end = None
        elif step > 0:
            end = min(end, size)
    elif isinstance(end, int) and abs(end) >= _FAR:
        if (end > 0) != (step > 0):
            return slice(0, 0)
        end = None
    if isinstance(start, int) and isinstance(size, int):
        low = max(start + size if start < 0 else start, 0 if step > 0 else -1)
        start = min(low, size if step > 0 else size - 1)
        if start < 0:
            return slice(0, 0)
    elif isinstance(start, int) and abs(start) >= _FAR:
        if (start > 0) == (step > 0):
            return slice(0, 0)
        start = None
    return slice(start, end, step)


def _pad(call: Call) -> Any:
    x, mode = call.x(), call.attr("mode", "constant")
    given = (
        call.dims(1, "the numbers of added elements")
        if call.version >= 11
        else call.attr("pads") or call.attr("paddings")
    )
    value: Any = call.attr("value", 0.0) if call.version < 11 else call.x(2) if call.has(2) else 0
    axes = call.ints(3, "", "the axes") if call.has(3) else list(range(x.ndim))
    assert axes is not None
    widths: list[Any] = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis % x.ndim] = (given[i], given[i + len(axes)])
    x, widths = _cropped(x, widths)
    if all(width == (0, 0) for width in widths):
        return x
    if mode == "constant":
        if isinstance(value, Tensor):
            value = ops.reshape(value, ())
        return ops.pad(x, widths, "constant", constant_values=value)
    return ops.pad(x, widths, {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode])


def _cropped(x: Tensor, widths: list[Any]) -> tuple[Tensor, list[Any]]:
    """Negative numbers cut elements off."""
    where, left = [], []
    for (low, high), size in zip(widths, x.shape, strict=True):
        cut = [max(-w, 0) if isinstance(w, int) else 0 for w in (low, high)]
        where.append(slice(cut[0], size - cut[1]) if any(cut) else slice(None))
        left.append(tuple(max(w, 0) if isinstance(w, int) else w for w in (low, high)))
    if any(w != slice(None) for w in where):
        x = x[tuple(where)]
    return x, left


def _center_crop_pad(call: Call) -> Any:
    x, wanted = call.x(), call.dims(1, "the shape")
    axes = call.attr("axes") or list(range(x.ndim))
    where: list[Any] = [slice(None)] * x.ndim
    widths: list[Any] = [(0, 0)] * x.ndim
    for axis, size in zip(axes, wanted, strict=True):
        have = x.shape[axis]
        if not isinstance(have, int) or not isinstance(size, int):
            raise Refused("needs known sizes")
        if size < have:
            start = (have - size) // 2
            where[axis] = slice(start, start + size)
        else:
            low = (size - have) // 2
            widths[axis] = (low, size - have - low)
    return ops.pad(x[tuple(where)], widths)


def _constant(call: Call) -> Any:
    attrs = call.attrs
    if "value" in attrs:
        return attrs["value"]
    if "sparse_value" in attrs:
        raise Refused("with a sparse value is not supported")
    for name, dtype in _CONSTANTS.items():
        if name in attrs:
            return np.array(attrs[name], dtype)
    raise Refused("has no value")


_CONSTANTS: Final[dict[str, Any]] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


def _constant_of_shape(call: Call) -> Any:
    value = call.attr("value")
    value = np.zeros(1, np.float32) if value is None else value
    return ops.full(call.dims(0, "the shape"), ops.constant(value.reshape(())), dtype=value.dtype)


def _range(call: Call) -> Any:
    bounds = [_bound(call, i) for i in range(3)]
    if any(b is None for b in bounds):
        raise Refused(
            "needs its bounds at import, but they are computed when the model runs", needs=True
        )
    start, stop, step = (b.reshape(-1)[0] for b in bounds if b is not None)
    given = [v.array if isinstance(v, WeightRef) else v for v in call.inputs]
    # The sizes themselves are int64, also after a cast to int32; all inputs have the same dtype.
    dtype = next((v.dtype for v in given if not is_dims(v)), np.dtype(np.int64))
    if is_dims(bounds[0]) or is_dims(bounds[1]):
        low, high, by = (b if isinstance(b, DimExpr) else int(b) for b in (start, stop, step))
        if not isinstance(by, int) or by == 0 or (low, high, by) != (start, stop, step):
            raise Refused("over named sizes needs whole bounds, and a whole step that is known")
        return _counted(low, high, by, dtype)
    made: Any = np.arange
    return made(start, stop, step, dtype)


def _counted(start: Dim, stop: Dim, step: int, dtype: np.dtype[Any]) -> Any:
    """The numbers from `start` to `stop`, of which a size has a name."""
    span = at_least_zero(stop - start if step > 0 else start - stop)
    count = (span + abs(step) - 1) // abs(step)
    found = ops.arange(count, dtype=dtype)
    if step != 1:
        found = found * ops.constant(np.asarray(step, dtype))
    return found if start == 0 else found + ops.cast(dim_value(start), dtype)


def _bound(call: Call, i: int) -> Any:
    """A bound that is known, or a size that the model has cast: exporters count in floats."""
    value = call.inputs[i]
    if isinstance(value, Tensor):
        dim = size_behind(value)
        return None if dim is None else array_of([dim])
    return call.known(i)


def _eye_like(call: Call) -> Any:
    rows, columns = shape_of(call)
    to = call.attr("dtype")
    dtype = call.x().dtype if to is None else dtype_of(to)
    return ops.eye(rows, columns, call.attr("k", 0), dtype)


def _depth_to_space(call: Call) -> Any:
    x, block = call.x(), call.attr("blocksize")
    batch, channels, height, width = x.shape
    few = channels // (block * block)
    if call.attr("mode", "DCR") == "DCR":
        apart = ops.reshape(x, (batch, block, block, few, height, width))
        moved = ops.transpose(apart, (0, 3, 4, 1, 5, 2))
    else:
        apart = ops.reshape(x, (batch, few, block, block, height, width))
        moved = ops.transpose(apart, (0, 1, 4, 2, 5, 3))
    return ops.reshape(moved, (batch, few, height * block, width * block))


def _space_to_depth(call: Call) -> Any:
    x, block = call.x(), call.attr("blocksize")
    batch, channels, height, width = x.shape
    apart = ops.reshape(x, (batch, channels, height // block, block, width // block, block))
    by_block = call.attr("mode", "DCR") == "DCR"
    moved = ops.transpose(apart, (0, 3, 5, 1, 2, 4) if by_block else (0, 1, 3, 5, 2, 4))
    return ops.reshape(moved, (batch, channels * block * block, height // block, width // block))


def _trilu(call: Call) -> Any:
    k = int(call.need(1, "the diagonal").reshape(-1)[0]) if call.has(1) else 0
    return (ops.triu if call.attr("upper", 1) else ops.tril)(call.x(), k)


def _reverse_sequence(call: Call) -> Any:
    return ops.reverse_sequence(
        call.x(0),
        ops.cast(call.x(1), "int32"),
        axis=call.attr("time_axis", 0),
        batch_axis=call.attr("batch_axis", 1),
    )


RULES: Final[dict[str, Rule]] = {
    "CenterCropPad": _center_crop_pad,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
