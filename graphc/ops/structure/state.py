"""Where values enter and leave a graph: placeholders, variables, sizes; and identities."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from graphc.errors import DTypeError, FetchError, GraphError, ShapeError
from graphc.ir.costs import CostContext
from graphc.ir.dims import product
from graphc.ir.dtypes import is_inexact
from graphc.ir.graph import Graph
from graphc.ir.layouts import Layout, LayoutContext, LayoutPlan, of_elements
from graphc.ir.node import Node, Tensor, describe_tensors
from graphc.ir.opdef import Attr, Effects, LowerContext, OpDef
from graphc.ir.operand import Operand
from graphc.ir.scopes import AMBIENT, absolute_scope, control_inputs
from graphc.ir.source import current_source
from graphc.ir.types import TensorType
from graphc.ir.variable import Variable
from graphc.ops.core.checks import no_gradient, same_shape
from graphc.ops.core.cost_rules import free
from graphc.ops.core.defining import define, marker, without_gradient
from graphc.ops.core.emit import (
    CAST,
    CONSTANT,
    DIM_VALUE,
    convert,
    dim_value,
    emit_node,
    emit_one,
    graph_of,
    promote_types,
)
from graphc.ops.core.layout_rules import replicated
from graphc.ops.core.weak_numbers import is_weak
from graphc.ops.structure.vjp_layout import differentiated, vjp_layout
from graphc.typing import TensorLike, TensorTree

__all__ = ["group", "identity", "size", "stop_gradient"]


def _not_lowered(ctx: LowerContext, *operands: Any, **attrs: Any) -> Any:
    raise GraphError(f"{ctx.node.op.name} must be removed before lowering: run functionalize")


@of_elements
def same_layout(ctx: LayoutContext, node: Node, x: Layout) -> LayoutPlan:
    """The result has the layout of the operand; partial sums stay partial."""
    return LayoutPlan([x], [x])


_removed = partial(without_gradient, lower=_not_lowered, cost=free)

PLACEHOLDER = _removed(
    "Placeholder() -> x",
    attrs={
        "dtype": Attr("dtype"),
        "shape": Attr("dims"),
        "batch_axis": Attr("int", default=None, doc="the axis that may be sharded"),
    },
    infer=lambda ctx, *, dtype, shape, batch_axis: TensorType(dtype, shape),
    effects=Effects.FEED,
    doc="A value that the caller feeds.",
)

READ_VARIABLE = _removed(
    "ReadVariable() -> value",
    attrs={"variable": Attr("str"), "dtype": Attr("dtype"), "shape": Attr("ints")},
    infer=lambda ctx, *, variable, dtype, shape: TensorType(dtype, shape),
    effects=Effects.READ,
    doc="The value of the variable after the last selected assignment that precedes the read.",
)


ASSIGN = define(
    "Assign(value) -> value",
    precision="wide",
    attrs={"variable": Attr("str")},
    infer=lambda ctx, value, *, variable: value,
    lower=_not_lowered,
    gradient=no_gradient(
        lambda node: (
            "Assign: the gradient does not pass through the assignment of "
            f"{node.attrs['variable']!r}"
        ),
        hint="differentiate with respect to the value before it is assigned",
    ),
    effects=Effects.WRITE,
    cost=free,
    doc="Assigns `value` to the variable; the result is the assigned value.",
)


GROUP = without_gradient(
    "Group() ->",
    infer=lambda ctx: (),
    lower=lambda ctx: (),
    layout=replicated,
    cost=free,
    doc="Computes nothing; fetching it selects its control inputs.",
)

STOP_GRADIENT = marker(
    "StopGradient(x) -> y",
    differentiable=False,
    layout=same_layout,
    fold=lambda x: x,
    doc="The operand; its gradient is zero. All dtypes.",
)

IDENTITY = marker(
    "Identity(x) -> y",
    gradient=lambda ctx, node, dy: [dy],
    layout=same_layout,
    fold=lambda x: x,
    doc="The operand, under its own name. All dtypes.",
)


def _lower_vjp(
    ctx: LowerContext,
    *operands: Any,
    op: str,
    count: int,
    wrt: tuple[int, ...],
    attrs: Mapping[str, Any],
    content: str,
) -> tuple[Any, ...]:
    forward = ctx.catalogue[op]
    inputs, adjoints = operands[:count], operands[count:]

    def of_wrt(*values: Any) -> Any:
        given = dict(zip(wrt, values, strict=True))
        full = [given.get(i, x) for i, x in enumerate(inputs)]
        return forward.lower(ctx, *full, **attrs)

    out, pull = jax.vjp(of_wrt, *[inputs[i] for i in wrt])
    moving = tuple(
        [
            dy if is_inexact(dy.dtype) else np.zeros(dy.shape, jax.dtypes.float0)  # integer
            for dy in adjoints
        ]
    )
    return tuple(pull(moving if isinstance(out, tuple) else moving[0]))


def _vjp_cost(ctx: CostContext, node: Node) -> int:
    """Three times the cost of the operator. Source: Griewank & Walther, Evaluating Derivatives,
    2008: computing the values and adjoints of a program costs 3 to 4 times as much as its values
    alone."""
    return 3 * ctx.of_node(differentiated(node, ctx.catalogue)).flops


VJP = define(
    "VJP(*operands) -> *adjoints",
    precision="wide",
    attrs={
        "op": Attr("str"),
        "count": Attr("int", doc="how many of the operands are the operator's own"),
        "wrt": Attr("ints", doc="the operands to differentiate with respect to"),
        "attrs": Attr("attrs", doc="the operator's attributes"),
        "content": Attr("str", default="", doc="a digest of what a registered operator computes"),
    },
    infer=lambda ctx, *types, wrt, **attrs: tuple(types[i] for i in wrt),
    lower=_lower_vjp,
    layout=vjp_layout,
    cost=_vjp_cost,
    doc="Adjoints of the operator `op`, which has no gradient rule, by `jax.vjp` of its lowering. "
    "The operands are its inputs, then the adjoints of its results.",
)


def read(variable: Variable) -> Tensor:
    """The value of the variable at this point. Reads without an assignment between them share one
    node.

    A read under control inputs gets its own node, so that reads elsewhere do not select these
    control inputs.
    """
    graph = graph_of([variable])
    _check_owner(variable, graph)
    alone = bool(AMBIENT.control_inputs)
    found = None if alone else graph.last_reads.get(variable)
    if found is not None:
        return found
    own = variable.type
    attrs: dict[str, Any] = {"variable": variable.name, "dtype": own.dtype, "shape": own.shape}
    with absolute_scope(""):  # named after the variable in every scope
        value = emit_one(READ_VARIABLE, (), f"{variable.name}/read", **attrs)
    if not alone:
        graph.last_reads[variable] = value
    return value


def _check_owner(variable: Variable, graph: Graph) -> None:
    if graph.root is not variable.graph.root:
        raise GraphError(
            f"variable {variable.name!r} belongs to another graph",
            source=AMBIENT.source or current_source(),
            hint="build both in one graph",
        )


def assign(variable: Variable, value: Any, *, name: str | None = None) -> Tensor:
    """Assigns `value`, which has the shape and dtype of the variable. Python numbers adapt.

    Raises:
        ShapeError, DTypeError: the value does not fit the variable.
    """
    graph = graph_of([variable])
    _check_owner(variable, graph)
    wanted = variable.type
    adapts = is_weak(value) and promote_types(variable, value) == wanted.dtype
    tensor = convert(value, wanted.dtype if adapts else None)
    got = tensor.type
    error = DTypeError if wanted.dtype != got.dtype else ShapeError
    if wanted.dtype != got.dtype or not same_shape(wanted.shape, got.shape, tensor):
        raise error(
            f"Assign: variable {variable.name!r} is {wanted}, the value {got}",
            details=describe_tensors({"value": tensor}),
            source=AMBIENT.source or current_source(),
            hint="gc.cast or gc.reshape the value",
        )
    result = emit_one(ASSIGN, (tensor,), name, variable=variable.name)
    graph.last_reads.pop(variable, None)
    return result


def assign_add(variable: Variable, value: Any) -> Tensor:
    """Assigns the variable's value plus `value`."""
    return assign(variable, variable.read() + value)


