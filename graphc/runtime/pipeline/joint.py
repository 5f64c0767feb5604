"""What the processes of a cluster decide together about a program over their devices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from graphc.errors import ClusterError
from graphc.runtime.core.agreement import different, exchanged
from graphc.runtime.pipeline.compilation import Compilation
from graphc.runtime.targets.interface import Interface


def agree_on_program(compilation: Compilation) -> None:
    """Checks that all processes compile this program now.

    Raises:
        ClusterError: another one compiles another program, or none.
    """
    program, request = compilation.prepared.functional, compilation.request
    names = [port.name for port in program.ports("feed")]
    fetches = [port.name for port in program.ports("fetch")]
    what = _what(program.name, zip(names, request.shapes, strict=True), fetches)
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


def _what(name: str, feeds: Iterable[tuple[str, Iterable[Any]]], fetches: Sequence[str]) -> str:
    """A program in words."""
    shapes = ", ".join(f"{feed} {tuple(shape)}" for feed, shape in feeds)
    values = ", ".join(fetches) or "no value"
    return f"{values} of graph {name!r} for feeds {shapes or '(none)'}"


def all_found(mine: bool) -> bool:
    """Whether all processes found the program in their caches. If one compiles it, all do, because
    XLA may measure kernels in one process for all."""
    return all(
        text == "found" for text in exchanged("looks for a program", "found" if mine else "missing")
    )


class Turn:
    """A program over several processes that is about to run.

    Processes that run different programs, say for batches of different sizes, may get a result that
    is wrong instead of an error. So they compare when another program runs than the one before.
    Programs are numbered in the order in which they were compiled, which all processes share.

    Args:
        interface: of the program.
    """

    _numbers = count()
    _last: Turn | None = None

    def __init__(self, interface: Interface) -> None:
        shapes = [(feed.name, feed.type.shape) for feed in interface.feeds]
        fetches = [fetch.name for fetch in interface.fetches]
        self._text = f"{next(Turn._numbers)} {_what(interface.name, shapes, fetches)}"

    def take(self) -> None:
        """Called before each run.

        Raises:
            ClusterError: another process runs another program, or none.
        """
        if Turn._last is self:
            return
        given = exchanged("runs another program than before", self._text)
        other = different(given)
        if other is not None:
            what = [text.partition(" ")[2] for text in (given[0], given[other])]
            raise ClusterError(
                f"process 0 and process {other} do not run the same program",
                details=[f"process 0 runs {what[0]}", f"process {other} runs {what[1]}"],
                hint="all processes must run the same steps, on feeds of the same shapes",
            )
        Turn._last = self
