"""`CompileOptions(check_numerics=True)`: the error for a run that made a NaN or an infinity, or
that got an integer out of range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from graphc.config import CompileOptions
from graphc.errors import NumericsError
from graphc.ir.program import Program
from graphc.ir.verify import Stage, verify
from graphc.ops.structure.numerics import HEAD, NAN, OUTSIDE
from graphc.passes.precision.check_numerics import CheckNumerics, table

Table = Mapping[str, Any]
_INT32 = np.iinfo(np.int32)
STEPS = "steps"  # the loop of `run_steps`


def checked(
    program: Program, options: CompileOptions, stage: Stage = "bound"
) -> tuple[Program, Table | None]:
    """The program to lower, with checks if the options request them, and the table of its nodes for
    error texts."""
    if not options.check_numerics:
        return program, None
    places = table(program)
    program = CheckNumerics().run(program).program
    if options.verify:
        verify(program, stage)
    return program, places


class _Line(NamedTuple):
    """A user's line, as errors show it."""

    text: str
    code: str

    def __str__(self) -> str:
        return self.text


def complaint(faults: Any, places: Table) -> NumericsError | None:
    """The error that the last output of a run reports; None if there is none."""
    found = _decode(faults)
    if found is None:
        return None
    made, value, path, replicas = found
    details, loops = [], []
    entry = places[str(path[0])]
    for turn, place in zip(path[1::2], path[2::2], strict=True):
        if place < 0:
            break
        details.append(_around(entry, turn))
        loops.append((turn, entry["length"]))
        entry = entry["inside"][str(place)]
    entry = _of_turn(entry, loops)
    if made != OUTSIDE:
        details.append(f"gives {', '.join(entry['types'])}")
    if np.ndim(faults) > 1:
        details.append(f"on replica {', '.join(map(str, replicas))} of {len(faults)}")
    what, hint = _range_told(entry, value) if made == OUTSIDE else _number_told(entry, made)
    return NumericsError(
        what,
        details=details,
        source=_Line(entry["line"], entry["code"]) if entry["line"] else None,
        hint=f"the state is as it was before the run: {hint}",
    )


def _number_told(entry: Table, made: int) -> tuple[str, str]:
    """The text for a NaN or an infinity, and the hint."""
    what = "a NaN from operands without NaN" if made == NAN else "an infinity from finite operands"
    return f"{entry['node']} made {what}", (
        "fetch the operands with the same feeds and without check_numerics to see them; guard the "
        "node by gc.where, gc.clip or an epsilon"
    )


def _range_told(entry: Table, value: int) -> tuple[str, str]:
    """The text for an integer out of range, and the hint."""
    bounds = " or ".join(
        f"{low} to {high - 1}" for low, high in zip(entry["low"], entry["high"], strict=True)
    )
    # Devices report the value clipped to the range of int32.
    more = {_INT32.max: "at least ", _INT32.min: "at most "}.get(value, "")
    return f"{entry['node']}: {entry['what']} out of range: {more}{value} is not in {bounds}", (
        f"correct the {entry['what']}; docs/guide/indexing.md says what values out of range give "
        "without check_numerics, and how to ask for that"
    )


def _decode(faults: Any) -> tuple[int, int, list[int], list[int]] | None:
    """The kind of fault, the integer out of range, the path to the node, and the replicas that
    found this fault there first; None if there is no fault.

    Args:
        faults: [width], or one row per replica.
    """
    rows = np.atleast_2d(np.asarray(jax.device_get(faults)))
    found = {i: row for i, row in enumerate(rows.tolist()) if row[0] > 0}
    if not found:
        return None
    first = min(row[HEAD:] for row in found.values())
    where = [i for i, row in found.items() if row[HEAD:] == first]
    worst = max(where, key=lambda i: found[i][0])
    return found[worst][0], found[worst][1], first, where


def _of_turn(entry: Table, loops: Sequence[tuple[int, int | None]]) -> Table:
    """The table entry for the iteration where the fault occurred, if the node represents several.

    Args:
        loops: the loops that contain the node, outermost first: the iteration, and the number of
            iterations. The iterations of such a node may be those of two nested loops.
    """
    turns = entry.get("turns", ())
    index, count = 0, 1
    for turn, length in reversed(loops):
        if length is None or count == len(turns):
            break
        index += turn * count
        count *= length
    return {**entry, **turns[index]} if count == len(turns) else entry


def _around(entry: Table, turn: int) -> str:
    """The description of one of the nodes that contain the faulty node."""
    if entry["node"] == f"Scan {STEPS!r}" and not entry["line"]:
        return f"in step {turn} of this run_steps, counted from 0"
    at = f" at {entry['line']}" if entry["line"] else ""
    if entry["op"] in ("Scan", "While"):
        return f"in iteration {turn}, counted from 0, of {entry['node']}{at}"
    if entry["op"] == "Map":
        return f"in row {turn}, counted from 0, of {entry['node']}{at}"
    return f"in {entry['node']}{at}"
