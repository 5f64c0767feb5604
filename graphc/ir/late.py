"""Attributes that are completed only when a node is written to a text or a file."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.node import Node


class Late:
    """A value of an attribute that has no written form. Other nodes replace the node in writing."""

    def written(self, node: Node, depth: int) -> list[Node]:
        """The nodes that are written instead of `node`, which has this attribute.

        Args:
            depth: how many nodes with such attributes contain it.
        """
        raise NotImplementedError


def written(nodes: Sequence[Node], depth: int = 0) -> list[Node]:
    """`nodes` in the form in which they are written, also inside regions."""
    found: list[Node] = []
    for node in nodes:
        late = next((value for value in node.attrs.values() if isinstance(value, Late)), None)
        if late is not None:
            found += late.written(node, depth)
        elif node.regions:
            regions = [r.replace(nodes=tuple(written(r.nodes, depth))) for r in node.regions]
            found.append(node.replace(regions=tuple(regions)))
        else:
            found.append(node)
    return found
