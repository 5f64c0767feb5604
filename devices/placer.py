"""The placer: chooses the device of each node and each variable of a program.

It follows TensorFlow's placer (Abadi et al., "TensorFlow: A system for large-scale machine
learning", 2016, section 3.3): requests are honoured, nodes that belong together stay together, and
all other nodes go to JAX's default device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from graphc.devices.discovery import available, matching, no_such_device
from graphc.devices.placed_nodes import (
    MARKS,
    homes_of_updates,
    is_constant,
    nearest_device,
    update_nodes,
)
from graphc.errors import DeviceError
from graphc.ir.device_spec import parse_device
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import Effects
from graphc.ir.program import Program


class Row(NamedTuple):
    """A node or variable, and the names of its devices."""

    name: str
    op: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """The devices on which a program runs.

    Attributes:
        program: if it uses several devices, each node names its own device, except constants that
            are used on several devices. Otherwise the program is unchanged.
        devices: the names of the devices that it runs on. `base` comes first if it is among them.
        base: the default device, for everything that does not request a device.
        homes: the device of each variable that the program uses.
        at: the device of each node, or that of its users. A node that is missing here is on `base`.
        notes: the requests that could not be honoured, one line each.
    """

    program: Program
    devices: tuple[str, ...]
    base: str
    homes: Mapping[str, str]
    at: Mapping[str, tuple[str, ...]] = field(repr=False)
    notes: Sequence[str] = ()

    def rows(self) -> list[Row]:
        """Rows for the log: variables, then feeds with the devices that use them, then nodes in
        program order."""
        variables = [(n, home) for n, home in self.homes.items() if not n.startswith("__")]
        found = [Row(name, "Variable", (home,)) for name, home in variables]
        users = self.program.users()
        for port in self.program.ports("feed"):
            near = [self.at.get(n.name, (self.base,)) for n in users.get(port.tensor, ())]
            places = dict.fromkeys(place for row in near for place in row)
            found.append(Row(port.name, "Placeholder", tuple(places) or (self.base,)))
        nodes = [n for n in self.program.nodes if n.name and n.op not in MARKS]
        return found + [Row(n.name, n.op.name, self.at.get(n.name, (self.base,))) for n in nodes]


def place(
    program: Program,
    variables: Mapping[str, str] | None = None,
    *,
    soft: bool = True,
    whole: Program | None = None,
    known: Sequence[str] | None = None,
    base: str | None = None,
) -> Placement:
    """Chooses a device for each node and variable of a functional program.

    - A request is honoured. A request that no device matches is overridden with a note, or is an
      error.
    - A variable resides on the device that it requests. It is updated by the nodes of an optimizer,
      or by the node that computes its new value. Unless these nodes request another device, they
      run there. Those that update variables of several devices run on the device that holds most of
      their state and gradient operands.
    - Gradient nodes request the device of their forward nodes (`gc.gradients(colocate=True)`).
    - A node with a body runs on one device: the one that it requests, or else the one that nodes of
      its body request.
    - Constants, and nodes computed from constants only, are placed with each of their users, unless
      they request a device.
    - All other nodes run on the default device. This is the first of JAX's default devices, an
      accelerator if there is one. If all nodes and variables of the graph request the same device,
      it is that one.

    Args:
        variables: the request of each variable, by name.
        soft: whether requests that no device matches are overridden.
        whole: all nodes of the graph; by default the program's.
        known: the names of the available devices, JAX's default devices first. By default the
            devices of this process.
        base: the default device, if it is already chosen.

    Raises:
        DeviceError: a name does not parse; or no device matches a request, and `soft` is False.
    """
    names = _names() if known is None else {name: name for name in known}
    variables, whole = variables or {}, program if whole is None else whole
    if not variables and not any(node.device for node in whole.walk()):  # true of most graphs
        base = base or next(iter(names))
        ports = [*program.ports("state"), *program.new_state()]
        return Placement(program, (base,), base, {port.name: base for port in ports}, {})
    placing = _Placing(program, variables, names, soft, known)
    return placing.run(base or placing.base(whole))


class _Placing:
    """One run of the placer."""

    def __init__(
        self,
        program: Program,
        variables: Mapping[str, str],
        names: Mapping[str, str],
        soft: bool,
        known: Sequence[str] | None,
    ) -> None:
        self._program, self._names, self._soft, self._known = program, names, soft, known
        self._notes: dict[str, None] = {}
        self._missing: dict[str, str] = {}  # requests, and the nodes and variables that made them
        self._matches: dict[str, list[str]] = {}
        self._updates = update_nodes(program)
        ports = [*program.ports("state"), *program.new_state()]
        self._variables = {p.name: variables.get(p.name, "") for p in ports}
        self._all_variables = variables
        # Nodes without operands come last, because notes name the first node that requests a
        # device.
        nodes = sorted(program.nodes, key=lambda node: not node.inputs)
        self._requests: dict[Node, list[str]] = {
            node: self._request_of(node) for node in nodes if node.op not in MARKS
        }
        self._at: dict[Tensor, str] = {}  # the device of each tensor; missing means any device
        self._devices: dict[Node, str] = {}
        self._constants: set[Tensor] = set()
        self._update_homes: Mapping[Node, str] = {}

    def run(self, base: str) -> Placement:
        """The placement. Nodes without a request run on `base`."""
        homes_asked = {n: self._fitting(r, None, n) for n, r in self._variables.items() if r}
        homes = {n: _pick(homes_asked.get(n, []), base) for n in self._variables}
        for port in self._program.ports("state"):
            self._at[port.tensor] = homes[port.name]
        ends = {port.tensor: homes[port.name] for port in self._program.new_state()}
        self._update_homes = homes_of_updates(self._program, self._updates, homes)
        for node in self._program.nodes:
            self._place(node, base, ends)
        self._place_floating(base)
        used = dict.fromkeys([*self._devices.values(), *homes.values()])
        names = tuple(sorted(used or {base: None}, key=lambda name: name != base))
        program = self._program
        if len(names) > 1:
            nodes = tuple([self._named(node) for node in program.nodes])
            program = program.replace(nodes=nodes, homes=homes)
        notes = [
            f"no device {request} for {who}: it runs on {base}"
            for request, who in self._missing.items()
        ]
        return Placement(program, names, base, homes, self._at_last(), [*notes, *self._notes])

    # -- requests -------------------------------------------------------------------------------

    def _request_of(self, node: Node) -> list[str]:
        """The devices that a node's request allows, best first; empty if no device matches."""
        inside = [n.device for body in node.regions for n in body.walk() if n.device]
        asked = dict.fromkeys([node.device, *inside] if node.device else inside)
        found = [names for name in asked if (names := self._fitting(name, node, ""))]
        common = _common(found)
        if found and not common:
            self._notes[
                f"{_described(node)} and its bodies request different devices "
                f"({', '.join(asked)}), but they must run on one device"
            ] = None
            return found[0]
        return common or []

    def _fitting(self, request: str, node: Node | None, variable: str) -> list[str]:
        found = self._matching(request)
        if not found:
            self._refuse(request, node, variable)
        return found

    def _matching(self, request: str) -> list[str]:
        """The devices that match a request, each by its first name."""
        found = self._matches.get(request)
        if found is None:
            fitting = [self._names[name] for name in matching(request, self._names)]
            found = self._matches[request] = list(dict.fromkeys(fitting))
        return found

    def _refuse(self, request: str, node: Node | None, variable: str) -> None:
        who = f"variable {variable!r}" if node is None else _described(node)
        if self._soft:
            self._missing.setdefault(request, who)
            return
        error: DeviceError = no_such_device(request, f" for {who}", self._known)
        error.hint = f"{error.hint}; or leave soft_placement on, and it runs on another device"
        if node is not None:
            error.source = node.source
        raise error

    def base(self, whole: Program) -> str:
        """The default device."""
        default = next(iter(self._names))
        updates = update_nodes(whole)
        computing = [
            node
            for node in whole.nodes
            if node.inputs
            and node.source is not None
            and node not in updates
            and node.op not in MARKS
            and not node.op.effects & (Effects.READ | Effects.WRITE)
        ]
        if any(not node.device and not self._request_of(node) for node in computing):
            return default
        asked = {*self._all_variables.values(), *(n.device for n in whole.nodes if n.device)}
        asked.update(n.device for node in whole.nodes for b in node.regions for n in b.walk())
        common = _common(filter(None, map(self._matching, sorted(asked - {""}))))
        return default if not common or default in common else common[0]

    # -- nodes ----------------------------------------------------------------------------------

    def _place(self, node: Node, base: str, ends: Mapping[Tensor, str]) -> None:
        if node.op in MARKS:
            for result, operand in zip(
                node.outputs, node.inputs[-len(node.outputs) :], strict=True
            ):
                if operand in self._at:
                    self._at[result] = self._at[operand]
            return
        asked = self._requests[node]
        constant = is_constant(node, self._constants)
        if constant:
            self._constants.update(node.outputs)
        if asked:
            device = _pick(asked, base)
        elif constant:
            return  # on each device that uses it
        elif node in self._updates:
            device = self._update_homes.get(node) or nearest_device(node, self._at) or base
        else:
            device = next((ends[t] for t in node.outputs if t in ends), base)
        self._set(node, device)

    def _place_floating(self, base: str) -> None:
        """Places constants on the device of their users, if all users are on one device."""
        users = self._program.users()
        outputs = set(self._program.output_tensors())
        for node in reversed(self._program.nodes):
            if node in self._devices or node.op in MARKS:
                continue
            near = {
                self._devices[u]
                for t in node.outputs
                for u in users.get(t, ())
                if u in self._devices
            }
            if len(near) == 1:
                self._set(node, near.pop())
            elif not near and not outputs.isdisjoint(node.outputs):
                self._set(node, base)

    def _set(self, node: Node, device: str) -> None:
        self._devices[node] = device
        self._at.update(dict.fromkeys(node.outputs, device))

    def _named(self, node: Node) -> Node:
        """The node with its device's name as its request. The nodes in its bodies have no
        request."""
        regions = tuple([_unplaced(body) for body in node.regions])
        return node.replace(device=self._devices.get(node, ""), regions=regions)

    def _at_last(self) -> dict[str, tuple[str, ...]]:
        """The device of each node, by name; for constants the devices of their users."""
        users = self._program.users()
        found: dict[str, tuple[str, ...]] = {
            node.name: (device,) for node, device in self._devices.items()
        }
        for node in self._program.nodes:
            near = [self._devices.get(u) for t in node.outputs for u in users.get(t, ())]
            if node.name not in found and any(near):
                found[node.name] = tuple(dict.fromkeys(filter(None, near)))
        return found


