"""Which dtypes each operator accepts, found by building a case of it with each."""

from __future__ import annotations

from functools import cache

from graphc.errors import GraphcError
from graphc.ir.dtypes import BY_SHORT
from graphc.ir.graph import Graph
from tests.laws.case import Case
from tests.laws.harness import build_case, families

DTYPES = tuple(dtype.name for dtype in BY_SHORT.values())


# Operators around another one: they take what that takes.
AROUND_ANOTHER = {"Lowered", "Primitive", "VJP"}
Outcomes = dict[str, str | None]  # by dtype: None, or the reason why it is refused


@cache
def representatives() -> dict[str, tuple[Case, Outcomes]]:
    """For each operator the case that takes the most dtypes, with its outcomes; operators whose
    dtypes are fixed have none."""
    found: dict[str, tuple[Case, Outcomes]] = {}
    for case in (case for cases in families().values() for case in cases):
        if case.op in AROUND_ANOTHER or not any(spec.dtype == "T" for spec in case.inputs):
            continue
        outcomes = {dtype: _outcome(case, dtype) for dtype in DTYPES}
        if case.op not in found or taken(outcomes) > taken(found[case.op][1]):
            found[case.op] = case, outcomes
    return found


def taken(outcomes: Outcomes) -> int:
    return list(outcomes.values()).count(None)


def _outcome(case: Case, dtype: str) -> str | None:
    try:
        with Graph(seed=1) as graph:
            build_case(case, dtype, "in")
    except GraphcError as error:
        return str(error).splitlines()[0]
    # Where a builder casts the operand first, the operator itself does not take the dtype.
    made = [node for node in graph.nodes if node.op.name == case.op]
    return None if made else f"{case.op} is not made of {dtype}"
