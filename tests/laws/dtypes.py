"""Which dtypes each operator accepts, found by building one of its cases with each dtype."""

from __future__ import annotations

from functools import cache

from graphc.errors import GraphcError
from graphc.ir.dtypes import BY_SHORT
from graphc.ir.graph import Graph
from tests.laws.case import Case
from tests.laws.harness import build_case, families

DTYPES = tuple(dtype.name for dtype in BY_SHORT.values())


# Operators that wrap another operator: they accept its dtypes.
AROUND_ANOTHER = {"Lowered", "Primitive", "VJP"}
Outcomes = dict[str, str | None]  # by dtype: None, or the reason for its refusal


@cache
def candidates() -> dict[str, list[Case]]:
    """The cases of each operator whose dtypes are not fixed."""
    found: dict[str, list[Case]] = {}
    for case in (case for cases in families().values() for case in cases):
        if case.op not in AROUND_ANOTHER and any(spec.dtype == "T" for spec in case.inputs):
            found.setdefault(case.op, []).append(case)
    return found


@cache
def representative(op: str) -> tuple[Case, Outcomes] | None:
    """The first case of an operator that accepts the most dtypes, with its outcomes; None if the
    operator's dtypes are fixed."""
    found = [
        (case, {dtype: _outcome(case, dtype) for dtype in DTYPES})
        for case in candidates().get(op, [])
    ]
    return max(found, key=lambda row: taken(row[1]), default=None)


def representatives() -> dict[str, tuple[Case, Outcomes]]:
    """The representative of each operator that has one."""
    return {op: found for op in candidates() if (found := representative(op)) is not None}


def taken(outcomes: Outcomes) -> int:
    return list(outcomes.values()).count(None)


def _outcome(case: Case, dtype: str) -> str | None:
    try:
        with Graph(seed=1) as graph:
            build_case(case, dtype, "in")
    except GraphcError as error:
        return str(error).splitlines()[0]
    # If a builder casts the operand first, the operator itself does not accept the dtype.
    made = [node for node in graph.nodes if node.op.name == case.op]
    return None if made else f"{case.op} is not made of {dtype}"
