"""Fold constants: values that depend on constants only are computed once, on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphc.errors import PassError
from graphc.ir.dims import has_names
from graphc.ir.dtypes import SHORT, kind_of
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure
from graphc.ir.types import TensorType
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replaces a node whose operands are all constants by its value, computed by the operator's
    NumPy `fold`. A named size is a constant once it is bound.

    XLA folds as well, once per compilation and after JAX has traced each node. Folding here makes
    the program smaller and shows the value to other passes (x * (2 - 1) is x).

    Must not: make the program larger. A result with more elements than all operands together (a
    broadcast scalar, an iota, a one-hot table) is cheaper to compute than to store; a single
    element is always folded. Nodes for which NumPy and XLA differ stay; NumPy reports them (integer
    division by zero, NaN to int, 0/0).

    Attributes:
        limit: the maximum size of a result in bytes. Hashing, printing and lowering a constant of
            up to 64 KiB takes microseconds. A larger one would be part of every text, artifact and
            executable.
    """

    limit: int = 64 * 1024

    def run(self, program: Program) -> PassResult:
        values: dict[Tensor, Array] = {}

        def folded(node: Node) -> Node | list[Node]:
            if node.op is CONSTANT:
                values[node.outputs[0]] = node.attrs["value"]
                return node
            if node.op.fold is None or node.regions or not all(t in values for t in node.inputs):
                return node
            constants = self._fold(node, [values[t] for t in node.inputs])
            values.update((n.outputs[0], n.attrs["value"]) for n in constants)
            return constants or node

        return rewrite_nodes(self, program, folded)

    def _fold(self, node: Node, operands: list[Array]) -> list[Node]:
        """The constants that replace the results of `node`; empty if it must stay."""
        types = [tensor.type for tensor in node.outputs]
        if not is_pure(node) or any(map(has_names, node.attrs.values())):
            return []
        if not all(type.is_static for type in types):
            return []
        given = sum(operand.size for operand in operands)
        for type in types:
            size = int(prod(type.shape))  # type: ignore[arg-type]
            if size > max(given, 1) or size * type.dtype.itemsize > self.limit:
                return []
        results = fold_node(node, operands)
        if results is None:
            return []
        return [
            node.replace(op=CONSTANT, inputs=(), outputs=(tensor,), attrs={"value": value})
            for tensor, value in zip(node.outputs, results, strict=True)
        ]


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
