"""Cross-entropies between logits and labels, one value per example."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import is_floating, is_integer
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.broadcasting import Adjoints, infer_floating, require_one_dtype, unbroadcast
from graphc.ops.emit import convert, emit, emit_one, promote_operands
from graphc.ops.layout_rules import elementwise, replicated
from graphc.ops.stable import row_index, shifted, wide


def _rowwise(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """Each row of logits by itself: any axis but that of the classes may be cut."""
    classes = node.inputs[0].ndim - 1
    for layout in operands:
        if isinstance(layout, Sharded) and layout.axis != classes:
            return LayoutPlan([layout] * len(operands), [layout] * len(node.outputs))
    return replicated(ctx, node, *operands)


def _check_logits(ctx: InferContext, logits: TensorType) -> None:
    ctx.require_dtype([logits], is_floating, "floating")
    ctx.require(logits.rank > 0, "logits must have an axis of classes, got a scalar")


# -- labels as distributions ----------------------------------------------------------------


def _infer_dense(ctx: InferContext, logits: TensorType, labels: TensorType) -> TensorType:
    _check_logits(ctx, logits)
    require_one_dtype(ctx, logits, labels)
    ctx.require(
        logits.rank == labels.rank,
        f"labels must have the shape of logits, got {labels.rank} axes for {logits.rank}",
        mend="for labels that are class numbers use sparse_softmax_cross_entropy",
    )
    for a, b in zip(logits.shape, labels.shape, strict=True):
        ctx.unify(a, b, "sizes of logits and labels")
    return TensorType(logits.dtype, logits.shape[:-1])


def _lower_dense(ctx: LowerContext, logits: Any, labels: Any) -> Any:
    dtype = wide(logits.dtype)
    below = shifted(lax.convert_element_type(logits, dtype), -1)
    normalizer = lax.log(jnp.sum(lax.exp(below), axis=-1, keepdims=True))
    loss = jnp.sum((normalizer - below) * lax.convert_element_type(labels, dtype), axis=-1)
    return lax.convert_element_type(loss, logits.dtype)


def _dense_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    logits, labels = node.inputs
    column = ctx.ops.expand_dims(dy, -1)
    weights = labels * column
    total = ctx.ops.reduce_sum(weights, axis=-1, keepdims=True)
    return [
        ctx.ops.softmax(logits) * total - weights,
        ctx.ops.log_softmax(logits) * -column,
    ]


SOFTMAX_CROSS_ENTROPY = OpDef(
    name="SoftmaxCrossEntropy",
    signature="logits, labels -> loss",
    infer=_infer_dense,
    lower=_lower_dense,
    gradient=_dense_gradient,
    layout=_rowwise,
    doc="-sum(labels * log_softmax(logits)) over the last axis: logits and labels [..., classes] "
    "give [...]. Floating dtypes; narrow ones are computed in float32.",
)


# -- labels as class numbers ----------------------------------------------------------------


def _infer_sparse(ctx: InferContext, logits: TensorType, labels: TensorType) -> TensorType:
    _check_logits(ctx, logits)
    if not is_integer(labels.dtype):
        ctx.require(
            False,
            f"labels must be integers (class numbers), got {labels.dtype.name}",
            mend="for labels that are distributions use softmax_cross_entropy",
            dtype=True,
        )
    _unify_rows(ctx, logits, labels, "labels")
    return TensorType(logits.dtype, logits.shape[:-1])


def _unify_rows(ctx: InferContext, logits: TensorType, rows: TensorType, what: str) -> None:
    ctx.require(
        rows.rank == logits.rank - 1,
        f"{what} must have one axis less than logits, got {rows.rank} for {logits.rank}",
    )
    for a, b in zip(logits.shape[:-1], rows.shape, strict=True):
        ctx.unify(a, b, f"sizes of logits and {what}")


def _lower_sparse(ctx: LowerContext, logits: Any, labels: Any) -> Any:
    dtype = wide(logits.dtype)
    values = lax.convert_element_type(logits, dtype)
    largest = lax.stop_gradient(jnp.max(values, axis=-1))
    total = jnp.sum(lax.exp(values - largest[..., None]), axis=-1)
    index = row_index(labels, logits.shape[-1])
    picked = jnp.take_along_axis(values, index[..., None], axis=-1, mode="fill")[..., 0]
    return lax.convert_element_type(lax.log(total) + (largest - picked), logits.dtype)


def _sparse_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    return [emit(SPARSE_SOFTMAX_CROSS_ENTROPY_GRADIENT, (*node.inputs, dy)), None]


SPARSE_SOFTMAX_CROSS_ENTROPY = OpDef(
    name="SparseSoftmaxCrossEntropy",
    signature="logits, labels -> loss",
    infer=_infer_sparse,
    lower=_lower_sparse,
    gradient=_sparse_gradient,
    layout=_rowwise,
    doc="-log_softmax(logits)[label] of each row: logits [..., classes] floating and labels "
    "[...] integers give [...]. A label out of range gives NaN. Narrow dtypes are computed in "
    "float32.",
)


def _infer_sparse_gradient(
    ctx: InferContext, logits: TensorType, labels: TensorType, dy: TensorType
) -> TensorType:
    _infer_sparse(ctx, logits, labels)
    _unify_rows(ctx, logits, dy, "dy")
    return logits


def _lower_sparse_gradient(ctx: LowerContext, logits: Any, labels: Any, dy: Any) -> Any:
    dtype = wide(logits.dtype)
    # The exponentials and their sum are those of the loss: XLA computes them once.
    exponentials = lax.exp(shifted(lax.convert_element_type(logits, dtype), -1))
    total = jnp.sum(exponentials, axis=-1)
    weight = lax.convert_element_type(dy, dtype)
    spread = exponentials * (weight / total)[..., None]
    rows = spread.reshape(-1, logits.shape[-1])
    # Taking `dy` off one element a row costs less than comparing every element with the label.
    index = row_index(labels, logits.shape[-1]).reshape(-1)
    result = rows.at[jnp.arange(rows.shape[0]), index].add(
        -weight.reshape(-1), mode="drop", unique_indices=True, indices_are_sorted=True
    )
    return lax.convert_element_type(result.reshape(logits.shape), logits.dtype)


SPARSE_SOFTMAX_CROSS_ENTROPY_GRADIENT = OpDef(
    name="SparseSoftmaxCrossEntropyGradient",
    signature="logits, labels, dy -> dlogits",
    infer=_infer_sparse_gradient,
    lower=_lower_sparse_gradient,
    layout=_rowwise,
    doc="The adjoint of SparseSoftmaxCrossEntropy's logits: (softmax(logits) - one_hot(labels)) "
    "* dy. logits [..., classes], labels and dy [...].",
)


# -- independent classes --------------------------------------------------------------------


def _lower_sigmoid(ctx: LowerContext, logits: Any, labels: Any) -> Any:
    # No term is a difference of large ones, whatever the sign of the logits.
    return jnp.maximum(logits, 0) - logits * labels + lax.log1p(lax.exp(-lax.abs(logits)))


def _sigmoid_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    logits, labels = node.inputs
    return [
        unbroadcast(ctx, (ctx.ops.sigmoid(logits) - labels) * dy, logits),
        unbroadcast(ctx, -(logits * dy), labels),
    ]


def _fold_sigmoid(x: np.ndarray[Any, Any], z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    loss: np.ndarray[Any, Any] = np.maximum(x, x.dtype.type(0)) - x * z
    loss = loss + np.log1p(np.exp(-np.abs(x)))
    return loss


SIGMOID_CROSS_ENTROPY = OpDef(
    name="SigmoidCrossEntropy",
    signature="logits, labels -> loss",
    infer=infer_floating,
    lower=_lower_sigmoid,
    gradient=_sigmoid_gradient,
    layout=elementwise,
    fold=_fold_sigmoid,
    doc="-labels * log(p) - (1 - labels) * log(1 - p) with p = sigmoid(logits), elementwise with "
    "broadcasting. Floating dtypes.",
)


# -- functions ------------------------------------------------------------------------------


def softmax_cross_entropy(logits: Any, labels: Any, *, name: str | None = None) -> Tensor:
    """Cross-entropy of the softmax of `logits` against distributions, over the last axis.

    Args:
        logits: [..., classes], floating.
        labels: [..., classes], promoted with `logits`; rows that sum to 1, or weights.

    Returns:
        [...]: one loss per row; average it with `reduce_mean`.

    Raises:
        ShapeError: shapes that differ.
    """
    return emit_one(SOFTMAX_CROSS_ENTROPY, promote_operands(logits, labels), name=name)


def sparse_softmax_cross_entropy(logits: Any, labels: Any, *, name: str | None = None) -> Tensor:
    """Cross-entropy of the softmax of `logits` against class numbers.

    Args:
        logits: [..., classes], floating.
        labels: [...], integers in [0, classes). One out of range gives NaN: to leave rows out,
            give them any class and a weight of 0, or select with `where`.

    Returns:
        [...]: one loss per row; average it with `reduce_mean`.

    Raises:
        ShapeError: leading sizes that differ.
        DTypeError: labels that are not integers.
    """
    operands = (convert(logits), convert(labels))
    return emit_one(SPARSE_SOFTMAX_CROSS_ENTROPY, operands, name=name)


def sigmoid_cross_entropy(logits: Any, labels: Any, *, name: str | None = None) -> Tensor:
    """Cross-entropy of the sigmoid of `logits` against probabilities, elementwise.

    Args:
        logits: floating, any shape.
        labels: in [0, 1], promoted with `logits`, of a shape that broadcasts with it.

    Returns:
        One loss per element.
    """
    return emit_one(SIGMOID_CROSS_ENTROPY, promote_operands(logits, labels), name=name)


OPS: tuple[OpDef, ...] = (
    SOFTMAX_CROSS_ENTROPY,
    SPARSE_SOFTMAX_CROSS_ENTROPY,
    SPARSE_SOFTMAX_CROSS_ENTROPY_GRADIENT,
    SIGMOID_CROSS_ENTROPY,
)
