"""Shapes: reshape, transpose, pad, join, split, fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc import nn, ops
from graphc.importers.tensorflow.registry import Call, Family
from graphc.importers.tensorflow.values import Counting, Sizes, TensorStack, Value, as_tensor
from graphc.ir.dims import Dim, product
from graphc.ir.dtypes import DType
from graphc.ir.node import Tensor

FAMILY = Family()
FAMILY.plain(
    {
        "BatchMatrixDiagPart": lambda x: ops.diagonal(x, 0, -2, -1),
        "InvertPermutation": lambda x: ops.cast(ops.argsort(x), x.dtype),
        "MatrixDiagPart": lambda x: ops.diagonal(x, 0, -2, -1),
        "ParallelConcat": lambda *tensors: ops.concat(tensors, 0),
    }
)
_LARGEST = 1 << 26  # elements of a matrix that is made at import


def shape_of_value(call: Call, value: Value) -> tuple[Dim, ...]:
    """The shape of an input that may be known at import."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if isinstance(value, Sizes):
        return tuple(value.items.shape)
    if isinstance(value, np.ndarray):
        return tuple(value.shape)
    return tuple(call.tensor(value).shape)


def _out_type(call: Call) -> DType:
    return call.dtype("out_type", "int32")


@FAMILY.rule("Shape", kinds="v")
def shape(call: Call, value: Value) -> Value:
    return Sizes.of(list(shape_of_value(call, value)), _out_type(call))


@FAMILY.rule("ShapeN", kinds="v*")
def shape_n(call: Call, *values: Value) -> list[Value]:
    return [Sizes.of(list(shape_of_value(call, v)), _out_type(call)) for v in values]


@FAMILY.rule("Size", kinds="v")
def size(call: Call, value: Value) -> Value:
    return Sizes.of(product(shape_of_value(call, value)), _out_type(call))


@FAMILY.rule("Rank", kinds="v")
def rank(call: Call, value: Value) -> Value:
    return np.array(len(shape_of_value(call, value)), np.int32)


@FAMILY.rule("Reshape", kinds="td")
def reshape(call: Call, x: Tensor, sizes: Sequence[Dim]) -> Tensor:
    return ops.reshape(x, tuple(sizes))


@FAMILY.rule("Squeeze")
def squeeze(call: Call, x: Tensor) -> Tensor:
    axes = call.attr("squeeze_dims") or call.attr("axis")
    return ops.squeeze(x, tuple(axes)) if axes else ops.squeeze(x)


@FAMILY.rule("ExpandDims", kinds="tn")
def expand_dims(call: Call, x: Tensor, axis: int) -> Tensor:
    return ops.expand_dims(x, axis)


@FAMILY.rule("Transpose", "ConjugateTranspose", kinds="ts")
def transpose(call: Call, x: Tensor, axes: Any) -> Tensor:
    y = ops.transpose(x, [int(a) for a in axes.reshape(-1)])
    return ops.conj(y) if call.node.op == "ConjugateTranspose" else y


@FAMILY.rule("BroadcastTo", kinds="td")
def broadcast_to(call: Call, x: Tensor, sizes: Sequence[Dim]) -> Tensor:
    return ops.broadcast_to(x, tuple(sizes))


@FAMILY.rule("Fill", kinds="dt")
def fill(call: Call, sizes: Sequence[Dim], value: Tensor) -> Tensor:
    return ops.broadcast_to(value, tuple(sizes))


@FAMILY.rule("Empty", kinds="d")
def empty(call: Call, sizes: Sequence[Dim]) -> Tensor:
    return ops.zeros(tuple(sizes), call.dtype("dtype"))


@FAMILY.rule("ZerosLike", "OnesLike", kinds="v")
def like(call: Call, value: Value) -> Value:
    if isinstance(value, TensorStack):
        call.refuse("takes a list of tensors")
    x = call.tensor(value)
    return ops.zeros_like(x) if call.node.op == "ZerosLike" else ops.ones_like(x)


