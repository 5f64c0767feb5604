"""Dynamic loss scaling, which keeps f16 gradients from vanishing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from graphc.config import CompileOptions
from graphc.ir.builder import Builder
from graphc.ir.dtypes import FLOAT32, INT32
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.emit import cast, constant
from graphc.ops.elementwise.arithmetic import maximum, minimum
from graphc.ops.elementwise.comparison import isfinite, logical_and, where
from graphc.ops.elementwise.powers import reciprocal
from graphc.ops.reductions.reduction import reduce_all
from graphc.ops.structure.training import GRADIENTS, LOSS_ADJOINT, UPDATED
from graphc.passes.core.base import Pass, PassResult
from graphc.passes.precision.precision_roles import computes_narrow

# Hidden state: the scale, and the number of good steps since it changed.
LOSS_SCALE = "__loss_scale__/scale"
GOOD_STEPS = "__loss_scale__/good_steps"
SCALE_TYPE = TensorType(FLOAT32, ())
STEPS_TYPE = TensorType(INT32, ())
FIRST_SCALE = 2.0**15
# Of float32's powers of two, whose reciprocal gradients are multiplied by: XLA takes 2**-127 for 0.
_LARGEST_SCALE = 2.0**126


def adding_state(options: CompileOptions) -> list[Pass]:
    """The passes that run directly after functionalize because they add hidden state: everything
    derived from the program before its passes, such as its cache key, must include this state."""
    return [ScaleLoss()] if options.precision == "f16" else []


@dataclass(frozen=True)
class ScaleLoss(Pass):
    """Multiplies the adjoint of the loss by a scale, and divides the gradients of `minimize` by it.

    In f16 everything below 6e-8 is 0, and many gradients are. The scale is a power of two, so it
    causes no rounding. If a gradient is not finite, the step is skipped: its updates do not happen,
    and the scale is halved. After `growth` good steps in a row it is doubled. Other state that is
    assigned from values computed in f16 (moving averages of batch norm) is skipped too. The scale
    is hidden state, one for all steps of a graph. XLA cannot do this, because it does not know
    which values are gradients, nor what a step updates.

    Must not: change programs whose gradients `minimize` does not mark, or programs without f16.

    Source: Micikevicius et al., Mixed precision training, 2018, arXiv:1710.03740, section 3.2.

    Attributes:
        growth: the number of good steps.
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
            with scaling.builder:
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

    builder: Builder = field(default_factory=lambda: Builder(scope="loss_scale"))
    scaled: set[str] = field(default_factory=set)
    good: dict[str, Tensor] = field(default_factory=dict)
    scale: Tensor = field(default_factory=lambda: Tensor(SCALE_TYPE, LOSS_SCALE))
    narrow: set[Tensor] = field(default_factory=set)  # values that depend on f16 values
    kept: set[Tensor] = field(default_factory=set)  # values that a skipped step does not update

    def add(self, node: Node) -> None:
        """The next node."""
        if computes_narrow(node) or not self.narrow.isdisjoint(node.inputs):
            self.narrow.update(node.outputs)
        if node.op is LOSS_ADJOINT:
            (one,) = node.inputs
            with self._for(node):
                scaled = one * cast(self.scale, one.type.dtype)
            self.builder.append(node.replace(inputs=(scaled,)))
            self.scaled.add(node.attrs["step"])
        elif node.op is GRADIENTS and node.attrs["step"] in self.scaled:
            self._gradients(node)
        elif node.op is UPDATED and node.attrs["step"] in self.good:
            good = self.good[node.attrs["step"]]
            half = len(node.outputs)
            for old, new, result in zip(
                node.inputs[:half], node.inputs[half:], node.outputs, strict=True
            ):
                with self.builder.at(node):
                    self.builder.define((where(good, new, old), result))
            self.kept.update(node.outputs)
        else:
            self.builder.append(node)

    def _for(self, node: Node) -> AbstractContextManager[None]:
        """Nodes written inside belong to `node`."""
        return self.builder.at(node, f"{node.name}/loss_scale")

    def _gradients(self, node: Node) -> None:
        """Divides the marked gradients by the scale, and records whether they are finite."""
        marked = [Tensor(t.type, t.name) for t in node.outputs]
        self.builder.append(node.replace(outputs=tuple(marked)))
        with self._for(node):
            inverse = reciprocal(self.scale)
        finite = []
        for scaled, gradient in zip(marked, node.outputs, strict=True):
            with self._for(node):
                factor = cast(inverse, gradient.type.dtype)
            with self.builder.at(node):
                self.builder.define((scaled * factor, gradient))
            with self._for(node):
                finite.append(reduce_all(isfinite(gradient)))
        with self._for(node):
            self.good[node.attrs["step"]] = reduce_all(stack(finite))

    def finish(self, program: Program, growth: int) -> Program:
        """The program with the scale among its state."""
        steps = Tensor(STEPS_TYPE, GOOD_STEPS)
        good, *others = self.good.values()
        for other in others:
            good = logical_and(good, other)
        outputs = self._other_state(program, good)
        scale, count = self._next(good, steps, growth)
        return program.replace(
            inputs=(
                *program.inputs,
                Port(LOSS_SCALE, "state", self.scale),
                Port(GOOD_STEPS, "state", steps),
            ),
            nodes=tuple(self.builder.nodes),
            outputs=(
                *outputs,
                Port(LOSS_SCALE, "state", scale),
                Port(GOOD_STEPS, "state", count),
            ),
        )

    def _other_state(self, program: Program, good: Tensor) -> list[Port]:
        """The outputs; state that the steps do not update, and that comes from f16 values, keeps
        its old value after a bad step."""
        old = {port.name: port.tensor for port in program.ports("state")}
        outputs = []
        for port in program.outputs:
            tensor = port.tensor
            beside = port.kind == "state" and tensor in self.narrow and tensor not in self.kept
            if beside and port.name in old:
                tensor = where(good, tensor, old[port.name])
            outputs.append(port._replace(tensor=tensor))
        return outputs

    def _next(self, good: Tensor, steps: Tensor, growth: int) -> tuple[Tensor, Tensor]:
        """The scale and the count of good steps after this one."""
        zero = constant(0, steps.type.dtype)
        more = steps + 1
        grows = more >= growth
        doubled = minimum(self.scale * 2, _LARGEST_SCALE)
        least = maximum(self.scale * 0.5, 1)
        kept, again = where(grows, doubled, self.scale), where(grows, zero, more)
        return where(good, kept, least), where(good, again, zero)
