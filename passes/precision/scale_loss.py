"""Dynamic loss scaling: what f16 gradients need not to vanish."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from graphc.ir.dtypes import FLOAT32, INT32
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.ops.arrays.stacking import STACK
from graphc.ops.core.emit import CAST
from graphc.ops.elementwise.arithmetic import ADD, MAXIMUM, MINIMUM, MULTIPLY
from graphc.ops.elementwise.comparison import GREATER_EQUAL, IS_FINITE, LOGICAL_AND, WHERE
from graphc.ops.elementwise.powers import RECIPROCAL
from graphc.ops.reductions.reduction import REDUCE_ALL
from graphc.ops.structure.training import GRADIENTS, LOSS_ADJOINT, UPDATED
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.core.building import constant_of, node_of
from graphc.passes.precision.precision_roles import computes_narrow

# Hidden state: the scale, and how many good steps there were since it changed.
LOSS_SCALE = "__loss_scale__/scale"
GOOD_STEPS = "__loss_scale__/good_steps"
SCALE_TYPE = TensorType(FLOAT32, ())
STEPS_TYPE = TensorType(INT32, ())
FIRST_SCALE = 2.0**15
# Of float32's powers of two, whose reciprocal gradients are multiplied by: XLA takes 2**-127 for 0.
_LARGEST_SCALE = 2.0**126


@dataclass(frozen=True)
class ScaleLoss(Pass):
    """Multiplies the loss's adjoint by a scale, and divides the gradients of `minimize` by it.

    In f16 everything below 6e-8 is 0, and many gradients are. The scale is a power of two, so it
    rounds nothing. Where a gradient is not finite, the step is skipped: what it would update stays
    as it is, and the scale is halved; after `growth` good steps in a row it is doubled. What else
    is assigned from values computed in f16 (moving averages of batch norm) stays with it. The
    scale is hidden state, one for all steps of a graph. XLA cannot do this: it does not know which
    of a program's values are gradients, nor what a step updates.

    Must not: change programs whose gradients no `minimize` marks, nor any without f16.

    Source: Micikevicius et al., Mixed precision training, 2018, arXiv:1710.03740, section 3.2.

    Attributes:
        growth: steps.
    """

    growth: int = 2000

    def run(self, program: Program) -> PassResult:
        adjoints, gradients = (
            {node.attrs["step"] for node in program.nodes if node.op is mark}
            for mark in (LOSS_ADJOINT, GRADIENTS)
        )
        if adjoints.isdisjoint(gradients):
            return PassResult(program, 0)
        scaling = _Scaling()
        node: Node | None = None
        try:
            for node in program.nodes:
                scaling.add(node)
            node = None
            result = scaling.finish(program, self.growth)
        except Exception as error:
            raise self.fault(node, error) from error
        return PassResult(result, len(scaling.good))


@dataclass
class _Scaling:
    """One run of the pass.

    Attributes:
        scaled: steps whose gradients come from a scaled loss; not those that users applied.
        good: step -> whether all its gradients are finite: bool scalars.
    """

    nodes: list[Node] = field(default_factory=list)
    scaled: set[str] = field(default_factory=set)
    good: dict[str, Tensor] = field(default_factory=dict)
    scale: Tensor = field(default_factory=lambda: Tensor(SCALE_TYPE, LOSS_SCALE))
    narrow: set[Tensor] = field(default_factory=set)  # what comes from values computed in f16
    kept: set[Tensor] = field(default_factory=set)  # what a skipped step leaves as it was

    def add(self, node: Node) -> None:
        """The next node."""
        if computes_narrow(node) or not self.narrow.isdisjoint(node.inputs):
            self.narrow.update(node.outputs)
        if node.op is LOSS_ADJOINT:
            (one,) = node.inputs
            factor = self._as(self.scale, one.type, node)
            scaled = self.emit(MULTIPLY, (one, factor), like=node)
            self.nodes.append(node.replace(inputs=(scaled,)))
            self.scaled.add(node.attrs["step"])
        elif node.op is GRADIENTS and node.attrs["step"] in self.scaled:
            self._gradients(node)
        elif node.op is UPDATED and node.attrs["step"] in self.good:
            good = self.good[node.attrs["step"]]
            half = len(node.outputs)
            for old, new, result in zip(
                node.inputs[:half], node.inputs[half:], node.outputs, strict=True
            ):
                self.nodes.append(node_of(WHERE, (good, new, old), (result,), like=node))
            self.kept.update(node.outputs)
        else:
            self.nodes.append(node)

    def _gradients(self, node: Node) -> None:
        """The marked gradients, divided by the scale; and whether they are finite."""
        marked = [Tensor(t.type, t.name) for t in node.outputs]
        self.nodes.append(node.replace(outputs=tuple(marked)))
        inverse = self.emit(RECIPROCAL, (self.scale,), like=node)
        finite = []
        for scaled, gradient in zip(marked, node.outputs, strict=True):
            factor = self._as(inverse, gradient.type, node)
            self.nodes.append(node_of(MULTIPLY, (scaled, factor), (gradient,), like=node))
            each = self.emit(IS_FINITE, (gradient,), like=node)
            axes = tuple(range(gradient.type.rank))
            finite.append(self.emit(REDUCE_ALL, (each,), like=node, axes=axes, keepdims=False))
        stacked = self.emit(STACK, finite, like=node, axis=0)
        good = self.emit(REDUCE_ALL, (stacked,), like=node, axes=(0,), keepdims=False)
        self.good[node.attrs["step"]] = good

    def finish(self, program: Program, growth: int) -> Program:
        """The program with the scale among its state."""
        steps = Tensor(STEPS_TYPE, GOOD_STEPS)
        good, *others = self.good.values()
        for other in others:
            good = self.emit(LOGICAL_AND, (good, other))
        outputs = self._other_state(program, good)
        scale, count = self._next(good, steps, growth)
        return program.replace(
            inputs=(
                *program.inputs,
                Port(LOSS_SCALE, "state", self.scale),
                Port(GOOD_STEPS, "state", steps),
            ),
            nodes=tuple(self.nodes),
            outputs=(
                *outputs,
                Port(LOSS_SCALE, "state", scale),
                Port(GOOD_STEPS, "state", count),
            ),
        )

    def _other_state(self, program: Program, good: Tensor) -> list[Port]:
        """The outputs, where state that the steps do not update and that comes from values in f16
        keeps its old value after a bad step."""
        old = {port.name: port.tensor for port in program.ports("state")}
        outputs = []
        for port in program.outputs:
            tensor = port.tensor
            beside = port.kind == "state" and tensor in self.narrow and tensor not in self.kept
            if beside and port.name in old:
                tensor = self.emit(WHERE, (good, tensor, old[port.name]))
            outputs.append(port._replace(tensor=tensor))
        return outputs

    def _next(self, good: Tensor, steps: Tensor, growth: int) -> tuple[Tensor, Tensor]:
        """The scale and the count of good steps after this one."""
        zero, one = self._constant(0, steps.type), self._constant(1, steps.type)
        more = self.emit(ADD, (steps, one))
        grows = self.emit(GREATER_EQUAL, (more, self._constant(growth, steps.type)))
        twice = self.emit(MULTIPLY, (self.scale, self._constant(2, SCALE_TYPE)))
        doubled = self.emit(MINIMUM, (twice, self._constant(_LARGEST_SCALE, SCALE_TYPE)))
        halved = self.emit(MULTIPLY, (self.scale, self._constant(0.5, SCALE_TYPE)))
        least = self.emit(MAXIMUM, (halved, self._constant(1, SCALE_TYPE)))
        kept = self.emit(WHERE, (grows, doubled, self.scale))
        again = self.emit(WHERE, (grows, zero, more))
        return self.emit(WHERE, (good, kept, least)), self.emit(WHERE, (good, again, zero))

    def _constant(self, value: float, type: TensorType) -> Tensor:
        node = constant_of(value, type.dtype, name="loss_scale/Constant")
        self.nodes.append(node)
        return node.outputs[0]

    def _as(self, factor: Tensor, type: TensorType, like: Node) -> Tensor:
        """The factor in the dtype of what it multiplies."""
        if type.dtype == factor.type.dtype:
            return factor
        return self.emit(CAST, (factor,), like=like, dtype=type.dtype)

    def emit(
        self,
        op: OpDef,
        inputs: tuple[Tensor, ...] | list[Tensor],
        like: Node | None = None,
        **attrs: Any,
    ) -> Tensor:
        """The result of a new node."""
        name = f"loss_scale/{op.name}"
        node = node_of(op, inputs, like=like, name=name, **attrs)
        self.nodes.append(node)
        return node.outputs[0]
