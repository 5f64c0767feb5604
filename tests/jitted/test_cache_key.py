"""`gc.jit(cache_key=)`: a second start traces nothing unless something differs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import KW_ONLY, MISSING, dataclass, field
from enum import Enum
from functools import partial
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
    for _ in range(2):

        def held(x: Any) -> Any:
            calls.append(1)
            return x @ weights

        gc.jit(held, cache_key="held")(np.ones((2, 64), np.float32))
    assert len(calls) == 2


@pytest.mark.slow
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
        _, again = trained(forbidden)  # the record was repaired
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
    """A stored program accepts states from a traced program, and the other way round."""
    jitted, (params, opt_state, _) = trained(step)
    other = gc.jit(forbidden, donate_argnums=(0, 1), cache_key=KEY)
    params, opt_state, _ = other(params, opt_state, X)
    params, opt_state, _ = jitted(params, opt_state, X)
    want = train(jax.jit(step), 5)
    assert_trees_near(gc.unpack((params, opt_state)), want[:2])
    assert int(TX.init(init())[0].count) == 0


class Scale:
    """A static argument whose text does not identify it."""

    def __init__(self, by: int) -> None:
        self.by = by

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scale) and self.by == other.by

    def __hash__(self) -> int:
        return hash(self.by)

    def __repr__(self) -> str:
        return "Scale()"


class Addressed(Scale):
    """A static argument whose text is an address, which another object may get later."""

    __hash__ = Scale.__hash__
    __repr__ = object.__repr__


class Holder:
    def __init__(self, x: Any, scale: Any) -> None:
        self.x, self.scale = x, scale


jax.tree_util.register_pytree_node(
    Holder, lambda node: ((node.x,), node.scale), lambda scale, leaves: Holder(leaves[0], scale)
)


@pytest.mark.parametrize("kind", [Scale, Addressed])
def test_static_arguments_with_the_same_text(kind: type[Scale]) -> None:
    for by in range(1, 12):
        jitted = gc.jit(lambda x, s: x * s.by, static_argnums=1, cache_key="scales")
        assert float(jitted(X, kind(by))[0, 0]) == -by
        assert "traced in each process: nothing identifies" in jitted.notes[0]


@pytest.mark.parametrize("kind", [Scale, Addressed])
def test_metadata_with_the_same_text(kind: type[Scale]) -> None:
    for by in range(1, 12):
        jitted = gc.jit(lambda node: node.x * node.scale.by, cache_key="holders")
        assert float(jitted(Holder(X, kind(by)))[0, 0]) == -by


class Kind(Enum):
    SUM = 1
    MEAN = 2


@dataclass(frozen=True)
class Config:
    kind: Kind
    scale: float = field(repr=False, default=1.0)
    names: tuple[str, ...] = ()


STATICS: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    ("1", 1),
    (1, np.int32(1)),
    (np.float32(1), np.float64(1)),
    (Kind.SUM, Kind.MEAN),
    (Config(Kind.SUM, 1.0), Config(Kind.SUM, 2.0)),
    (jax.numpy.sin, jax.numpy.cos),
    (np.float32, np.float64),
    (np.dtype("float32"), np.dtype("float64")),
    (partial(jax.nn.leaky_relu, negative_slope=1), partial(jax.nn.leaky_relu, negative_slope=2)),
    (frozenset({"a"}), frozenset({"b"})),
    (None, ()),
    (MISSING, KW_ONLY),
]


@pytest.mark.parametrize(("one", "other"), STATICS, ids=map(str, range(len(STATICS))))
def test_static_arguments_of_many_kinds(one: Any, other: Any) -> None:
    def chosen(x: Any, which: Any) -> Any:
        return x + (1 if which is one else 2)

    key = f"kinds {one} {other}"
    for which, added in ((one, 1), (other, 2)):
        jitted = gc.jit(chosen, static_argnums=1, cache_key=key)
        assert float(jitted(X, which)[0, 0]) == added - 1
        second = gc.jit(lambda x, which: forbidden(), static_argnums=1, cache_key=key)
        assert float(second(X, which)[0, 0]) == added - 1
        assert second.notes == []


def test_named_settings_are_part_of_the_key() -> None:
    def drawn(key: Any) -> Any:
        return jax.random.normal(key, (3,))

    key = jax.random.key(0)
    gc.jit(drawn, cache_key="drawn")(key)
    with jax.threefry_partitionable(False):
        got = gc.jit(drawn, cache_key="drawn")(key)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(drawn(key)))
    with jax.default_prng_impl("rbg"):
        for function in (drawn, forbidden):  # a key's words belong to threefry
            split = jax.random.split if function is drawn else function
            new = gc.jit(lambda k, f=split: f(k), cache_key="split")(key)
            assert new.dtype == key.dtype


def test_forged_types_of_results_are_traced_again() -> None:
    def pair(x: Any, key: Any) -> Any:
        return x + 1, key, {"n": 2}

    given = X, jax.random.key(0)
    gc.jit(pair, cache_key="pair")(*given)
    cache = open_cache(gc.CompileOptions())
    assert cache is not None
    (key,) = [e.key for e in cache.entries() if "call" in (e.metadata or {})]
    entry = cache.get(key)
    assert entry is not None
    good = json.loads(json.dumps(entry.metadata))
    key_aval = good["call"]["avals"][1]
    for name, value in (
        ("results", [1, 0, 2]),
        ("results", [0, 1, -1]),
        ("avals", [key_aval, key_aval, good["call"]["avals"][2]]),
        ("feeds", 3),
        ("variables", [[{}, 0, 1, 2]]),
        ("executable", []),
    ):
        cache.put(key, {**good, "call": {**good["call"], name: value}}, b"")
        y, new, rest = gc.jit(pair, cache_key="pair")(*given)
        np.testing.assert_array_equal(np.asarray(y), X + 1)
        assert (new.dtype, int(rest["n"])) == (given[1].dtype, 2)


GLOBAL = Scale(1)


def test_objects_of_modules_with_content_are_not_known_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for by in (1, 2):
        monkeypatch.setattr(sys.modules[__name__], "GLOBAL", Scale(by))
        jitted = gc.jit(lambda x, s: x * s.by, static_argnums=1, cache_key="global")
        assert float(jitted(X, GLOBAL)[0, 0]) == -by


NOTEBOOK = """
import graphc as gc, numpy as np
x = np.ones(2, np.float32)
def act(x): return x * 2
print(gc.jit(lambda x, f: f(x), static_argnums=1, cache_key="notebook")(x, act)[0])
def act(x): return x * 3
print(gc.jit(lambda x, f: f(x), static_argnums=1, cache_key="notebook")(x, act)[0])
"""


@pytest.mark.slow
def test_a_function_that_a_notebook_defines_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["2.0", "3.0"]