@FAMILY.rule("Pack")
def pack(call: Call, *tensors: Tensor) -> Tensor:
    return ops.stack(tensors, call.attr("axis", 0))


@FAMILY.rule("Unpack")
def unpack(call: Call, x: Tensor) -> Sequence[Tensor]:
    return ops.unstack(x, call.attr("axis", 0))


@FAMILY.rule("ConcatV2", kinds="v*")
def concat_v2(call: Call, *values: Value) -> Tensor:
    *parts, last = values
    axis, tensors = call.number(last, "the axis"), [call.tensor(part) for part in parts]
    return tensors[0] if len(tensors) == 1 else ops.concat(tensors, axis)


@FAMILY.rule("Concat", kinds="v*")
def concat(call: Call, axis: Value, *parts: Value) -> Value:
    return concat_v2(call, *parts, axis)


@FAMILY.rule("Split", kinds="nt")
def split(call: Call, axis: int, x: Tensor) -> Sequence[Tensor]:
    return ops.split(x, call.attr("num_split", 1), axis)


@FAMILY.rule("SplitV", kinds="tdn")
def split_v(call: Call, x: Tensor, sizes: Sequence[Dim], axis: int) -> Sequence[Tensor]:
    unknown = [i for i, s in enumerate(sizes) if isinstance(s, int) and s < 0]
    found: list[Dim] = list(sizes)
    if unknown:
        rest: Dim = x.shape[axis]
        for i, s in enumerate(sizes):
            rest = rest if i == unknown[0] else rest - s
        found[unknown[0]] = rest
    return ops.split(x, found, axis)


@FAMILY.rule("Tile", kinds="td")
def tile(call: Call, x: Tensor, counts: Sequence[Dim]) -> Tensor:
    if all(isinstance(c, int) for c in counts):
        return ops.tile(x, [int(c) for c in counts if isinstance(c, int)])
    wide: list[Dim] = []
    shape: list[Dim] = []
    for size_, count in zip(x.shape, counts, strict=True):
        wide += [count, size_]
        shape += [1, size_]
    y = ops.broadcast_to(ops.reshape(x, tuple(shape)), tuple(wide))
    return ops.reshape(y, tuple(s * c for s, c in zip(x.shape, counts, strict=True)))


@FAMILY.rule("Pad", "PadV2", "MirrorPad", kinds="tvt")
def pad(call: Call, x: Tensor, widths: Value, value: Tensor | None = None) -> Tensor:
    flat = call.dims(widths, "the paddings")
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    if call.node.op == "MirrorPad":
        mode = {"REFLECT": "reflect", "SYMMETRIC": "symmetric"}[call.text("mode", "REFLECT")]
        return ops.pad(x, pairs, mode)
    return ops.pad(x, pairs, constant_values=0 if value is None else value)


@FAMILY.rule("Range", kinds="v*")
def range_(call: Call, start: Value, limit: Value, step: Value) -> Value:
    dtype = call.dtype("Tidx", "int32")
    first, last = call.dim(start, "the start"), call.dim(limit, "the limit")
    by = call.static(step, "the step").reshape(())
    if int(by) == 1 and first == 0:
        return Counting(last, dtype)
    if int(by) == 1:
        return ops.add(ops.arange(last - first, dtype=dtype), as_tensor(Sizes.of(first, dtype)))
    return ops.arange(first, last, int(by), dtype=dtype)


@FAMILY.rule("LinSpace", kinds="ttn")
def linspace(call: Call, start: Tensor, stop: Tensor, count: int) -> Tensor:
    return ops.linspace(start, stop, count)


@FAMILY.rule("Reverse", kinds="ts")
def reverse(call: Call, x: Tensor, flags: Any) -> Tensor:
    return ops.flip(x, [i for i, flag in enumerate(flags) if flag])


@FAMILY.rule("ReverseV2", kinds="tv")
def reverse_v2(call: Call, x: Tensor, axes: Value) -> Tensor:
    where = call.axes(axes, x.ndim)
    return ops.flip(x, where) if where else x


