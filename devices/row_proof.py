"""Proves that rows appended along an open size change no other row.

The layout rules give the proof. The program is split into pieces of one row each, as if there were
as many replicas as rows. If no node then has to exchange anything, each row of an output is a
function of the same row of the inputs. If the local program does not contain the number of rows
either, this function is the same for every number of rows. Then rows that are appended, with any
content, leave the other rows as they are.

The rules need known sizes. So the open size is bound to a prime number that is larger than every
size of the program: no size divides by it by accident. All is done for two such numbers, and the
local attributes must be equal.

"Unchanged" means the same computation. XLA may choose another kernel for another number of rows,
and then the last bits of a sum differ: see `docs/guide/serving-batches.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphc.devices.row_sizes import (
    elements_of,
    has_size,
    largest_number,
    mentions,
    names,
    open_sizes,
    primes_above,
)
from graphc.errors import GraphcError
from graphc.ir.dims import Dim, Shape, as_symbol, symbols_of
from graphc.ir.layouts import REPLICATED, Layout, LayoutPlan, Partial, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program, is_pure
from graphc.ir.rewrite import bind_sizes
from graphc.ir.source import Source
from graphc.ops.arrays.creation import IOTA
from graphc.ops.arrays.shape import BROADCAST_TO
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.control.scan import SCAN
from graphc.ops.core.layout_rules import replicated
from graphc.passes.simplify.drop_marks import DropGradientRules


@dataclass(frozen=True)
class Refusal:
    """Why a size cannot be padded: the first node because of which not.

    Attributes:
        reason: what the node does, as the end of a sentence that begins with the node.
        node: the name of the node; "" if the reason is not a node.
        op: the name of its operator.
        source: the user's line. A program from a file has none.
    """

    reason: str
    node: str = ""
    op: str = ""
    source: Source | None = None

    def __str__(self) -> str:
        if not self.node and not self.op:
            return self.reason
        where = "" if self.source is None else f" at {self.source}"
        name = f" {self.node!r}" if self.node else ""
        return f"{self.op}{name}{where} {self.reason}"


class Rows(NamedTuple):
    """Where the rows of a tensor are.

    Attributes:
        axis: the axis along which they follow each other.
        elements: the number of elements of one row along this axis. It may contain other sizes.
    """

    axis: int
    elements: Dim = 1


@dataclass(frozen=True)
class RowProof:
    """The answer for one size.

    Attributes:
        size: its name.
        inputs: name of a feed -> its axis with the rows. Other feeds are the same for all rows.
        outputs: for each output of the program, where its rows are; None if it is the same for all
            rows. Empty if the proof failed.
        refusal: why rows may not be appended; None if they may.
    """

    size: str
    inputs: Mapping[str, int]
    outputs: tuple[Rows | None, ...] = ()
    refusal: Refusal | None = None

    @property
    def holds(self) -> bool:
        """Whether rows may be appended."""
        return self.refusal is None


def prove_rows(program: Program, size: str, *, anywhere: bool = False) -> RowProof:
    """Whether rows that are appended along `size` change another row.

    Args:
        program: functional, with open sizes.
        size: the name of an open size of its feeds.
        anywhere: also requires that a row does not depend on its position. Then rows of different
            callers may be put together in any order.

    Examples:
        >>> with gc.Graph() as graph:
        ...     x = gc.placeholder(("batch", 3), name="x")
        ...     y = gc.softmax(x, axis=0, name="wrong")
        >>> from graphc.ir.capture import capture
        >>> from graphc.ops.structure.state import READ_VARIABLE
        >>> proof = prove_rows(capture(graph, [y], [x], READ_VARIABLE), "batch")
        >>> proof.holds, proof.refusal.op, proof.refusal.node
        (False, 'Softmax', 'wrong')
    """
    program = DropGradientRules().run(program).program
    inputs: dict[str, int] = {}
    refusal = _refused_ports(program, size, inputs)
    if refusal is not None:
        return RowProof(size, inputs, refusal=refusal)
    sizes = [name for name in open_sizes(program) if name != size]
    primes = primes_above(largest_number(program))
    others = {name: next(primes) for name in sizes}
    found: list[_Found] = []
    for _ in range(2):
        rows = next(primes)
        try:
            bound = bind_sizes(program, {**others, size: rows})
        except GraphcError as error:
            return RowProof(size, inputs, refusal=Refusal(f"its sizes depend: {error.what}"))
        flow = _Flow(size, rows, anywhere)
        found.append(flow.whole(bound, program, inputs))
        if found[-1].refusal is not None:
            return RowProof(size, inputs, refusal=found[-1].refusal)
    for (node, attrs), (_, again) in zip(found[0].attrs, found[1].attrs, strict=True):
        if not _equal(attrs, again):
            return RowProof(size, inputs, refusal=_at(node, f"depends on the number of {size!r}"))
    places = []
    for port, layout in zip(program.outputs, found[0].outputs, strict=True):
        assert not isinstance(layout, Partial)
        places.append(_place(port.tensor.type.shape, layout, size))
    return RowProof(size, inputs, tuple(places))


def _place(shape: Shape, layout: Layout, size: str) -> Rows | None:
    if not isinstance(layout, Sharded):
        return None
    elements = elements_of(shape[layout.axis], size)
    assert elements is not None
    return Rows(layout.axis, elements)


def _refused_ports(program: Program, size: str, inputs: dict[str, int]) -> Refusal | None:
    """Fills `inputs`. Returns the refusal if the inputs and outputs already exclude padding."""
    for port in program.inputs:
        axes = [i for i, dim in enumerate(port.tensor.type.shape) if size in symbols_of(dim)]
        if not axes:
            continue
        what = f"input {port.name!r}"
        if port.kind != "feed":
            return Refusal(f"variable {port.name!r} has the size {size!r}")
        if len(axes) > 1:
            return Refusal(f"{what} has the size {size!r} along several axes")
        if as_symbol(port.tensor.type.shape[axes[0]]) != size:
            return Refusal(
                f"{what} has the size {port.tensor.type.shape[axes[0]]}, not {size!r} itself"
            )
        inputs[port.name] = axes[0]
    if not inputs:
        return Refusal(f"no input has the size {size!r}")
    for left, right in program.equalities:
        if size in symbols_of(left) | symbols_of(right):
            return Refusal(f"{left} must equal {right}, so {size!r} cannot be changed alone")
    for port in program.new_state():
        return Refusal(f"variable {port.name!r} is assigned: each run changes the next one")
    return None


class _Found(NamedTuple):
    """The layouts of the outputs, the refusal, and all attributes that the rules changed."""

    outputs: list[Layout]
    refusal: Refusal | None
    attrs: list[tuple[Node, Mapping[str, Any]]]


class _Flow:
    """The layouts of one program in pieces of one row. It is the context of layout rules.

    A tensor without the size is replicated. A tensor with the size is split along the one axis that
    has it. Where this is not possible, there is a refusal, and the flow goes on as if the rows had
    been gathered: rules of loops try several layouts, and only the last one counts.
    """

    catalogue: Mapping[str, OpDef] = CATALOGUE

    def __init__(self, size: str, rows: int, anywhere: bool) -> None:
        self.replicas = rows
        self._size = size
        self._anywhere = anywhere
        self._open: dict[Program, Program] = {}  # bound region -> the region with open sizes
        self._known: dict[Any, tuple[Program, _Found]] = {}
        self._local: dict[Program, _Found] = {}

    def whole(self, bound: Program, program: Program, inputs: Mapping[str, int]) -> _Found:
        """The answer for the whole program."""
        layouts: list[Layout] = [
            Sharded(inputs[port.name]) if port.name in inputs else REPLICATED
            for port in program.inputs
        ]
        return self._program(bound, program, layouts, [None] * len(program.outputs))

    def replicate_region(
        self, region: Program, inputs: Sequence[Layout], required: Sequence[Layout | None]
    ) -> tuple[Program, list[Layout]]:
        """See `LayoutContext`. The region is returned as a copy that stands for this answer."""
        key = (region, tuple(inputs), tuple(required))
        if key not in self._known:
            found = self._program(region, self._open[region], inputs, required)
            local = region.replace()
            self._known[key] = local, found
            self._local[local] = found
        local, found = self._known[key]
        return local, list(found.outputs)

    def _program(
        self,
        bound: Program,
        program: Program,
        inputs: Sequence[Layout],
        required: Sequence[Layout | None],
    ) -> _Found:
        found: dict[Tensor, Layout] = dict(zip(bound.input_tensors(), inputs, strict=True))
        refusal: Refusal | None = None
        attrs: list[tuple[Node, Mapping[str, Any]]] = []
        for node, plain in zip(bound.nodes, program.nodes, strict=True):
            self._open.update(zip(node.regions, plain.regions, strict=True))
            try:
                results = self._results(node, plain, [found[t] for t in node.inputs], attrs)
            except _Refused as error:
                refusal = refusal or error.refusal
                results = [REPLICATED] * len(node.outputs)
            found.update(zip(node.outputs, results, strict=True))
        outputs = []
        for port, wanted in zip(bound.outputs, required, strict=True):
            have = found[port.tensor]
            if wanted is not None and wanted != have:
                maker = next((n for n in program.nodes if port.tensor in n.outputs), None)
                refusal = refusal or _at(maker, "has a result that must be the same for all rows")
                have = wanted
            outputs.append(have)
        return _Found(outputs, refusal, attrs)

    def _results(
        self,
        node: Node,
        plain: Node,
        have: Sequence[Layout],
        attrs: list[tuple[Node, Mapping[str, Any]]],
    ) -> Sequence[Layout]:
        """The layouts of a node's results; `plain` is the node with open sizes.

        Raises:
            _Refused: the node does more than compute each row from the same row.
        """
        sized = mentions(plain, self._size)
        rowwise = any(isinstance(layout, Sharded) for layout in have)
        if not is_pure(node):
            raise _Refused(_at(plain, "has an effect, which happens once for all rows"))
        if not rowwise and not sized:
            return [REPLICATED] * len(node.outputs)
        if not rowwise and not node.regions:
            return [self._made(plain)]
        if self._maps_rows(plain, have):
            return [Sharded(0)] * len(node.outputs)
        try:
            plan = (node.op.layout or replicated)(self, node, *have)
        except (GraphcError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise _Refused(_at(plain, f"has no layout by rows: {_first_line(error)}")) from error
        self._check_plan(node, plain, have, plan)
        attrs.extend([(plain, plan.attrs)] if plan.attrs else [])
        for region in plan.regions or ():
            inner = self._local.get(region)
            if inner is None:
                raise _Refused(_at(plain, "has a body that is not split by rows"))
            if inner.refusal is not None:
                raise _Refused(inner.refusal)
            attrs.extend(inner.attrs)
        return plan.results

    def _check_plan(
        self, node: Node, plain: Node, have: Sequence[Layout], plan: LayoutPlan
    ) -> None:
        if (len(plan.operands), len(plan.results)) != (len(have), len(node.outputs)):
            raise _Refused(_at(plain, "has a layout rule that does not fit its operands"))
        for i, (is_, wanted) in enumerate(zip(have, plan.operands, strict=True)):
            if is_ == wanted:
                continue
            operand = node.op.operand_label(i)
            if isinstance(is_, Sharded):
                raise _Refused(_at(plain, f"needs all rows of its operand {operand}{_why(node)}"))
            raise _Refused(_at(plain, f"needs its operand {operand} in pieces"))
        if plan.fold_replica:
            raise _Refused(_at(plain, "draws random numbers for each row"))
        for tensor, layout in zip(plain.outputs, plan.results, strict=True):
            if isinstance(layout, Partial):
                words = {"sum": "adds up", "max": "takes the maximum of", "min": "the minimum of"}
                raise _Refused(_at(plain, f"{words[layout.op]} all rows"))
            self._check_type(plain, tensor.type.shape, layout)
        changed = plan.attrs or {}
        for name, value in plain.attrs.items():
            if name not in changed and names(value, self._size):
                raise _Refused(_at(plain, f"uses the number of {self._size!r} in {name}"))
        if plan.regions is None and any(has_size(body, self._size) for body in plain.regions):
            raise _Refused(_at(plain, "has a body that is not split by rows"))

    def _check_type(self, plain: Node, shape: Shape, layout: Layout) -> None:
        """A split result has the size along its axis, as a factor, and nowhere else."""
        split = layout.axis if isinstance(layout, Sharded) else None
        for axis, dim in enumerate(shape):
            if axis == split:
                if elements_of(dim, self._size) is None:
                    raise _Refused(_at(plain, f"has a result of {dim} elements along axis {axis}"))
            elif self._size in symbols_of(dim):
                raise _Refused(_at(plain, f"has a result with {dim} along axis {axis}"))

    def _maps_rows(self, plain: Node, have: Sequence[Layout]) -> bool:
        """Whether a node is a loop over the rows that carries nothing from one to the next, as
        `gc.map_fn` makes it."""
        if plain.op is not SCAN or plain.attrs["carries"] or has_size(plain.regions[0], self._size):
            return False
        consts = plain.attrs["consts"]
        same = all(layout == REPLICATED for layout in have[:consts])
        return same and all(layout == Sharded(0) for layout in have[consts:])

    def _made(self, plain: Node) -> Layout:
        """The layout of a result that has the size, from operands without rows: equal rows, or the
        numbers of the rows."""
        if plain.op not in (BROADCAST_TO, IOTA):
            raise _Refused(_at(plain, f"uses the number of {self._size!r} as a value"))
        shape = plain.outputs[0].type.shape
        axes = [i for i, dim in enumerate(shape) if self._size in symbols_of(dim)]
        layout = Sharded(axes[0])
        self._check_type(plain, shape, layout)
        if plain.op is IOTA and self._anywhere and plain.attrs["axis"] == axes[0]:
            raise _Refused(_at(plain, "numbers the rows, so a row depends on its position"))
        return layout


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def _at(node: Node | None, reason: str) -> Refusal:
    if node is None:
        return Refusal(f"the body of a loop or branch {reason}")
    return Refusal(reason, node.name, node.op.name, node.source)


def _why(node: Node) -> str:
    return "" if node.op.layout else ", because it has no layout rule"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _equal(a: Any, b: Any) -> bool:
    """Whether two values of attributes are equal."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return a is b or np.array_equal(a, b)
    return a is b or bool(a == b)
