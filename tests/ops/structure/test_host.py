"""Python functions and prints in a run: how often and in what order they run, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.config import CompileOptions
from graphc.errors import (
    ArtifactError,
    AttributeValueError,
    ExecutionError,
    GradientError,
    GraphcError,
    SerialError,
    ShapeError,
    TextError,
)
from graphc.ir.parse import parse_program
from graphc.ir.serial import dump_graph
from graphc.ops.catalogue import CATALOGUE

Array = np.ndarray[Any, Any]


def test_results_of_every_kind() -> None:
    def spectrum(a: Array, scale: Array) -> Any:
        return {"sorted": np.sort(a, 1) * scale, "count": a.shape[0], "wide": a.astype("f8") / 3}

    with gc.Graph() as graph:
        x = gc.placeholder(("batch", 3), name="x")
        specs = {
            "sorted": x,
            "count": gc.TensorSpec((), "int32"),
            "wide": gc.TensorSpec(("batch", 3), "float64"),
        }
        results = gc.py_callback(spectrum, specs, x, 2.0, pure=True)
    assert results["wide"].shape == x.shape and results["wide"].dtype == np.float64
    session = gc.Session(graph)
    for batch in (2, 5):
        value = np.random.default_rng(batch).normal(size=(batch, 3)).astype(np.float32)
        got = session.run(results, {x: value})
        np.testing.assert_array_equal(got["sorted"], np.sort(value, 1) * 2)
        np.testing.assert_array_equal(got["wide"], value.astype("f8") / 3)
        assert got["count"] == batch


def test_calls_are_made_in_program_order_once_in_each_run() -> None:
    calls: list[Any] = []

    def note(label: str) -> Any:
        return lambda value: calls.append((label, float(value)))

    with gc.Graph() as graph:
        v = gc.variable(0.0, name="v")
        before = gc.py_callback(note("before"), None, v)
        step = v.assign_add(1.0)
        after = gc.py_callback(note("after"), None, v)
        left_out = gc.py_callback(note("left out"), None, v)
    session = gc.Session(graph)
    for _ in range(2):
        assert session.run([after, step, before])[0] is None
    assert calls == [("before", 0), ("after", 1), ("before", 1), ("after", 2)]
    session.run(left_out)
    assert calls[-1] == ("left out", 2)


def test_control_dependencies_choose_a_call() -> None:
    calls = []
    with gc.Graph() as graph:
        x = gc.placeholder((), name="x")
        node = gc.py_callback(lambda a: calls.append(float(a)), None, x)
        with gc.control_dependencies([node]):
            y = gc.identity(x * 2)
    assert gc.Session(graph).run(y, {x: 3.0}) == 6.0
    assert calls == [3.0]


def test_calls_in_loops_and_branches() -> None:
    seen: list[Any] = []

    def turn(carry: Any, a: Any) -> Any:
        gc.py_callback(lambda i, v: seen.append((int(i), float(v))), None, carry, a)
        return carry + 1, a

    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        last, _ = gc.scan(turn, gc.constant(0), x)
        chosen = gc.cond(
            gc.reduce_sum(x) > 0,
            lambda: gc.py_callback(lambda: np.float32(7), gc.TensorSpec(())),
            lambda: gc.constant(0.0),
        )
    assert gc.Session(graph).run([last, chosen], {x: np.arange(3.0, dtype="f4")}) == [3, 7.0]
    assert seen == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_prints(capfd: pytest.CaptureFixture[str]) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((2,), name="x")
        first = gc.print("x = {} and {:.2f}, {{}}", x, x[1])
        second = gc.print(x)
    gc.Session(graph).run([second, first], {x: np.array([1.5, 2.25], np.float32)})
    assert capfd.readouterr().out == "x = [1.5  2.25] and 2.25, {}\n[1.5  2.25]\n"


def test_nothing_is_donated_or_kept(tmp_path: Any) -> None:
    with gc.Graph() as graph:
        v = gc.variable(np.zeros(3, np.float32), name="v")
        step = v.assign_add(1.0)
        shown = gc.print(v)
    executable = gc.compile(
        graph, [step, shown], options=CompileOptions(cache=str(tmp_path / "cache"))
    )
    assert executable.cache_key is None
    state = executable.init()
    _, new = executable(state, {})
    np.testing.assert_array_equal(state["v"], np.zeros(3))
    np.testing.assert_array_equal(new["v"], np.ones(3))


def test_what_a_function_does_wrong_fails_the_run_and_keeps_the_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((), name="x")
        v = gc.variable(1.0, name="v")
        bad = gc.py_callback(lambda a: np.zeros(2, "f4"), gc.TensorSpec((3,)), x)
        worse = gc.py_callback(lambda a: np.float64(a), gc.TensorSpec(()), x)
        other = gc.py_callback(lambda a: (a, a), gc.TensorSpec(()), x)
        raising = gc.py_callback(lambda a: 1 // 0, gc.TensorSpec((), "int32"), x)
        step = v.assign(x)
    session = gc.Session(graph)
    for fetch, text in (
        (bad, r"returned shape \(2,\), declared is f32\[3\]"),
        (worse, r"returned float64, declared is f32\[\]"),
        (other, "declared is"),
        (raising, "division"),
    ):
        caplog.clear()
        with pytest.raises(ExecutionError, match=text) as info:
            session.run([fetch, step], {x: 2.0})
        assert "Traceback" not in str(info.value) and "File" not in str(info.value)
        assert "test_host.py:" in str(info.value)  # the line of the node or of the error
        assert caplog.records == []  # JAX does not say it again
    assert session.get("v") == 1.0
    assert session.run(step, {x: 3.0}) == 3.0


def test_on_several_devices_the_first_calls() -> None:
    calls: list[Array] = []

    def half(a: Array) -> Array:
        calls.append(a)
        return a / 2

    with gc.Graph() as graph:
        x = gc.placeholder((None, 2), name="x")
        y = gc.py_callback(half, x, x * 1.0)
        pure = gc.py_callback(lambda a: a * 3, x, x, pure=True)
        total = gc.reduce_sum(y)
    value = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(2))
    got = session.run([y, pure, total], {x: value})
    np.testing.assert_array_equal(got[0], value / 2)
    np.testing.assert_array_equal(got[1], value * 3)
    assert got[2] == value.sum() / 2
    assert len(calls) == 1
    np.testing.assert_array_equal(calls[0], value)


@pytest.mark.parametrize("replicas", [None, 2])
@pytest.mark.parametrize("pure", [True, False])
def test_wide_values_stay_wide(replicas: int | None, pure: bool) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "float64": rng.normal(size=(4, 3)),
        "int64": rng.integers(-(2**62), 2**62, (4, 3)),
        "complex128": rng.normal(size=(4, 3)) + 1j * rng.normal(size=(4, 3)),
        "uint64": rng.integers(0, 2**63, (4,), np.uint64) * 2 + 1,
        "bool": rng.normal(size=(4,)) > 0,
    }
    with gc.Graph() as graph:
        xs = [gc.placeholder((None, *a.shape[1:]), t, name=t) for t, a in arrays.items()]
        ys = gc.py_callback(lambda *values: list(values), xs, *xs, pure=pure)
    strategy = None if replicas is None else gc.devices.DataParallel(replicas)
    got = gc.Session(graph, strategy=strategy).run(ys, arrays)
    for a, b in zip(got, arrays.values(), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_gradients_stop_with_an_error() -> None:
    with gc.Graph():
        x = gc.placeholder((3,), name="x")
        for pure in (True, False):
            y = gc.py_callback(np.sin, x, x, pure=pure)
            with pytest.raises(GradientError, match="a Python function cannot be differentiated"):
                gc.gradients(gc.reduce_sum(y), x)
            assert (
                gc.gradients(gc.reduce_sum(y + x), gc.stop_gradient(x), unconnected="none") is None
            )


def test_texts_show_functions_and_are_not_read_back() -> None:
    with gc.Graph() as graph:
        y = gc.py_callback(np.random.default_rng, gc.TensorSpec((3,)))
    program = gc.Program("p", (), (graph.producer(y),), ())
    text = str(program)
    assert 'function=function("default_rng")' in text
    with pytest.raises(TextError, match="a Python function cannot be read from a text"):
        parse_program(text, CATALOGUE)
    with pytest.raises(SerialError, match=r"PyCallback.*function cannot be serialised"):
        dump_graph(graph)


def test_nothing_that_calls_back_is_saved(tmp_path: Any) -> None:
    with gc.Graph() as graph:
        x = gc.placeholder((3,), name="x")
        y = gc.py_callback(np.sin, x, x, pure=True)
    signatures = {"run": gc.Signature({"x": x}, {"y": y})}
    with pytest.raises(ArtifactError, match="'run' prints or calls a Python function"):
        gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures=signatures)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda x: gc.py_callback(3, x, x), AttributeValueError, "3 is not a function"),
        (lambda x: gc.py_callback(np.sin, None, x, pure=True), AttributeValueError, "does nothing"),
        (lambda x: gc.py_callback(np.sin, "f32", x), AttributeValueError, "has no shape and dtype"),
        (lambda x: gc.py_callback(np.sin, gc.TensorSpec((None,)), x), ShapeError, "must be known"),
        (lambda x: gc.print("{} {}", x), AttributeValueError, "does not fit 1 values"),
        (lambda x: gc.print("{name}", x), AttributeValueError, "does not fit"),
    ],
)
def test_errors(build: Any, error: type[GraphcError], text: str) -> None:
    with gc.Graph():
        x = gc.placeholder((3,), name="x")
        with pytest.raises(error, match=text) as caught:
            build(x)
    assert "test_host.py" in str(caught.value.source)
