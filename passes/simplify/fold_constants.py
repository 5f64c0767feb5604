"""Fold constants: values that depend on constants only are computed once, on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.errors import PassError
from graphc.ir.costs import size_of
from graphc.ir.dims import has_names
from graphc.ir.dtypes import SHORT, Array, kind_of
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure
from graphc.ir.types import TensorType
from graphc.ops.core.cost_rules import free, moves_only, picks
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replaces a node whose operands are all constants by its value, computed by the operator's
    NumPy `fold`. A named size is a constant once it is bound.

    XLA folds as well, once per compilation and after JAX has traced each node. Folding here makes
    the program smaller and shows the value to other passes (x * (2 - 1) is x).

    Must not: make the program larger. A result with more elements than all constant operands
    together (a broadcast scalar, an iota, a one-hot table) is cheaper to compute than to store; a
    single element is always folded. Nodes for which NumPy and XLA differ stay; NumPy reports them
    (integer division by zero, NaN to int, 0/0).

    Integers that are computed across positions (a cumulative sum, a sort, a scatter) are folded
    even if their operands are not stored, up to `few` elements. Each of them would be a kernel. For
    example, `jax.numpy.triu_indices` computes indices in this way.

    Attributes:
        limit: the maximum size of a result in bytes. Hashing, printing and lowering a constant of
            up to 64 KiB takes microseconds. A larger one would be part of every text, artifact and
            executable.
        few: the maximum number of elements of values that are known but not stored.
    """

    limit: int = 64 * 1024
    few: int = 4096

    def run(self, program: Program) -> PassResult:
        values: dict[Tensor, Array] = {}
        stored: set[Tensor] = set()

        def folded(node: Node) -> Node | list[Node]:
            if node.op is CONSTANT:
                values[node.outputs[0]] = node.attrs["value"]
                stored.add(node.outputs[0])
                return node
            if node.inputs and node.inputs[0] not in values:  # by far the most frequent case
                return node
            if node.op.fold is None or node.regions or not all(t in values for t in node.inputs):
                return node
            if not _is_foldable(node):
                return node
            is_stored = self._is_stored(node, [t for t in node.inputs if t in stored])
            if not is_stored and not self._is_known(node):
                return node
            results = fold_node(node, [values[t] for t in node.inputs])
            if results is None:
                return node
            values.update(zip(node.outputs, results, strict=True))
            if not is_stored:
                return node
            stored.update(node.outputs)
            return [
                node.replace(op=CONSTANT, inputs=(), outputs=(tensor,), attrs={"value": value})
                for tensor, value in zip(node.outputs, results, strict=True)
            ]

        return rewrite_nodes(self, program, folded)

    def _is_stored(self, node: Node, constants: Sequence[Tensor]) -> bool:
        """Whether constants may replace the results of `node`. `constants` are those of its
        operands that are constants."""
        sizes = [(size_of(tensor), tensor.type.dtype.itemsize) for tensor in node.outputs]
        if len(constants) < len(node.inputs) and not _is_cheap(node):
            # Sums of floats are rounded differently by NumPy.
            are_integers = all(t.type.dtype.kind in "biu" for t in node.outputs)
            return are_integers and all(size <= self.few for size, _ in sizes)
        given = sum(map(size_of, constants))
        return all(size <= max(given, 1) and size * width <= self.limit for size, width in sizes)

    def _is_known(self, node: Node) -> bool:
        """Whether to compute the results of `node` for the nodes that use them."""
        return _is_cheap(node) and all(size_of(tensor) <= self.few for tensor in node.outputs)


def _is_foldable(node: Node) -> bool:
    static = all(tensor.type.is_static for tensor in node.outputs)
    return static and is_pure(node) and not any(map(has_names, node.attrs.values()))


def _is_cheap(node: Node) -> bool:
    """Whether XLA computes the results inside the kernels that use them."""
    return node.op.is_elementwise or node.op.cost in (free, moves_only, picks)


def fold_node(node: Node, operands: Sequence[Array]) -> list[Array] | None:
    """The values of the results of a node, with exactly their types; None if the node must stay.

    Raises:
        PassError: the results of the operator's `fold` do not have the declared types.
    """
    results = _evaluate(node.op.fold, operands, node.attrs)
    if results is None:
        return None
    return [_fit(result, t.type) for result, t in zip(results, node.outputs, strict=True)]


def _evaluate(
    fold: Callable[..., Any] | None, operands: Sequence[Array], attrs: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """The results of `fold`; None if it declines, or if NumPy reports a doubtful value.

    Overflow and underflow are the same in NumPy and XLA: an infinity, a wrapped integer, a zero.
    """
    if fold is None:
        return None
    try:
        with np.errstate(divide="raise", invalid="raise", over="ignore", under="ignore"):
            result = fold(*operands, **attrs)
    except ArithmeticError:
        return None
    if result is None:
        return None
    return result if isinstance(result, tuple) else (result,)


def _fit(result: Any, type: TensorType) -> Array:
    """`result` as a read-only array of exactly this type.

    NumPy may compute in a wider dtype of the same kind (sums of int32 in int64). Such results are
    converted. Any other dtype is a bug of the operator's `fold`.
    """
    array = np.asarray(result)
    known = array.dtype in SHORT
    if array.shape != type.shape or not known or kind_of(array.dtype) != kind_of(type.dtype):
        raise PassError(
            f"fold gave {array.dtype.name}[{', '.join(map(str, array.shape))}] in place of {type}",
            hint="correct the `fold` of the operator's record",
        )
    if array.dtype != type.dtype or array.base is not None:  # a view would keep all of its base
        array = array.astype(type.dtype)
    array.flags.writeable = False
    return array
