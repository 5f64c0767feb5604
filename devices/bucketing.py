"""BucketCollectives: replicas exchange their sums in a few large messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from graphc.devices.clustering import earliest_first
from graphc.devices.joined_exchanges import COPIED, LARGE, joined
from graphc.errors import AttributeValueError
from graphc.ir.costs import bytes_of
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program, is_pure
from graphc.ops.structure.collective import EXCHANGES
from graphc.passes.core.base import Pass, PassResult, run_all_bodies

BUCKET_BYTES: Final = 25 * 2**20
# On GPUs XLA copies the values that it joins. A large last bucket is exchanged when no computation
# is left that could hide it. Estimates for 8 H100 (runtime.hlo_cost.timeline), for steps of an
# LSTM, GPT-2 small and ResNet-50: 3.76, 9.97 and 10.76 ms with buckets of 8 MiB; 3.88, 9.99 and
# 10.85 ms with 30 MiB; 3.76, 9.95 and 10.78 ms without buckets. The estimate assumes that small
# messages are faster than they are.
GPU_BUCKET_BYTES: Final = 8 * 2**20


def joining_options(platform: str, bucket_bytes: int) -> Mapping[str, int]:
    """The XLA options that limit joined exchanges to this size. They also apply to the exchanges of
    a bucket, which JAX passes to XLA one by one. XLA's default limit is 30 MiB. 0 joins none."""
    if platform != "gpu":
        return {}
    kinds = ("all_reduce", "all_gather", "reduce_scatter")
    most = max(bucket_bytes, 1)
    return {f"xla_gpu_{kind}_combine_threshold_bytes": most for kind in kinds}


@dataclass(frozen=True)
class BucketCollectives(Pass):
    """Joins exchanges that do not depend on each other until they carry `bucket_bytes`.

    The backward pass produces gradients one by one. Each has its own sum over the replicas, and
    each such exchange has a fixed cost, because the replicas synchronize. So exchanges are joined
    in the order in which their operands become ready, which is the order of the backward pass. A
    bucket is full when a gradient brings it to `bucket_bytes`. It can then be sent while the rest
    of the backward pass is computed. A gradient that fills a bucket by itself is exchanged alone,
    and the open bucket stays open. So there are at most `bytes / bucket_bytes + 1` buckets for each
    set of values that can be joined: values of one dtype, with one reduction, and with the same
    number of exchanges between them and the end of the program. Two such values do not depend on
    each other, so buckets cannot form a cycle. Exchanges of batch statistics are never joined with
    those of gradients, because other nodes depend on batch statistics, but none depends on
    gradients.

    Where optimizers keep pieces (`devices.state_pieces`), reduce-scatters of gradients and
    all-gathers of parameters are joined in the same way. Large ones are not, because they would be
    copied.

    XLA itself joins all-reduces with its own order and size: on CPU it joins all that are left at
    the end of the backward pass; on GPUs it joins them up to a size that `joining_options` sets.
    XLA does not concatenate the small arrays of a bucket; this pass does (see `ops.collective`).

    Source: S. Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training,
    VLDB 2020, sections 3.2.2 and 3.2.3, and the default of 25 MiB.

    Must not: run before the program is local.

    Attributes:
        bucket_bytes: the minimum size of each bucket except the last.
    """

    bucket_bytes: int = BUCKET_BYTES

    def __post_init__(self) -> None:
        if type(self.bucket_bytes) is not int or self.bucket_bytes < 1:
            raise AttributeValueError(
                f"bucket_bytes must be a positive int, got {self.bucket_bytes!r}"
            )

    def run(self, program: Program) -> PassResult:
        program, changed = run_all_bodies(self, program)
        buckets = [bucket for bucket in self._buckets(program.nodes) if len(bucket) > 1]
        if buckets:
            program = program.replace(nodes=tuple(_joined(program.nodes, buckets)))
            changed += sum(map(len, buckets))
        return PassResult(program, changed)

    def _buckets(self, nodes: Sequence[Node]) -> list[list[Node]]:
        """The exchanges, grouped into buckets."""
        buckets: list[list[Node]] = []
        open_ones: dict[object, list[Node]] = {}
        filled: dict[object, int] = {}
        behind = exchanges_behind(nodes)
        for node in nodes:
            if node.op not in EXCHANGES:
                continue
            size = max(bytes_of(*node.inputs), bytes_of(*node.outputs))
            kind = (node.op, node.attrs.get("op"), node.inputs[0].type.dtype, behind[node])
            if size >= self.bucket_bytes or (node.op in COPIED and size >= LARGE):
                buckets.append([node])
                continue
            if kind not in open_ones:
                buckets.append([])
                open_ones[kind], filled[kind] = buckets[-1], 0
            open_ones[kind].append(node)
            filled[kind] += size
            if filled[kind] >= self.bucket_bytes:
                del open_ones[kind]
        return buckets


def exchanges_behind(nodes: Sequence[Node]) -> dict[Node, int]:
    """For each exchange, the length of the longest chain of exchanges that depend on it."""
    found: dict[Node, int] = {}
    behind: dict[Tensor | None, int] = {}
    for node in reversed(nodes):
        effect = () if is_pure(node) else (None,)  # nodes with effects keep their order
        count = max((behind.get(t, 0) for t in (*node.outputs, *effect)), default=0)
        if node.op in EXCHANGES:
            found[node] = count
            count += 1
        if count:
            for tensor in (*node.inputs, *effect):
                behind[tensor] = max(behind.get(tensor, 0), count)
    return found


def _joined(nodes: Sequence[Node], buckets: Iterable[Sequence[Node]]) -> list[Node]:
    """The nodes with one exchange for each bucket, placed where all its operands are ready."""
    last = {bucket[-1]: bucket for bucket in buckets}
    members = {node for bucket in last.values() for node in bucket}
    result = []
    for node in nodes:
        if node in last:
            result += joined(last[node])
        elif node not in members:
            result.append(node)
    return _in_order(result)


def _in_order(nodes: Sequence[Node]) -> list[Node]:
    """The nodes in topological order, in their present order wherever dependencies allow it."""
    makers = {tensor: i for i, node in enumerate(nodes) for tensor in node.outputs}
    users: dict[int, list[int]] = {i: [] for i in range(len(nodes))}
    effect: int | None = None
    for i, node in enumerate(nodes):
        needed = {makers[t] for t in node.inputs if t in makers}
        if not is_pure(node):
            needed |= set() if effect is None else {effect}
            effect = i
        for maker in needed:
            users[maker].append(i)
    return [nodes[i] for i in earliest_first(users)]
