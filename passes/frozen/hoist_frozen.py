"""Hoist frozen: values that bodies compute only from state are computed outside."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.rewrite import clone, substitute, used_from
from graphc.ops.matrices.narrow_operands import narrow_in_products
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.invariants import inner, invariants, with_invariants
from graphc.passes.frozen.frozen import frozen_tensors, repeats, staying, stays


@dataclass(frozen=True)
class HoistFrozen(Pass):
    """Moves computations that depend only on state and constants out of the bodies of loops,
    branches and functions: they run once for all iterations. `gc.freeze` then computes them once
    for all runs.

    XLA moves some of them out of loops, and computes them again in each run.

    Must not: move a broadcast or another repetition, because reading it is no faster than computing
    it, or a cast that products do without; move effects. The pass assumes that all state is
    constant, and computes values of branches that are not taken: both are correct only if the
    result is kept.

    Attributes:
        moving: names of state that is not constant.
    """

    moving: tuple[str, ...] = ()

    def run(self, program: Program) -> PassResult:
        return _Hoisting().program(program, frozen_tensors(program, self.moving))


@dataclass
class _Hoisting:
    changed: int = field(default=0)

    def program(self, program: Program, frozen: set[Tensor]) -> PassResult:
        """The program with values moved out of the bodies of its nodes."""
        frozen = set(frozen)
        nodes: list[Node] = []
        before = self.changed
        for node in program.nodes:
            if node.regions and not stays(node, frozen):
                node = self.node(node, frozen, nodes)
            if stays(node, frozen):
                frozen.update(node.outputs)
            nodes.append(node)
        changed = self.changed - before
        if not changed:
            return PassResult(program, 0)
        return PassResult(program.replace(nodes=tuple(nodes)), changed)

    def node(self, node: Node, frozen: set[Tensor], nodes: list[Node]) -> Node:
        """The node with smaller bodies; the nodes moved out of them are added to `nodes`."""
        places = [i for i in invariants(node) if node.inputs[i] in frozen]
        outer: list[Tensor] = []
        bodies: list[Program] = []
        taken: list[tuple[int, Tensor]] = []  # which body, and its own tensor for each of `outer`
        for number, body in enumerate(node.regions):
            given = {inner(node, i, body): node.inputs[i] for i in places}
            known = staying(body, given)
            body = self.program(body, known).program
            known = staying(body, given)
            bodies.append(body)
            for tensor in _boundary(body, known):
                made = _outside(body, tensor, given)
                nodes += made.nodes
                for each in made.nodes:
                    frozen.update(each.outputs)
                outer.append(made.output_tensors()[0])
                taken.append((number, tensor))
        self.changed += len(outer)
        if not outer:
            return node.replace(regions=tuple(bodies))
        return with_invariants(node, outer, [_taking(b, i, taken) for i, b in enumerate(bodies)])


def _boundary(body: Program, known: set[Tensor]) -> list[Tensor]:
    """The known tensors that the rest of the body uses and that are worth keeping."""
    makers = {t: n for n in body.nodes for t in n.outputs if t in known}
    pending = [t for n in body.nodes if not stays(n, known) for t in n.inputs]
    pending += body.output_tensors()
    found: dict[Tensor, None] = {}
    seen: set[Tensor] = set()
    narrow = narrow_in_products(body, apart=known)
    for tensor in pending:
        node = makers.get(tensor)
        if node is None or tensor in seen:
            continue
        seen.add(tensor)
        if repeats(node) or tensor in narrow or not node.inputs:
            pending += node.inputs
        else:
            found[tensor] = None
    return list(found)


def _outside(body: Program, tensor: Tensor, given: dict[Tensor, Tensor]) -> Program:
    """A copy of the nodes that compute `tensor`, with the operands of the node."""
    nodes = used_from(body.nodes, [tensor])
    ports = tuple(Port(f"a{i}", "arg", t) for i, t in enumerate(given))
    copy = clone(body.replace(inputs=ports, nodes=nodes, outputs=(Port("r0", "result", tensor),)))
    ends = dict(zip(copy.input_tensors(), given.values(), strict=True))
    return substitute(copy, ends)


def _taking(body: Program, number: int, taken: list[tuple[int, Tensor]]) -> Program:
    """The body with one more input for each tensor. The inputs replace its own tensors, whose nodes
    are left to pruning."""
    inputs = [Tensor(tensor.type, tensor.name) for _, tensor in taken]
    instead = {t: new for (i, t), new in zip(taken, inputs, strict=True) if i == number}
    ports = tuple(Port("", "arg", tensor) for tensor in inputs)
    return substitute(body, instead).replace(inputs=(*body.inputs, *ports))
