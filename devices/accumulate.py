"""Accumulate: computes the gradients of a large batch from micro-batches, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from graphc.devices.micro_batches import MicroBatches, summed
from graphc.devices.plan_writer import PlanWriter
from graphc.devices.replicate import Regions, Replicate
from graphc.errors import LayoutError
from graphc.ir.builder import Builder
from graphc.ir.dtypes import BOOL, INT32
from graphc.ir.layouts import REPLICATED, Layout, Partial, Replicated, Sharded
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program, region
from graphc.ir.rewrite import substitute
from graphc.ir.types import TensorType
from graphc.ops.arrays.creation import IOTA
from graphc.ops.arrays.shape import BROADCAST_TO, broadcast_to, reshape, transpose
from graphc.ops.arrays.slicing import slice_
from graphc.ops.control.scan import SCAN
from graphc.ops.core.emit import constant, emit_one
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.reductions.reduction import REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN
from graphc.ops.structure.collective import ON_REPLICA_ZERO, REPLICA_INDEX, SHARD_SLICE
from graphc.ops.structure.training import GRADIENTS
from graphc.passes.core.base import Pass, PassResult

_INDEX = TensorType(INT32, ())
_EXTREMES = {("max", True): REDUCE_ANY, ("min", True): REDUCE_ALL,
             ("max", False): REDUCE_MAX, ("min", False): REDUCE_MIN}  # fmt: skip


@dataclass(frozen=True)
class Accumulate(Pass):
    """Runs the nodes before the gradients of `minimize(accumulate=k)` in a loop over micro-batches.

    Each of the k micro-batches takes a contiguous run of examples, from each device's part of the
    batch if possible. A reshaped value is then divided in the same way as the value itself. The
    nodes between feeds with a batch axis and the gradients run once for each micro-batch. Values
    that are sums over the batch are added up, and values per example are joined. The result is that
    of the large batch, but the loop needs only the memory of one micro-batch. The layout rules that
    derive one replica's program also derive one micro-batch's. So means divide by the size of the
    whole batch, and only random draws differ, as they do between numbers of replicas. XLA cannot do
    this, because it does not know which axis is the batch.

    Must not: run before sizes are bound; change programs without such gradients.

    Attributes:
        sources: the user's lines of feeds by name, for errors.
        replicas: the number of devices over which the batch will be split.
    """

    sources: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    replicas: int = 1

    def run(self, program: Program) -> PassResult:
        count = _count(program)
        if count == 1:
            return PassResult(program, 0)
        inputs = self._layouts(program, count)
        try:
            sorted_nodes = MicroBatches.of(program, Regions(Replicate(count)), inputs)
            replicas = self.replicas if _divides(sorted_nodes, count * self.replicas) else 1
            result = _Loop(program, sorted_nodes, count, replicas).run()
        except LayoutError:
            raise
        except Exception as error:
            raise self.fault(None, error) from error
        return PassResult(result, len(sorted_nodes.inside))

    def _layouts(self, program: Program, count: int) -> dict[Tensor, Layout]:
        found: dict[Tensor, Layout] = {}
        for port in program.inputs:
            axis = program.batch_axes.get(port.name) if port.kind == "feed" else None
            found[port.tensor] = REPLICATED if axis is None else Sharded(axis)
            size = 0 if axis is None else port.tensor.type.shape[axis]
            if not isinstance(size, int) or size % count:
                raise LayoutError(
                    f"feed {port.name!r}: {size} along its batch axis {axis} cannot be cut into "
                    f"{count} equal micro-batches",
                    details=[f"{port.name}  {port.tensor.type}"],
                    source=self.sources.get(port.name),
                    hint=f"feed a multiple of {count}, or accumulate over another number",
                )
        if all(isinstance(layout, Replicated) for layout in found.values()):
            raise LayoutError(
                f"{program.name}: no feed has a batch axis, so there is nothing to cut into "
                f"{count} micro-batches",
                hint="mark it: gc.placeholder(shape, dtype, batch_axis=0), or let its leading "
                "size be None or 'batch'",
            )
        return found


def _divides(parts: MicroBatches, pieces: int) -> bool:
    """Whether every value that is split into micro-batches can be split into this many pieces.

    Otherwise a run of one micro-batch may end in the middle of a device's part.
    """
    layouts = list(parts.made.items())
    for node, plan in parts.inside:
        layouts += zip(node.inputs, plan.operands, strict=True)
    for tensor, layout in layouts:
        size = tensor.type.shape[layout.axis] if isinstance(layout, Sharded) else 0
        if not isinstance(size, int) or size % pieces:
            return False
    return True


def is_accumulated(program: Program) -> bool:
    """Whether gradients of the program are to be summed over micro-batches."""
    return _count(program) > 1


def _count(program: Program) -> int:
    """The number of micro-batches in the program's training steps.

    Raises:
        LayoutError: the steps have different numbers.
    """
    marks = [node for node in program.nodes if node.op is GRADIENTS]
    counts = {node.attrs["accumulate"] for node in marks}
    if len(counts) > 1:
        steps = [f"{n.attrs['step']}  accumulate={n.attrs['accumulate']}" for n in marks]
        raise LayoutError(
            "training steps of one run must take the same number of micro-batches",
            details=steps,
            source=marks[-1].source,
            hint="run them one after the other, or give them the same accumulate=",
        )
    return counts.pop() if counts else 1


class _Loop(PlanWriter):
    """Writes the loop, for one run of the pass."""

    def __init__(self, program: Program, parts: MicroBatches, count: int, replicas: int) -> None:
        super().__init__(Builder(scope="accumulate"))
        self._program = program
        self._parts = parts
        self._count = count
        self._runs = (replicas,) if replicas > 1 else ()  # runs in a micro-batch, one per device
        self._outside, self._behind = (Builder(scope="accumulate") for _ in range(2))
        self._consts: dict[Tensor, Tensor] = {}  # outer tensor -> the body's tensor
        self._xs: dict[Tensor, Tensor] = {}  # outer stack -> the body's tensor for one slice
        self._index: Tensor | None = None
        self._makers = {t: node for node in parts.before for t in node.outputs}

    def run(self) -> Program:
        for node, plan in self._parts.inside:
            for body in self._write(node, plan).regions:
                _check_no_index(node, body)
        wanted = self._wanted()
        totals = [t for t in wanted if summed(self._parts.made[t])]
        others = [t for t in wanted if not summed(self._parts.made[t])]
        loop = self._looped(totals, others)
        instead = dict(zip(totals, loop.outputs, strict=False))
        with self._behind:
            for tensor, stack in zip(others, loop.outputs[len(totals) :], strict=True):
                instead[tensor] = self._joined(tensor, stack)
        after = []
        for node in self._parts.after:
            if node.op is GRADIENTS:
                instead.update(zip(node.outputs, node.inputs, strict=True))
            else:
                after.append(node)
        nodes = (*self._parts.before, *self._outside.nodes, loop, *self._behind.nodes, *after)
        return substitute(self._program.replace(nodes=nodes), instead)

    def _wanted(self) -> list[Tensor]:
        """The tensors that are computed inside the loop and used after it."""
        used = [t for node in self._parts.after for t in node.inputs]
        used += self._program.output_tensors()
        return [t for t in dict.fromkeys(used) if t in self._parts.looped]

    # -- the body -------------------------------------------------------------------------------

    def _convert(self, tensor: Tensor, wanted: Layout, user: Node | Port) -> Tensor:
        have = self._parts.made[tensor]
        if tensor in self._parts.looped and have == wanted:
            return self._local[tensor]
        if isinstance(wanted, Sharded):
            return self._slice_of(tensor, wanted)
        if wanted == Partial("sum") and have == REPLICATED:
            return self._once(self._inner(tensor))
        return self._inner(tensor)  # a whole value; or the maximum, or minimum, of equal values

    def _inner(self, tensor: Tensor) -> Tensor:
        """The body's tensor for a whole value."""
        if tensor in self._local:
            return self._local[tensor]
        if tensor not in self._consts:
            self._consts[tensor] = Tensor(tensor.type, tensor.name)
        return self._consts[tensor]

    def _slice_of(self, tensor: Tensor, layout: Sharded) -> Tensor:
        """A micro-batch of an outer value: a run of each device's part along an axis."""
        axis, inside = layout.axis, self._piece(tensor.type, layout)
        if tensor in self._parts.looped:
            raise LayoutError(
                f"minimize(accumulate=): {tensor.name!r} is the same for each micro-batch, so "
                "it cannot be split along an axis"
            )
        source = self._filled_along(tensor, axis)
        if source is not None:  # avoids creating a value of the size of the batch
            with self._body:
                return broadcast_to(self._inner(source), inside.shape)
        before, behind = tensor.type.shape[:axis], tensor.type.shape[axis + 1 :]
        cut = (*before, *self._runs, self._count, self._run_of(tensor.type, axis), *behind)
        at = axis + len(self._runs)
        order = (at, *[i for i in range(len(cut)) if i != at])
        with self._outside:
            stack = reshape(tensor, cut)
            if at:
                stack = transpose(stack, order)
            if self._runs:
                stack = reshape(stack, (self._count, *inside.shape))
        self._xs[stack] = Tensor(inside, tensor.name)
        return self._xs[stack]

    def _filled_along(self, tensor: Tensor, axis: int) -> Tensor | None:
        """The value that `tensor` repeats along `axis`, or None."""
        made = self._makers.get(tensor)
        if made is None or made.op is not BROADCAST_TO:
            return None
        (source,) = made.inputs
        own = axis - (tensor.type.rank - source.type.rank)
        return source if own < 0 or source.type.shape[own] == 1 else None

    def _once(self, value: Tensor) -> Tensor:
        """`value` for the first micro-batch, and zeros for the others."""
        with self._body:
            zero, first = constant(0, value.type.dtype), constant(0, INT32)
            return where(equal(self._number(), first), value, zero)

    def _number(self) -> Tensor:
        """The number of the current micro-batch, in the body."""
        if self._index is None:
            with self._outside:
                numbers = emit_one(IOTA, (), shape=(self._count,), axis=0, dtype=INT32)
            self._index = self._xs[numbers] = Tensor(_INDEX, "micro_batch")
        return self._index

    # -- the loop -------------------------------------------------------------------------------

    def _looped(self, totals: Sequence[Tensor], others: Sequence[Tensor]) -> Node:
        """The loop, which carries the sums and stacks all other results."""
        carried = [Tensor(t.type, t.name) for t in totals]
        with self._body:
            sums = [before + self._local[t] for before, t in zip(carried, totals, strict=True)]
        with self._outside:
            starts = [broadcast_to(constant(0, t.type.dtype), t.type.shape) for t in totals]
        body = region(
            "micro_batch",
            [*self._consts.values(), *carried, *self._xs.values()],
            self._body.nodes,
            [*sums, *(self._local[t] for t in others)],
        )
        operands = (*self._consts, *starts, *self._xs)
        counts = {"consts": len(self._consts), "carries": len(totals), "length": self._count}
        return Builder().add(SCAN, operands, counts, (body,), "micro_batches")

    def _joined(self, tensor: Tensor, stack: Tensor) -> Tensor:
        """The whole batch's value, from the stacked values of the micro-batches: [count, ...]."""
        layout, shape = self._parts.made[tensor], tensor.type.shape
        if isinstance(layout, Sharded):
            axis = layout.axis
            if self._runs:
                runs = (*self._runs, self._run_of(tensor.type, axis))
                stack = reshape(stack, (self._count, *shape[:axis], *runs, *shape[axis + 1 :]))
            at = axis + len(self._runs)
            if at:
                stack = transpose(stack, (*range(1, at + 1), 0, *range(at + 1, stack.type.rank)))
            return reshape(stack, shape)
        if isinstance(layout, Partial):
            op = _EXTREMES[layout.op, tensor.type.dtype == BOOL]
            return emit_one(op, (stack,), axes=(0,), keepdims=False)
        limits = (1, *shape)
        return reshape(slice_(stack, (0,) * len(limits), limits), shape)

    def _size(self, type: TensorType, axis: int) -> int:
        size = type.shape[axis]
        if not isinstance(size, int) or size % self._count:
            raise LayoutError(
                f"{type} cannot be cut into {self._count} equal micro-batches along axis {axis}"
            )
        return size // self._count

    def _run_of(self, type: TensorType, axis: int) -> int:
        """The number of adjacent elements that belong to the same micro-batch."""
        return self._size(type, axis) // prod(self._runs)

    def _piece(self, type: TensorType, layout: Sharded) -> TensorType:
        axis = layout.axis
        size = self._size(type, axis)
        return TensorType(type.dtype, (*type.shape[:axis], size, *type.shape[axis + 1 :]))


def _check_no_index(node: Node, body: Program) -> None:
    """Raises an error if the body of a node depends on the number of the micro-batch."""
    for inner in body.walk():
        if inner.op in (REPLICA_INDEX, SHARD_SLICE, ON_REPLICA_ZERO):
            raise LayoutError(
                f"minimize(accumulate=): in the body of {node.op.name} {node.name!r}, "
                f"{inner.name!r} differs from micro-batch to micro-batch",
                source=inner.source or node.source,
                hint="compute values that only one micro-batch adds, such as random numbers, "
                "outside the body, and pass them to it",
            )
