"""The backend tests of the package onnx, run on graphc.

    python -m benchmarks.onnx_suite --out build/onnx_suite.json [--only REGEX] [--kind node]

A case is imported with all of its inputs as inputs of the layer. If the importer needs values at
import, the case is imported again with the inputs that are not floats fixed to its values, then
with all inputs but the first fixed, and then with all fixed. The result states which of these
passed: "run", "some fixed" or "all fixed" (computed at import, nothing is compiled).
Results are kept in a JSON file after every 50 cases; a second call continues.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The suite compiles much and runs little: see conftest.py.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The expected values are rounded to bfloat16 after each operator.
os.environ.setdefault("XLA_FLAGS", "--xla_allow_excess_precision=false")

import numpy as np

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
PASSED = ("run", "some fixed", "all fixed")


@dataclass(frozen=True)
class SuiteCase:
    """One case.

    Attributes:
        kind: the part of the suite.
        model: the `ModelProto`.
        folder: the folder of the model, if it is in a file.
        inputs, outputs: the values of the first data set.
    """

    name: str
    kind: str
    model: Any
    folder: Path | None
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


def cases(kinds: tuple[str, ...] = KINDS, only: str = "") -> Iterator[SuiteCase]:
    """The cases in the package onnx whose names match a pattern."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    for kind in kinds:
        for case in load_model_tests(kind=kind):
            if not re.search(only, f"{kind}/{case.name}"):
                continue
            folder = None if case.model_dir is None else Path(case.model_dir)
            if case.model is None and (folder is None or not (folder / "model.onnx").exists()):
                continue  # this model would need a download
            model = case.model or onnx.load(folder / "model.onnx")
            ports = ports_of(model)
            if case.data_sets:
                inputs, outputs = case.data_sets[0]
            else:
                first = min(folder.glob("test_data_set_*"))
                inputs = values(first, "input", ports)
                outputs = values(first, "output", model.graph.output)
            settings = case.rtol, case.atol
            arrays = [list(map(plain, side)) for side in (inputs, outputs)]
            yield SuiteCase(case.name, kind, model, folder, *arrays, *settings)


def plain(value: Any) -> Any:
    """A value of a data set as an array."""
    import onnx
    from onnx import numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def ports_of(model: Any) -> list[Any]:
    """The inputs that are not initializers."""
    held = {t.name for t in model.graph.initializer}
    return [port for port in model.graph.input if port.name not in held]


def read_value(path: Path, type: Any) -> Any:
    """A value in a .pb file, of a type of the model."""
    import onnx
    from onnx import numpy_helper

    kind = type.WhichOneof("value")
    data = path.read_bytes()
    if kind == "tensor_type":
        tensor = onnx.TensorProto()
        tensor.ParseFromString(data)
        return numpy_helper.to_array(tensor)
    if kind == "sequence_type":
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(data)
        return numpy_helper.to_list(sequence)
    optional = onnx.OptionalProto()
    optional.ParseFromString(data)
    return numpy_helper.to_optional(optional)


def values(folder: Path, what: str, ports: Any) -> list[Any]:
    """The inputs or outputs of a data set."""
    return [read_value(folder / f"{what}_{i}.pb", port.type) for i, port in enumerate(ports)]


def source_of(case: SuiteCase) -> Any:
    """The input of `gc.from_onnx`: a message, or a file with further files in its folder."""
    return case.model if case.folder is None else str(case.folder / "model.onnx")