@FAMILY.rule("ReverseSequence")
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
    return ops.reverse_sequence(x, lengths, call.attr("seq_dim", 1), call.attr("batch_dim", 0))


@FAMILY.rule("Roll", kinds="tss")
def roll(call: Call, x: Tensor, shift: Any, axes: Any) -> Tensor:
    for amount, axis in zip(shift.reshape(-1), axes.reshape(-1), strict=True):
        x = ops.roll(x, int(amount), int(axis))
    return x


@FAMILY.rule("SpaceToDepth", "DepthToSpace")
def rearrange_depth(call: Call, x: Tensor) -> Tensor:
    layout = call.text("data_format", "NHWC")
    if layout not in ("NHWC", "NCHW"):
        call.refuse(f"has the data format {layout}")
    first = layout == "NCHW"
    function = nn.space_to_depth if call.node.op == "SpaceToDepth" else nn.depth_to_space
    y = ops.transpose(x, (0, 2, 3, 1)) if first else x
    y = function(y, call.attr("block_size", 1))
    return ops.transpose(y, (0, 3, 1, 2)) if first else y


def _block(call: Call, given: Value, widths: Value, what: str) -> tuple[list[int], Any]:
    """The sizes of a block, and the two widths at each of its axes. The operators for images have
    one attribute for all sizes, and the widths in place of them."""
    if call.node.op.endswith("ND"):
        block = [int(b) for b in call.static(given, "the block").reshape(-1)]
        return block, call.static(widths, what).reshape(-1, 2)
    return [call.attr("block_size", 1)] * 2, call.static(given, what).reshape(-1, 2)


