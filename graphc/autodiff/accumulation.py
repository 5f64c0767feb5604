"""Reverse accumulation: the nodes that compute adjoints, one node of the graph at a time.

From the outputs back to the inputs, nodes are added for each node. They compute the adjoints of its
operands from the adjoints of its results. Source: Griewank & Walther, Evaluating Derivatives, 2nd
ed. 2008, chapter 3; the scheme of TensorFlow 1's `tf.gradients`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import nullcontext

from graphc.errors import GradientError
from graphc.ir.dtypes import is_inexact
from graphc.ir.functions import Functions
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.scopes import AMBIENT, absolute_scope, at_source, exact_device
from graphc.ops.catalogue import FUNCTIONS
from graphc.ops.core.emit import emit_node
from graphc.ops.structure.state import VJP


class RuleContext:
    """The context that gradient rules receive: see `ir.opdef.GradientContext`."""

    ops: Functions = FUNCTIONS

    def gradients(
        self, ys: Sequence[Tensor], xs: Sequence[Tensor], grad_ys: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        return accumulate(AMBIENT.graphs[-1], ys, [[x] for x in xs], grad_ys)

    def by_vjp(self, node: Node, *adjoints: Tensor | None) -> Sequence[Tensor | None]:
        return _vjp(node, adjoints)


def accumulate(
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
