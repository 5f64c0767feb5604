"""Each rule compared with TensorFlow's own results (`cases.json.gz`, see `make_cases.py`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.importers.tensorflow.frozen import from_graphdef, read_graph_file
from graphc.importers.tensorflow.rules.host import HOST
from graphc.importers.tensorflow.rules.table import RULES, SPECIAL
from tests.importers.tensorflow.cases import Case, read
from tests.near import assert_near

CASES = read()
GROUPS = [
    CASES[i::16] for i in range(16)
]  # one program per group, because compilation takes most of the time

# Tolerances relative to the largest element, by the name of the case. All others: 1e-5.
LOOSE = {"FFT3D": 3e-5, "MatrixSquareRoot": 1e-4, "IsInf": 0.0}
# Old operator names, references, and operators that only TensorFlow's optimizer makes: today's
# TensorFlow makes no such graphs. Summaries have no results.
WITHOUT_CASE = {
    "BatchNormWithGlobalNormalization", "TopK", "_FusedConv2D", "_FusedMatMul",
    "_FusedDepthwiseConv2dNative", "_FusedBatchNormEx", "ApplyAdagradV2",
    "ApplyKerasMomentum", "BatchCholesky", "BatchMatrixBandPart", "BatchMatrixDiag",
    "BatchMatrixDiagPart", "BatchMatrixSetDiag", "BatchMatrixTriangularSolve", "BatchSvd",
    "HashTable", "InitializeTable", "InitializeTableV2", "LookupTableFind",
    "LookupTableImport", "LookupTableSize", "RandomPoisson", "Variable", "RefEnter",
    "RefExit", "RefIdentity", "RefMerge", "RefSwitch", "ControlTrigger", "AudioSummary",
    "AudioSummaryV2", "HistogramSummary", "ImageSummary", "MergeSummary", "ScalarSummary",
    "TensorSummary", "TensorSummaryV2", "WriteSummary", "WriteScalarSummary",
    "XlaCallModule",  # test_programs.py
    "InitializeTableFromTextFile",
    "InitializeTableFromTextFileV2", "StringToHashBucketFast",  # test_strings.py
}  # fmt: skip


def added(case: Case) -> tuple[dict[Any, Any], list[Any]]:
    """The feeds of the case and its results in the current graph."""
    model = from_graphdef(case.graph, list(case.outputs), checkpoint=case.variables, name="case")
    places = {
        name: gc.placeholder(
            tuple(
                None if size == "batch" or not isinstance(size, int) else size for size in s.shape
            ),
            s.dtype,
        )
        for name, s in model.inputs.items()
    }
    results = model(**places)
    values = [results] if len(case.outputs) == 1 else list(results.values())
    return {places[name]: case.inputs[name] for name in places}, values


def compare(case: Case, results: list[Any]) -> None:
    for (name, wanted), got in zip(case.outputs.items(), map(np.asarray, results), strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), (case.name, name)
        if case.only_types:
            continue
        kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
        got, wanted = got.astype(kind), wanted.astype(kind)
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(got[~finite], wanted[~finite], err_msg=case.name)
        scale = np.abs(wanted[finite]).max(initial=1.0)
        error = np.abs(got[finite] - wanted[finite]).max(initial=0.0) / scale
        assert error <= LOOSE.get(case.name, 1e-5), (case.name, name, error)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_results_equal_those_of_tensorflow(group: int) -> None:
    cases = GROUPS[group]
    feeds: dict[Any, Any] = {}
    fetches = []
    with gc.Graph() as graph:
        for case in cases:
            own, results = added(case)
            feeds |= own
            fetches.append(results)
        found = gc.Session(graph, unused_feeds="ignore").run(fetches, feeds)
    for case, results in zip(cases, found, strict=True):
        compare(case, results)


def test_each_rule_has_a_case() -> None:
    used: set[str] = set()
    for case in CASES:
        graph = read_graph_file("test", case.graph)[1]
        used |= {node.op for node in graph.nodes.values()}
        for name in graph.library.names():
            used |= {node.op for node in graph.library.function(name).nodes.values()}
    missing = (RULES.keys() | SPECIAL.keys() | HOST.keys()) - used - WITHOUT_CASE
    assert not missing, sorted(missing)


@pytest.mark.parametrize("name", ["Adam resource", "assign_add reference", "scatter_add resource"])
def test_assignments_change_the_variables_as_in_tensorflow(name: str) -> None:
    case = next(c for c in CASES if c.name == name)
    model = from_graphdef(case.graph, list(case.outputs), checkpoint=case.variables)
    graph = model.to_graph()
    session = gc.Session(graph.graph)
    session.run(list(graph.outputs.values()), {graph.inputs[k]: v for k, v in case.inputs.items()})
    assert graph.updates
    for name, variable in graph.variables.items():
        assert_near(session.get(variable), case.after[name], rtol=1e-5, atol=1e-6)


def test_the_page_of_operators_is_that_of_the_rules() -> None:
    place = Path(gc.__file__).parents[1] / "docs" / "make_tensorflow_ops.py"
    spec = importlib.util.spec_from_file_location("make_tensorflow_ops", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run python docs/make_tensorflow_ops.py"
