"""Creates nodes that define given tensors. `Builder` creates all other nodes that a pass adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir.dim_constraints import DimConstraints
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Program


def node_of(
    op: OpDef,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor] | None = None,
    *,
    like: Node | None = None,
    regions: Sequence[Program] = (),
    name: str = "",
    **attrs: Any,
) -> Node:
    """A node that defines `outputs`, or new tensors.

    Args:
        like: the node whose source line and device the new node gets, and whose name is a prefix of
            its name.
        name: used as the name if there is no such node.

    Raises:
        GraphcError: the operands or attributes do not fit the operator.
    """
    attributes = op.complete(attrs)
    label = name or op.name
    if like is not None:
        label = f"{like.name}/{name or op.name}"
    if outputs is None:
        source = None if like is None else like.source
        types = op.infer_types(inputs, attributes, DimConstraints(), source, regions)
        outputs = [Tensor(type, f"{label}:{i}") for i, type in enumerate(types)]
    return Node(
        op,
        tuple(inputs),
        tuple(outputs),
        attributes,
        tuple(regions),
        label,
        None if like is None else like.source,
        "" if like is None else like.device,
    )
