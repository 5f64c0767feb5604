"""GroupAlike: nodes that apply the same operation to different values become one on stacked
values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.rewrite import sort_nodes, substitute
from graphc.ops.arrays.stacking import STACK, UNSTACK
from graphc.ops.control.bodies import stacked_type
from graphc.ops.control.mapping import MAP
from graphc.ops.core.emit import CONSTANT
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.patterns import common_name, scope_of
from graphc.passes.rolling.alike_groups import Row, Rows, Tensors
from graphc.passes.rolling.single_values import stack_of


@dataclass(frozen=True)
class GroupAlike(Pass):
    """Finds rows of independent nodes of the same kind, and makes each row one node of a `Map`.

    The search begins at the slices of stacks (for example the gradients that a rolled loop returns)
    and follows their uses, as long as every other operand is shared, state, constant, or itself a
    row: the optimizer's updates of the parameters of all blocks then become one update. It goes
    backwards from stacks that loops take (a dropout key per block).

    Worth it: tracing, lowering and compiling cost time for each node, and each small operation
    costs a launch. Values that are already stacked are not copied; state is stored as a stack.

    Must not: join nodes that need each other's results; copy values to stack them. (Updates of
    small separate variables are joined when state is laid out in buffers,
    `runtime/buffers/state_buffers.py`.)

    Attributes:
        fewest: rows of fewer nodes stay as they are.
    """

    fewest: int = 3

    def run(self, program: Program) -> PassResult:
        rows = Rows(program, self.fewest)
        stacks = [stack for stack in rows.stacked if len(stack) >= self.fewest]
        rows.follow(stacks)
        for stack in stacks:
            rows.reach(stack)
        if not rows.rows:
            return PassResult(program, 0)
        order = _in_order(program.nodes, rows)
        if not rows.rows:  # they needed each other
            return PassResult(program, 0)
        return PassResult(_Grouping(program, rows).program(order), len(rows.rows))


class _Grouping:
    """Rewrites one program with its rows."""

    def __init__(self, program: Program, rows: Rows) -> None:
        self._program = program
        self._rows = rows
        self._producers = program.producers()
        self._row_of = {node: row for row in rows.rows for node in row.nodes}
        self._stacked = dict(rows.stacked)
        self._constants = {n.outputs[0]: n for n in program.nodes if n.op is CONSTANT}

    def program(self, order: Iterable[Node | Row]) -> Program:
        """The program with a `Map` for each group of rows; `order` is the result of `_in_order`."""
        alone = [node for node in self._program.nodes if node not in self._row_of]
        groups = self._groups(order)
        with Builder() as builder:
            self._stacked.update(
                (tensors, stack_of(tensors, self._constants)) for tensors in self._rows.leaves
            )
        made = builder.nodes
        self._stacked.update((tensors, _stacked(tensors)) for tensors in self._rows.results)
        made += [self._map(group) for group in groups]
        instead = {
            node.outputs[0]: self._stacked[node.inputs]
            for node in alone
            if node.op is STACK and node.attrs["axis"] == 0 and node.inputs in self._rows.results
        }
        alone = [node for node in alone if instead.keys().isdisjoint(node.outputs)]
        used = {t for node in (*alone, *made) for t in node.inputs}
        used.update(self._program.output_tensors())
        made += [
            _unstack(self._stacked[tensors], tensors, row.nodes[0])
            for row in self._rows.rows
            for tensors in row.results()
            if not used.isdisjoint(tensors)
        ]
        program = substitute(self._program.replace(nodes=(*alone, *made)), instead)
        return program.replace(nodes=sort_nodes(program.nodes))

    def _groups(self, order: Iterable[Node | Row]) -> list[list[Row]]:
        """Rows of one length and device that can be computed at the same time, in one `Map`.

        A node that uses a single value of a row, not as part of a stack, is one level later than
        the row, and so are the nodes that depend on it.
        """
        level: dict[Tensor, int] = {}
        found: dict[tuple[int, int, str], list[Row]] = {}

        def after(tensor: Tensor) -> int:
            return level.get(tensor, 0) + (self._producers.get(tensor) in self._row_of)

        for item in order:
            if isinstance(item, Row):
                nodes = item.nodes
                own = 0
                for operand in item.operands:
                    if operand in self._rows.results:
                        own = max(own, level[operand[0]])
                    else:
                        tensors = (operand,) if isinstance(operand, Tensor) else operand
                        own = max(own, *map(after, tensors))
                key = len(nodes), own, nodes[0].device
                found.setdefault(key, []).append(item)
            else:
                nodes = (item,)
                own = max(map(after, item.inputs), default=0)
            for node in nodes:
                level.update(dict.fromkeys(node.outputs, own))
        return [group for _, group in sorted(found.items(), key=lambda pair: pair[0])]

    def _map(self, group: list[Row]) -> Node:
        inside = {tensors for row in group for tensors in row.results()}
        mapped: dict[Tensors, Tensor] = {}
        shared: dict[Tensor, Tensor] = {}
        made: dict[Tensors, Tensor] = {}
        nodes = []
        for row in group:
            name = common_name([node.name for node in row.nodes])
            inputs = []
            for operand in row.operands:
                if isinstance(operand, Tensor):
                    inputs.append(shared.setdefault(operand, Tensor(operand.type, operand.name)))
                elif operand in inside:
                    inputs.append(made[operand])
                else:
                    label = common_name([t.name for t in operand])
                    inputs.append(mapped.setdefault(operand, Tensor(operand[0].type, label)))
            outputs = []
            for i, tensors in enumerate(row.results()):
                made[tensors] = Tensor(tensors[0].type, f"{name}:{i}")
                outputs.append(made[tensors])
            nodes.append(
                row.nodes[0].replace(
                    inputs=tuple(inputs), outputs=tuple(outputs), name=name, control_inputs=()
                )
            )
        name = scope_of([node.name for node in nodes])
        body = region(name, [*mapped.values(), *shared.values()], nodes, list(made.values()))
        operands = (*[self._stacked[t] for t in mapped], *shared)
        attrs = {"mapped": len(mapped), "length": len(group[0].nodes)}
        node = Builder(group[0].nodes[0], "").add(MAP, operands, attrs, (body,), name)
        return node.replace(outputs=tuple([self._stacked[t] for t in made]))


def _in_order(nodes: Iterable[Node], rows: Rows) -> list[Node | Row]:
    """Nodes and rows in topological order.

    Rows that need each other's results are dropped.
    """
    while True:
        row_of = {node: row for row in rows.rows for node in row.nodes}
        makers = {t: row_of.get(node, node) for node in nodes for t in node.outputs}
        sorter: TopologicalSorter[Node | Row] = TopologicalSorter()
        for node in nodes:
            sorter.add(row_of.get(node, node), *[makers[t] for t in node.inputs if t in makers])
        try:
            return list(sorter.static_order())
        except CycleError as error:
            rows.drop([item for item in error.args[1] if isinstance(item, Row)])


def _stacked(tensors: Tensors) -> Tensor:
    name = common_name([t.name for t in tensors])
    return Tensor(stacked_type(tensors[0].type, len(tensors)), name)


def _unstack(stack: Tensor, tensors: Tensors, model: Node) -> Node:
    node = Builder(model, stack.name).add(UNSTACK, (stack,), {"axis": 0}, name="unstack")
    return node.replace(outputs=tensors)
