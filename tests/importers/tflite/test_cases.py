"""Each operator and whole models, compared with the interpreter (`cases.json.gz`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.importers.tflite.operators import OPERATORS
from graphc.importers.tflite.reading import LiteModel
from tests.importers.tflite.cases import Case, read, steps

CASES = list(read().values())
GROUPS = [CASES[i::16] for i in range(16)]  # one program per group: compilation takes the time
# In steps of the quantised results. All others: 1.
STEPS = {"transformer int8": 3, "lstm int8 two": 2}  # operators after each other
LOOSE = {"net dynamic": 1e-3}  # the interpreter rounds activations, too


def added(case: Case, folder: Path) -> tuple[list[dict[Any, Any]], list[list[Any]]]:
    """The feeds and the results of each run of a case in the current graph."""
    model = gc.from_tflite(case.write(folder), case.signature, name="case")
    feeds, fetches = [], []
    for inputs, _ in case.runs:
        places = [gc.placeholder(x.shape, x.dtype.name) for x in inputs]
        results = model(*places)
        fetches.append(list(results.values()) if isinstance(results, dict) else [results])
        feeds.append(dict(zip(places, inputs, strict=True)))
    return feeds, fetches


def compare(case: Case, wanted: list[Any], found: list[Any]) -> None:
    for value, got in zip(wanted, map(np.asarray, found), strict=True):
        assert (got.dtype, got.shape) == (value.dtype, value.shape), case.name
        if case.only_types:
            continue
        is_quantised = value.dtype in (np.int8, np.uint8, np.int16)
        limit = STEPS.get(case.name, 1) if is_quantised else LOOSE.get(case.name, 1e-5)
        assert steps(got, value) <= limit, (case.name, steps(got, value))


@pytest.mark.slow
@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_results_equal_those_of_the_interpreter(group: int, tmp_path: Path) -> None:
    cases = GROUPS[group]
    feeds: dict[Any, Any] = {}
    fetches = []
    with gc.Graph() as graph:
        for case in cases:
            own, results = added(case, tmp_path)
            for run in own:
                feeds |= run
            fetches.append(results)
        found = gc.Session(graph, unused_feeds="ignore").run(fetches, feeds)
    for case, runs in zip(cases, found, strict=True):
        for (_, wanted), got in zip(case.runs, runs, strict=True):
            compare(case, wanted, got)


def test_each_operator_has_a_case() -> None:
    used: set[str] = set()
    for case in CASES:
        model = LiteModel(case.model)
        for i in range(model.count):
            used |= {op.name for op in model.subgraph(i).operators}
    assert not OPERATORS.keys() - used, sorted(OPERATORS.keys() - used)
    assert len(OPERATORS) >= 140
