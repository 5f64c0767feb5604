"""Cross-entropies between logits and labels, one value per example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from graphc.ir.dtypes import INT32, is_floating, is_integer
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.broadcasting import Adjoints, infer_floating, require_one_dtype, unbroadcast
from graphc.ops.core.cost_rules import times_operand
from graphc.ops.core.declaring import Declaration, Given, declared, elementwise_operator, operator
from graphc.ops.core.defining import define
from graphc.ops.core.emit import convert, emit, promote_operands
from graphc.ops.core.layout_rules import not_last, same_axis
from graphc.ops.core.precision import shifted, wide
from graphc.ops.core.ranges import in_range


def _check_logits(ctx: InferContext, logits: TensorType) -> None:
    ctx.require_dtype([logits], is_floating, "floating")
    ctx.require(
        logits.rank > 0,
        "logits must have an axis of classes, got a scalar",
        hint="[batch, classes]",
    )


# -- labels as distributions ----------------------------------------------------------------


def _infer_dense(ctx: InferContext, logits: TensorType, labels: TensorType) -> TensorType:
    _check_logits(ctx, logits)
    require_one_dtype(ctx, logits, labels)
    ctx.require(
        logits.rank == labels.rank,
        f"labels must have the shape of logits, got {labels.rank} axes for {logits.rank}",
        hint="for labels that are class numbers use sparse_softmax_cross_entropy",
    )
    for a, b in zip(logits.shape, labels.shape, strict=True):
        ctx.unify(
            a,
            b,
            "sizes of logits and labels",
            hint=f"labels have the shape of logits: gc.one_hot(numbers, {logits.shape[-1]}) makes "
            "them from class numbers",
        )
    return TensorType(logits.dtype, logits.shape[:-1])


def _lower_dense(ctx: LowerContext, logits: Any, labels: Any) -> Any:
    dtype = wide(logits.dtype)
    below = shifted(lax.convert_element_type(logits, dtype), -1)
    normalizer = lax.log(jnp.sum(lax.exp(below), axis=-1, keepdims=True))
    weights = lax.convert_element_type(labels, dtype)
    # A class with a logit of -inf and a weight of 0 adds 0, not 0 * inf = NaN.
    ruled_out = (weights == 0) & (below == -np.inf)
    terms = jnp.where(ruled_out, 0, (normalizer - below) * weights)
    loss = jnp.sum(terms, axis=-1)
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


def _loss_of_rows(
    name: str,
    infer: Callable[..., TensorType],
    lower: Callable[..., Any],
    gradient: Callable[..., Adjoints],
    operations: int,
) -> Declaration:
    """Declares a loss of each row, with `operations` operations for each logit."""
    return operator(
        name,
        "logits, labels -> loss",
        infer=infer,
        lower=lower,
        precision="wide",
        gradient=gradient,
        layout=same_axis(not_last),  # rows of logits are independent
        cost=times_operand(operations),
    )


@_loss_of_rows("SoftmaxCrossEntropy", _infer_dense, _lower_dense, _dense_gradient, 7)
def softmax_cross_entropy(logits: Any, labels: Any, *, name: str | None = None) -> Given:
    """Cross-entropy of the softmax of `logits` against distributions, over the last axis.

    -sum(labels * log_softmax(logits)): logits and labels [..., classes] give [...]. Floating
    dtypes; narrow ones are computed in float32.

    Args:
        logits: [..., classes], floating.
        labels: [..., classes], promoted with `logits`; rows that sum to 1, or weights.

    Returns:
        [...]: one loss per row; average it with `reduce_mean`.

    Raises:
        ShapeError: the shapes differ.
    """
    return promote_operands(logits, labels)


# -- labels as class numbers ----------------------------------------------------------------


def _infer_sparse(ctx: InferContext, logits: TensorType, labels: TensorType) -> TensorType:
    _check_logits(ctx, logits)
    if not is_integer(labels.dtype):
        ctx.require(
            False,
            f"labels must be integers (class numbers), got {labels.dtype.name}",
            hint="for labels that are distributions use softmax_cross_entropy",
            dtype=True,
        )
    _unify_rows(ctx, logits, labels, "labels")
    return TensorType(logits.dtype, logits.shape[:-1])


def _unify_rows(ctx: InferContext, logits: TensorType, rows: TensorType, what: str) -> None:
    ctx.require(
        rows.rank == logits.rank - 1,
        f"{what} must have one axis fewer than logits, got {rows.rank} for {logits.rank}",
        hint="one-hot labels are for softmax_cross_entropy; gc.argmax(labels, -1) makes numbers"
        if rows.rank == logits.rank
        else "one class number for each row of logits: [batch] for [batch, classes]",
    )
    for a, b in zip(logits.shape[:-1], rows.shape, strict=True):
        ctx.unify(
            a,
            b,
            f"sizes of logits and {what}",
            hint=f"{what} needs one entry for each row of logits",
        )


def _class_numbers(labels: Any) -> Any:
    """The labels as one row, in a dtype that any number of classes fits."""
    row = labels.reshape(-1)
    return lax.convert_element_type(row, INT32) if row.dtype.itemsize < 4 else row


# Element `index[i, 0]` of each row i of a matrix.
_ONE_OF_EACH_ROW = lax.GatherDimensionNumbers(
    offset_dims=(),
    collapsed_slice_dims=(1,),
    start_index_map=(1,),
    operand_batching_dims=(0,),
    start_indices_batching_dims=(0,),
)


def _lower_sparse(ctx: LowerContext, logits: Any, labels: Any) -> Any:
    rows = lax.convert_element_type(logits, wide(logits.dtype)).reshape(-1, logits.shape[-1])
    largest = lax.stop_gradient(jnp.max(rows, axis=-1))
    total = jnp.sum(lax.exp(rows - largest[:, None]), axis=-1)
    # `lax.gather`, because `jnp.take_along_axis` counts a negative label from the end.
    picked = lax.gather(
        rows,
        _class_numbers(labels)[:, None],
        _ONE_OF_EACH_ROW,
        slice_sizes=(1, 1),
        mode=lax.GatherScatterMode.FILL_OR_DROP,
        fill_value=np.nan,
    )
    loss = lax.log(total) + (largest - picked)
    return lax.convert_element_type(loss, logits.dtype).reshape(labels.shape)


def _sparse_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    operands = (*node.inputs, node.outputs[0], dy)
    return [emit(SPARSE_SOFTMAX_CROSS_ENTROPY_GRADIENT, operands), None]


@_loss_of_rows("SparseSoftmaxCrossEntropy", _infer_sparse, _lower_sparse, _sparse_gradient, 5)
def sparse_softmax_cross_entropy(logits: Any, labels: Any, *, name: str | None = None) -> Given:
    """Cross-entropy of the softmax of `logits` against class numbers.

    -log_softmax(logits)[label] of each row: logits [..., classes] floating and labels [...]
    integers give [...]. Narrow dtypes are computed in float32.

    Args:
        logits: [..., classes], floating.
        labels: [...], integers in [0, classes). A label out of range gives NaN, and raises an error
            in runs with `CompileOptions(check_numerics=True)`. To exclude rows, give them any class
            and a weight of 0.

    Returns:
        [...]: one loss per row; average it with `reduce_mean`.

    Raises:
        ShapeError: the leading sizes differ.
        DTypeError: the labels are not integers.
    """
    logits, labels = convert(logits), convert(labels)
    if logits.ndim:  # otherwise the operator rejects them
        classes = logits.shape[-1]
        labels = in_range(labels, 0, classes, "labels", of="sparse_softmax_cross_entropy")
    return logits, labels


def _infer_sparse_gradient(
    ctx: InferContext, logits: TensorType, labels: TensorType, loss: TensorType, dy: TensorType
) -> TensorType:
    _infer_sparse(ctx, logits, labels)
    _unify_rows(ctx, logits, loss, "loss")
    _unify_rows(ctx, logits, dy, "dy")
    return logits


def _lower_sparse_gradient(ctx: LowerContext, logits: Any, labels: Any, loss: Any, dy: Any) -> Any:
    dtype = wide(logits.dtype)
    rows = lax.convert_element_type(logits, dtype).reshape(-1, logits.shape[-1])
    lost, weight = (lax.convert_element_type(v, dtype).reshape(-1) for v in (loss, dy))
    # The exponentials and their sum are those of the loss: XLA computes them once.
    exponentials = lax.exp(shifted(rows, -1))
    others = exponentials * (weight / jnp.sum(exponentials, axis=-1))[:, None]
    # The adjoint of the label's logit is softmax - 1 = exp(-loss) - 1, which is exact even if the
    # softmax is nearly 1. A comparison fuses with the following operations; a scatter does not.
    own = weight * lax.expm1(-lost)
    index = _class_numbers(labels)
    hit = index[:, None] == lax.broadcasted_iota(index.dtype, rows.shape, 1)
    result = jnp.where(hit, own[:, None], others)
    return lax.convert_element_type(result, logits.dtype).reshape(logits.shape)


SPARSE_SOFTMAX_CROSS_ENTROPY_GRADIENT = define(
    "SparseSoftmaxCrossEntropyGradient(logits, labels, loss, dy) -> dlogits",
    precision="wide",
    infer=_infer_sparse_gradient,
    lower=_lower_sparse_gradient,
    layout=same_axis(not_last),  # rows of logits are independent
    cost=times_operand(4),
    doc="The adjoint of SparseSoftmaxCrossEntropy's logits: (softmax(logits) - one_hot(labels)) "
    "* dy. logits [..., classes]; labels, loss (the operator's result) and dy [...].",
)


# -- independent classes --------------------------------------------------------------------


def _lower_sigmoid(ctx: LowerContext, logits: Any, labels: Any) -> Any:
    # For logits of either sign, no term is a difference of large numbers.
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


@elementwise_operator(
    "SigmoidCrossEntropy",
    signature="logits, labels -> loss",
    infer=infer_floating,
    lower=_lower_sigmoid,
    gradient=_sigmoid_gradient,
    fold=_fold_sigmoid,
    cost=times_operand(6),
)
def sigmoid_cross_entropy(logits: Any, labels: Any, *, name: str | None = None) -> Given:
    """Cross-entropy of the sigmoid of `logits` against probabilities, elementwise.

    -labels * log(p) - (1 - labels) * log(1 - p) with p = sigmoid(logits), with broadcasting.

    Args:
        logits: floating, any shape.
        labels: in [0, 1], promoted with `logits`, of a shape that broadcasts with it.

    Returns:
        One loss per element.
    """
    return promote_operands(logits, labels)


# -- functions ------------------------------------------------------------------------------


OPS: tuple[OpDef, ...] = (*declared(__name__), SPARSE_SOFTMAX_CROSS_ENTROPY_GRADIENT)
