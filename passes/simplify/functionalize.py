"""Functionalize: variables and random keys become explicit values.

Later passes can then treat a program as pure SSA, and XLA has no variables. It runs before any
optimization, and never changes which assignments run: the fetches choose them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from graphc.errors import PassError
from graphc.ir.builder import Builder
from graphc.ir.dtypes import INT32, UINT32
from graphc.ir.node import Node, Tensor, same_items
from graphc.ir.opdef import PURE, Effects
from graphc.ir.program import Port, Program, effects_of, region
from graphc.ir.types import TensorType
from graphc.ops.control.bodies import Carry, Invariant, ThreadedBody
from graphc.ops.core.emit import constant, emit_one
from graphc.ops.draws.random_keys import FOLD_IN
from graphc.ops.elementwise.arithmetic import add
from graphc.passes.core.base import Pass, PassResult

# Hidden state of every run that draws: the root key, and how many such runs there were.
RNG_KEY = "__random__/key"
RNG_COUNTER = "__random__/counter"
KEY_TYPE = TensorType(UINT32, (2,))
COUNTER_TYPE = TensorType(INT32, ())


@dataclass(frozen=True)
class Functionalize(Pass):
    """Reads become inputs, assignments become outputs, and random keys derive from the key of the
    run.

    A read returns the last assignment before it in program order. A run that draws random numbers
    takes the root key and a counter as hidden state, and returns the incremented counter.
    """

    optional: ClassVar[bool] = False

    def run(self, program: Program) -> PassResult:
        state = _Threading()
        state.run(program.nodes)
        ports, new_state = state.ports()
        outputs = [p._replace(tensor=state.resolve(p.tensor)) for p in program.outputs]
        result = program.replace(
            inputs=program.inputs + tuple(ports),
            nodes=tuple(state.nodes),
            outputs=tuple(outputs) + tuple(new_state),
        )
        changed = sum(1 for node in program.nodes if effects_of(node) is not PURE)
        return PassResult(result, changed)


@dataclass
class _Threading:
    """Walks nodes in program order, carrying the current value of every variable."""

    builder: Builder = field(default_factory=lambda: Builder(scope="random"))
    current: dict[str, Tensor] = field(default_factory=dict)
    initial: dict[str, Tensor] = field(default_factory=dict)  # inputs, by first use
    written: dict[str, None] = field(default_factory=dict)
    renamed: dict[Tensor, Tensor] = field(default_factory=dict)
    run_key: Tensor | None = None

    @property
    def nodes(self) -> list[Node]:
        return self.builder.nodes

    def run(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            inputs = tuple(self.resolve(t) for t in node.inputs)
            if not same_items(inputs, node.inputs):
                node = node.replace(inputs=inputs)
            if node.control_inputs:  # they selected nodes; program order determines the rest
                node = node.replace(control_inputs=())
            effects = effects_of(node)
            if node.regions and effects & (Effects.READ | Effects.WRITE | Effects.RANDOM):
                self.thread_region_node(node, effects)
            elif effects & Effects.READ:
                variable = node.attrs["variable"]
                self.renamed[node.outputs[0]] = self.read(variable, node.outputs[0].type)
            elif effects & Effects.WRITE:
                variable = node.attrs["variable"]
                self.current[variable] = node.inputs[0]
                self.written[variable] = None
                self.renamed[node.outputs[0]] = node.inputs[0]
            elif effects & Effects.RANDOM:
                self.nodes.append(
                    node.replace(op=FOLD_IN, inputs=(self.key(), node.inputs[0]), attrs={})
                )
            else:
                self.nodes.append(node)

    def resolve(self, tensor: Tensor) -> Tensor:
        return self.renamed.get(tensor, tensor)

    def read(self, variable: str, type: TensorType) -> Tensor:
        if variable not in self.current:
            self.current[variable] = self.initial[variable] = Tensor(type, variable)
        return self.current[variable]

    def key(self) -> Tensor:
        """The key of this run: the root key with the run's number folded in."""
        if self.run_key is None:
            root = self.read(RNG_KEY, KEY_TYPE)
            counter = self.read(RNG_COUNTER, COUNTER_TYPE)
            with self.builder:
                self.run_key = emit_one(FOLD_IN, (root, counter), "run_key")
                self.current[RNG_COUNTER] = _next(counter, "counter")
            self.written[RNG_COUNTER] = None
        return self.run_key

    def ports(self) -> tuple[list[Port], list[Port]]:
        """The state inputs read, and the state outputs written."""
        inputs = [Port(name, "state", tensor) for name, tensor in self.initial.items()]
        outputs = [Port(name, "state", self.current[name]) for name in self.written]
        return inputs, outputs

    def thread_region_node(self, node: Node, effects: Effects) -> None:
        """Makes the bodies of `node` pure: values that they read become operands, variables that
        they assign become carried values."""
        if node.op.thread_state is None:
            raise PassError(
                f"{node.op.name} {node.name!r}: its body has effects it cannot carry",
                source=node.source,
            )
        run_key = self.key() if effects & Effects.RANDOM else None
        threaded = []
        for body in node.regions:
            draws = any(effects_of(inner) & Effects.RANDOM for inner in body.nodes)
            threaded.append(_thread_body(self, body, run_key if draws else None))
        new_node, results = node.op.thread_state(node, threaded)
        self.nodes.append(new_node)
        for variable, tensor in results.items():
            self.current[variable] = tensor
            self.written[variable] = None


def _next(count: Tensor, name: str) -> Tensor:
    return add(count, constant(1, INT32, name="one"), name=name)


def _thread_body(outer: _Threading, body: Program, run_key: Tensor | None) -> ThreadedBody:
    inner = _Threading()
    index = Tensor(TensorType(INT32, ()), "index")
    inner_key = Tensor(KEY_TYPE, "run_key")
    if run_key is not None:  # each iteration draws from its own stream
        with inner.builder:
            inner.run_key = emit_one(FOLD_IN, (inner_key, index), "step_key")
    inner.run(body.nodes)
    invariants, carries = [], []
    if run_key is not None:
        with inner.builder:
            following = _next(index, "index")
        with outer.builder:
            zero = constant(0, INT32, name="zero")
        carries.append(Carry(None, zero, index, following))
        invariants.append(Invariant(run_key, inner_key, None))
    for variable, tensor in inner.initial.items():
        value = outer.read(variable, tensor.type)
        if variable in inner.written:
            carries.append(Carry(variable, value, tensor, inner.current[variable]))
        else:
            invariants.append(Invariant(value, tensor, variable))
    for variable in inner.written:
        if variable not in inner.initial:  # assigned before any read: still carried
            final = inner.current[variable]
            unread = Tensor(final.type, variable)
            carries.append(Carry(variable, outer.read(variable, final.type), unread, final))
    outputs = [inner.resolve(t) for t in body.output_tensors()]
    pure = region(body.name, body.input_tensors(), inner.nodes, outputs)
    return ThreadedBody(pure, invariants, carries)
