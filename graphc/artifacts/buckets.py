"""The buckets of a signature: the values to which a server pads open sizes."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.artifacts.signature import Signature
from graphc.devices.row_proof import prove_rows
from graphc.errors import ArtifactError, UnknownNameError, nearest
from graphc.ir.dims import as_symbol, symbol
from graphc.ir.graph import Graph
from graphc.ir.program import Program


def proved(
    graph: Graph, name: str, signature: Signature, program: Program
) -> Mapping[str, tuple[int, ...]]:
    """The buckets by the names of the sizes in the program.

    Args:
        program: functional, with open sizes.

    Raises:
        UnknownNameError: no input has such a size, or it is fixed.
        ArtifactError: padding would change results. The error names the node, and its line.
    """
    found: dict[str, tuple[int, ...]] = {}
    for given, row in signature.buckets.items():
        size = as_symbol(graph.constraints.find(symbol(given)))
        if size is None or size not in program.symbols():
            raise UnknownNameError(
                f"signature {name!r} has buckets of {given!r}, but no open size of this name",
                hint=nearest(given, program.symbols()) or "its inputs have no open sizes",
            )
        refusal = prove_rows(program, size).refusal
        if refusal is not None:
            raise ArtifactError(
                f"signature {name!r} has buckets of {given!r}, which cannot be padded: {refusal}",
                source=refusal.source,
                hint=f"leave {given!r} out of the buckets; it then keeps its true size",
            )
        found[size] = tuple(sorted(set(row)))
    return found
