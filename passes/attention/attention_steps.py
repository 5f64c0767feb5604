"""Selects how an attention is computed on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphc.ir.dtypes import BOOL, is_floating
from graphc.ir.node import Node
from graphc.ir.program import Program
from graphc.ir.types import TensorType
from graphc.ops.nn.attention import ATTENTION, ATTENTION_GRADIENT
from graphc.passes.core.base import Pass, PassResult, rewrite_nodes
from graphc.passes.core.target import Target

# Measured for float32 on two cores: with more weights than this (16 MiB), a loop over 128 queries
# of a batch entry takes 0.2 to 0.9 of the time of computing all at once, forward and backward,
# because its values stay in the cache. With less than half as many weights it takes up to 1.7 times
# as long. The caches of accelerators are small compared with their memory, so there the loop only
# saves memory.
_FEWEST_WEIGHTS: Mapping[str, int] = {"cpu": 1 << 22, "any": 1 << 22}
_FEWEST_ELSEWHERE = 1 << 27
_SHORTEST = 256  # queries
_ROWS, _FEWER_ROWS = 128, 64
_LONG = 1 << 16  # heads * source: from this value on, an iteration has fewer rows
_WIDEST_HEAD = 128  # cuDNN supports this on all its devices

Steps = dict[str, Any]


def steps(operands: Sequence[TensorType], attrs: Mapping[str, Any], target: Target) -> Steps:
    """The attributes of `Attention` that select the method: `rows`, `each_entry`, `flash`. Empty if
    it is computed all at once.

    Args:
        operands: the global types of query, key, value and masks, with known sizes.
        attrs: the attributes of the operator.
        target: the compilation target.
    """
    if target.platform == "gpu" and target.flash and _suits_cudnn(operands, attrs):
        return {"flash": True}
    query, key = operands[0].shape, operands[1].shape
    batch, time, heads, _ = (int(size) for size in query)  # type: ignore[arg-type]
    source = int(key[1])  # type: ignore[arg-type]
    batch = -(-batch // target.replicas)
    fewest = _FEWEST_WEIGHTS.get(target.platform, _FEWEST_ELSEWHERE)
    if time < _SHORTEST or batch * heads * time * source < fewest:
        return {}
    rows = _FEWER_ROWS if heads * source > _LONG else _ROWS
    return {"rows": rows, "each_entry": batch > 1}


def _suits_cudnn(operands: Sequence[TensorType], attrs: Mapping[str, Any]) -> bool:
    """Whether `jax.nn.dot_product_attention` passes it to cuDNN, with the same meaning."""
    query, key, value, *masks = operands
    _, time, _, depth = query.shape
    source = key.shape[1]
    biases = [mask for mask in masks if mask.dtype != BOOL]
    sizes_fit = (
        isinstance(depth, int)
        and depth == value.shape[3]
        and depth % 8 == 0
        and depth <= _WIDEST_HEAD
        and all(isinstance(n, int) and n % 2 == 0 for n in (time, source))
    )
    return (
        sizes_fit
        and is_floating(query.dtype)
        and query.dtype.itemsize == 2
        and not attrs["dropout"]
        and all(bias.dtype == query.dtype and bias.rank == 4 for bias in biases)
        and (len(biases) == len(masks) or not attrs["causal"])
    )


@dataclass(frozen=True)
class StepAttention(Pass):
    """Selects how each `Attention` and its gradient are computed: all at once; some queries at a
    time, with memory only for their weights; or by cuDNN's flash attention.

    XLA has no such choice: it computes the given operations, and writes all weights to memory.

    Must not: change short attentions, for which loops cost more than they save; select cuDNN if it
    may be missing (a program for any platform), or for cases that it does not support: float32,
    dropout, odd lengths, masks of causal attention.

    Attributes:
        target: the compilation target.
        alone: whether the program around the bodies has no `AttentionGradient`; None for the
            outermost program.
    """

    target: Target = field(default_factory=Target)
    alone: bool | None = None

    def run(self, program: Program) -> PassResult:
        if self.alone is None:
            alone = all(node.op is not ATTENTION_GRADIENT for node in program.walk())
            return replace(self, alone=alone).run(program)
        return rewrite_nodes(self, program, self._stepped)

    def _stepped(self, node: Node) -> Node:
        if node.op not in (ATTENTION, ATTENTION_GRADIENT):
            return node
        if node.attrs["rows"] or node.attrs["each_entry"] or node.attrs["flash"]:
            return node  # the user chose
        types = [tensor.type for tensor in node.inputs]
        if node.op is ATTENTION_GRADIENT:
            del types[3]  # dy
        if node.attrs["dropout"]:
            del types[-1]  # the key, or the dropout mask
        found = steps(types, node.attrs, self.target)
        if found.get("flash") and self.alone:
            found["alone"] = True
        return node.replace(attrs={**node.attrs, **found}) if found else node
