"""Gradients by graph extension: reverse accumulation, one node at a time.

From the outputs back to the inputs, nodes are added for each node. They compute the adjoints of its
operands from the adjoints of its results. Source: Griewank & Walther, Evaluating Derivatives, 2nd
ed. 2008, chapter 3; the scheme of TensorFlow 1's `tf.gradients`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, TypeAlias, overload

from graphc.errors import AttributeValueError, GradientError, GraphError
from graphc.ir.dtypes import is_inexact
from graphc.ir.functions import Functions
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, describe_tensors
from graphc.ir.opdef import PURE, Effects
from graphc.ir.scopes import (
    AMBIENT,
    absolute_scope,
    at_source,
    building,
    exact_device,
    no_control_inputs,
)
from graphc.ir.source import Source, current_source
from graphc.ir.variable import Variable
from graphc.ops.catalogue import FUNCTIONS
from graphc.ops.core.checks import same_shape
from graphc.ops.core.emit import convert, emit_node
from graphc.ops.structure.state import VJP
from graphc.typing import TensorLike

Differentiable: TypeAlias = Tensor | Variable


class RuleContext:
    """The context that gradient rules receive: see `ir.opdef.GradientContext`."""

    ops: Functions = FUNCTIONS

    def gradients(
        self, ys: Sequence[Tensor], xs: Sequence[Tensor], grad_ys: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        return _accumulate(AMBIENT.graphs[-1], ys, [[x] for x in xs], grad_ys)

    def by_vjp(self, node: Node, *adjoints: Tensor | None) -> Sequence[Tensor | None]:
        return _vjp(node, adjoints)


@overload
def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Differentiable,
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: Literal["error", "zero"] = "error",
    colocate: bool = True,
    name: str = "gradients",
) -> Tensor: ...


@overload
def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Sequence[Differentiable],
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: Literal["error", "zero"] = "error",
    colocate: bool = True,
    name: str = "gradients",
) -> list[Tensor]: ...


@overload
def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Differentiable,
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: str,
    colocate: bool = True,
    name: str = "gradients",
) -> Tensor | None: ...


@overload
def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Sequence[Differentiable],
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: str,
    colocate: bool = True,
    name: str = "gradients",
) -> list[Tensor | None]: ...


def gradients(
    ys: Differentiable | Sequence[Differentiable],
    xs: Differentiable | Sequence[Differentiable],
    grad_ys: TensorLike | Sequence[TensorLike | None] | None = None,
    *,
    unconnected: str = "error",
    colocate: bool = True,
    name: str = "gradients",
) -> Tensor | list[Tensor] | list[Tensor | None] | None:
    """The gradients of the sum of `ys` with respect to each of `xs`.

    Args:
        ys: a tensor or a list of tensors, floating or complex.
        xs: a tensor, a variable, or a list of them. The gradient with respect to a variable is
            the sum over all its reads.
        grad_ys: adjoints of `ys`, of their types; ones by default. Complex adjoints follow
            `jax.vjp`: nothing is conjugated.
        unconnected: what to do if no y depends on an x: "error", "zero" or "none".
        colocate: whether gradient nodes request the devices of the nodes that they differentiate.
            With False, they request the device that `gc.device` sets here.

    Returns:
        A list of tensors of the types of `xs` (None for an unconnected x, if requested); one tensor
            if `xs` is not a list.

    Raises:
        GradientError: there is no path from an x to the ys, one of them is an integer, or an
            operator cannot be differentiated.

    Examples:
        >>> x = gc.constant([1.0, 2.0, 3.0])
        >>> run(gc.gradients(gc.reduce_sum(x**2), x))
        Array([2., 4., 6.], dtype=float32)
    """
    _check_unconnected(unconnected)
    source = AMBIENT.source or current_source()
    y_list = [convert(y) for y in _as_list(ys)]
    x_list = _as_list(xs)
    if not y_list:
        raise GradientError(
            "there is nothing to differentiate: ys is empty",
            source=source,
            hint="the loss comes first: gc.gradients(loss, variables)",
        )
    seeds = [None] * len(y_list) if grad_ys is None else _as_list(grad_ys)
    graph = AMBIENT.graphs[-1] if AMBIENT.graphs else y_list[0].graph
    if graph is None:
        raise GradientError("the ys do not belong to a graph", source=source)
    with building(graph), no_control_inputs(), absolute_scope(f"{AMBIENT.name_scope}{name}/"):
        found = _gradients(graph, y_list, x_list, seeds, unconnected, colocate, source)
    return found if isinstance(xs, (list, tuple)) else found[0]


def _check_unconnected(unconnected: object) -> None:
    if unconnected not in ("error", "zero", "none"):
        raise AttributeValueError(
            f'unconnected must be "error", "zero" or "none", got {unconnected!r}',
            source=current_source(),
            hint='"zero" gives zeros where no path leads to a variable, "none" gives None',
        )


def _gradients(
    graph: Graph,
    ys: Sequence[Tensor],
    xs: list[Any],
    seeds: list[Any],
    unconnected: str,
    colocate: bool,
    source: Source | None,
) -> list[Tensor | None]:
    ys = [graph.adopt(y) for y in ys]
    _check_inexact("y", ys)
    _check_inexact("x", xs)
    adjoints = [_checked_seed(y, seed) for y, seed in zip(ys, _padded(seeds, ys), strict=True)]
    _check_graph(graph, xs)
    _refuse_carried(graph, ys, xs)
    found = _accumulate(graph, ys, _tensors_of(graph, xs), adjoints, colocate)
    for i, x in enumerate(xs):
        if found[i] is None and unconnected == "error":
            raise _no_path(x, ys, source)
        if found[i] is None and unconnected == "zero":
            found[i] = FUNCTIONS.zeros(x.shape, x.dtype)
    return found


def _padded(seeds: list[Any], ys: list[Tensor]) -> list[Any]:
    if len(seeds) != len(ys):
        raise GradientError(
            f"{len(ys)} ys but {len(seeds)} grad_ys",
            source=current_source(),
            hint="give one adjoint, or None, for each y",
        )
    return seeds


def _as_list(items: Any) -> list[Any]:
    return list(items) if isinstance(items, (list, tuple)) else [items]


def _check_inexact(what: str, items: Sequence[Any]) -> None:
    for item in items:
        if not isinstance(item, (Tensor, Variable)):
            raise GradientError(
                f"{what} must be a tensor or a variable, got {item!r}",
                source=current_source(),
                hint=_differentiable_hint(item),
            )
        if not is_inexact(item.dtype):
            raise GradientError(
                f"{item.name!r} is {item.dtype.name}: only floating and complex tensors have "
                "gradients",
                source=current_source(),
                hint="gc.cast it to float32 first, where a derivative makes sense",
            )


def _differentiable_hint(item: Any) -> str:
    if isinstance(item, str):
        return "a variable is found by its name: graph.variable(name)"
    if isinstance(item, Mapping):
        return "a list: gradients(y, list(parameters.values())), in the order of the dict"
    if hasattr(item, "trainable_variables"):
        return "layer.trainable_variables are those of a layer"
    return "xs are tensors and variables, one or a list of them"


def _check_graph(graph: Graph, xs: Sequence[Tensor | Variable]) -> None:
    for x in xs:
        if x.graph is None or x.graph.root is not graph.root:
            raise GraphError(
                f"{x.name!r} belongs to another graph than the ys",
                source=current_source(),
                hint="differentiate in the graph that both were built in",
            )


def _checked_seed(y: Tensor, seed: Any) -> Tensor | None:
    if seed is None:
        return None
    tensor = convert(seed, y.dtype)
    if tensor.dtype != y.dtype or not same_shape(tensor.shape, y.shape, y):
        raise GradientError(
            f"the adjoint of {y.name!r} must be {y.type}, got {tensor.type}",
            details=describe_tensors({"y": y, "grad_y": tensor}),
            source=current_source(),
            hint="grad_ys has the shape and the dtype of ys",
        )
    return tensor


def _no_path(x: Tensor | Variable, ys: Sequence[Tensor], source: Any) -> GradientError:
    names = ", ".join(repr(y.name) for y in ys)
    hint = (
        "the y must be computed from the x by differentiable operators (not argmax, "
        'comparisons, casts to integers, stop_gradient); unconnected="zero" gives zeros'
    )
    if isinstance(x, Variable) and not x.trainable:  # such as a moving average of batch norm
        hint = "the variable is not trainable: leave it out, as a layer's trainable_variables do"
    return GradientError(
        f"no gradient path from {x.name!r} to {names}",
        details=describe_tensors({f"y{i}": y for i, y in enumerate(ys)}),
        source=source,
        hint=hint,
    )


def _tensors_of(graph: Graph, xs: Sequence[Tensor | Variable]) -> list[list[Tensor]]:
    """The tensors of `graph` that represent each x: the tensor itself, its captures, or the reads
    of a variable."""
    reads: dict[str, list[Tensor]] = {x.name: [] for x in xs if isinstance(x, Variable)}
    if reads:
        for node in graph.nodes:
            if node.op.effects is not PURE and node.op.effects & Effects.READ:
                reads.get(node.attrs["variable"], []).append(node.outputs[0])
    return [[graph.captures.get(x, x)] if isinstance(x, Tensor) else reads[x.name] for x in xs]


def _refuse_carried(graph: Graph, ys: Sequence[Tensor], xs: Sequence[Tensor | Variable]) -> None:
    """Raises if a body on the path to the ys reads and assigns a variable among the xs.

    Its later values are computed from the first one, and the gradient would have to pass
    through the assignments.
    """
    wanted = {x.name for x in xs if isinstance(x, Variable)}
    needed = set(ys)
    for node in reversed(graph.nodes) if wanted else ():
        if needed.isdisjoint(node.outputs):
            continue
        needed.update(node.inputs)
        inside = [inner for body in node.regions for inner in body.walk()]
        carried = wanted & _variables(inside, Effects.READ) & _variables(inside, Effects.WRITE)
        if carried:
            raise GradientError(
                f"no gradient with respect to {min(carried)!r}: the body of {node.op.name} "
                f"{node.name!r} assigns it, and the gradient does not pass through assignments",
                source=node.source,
                hint="give the body variable.read(), and assign its result outside",
            )


def _variables(nodes: Sequence[Node], effect: Effects) -> set[str]:
    return {node.attrs["variable"] for node in nodes if node.op.effects & effect}


def _accumulate(
    graph: Graph,
    ys: Sequence[Tensor],
    targets: Sequence[Sequence[Tensor]],
    seeds: Sequence[Tensor | None],
    colocate: bool = False,
) -> list[Tensor | None]:
    """The adjoint of each target (summed over its tensors), or None if there is none."""
    nodes = _between(graph, ys, {t for group in targets for t in group})
    adjoints: dict[Tensor, Tensor] = {}
    for y, seed in zip(ys, seeds, strict=True):
        _add(adjoints, y, seed if seed is not None else FUNCTIONS.ones_like(y))
    context = RuleContext()
    outer_scope = AMBIENT.name_scope
    for node in reversed(nodes):
        given = [adjoints.get(t) for t in node.outputs]
        if all(a is None for a in given):
            continue
        where = exact_device(node.device) if colocate else nullcontext()
        with at_source(node.source), absolute_scope(_scope_of(node, outer_scope)), where:
            results = _apply_rule(context, node, given)
            for tensor, adjoint in zip(node.inputs, results, strict=True):
                if adjoint is not None:
                    _add(adjoints, tensor, adjoint)
    found = [[adjoints[t] for t in group if t in adjoints] for group in targets]
    return [functools.reduce(FUNCTIONS.add, parts) if parts else None for parts in found]


def _scope_of(node: Node, outer: str) -> str:
    """The name scope for the gradient of a node, inside the scope of all gradients.

    In a body, nodes that are recomputed for its gradient already have names in that scope. The
    scope is not prepended to such a name again, because each level of nesting would then double the
    length of the names.
    """
    if AMBIENT.graphs[-1].parent is None:
        return f"{outer}{node.name}/"
    parts, scopes = node.name.split("/"), outer.split("/")
    common = 0
    while common < min(len(parts), len(scopes)) - 1 and parts[common] == scopes[common]:
        common += 1
    return f"{outer}{'/'.join(parts[common:])}/"


def _add(adjoints: dict[Tensor, Tensor], tensor: Tensor, adjoint: Tensor) -> None:
    known = adjoints.get(tensor)
    adjoints[tensor] = adjoint if known is None else FUNCTIONS.add(known, adjoint)


def _between(graph: Graph, ys: Sequence[Tensor], xs: set[Tensor]) -> list[Node]:
    """The nodes on a differentiable path from the xs to the ys, in program order."""
    reached = set(xs)
    forward: set[Node] = set()
    for node in graph.nodes:
        if node.op.differentiable and not reached.isdisjoint(node.inputs):
            forward.add(node)
            reached.update(t for t in node.outputs if is_inexact(t.type.dtype))
    needed = set(ys)
    path: list[Node] = []
    for node in reversed(graph.nodes):
        if node in forward and not needed.isdisjoint(node.outputs):
            path.append(node)
            needed.update(t for t in node.inputs if t in reached)
    return path[::-1]


def _apply_rule(
    context: RuleContext, node: Node, adjoints: Sequence[Tensor | None]
) -> Sequence[Tensor | None]:
    if node.op.gradient is not None:
        results = node.op.gradient(context, node, *adjoints)
        if len(results) != len(node.inputs):
            raise GradientError(
                f"{node.op.name}: the gradient rule gave {len(results)} adjoints for "
                f"{len(node.inputs)} operands",
                source=node.source,
            )
        return results
    return _vjp(node, adjoints)


def _vjp(node: Node, adjoints: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """The fallback for operators without a rule: a node lowered by `jax.vjp`."""
    if node.regions:
        raise GradientError(
            f"{node.op.name} {node.name!r} has no gradient rule", source=node.source
        )
    wrt = tuple(i for i, t in enumerate(node.inputs) if is_inexact(t.type.dtype))
    given = [
        FUNCTIONS.zeros_like(t) if a is None else a
        for t, a in zip(node.outputs, adjoints, strict=True)
    ]
    content = node.op.content(node) or "" if node.op.content is not None else ""
    found = emit_node(
        VJP, [*node.inputs, *given],
        op=node.op.name, count=len(node.inputs), wrt=wrt, attrs=node.attrs, content=content,
    ).outputs  # fmt: skip
    by_operand = dict(zip(wrt, found, strict=True))
    return [by_operand.get(i) for i in range(len(node.inputs))]
