"""What the processes of a cluster decide together about a program over their devices."""

from __future__ import annotations

import json

from graphc.errors import ClusterError
from graphc.runtime.core.agreement import different, exchanged
from graphc.runtime.pipeline.compilation import Compilation


def agree_on_program(compilation: Compilation) -> None:
    """Checks that all processes compile this program now.

    Raises:
        ClusterError: another one compiles another program, or none.
    """
    program, request = compilation.prepared.functional, compilation.request
    names = [port.name for port in program.ports("feed")]
    feeds = ", ".join(f"{n} {tuple(s)}" for n, s in zip(names, request.shapes, strict=True))
    fetches = ", ".join(port.name for port in program.ports("fetch"))
    what = f"{fetches or 'no value'} of graph {program.name!r} for feeds {feeds or '(none)'}"
    key = compilation.program_key or ""  # without one, only what can be seen is compared
    given = exchanged(
        "compiles a program", json.dumps([what, key, [d.id for d in compilation.devices]])
    )
    other = different(given)
    if other is None:
        return
    (first, *facts), (second, *others) = json.loads(given[0]), json.loads(given[other])
    if first != second:
        details = [f"process 0 compiles {first}", f"process {other} compiles {second}"]
        hint = "all processes must run the same steps, on feeds of the same shapes"
    else:
        part = "devices of the strategy" if facts[1] != others[1] else "graph or the options"
        details = [f"both compile {first}, but the {part} are not the same"]
        hint = "run the same script in all processes, and give graphs the same seed"
    raise ClusterError(
        f"process 0 and process {other} do not compile the same program",
        details=details,
        hint=hint,
    )


def all_found(mine: bool) -> bool:
    """Whether all processes found the program in their caches. If one compiles it, all do, because
    XLA may measure kernels in one process for all."""
    return all(
        text == "found" for text in exchanged("looks for a program", "found" if mine else "missing")
    )
