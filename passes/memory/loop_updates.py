"""Which updates of stacked state can be moved into the loop that computes the gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphc.ir.node import Node, Tensor, is_among
from graphc.ir.program import Program, ancestors, is_pure
from graphc.ops.control.bodies import parts_of
from graphc.ops.control.loop_view import LoopView
from graphc.ops.structure.collective import EXCHANGES, SHARD_SLICE
from graphc.passes.core.readers import MOVES
from graphc.passes.core.state_updates import End
from graphc.passes.memory.loop_cells import Cell, Cells
from graphc.passes.memory.update_order import ordered


@dataclass(frozen=True)
class Update:
    """The update of some stacks by the gradients of one loop.

    Attributes:
        cells: the cells that compute it, in order.
        ends: pairs of new and old stacks, in the order of writing.
        sliced: the values that differ between slices.
        readers: a result of each node that must read an old stack before the loop runs.
    """

    cells: Sequence[Cell]
    ends: Sequence[tuple[Tensor, Tensor]]
    sliced: frozenset[Tensor]
    readers: Sequence[Tensor]


def find(
    program: Program, loop: Node, ends: Sequence[End], pays: Callable[[Sequence[Tensor]], bool]
) -> tuple[list[Update], list[str]]:
    """Returns the updates to move into `loop`, and for each update that must stay a sentence with
    the reason.

    Args:
        ends: the state that the program overwrites.
        pays: whether it is profitable to move the update by these gradients.
    """
    around = _Around(program, loop, ends)
    found, reasons = [], list[str]()
    for part in around.parts():
        taken = {t for cell in part for t in cell.at.inputs}
        gradients = [t for t in around.gradients if t in taken]
        news = [t for cell in part for t in cell.at.outputs if t in around.old]
        exchanged = around.exchanged(taken)
        if not news or not pays(gradients or exchanged):
            continue
        result: Update | str = "replicas exchange the gradients after the loop"
        if not exchanged:
            result = around.update(part, gradients, news)
        if isinstance(result, Update):
            found.append(result)
        else:
            what = ", ".join(around.old[t].name for t in news)
            reasons.append(f"the update of {what} stays after the loop: {result}")
    return found, reasons


class _Around:
    """The parts of a program before, next to and after a loop.

    Attributes:
        gradients: the stacks that the loop returns.
        old: new value of state -> old value.
    """

    def __init__(self, program: Program, loop: Node, ends: Sequence[End]) -> None:
        self._program, self._loop = program, loop
        self._cells = cells = Cells(program, loop.attrs["length"])
        self.gradients = LoopView.of(loop).stacks
        self.old = {end.new: end.old for end in ends if end.old is not None}
        self._producers = program.producers()
        self._given = {*program.output_tensors(), *cells.values(program.output_tensors())}
        self._aliased = set(cells.aliases.values())
        self._users: dict[Tensor, list[Node]] = {}  # nodes that are no cells
        self._late = set(loop.outputs)  # values that depend on the loop
        for node in program.nodes:
            for cell in cells.of.get(node, ()):
                if not self._late.isdisjoint(cell.at.inputs):
                    self._late.update(cell.at.outputs)
            if node not in cells.of:
                values = cells.values(node.inputs)
                for tensor in values:
                    self._users.setdefault(tensor, []).append(node)
                if not self._late.isdisjoint(values):
                    self._late.update(node.outputs)
        self._before = ancestors(self._producers, loop.inputs)

    def parts(self) -> list[list[Cell]]:
        """The cells that depend on gradients, grouped so that cells sharing slices are together."""
        part_of: dict[Tensor, list[Tensor]] = {}
        cells = [c for c in self._cells.all if not self._late.isdisjoint(c.at.inputs)]
        for cell in cells:
            values = [t for t in cell.at.inputs if t in self._cells.sliced]
            joined: list[Tensor] = []
            for value in dict.fromkeys([*values, *cell.at.outputs]):
                part = part_of.setdefault(value, [value])
                if part is not joined:
                    joined += part
                    part_of.update(dict.fromkeys(part, joined))
        found: dict[int, list[Cell]] = {}
        for cell in cells:
            found.setdefault(id(part_of[cell.at.outputs[0]]), []).append(cell)
        return list(found.values())

    def exchanged(self, taken: set[Tensor]) -> list[Tensor]:
        """The gradients of the loop whose sums over devices are among the values `taken`."""
        found: list[Tensor] = []
        for tensor in taken:
            node = self._producers.get(tensor)
            if node is not None and node.op in EXCHANGES:
                found += [t for t in node.inputs if is_among(t, self.gradients)]
        return found

    def update(
        self, part: Sequence[Cell], gradients: Sequence[Tensor], news: Sequence[Tensor]
    ) -> Update | str:
        """The update of the states `news`, or the reason why it must stay."""
        moved = self._with_operands(part)
        made = {t: cell.at for cell in moved for t in cell.at.outputs}
        taken = {t for cell in moved for t in cell.at.inputs}
        late = [
            t for t in taken if t in self._late and t not in made and not is_among(t, gradients)
        ]
        if any(self._is_piece(t) for t in taken):
            return "each replica updates a piece of it"
        if late:
            return f"it needs {late[0].name}, which is known only after the loop"
        for t in gradients:
            if self._is_used(t, moved):
                return f"the gradient {t.name} is used elsewhere"
        odd = [cell.node for cell in moved if not cell.is_local]
        if odd:
            return f"{odd[0].op.name} {odd[0].name!r} is not elementwise"
        results = [t for cell in part for t in cell.at.outputs]
        if any(
            t in self._aliased or (t not in self.old and self._is_used(t, moved)) for t in results
        ):
            return "it also computes values that are not state"
        ends = [(t, self.old[t]) for t in news]
        if any(old.type != new.type for new, old in ends):
            return "a state changes its type"
        order = ordered(ends, made)
        if order is None:
            return "each new value needs the old value of the other"
        readers: dict[Tensor, None] = {}
        for _, old in order:
            reading = self._readers(old, moved)
            if reading is None:
                return f"{old.name} is read after the loop"
            readers.update(dict.fromkeys(reading))
        operands = [t for t in taken if t not in made and not is_among(t, gradients)]
        if not self._depend_on_loop(moved).isdisjoint((*operands, *readers)):
            return "a map computes what the loop needs, and something that needs the loop"
        sliced = frozenset(t for t in (*taken, *made) if t in self._cells.sliced)
        return Update(list(moved), order, sliced, list(readers))

    def _is_piece(self, value: Tensor) -> bool:
        """Whether the value is one replica's piece of a value that all replicas have."""
        made = self._cells.made.get(value)
        maker = self._producers.get(value) if made is None else made.node
        return maker is not None and maker.op is SHARD_SLICE

    def _depend_on_loop(self, moved: dict[Cell, None]) -> set[Tensor]:
        """The values that are known only after the loop once the cells `moved` are in it. A map
        that keeps one cell depending on the loop returns all its results after the loop."""
        found = set(self._loop.outputs)
        for node in self._program.nodes:
            inputs: Sequence[Tensor] = node.inputs
            if node in self._cells.of:
                left = [cell for cell in self._cells.of[node] if cell not in moved]
                inputs = [t for cell in left for t in cell.at.inputs]
            if not found.isdisjoint(inputs):
                found.update(node.outputs)
        return found

    def _is_used(self, value: Tensor, moved: dict[Cell, None]) -> bool:
        """Whether anything except the cells `moved` uses a value."""
        others = any(cell not in moved for cell in self._cells.users.get(value, ()))
        return others or value in self._given or bool(self._users.get(value))

    def _with_operands(self, part: Sequence[Cell]) -> dict[Cell, None]:
        """The cells, with the cells that must or should move with them: those of the same body, and
        those used only by them."""
        moved = set(part)
        while True:
            more = set[Cell]()
            for cell in moved:
                for value in cell.at.inputs:
                    maker = self._cells.made.get(value)
                    if maker is None or maker in moved:
                        continue
                    inner = maker.is_inner and not is_among(value, maker.owner.outputs)
                    alone = not self._is_used(value, dict.fromkeys(moved))
                    if inner or (maker.is_local and alone and value not in self._aliased):
                        more.add(maker)
            if not more:
                return dict.fromkeys(cell for cell in self._cells.all if cell in moved)
            moved |= more

    def _readers(self, old: Tensor, moved: dict[Cell, None]) -> list[Tensor] | None:
        """The tensors that the loop must wait for before it overwrites `old`. None if the old value
        is needed later."""
        loop = self._loop
        fixed = parts_of(loop, loop.inputs)
        if is_among(old, (*fixed.consts, *fixed.carries)):
            return None
        found: dict[Tensor, None] = {}
        stack, seen = [old], {old}

        def follow(values: Sequence[Tensor]) -> None:
            stack.extend(t for t in values if t not in seen)
            seen.update(values)

        while stack:
            tensor = stack.pop()
            if tensor in self._given:
                return None
            for node in self._users.get(tensor, ()):
                if node is loop:
                    continue
                if not self._late.isdisjoint(node.outputs) or not is_pure(node):
                    return None
                if node.op in MOVES:
                    follow(node.outputs)
                elif node not in self._before:
                    found[node.outputs[0]] = None
            for cell in self._cells.users.get(tensor, ()):
                if cell in moved:
                    continue
                if not self._late.isdisjoint(cell.at.outputs):
                    return None
                if cell.is_local:
                    follow(cell.at.outputs)
                else:
                    found.update(dict.fromkeys(self._results(cell)))
        return list(found)

    def _results(self, cell: Cell) -> list[Tensor]:
        """The first result of a map that depends on a cell of its body but not on the loop."""
        needs = set(cell.at.outputs)
        for other in self._cells.of[cell.owner]:
            if not needs.isdisjoint(other.at.inputs):
                needs.update(other.at.outputs)
        return [t for t in cell.owner.outputs if t in needs and t not in self._late][:1]
