"""Pickling and copying of graphs, with their serial form. `copy.copy` also makes a deep copy."""

from __future__ import annotations

import copyreg
from collections.abc import Callable

from graphc.build.initializers import INITIALIZERS
from graphc.errors import CopyError, SerialError
from graphc.ir.graph import Graph
from graphc.ir.program import walk
from graphc.ir.serial import dump_graph, from_bytes, load_graph, to_bytes
from graphc.ops.catalogue import CATALOGUE
from graphc.ops.structure.lowered import LOWERED, accept


def graph_of(data: bytes) -> Graph:
    """Restores a pickled graph. It is not finalized, because it has not run in this process.

    Raises:
        SerialError: the data are not a graph, or one of a newer graphc.
    """
    manifest, arrays = from_bytes(data)
    graph = load_graph(manifest, arrays, CATALOGUE, INITIALIZERS)
    for node in graph.nodes:
        for inner in walk(node):
            if inner.op is LOWERED:  # unpickling requires a trusted source anyway
                accept(inner.attrs["program"])
    return graph


def _reduced(graph: Graph) -> tuple[Callable[[bytes], Graph], tuple[bytes]]:
    try:
        return graph_of, (to_bytes(*dump_graph(graph)),)
    except SerialError as error:
        what = f"graph {graph.name!r} cannot be pickled or copied"
        hint = "build it where it is needed, by the same Python function"
        raise copy_error(what, error, hint) from error


def copy_error(what: str, error: SerialError, hint: str) -> CopyError:
    """The error of a copy for an error of the graph's form in files."""
    return CopyError(
        f"{what}: {error.what}",
        details=error.details,
        source=error.source,
        hint=error.hint or hint,
    )


copyreg.pickle(Graph, _reduced)
