"""A single scan that makes float32 values of a program narrow, for `MixedPrecision`."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from graphc.ir.dim_constraints import DimConstraints
from graphc.ir.dtypes import BOOL, FLOAT32, DType
from graphc.ir.node import Node, Tensor, same_items
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program, region
from graphc.ir.types import TensorType
from graphc.ops.arrays.shape import BROADCAST_TO, RESHAPE
from graphc.ops.control.branching import SWITCH
from graphc.ops.control.calling import CALL
from graphc.ops.control.custom_gradient import CUSTOM_GRADIENT
from graphc.ops.control.loop_view import LoopView
from graphc.ops.control.scan import SCAN
from graphc.ops.core.emit import CAST, CONSTANT
from graphc.passes.core.building import node_of


class Kind(enum.Enum):
    """The form of a float32 value of the old program in the new one."""

    NARROW = enum.auto()  # computed narrow; widened where a user needs float32
    FREE = enum.auto()  # float32, and may be rounded: a variable, a constant
    WIDE = enum.auto()  # float32; elementwise operators that use it are float32 too


class Narrowing:
    """The new nodes so far, and the forms in which they represent the old values.

    The wide form of a value is the old tensor itself. Each form is created once.

    Args:
        narrow: the type to compute in.
        updating: nodes that do not change, regardless of their operators.

    Attributes:
        nodes: the new nodes, in order.
        changed: the number of nodes that compute in another type.
    """

    def __init__(self, narrow: DType, updating: Collection[Node]) -> None:
        self.nodes: list[Node] = []
        self.changed = 0
        self._type = narrow
        self._updating = updating
        self._kinds: dict[Tensor, Kind] = {}
        self._narrow: dict[Tensor, Tensor] = {}  # the existing narrow forms
        self._pending: set[Tensor] = set()  # values whose wide form does not exist yet
        self._made: dict[Tensor, Node] = {}
        self._at: Node | None = None  # the current node, whose source line new nodes get

    # -- values ---------------------------------------------------------------------------------

    def take(self, tensor: Tensor, *, free: bool) -> None:
        """Registers an input of the program."""
        self._kinds[tensor] = Kind.FREE if free else Kind.WIDE

    def kind(self, tensor: Tensor) -> Kind | None:
        """The kind of a value; None if it is not float32."""
        return self._kinds[tensor] if tensor.type.dtype == FLOAT32 else None

    def wide(self, tensor: Tensor) -> Tensor:
        """The float32 form of the value, as in the old program."""
        if tensor in self._pending:
            self._pending.remove(tensor)
            self._emit(self._new(CAST, (self._narrow[tensor],), (tensor,), dtype=FLOAT32))
        return tensor

    def narrow(self, tensor: Tensor) -> Tensor:
        """The rounded form of a float32 value."""
        found = self._narrow.get(tensor)
        if found is None:
            made = self._made.get(tensor)
            if made is not None and made.op is CONSTANT:
                value = made.attrs["value"].astype(self._type)
                value.flags.writeable = False
                node = self._new(CONSTANT, (), value=value)
            elif made is not None and made.op is BROADCAST_TO:
                node = self._new(BROADCAST_TO, (self.narrow(made.inputs[0]),), **made.attrs)
            else:
                node = self._new(CAST, (tensor,), dtype=self._type)
            self._emit(node)
            found = self._narrow[tensor] = node.outputs[0]
        return found

    # -- nodes ----------------------------------------------------------------------------------

    def add(self, node: Node) -> None:
        """Processes the next node of the old program."""
        self._at = node
        if node in self._updating:
            self._keep(node)
        elif node.op is SCAN:
            self._scan(node)
        elif node.op is CUSTOM_GRADIENT:
            self._pass_through(node)
        elif node.regions:
            self._with_bodies(node)
        elif node.op is CAST and node.inputs[0] in self._pending:
            self._keep(node.replace(inputs=(self._narrow[node.inputs[0]],)))
        elif node.op.precision == "narrow":
            self._compute(node, [self._may_round(node, t, i) for i, t in enumerate(node.inputs)])
        elif node.op.precision == "follow":
            self._follow(node)
        else:
            self._keep(node)
            if node.op.precision == "inside" and node.inputs:
                self._round_results(node)

    def _keep(self, node: Node) -> None:
        """Adds a node with its types unchanged."""
        inputs = tuple([self.wide(t) for t in node.inputs])
        self._emit(node if same_items(inputs, node.inputs) else node.replace(inputs=inputs))
        free = node.op is CONSTANT or (node.op is CAST and node.inputs[0].type.dtype == BOOL)
        for tensor in node.outputs:
            self._kinds[tensor] = Kind.FREE if free else Kind.WIDE

    def _follow(self, node: Node) -> None:
        kinds = {kind for t in node.inputs if (kind := self.kind(t)) is not None}
        exact = all(map(self._fits, node.inputs))
        if Kind.NARROW in kinds and Kind.WIDE not in kinds and exact:
            self._compute(node, [t.type.dtype == FLOAT32 for t in node.inputs])
            return
        self._keep(node)
        if kinds == {Kind.FREE}:
            self._kinds.update(dict.fromkeys(node.outputs, Kind.FREE))

    def _compute(self, node: Node, rounded: Sequence[bool]) -> None:
        """Adds a node whose operands are narrow where `rounded` is true, so its results are too."""
        if not any(rounded):
            self._keep(node)
            return
        pairs = zip(node.inputs, rounded, strict=True)
        inputs = tuple([self.narrow(t) if down else self.wide(t) for t, down in pairs])
        types = node.op.infer_types(inputs, node.attrs, DimConstraints(), node.source)
        self._emit(node.replace(inputs=inputs, outputs=self._results(node, types)))
        self.changed += 1

    def _results(self, node: Node, types: Sequence[TensorType]) -> tuple[Tensor, ...]:
        """The results of a node that now have these types; those with another one are narrow."""
        found = []
        for old, type in zip(node.outputs, types, strict=True):
            same = type.dtype == old.type.dtype
            found.append(old if same else self._narrowed(old))
            self._kinds[old] = Kind.WIDE if same else Kind.NARROW
        return tuple(found)

    def _narrowed(self, old: Tensor) -> Tensor:
        """The narrow form of a value that is about to be computed; its wide form is created when
        needed."""
        new = self._narrow[old] = Tensor(TensorType(self._type, old.type.shape), old.name)
        self._pending.add(old)
        return new

    def _round_results(self, node: Node) -> None:
        """Processes the results of a node that computes in float32: those with the type of the
        first operand may be as narrow as that operand."""
        first = node.inputs[0]
        for tensor in node.outputs:
            if tensor.type == first.type and self.kind(first) is not None:
                self._kinds[tensor] = self._kinds[first]
                if self._kinds[first] is Kind.NARROW:
                    self.narrow(tensor)

    def _may_round(self, node: Node, tensor: Tensor, position: int) -> bool:
        named = len(node.op.operand_names) - node.op.is_variadic
        return tensor.type.dtype == FLOAT32 and position < named

    def _fits(self, tensor: Tensor) -> bool:
        """Whether the narrow type can represent the value, if it is a known constant, so that a
        number does not become infinite or 0."""
        made = self._made.get(tensor)
        while made is not None and made.op in (BROADCAST_TO, RESHAPE):
            made = self._made.get(made.inputs[0])
        if made is None or made.op is not CONSTANT or tensor.type.dtype != FLOAT32:
            return True
        value = made.attrs["value"]
        with np.errstate(over="ignore", under="ignore"):
            rounded = value.astype(self._type)
        lost = (np.isfinite(value) & ~np.isfinite(rounded)) | ((value != 0) & (rounded == 0))
        return not lost.any()

    def _new(
        self,
        op: OpDef,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor] | None = None,
        **attrs: Any,
    ) -> Node:
        return node_of(op, inputs, outputs, like=self._at, **attrs)

    def _emit(self, node: Node) -> None:
        self.nodes.append(node)
        for tensor in node.outputs:
            self._made[tensor] = node

    # -- nodes with bodies ----------------------------------------------------------------------

    def _pass_through(self, node: Node) -> None:
        """Replaces a custom gradient by its operands, because the user's gradient has already been
        applied."""
        for old, given in zip(node.outputs, node.inputs, strict=False):
            self._kinds[old] = self._kinds.get(given, Kind.WIDE)
            if given in self._narrow:
                self._narrow[old] = self._narrow[given]
            if given in self._pending:
                self._pending.add(old)
            else:
                self._emit(self._new(RESHAPE, (given,), (old,), shape=old.type.shape))

    def _with_bodies(self, node: Node) -> None:
        """Adds a node whose bodies take and return float32, and are narrow inside."""
        bodies = []
        for body in node.regions:
            kinds = self._given(node, body)
            inner, program = self._body(body, kinds, wide=range(len(body.outputs)))
            bodies.append(program)
            self.changed += inner.changed
        self._keep(node.replace(regions=tuple(bodies)))

    def _given(self, node: Node, body: Program) -> list[Kind | None]:
        """The kinds of the inputs of a body; variables keep theirs if the body takes the operands
        unchanged."""
        own = {CALL: node.inputs, SWITCH: node.inputs[1:]}.get(node.op)
        wide = [Kind.WIDE if t.type.dtype == FLOAT32 else None for t in body.input_tensors()]
        if own is None:
            return wide
        kinds = map(self.kind, own)
        return [k if k is Kind.FREE else w for k, w in zip(kinds, wide, strict=True)]

    def _scan(self, node: Node) -> None:
        """Adds a loop. Constants and slices that the body only uses rounded are rounded outside of
        the loop. Stacks keep the type in which their values are computed. Carries are float32."""
        outer, (body,) = LoopView.of(node).outer, node.regions
        consts, carries = len(outer.consts), len(outer.carries)
        held = range(consts, consts + carries)
        kinds = [self.kind(t) for t in node.inputs]
        given = [Kind.WIDE if i in held and kind else kind for i, kind in enumerate(kinds)]
        inner, program = self._body(body, given, wide=range(carries))
        if not inner.changed:
            self._keep(node)
            return
        self.changed += inner.changed
        program = _taking_rounded(program, held, self._type)
        pairs = zip(node.inputs, program.input_tensors(), strict=True)
        inputs = [
            self.wide(t) if t.type.dtype == own.type.dtype else self.narrow(t) for t, own in pairs
        ]
        outputs = self._results(node, [t.type for t in program.output_tensors()])
        self._emit(node.replace(inputs=tuple(inputs), outputs=outputs, regions=(program,)))

    def _body(
        self, body: Program, kinds: Sequence[Kind | None], wide: range
    ) -> tuple[Narrowing, Program]:
        """A body with narrow values inside, for inputs of these kinds. Results at the positions
        `wide` keep their types."""
        inner = Narrowing(self._type, ())
        inputs = []
        for tensor, kind in zip(body.input_tensors(), kinds, strict=True):
            inner._kinds[tensor] = kind or Kind.WIDE
            inputs.append(inner._narrowed(tensor) if kind is Kind.NARROW else tensor)
        for node in body.nodes:
            inner.add(node)
        outputs = [
            inner.narrow(t) if i not in wide and inner.kind(t) is Kind.NARROW else inner.wide(t)
            for i, t in enumerate(body.output_tensors())
        ]
        return inner, region(body.name, inputs, inner.nodes, outputs)


def _taking_rounded(body: Program, held: range, narrow: DType) -> Program:
    """The body, where an input that is only rounded is taken in its rounded form; the inputs at the
    positions `held` stay as they are."""
    users = body.users()
    given = set(body.output_tensors())
    inputs, gone = body.input_tensors(), set[Node]()
    for i, tensor in enumerate(inputs):
        takers = users.get(tensor, [])
        if i in held or tensor in given or len(takers) != 1:
            continue
        (cast,) = takers
        if cast.op is CAST and cast.attrs["dtype"] == narrow and tensor.type.dtype == FLOAT32:
            inputs[i] = cast.outputs[0]
            gone.add(cast)
    nodes = [node for node in body.nodes if node not in gone]
    return region(body.name, inputs, nodes, body.output_tensors())
