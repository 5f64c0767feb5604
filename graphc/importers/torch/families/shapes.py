"""Shapes: views, joining, splitting, padding, slicing."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import numpy as np

from graphc import ops
from graphc.importers.torch.call import PARTS, Call, Refused, Rule, axis_of, within_reason
from graphc.ir.dims import DimExpr
from graphc.ir.node import Tensor
from graphc.jaxpr.function import from_jax


def _expand(call: Call, x: Any, sizes: Any, implicit: bool = False) -> Any:
    lead = len(sizes) - x.ndim
    shape = [
        x.shape[i - lead] if isinstance(size, int) and size == -1 else size
        for i, size in enumerate(sizes)
    ]
    return ops.broadcast_to(x, shape)


def _permute(call: Call, x: Any, dims: Any) -> Any:
    return ops.transpose(x, tuple(axis_of(d, x.ndim) for d in dims))


def _squeeze(call: Call, x: Any, dims: Any = None) -> Any:
    axes = range(x.ndim) if dims is None else dims if isinstance(dims, (list, tuple)) else [dims]
    ones = tuple(axis_of(a, x.ndim) for a in axes if x.ndim and x.shape[a] == 1)
    return ops.squeeze(x, ones) if ones else x


def _unsqueeze(call: Call, x: Any, axis: int) -> Any:
    return ops.expand_dims(x, axis)


def _slice(
    call: Call, x: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    axis = axis_of(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(end, int) and (end > 1 << 60 or (isinstance(size, int) and end > size)):
        end = None
    if isinstance(start, int) and isinstance(size, int):
        start = max(min(start, size), -size)
    where = [slice(None)] * axis + [slice(start, end, step)]
    return x[tuple(where)]


def _select(call: Call, x: Any, axis: int, index: Any) -> Any:
    axis = axis_of(axis, x.ndim)
    return x[(*[slice(None)] * axis, index)]


def _cat(call: Call, tensors: Any, axis: int = 0) -> Any:
    # A vector without elements is left out, whatever its rank.
    kept = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    return ops.concatenate([call.own(t) for t in kept], axis)


def _stack(call: Call, tensors: Any, axis: int = 0) -> Any:
    return ops.stack([call.own(t) for t in tensors], axis)


def _split(call: Call, x: Any, size: Any, axis: int = 0) -> Any:
    whole = x.shape[axis]
    if isinstance(size, (list, tuple)):
        if any(isinstance(part, Tensor) for part in size):
            raise Refused("into sizes that depend on values is not supported: XLA needs known ones")
        return ops.split(x, list(size), axis)
    if isinstance(whole, DimExpr) or isinstance(size, DimExpr):
        count = len(call.dtypes)
        return ops.split(x, [size] * (count - 1) + [whole - size * (count - 1)], axis)
    within_reason(-(-whole // size) if size else 1, "parts", PARTS)
    return ops.split(x, [min(size, whole - i) for i in range(0, whole, size)] or [0], axis)


def _chunk(call: Call, x: Any, chunks: int, axis: int = 0) -> Any:
    whole = x.shape[axis]
    if isinstance(whole, DimExpr):
        raise Refused("of a named size is not supported")
    return _split(call, x, max(-(-whole // chunks), 1), axis)


def _tensor_split(call: Call, x: Any, parts: Any, axis: int = 0) -> Any:
    within_reason(parts, "parts", PARTS)
    return tuple(ops.array_split(x, parts, axis))


def _unbind(call: Call, x: Any, axis: int = 0) -> Any:
    return tuple(ops.unstack(x, axis=axis))


def _pad(call: Call, x: Any, pads: Any, value: Any = 0, mode: str = "constant") -> Any:
    widths: list[Any] = [(0, 0)] * x.ndim
    for i in range(len(pads) // 2):
        widths[x.ndim - 1 - i] = (pads[2 * i], pads[2 * i + 1])
    where = [
        slice(max(-low, 0), size - max(-high, 0)) if low < 0 or high < 0 else slice(None)
        for (low, high), size in zip(widths, x.shape, strict=True)
    ]
    if any(w != slice(None) for w in where):
        x = x[tuple(where)]
    kept = [(max(low, 0), max(high, 0)) for low, high in widths]
    if mode == "constant":
        value = 0 if value is None else value
        if isinstance(value, (bool, int, float)):  # PyTorch rounds 2.7 for integers
            value = np.asarray(value).astype(x.dtype)
        return ops.pad(x, kept, "constant", constant_values=value)
    return ops.pad(x, kept, {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])


def _pad_any(call: Call, x: Any, pads: Any, mode: str = "constant", value: Any = None) -> Any:
    return _pad(call, x, pads, value, mode)


def _repeat(call: Call, x: Any, repeats: Any) -> Any:
    lead = len(repeats) - x.ndim
    return ops.tile(ops.reshape(x, (*(1,) * lead, *x.shape)), list(repeats))


def _repeat_interleave(
    call: Call, x: Any, repeats: Any, axis: int | None = None, **options: Any
) -> Any:
    if not isinstance(repeats, int):
        raise Refused("with computed numbers of repeats has a result whose size depends on values")
    return ops.repeat(x, repeats, axis=axis)


def _roll(call: Call, x: Any, shifts: Any, dims: Any = ()) -> Any:
    if not dims:
        shift = shifts[0] if isinstance(shifts, (list, tuple)) else shifts
        return ops.reshape(_rolled(ops.ravel(x), shift, 0), x.shape)
    for shift, axis in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, axis_of(axis, x.ndim))
    return x


def _rolled(x: Any, shift: Any, axis: int) -> Any:
    size = x.shape[axis]
    if size == 0:
        return x
    cut = (size - shift % size) if isinstance(size, int) else size - shift
    if isinstance(cut, int) and cut == size:
        return x
    a, b = ops.split(x, [cut, size - cut], axis)
    return ops.concatenate([b, a], axis)


def _unfold(call: Call, x: Any, axis: int, size: int, step: int) -> Any:
    axis = axis_of(axis, x.ndim)
    whole = x.shape[axis]
    if not isinstance(whole, int):
        raise Refused("of a named size is not supported")
    starts = range(0, whole - size + 1, step)
    within_reason(len(starts) * size, "elements")
    places = ops.constant([[s + i for i in range(size)] for s in starts])
    windows = ops.take(x, places, axis=axis)
    return ops.moveaxis(windows, axis + 1, -1)


def _narrow(call: Call, x: Any, axis: int, start: Any, length: Any) -> Any:
    if isinstance(start, int) and start < 0:
        start = start + x.shape[axis]
    return _slice(call, x, axis, start, start + length)


def _diagonal(call: Call, x: Any, offset: int = 0, a: int = 0, b: int = 1) -> Any:
    return ops.diagonal(x, offset, a, b)


def _pixel_shuffle(call: Call, x: Any, r: int) -> Any:
    *batch, channels, height, width = x.shape
    apart = ops.reshape(x, (*batch, channels // (r * r), r, r, height, width))
    n = len(batch)
    moved = ops.transpose(apart, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return ops.reshape(moved, (*batch, channels // (r * r), height * r, width * r))


def _pixel_unshuffle(call: Call, x: Any, r: int) -> Any:
    *batch, channels, height, width = x.shape
    apart = ops.reshape(x, (*batch, channels, height // r, r, width // r, r))
    n = len(batch)
    moved = ops.transpose(apart, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return ops.reshape(moved, (*batch, channels * r * r, height // r, width // r))


def _channel_shuffle(call: Call, x: Any, groups: int) -> Any:
    batch, channels, *rest = x.shape
    apart = ops.reshape(x, (batch, groups, channels // groups, *rest))
    return ops.reshape(ops.swapaxes(apart, 1, 2), x.shape)


def _flatten(call: Call, x: Any, start: int = 0, end: int = -1) -> Any:
    start, end = axis_of(start, x.ndim), axis_of(end, x.ndim)
    return ops.reshape(x, (*x.shape[:start], -1, *x.shape[end + 1 :]))


def _unflatten(call: Call, x: Any, axis: int, sizes: Any) -> Any:
    axis = axis_of(axis, x.ndim)
    return ops.reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


def _movedim(call: Call, x: Any, source: Any, destination: Any) -> Any:
    return ops.moveaxis(x, source, destination)


def _meshgrid(call: Call, tensors: Any, *, indexing: str = "ij") -> Any:
    return tuple(ops.meshgrid(*tensors, indexing=indexing))


def _as_strided(call: Call, x: Any, size: Any, stride: Any, offset: int | None = None) -> Any:
    places = _strided_places(size, stride, offset)
    return ops.take(ops.ravel(ops.transpose(x, _storage_order(call, x))), ops.constant(places))


def _as_strided_scatter(
    call: Call, x: Any, source: Any, size: Any, stride: Any, offset: int | None = None
) -> Any:
    places = _strided_places(size, stride, offset)
    axes = _storage_order(call, x)

    def scattered(x: Any, source: Any) -> Any:
        laid = x.transpose(axes)
        row = laid.reshape(-1).at[places].set(source).reshape(laid.shape)
        return row.transpose(np.argsort(axes))

    return from_jax(scattered, name="as_strided_scatter")(x, source)


def _strided_places(size: Any, stride: Any, offset: int | None) -> Any:
    """Where the elements lie in memory, in an array of the sizes."""
    for n in size:
        if not isinstance(n, int):
            raise Refused("with named sizes is not supported")
    within_reason(math.prod(size), "elements")
    steps = np.asarray(stride, np.int64).reshape(-1, *(1,) * len(size))
    return np.asarray((np.indices(tuple(size)) * steps).sum(0) + (offset or 0))


def _storage_order(call: Call, x: Any) -> tuple[int, ...]:
    """The axes of x in the order in which its elements lie in PyTorch's memory."""
    laid = call.node.args[0].meta["val"]
    axes = sorted(range(x.ndim), key=lambda axis: (-laid.stride(axis), axis))
    step = 1
    for axis in reversed(axes):
        if laid.shape[axis] != 1 and laid.stride(axis) != step:
            raise Refused("of a tensor with gaps or repeats in memory is not supported")
        step *= laid.shape[axis]
    if laid.storage_offset():
        raise Refused("of a part of another tensor is not supported")
    return tuple(axes)


