"""`gc.jit(cache_key=)`: a second start traces nothing; whatever differs is traced."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, GraphError
from graphc.jitted.arguments import kind_of_leaf
from graphc.runtime.core.counters import COUNTERS
from graphc.store.folder import open_cache
from tests.jitted.test_packed import TX, X, assert_trees_near, init, step, train

KEY = "layers, version 1"


def forbidden(*args: Any) -> Any:
    raise AssertionError("the function was traced")


def trained(function: Any, key: str = KEY, n: int = 3, x: Any = X, **more: Any) -> Any:
    jitted = gc.jit(function, donate_argnums=(0, 1), cache_key=key, **more)
    return jitted, train(jitted, n, x)


def test_a_second_function_is_not_traced() -> None:
    _, first = trained(step)
    before = COUNTERS.captures, COUNTERS.compiles, COUNTERS.traces, COUNTERS.passes
    jitted, second = trained(forbidden)
    assert (COUNTERS.captures, COUNTERS.compiles, COUNTERS.traces, COUNTERS.passes) == before
    assert [type(tree).__name__ for tree in second] == ["PackedTree", "PackedTree", "dict"]
    assert_trees_near(gc.unpack(second), gc.unpack(first))
    assert jitted.memory()["temporaries"] > 0
    assert jitted.report().rows
    with pytest.raises(GraphError, match="its function was not traced"):
        jitted.executable.stablehlo()


@pytest.mark.parametrize(
    "change",
    [
        {"key": "layers, version 2"},
        {"x": X[:3]},
        {"x": X.astype(np.float16)},
        {"options": gc.CompileOptions(pipeline="O1")},
        {"strategy": gc.devices.DataParallel(2)},
    ],
    ids=str,
)
def test_what_differs_is_traced(change: dict[str, Any]) -> None:
    trained(step)
    with pytest.raises(AssertionError, match="was traced"):
        trained(forbidden, **change)


def test_static_values_and_settings_are_part_of_the_key() -> None:
    def scaled(x: Any, n: int) -> Any:
        return x * n

    for n in (2, 3):
        gc.jit(scaled, static_argnums=1, cache_key="scaled")(X, n)
    second = gc.jit(lambda x, n: forbidden(), static_argnums=1, cache_key="scaled")
    assert float(second(X, 3)[0, 0]) == -3.0
    with pytest.raises(AssertionError, match="was traced"):
        second(X, 4)
    with jax.enable_x64(True), pytest.raises(AssertionError, match="was traced"):
        second(X, 3)


def test_results_of_many_kinds() -> None:
    def many(key: Any, x: Any) -> Any:
        new, own = jax.random.split(key)
        return {
            "key": new,
            "x": [x, x + jax.random.normal(own, x.shape)],
            "none": {3: None, 4: (1, x)},
        }

    key = jax.random.key(2)
    first = gc.jit(many, cache_key="many")(key, X)
    second = gc.jit(forbidden, cache_key="many")(key, X)
    assert jax.tree.structure(second) == jax.tree.structure(first)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert kind_of_leaf(a.aval) == kind_of_leaf(b.aval)
        if a.dtype == key.dtype:
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_data_parallel_step_is_not_traced() -> None:
    strategy = gc.devices.DataParallel(2)
    _, first = trained(step, strategy=strategy)
    _, second = trained(forbidden, strategy=strategy)
    assert_trees_near(gc.unpack(second), gc.unpack(first))


def test_what_no_record_can_hold_is_traced_again() -> None:
    weights = jax.numpy.ones((64, 64))
    calls = []

    def held(x: Any) -> Any:
        calls.append(1)
        return x @ weights

    for _ in range(2):
        gc.jit(held, cache_key="held")(np.ones((2, 64), np.float32))
    assert len(calls) == 2


def test_forged_records_are_traced_again() -> None:
    trained(step)
    cache = open_cache(gc.CompileOptions())
    assert cache is not None
    (key,) = [e.key for e in cache.entries() if "call" in (e.metadata or {})]
    entry = cache.get(key)
    assert entry is not None
    good = json.loads(json.dumps(entry.metadata))
    changes: list[tuple[str, Any]] = [
        ("tree", {"tuple": ["*"]}),
        ("tree", {"like": [9, 9]}),
        ("tree", 3),
        ("executable", "0" * 64),
        ("results", ["nothing"]),
        ("results", [99]),
        ("variables", []),
        ("feeds", [[7, 7]]),
        ("segments", [["a", "b"]]),
        ("avals", []),
    ]
    for name, value in changes:
        cache.put(key, {**good, "call": {**good["call"], name: value}}, b"")
        _, got = trained(step)
        assert_trees_near(gc.unpack(got), train(jax.jit(step), 3))
        _, again = trained(forbidden)  # the record is good again
        assert_trees_near(gc.unpack(again), gc.unpack(got))
    cache.put(key, {**good, "call": None}, b"")
    trained(step)


CHILD = """
import graphc as gc, numpy as np
from tests.jitted.test_packed import TX, X, init, step, train
from tests.jitted.test_cache_key import forbidden
import sys
function = step if sys.argv[1] == "first" else forbidden
params, opt_state, metrics = train(gc.jit(function, donate_argnums=(0, 1), cache_key="child"), 3)
print(float(metrics["loss"]))
"""


@pytest.mark.slow
def test_a_fresh_process_traces_nothing() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", CHILD, which], capture_output=True, text=True, check=True
        ).stdout
        for which in ("first", "second")
    ]
    assert found[0] == found[1]


def test_a_wrong_key() -> None:
    with pytest.raises(AttributeValueError, match="cache_key must be a text, got 3"):
        gc.jit(step, cache_key=3)


def test_one_process_uses_both_names_of_a_state() -> None:
    """States that a traced program made are taken by one that was found, and the other way."""
    jitted, (params, opt_state, _) = trained(step)
    other = gc.jit(forbidden, donate_argnums=(0, 1), cache_key=KEY)
    params, opt_state, _ = other(params, opt_state, X)
    params, opt_state, _ = jitted(params, opt_state, X)
    want = train(jax.jit(step), 5)
    assert_trees_near(gc.unpack((params, opt_state)), want[:2])
    assert int(TX.init(init())[0].count) == 0
