"""JoinMoments: the mean and the variance of a batch in one exchange."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from graphc.ir.builder import Builder
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.rewrite import sort_nodes, substitute
from graphc.ops.arrays.joining import split
from graphc.ops.arrays.shape import reshape
from graphc.ops.arrays.stacking import stack
from graphc.ops.core.emit import CAST, emit_one
from graphc.ops.nn.normalization import VARIANCE
from graphc.ops.reductions.reduction import reduce_sum
from graphc.ops.reductions.reduction_rules import REDUCE_MEAN
from graphc.ops.structure.collective import ALL_GATHER, ALL_REDUCE
from graphc.passes.core.base import Pass, PassResult, run_all_bodies
from graphc.passes.core.loop_stacks import uses_of


class Moments(NamedTuple):
    """The nodes that compute a mean and a variance over the batch.

    Attributes:
        mean: the mean of a replica's part.
    """

    mean: Node
    variance: Node
    whole_mean: Node
    whole_variance: Node


@dataclass(frozen=True)
class JoinMoments(Pass):
    """Exchanges both moments of batch normalisation in one gather.

    The variance depends on the mean, so replicas would first sum the mean, then the squares.
    Instead, each replica computes both moments of its own part, and the replicas gather these. The
    mean of the batch is the mean of the means. Its variance is the mean of the variances plus the
    variance of the means. There is no cancellation, unlike in the mean of squares minus the square
    of the mean. A gather goes around the ring once, a sum twice.

    Source: Chan, Golub, LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample
    Variances, COMPSTAT 1982.

    Must not: run before the program is local; change parts of different sizes, as in an uneven
    batch.

    Attributes:
        replicas: the number of replicas.
    """

    replicas: int

    def run(self, program: Program) -> PassResult:
        program, changed = run_all_bodies(self, program)
        makers, uses = program.producers(), uses_of(program)
        joined, instead = list[Node](), dict[Tensor, Tensor]()
        gone = set[Node]()
        for node in program.nodes:
            found = _moments(node, makers, self.replicas)
            if found is not None and found.whole_mean.outputs[0] not in instead:
                more, mean, variance = _joined(found, self.replicas)
                joined += more
                gone.update((found.whole_mean, found.whole_variance))
                gone.update(part for part in found[:2] if uses[part.outputs[0]] == 1)
                instead[found.whole_mean.outputs[0]] = mean
                instead[found.whole_variance.outputs[0]] = variance
        if instead:
            kept = [node for node in program.nodes if node not in gone]
            ordered = sort_nodes([*substitute(kept, instead), *joined])
            program = substitute(program.replace(nodes=ordered), instead)
        return PassResult(program, changed + len(instead))


def _moments(node: Node, makers: Mapping[Tensor, Node], replicas: int) -> Moments | None:
    """The moments whose variance `node` exchanges."""

    def made_by(tensor: Tensor, op: object) -> Node | None:
        found = makers.get(tensor)
        return found if found is not None and found.op is op else None

    if not _is_sum(node):
        return None
    variance = made_by(node.inputs[0], VARIANCE)
    whole_mean = None if variance is None else made_by(variance.inputs[1], ALL_REDUCE)
    if variance is None or whole_mean is None or not _is_sum(whole_mean):
        return None
    mean = made_by(whole_mean.inputs[0], REDUCE_MEAN)
    if mean is None or not _is_same(mean.inputs[0], variance.inputs[0], makers):
        return None
    axes, count = variance.attrs["axes"], variance.attrs["count"]
    if (mean.attrs["axes"], mean.attrs["count"], mean.attrs["keepdims"]) != (axes, count, True):
        return None
    own = math.prod(int(variance.inputs[0].type.shape[i]) for i in axes)
    if own * replicas != count:
        return None
    return Moments(mean, variance, whole_mean, node)


def _is_sum(node: Node) -> bool:
    return node.op is ALL_REDUCE and node.attrs["op"] == "sum" and len(node.inputs) == 1


def _is_same(a: Tensor, b: Tensor, makers: Mapping[Tensor, Node]) -> bool:
    """Whether two tensors are the same, or the same cast of the same tensor. Each user has its own
    cast."""
    if a is b:
        return True
    first, second = makers.get(a), makers.get(b)
    if first is None or second is None or not (first.op is second.op is CAST):
        return False
    return a.type == b.type and first.inputs[0] is second.inputs[0]


def _joined(found: Moments, replicas: int) -> tuple[list[Node], Tensor, Tensor]:
    """The nodes that compute both moments, and the two results."""
    like, axes, count = found.variance, found.variance.attrs["axes"], found.variance.attrs["count"]
    shape = found.mean.outputs[0].type.shape
    mine = {"axes": axes, "count": count // replicas}
    with Builder(like) as builder:
        own = emit_one(REDUCE_MEAN, [found.mean.inputs[0]], keepdims=True, **mine)
        within = emit_one(VARIANCE, [found.variance.inputs[0], own], axes=axes, count=count)
        both = reshape(stack([own, within]), (1, 2, *shape))
        every = emit_one(ALL_GATHER, [both], axis=0, replicas=replicas)
        means, parts = split(every, [1, 1], 1)  # [replicas, 1, ...]
        center = emit_one(REDUCE_MEAN, [means], axes=(0, 1), keepdims=True, count=None)
        between = emit_one(VARIANCE, [means, center], axes=(0, 1), count=replicas)
        total = reduce_sum(parts, (0, 1), keepdims=True)
        mean = reshape(center, shape)
        variance = reshape(total + between, shape)
    return builder.nodes, mean, variance
