"""Splits the axis of products that combines batch entries and heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Any

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE, TRANSPOSE, reshape
from graphc.ops.core.emit import emit_one
from graphc.ops.elementwise.activation import LOG_SOFTMAX, SOFTMAX
from graphc.ops.matrices.contraction import DOT_GENERAL
from graphc.ops.matrices.matrix_product import MATMUL
from graphc.ops.reductions.reduction import REDUCE_MAX, REDUCE_SUM

Split = tuple[int, ...]


def split_batches(program: Program) -> Program:
    """The program with the first axis split in every product, and in the values computed from it,
    if operands were reshaped from several axes or if the result is reshaped to several axes.

    `[batch * heads, time, source]` and `[batch, heads, time, source]` may alternate in the logits
    of one attention. Afterwards all of them have both axes, and results that have other uses are
    reshaped. If there is nothing to split, the same program is returned.
    """
    splitter = _Splitter(program)
    for node in program.nodes:
        splitter.look_at(node)
    return program.replace(nodes=tuple(splitter.nodes)) if splitter.changed else program


def _split_of(narrow: Tensor, wide: Tensor) -> Split | None:
    """The first axes of `wide`, two or more, whose product is the first axis of `narrow`, if their
    other axes are the same."""
    few, many = narrow.type.shape, wide.type.shape
    count = len(many) - len(few) + 1
    if len(few) < 2 or count < 2 or not (narrow.type.is_static and wide.type.is_static):
        return None
    split: Any = many[:count]
    return split if many[count:] == few[1:] and prod(split) == few[0] else None


class _Splitter:
    """Rewrites the nodes.

    Attributes:
        nodes: the nodes so far.
        changed: whether a node was rewritten.
    """

    def __init__(self, program: Program) -> None:
        self.nodes: list[Node] = []
        self.changed = False
        self._whole: dict[tuple[Tensor, Split], Tensor] = {}
        self._splits: dict[Tensor, Split] = {}  # of tensors reshaped from several axes
        self._wanted: dict[Tensor, Split] = {}  # of tensors reshaped to several axes
        makers = program.producers()
        uses = Counter(tensor for node in program.nodes for tensor in node.inputs)
        for node in program.nodes:
            split = _split_of(node.inputs[0], node.outputs[0]) if node.op is RESHAPE else None
            if split is not None:
                self._want(node.inputs[0], split, makers, uses)

    def _want(
        self, tensor: Tensor, split: Split, makers: Mapping[Tensor, Node], uses: Counter[Tensor]
    ) -> None:
        """Marks `tensor`, and the elementwise operands that are used only for it."""
        self._wanted[tensor] = split
        maker = makers.get(tensor)
        operands = maker.inputs if maker is not None and _is_elementwise(maker) else ()
        same = [t for t in operands if t.type.shape == tensor.type.shape]
        if len(same) == 1 and uses[same[0]] == 1:
            self._want(same[0], split, makers, uses)

    def look_at(self, node: Node) -> None:
        split = self._split_of(node)
        if node.op is RESHAPE and split is None:
            split = _split_of(node.outputs[0], node.inputs[0])
            if split is not None:
                self._splits[node.outputs[0]] = split
                self._whole[node.outputs[0], split] = node.inputs[0]
            self.nodes.append(node)
        elif split is None or not self._split(node, split):
            self.nodes.append(node)

    def _split_of(self, node: Node) -> Split | None:
        """How the first axis of a node's operands is split."""
        for tensor in node.inputs:
            if tensor in self._splits:
                return self._splits[tensor]
        is_product = node.op is DOT_GENERAL or node.op is MATMUL
        return self._wanted.get(node.outputs[0]) if is_product and node.outputs else None

    def _split(self, node: Node, split: Split) -> bool:
        """Computes the node with more axes, if its attributes for them are known."""
        attrs = _attributes(node, split)
        if attrs is None or len(node.outputs) != 1:
            return False
        old = node.outputs[0]
        entries = prod(split)
        if not old.type.is_static or len(old.type.shape) < 2 or old.type.shape[0] != entries:
            return False
        if any(not t.type.is_static for t in node.inputs):
            return False
        with Builder(node) as builder:
            rank = max(len(t.type.shape) for t in node.inputs)
            inputs = [self._operand(t, split, rank) for t in node.inputs]
            new = emit_one(node.op, inputs, None, **attrs)
            builder.define((reshape(new, old.type.shape), old))
        self.nodes += builder.nodes
        self._splits[old], self._whole[old, split] = split, new
        self.changed = True
        return True

    def _operand(self, tensor: Tensor, split: Split, rank: int) -> Tensor:
        shape = tensor.type.shape
        if len(shape) < rank:
            return tensor  # broadcast along the first axis
        if shape[0] == 1 != prod(split):
            return reshape(tensor, (*(1 for _ in split), *shape[1:]))
        if (tensor, split) not in self._whole:
            self._whole[tensor, split] = reshape(tensor, (*split, *shape[1:]))
        return self._whole[tensor, split]


def _attributes(node: Node, split: Split) -> dict[str, Any] | None:
    """The node's attributes if axes of these sizes replace the first one; None if unknown."""
    attrs, more = dict(node.attrs), len(split) - 1
    if node.op is MATMUL:
        ranks = {len(t.type.shape) for t in node.inputs}
        firsts = {t.type.shape[0] for t in node.inputs}
        return attrs if ranks == {3} and len(firsts) == 1 else None
    if node.op is DOT_GENERAL:
        if attrs["lhs_batch"] != (0,) or attrs["rhs_batch"] != (0,):
            return None
        for side in ("lhs", "rhs"):
            attrs[f"{side}_batch"] = tuple(range(more + 1))
            attrs[f"{side}_contract"] = tuple(axis + more for axis in attrs[f"{side}_contract"])
        return attrs
    if node.op in (SOFTMAX, LOG_SOFTMAX) and attrs["axis"] > 0:
        return attrs | {"axis": attrs["axis"] + more}
    if node.op in (REDUCE_SUM, REDUCE_MAX) and 0 not in attrs["axes"]:
        return attrs | {"axes": tuple(axis + more for axis in attrs["axes"])}
    if node.op is TRANSPOSE and attrs["perm"][0] == 0:
        first = tuple(range(more + 1))
        return {"perm": (*first, *[axis + more for axis in attrs["perm"][1:]])}
    if node.op is RESHAPE and node.inputs[0].type.shape[:1] == attrs["shape"][:1]:
        return {"shape": (*split, *attrs["shape"][1:])}
    if node.op is BROADCAST_TO:
        same_rank = node.inputs[0].type.rank == len(attrs["shape"])
        return {"shape": (*split, *attrs["shape"][1:])} if same_rank else None
    return attrs if _is_elementwise(node) else None


def _is_elementwise(node: Node) -> bool:
    """Whether each element depends only on the operands' elements at its position, with
    broadcasting."""
    return node.op.is_elementwise and len(node.outputs) == 1 and is_pure(node)
