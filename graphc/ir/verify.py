"""Checks that a program obeys the rules of the IR. It is fast, because it runs between passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NoReturn

from graphc.errors import GraphcError, VerifyError
from graphc.ir.dim_constraints import DimConstraints
from graphc.ir.dims import Dim, has_names
from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor, position_of
from graphc.ir.opdef import PURE, Effects, OpDef
from graphc.ir.program import Port, Program
from graphc.ir.text import name_tensors, node_text
from graphc.ir.types import TensorType

Stage = Literal["captured", "functional", "bound", "local"]

# The effects that nodes may have at each stage. A program contains no placeholder nodes.
STATEFUL = Effects.READ | Effects.WRITE | Effects.RANDOM
_ALLOWED: Mapping[str, Effects] = {
    "graph": STATEFUL | Effects.HOST | Effects.FEED,
    "captured": STATEFUL | Effects.HOST,
    "functional": Effects.HOST,
    "bound": Effects.HOST,
    "local": Effects.HOST,
}
_STATIC = ("bound", "local")


def verify(
    program: Program, stage: Stage = "captured", previously: set[Node] | None = None
) -> None:
    """Checks a program: SSA form, types, attributes, regions, ports and effects.

    Args:
        program: with nodes in program order.
        stage: the required form: "functional" has no reads, assignments or draws of random keys; in
            "bound" and "local" (to one replica), all sizes are ints.
        previously: nodes that passed earlier at this stage and under the same equalities. They are
            not checked again, because nodes and their operands never change. Nodes that pass now
            are added. The order of definitions is always checked.

    Raises:
        VerifyError: the first mistake. The error names the node, its line, the expected and the
            actual value.
    """
    known: set[Node] = set() if previously is None else previously
    _Checker(stage, _Frozen(program.equalities), known).program(program, program)


def verify_graph(graph: Graph) -> None:
    """Checks a root graph as a program, and checks that all variables and nodes it names exist.

    Raises:
        VerifyError: the first mistake.
    """
    outer = Program(graph.name, (), tuple(graph.nodes), ())
    names = {node.name for node in outer.walk()}
    for node in outer.walk():
        variable = node.attrs.get("variable")
        if node.op.effects & (Effects.READ | Effects.WRITE) and variable not in graph.variables:
            _fail(outer, node, f"the graph has no variable {variable!r}")
        for name in node.control_inputs:
            if name not in names:
                _fail(outer, node, f"the graph has no node {name!r} to run after")
    _Checker("graph", _Frozen(graph.constraints.equalities()), set()).program(outer, outer)


class _Frozen(DimConstraints):
    """A fixed set of equalities. An equality that does not follow from them is an error."""

    def __init__(self, equalities: Iterable[tuple[Dim, Dim]]) -> None:
        super().__init__()
        for left, right in equalities:
            if not super().unify(right, left):
                raise VerifyError(f"the equality {left} == {right} cannot hold")

    def unify(self, a: Dim, b: Dim) -> bool:
        if self.equal(a, b):
            return True
        if isinstance(self.find(a), int) and isinstance(self.find(b), int):
            return False
        raise VerifyError(f"needs {a} == {b}, which the program does not state")


class _Checker:
    """One run of the verifier over a program and its regions."""

    def __init__(self, stage: str, constraints: _Frozen, known: set[Node]) -> None:
        self._known = known
        self._constraints = constraints
        self._static = stage in _STATIC
        self._stage = stage
        self._forbidden = ~_ALLOWED[stage]
        self._effects: dict[OpDef, Effects] = {}  # the forbidden effects, because `&` is slow

    def program(self, program: Program, outermost: Program) -> None:
        """Checks ports, definitions and nodes. `program` is `outermost` or one of its regions."""
        self._ports(program, is_region=program is not outermost)
        known = self._known
        defined = {port.tensor for port in program.inputs}
        for node in program.nodes:
            if not defined.issuperset(node.inputs):
                self._undefined(program, outermost, node, defined)
            for tensor in node.outputs:
                if tensor in defined:
                    _fail(program, node, f"{tensor.name or 'a result'} is defined twice")
                defined.add(tensor)
            if node not in known:
                self._node(program, outermost, node)
                known.add(node)
        for port in program.outputs:
            if port.tensor not in defined:
                raise VerifyError(
                    f"{program.name}: output {port.name!r} is not defined in the program"
                )

    def _undefined(
        self, program: Program, outermost: Program, node: Node, defined: set[Tensor]
    ) -> NoReturn:
        missing = next(t for t in node.inputs if t not in defined)
        label = node.op.operand_label(position_of(missing, node.inputs))
        producer = program.producers().get(missing)
        if producer is not None:
            why = f"is defined only later, by {_describe(producer)}"
        elif program is not outermost:
            why = "is not defined in the region: values that a region captures must be its inputs"
        else:
            why = "is defined nowhere in the program"
        _fail(program, node, f"operand {label} ({missing.name or missing.type}) {why}")

    # -- ports ------------------------------------------------------------------------------

    def _ports(self, program: Program, is_region: bool) -> None:
        self._port_list(program, program.inputs, "input", ("feed", "state", "arg"), is_region)
        kinds = ("fetch", "state", "result")
        self._port_list(program, program.outputs, "output", kinds, is_region)
        if len({port.tensor for port in program.inputs}) != len(program.inputs):
            raise VerifyError(f"{program.name}: two inputs are the same tensor")
        for port in program.inputs:
            type = port.tensor.type
            problem = None
            axis = program.batch_axes.get(port.name) if port.kind == "feed" else None
            spec = program.shards.get(port.name) if port.kind == "state" else None
            if self._static and not type.is_static:
                problem = f"input {port.name!r} has a size that is not bound"
            elif axis is not None and not 0 <= axis < type.rank:
                problem = f"batch axis {axis} does not exist in {port.name!r}"
            elif spec is not None and len(spec) != type.rank:
                problem = f"{spec} is not a valid spec for {port.name!r}"
            if problem:
                raise VerifyError(f"{program.name}: {problem}", details=[f"got {type}"])
        old = {port.name: port.tensor.type for port in program.inputs if port.kind == "state"}
        for port in program.new_state():
            expected = old.get(port.name)
            if expected is not None and not self._same_type(expected, port.tensor.type):
                raise VerifyError(
                    f"{program.name}: the new value of {port.name!r} has another type",
                    details=[f"expected {expected}", f"got      {port.tensor.type}"],
                )

    def _port_list(
        self,
        program: Program,
        ports: Sequence[Port],
        side: str,
        kinds: Sequence[str],
        is_region: bool,
    ) -> None:
        allowed = kinds[-1:] if is_region else kinds
        seen: set[tuple[str, str]] = set()
        for port in ports:
            if port.kind not in allowed:
                raise VerifyError(
                    f"{program.name}: {side} {port.name!r} is of kind {port.kind!r}",
                    details=[f"expected {' or '.join(map(repr, allowed))}"],
                )
            if (port.name, port.kind) in seen:
                raise VerifyError(f"{program.name}: two {side}s have the name {port.name!r}")
            seen.add((port.name, port.kind))

    # -- nodes ------------------------------------------------------------------------------

    def _node(self, program: Program, outermost: Program, node: Node) -> None:
        self._check_effects(program, node)
        self._check_attrs(program, node)
        for region in node.regions:
            self.program(region, outermost)
        try:
            expected = node.op.infer_types(
                node.inputs, node.attrs, self._constraints, node.source, node.regions
            )
        except GraphcError as error:
            _fail(program, node, error.what, error.details, error)
        except Exception as error:  # an infer function that fails on unexpected operands
            _fail(program, node, f"its types cannot be inferred: {error!r}", (), error)
        got = tuple([tensor.type for tensor in node.outputs])
        if expected != got and not (
            len(expected) == len(got) and all(map(self._same_type, expected, got))
        ):
            details = [f"expected {_list(expected)}", f"got      {_list(got)}"]
            _fail(program, node, "its results have other types than its operands give", details)
        if self._static and not all(type.is_static for type in got):
            _fail(program, node, "its result has a size that is not bound", [f"got {_list(got)}"])

    def _check_effects(self, program: Program, node: Node) -> None:
        found = self._effects.get(node.op)
        if found is None:
            found = self._effects[node.op] = node.op.effects & self._forbidden
        if found is not PURE:
            what = f"has the effect {_names(found)}, at the stage {self._stage!r}"
            _fail(program, node, what, [f"allowed here: {_names(_ALLOWED[self._stage])}"])

    def _check_attrs(self, program: Program, node: Node) -> None:
        attrs, declared = node.attrs, node.op.attrs
        if not attrs and not declared:
            return
        if attrs.keys() != declared.keys():
            details = [f"expected {_list(declared)}", f"got      {_list(attrs)}"]
            _fail(program, node, "its attributes are not those of the operator", details)
        for name, attr in declared.items():
            value = attrs[name]
            if not attr.accepts(value):
                must = attr.must or f"be of kind {attr.kind}"
                _fail(program, node, f"{name} must {must}", [f"got {value!r}"])
            if self._static and attr.kind in ("dim", "dims", "pairs") and has_names(value):
                _fail(program, node, f"{name} has a size that is not bound", [f"got {value!r}"])

    def _same_type(self, a: TensorType, b: TensorType) -> bool:
        """Whether the types are equal under the equalities of the program."""
        return a == b or (
            a.dtype == b.dtype
            and len(a.shape) == len(b.shape)
            and all(map(self._constraints.equal, a.shape, b.shape))
        )


def _names(effects: Effects) -> str:
    return _list(effect.name for effect in Effects if effect in effects)


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "none"


def _describe(node: Node) -> str:
    return f"{node.op.name} {node.name!r}" if node.name else node.op.name


def _fail(
    program: Program,
    node: Node,
    what: str,
    details: Sequence[str] = (),
    cause: Exception | None = None,
) -> NoReturn:
    line = node_text(node, name_tensors(program.inputs, program.nodes))
    raise VerifyError(
        f"{program.name}: {_describe(node)}: {what}",
        details=[line, *details],
        source=node.source,
    ) from cause
