"""What `Switch` and `Call` have in common: each body takes all operands and runs once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.rewrite import substitute
from graphc.ops.control.bodies import ThreadedBody


def thread_bodies(
    node: Node, bodies: Sequence[ThreadedBody], number: Tensor | None = None
) -> tuple[Node, dict[str, Tensor]]:
    """The node with its bodies made pure: see `passes.functionalize`.

    A variable that one of several bodies assigns becomes a result of all of them; the others return
    its previous value. Random draws use the node's own streams, which `number` distinguishes. It
    replaces the number of the first iteration.
    """
    taken = [list(_taken(body, number)) for body in bodies]
    outer = list(dict.fromkeys(outside for pairs in taken for outside, _ in pairs))
    assigned = {c.variable: c.initial for b in bodies for c in b.carries if c.variable}
    regions = [
        _thread(threaded, pairs, outer, assigned)
        for threaded, pairs in zip(bodies, taken, strict=True)
    ]
    finals = {variable: Tensor(old.type, variable) for variable, old in assigned.items()}
    new_node = node.replace(
        inputs=(*node.inputs, *outer),
        outputs=(*node.outputs, *finals.values()),
        regions=tuple(regions),
    )
    return new_node, finals


def _taken(threaded: ThreadedBody, number: Tensor | None) -> Iterable[tuple[Tensor, Tensor]]:
    """The additional inputs of a body, as pairs (outside, inside)."""
    for invariant in threaded.invariants:
        yield invariant.outer, invariant.inner
    for carry in threaded.carries:
        is_index = carry.variable is None
        yield number if is_index and number is not None else carry.initial, carry.inner


def _thread(
    threaded: ThreadedBody,
    taken: Sequence[tuple[Tensor, Tensor]],
    outer: Sequence[Tensor],
    assigned: dict[str, Tensor],
) -> Program:
    body = threaded.body
    inner: dict[Tensor, Tensor] = {}
    same: dict[Tensor, Tensor] = {}  # two variables may share one value
    for outside, inside in taken:
        known = inner.setdefault(outside, inside)
        if known is not inside:
            same[inside] = known
    for outside in outer:
        inner.setdefault(outside, Tensor(outside.type, outside.name))
    new = {c.variable: c.following for c in threaded.carries}
    finals = [new.get(variable, inner[old]) for variable, old in assigned.items()]
    inputs = [*body.input_tensors(), *(inner[outside] for outside in outer)]
    return substitute(
        region(body.name, inputs, body.nodes, [*body.output_tensors(), *finals]), same
    )
