"""Values with a gradient of their own: how JAX's custom derivatives stand in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import GradientError
from graphc.ir.dtypes import is_inexact
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, LowerContext, OpDef
from graphc.ir.scopes import AMBIENT
from graphc.ir.types import TensorType
from graphc.ops.control.bodies import inline, numbered, trace
from graphc.ops.core.cost_rules import free
from graphc.ops.core.emit import convert, emit_node, emit_one
from graphc.ops.structure.state import same_layout

Adjoints = list[Tensor | None]
# (xs, adjoints of the ys) -> adjoints of the floating and complex xs
Rule = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


def _infer(ctx: InferContext, *types: TensorType, count: int) -> tuple[TensorType, ...]:
    ys, xs = types[:count], types[count:]
    ctx.require_dtype(ys, is_inexact, "floating or complex")
    body = ctx.regions[0]
    taken, results = body.input_tensors(), body.output_tensors()
    ctx.require(len(taken) == len(types), "the region must take the xs, then an adjoint for each y")
    for i, (tensor, wanted) in enumerate(zip(taken, (*xs, *ys), strict=True)):
        ctx.unify_types(tensor.type, wanted, f"value {i} that the region takes")
    floating = [x for x in xs if is_inexact(x.dtype)]
    ctx.require(
        len(results) == len(floating), "the region must give an adjoint for each floating x"
    )
    for i, (tensor, wanted) in enumerate(zip(results, floating, strict=True)):
        ctx.unify_types(tensor.type, wanted, f"adjoint {i} that the region gives")
    return ys


def _lower(ctx: LowerContext, *operands: Any, count: int) -> tuple[Any, ...]:
    return operands[:count]


def _gradient(ctx: GradientContext, node: Node, *dys: Tensor | None) -> Adjoints:
    count = node.attrs["count"]
    xs = node.inputs[count:]
    body = node.regions[0]
    adjoints = [
        ctx.ops.zeros_like(y) if dy is None else dy for y, dy in zip(node.outputs, dys, strict=True)
    ]
    copies = inline(AMBIENT.graphs[-1], body, [*xs, *adjoints])
    found = iter([copies[t] for t in body.output_tensors()])
    of_xs = [next(found) if is_inexact(x.dtype) else None for x in xs]
    return [None] * count + of_xs


def _layout(ctx: LayoutContext, node: Node, *operands: Layout) -> LayoutPlan:
    return LayoutPlan(operands, operands[: node.attrs["count"]])


CUSTOM_GRADIENT = OpDef(
    name="CustomGradient",
    signature="*operands -> *ys",
    precision="follow",
    attrs={"count": Attr("int", check=lambda v: v > 0, must="be positive", doc="of the ys")},
    infer=_infer,
    lower=_lower,
    gradient=_gradient,
    layout=_layout,
    cost=free,
    doc="The first `count` operands, the ys, calculated from the others, the xs. Adjoints pass "
    "from the ys to the xs by the region (xs, adjoints of ys) -> adjoints of the floating xs, "
    "and not through what calculated the ys. Floating and complex ys.",
)


def _refuse_gradient(ctx: GradientContext, node: Node, dy: Tensor) -> Adjoints:
    raise GradientError(
        f"Undifferentiable {node.name!r}: {node.attrs['reason']}",
        source=node.source,
        hint="put gc.stop_gradient around it where its gradient does not matter",
    )


UNDIFFERENTIABLE = OpDef(
    name="Undifferentiable",
    signature="x -> y",
    precision="follow",
    attrs={"reason": Attr("str", doc="what the error of a gradient through it says")},
    infer=lambda ctx, x, *, reason: x,
    lower=lambda ctx, x, *, reason: x,
    gradient=_refuse_gradient,
    layout=same_layout,
    fold=lambda x, *, reason: x,
    cost=free,
    doc="The operand; a gradient through it is an error, rather than a wrong one. All dtypes.",
)


def undifferentiable(x: Any, reason: str, *, name: str | None = None) -> Tensor:
    """`x`; `gc.gradients` through it raises `GradientError` with the `reason`."""
    return emit_one(UNDIFFERENTIABLE, (convert(x),), name=name, reason=reason)


def with_gradient(
    ys: Sequence[Tensor], xs: Sequence[Tensor], rule: Rule, *, name: str | None = None
) -> tuple[Tensor, ...]:
    """`ys`, calculated from `xs`, with a gradient of their own.

    Args:
        ys: floating or complex tensors.
        xs: what they are calculated from.
        rule: `(xs, adjoints of ys) -> adjoints`, one for each floating or complex x; called
            once, with tensors, to build the region. It may use no other tensors of the graph.
        name: of the node.

    Returns:
        The same values as `ys`.

    Raises:
        ShapeError: an adjoint has not the type of its x, or the rule uses other tensors.
    """
    parameters = [*numbered("x", (t.type for t in xs)), *numbered("dy", (t.type for t in ys))]
    count = len(xs)
    body = trace(
        name or "custom_gradient", parameters, lambda taken: rule(taken[:count], taken[count:])
    )
    regions = (body.region(),)
    return emit_node(CUSTOM_GRADIENT, [*ys, *xs], name=name, regions=regions, count=len(ys)).outputs


OPS: tuple[OpDef, ...] = (CUSTOM_GRADIENT, UNDIFFERENTIABLE)