@FAMILY.rule("SpaceToBatchND", "SpaceToBatch", kinds="tvv")
def space_to_batch(call: Call, x: Tensor, blocks: Value, paddings: Value = None) -> Tensor:
    block, widths = _block(call, blocks, paddings, "the paddings")
    count = len(block)
    pairs = [(0, 0), *((int(a), int(b)) for a, b in widths), *[(0, 0)] * (x.ndim - 1 - count)]
    x = ops.pad(x, pairs)
    split_: list[Dim] = [x.shape[0]]
    for length, by in zip(x.shape[1:], block, strict=False):
        split_ += [length // by, by]
    rest = list(x.shape[1 + count :])
    y = ops.reshape(x, (*split_, *rest))
    inner = [2 + 2 * i for i in range(count)]
    outer = [1 + 2 * i for i in range(count)]
    y = ops.transpose(y, [*inner, 0, *outer, *range(1 + 2 * count, y.ndim)])
    batch = x.shape[0] * int(np.prod(block))
    sizes = [length // by for length, by in zip(x.shape[1:], block, strict=False)]
    return ops.reshape(y, (batch, *sizes, *rest))


@FAMILY.rule("BatchToSpaceND", "BatchToSpace", kinds="tvv")
def batch_to_space(call: Call, x: Tensor, blocks: Value, crops: Value = None) -> Tensor:
    block, cut = _block(call, blocks, crops, "the crops")
    count = len(block)
    batch = x.shape[0] // int(np.prod(block))
    y = ops.reshape(x, (*block, batch, *x.shape[1:]))
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    y = ops.transpose(y, [*order, *range(1 + 2 * count, y.ndim)])
    sizes = [length * by for length, by in zip(x.shape[1:], block, strict=False)]
    y = ops.reshape(y, (batch, *sizes, *x.shape[1 + count :]))
    index = [slice(None)] + [
        slice(int(a), length - int(b)) for length, (a, b) in zip(sizes, cut, strict=True)
    ]
    return y[tuple(index)]


@FAMILY.rule("BroadcastArgs", kinds="dd")
def broadcast_args(call: Call, a: Sequence[Dim], b: Sequence[Dim]) -> Value:
    return Sizes.of(list(ops.broadcast_shapes(tuple(a), tuple(b))), call.dtype())


@FAMILY.rule("BroadcastGradientArgs", kinds="dd", outputs=("r0", "r1"))
def broadcast_gradient_args(call: Call, a: Sequence[Dim], b: Sequence[Dim]) -> list[Value]:
    count = max(len(a), len(b))
    wide: list[list[Dim]] = [[*[1] * (count - len(s)), *s] for s in (a, b)]
    dtype = call.dtype()
    # Axes along which the gradient of each operand is summed. Where both are 1, TensorFlow lists
    # the axis for both: it does not matter.
    return [np.array([i for i in range(count) if own[i] == 1], dtype) for own in wide]


@FAMILY.rule("MatrixDiag", "BatchMatrixDiag")
def matrix_diag(call: Call, x: Tensor) -> Tensor:
    eye = ops.eye(x.shape[-1], dtype=x.dtype)
    return ops.where(ops.equal(eye, 1), ops.expand_dims(x, -1), ops.zeros_like(eye))


@FAMILY.rule("Diag")
def diag(call: Call, x: Tensor) -> Tensor:
    flat = ops.diag(ops.reshape(x, (-1,)))
    return ops.reshape(flat, (*x.shape, *x.shape))


@FAMILY.rule("DiagPart")
def diag_part(call: Call, x: Tensor) -> Tensor:
    half = x.shape[: x.ndim // 2]
    return ops.reshape(ops.diagonal(ops.reshape(x, (product(half), product(half)))), half)


@FAMILY.rule("MatrixDiagV2", "MatrixDiagV3", kinds="tnnnt")
def matrix_diag_v3(
    call: Call, x: Tensor, k: int, rows: int, columns: int, padding: Tensor
) -> Tensor:
    length = x.shape[-1]
    if not isinstance(length, int):
        call.refuse("needs a diagonal of a known length")
    least = (length + max(-k, 0), length + max(k, 0))
    height = rows if rows >= 0 else (least[0] if columns >= 0 else max(least))
    width = columns if columns >= 0 else (least[1] if rows >= 0 else max(least))
    places = np.zeros((height, width), np.int32)
    inside = np.zeros((height, width), bool)
    for i in range(length):
        r, c = i + max(-k, 0), i + max(k, 0)
        if r < height and c < width:
            places[r, c], inside[r, c] = i, True
    return ops.where(ops.constant(inside), ops.take(x, ops.constant(places), -1), padding)


@FAMILY.rule("MatrixDiagPartV2", "MatrixDiagPartV3", kinds="tst")
def matrix_diag_part_v3(call: Call, x: Tensor, k: Any, padding: Tensor) -> Tensor:
    if k.size != 1 and len(set(k.reshape(-1).tolist())) != 1:
        call.refuse("takes several diagonals")
    return ops.diagonal(x, int(k.reshape(-1)[0]), -2, -1)


@FAMILY.rule(
    "MatrixSetDiag", "BatchMatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", kinds="tts"
)
def matrix_set_diag(call: Call, x: Tensor, values: Tensor, k: Any = None) -> Tensor:
    shift = 0 if k is None else int(k.reshape(-1)[0])
    if k is not None and len(set(k.reshape(-1).tolist())) != 1:
        call.refuse("sets several diagonals")
    height, width = x.shape[-2:]
    if not isinstance(height, int) or not isinstance(width, int):
        call.refuse("needs a matrix of known sizes")
    if height * width > _LARGEST:
        call.refuse(f"has matrices of {height} x {width}")
    on = np.eye(height, width, shift, dtype=bool)
    index = np.minimum(np.arange(width if shift < 0 else height), int(on.sum()) - 1)
    wide = ops.take(values, ops.constant(index.astype(np.int32)), -1)
    return ops.where(ops.constant(on), ops.expand_dims(wide, -1 if shift >= 0 else -2), x)


@FAMILY.rule("MatrixBandPart", "BatchMatrixBandPart", kinds="tnn")
def band_part(call: Call, x: Tensor, below: int, above: int) -> Tensor:
    return ops.matrix_band_part(x, below, above)
