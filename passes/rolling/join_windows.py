"""JoinWindows: windows of one tensor that nodes read or fill one by one become one stack."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ops.arrays.joining import CONCATENATE
from graphc.ops.arrays.shape import reshape
from graphc.ops.arrays.stacking import stack
from graphc.ops.elementwise.arithmetic import ADD
from graphc.passes.core.base import Pass, PassResult, run_all_bodies
from graphc.passes.rolling.pieces import Joined, cut, joined, without_unit_axes
from graphc.passes.rolling.windows import Piece, Window, placed_by, read_by, runs_of, written_by


@dataclass(frozen=True)
class JoinWindows(Pass):
    """Joins windows at regular distances: slices of one tensor become an `Unstack`, and pieces that
    are padded and added, written one by one, or concatenated become a `Stack`.

    Worth it: in the steps of an unrolled loop, these nodes differ by the start of their window.
    With their windows in one node outside, all steps are equal, and `RollRepeats` makes them a loop
    that takes a stack and returns one. XLA would compile a padded array and a sum for the gradient
    of each slice.

    Must not: change the order in which numbers are added. Therefore windows are joined only if they
    have no element in common, and at most one other operand of their sum remains.

    Attributes:
        fewest: smaller numbers of windows stay as they are.
    """

    fewest: int = 3

    def run(self, program: Program) -> PassResult:
        program, changed = run_all_bodies(self, program)
        for step in (_past_updates, _reads, _sums, _updates, _concatenations):
            program, count = step(program, self.fewest)
            changed += count
        return PassResult(program, changed)


Step = tuple[Program, int]


class _Edit:
    """New nodes for a program, each inserted before an existing node.

    Attributes:
        makers: tensor -> its producer.
        users: tensor -> the positions of the nodes that use it.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.makers = program.producers()
        self.given = set(program.output_tensors())
        self.place = {node: i for i, node in enumerate(program.nodes)}
        self.users: dict[Tensor, list[int]] = defaultdict(list)
        for i, node in enumerate(program.nodes):
            for tensor in node.inputs:
                self.users[tensor].append(i)
        self._before: dict[int, list[Node]] = defaultdict(list)
        self._gone: set[Node] = set()
        self.changed = 0

    def used_once(self, tensor: Tensor) -> bool:
        return len(self.users.get(tensor, ())) == 1 and tensor not in self.given

    def after(self, tensor: Tensor) -> int:
        """The first position at which `tensor` is computed."""
        maker = self.makers.get(tensor)
        return 0 if maker is None else self.place[maker] + 1

    def first_use(self, tensor: Tensor) -> int:
        return min(self.users.get(tensor, ()), default=len(self.program.nodes))

    def insert(self, place: int, nodes: Iterable[Node], instead_of: Iterable[Node]) -> None:
        self._before[place] += nodes
        self._gone.update(instead_of)
        self.changed += 1

    def done(self) -> Step:
        if not self.changed:
            return self.program, 0
        nodes: list[Node] = []
        for i, node in enumerate(self.program.nodes):
            nodes += self._before.get(i, ())
            if node not in self._gone:
                nodes.append(node)
        nodes += self._before.get(len(self.program.nodes), ())
        return self.program.replace(nodes=tuple(nodes)), self.changed


# -- reads -----------------------------------------------------------------------------------


def _past_updates(program: Program, fewest: int) -> Step:
    """Reads of one window after updates of other windows read the array before the updates. The
    adjoints of such updates read each window from an array in which the earlier windows were set to
    zero."""
    makers = program.producers()
    updates = {n.outputs[0]: p.window for n in program.nodes if (p := written_by(n, makers))}
    if len(updates) < fewest:
        return program, 0
    found: dict[Tensor, list[Node]] = defaultdict(list)
    for node in program.nodes:
        window = read_by(node, makers)
        if window is None:
            continue
        x = node.inputs[0]
        while x in updates and not updates[x].overlaps(window):
            x = makers[x].inputs[0]
        found[x].append(node)
    moved = {
        node: node.replace(inputs=(x, *node.inputs[1:]))
        for x, nodes in found.items()
        if len(nodes) >= fewest
        for node in nodes
        if node.inputs[0] is not x
    }
    if not moved:
        return program, 0
    return program.replace(nodes=tuple(moved.get(n, n) for n in program.nodes)), len(moved)


def _reads(program: Program, fewest: int) -> Step:
    """Slices of one tensor become the results of one `Unstack`."""
    edit = _Edit(program)
    families: dict[tuple[Tensor, int, int, bool], dict[int, Node]] = defaultdict(dict)
    for node in program.nodes:
        window = read_by(node, edit.makers)
        if window is not None and node.inputs[0].type.is_static:
            key = node.inputs[0], window.axis, window.width, window.dropped
            families[key].setdefault(window.start, node)
    for (x, axis, width, dropped), nodes in families.items():
        starts = sorted(nodes)
        for run in runs_of(starts, width, fewest):
            places = starts[run]
            step = places[1] - places[0]
            if places[0] + step * len(places) > x.type.shape[axis]:  # type: ignore[operator]
                places = places[: -1 if step > width else None]
            first = nodes[places[0]]
            with Builder(first) as builder:
                window = Window(axis, places[0], width, dropped)
                pieces = cut(x, window, step, len(places))
                builder.define(
                    *[(t, nodes[s].outputs[0]) for t, s in zip(pieces, places, strict=True)]
                )
            edit.insert(edit.after(x), builder.nodes, [nodes[start] for start in places])
    return edit.done()


