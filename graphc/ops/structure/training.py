"""Markers of a training step: the start and end of its gradients, and its updates.

`minimize` adds them, and passes find the step by them: loss scaling, micro-batches, and mixed
precision, which uses float32 after the gradients. The markers compute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, InferContext, OpDef
from graphc.ir.types import TensorType
from graphc.ops.core.cost_rules import free
from graphc.ops.core.defining import at_least, define, without_gradient
from graphc.ops.core.emit import emit_node, emit_one
from graphc.ops.structure.state import same_layout

_STEP = Attr("str", doc="the name of the training step")


LOSS_ADJOINT = without_gradient(
    "LossAdjoint(one) -> adjoint",
    attrs={"step": _STEP},
    infer=lambda ctx, one, *, step: one,
    lower=lambda ctx, one, *, step: one,
    layout=same_layout,
    cost=free,
    doc="The operand, which is the adjoint of the loss of a training step. Floating.",
)

GRADIENTS = define(
    "Gradients(*gradients) -> *gradients",
    precision="wide",
    attrs={
        "step": _STEP,
        "accumulate": at_least(
            1, "be the number of micro-batches to sum over, at least 1", default=1
        ),
    },
    infer=lambda ctx, *types, step, accumulate: types,
    lower=lambda ctx, *values, step, accumulate: values,
    gradient=lambda ctx, node, *adjoints: list(adjoints),
    layout=lambda ctx, node, *operands: LayoutPlan(operands, operands, fill={}),
    cost=free,
    doc="The operands, which are the gradients of a training step. A pass may compute the nodes "
    "before it once for each of `accumulate` micro-batches. All dtypes.",
)


def _infer_updated(ctx: InferContext, *types: TensorType, step: str) -> tuple[TensorType, ...]:
    count = len(types) // 2
    ctx.require(len(types) == 2 * count, "the numbers of old and new values differ")
    for old, new in zip(types[:count], types[count:], strict=True):
        ctx.require(old == new, f"an old value is {old}, but its new value is {new}")
    return types[count:]


def _updated_layout(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    """If an old or a new value is sharded, the old one is required in the same layout."""
    old, new = operands[: len(node.outputs)], operands[len(node.outputs) :]
    beside = [b if Sharded in (type(a), type(b)) else a for a, b in zip(old, new, strict=True)]
    return LayoutPlan([*beside, *new], new, fill={})


UPDATED = define(
    "Updated(*values) -> *new",
    precision="wide",
    attrs={"step": _STEP},
    infer=_infer_updated,
    lower=lambda ctx, *values, step: values[len(values) // 2 :],
    gradient=lambda ctx, node, *adjoints: [*[None] * len(adjoints), *adjoints],
    layout=_updated_layout,
    cost=free,
    doc="The new values of the state that a training step updates. The operands are the old "
    "values, then the new ones. All dtypes.",
)


def loss_adjoint(one: Tensor, step: str) -> Tensor:
    """`one`, marked as the adjoint of the loss of the training step `step`."""
    return emit_one(LOSS_ADJOINT, (one,), step=step)


def step_gradients(
    gradients: Sequence[Tensor], step: str, accumulate: int = 1
) -> tuple[Tensor, ...]:
    """`gradients`, marked as the gradients of the training step `step`."""
    return emit_node(GRADIENTS, gradients, step=step, accumulate=accumulate).outputs


def step_updates(old: Sequence[Tensor], new: Sequence[Tensor], step: str) -> tuple[Tensor, ...]:
    """`new`, marked as the values to which the training step `step` updates `old`.

    Raises:
        ShapeError: their types differ.
    """
    return emit_node(UPDATED, (*old, *new), step=step).outputs


OPS: tuple[OpDef, ...] = (LOSS_ADJOINT, GRADIENTS, UPDATED)
