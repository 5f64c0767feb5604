"""The reference of a comparison: each value in float64, from a run's own values before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from graphc.divergence.exact import ExactEmitter, Noise, wide_dtype, widened
from graphc.ir.costs import bytes_of, size_of
from graphc.ir.dtypes import Array, is_inexact
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, region
from graphc.ir.rewrite import substitute
from graphc.passes.core.costs import node_cost

_NODES = 48  # that are compiled at once
_BYTES = 1 << 27
_SUMMING = ("Scatter", "Segment", "Cum")
_SEEDS = (1, 2, 3)
_SPREAD = 1.5  # of random numbers: their products are the rounding errors, in rounding units
_HEAVY = 3e8  # operations: code that takes less time is compiled without optimisation
_QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Segment(NamedTuple):
    """The nodes between known values and the results of one node.

    Attributes:
        node: the last one.
        tensors: those of its results that are known in every run.
        nodes: all of them in program order, `node` last.
        cuts: the known values that they take.
        terms: about how many operations one element of the results takes.
    """

    node: Node
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    cuts: tuple[Tensor, ...]
    terms: float


def segments_of(program: Program, known: Collection[Tensor]) -> list[Segment]:
    """A segment for each node that has a known result, in program order.

    Args:
        known: tensors whose values every run gives. Inputs and constants are known too.
    """
    producers = program.producers()
    position = {node: i for i, node in enumerate(program.nodes)}
    leaves = {*program.input_tensors()}
    leaves.update(t for n in program.nodes if n.op.name == "Constant" for t in n.outputs)
    found = []
    for node in program.nodes:
        tensors = tuple(t for t in node.outputs if t in known)
        if not tensors or node.op.name == "Constant":
            continue
        inside, cuts = {node: None}, dict[Tensor, None]()
        pending = list(node.inputs)
        while pending:
            tensor = pending.pop()
            if tensor in leaves or tensor in known:
                cuts[tensor] = None
            elif producers[tensor] not in inside:
                inside[producers[tensor]] = None
                pending += producers[tensor].inputs
        nodes = tuple(sorted(inside, key=position.__getitem__))
        found.append(Segment(node, tensors, nodes, tuple(cuts), max(map(_terms, nodes))))
    return found


def _terms(node: Node) -> float:
    """About how many operations one element of the results takes."""
    terms = node_cost(node).flops / max(1, sum(map(size_of, node.outputs)))
    if node.op.name.startswith(_SUMMING):  # perhaps all into one element
        sizes = (d for t in node.inputs for d in t.type.shape if isinstance(d, int))
        terms = max(terms, *sizes)
    return terms


class Results(NamedTuple):
    """What the reference gives for one run's values: the exact results, and noisy ones."""

    exact: Mapping[Tensor, Array]
    noisy: Sequence[Mapping[Tensor, Array]]


class Block:
    """Segments that are compiled together.

    Attributes:
        segments: in program order.
        cuts: the values that they take.
        tensors: the values that they give.
    """

    def __init__(self, segments: Sequence[Segment], constants: Mapping[Tensor, Array]) -> None:
        self.segments = tuple(segments)
        self.tensors = tuple(t for s in segments for t in s.tensors)
        self.cuts = tuple(dict.fromkeys(t for s in segments for t in s.cuts))
        self._constants = {t: constants[t] for t in self.cuts if t in constants}
        inside = (t for s in segments for n in s.nodes for t in (*n.inputs, *n.outputs))
        self._largest = max(1009, *map(size_of, inside))

    @property
    def needs(self) -> list[Tensor]:
        """The values that a run must give."""
        return [t for t in (*self.cuts, *self.tensors) if t not in self._constants]

    def results(
        self, values: Mapping[Tensor, Array], least: float, least_of_products: float
    ) -> Results:
        """The exact results from a run's own values.

        Args:
            least: the least rounding unit of the run.
            least_of_products: that of the operands of its products.
        """
        given = []
        for tensor in self.cuts:
            value = self._constants.get(tensor)
            value = values[tensor] if value is None else value
            given.append(value.astype(wide_dtype(value.dtype)))

        def run(on: float, seed: int) -> dict[Tensor, Array]:
            amount = np.array([on, least, least_of_products])
            numbers = np.random.default_rng(seed).uniform(-_SPREAD, _SPREAD, self._largest)
            out = self._function(given, amount, numbers)
            return dict(zip(self.tensors, map(np.asarray, out), strict=True))

        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
            return Results(run(0.0, 0), [run(1.0, seed) for seed in _SEEDS])

    @cached_property
    def _function(self) -> Callable[..., Any]:
        inner = {t: Tensor(t.type, t.name) for t in self.cuts}
        nodes = dict.fromkeys(n for s in self.segments for n in s.nodes)
        program = region(
            "piece", list(inner.values()), substitute(tuple(nodes), inner), self.tensors
        )
        wide, originals = widened(program)
        constants = [t in self._constants for t in self.cuts]

        def function(values: Sequence[Any], amount: Any, numbers: Any) -> list[Any]:
            noise = Noise(amount, numbers)
            given = [
                noise.rounded(value, tensor.type.dtype)
                if is_inexact(tensor.type.dtype) and not constant
                else value
                for value, tensor, constant in zip(values, self.cuts, constants, strict=True)
            ]
            return ExactEmitter(originals, noise).run(wide, given)

        work = sum(node_cost(node).flops for node in nodes)
        return jax.jit(function, compiler_options=_QUICK if work < _HEAVY else None)


def blocks_of(program: Program, segments: Sequence[Segment]) -> list[Block]:
    """The segments in blocks that are not too large to compile."""
    constants = {n.outputs[0]: n.attrs["value"] for n in program.nodes if n.op.name == "Constant"}
    return [Block(some, constants) for some in _grouped(segments)]


def _grouped(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    block: list[Segment] = []
    nodes: set[Node] = set()
    size = 0
    for segment in segments:
        more = bytes_of(*(t for n in segment.nodes for t in n.outputs))
        if block and (len(nodes | {*segment.nodes}) > _NODES or size + more > _BYTES):
            yield block
            block, nodes, size = [], set(), 0
        block.append(segment)
        nodes |= {*segment.nodes}
        size += more
    if block:
        yield block
