"""Simplify shapes: moves of elements that have no effect, undo each other, or can be joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphc.ir.node import Node, Tensor, same_items
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program
from graphc.ops.arrays.joining import CONCATENATE, SPLIT
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE, TRANSPOSE
from graphc.ops.arrays.slicing import PAD, REVERSE, SLICE
from graphc.ops.core.emit import CAST
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.reductions.reduction_rules import PLAIN_REDUCTIONS
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.rules import Answer, Rewriter, Rule, change, simplify


@dataclass(frozen=True)
class SimplifyShapes(Pass):
    """Joins or removes a reshape of a reshape, a transpose of a transpose, a slice of a slice, a
    broadcast of a broadcast and similar pairs. A reduction over axes of size 1 becomes a reshape; a
    transpose of an operand of a matrix product becomes a flag of the product; a split of a
    concatenation is removed.

    XLA moves no elements for most of these either, once JAX has traced and lowered them. Adjoints
    are full of them (sums over no axes, restored keepdims, transposed operands), and layouts
    propagate better through short chains.

    Must not: assume that a named size is 1; remove broadcasts before elementwise operators,
    although these broadcast themselves, because the result of the broadcast may be the sharded
    value.
    """

    def run(self, program: Program) -> PassResult:
        return simplify(self, program, RULES)


def _cast(rw: Rewriter, node: Node) -> Answer:
    x = node.inputs[0]
    return x if x.type == node.outputs[0].type else None


# -- reshape, transpose, broadcast -----------------------------------------------------------


def _reshape(rw: Rewriter, node: Node) -> Answer:
    x = node.inputs[0]
    if x.type == node.outputs[0].type:
        return x
    inner = rw.maker(x, RESHAPE)
    if inner is not None:
        return node.replace(inputs=inner.inputs)
    return _of_scalar_broadcast(rw, node)


def _transpose(rw: Rewriter, node: Node) -> Answer:
    x, perm = node.inputs[0], node.attrs["perm"]
    if perm == tuple(range(len(perm))):
        return x
    inner = rw.maker(x, TRANSPOSE)
    if inner is not None:
        joined = tuple(inner.attrs["perm"][axis] for axis in perm)
        return change(node, TRANSPOSE, inner.inputs, perm=joined)
    return _of_scalar_broadcast(rw, node)


def _broadcast_to(rw: Rewriter, node: Node) -> Answer:
    x, shape = node.inputs[0], node.attrs["shape"]
    if x.type.shape == shape:
        return x
    inner = rw.maker(x, BROADCAST_TO)
    if inner is not None:
        return node.replace(inputs=inner.inputs)
    reshaped = rw.maker(x, RESHAPE)
    if reshaped is not None and _adds_leading_ones(reshaped):
        return node.replace(inputs=reshaped.inputs)
    return None


def _adds_leading_ones(reshape: Node) -> bool:
    old, new = reshape.inputs[0].type.shape, reshape.outputs[0].type.shape
    lead = len(new) - len(old)
    return lead >= 0 and new[lead:] == old and all(dim == 1 for dim in new[:lead])


def _of_scalar_broadcast(rw: Rewriter, node: Node) -> Answer:
    """Moving equal elements is a broadcast to the shape of the result."""
    repeated = rw.maker(node.inputs[0], BROADCAST_TO)
    if repeated is None or repeated.inputs[0].type.shape:
        return None
    return change(node, BROADCAST_TO, repeated.inputs, shape=node.outputs[0].type.shape)


# -- slice, pad, reverse ---------------------------------------------------------------------


def _slice(rw: Rewriter, node: Node) -> Answer:
    x, attrs = node.inputs[0], node.attrs
    starts, limits, strides = attrs["starts"], attrs["limits"], attrs["strides"]
    if limits == x.type.shape and not any(starts) and _all_one(strides):
        return x
    inner = rw.maker(x, SLICE)
    if inner is not None:
        before = inner.attrs["starts"]
        if _all_one(strides) and _all_one(inner.attrs["strides"]):
            return change(
                node,
                SLICE,
                inner.inputs,
                starts=tuple(a + b for a, b in zip(before, starts, strict=True)),
                limits=tuple(a + b for a, b in zip(before, limits, strict=True)),
                strides=strides,
            )
    return _of_scalar_broadcast(rw, node)


def _all_one(strides: tuple[int, ...]) -> bool:
    return strides == (1,) * len(strides)


def _pad(rw: Rewriter, node: Node) -> Answer:
    return node.inputs[0] if not any(any(triple) for triple in node.attrs["pads"]) else None


def _reverse(rw: Rewriter, node: Node) -> Answer:
    x, axes = node.inputs[0], node.attrs["axes"]
    kept = tuple(axis for axis in axes if x.type.shape[axis] != 1)
    if not kept:
        return x
    inner = rw.maker(x, REVERSE)
    if inner is not None:
        both = tuple(sorted({*kept} ^ {*inner.attrs["axes"]}))
        return change(node, REVERSE, inner.inputs, axes=both)
    return change(node, REVERSE, (x,), axes=kept) if kept != axes else None


# -- concatenate, split ----------------------------------------------------------------------


def _concatenate(rw: Rewriter, node: Node) -> Answer:
    if len(node.inputs) == 1:
        return node.inputs[0]
    axis = node.attrs["axis"]
    full = [x for x in node.inputs if x.type.shape[axis] != 0]
    if full and len(full) < len(node.inputs):
        return node.replace(inputs=tuple(full))
    pieces = _whole_split(rw, node.inputs)
    return pieces.inputs[0] if pieces is not None and pieces.attrs["axis"] == axis else None


def _whole_split(rw: Rewriter, xs: tuple[Tensor, ...]) -> Node | None:
    """The split whose pieces are exactly `xs`, in order."""
    split = rw.maker(xs[0], SPLIT)
    return split if split is not None and same_items(split.outputs, xs) else None


def _split(rw: Rewriter, node: Node) -> Answer:
    if len(node.outputs) == 1:
        return node.inputs[0]
    joined = rw.maker(node.inputs[0], CONCATENATE)
    if joined is None or joined.attrs["axis"] != node.attrs["axis"]:
        return None
    same = [t.type for t in joined.inputs] == [t.type for t in node.outputs]
    return joined.inputs if same else None


# -- reductions, products --------------------------------------------------------------------


def _reduce(rw: Rewriter, node: Node) -> Answer:
    """A reduction over no axes, or only over axes of size 1, is a reshape."""
    x, result = node.inputs[0], node.outputs[0]
    if any(x.type.shape[axis] != 1 for axis in node.attrs["axes"]):
        return None
    if node.attrs.get("count") not in (None, 1) or x.type.dtype != result.type.dtype:
        return None
    return change(node, RESHAPE, (x,), shape=result.type.shape)


def _matmul(rw: Rewriter, node: Node) -> Answer:
    """An operand that is transposed in its last two axes becomes a flag."""
    inputs, attrs = list(node.inputs), dict(node.attrs)
    for i, flag in enumerate(("transpose_a", "transpose_b")):
        inner = rw.maker(inputs[i], TRANSPOSE)
        if inner is not None and _swaps_last_two(inner.attrs["perm"]):
            inputs[i] = inner.inputs[0]
            attrs[flag] = not attrs[flag]
    if same_items(inputs, node.inputs):
        return None
    return node.replace(inputs=tuple(inputs), attrs=attrs)


def _swaps_last_two(perm: tuple[int, ...]) -> bool:
    rank = len(perm)
    return rank >= 2 and perm == (*range(rank - 2), rank - 1, rank - 2)


RULES: Final[dict[OpDef, Rule]] = {
    CAST: _cast,
    RESHAPE: _reshape,
    TRANSPOSE: _transpose,
    BROADCAST_TO: _broadcast_to,
    SLICE: _slice,
    PAD: _pad,
    REVERSE: _reverse,
    CONCATENATE: _concatenate,
    SPLIT: _split,
    **dict.fromkeys(PLAIN_REDUCTIONS, _reduce),
    MATMUL: _matmul,
}
