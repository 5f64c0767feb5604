"""The backend tests of the package onnx, imported into graphc and exported again.

    python -m benchmarks.onnx_back --out build/onnx_back.json [--only REGEX] [--kind node]

A case is imported as in `benchmarks.onnx_suite`, and written by `gc.to_onnx` with its original
names. The result runs in onnxruntime, or in onnx's reference implementation if onnxruntime lacks
some operator, and its outputs are compared with those of the case.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onnx_suite import KINDS, SuiteCase, cases, difference, source_of, tries


def run_case(case: SuiteCase) -> str:
    """ "equal", or the reason why not."""
    import graphc as gc

    reason = ""
    for how, known, feeds in tries(case):
        if how == "all fixed":  # nothing would be left to export
            break
        try:
            model = gc.from_onnx(source_of(case), fixed=known).to_graph()
        except gc.errors.ModelImportError as error:
            reason = f"not imported: {error.what}"
            continue
        return _there_and_back(case, model, feeds)
    return reason


def _there_and_back(case: SuiteCase, model: Any, feeds: dict[str, Any]) -> str:
    import graphc as gc

    signature = model.signature()
    names = dict(zip(signature.inputs, model.inputs, strict=True))
    names |= dict(zip(signature.outputs, model.outputs, strict=True))
    with tempfile.TemporaryDirectory() as folder, gc.Session(model.graph) as session:
        path = f"{folder}/model.onnx"
        try:
            gc.to_onnx(session, path, signature, names=names)
        except gc.errors.ModelExportError as error:
            details = re.sub(r"'[^']*'", "", "; ".join(error.details[:1]))
            return f"not exported: {error.what} {details}"
        except gc.errors.GraphcError as error:
            return f"not exported: {type(error).__name__} {error.what}"
        how, got = run_model(path, feeds)
    if got is None:
        return how
    pairs = list(zip(got, case.outputs, strict=True))
    if any(a.dtype.kind in "iu" and np.asarray(b).dtype.kind in "OSU" for a, b in pairs):
        return "not exported: a graph has numbers of words in place of strings"
    for number, (a, b) in enumerate(pairs):
        wrong = difference(a, b, case)
        if wrong:
            return f"{how}: output {number}: {wrong}"
    return "equal"


def run_model(path: str, feeds: dict[str, Any]) -> tuple[str, list[Any] | None]:
    """(what ran the model, its outputs), or (why nothing can run it, None)."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        taken = {port.name: feeds[port.name] for port in session.get_inputs()}
        types = [port.type for port in session.get_outputs()]
        if not any("float8" in type_ for type_ in types):  # which are given as uint8
            return "onnxruntime", session.run(None, taken)
        first = "it has no arrays of float8"
    except Exception as error:
        first = str(error)
    try:
        evaluator = ReferenceEvaluator(path)
        taken = {name: feeds[name] for name in evaluator.input_names}
        return "reference", evaluator.run(None, taken)
    except Exception as error:
        return f"not run: {first[:150]}; {type(error).__name__}: {str(error)[:100]}", None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/onnx_back.json"))
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", default="")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = {}
    begin = time.monotonic()
    kinds = tuple(options.kind.split(",")) if options.kind else KINDS
    for number, case in enumerate(cases(kinds, options.only)):
        try:
            result = run_case(case)
        except Exception as error:  # an error in graphc: the table shows it
            result = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        found[f"{case.kind}/{case.name}"] = result
        if number % 200 == 0:
            print(number, f"{time.monotonic() - begin:.0f} s", flush=True)
    options.out.write_text(json.dumps(found, indent=1))
    count = Counter(v.partition(":")[0] for v in found.values())
    tried = len(found) - count["not imported"]
    print(dict(count), f"{count['equal'] / max(tried, 1):.4f} of those imported")


if __name__ == "__main__":
    main()
