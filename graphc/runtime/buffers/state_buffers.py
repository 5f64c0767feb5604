"""The last step before lowering: state ports that are variables become ports that are buffers.

`propose` determines which variables of a program should share a buffer. `physical` rewrites a
program for the existing buffers: reads become slices, and assignments make new buffers. Both
depend only on the program and the layout. So compiling the same programs in the same order gives
the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.errors import StateError
from graphc.ir.builder import Builder
from graphc.ir.dtypes import DType, short_name
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program, is_pure
from graphc.ir.rewrite import substitute, used_from
from graphc.ops.arrays.joining import concatenate, split
from graphc.ops.arrays.shape import reshape
from graphc.ops.arrays.slicing import slice_
from graphc.ops.arrays.stacking import STACK, UNSTACK, stack, unstack
from graphc.runtime.buffers.layout import FLAT, OWN, STACKED, Buffer, Group, StateLayout, elements
from graphc.runtime.buffers.lifting import Lifting
from graphc.runtime.buffers.update_signatures import Roles

# Small: copying this many elements costs less than an additional argument of a call (about 2 us).
SMALL = 4096


# -- which variables share a buffer ----------------------------------------------------------


def propose(program: Program, layout: StateLayout, kinds: str | None = None) -> list[Group]:
    """The groups that suit a bound, optimised program; the most important come first.

    Args:
        kinds: see `CompileOptions.state_buffers`.

    Stacked groups are the operands that a `Stack` node takes from state; they have one type. Flat
    groups are the other small variables that still have their own buffers, by dtype and by the way
    they are updated. A program that only reads state makes the same groups of it as a program that
    trains, so their layouts agree. Variables with a sharding set by the user are not put into flat
    buffers, on any devices. They are stacked only with variables that have the same sharding.
    Variables on different devices never share a buffer.
    """
    if kinds == "separate":
        return []
    state = {port.tensor: port.name for port in program.ports("state")}
    groups: list[Group] = []
    grouped: set[str] = set()
    for node in program.nodes:
        if node.op is not STACK or node.attrs["axis"] != 0 or len(node.inputs) < 2:
            continue
        members = tuple([state[t] for t in node.inputs if t in state])
        places = {(program.shards.get(name), program.homes.get(name)) for name in members}
        alike = len(places) == 1
        if len(members) == len(node.inputs) and alike and grouped.isdisjoint(members):
            grouped.update(members)
            groups.append(Group(STACKED, members))
    if kinds == "stacked":
        return groups
    return groups + _flat_groups(program, layout.with_groups(groups))


def _flat_groups(program: Program, layout: StateLayout) -> list[Group]:
    roles = Roles(program)
    role_of = roles.of_variables()
    order = _order(program, layout, roles)
    found: dict[object, list[str]] = {}
    for name in sorted(role_of, key=order.__getitem__):
        type = layout.types[name]
        own = layout.buffer_of(name).kind == OWN and name not in program.shards
        if own and elements(type) <= SMALL and _fills_bytes(type.dtype):
            key = (type.dtype, role_of[name], program.homes.get(name))
            found.setdefault(key, []).append(name)
    return [Group(FLAT, tuple(names)) for names in found.values() if len(names) > 1]


def _order(program: Program, layout: StateLayout, roles: Roles) -> dict[str, tuple[int, int]]:
    """The sort keys of variables: the order of the layout. The optimizer's slots come in the order
    of their parameters."""
    number = {name: i for i, name in enumerate(layout.types)}
    name_of = {port.tensor: port.name for port in program.ports("state")}
    order = {name: (i, i) for name, i in number.items()}
    for port in program.new_state():
        for source in roles.sources(port.tensor):
            name = name_of[source]
            order[name] = min(order[name], (number[port.name], number[name]))
    return order


def _fills_bytes(dtype: DType) -> bool:
    """Whether each element starts at a byte boundary. Two 4-bit elements share one byte."""
    return short_name(dtype) not in ("i4", "u4")


# -- the program for them --------------------------------------------------------------------


def physical(program: Program, layout: StateLayout) -> Program:
    """The program with the buffers of `layout` for its state. Its meaning does not change.

    Args:
        program: bound, its state ports named by variable.

    Raises:
        StateError: a variable of the program is not in the layout or has another type there.
    """
    rewriting = _Rewriting(program, layout)
    return rewriting.run() if rewriting.buffers else program


class _Rewriting:
    """One run of `physical`."""

    def __init__(self, program: Program, layout: StateLayout) -> None:
        self.program = program
        self.reads = {port.name: port.tensor for port in program.ports("state")}
        self.writes = {port.name: port.tensor for port in program.new_state()}
        self.buffers: dict[Buffer, Tensor] = {}  # with the tensor of its old value
        self.before = Builder(scope="state")
        self.after = Builder(scope="state")
        self.of: dict[str, Buffer] = {}
        for name, tensor in {**self.writes, **self.reads}.items():
            if layout.types.get(name) != tensor.type:
                raise StateError(f"{program.name}: the layout has no {name!r} of {tensor.type}")
            buffer = layout.buffer_of(name)
            if buffer.kind != OWN:
                self.of[name] = buffer
                if buffer not in self.buffers:
                    self.buffers[buffer] = Tensor(buffer.type, buffer.name)

    def run(self) -> Program:
        with self.before:
            self.program = substitute(self.program, self._whole_stacks())
        self.writes = {port.name: port.tensor for port in self.program.new_state()}
        lifting = Lifting(self.program, self._places())
        wholes: dict[tuple[Tensor | None, ...], Tensor] = {
            node.outputs: node.inputs[0]
            for node in self.program.nodes
            if node.op is UNSTACK and node.attrs["axis"] == 0
        }
        with self.after:
            new = {
                buffer: self._written(buffer, value, lifting, wholes)
                for buffer, value in self.buffers.items()
                if not self.writes.keys().isdisjoint(buffer.members)
            }
        outputs = self._ports(self.program.outputs, new)
        nodes = used_from(
            [*self.program.nodes, *self.after.nodes],
            [port.tensor for port in outputs],
            keep=lambda node: not is_pure(node),
        )
        used = {t for node in nodes for t in node.inputs} | {port.tensor for port in outputs}
        with self.before:
            for buffer, value in self.buffers.items():
                self._read(buffer, value, used)
        used.update(t for node in self.before.nodes for t in node.inputs)
        # A buffer that is completely written and never read is not an input, as for variables.
        idle = set(self.buffers.values()) - used
        inputs = self._ports(self.program.inputs, self.buffers)
        return self.program.replace(
            inputs=tuple([port for port in inputs if port.tensor not in idle]),
            nodes=(*self.before.nodes, *nodes),
            outputs=tuple(outputs),
        )

    def _ports(self, ports: Sequence[Port], values: dict[Buffer, Tensor]) -> list[Port]:
        """The ports, with one port for each buffer at the position of its first member.

        A buffer without a port here is added at the end, because parts of it may be kept.
        """
        result: dict[str, Port] = {}
        done: list[Port] = []
        for port in ports:
            buffer = self.of.get(port.name) if port.kind == "state" else None
            if buffer is None:
                done.append(port)
            elif buffer.name not in result:
                result[buffer.name] = Port(buffer.name, "state", values[buffer])
                done.append(result[buffer.name])
        missing = [b for b in values if b.name not in result]
        return [*done, *(Port(b.name, "state", values[b]) for b in missing)]

    # -- reading ----------------------------------------------------------------------------

    def _whole_stacks(self) -> dict[Tensor, Tensor]:
        """The results of `Stack` nodes that stacked buffers already contain."""
        place = {
            self.reads[name]: (buffer, number)
            for buffer in self.buffers
            if buffer.kind == STACKED
            for number, name in enumerate(buffer.members)
            if name in self.reads
        }
        found: dict[Tensor, Tensor] = {}
        for node in self.program.nodes:
            if node.op is not STACK or node.attrs["axis"] != 0 or node.inputs[0] not in place:
                continue
            buffer, first = place[node.inputs[0]]
            stop = first + len(node.inputs)
            if [place.get(t) for t in node.inputs] != [(buffer, i) for i in range(first, stop)]:
                continue
            value = self.buffers[buffer]
            if stop - first < len(buffer.members):
                value = _slice(value, buffer, first, stop)
            found[node.outputs[0]] = value
        return found

    def _read(self, buffer: Buffer, value: Tensor, used: set[Tensor]) -> None:
        """Slices the tensors of the program's old ports from the buffer."""
        members = [self.reads.get(name) for name in buffer.members]
        if all(tensor in used for tensor in members):
            results = [tensor for tensor in members if tensor is not None]
            flat = buffer.kind == FLAT
            pieces = split(value, [*map(elements, buffer.types)]) if flat else unstack(value)
            shaped = [
                reshape(piece, result.type.shape) if flat and result.type.rank != 1 else piece
                for piece, result in zip(pieces, results, strict=True)
            ]
            self.before.define(*zip(shaped, results, strict=True))
            return
        for number, tensor in enumerate(members):
            if tensor is not None and tensor in used:
                piece = _slice(value, buffer, number, number + 1)
                self.before.define((reshape(piece, tensor.type.shape), tensor))

    def _places(self) -> dict[Tensor, tuple[Tensor, int]]:
        """The positions of the old values of members of flat buffers."""
        return {
            self.reads[name]: (value, start)
            for buffer, value in self.buffers.items()
            if buffer.kind == FLAT
            for name, start in zip(buffer.members, buffer.starts, strict=True)
            if name in self.reads
        }

    # -- writing ----------------------------------------------------------------------------

    def _written(
        self,
        buffer: Buffer,
        value: Tensor,
        lifting: Lifting,
        wholes: Mapping[tuple[Tensor | None, ...], Tensor],
    ) -> Tensor:
        """The buffer's new value. `wholes` maps results of `Unstack` nodes to their operands."""
        new = tuple([self.writes.get(name) for name in buffer.members])
        if buffer.kind == STACKED and new in wholes:
            return wholes[new]
        pieces: list[Tensor] = []
        for first, stop, tensors in _runs(new, lifting):
            if not tensors:
                pieces.append(_slice(value, buffer, first, stop))
            elif buffer.kind == FLAT:
                pieces.append(lifting.flat(tensors))
            else:
                pieces.append(stack(tensors))
        return pieces[0] if len(pieces) == 1 else concatenate(pieces)


def _runs(
    new: Sequence[Tensor | None], lifting: Lifting
) -> list[tuple[int, int, tuple[Tensor, ...]]]:
    """(first, stop, tensors) of neighbours that are updated in the same way. `tensors` is empty if
    they are not assigned."""
    runs: list[tuple[int, int, tuple[Tensor, ...]]] = []
    last: object = None
    for number, tensor in enumerate(new):
        kind = (False, None) if tensor is None else (True, lifting.role(tensor))
        if runs and kind == last:
            first, _, tensors = runs.pop()
        else:
            first, tensors = number, ()
        runs.append((first, number + 1, tensors if tensor is None else (*tensors, tensor)))
        last = kind
    return runs


def _slice(value: Tensor, buffer: Buffer, first: int, stop: int) -> Tensor:
    """Members `first` to `stop` of a buffer, in the order of the buffer."""
    shape = buffer.type.shape
    starts = (*buffer.starts, shape[0])
    rest = shape[1:]
    return slice_(value, (starts[first], *[0] * len(rest)), (starts[stop], *rest))