# -- writes ----------------------------------------------------------------------------------


@dataclass
class _Sum:
    """Operands of a tree of additions whose intermediate results are used once."""

    pieces: list[Piece]
    others: list[Tensor]


def _sums(program: Program, fewest: int) -> Step:
    """Sums of padded pieces become the padded `Stack` of the pieces."""
    edit = _Edit(program)
    sums: dict[Tensor, _Sum] = {}
    for node in program.nodes:
        if node.op is not ADD or any(t.type != node.outputs[0].type for t in node.inputs):
            continue
        parts = [_summand(t, sums, edit) for t in node.inputs]
        if sum(len(part.others) for part in parts) > 1:
            continue
        for tensor in node.inputs:
            if edit.used_once(tensor):
                sums.pop(tensor, None)
        parts.sort(key=lambda part: -len(part.pieces))  # so that long chains take linear time
        parts[0].pieces.extend(parts[1].pieces)
        parts[0].others.extend(parts[1].others)
        sums[node.outputs[0]] = parts[0]
    for total, found in sums.items():
        _join(edit, total, found.pieces, found.others, fewest)
    return edit.done()


def _summand(tensor: Tensor, sums: dict[Tensor, _Sum], edit: _Edit) -> _Sum:
    if tensor in sums and edit.used_once(tensor):
        return sums[tensor]
    maker = edit.makers.get(tensor)
    piece = placed_by(maker, edit.makers) if maker is not None else None
    return _Sum([piece], []) if piece else _Sum([], [tensor])


def _join(
    edit: _Edit, total: Tensor, pieces: Sequence[Piece], others: Sequence[Tensor], fewest: int
) -> None:
    """Computes `total` from stacks, if enough of its pieces are adjacent."""
    if len(pieces) < fewest or not total.type.is_static:
        return
    kinds = Counter((p.window.axis, p.window.width, p.window.dropped) for p in pieces)
    width = pieces[0].window.width
    ordered = sorted(pieces, key=lambda piece: piece.window.start)
    if len(kinds) > 1 or any(a.window.overlaps(b.window) for a, b in pairwise(ordered)):
        return
    starts = [piece.window.start for piece in ordered]
    runs = runs_of(starts, width, fewest)
    if not runs:
        return
    node = edit.makers[total]
    with Builder(node) as builder:
        parts = list(others)
        place = 0
        for run in runs:
            alone = ordered[place : run.start]
            parts += [_alone(piece, total) for piece in alone]
            parts.append(_run(edit, ordered[run], total))
            place = run.stop
        parts += [_alone(piece, total) for piece in ordered[place:]]
        result = parts[0]
        for part in parts[1:]:
            result = result + part
        builder.define((result, total))
    edit.insert(edit.first_use(total), builder.nodes, [node])


def _run(edit: _Edit, pieces: Sequence[Piece], total: Tensor) -> Tensor:
    step = pieces[1].window.start - pieces[0].window.start
    tensors = [piece.tensor for piece in pieces]
    return joined(Joined(tensors, pieces[0].window, step), total.type, edit.makers)


def _alone(piece: Piece, total: Tensor) -> Tensor:
    return joined(Joined([piece.tensor], piece.window, piece.window.width), total.type, {})


def _updates(program: Program, fewest: int) -> Step:
    """An array of zeros whose windows are overwritten one by one becomes the padded `Stack`."""
    edit = _Edit(program)
    chains: dict[Tensor, list[Piece]] = {}
    for node in program.nodes:
        piece = written_by(node, edit.makers)
        if piece is None:
            continue
        base = node.inputs[0]
        if base in chains and edit.used_once(base):
            chains[node.outputs[0]] = chains.pop(base)
            chains[node.outputs[0]].append(piece)
        elif placed_by(node, edit.makers):
            chains[node.outputs[0]] = [piece]
    for total, pieces in chains.items():
        _join(edit, total, pieces, (), fewest)
    return edit.done()


def _concatenations(program: Program, fewest: int) -> Step:
    """Concatenated operands of one type are stacked. An axis of size 1 that was added for the
    concatenation is dropped."""
    edit = _Edit(program)
    for node in program.nodes:
        if node.op is not CONCATENATE or len(node.inputs) < fewest:
            continue
        if any(t.type != node.inputs[0].type for t in node.inputs):
            continue
        axis = node.attrs["axis"]
        tensors, axis = without_unit_axes(node.inputs, axis, edit.makers) or (node.inputs, axis)
        with Builder(node) as builder:
            result = stack(tensors, axis)
            if result.type != node.outputs[0].type:
                result = reshape(result, node.outputs[0].type.shape)
            builder.define((result, node.outputs[0]))
        edit.insert(edit.place[node], builder.nodes, [node])
    return edit.done()
