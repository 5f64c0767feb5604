"""Values with a custom gradient. They represent JAX's custom derivatives in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import GradientError
from graphc.ir.dtypes import is_inexact
from graphc.ir.graph import Graph
from graphc.ir.late import Late, written
from graphc.ir.layouts import LayoutPlan
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Attr, GradientContext, InferContext, OpDef
from graphc.ir.program import Program
from graphc.ir.scopes import AMBIENT, building
from graphc.ir.types import TensorType
from graphc.ops.control.bodies import inline, numbered, trace
from graphc.ops.core.broadcasting import Adjoints, or_zeros
from graphc.ops.core.checks import no_gradient
from graphc.ops.core.cost_rules import free
from graphc.ops.core.defining import at_least, define, marker
from graphc.ops.core.emit import convert, emit_node, emit_one
from graphc.ops.structure.state import same_layout

# (xs, adjoints of the ys) -> adjoints of the floating and complex xs
Rule = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


def _infer(ctx: InferContext, *types: TensorType, count: int, rule: Any) -> tuple[TensorType, ...]:
    ys, xs = types[:count], types[count:]
    ctx.require_dtype(ys, is_inexact, "floating or complex")
    if rule is not None:  # checked when it is called
        return ys
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


def _gradient(ctx: GradientContext, node: Node, *dys: Tensor | None) -> Adjoints:
    count = node.attrs["count"]
    xs = node.inputs[count:]
    late = node.attrs["rule"]
    body = node.regions[0] if late is None else late.region(node)
    copies = inline(AMBIENT.graphs[-1], body, [*xs, *or_zeros(ctx, node, dys)])
    found = iter([copies[t] for t in body.output_tensors()])
    of_xs = [next(found) if is_inexact(x.dtype) else None for x in xs]
    return [None] * count + of_xs


CUSTOM_GRADIENT = define(
    "CustomGradient(*operands) -> *ys",
    precision="follow",
    attrs={
        "count": at_least(1, "be positive", doc="how many ys"),
        "rule": Attr("function", default=None, doc="a `LateRule`, which builds the region"),
    },
    infer=_infer,
    lower=lambda ctx, *operands, count, rule: operands[:count],
    gradient=_gradient,
    layout=lambda ctx, node, *operands: LayoutPlan(operands, operands[: node.attrs["count"]]),
    cost=free,
    doc="The first `count` operands, the ys, which are computed from the others, the xs. The "
    "region (xs, adjoints of ys) -> adjoints of the floating xs passes adjoints from the ys to "
    "the xs. They do not pass through the nodes that computed the ys. Floating and complex ys. "
    "With a `rule`, the region is built when a gradient is first computed.",
)


UNDIFFERENTIABLE = marker(
    "Undifferentiable(x) -> y",
    attrs={"reason": Attr("str", doc="the text of the error that a gradient through it raises")},
    gradient=no_gradient(
        lambda node: f"Undifferentiable {node.name!r}: {node.attrs['reason']}",
        hint="put gc.stop_gradient around it where its gradient does not matter",
    ),
    layout=same_layout,
    fold=lambda x, *, reason: x,
    doc="The operand; a gradient through it is an error, not a wrong value. All dtypes.",
)


def undifferentiable(x: Any, reason: str, *, name: str | None = None) -> Tensor:
    """`x`; `gc.gradients` through it raises `GradientError` with the `reason`."""
    return emit_one(UNDIFFERENTIABLE, (convert(x),), name=name, reason=reason)


def with_gradient(
    ys: Sequence[Tensor], xs: Sequence[Tensor], rule: Rule, *, name: str | None = None
) -> tuple[Tensor, ...]:
    """`ys`, which were computed from `xs`, with a custom gradient.

    Args:
        ys: floating or complex tensors.
        xs: the tensors that they are computed from.
        rule: `(xs, adjoints of ys) -> adjoints`, one for each floating or complex x. It is called
            once, with tensors, to build the region. It may use no other tensors of the graph.
        name: of the node.

    Returns:
        The same values as `ys`.

    Raises:
        ShapeError: the type of an adjoint differs from that of its x, or the rule uses other
            tensors.
    """
    regions = (_region(name or "custom_gradient", ys, xs, rule),)
    return emit_node(CUSTOM_GRADIENT, [*ys, *xs], name=name, regions=regions, count=len(ys)).outputs


def with_late_gradient(
    ys: Sequence[Tensor], xs: Sequence[Tensor], rule: Rule, what: str
) -> tuple[Tensor, ...]:
    """Like `with_gradient`, but `rule` is called when a gradient is first computed.

    Args:
        what: the function that computes the ys, for the error if the rule fails.
    """
    late = LateRule(rule, what)
    return emit_node(CUSTOM_GRADIENT, [*ys, *xs], count=len(ys), rule=late).outputs


def _region(name: str, ys: Sequence[Tensor], xs: Sequence[Tensor], rule: Rule) -> Program:
    parameters = [*numbered("x", (t.type for t in xs)), *numbered("dy", (t.type for t in ys))]
    count = len(xs)
    body = trace(name, parameters, lambda taken: rule(taken[:count], taken[count:]))
    return body.region()


_MOST_ORDERS = 2  # of written derivatives: a rule may contain its own function


class LateRule(Late):
    """The rule of a `CustomGradient` node. Its region is built once, when it is first needed.

    Args:
        rule: see `with_gradient`.
        what: the function that computes the ys.
    """

    def __init__(self, rule: Rule, what: str) -> None:
        self._rule = rule
        self._what = what
        self._built: Program | None = None
        self._failure: str | None = None
        self.__qualname__ = f"gradient of {what}"  # the text of the attribute

    def __call__(self, xs: Sequence[Tensor], adjoints: Sequence[Tensor]) -> Sequence[Tensor]:
        return self._rule(xs, adjoints)

    def region(self, node: Node) -> Program:
        """The region for `node`.

        Raises:
            GradientError: the rule fails.
        """
        if self._built is None and self._failure is None:
            count = node.attrs["count"]
            ys, xs = node.inputs[:count], node.inputs[count:]
            try:
                with building(Graph()):  # the node's own graph may be finalized
                    self._built = _region("custom_gradient", ys, xs, self._rule)
            except Exception as error:  # the rule calls the user's code
                first = str(error).partition("\n")[0]
                self._failure = f"{type(error).__name__}: {first}".rstrip(": ")
        if self._built is None:
            raise GradientError(
                f"{node.op.name} {node.name!r}: the derivative of {self._what} cannot be built: "
                f"{self._failure}",
                source=node.source,
                hint="put gc.stop_gradient around it where its gradient does not matter",
            )
        return self._built

    def written(self, node: Node, depth: int) -> list[Node]:
        """The node with its region, up to second derivatives. A derivative that cannot be built or
        has a higher order becomes an `Undifferentiable` node."""
        if depth == _MOST_ORDERS:
            return _refusals(node, f"derivatives above order {depth} are not written to a file")
        try:
            body = self.region(node)
        except GradientError as error:
            return _refusals(node, error.what)
        body = body.replace(nodes=tuple(written(body.nodes, depth + 1)))
        return [node.replace(attrs={**node.attrs, "rule": None}, regions=(body,))]


def _refusals(node: Node, reason: str) -> list[Node]:
    return [
        node.replace(
            op=UNDIFFERENTIABLE, inputs=(x,), outputs=(y,), attrs={"reason": reason},
            name=f"{node.name}/{i}" if i else node.name,
        )
        for i, (x, y) in enumerate(zip(node.inputs, node.outputs, strict=False))
    ]  # fmt: skip


OPS: tuple[OpDef, ...] = (CUSTOM_GRADIENT, UNDIFFERENTIABLE)
