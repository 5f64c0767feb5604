"""Reading and writing at indices.

ONNX refuses indices out of range; graphc clamps them, or gives a fill value, or drops the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from graphc.exporters.onnx.call import Call, Rule
from graphc.exporters.onnx.families.arrays import pad
from graphc.exporters.onnx.families.control import mapped
from graphc.exporters.onnx.values import Value, inverse
from graphc.exporters.onnx.writer import BOOL, INT64, Writer
from graphc.ir.dims import Dim, product
from graphc.ops.arrays.gathering import fill_value_of
from graphc.ops.arrays.index_frames import Frame, frame_of


def _counted(c: Call, indices: Value, ends: Value) -> Value:
    """Indices as int64, negative ones counted from the front."""
    w = c.w
    array = w.array_of(indices)
    known = w.array_of(ends)
    if array is not None and known is not None:
        wide = array.astype(np.int64)
        return w.constant(np.where(wide < 0, wide + known, wide))
    if indices.dtype.kind == "u":
        return w.cast(indices, INT64)
    indices = w.cast(indices, INT64)
    negative = w.compare("Less", indices, w.constant(0, INT64))
    return w.where(negative, w.elementwise("Add", indices, ends), indices)


def _inside(c: Call, indices: Value, ends: Value) -> tuple[Value, Value | None]:
    """(indices within the range, whether each was), where None stands for all."""
    w, places = c.w, _counted(c, indices, ends)
    array, known = w.array_of(places), w.array_of(ends)
    if array is not None and known is not None and ((array >= 0) & (array < known)).all():
        return places, None
    zero, one = (w.constant(i, INT64) for i in (0, 1))
    last = w.elementwise("Sub", ends, one)
    clamped = w.elementwise("Max", w.elementwise("Min", places, last), zero)
    return clamped, w.compare("Equal", clamped, places)


def _filled(c: Call, y: Value, inside: Value | None, mode: str) -> Value:
    """`y` with a fill value where the index was out of range."""
    if mode == "clip" or inside is None:
        return y
    return c.w.where(inside, y, c.w.constant(fill_value_of(y.dtype, mode), y.dtype))


def _take(c: Call) -> Value:
    x, indices = c.xs
    axis, mode, w = c.attrs["axis"], c.attrs["mode"], c.w
    size = c.sizes.scalar(c.shape()[axis])
    places, inside = _inside(c, indices, size)
    y = w.gather(x, places, axis)
    if inside is not None:
        inside = w.unsqueeze(inside, range(indices.rank, indices.rank + x.rank - axis - 1))
    return _filled(c, y, inside, mode)


def _take_along(c: Call) -> Value:
    x, indices = c.xs
    axis = c.attrs["axis"]
    places, inside = _inside(c, indices, c.sizes.scalar(c.shape()[axis]))
    y = c.w.op("GatherElements", x, places, rank=x.rank, axis=axis)
    return _filled(c, y, inside, c.attrs["mode"])


def _frame(c: Call) -> tuple[Frame, tuple[int, ...]]:
    """The frame, and the order of axes with the indexed ones right after the batch."""
    axes, batch = c.attrs["axes"], c.attrs["batch"]
    frame = frame_of(c.xs[0].rank, c.xs[1].rank, axes, batch)
    others = [axis for axis in frame.kept if axis >= batch]
    return frame, (*range(batch), *axes, *others)


def _windows_last(frame: Frame) -> tuple[int, ...]:
    """For each axis of the result with the windows last, its axis in graphc's result."""
    lead = [frame.of_indices(axis) for axis in range(frame.batch)]
    lead += [frame.place + i for i in range(frame.lead)]
    return (*lead, *frame.windows())


def _gather_nd(c: Call) -> Value:
    x, indices = c.xs
    axes, batch, w = c.attrs["axes"], c.attrs["batch"], c.w
    frame, order = _frame(c)
    ends = c.sizes.vector([c.shape()[axis] for axis in axes])
    places, inside = _inside(c, indices, ends)
    first = w.transpose(x, order)
    rank = len(c.y.type.shape)
    y = w.op("GatherND", first, places, rank=rank, batch_dims=batch)
    if inside is not None and c.attrs["mode"] != "clip":
        whole = w.cast(w.reduce("ReduceMin", w.cast(inside, "int32"), [indices.rank - 1]), BOOL)
        inside = w.unsqueeze(whole, range(whole.rank, rank))
        y = _filled(c, y, inside, c.attrs["mode"])
    return w.transpose(y, inverse(_windows_last(frame)))


# -- writing ---------------------------------------------------------------------------------------