def _view(call: Call, x: Any, shape: Any) -> Any:
    return ops.reshape(x, list(shape))


RULES: Final[dict[str, Rule]] = {
    "aten._unsafe_view.default": _view,
    "aten.as_strided.default": _as_strided,
    "aten.as_strided_copy.default": _as_strided,
    "aten.as_strided_scatter.default": _as_strided_scatter,
    "aten.broadcast_to.default": _expand,
    "aten.cat.default": _cat,
    "aten.channel_shuffle.default": _channel_shuffle,
    "aten.chunk.default": _chunk,
    "aten.concat.default": _cat,
    "aten.constant_pad_nd.default": _pad,
    "aten.diagonal.default": _diagonal,
    "aten.diagonal_copy.default": _diagonal,
    "aten.linalg_diagonal.default": lambda call, x, offset=0, dim1=-2, dim2=-1: ops.diagonal(
        x, offset, dim1, dim2
    ),
    "aten.expand.default": _expand,
    "aten.expand_copy.default": _expand,
    "aten.flatten.using_ints": _flatten,
    "aten.flip.default": lambda call, x, dims: ops.flip(x, tuple(dims)) if dims else x,
    "aten.matrix_H.default": lambda call, x: ops.conj(ops.swapaxes(x, -1, -2)),
    "aten.meshgrid.indexing": _meshgrid,
    "aten.meshgrid.default": _meshgrid,
    "aten.movedim.int": _movedim,
    "aten.movedim.intlist": _movedim,
    "aten.mT.default": lambda call, x: ops.swapaxes(x, -1, -2),
    "aten.narrow.default": _narrow,
    "aten.narrow_copy.default": _narrow,
    "aten.numpy_T.default": lambda call, x: ops.transpose(x),
    "aten.pad.default": _pad_any,
    "aten.permute.default": _permute,
    "aten.permute_copy.default": _permute,
    "aten.pixel_shuffle.default": _pixel_shuffle,
    "aten.pixel_unshuffle.default": _pixel_unshuffle,
    **{f"aten.reflection_pad{n}d.default": partial(_pad, mode="reflect") for n in (1, 2, 3)},
    "aten.repeat.default": _repeat,
    "aten.repeat_interleave.self_int": _repeat_interleave,
    **{f"aten.replication_pad{n}d.default": partial(_pad, mode="replicate") for n in (1, 2, 3)},
    "aten.reshape.default": _view,
    "aten.roll.default": _roll,
    "aten.select.int": _select,
    "aten.select_copy.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.slice_copy.Tensor": _slice,
    "aten.split.Tensor": _split,
    "aten.split.sizes": _split,
    "aten.split_copy.Tensor": _split,
    "aten.split_with_sizes.default": _split,
    "aten.split_with_sizes_copy.default": _split,
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.squeeze_copy.dims": _squeeze,
    "aten.stack.default": _stack,
    "aten.t.default": lambda call, x: ops.transpose(x),
    "aten.tensor_split.sections": _tensor_split,
    "aten.tensor_split.indices": _tensor_split,
    "aten.unsafe_split.Tensor": _split,
    "aten.unsafe_split_with_sizes.default": _split,
    "aten.tile.default": lambda call, x, dims: ops.tile(x, list(dims)),
    "aten.transpose.int": lambda call, x, a, b: ops.swapaxes(x, a, b) if x.ndim else x,
    "aten.unbind.int": _unbind,
    "aten.unbind_copy.int": _unbind,
    "aten.unflatten.int": _unflatten,
    "aten.unfold.default": _unfold,
    "aten.unfold_copy.default": _unfold,
    "aten.unsqueeze.default": _unsqueeze,
    "aten.unsqueeze_copy.default": _unsqueeze,
    "aten.view.default": _view,
    "aten.view_copy.default": _view,
    "aten.view.dtype": lambda call, x, dtype: ops.bitcast(x, call.dtype),
    "aten.view_as.default": lambda call, x, other: ops.reshape(x, other.shape),
    "aten.expand_as.default": lambda call, x, other: ops.broadcast_to(x, other.shape),
}