def assign_sub(variable: Variable, value: Any) -> Tensor:
    """Assigns the variable's value minus `value`."""
    return assign(variable, variable.read() - value)


def group(*items: TensorTree, name: str | None = None) -> Node:
    """A single fetch that runs all of `items` (tensors, nodes, nested lists) and returns None.

    Examples:
        >>> count = gc.variable(0)
        >>> run([gc.group(count.assign(5)), count])
        [None, Array(5, dtype=int32)]
    """
    with control_inputs(node_names(items)):
        return emit_node(GROUP, (), name=name)


def node_names(items: Any) -> tuple[str, ...]:
    """The names of the nodes behind a nest of tensors and nodes.

    Raises:
        FetchError: an item is neither a tensor nor a node.
    """
    if isinstance(items, (list, tuple)):
        return tuple(name for item in items for name in node_names(item))
    if isinstance(items, Node):
        return (items.name,)
    if isinstance(items, Tensor):
        _check_visible(items)
        return (items.node.name,)
    raise FetchError.here(
        f"{items!r} is neither a tensor nor a node",
        hint="pass what gc.* functions, v.assign or gc.minimize returned",
    )


def _check_visible(tensor: Tensor) -> None:
    """Raises `GraphError` unless `tensor` belongs to the graph being built or to an enclosing
    graph."""
    graph = AMBIENT.graphs[-1] if AMBIENT.graphs else tensor.graph
    while graph is not None and tensor.graph is not graph:
        graph = graph.parent
    if graph is None:
        raise GraphError(
            f"tensor {tensor.name!r} belongs to another graph, or to a body that is closed",
            details=describe_tensors({"tensor": tensor}),
            source=AMBIENT.source or current_source(),
            hint="pass tensors that were built in this graph, outside bodies",
        )


def stop_gradient(x: TensorLike, *, name: str | None = None) -> Tensor:
    """`x`, treated as a constant by `gc.gradients`.

    Examples:
        >>> x = gc.constant(3.0)
        >>> run(gc.gradients(x * gc.stop_gradient(x), x))
        Array(3., dtype=float32)
    """
    return emit_one(STOP_GRADIENT, (convert(x),), name)


def identity(x: TensorLike, *, name: str | None = None) -> Tensor:
    """`x` under its own name.

    Examples:
        >>> run(gc.identity([1, 2]))
        Array([1, 2], dtype=int32)
    """
    return emit_one(IDENTITY, (convert(x),), name)


def size(x: TensorLike, axis: int | None = None) -> Tensor:
    """The number of elements of `x`, or its size along `axis`, as an int32 scalar.

    In a data-parallel run this is the global size.

    Examples:
        >>> run(gc.size([[1, 2], [3, 4]]))
        Array(4, dtype=int32)
    """
    shape = x.shape if isinstance(x, Operand) else np.asarray(x).shape
    return dim_value(product(shape) if axis is None else shape[axis])


OPS: tuple[OpDef, ...] = (
    PLACEHOLDER,
    CONSTANT,
    READ_VARIABLE,
    ASSIGN,
    GROUP,
    IDENTITY,
    STOP_GRADIENT,
    DIM_VALUE,
    VJP,
    CAST,
)