_REDUCTIONS: Final = {"set": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _scattered(
    c: Call, operand: Value, places: Value, updates: Value, op: str, dims: Sequence[Dim], mode: str
) -> Value:
    """ScatterND over the first axes. Updates out of range go to an element beyond each axis, which
    is cut off."""
    w, count, ends = c.w, len(dims), c.sizes.vector(dims)
    attrs = {} if op == "set" else {"reduction": _REDUCTIONS[op]}
    inner, inside = _inside(c, places, ends)
    if inside is None or mode == "clip":
        return w.op("ScatterND", operand, inner, updates, rank=operand.rank, **attrs)
    whole = w.cast(w.reduce("ReduceMin", w.cast(inside, "int32"), [places.rank - 1], True), BOOL)
    beyond = w.where(whole, inner, ends)
    more = [1] * count + [0] * (operand.rank - count)
    wider = pad(c, operand, [0] * operand.rank, more, w.constant(0, operand.dtype))
    y = w.op("ScatterND", wider, beyond, updates, rank=operand.rank, **attrs)
    return w.slice(y, w.ints([0] * count), ends, range(count))


def _scatter_nd(c: Call) -> Value:
    operand, indices, updates = c.xs
    axes, batch, w = c.attrs["axes"], c.attrs["batch"], c.w
    frame, order = _frame(c)
    first = w.transpose(operand, order)
    last = w.transpose(updates, _windows_last(frame))
    places = indices
    dims = [c.shape()[axis] for axis in axes]
    if batch:
        places, dims = _with_batch(c, indices, batch, dims)
    y = _scattered(c, first, places, last, c.attrs["op"], dims, c.attrs["mode"])
    return w.transpose(y, inverse(order))


def _with_batch(
    c: Call, indices: Value, batch: int, dims: Sequence[Dim]
) -> tuple[Value, list[Dim]]:
    """Index vectors that begin with their own place in the batch: ScatterND has no batch."""
    w, shape = c.w, c.shape(1)
    indices = w.cast(indices, INT64)
    columns = []
    for axis in range(batch):
        row = w.unsqueeze(c.count(shape[axis]), [i for i in range(indices.rank) if i != axis])
        columns.append(c.expand(row, (*shape[:-1], 1)))
    return w.concat([*columns, indices], indices.rank - 1), [*shape[:batch], *dims]


def _scatter_add(c: Call) -> Value:
    """Updates [..., *indices, ...] added along an axis."""
    operand, indices, updates = c.xs
    axis, w = c.attrs["axis"], c.w
    order = (axis, *(i for i in range(operand.rank) if i != axis))
    lead = range(axis, axis + indices.rank)
    last = (*lead, *(i for i in range(updates.rank) if i not in lead))
    places = w.unsqueeze(indices, [indices.rank])
    first, moved = w.transpose(operand, order), w.transpose(updates, last)
    y = _scattered(c, first, places, moved, "add", [c.shape()[axis]], c.attrs["mode"])
    return w.transpose(y, inverse(order))


def _scatter_along(c: Call) -> Value:
    operand, indices, updates = c.xs
    axis, w = c.attrs["axis"], c.w
    places, inside = _inside(c, indices, c.sizes.scalar(c.shape()[axis]))
    if inside is not None and c.attrs["mode"] == "drop":
        updates = w.where(inside, updates, w.constant(0, updates.dtype))
    attrs = {"axis": axis, "reduction": "add"}
    return w.op("ScatterElements", operand, places, updates, rank=operand.rank, **attrs)


def _one_hot(c: Call) -> Value:
    indices, w = c.xs[0], c.w
    depth, axis, dtype = c.attrs["depth"], c.attrs["axis"], c.attrs["dtype"]
    is_known = isinstance(depth, int)
    row = w.constant(np.arange(depth), INT64) if is_known else c.count(depth)
    row = w.unsqueeze(row, range(1, indices.rank - axis + 1))
    places = w.unsqueeze(w.cast(indices, INT64), [axis])
    return w.cast(w.compare("Equal", places, row), dtype)


def _suppressed(c: Call) -> list[Value]:
    """The boxes that remain of each image, padded with -1, and their number."""
    boxes, scores = c.xs
    if boxes.rank == 2:
        return _one_image(c, c.w, boxes, scores)
    w, shape = c.w, c.shape()
    images = product(shape[:-2])
    stacks = c.reshape(boxes, (images, *shape[-2:])), c.reshape(scores, (images, shape[-2]))
    found = mapped(w, stacks, lambda body, xs: _one_image(c, body, *xs))
    return [c.reshape(y, t.type.shape) for y, t in zip(found, c.node.outputs, strict=True)]


def _one_image(c: Call, w: Writer, boxes: Value, scores: Value) -> list[Value]:
    size = c.attrs["size"]
    found = w.op(
        "NonMaxSuppression",
        w.unsqueeze(boxes, [0]),
        w.unsqueeze(scores, [0, 1]),
        w.constant(size, INT64),
        w.constant(c.attrs["overlap"], np.float32),
        w.constant(max(c.attrs["threshold"], float(np.finfo(np.float32).min)), np.float32),
        dtype=INT64,
        rank=2,
    )
    places = w.gather(found, w.constant(2, INT64), 1)
    count = w.op("Shape", places, dtype=INT64, rank=1)
    left = w.elementwise("Sub", w.ints([size]), count)
    pads = w.concat([w.ints([0]), left], 0)
    row = w.op("Pad", places, pads, w.constant(-1, INT64), rank=1)
    return [w.cast(row, "int32"), w.cast(w.squeeze(count, [0]), "int32")]


RULES: Final[dict[str, Rule]] = {
    "GatherNd": _gather_nd,
    "NonMaxSuppression": _suppressed,
    "OneHot": _one_hot,
    "ScatterAdd": _scatter_add,
    "ScatterAddAlongAxis": _scatter_along,
    "ScatterNd": _scatter_nd,
    "Take": _take,
    "TakeAlongAxis": _take_along,
}
