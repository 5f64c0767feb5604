"""Each operator as ONNX: its law cases run in onnxruntime and give NumPy's results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime
from onnx.reference import ReferenceEvaluator

import graphc as gc
from graphc.exporters.onnx.table import RULES, WITHOUT_RULE
from graphc.ir.dtypes import is_complex
from graphc.ops.catalogue import CATALOGUE
from tests.laws.case import Case
from tests.laws.harness import Built, build_case, families, tolerance, widened
from tests.near import assert_near

CASES: dict[str, list[Case]] = {}
for _cases in families().values():
    for _case in _cases:
        CASES.setdefault(_case.op, []).append(_case)
TESTED = sorted(name for name in RULES if any(case.oracle for case in CASES.get(name, ())))

# Rules whose operators have no law case or no oracle, and the tests that cover them.
ELSEWHERE = {
    "Map": "test_models.py: only the pass GroupAlike makes it",
    "LocalBatchNorm": "test_models.py: differs by the number of devices",
}
# Cases that neither onnxruntime nor the reference runs as ONNX defines them.
NOT_RUN = {
    ("ConvInputGradient", "two groups", "float64"): "the reference takes one group",
    **dict.fromkeys(
        [("LocalResponseNorm", label, "float64") for label in ("", "many neighbours")]
        + [("LocalResponseNorm", "", "bfloat16")],
        "onnxruntime has no kernel, and the reference reads beyond the channels",
    ),
    ("Scan", "fori_loop without a turn", "float32"): "onnxruntime slices no empty arrays",
    ("Scan", "fori_loop without a turn", "float64"): "onnxruntime slices no empty arrays",
}
_NO_KERNEL = (
    "NOT_IMPLEMENTED|NotImplemented|can't be converted|not supported|Unable to handle object"
    "|No corresponding Numpy type"
)


def test_each_operator_has_a_rule_or_a_reason() -> None:
    assert not set(RULES) & set(WITHOUT_RULE)
    assert set(RULES) | set(WITHOUT_RULE) == set(CATALOGUE)


def test_each_rule_is_tested() -> None:
    assert set(RULES) - set(TESTED) == set(ELSEWHERE)


def results(path: Path, graph: gc.Graph, built: Sequence[Built]) -> Sequence[Any]:
    """The results of onnxruntime, or of the reference for the cases without a kernel."""
    feeds = export(path, graph, built)
    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        found: Sequence[Any] = session.run(None, feeds)
    except Exception as error:
        if not re.search(_NO_KERNEL, str(error)):
            raise
        if len(built) > 1:  # each case alone: one without a kernel hides no other
            return [y for each in built for y in results(path, graph, [each])]
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(str(path)).run(None, feeds)
    return found


def is_real(case: Case, dtype: str) -> bool:
    """Whether no tensor of the case is complex."""
    scratch = gc.Graph()
    with scratch:
        build_case(case, dtype, "x")
    return not any(is_complex(t.dtype) for node in scratch.nodes for t in node.outputs)


def export(path: Path, graph: gc.Graph, built: Sequence[Built]) -> dict[str, Any]:
    """Writes the cases as one model, and returns what it is fed."""
    inputs = {t.node.name: t for each in built for t in each.tensors}
    outputs = {f"y{i}_{j}": t for i, each in enumerate(built) for j, t in enumerate(each.outputs)}
    gc.to_onnx(gc.Session(graph), path, gc.Signature(inputs, outputs))
    return {
        t.node.name: a for each in built for t, a in zip(each.tensors, each.arrays, strict=True)
    }


@pytest.mark.parametrize("op", TESTED)
def test_an_operator_means_the_same(op: str, tmp_path: Path) -> None:
    for dtype in dict.fromkeys(d for case in CASES[op] for d in case.dtypes):
        graph = gc.Graph()
        with graph:
            built = [
                build_case(case, dtype, f"x{i}")
                for i, case in enumerate(CASES[op])
                if dtype in case.dtypes
                and (op, case.label, dtype) not in NOT_RUN
                and case.oracle
                and is_real(case, dtype)
            ]
        if not built:
            continue
        found = iter(results(tmp_path / "model.onnx", graph, built))
        for each in built:
            with np.errstate(all="ignore"):
                wanted = each.case.oracle(*map(widened, each.arrays))
            wanted = wanted if isinstance(wanted, (tuple, list)) else (wanted,)
            for got, want in zip([next(found) for _ in each.outputs], wanted, strict=True):
                check(each, np.asarray(got), want)


def check(built: Built, got: Any, want: Any) -> None:
    wide = np.float64 if got.dtype.kind not in "iub" else got.dtype
    assert got.shape == np.shape(want), built.title
    near = tolerance(built.case, got.dtype)
    if built.case.op == "Erfc":  # ONNX has only 1 - erf(x)
        near["atol"] = 1e-6
    assert_near(got.astype(wide), np.asarray(want).astype(wide), **near, err_msg=built.title)


@pytest.mark.parametrize("size", [0, "n"])
def test_reductions_of_no_elements(size: int | str, tmp_path: Path) -> None:
    with gc.Graph() as graph:
        xs = {t: gc.placeholder((3, size), t, name=t) for t in ("bool", "int32", "float32")}
        ys = {"any": gc.any(xs["bool"], 1), "all": gc.all(xs["bool"], 1)}
        for dtype, start in (("bool", False), ("bool", True), ("int32", -7), ("float32", 0.5)):
            for extreme in (gc.max, gc.min):
                name = f"{extreme.__name__}_{dtype}_{start}".replace("-", "_").replace(".", "_")
                ys[name] = extreme(xs[dtype], 1, initial=start)
    session, path = gc.Session(graph), tmp_path / "model.onnx"
    gc.to_onnx(session, path, gc.Signature(xs, ys))
    runtime = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for count in {0, size if isinstance(size, int) else 2}:
        feeds = {t: np.ones((3, count), t) for t in xs}
        wanted = session.run(list(ys.values()), {xs[t]: feeds[t] for t in xs})
        for name, got, want in zip(ys, runtime.run(list(ys), feeds), wanted, strict=True):
            assert np.array_equal(got, want), name
