"""TensorArrays (version 1) and lists of tensors (version 2), as one tensor with an axis more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc import ops
from graphc.importers.tensorflow.registry import Call, Family, Unsupported
from graphc.importers.tensorflow.values import Counting, Sizes, TensorStack, Value
from graphc.ir.dims import Dim
from graphc.ir.node import Tensor

FAMILY = Family()


def _stack(call: Call, value: Value) -> TensorStack:
    if not isinstance(value, TensorStack):
        call.refuse("does not take a list of tensors")
    return value


def _known(shape: Any) -> tuple[Dim, ...] | None:
    """A shape, None unless all of its sizes are known."""
    if shape is None or any(size is None or size == -1 for size in shape):
        return None
    return tuple(shape)


def _filled(stack: TensorStack, element: tuple[Dim, ...] | None = None) -> Tensor:
    if stack.data is None and stack.element is None and element is not None:
        stack = TensorStack(stack.size, stack.dtype, element)
    try:
        return stack.filled()
    except ValueError as error:
        raise Unsupported(str(error)) from None


def _covers(indices: Value, size: Dim) -> bool:
    """Whether indices are 0, 1, ... up to the size."""
    if isinstance(indices, Counting):
        return indices.length == size
    return (
        isinstance(indices, np.ndarray)
        and isinstance(size, int)
        and np.array_equal(indices, np.arange(size))
    )


def write(call: Call, stack: TensorStack, index: Value, item: Tensor) -> TensorStack:
    """The stack with an element written."""
    data = _filled(stack, tuple(item.shape))
    place = ops.cast(ops.reshape(call.tensor(index), ()), "int32")
    starts = [place, *[ops.constant(np.int32(0))] * item.ndim]
    written = ops.dynamic_update_slice(data, ops.expand_dims(item, 0), starts)
    return stack.with_data(written)


def read(call: Call, stack: TensorStack, index: Value) -> Tensor:
    """An element."""
    data = _filled(stack)
    return ops.take(data, ops.reshape(call.tensor(index), ()), 0)


def gather(call: Call, stack: TensorStack, indices: Value) -> Tensor:
    """Elements."""
    data = _filled(stack)
    return data if _covers(indices, stack.size) else ops.take(data, call.tensor(indices), 0)


def scatter(call: Call, stack: TensorStack, indices: Value, items: Tensor) -> TensorStack:
    """The stack with elements written."""
    if stack.data is None and _covers(indices, stack.size):
        return TensorStack(items.shape[0], stack.dtype, None).with_data(items)
    data = _filled(stack, tuple(items.shape[1:]))
    return stack.with_data(ops.scatter(data, call.tensor(indices), items, 0))


# -- TensorArray: the value is what TensorFlow calls the flow; the handle is the stack as made -----


@FAMILY.rule("TensorArrayV3", kinds="v", outputs=("handle", "flow"))
def array(call: Call, size: Value) -> list[Value]:
    element = _known(call.attr("element_shape"))
    length = call.dim(size, "the number of elements")
    if call.attr("dynamic_size", False) and length == 0:
        call.refuse("grows: give the TensorArray a size")
    stack = TensorStack(length, call.dtype("dtype"), element)
    return [stack, stack]


@FAMILY.rule("TensorArrayWriteV3", kinds="vvtv")
def array_write(call: Call, handle: Value, index: Value, item: Tensor, flow: Value) -> Value:
    return write(call, _stack(call, flow), index, item)


@FAMILY.rule("TensorArrayReadV3", kinds="vvv")
def array_read(call: Call, handle: Value, index: Value, flow: Value) -> Value:
    return read(call, _stack(call, flow), index)


@FAMILY.rule("TensorArrayGatherV3", kinds="vvv")
def array_gather(call: Call, handle: Value, indices: Value, flow: Value) -> Value:
    return gather(call, _stack(call, flow), indices)


@FAMILY.rule("TensorArrayScatterV3", kinds="vvtv")
def array_scatter(call: Call, handle: Value, indices: Value, items: Tensor, flow: Value) -> Value:
    return scatter(call, _stack(call, flow), indices, items)


@FAMILY.rule("TensorArrayConcatV3", kinds="vv", outputs=("value", "lengths"))
def array_concat(call: Call, handle: Value, flow: Value) -> list[Value]:
    return _concatenated(_stack(call, flow))


def _concatenated(stack: TensorStack) -> list[Value]:
    data = _filled(stack)
    joined = ops.reshape(data, (data.shape[0] * data.shape[1], *data.shape[2:]))
    lengths = ops.full((data.shape[0],), ops.cast(data.shape[1] * ops.constant(1), "int64"))
    return [joined, lengths]


@FAMILY.rule("TensorArraySplitV3", kinds="vtsv")
def array_split(call: Call, handle: Value, value: Tensor, lengths: Any, flow: Value) -> Value:
    return _split(call, _stack(call, flow), value, lengths)


def _split(call: Call, stack: TensorStack, value: Tensor, lengths: Any) -> TensorStack:
    if len(set(lengths.reshape(-1).tolist())) != 1:
        call.refuse("splits into parts of different lengths")
    data = ops.reshape(value, (lengths.size, int(lengths.reshape(-1)[0]), *value.shape[1:]))
    return stack.with_data(data)


@FAMILY.rule("TensorArraySizeV3", kinds="vv")
def array_size(call: Call, handle: Value, flow: Value) -> Value:
    return Sizes.of(_stack(call, flow).size, np.dtype(np.int32))


@FAMILY.rule("TensorArrayCloseV3", kinds="v")
def array_close(call: Call, handle: Value) -> list[Value]:
    return []


# -- lists of tensors ------------------------------------------------------------------------------


def _element(call: Call, shape: Value) -> tuple[Dim, ...] | None:
    if isinstance(shape, np.ndarray) and shape.ndim == 0:
        return None  # -1: unknown rank
    return _known(call.dims(shape, "the shape of the elements"))


@FAMILY.rule("TensorListReserve", kinds="vv")
def reserve(call: Call, shape: Value, count: Value) -> Value:
    return TensorStack(
        call.dim(count, "the number of elements"),
        call.dtype("element_dtype"),
        _element(call, shape),
    )


@FAMILY.rule("EmptyTensorList", kinds="vv")
def empty(call: Call, shape: Value, most: Value) -> Value:
    return TensorStack(0, call.dtype("element_dtype"), _element(call, shape))


@FAMILY.rule("TensorListFromTensor", kinds="tv")
def from_tensor(call: Call, x: Tensor, shape: Value) -> Value:
    return TensorStack(x.shape[0], x.dtype, None).with_data(x)


@FAMILY.rule("TensorListStack", kinds="vv")
def stack_(call: Call, value: Value, shape: Value) -> Value:
    return _filled(_stack(call, value), _element(call, shape))


@FAMILY.rule("TensorListSetItem", kinds="vvt")
def set_item(call: Call, value: Value, index: Value, item: Tensor) -> Value:
    return write(call, _stack(call, value), index, item)


@FAMILY.rule("TensorListGetItem", kinds="vvv")
def get_item(call: Call, value: Value, index: Value, shape: Value) -> Value:
    return read(call, _stack(call, value), index)


@FAMILY.rule("TensorListLength", kinds="v")
def length(call: Call, value: Value) -> Value:
    return Sizes.of(_stack(call, value).size, np.dtype(np.int32))


@FAMILY.rule("TensorListGather", kinds="vvv")
def list_gather(call: Call, value: Value, indices: Value, shape: Value) -> Value:
    return gather(call, _stack(call, value), indices)


@FAMILY.rule("TensorListScatterV2", kinds="tvvn")
def list_scatter(call: Call, items: Tensor, indices: Value, shape: Value, count: int) -> Value:
    size: Dim = count
    if count < 0:
        known = call.static(indices, "the indices")
        size = int(known.max()) + 1 if known.size else 0
    return scatter(call, TensorStack(size, items.dtype, None), indices, items)


@FAMILY.rule("TensorListScatterIntoExistingList", kinds="vtv")
def scatter_existing(call: Call, value: Value, items: Tensor, indices: Value) -> Value:
    return scatter(call, _stack(call, value), indices, items)


@FAMILY.rule("TensorListPushBack", kinds="vt")
def push(call: Call, value: Value, item: Tensor) -> Value:
    stack = _stack(call, value)
    row = ops.expand_dims(item, 0)
    if stack.size == 0:
        return stack.with_data(row)
    return stack.with_data(ops.concat([_filled(stack), row], 0))


@FAMILY.rule("TensorListPopBack", kinds="vv", outputs=("output_handle", "tensor"))
def pop(call: Call, value: Value, shape: Value) -> list[Value]:
    stack = _stack(call, value)
    data = _filled(stack)
    if stack.size == 0:
        call.refuse("takes an element of an empty list")
    return [stack.with_data(data[:-1]), data[-1]]


@FAMILY.rule("TensorListConcatV2", kinds="vvv", outputs=("tensor", "lengths"))
def list_concat(call: Call, value: Value, shape: Value, dims: Value) -> list[Value]:
    return _concatenated(_stack(call, value))


@FAMILY.rule("TensorListSplit", kinds="tvs")
def list_split(call: Call, value: Tensor, shape: Value, lengths: Any) -> Value:
    return _split(call, TensorStack(lengths.size, value.dtype, None), value, lengths)


@FAMILY.rule("TensorListConcatLists", kinds="vv")
def concat_lists(call: Call, a: Value, b: Value) -> Value:
    parts = [_stack(call, a), _stack(call, b)]
    full: Sequence[Tensor] = [_filled(p) for p in parts if p.size != 0]
    return parts[0] if not full else parts[0].with_data(ops.concat(full, 0))


@FAMILY.rule("TensorListElementShape", kinds="v")
def element_shape(call: Call, value: Value) -> Value:
    dtype = call.dtype("shape_type", "int32")
    element = _stack(call, value).element
    return np.array(-1, dtype) if element is None else Sizes.of(list(element), dtype)


@FAMILY.rule("TensorListResize", kinds="vn")
def resize(call: Call, value: Value, count: int) -> Value:
    stack = _stack(call, value)
    if stack.data is None:
        return TensorStack(count, stack.dtype, stack.element)
    if not isinstance(stack.size, int):
        call.refuse("resizes a list of a size that is known only in a run")
    data = stack.data[:count]
    rest = [(0, count - min(count, stack.size)), *[(0, 0)] * (data.ndim - 1)]
    return stack.with_data(ops.pad(data, rest))
