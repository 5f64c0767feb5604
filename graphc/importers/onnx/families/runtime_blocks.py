"""Operators of ONNX Runtime on weights of few bits, with a scale for each block of elements."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.onnx.call import Call, Refused, Rule
from graphc.importers.onnx.limits import limited, without
from graphc.ir.node import Tensor


def unpacked(packed: Tensor, bits: int) -> Any:
    """The numbers in the bytes of the last axis, the lowest bits first, as int32."""
    wide = ops.cast(packed, "int32")
    if bits == 8:
        return wide
    each, mask = 8 // bits, (1 << bits) - 1
    parts = [ops.bitwise_and(ops.right_shift(wide, bits * i), mask) for i in range(each)]
    stacked = ops.stack(parts, axis=-1)
    return ops.reshape(stacked, (*packed.shape[:-1], packed.shape[-1] * each))


def _bits(call: Call) -> int:
    bits = int(call.attr("bits", 4))
    if bits not in (2, 4, 8):
        raise Refused(f"with weights of {bits} bits is not supported")
    return bits


def _zero_points(call: Call, i: int, blocks: int, bits: int) -> Any:
    """The zero point of each block: packed as the weights, or as floats; the middle by default."""
    if not call.has(i):
        return float(1 << (bits - 1))
    zero = call.x(i)
    if zero.dtype.kind == "f":
        return ops.reshape(zero, (-1, blocks, 1))
    rows = ops.reshape(zero, (-1, -(-blocks * bits // 8)))
    return ops.cast(ops.expand_dims(unpacked(rows, bits)[:, :blocks], -1), "float32")


def _matmul(call: Call) -> Any:
    """A times a matrix [outputs, inputs] whose rows are blocks of numbers of few bits."""
    without(call, weight_prepacked=0)
    if call.has(4):
        raise Refused("with 'g_idx', the groups of the rows, is not supported")
    x, bits = call.x(0), _bits(call)
    outputs, inputs, size = (int(call.attr(name, 0)) for name in ("N", "K", "block_size"))
    blocks = -(-inputs // size)
    numbers = unpacked(ops.reshape(call.x(1), (outputs, blocks, size * bits // 8)), bits)
    shifted = ops.cast(numbers, "float32") - _zero_points(call, 3, blocks, bits)
    scales = ops.reshape(call.x(2), (outputs, blocks, 1))
    weights = shifted * ops.cast(scales, "float32")
    w = ops.reshape(weights, (outputs, blocks * size))[:, :inputs]
    y = ops.matmul(x, ops.transpose(ops.cast(w, x.dtype)))
    return y + call.x(5) if call.has(5) else y


def _gather(call: Call) -> Any:
    """Rows of a table, then their numbers as floats: the table stays packed."""
    table, indices, scales = (call.x(i) for i in range(3))
    rank, packed = table.ndim, table.dtype.name == "uint8"
    bits = _bits(call) if packed else 4
    gather, along = (call.attr(n, d) % rank for n, d in (("gather_axis", 0), ("quantize_axis", 1)))
    if table.dtype.name not in ("uint8", "int4", "uint4"):
        raise Refused(f"of elements of type {table.dtype.name} is not supported")
    if gather == along:
        raise Refused("with gather_axis equal to quantize_axis is not supported")
    size = int(call.attr("block_size", 128))

    def rows(v: Tensor) -> Any:
        if v.dtype.name in ("int4", "uint4"):
            v = ops.cast(v, "int8")
        taken = ops.take(v, indices, axis=gather, mode="zero")
        return unpacked(taken, bits) if packed and v.dtype.kind != "f" else taken

    axis = along if along < gather else along + indices.ndim - 1
    numbers, factors = rows(table), ops.take(scales, indices, axis=gather, mode="zero")
    if call.has(3):
        zero: Any = rows(call.x(3))
        zero = _cut(ops.cast(_spread(zero, size, axis), "float32"), numbers, axis)
    else:
        zero = float(1 << (bits - 1)) if packed else 0.0
    spread = _cut(_spread(ops.cast(factors, "float32"), size, axis), numbers, axis)
    return ops.cast((ops.cast(numbers, "float32") - zero) * spread, scales.dtype)


def _spread(v: Any, size: int, axis: int) -> Any:
    return ops.repeat(v, size, axis=axis)


def _cut(v: Any, like: Any, axis: int) -> Any:
    """As many elements along an axis as there are in another tensor."""
    return v[(*(slice(None),) * axis, slice(0, like.shape[axis]))]


_BITS: Final = "K N accuracy_level bits block_size weight_prepacked"

RULES: Final[dict[str, Rule]] = {
    "GatherBlockQuantized": limited(_gather, 4, "bits block_size gather_axis quantize_axis"),
    "MatMulNBits": limited(_matmul, 6, _BITS),
}