def tries(case: SuiteCase) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The ways to import a case, in this order: (one of `PASSED`, fixed inputs, fed inputs)."""
    names = [port.name for port in ports_of(case.model)]
    given = dict(zip(names, case.inputs, strict=False))
    floats = {n for n, v in given.items() if isinstance(v, np.ndarray) and v.dtype.kind in "fcV"}
    for how, fixed in (
        ("run", set()),
        ("some fixed", set(given) - floats),
        ("some fixed", set(given) - set(names[:1])),
        ("all fixed", set(given)),
    ):
        known = {name: value for name, value in given.items() if name in fixed}
        yield how, known, {name: value for name, value in given.items() if name not in fixed}


def run_case(case: SuiteCase) -> str:
    """How the case passed: one of `PASSED`; otherwise why it failed."""
    import graphc as gc
    from graphc.importers.onnx.entry import compute_known

    source, reason = source_of(case), ""
    for how, known, feeds in tries(case):
        try:
            if how == "all fixed":
                got = compute_known(source, known)
            else:
                got = _results(gc.from_onnx(source, fixed=known), feeds)
        except gc.errors.GraphcError as error:
            reason = f"{type(error).__name__}: {error.what}; {'; '.join(error.details[:2])}"
            if isinstance(error, gc.errors.ModelImportError):
                continue
            return reason
        for number, (a, b) in enumerate(zip(got, case.outputs, strict=True)):
            wrong = difference(a, b, case)
            if wrong:
                return f"output {number}: {wrong}"
        return how
    return reason


def _results(model: Any, given: dict[str, Any]) -> list[Any]:
    import graphc as gc

    alone = model.to_graph()
    words, texts = alone.input_vocabularies, alone.output_vocabularies
    feeds = {
        alone.inputs[name]: words[name].ids(value) if name in words else value
        for name, value in given.items()
    }
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        found = session.run(list(alone.outputs.values()), feeds)
    return [
        _text(texts[name].strings(value)) if name in texts else np.asarray(value)
        for name, value in zip(alone.outputs, found, strict=True)
    ]


def _text(words: Any) -> Any:
    """Words as str objects."""
    flat = [word.decode() for word in words.reshape(-1).tolist()]
    return np.array(flat, object).reshape(words.shape)


def difference(got: Any, want: Any, case: SuiteCase) -> str:
    """Describes the error in a result; "" if there is none."""
    if want is None or got is None:
        return "" if got is want else f"{got!r} in place of {want!r}"
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return "a sequence of another length"
        return next(
            filter(None, map(lambda p: difference(*p, case), zip(got, want, strict=True))), ""
        )
    got = np.asarray(got)
    if got.shape != want.shape:
        return f"the shape {got.shape} in place of {want.shape}"
    if want.dtype.kind in "OUS" or got.dtype == object:
        same = got.astype(str).tolist() == want.astype(str).tolist()
        return "" if same else "other strings"
    if got.dtype != want.dtype:
        return f"the dtype {got.dtype} in place of {want.dtype}"
    if want.dtype.kind in "V" or want.dtype.name.startswith(("float8", "bfloat", "int4", "uint4")):
        got, want = got.astype(np.float32), want.astype(np.float32)
    if case.name.startswith(("test_bernoulli", "test_training_dropout", "test_dropout_random")):
        return ""  # random numbers: only shape and dtype count
    try:
        np.testing.assert_allclose(got, want, rtol=case.rtol, atol=case.atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:150]
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/onnx_suite.json"))
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--failed", action="store_true", help="again those that failed")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    begin = time.monotonic()
    kinds = tuple(options.kind.split(",")) if options.kind else KINDS
    for number, case in enumerate(cases(kinds, options.only)):
        key = f"{case.kind}/{case.name}"
        if key in found and not (options.failed and found[key] not in PASSED):
            continue
        try:
            found[key] = run_case(case)
        except Exception as error:  # an error in graphc: the table shows it
            found[key] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if number % 50 == 0:
            options.out.write_text(json.dumps(found, indent=1))
            print(
                number,
                f"{time.monotonic() - begin:.0f} s",
                Counter(v in PASSED for v in found.values()),
                flush=True,
            )
    options.out.write_text(json.dumps(found, indent=1))
    count = Counter(v if v in PASSED else "failed" for v in found.values())
    print(dict(count), f"{sum(count[p] for p in PASSED) / max(len(found), 1):.4f}")


if __name__ == "__main__":
    main()
