"""`to_stablehlo`: one signature as a StableHLO module."""

from __future__ import annotations

import json
import os

from graphc.artifacts.exporting import export
from graphc.artifacts.manifest import Entry
from graphc.artifacts.signature import Signature
from graphc.artifacts.stablehlo import deserialize
from graphc.config import CompileOptions
from graphc.exporters.core.files import write
from graphc.exporters.core.inference import check_is_signature
from graphc.runtime.session import Session


def to_stablehlo(
    session: Session, path: str | os.PathLike[str], signature: Signature, *, text: bool = True
) -> None:
    """Writes a signature as a StableHLO module for the CPU. Open sizes stay open.

    The public function `main` takes the variables that the signature uses, then its inputs. It
    returns the new values of assigned variables, then the outputs. In the text, comments at the
    top name them in this order. The values of the variables are not in the file:
    `gc.to_safetensors` writes them.

    Args:
        path: the file to write. It is replaced as a whole.
        signature: what the module takes and returns.
        text: False writes the portable bytecode, which later versions of StableHLO also read.

    Raises:
        ArtifactError: JAX cannot export the program.
        FeedError, FetchError, UnknownNameError: the signature does not fit the graph.
        ModelExportError: the file cannot be written.

    Examples:
        >>> import os, tempfile
        >>> x = gc.placeholder((2,), name="x")
        >>> signature = gc.Signature({"x": x}, {"double": x * 2})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "double.mlir")
        ...     gc.to_stablehlo(gc.Session(graph), path, signature)
        ...     with open(path) as file:
        ...         print(file.readline() + file.readline(), end="")
        // arguments: "x"
        // results: "double"
    """
    check_is_signature("to_stablehlo", signature)
    found = export(session, "main", signature, ("cpu",), False, None, CompileOptions())
    exported = deserialize(found.members[found.entry.stablehlo])
    if text:
        write(path, f"{_ports(found.entry)}{exported.mlir_module()}".encode())
    else:
        write(path, bytes(exported.mlir_module_serialized))


def _ports(entry: Entry) -> str:
    """Comments with the names of the arguments and results, in their order."""
    arguments = [*entry.written, *entry.read, *(value.name for value in entry.inputs)]
    names: dict[int, list[str]] = {}
    for output in entry.outputs:
        names.setdefault(output.index, []).append(output.value.name)
    fetched = [" = ".join(names.get(index, ["_"])) for index in range(entry.fetches or 1)]
    rows = {"arguments": arguments, "results": [*entry.assigned, *fetched]}
    return "".join(f"// {kind}: {json.dumps(row)[1:-1]}\n" for kind, row in rows.items())