def _names() -> dict[str, str]:
    """The device names of this process, each mapped to the first name of the same device."""
    devices = available()
    first = {device: name for name, device in reversed(devices.items())}
    return {name: first[device] for name, device in devices.items()}


def _common(found: Iterable[list[str]]) -> list[str] | None:
    """The devices that all requests allow, in the order of the first request; None if there are no
    requests."""
    common: list[str] | None = None
    for names in found:
        common = names if common is None else [name for name in common if name in names]
    return common


def _pick(found: Sequence[str], base: str) -> str:
    return base if not found or base in found else found[0]


def _unplaced(body: Program) -> Program:
    if not any(node.device for node in body.walk()):
        return body
    nodes = [
        node.replace(device="", regions=tuple([_unplaced(inner) for inner in node.regions]))
        for node in body.nodes
    ]
    return body.replace(nodes=tuple(nodes))


def full_name(device: str) -> str:
    """A device's name with the job, replica and task of this process.

    >>> full_name("/device:CPU:0")
    '/job:localhost/replica:0/task:0/device:CPU:0'
    """
    return str(parse_device("/job:localhost/replica:0/task:0").merge(parse_device(device)))


def _described(node: Node) -> str:
    where = f" at {node.source}" if node.source is not None else ""
    name = f" {node.name!r}" if node.name else ""
    return f"{node.op.name}{name}{where}"
