"""What JAX traced of an optimizer is kept: found again where it is the same, and nowhere else."""

from __future__ import annotations

import functools
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

from graphc.build import variable
from graphc.errors import AttributeValueError, CacheError
from graphc.ir.graph import Graph
from graphc.ops.catalogue import FUNCTIONS as ops
from graphc.optim import minimize
from graphc.optim.digest import digest_of
from graphc.runtime.session import Session
from tests.optim.transformations import TRANSFORMATIONS

REPOSITORY = Path(__file__).parents[2]


def build(tx: Any, folder: Any, names: tuple[str, ...] = ("kernel", "bias")) -> Graph:
    with Graph() as graph:
        w, b = (variable(np.ones(shape, np.float32), name=name) for name, shape in
                zip(names, ((4, 3), (3,)), strict=True))  # fmt: skip
        loss = ops.reduce_mean(ops.square(ops.reduce_sum(w, axis=0) + b))
        minimize(loss, tx, cache=folder)
    return graph


def description(graph: Graph) -> list[Any]:
    """Everything there is to know of a graph's nodes and variables."""
    nodes = [
        (
            node.name, node.op.name, [t.name for t in node.inputs], [t.type for t in node.outputs],
            str({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in node.attrs.items()}),
            str(node.source), node.device, node.control_inputs, [str(b) for b in node.regions],
        )
        for node in graph.nodes
    ]  # fmt: skip
    return [*nodes, *[(v.name, v.type, str(v.initial)) for v in graph.variables.values()]]


@pytest.fixture
def no_tracing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse(*args: Any) -> Any:
        raise AssertionError("traced")

    return lambda: monkeypatch.setattr("graphc.optim.traced.traced", refuse)


@pytest.mark.parametrize("label", TRANSFORMATIONS)
def test_a_second_time_nothing_is_traced_and_the_graph_is_the_same(
    label: str, tmp_path: Path, no_tracing: Any
) -> None:
    # Fresh first: a schedule of optax's may change what it holds when it is first called.
    fresh = build(TRANSFORMATIONS[label](), None)
    first = build(TRANSFORMATIONS[label](), tmp_path / "cache")
    no_tracing()
    again = build(TRANSFORMATIONS[label](), tmp_path / "cache")
    assert description(first) == description(again) == description(fresh)


def test_a_kept_optimizer_trains(tmp_path: Path, no_tracing: Any) -> None:
    values = []
    for _ in range(2):
        graph = build(optax.adamw(0.1), tmp_path / "cache")
        session = Session(graph)
        for _ in range(3):
            session.run("train", {})
        values.append(np.asarray(session.get("kernel")))
        no_tracing()
    np.testing.assert_array_equal(*values)
    assert values[0][0, 0] < 0.9


def test_every_dtype_and_value_of_a_slot_survives(tmp_path: Path, no_tracing: Any) -> None:
    state = {
        "half": jnp.full((2,), -0.1, jnp.bfloat16),
        "far": jnp.full((), -jnp.inf),
        "nan": jnp.full((3,), jnp.nan),
        "flag": jnp.ones((), bool),
        "count": jnp.full((), 2**31 - 1, jnp.int32),
        "values": jnp.arange(400, dtype=jnp.float32),
        "complex": jnp.full((2,), 1 + 2j, jnp.complex64),
    }
    tx = optax.GradientTransformation(lambda p: state, lambda g, s, p=None: (g, s))
    first = build(tx, tmp_path / "cache")
    no_tracing()
    second = build(tx, tmp_path / "cache")
    for name, value in state.items():
        for graph in (first, second):
            got = Session(graph).get(f"train/{name}")
            assert got.dtype == value.dtype
            np.testing.assert_array_equal(np.asarray(got), np.asarray(value))


# -- what is another entry ---------------------------------------------------------------------

RATE = 0.1
TABLE = np.arange(3.0)


def helper(step: Any) -> Any:
    return RATE * step


def schedule(rate: float, power: Any = 1.0, *, floor: float = 0.0) -> Any:
    return lambda step: jnp.maximum(rate / (1.0 + step) ** power, floor)


def with_default(step: Any, rate: float = 0.1) -> Any:
    return rate * step


def with_keyword(step: Any, *, rate: float = 0.1) -> Any:
    return rate * step


def nested(rate: float) -> Any:
    def outer(step: Any) -> Any:
        return (lambda s: s * rate)(step)

    return optax.chain(optax.scale_by_adam(), optax.scale_by_schedule(outer))


def rank_mask(rank: int) -> Any:
    return lambda params: jax.tree.map(lambda p: p.ndim > rank, params)


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "rate": (lambda: optax.adam(1e-3), lambda: optax.adam(2e-3)),
    "rate of another type": (lambda: optax.sgd(1), lambda: optax.sgd(1.0)),
    "sign of zero": (lambda: optax.scale(0.0), lambda: optax.scale(-0.0)),
    "last bit": (lambda: optax.scale(0.1), lambda: optax.scale(math.nextafter(0.1, 1))),
    "option": (lambda: optax.adam(1e-3), lambda: optax.adam(1e-3, nesterov=True)),
    "kind": (lambda: optax.adam(1e-3), lambda: optax.adamax(1e-3)),
    "order": (
        lambda: optax.chain(optax.clip(1.0), optax.scale(0.1)),
        lambda: optax.chain(optax.scale(0.1), optax.clip(1.0)),
    ),
    "optax's schedule": (
        lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 10)),
        lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 11)),
    ),
    "closure": (lambda: optax.sgd(schedule(0.1)), lambda: optax.sgd(schedule(0.2))),
    "array in a closure": (
        lambda: optax.sgd(schedule(0.1, np.float32(1))),
        lambda: optax.sgd(schedule(0.1, np.float32(2))),
    ),
    "weak and strong": (
        lambda: optax.sgd(schedule(0.1, jnp.asarray(1.0))),
        lambda: optax.sgd(schedule(0.1, jnp.asarray(1.0, jnp.float32))),
    ),
    "keyword in a closure": (
        lambda: optax.sgd(schedule(0.1, floor=0.0)),
        lambda: optax.sgd(schedule(0.1, floor=0.1)),
    ),
    "function in a function": (lambda: nested(0.1), lambda: nested(0.2)),
    "partial": (
        lambda: optax.sgd(functools.partial(with_default, rate=0.1)),
        lambda: optax.sgd(functools.partial(with_default, rate=0.2)),
    ),
    "code": (lambda: optax.sgd(lambda s: 0.1 * s), lambda: optax.sgd(lambda s: 0.1 + s)),
    "constant of code": (lambda: optax.sgd(lambda s: s * 1), lambda: optax.sgd(lambda s: s * 2)),
    "library function": (
        lambda: optax.sgd(lambda s: jnp.sin(s)),
        lambda: optax.sgd(lambda s: jnp.cos(s)),
    ),
    "mask": (
        lambda: optax.adamw(0.1, mask=rank_mask(1)),
        lambda: optax.adamw(0.1, mask=rank_mask(0)),
    ),
    "mask as a nest": (
        lambda: optax.masked(optax.scale(0.1), {"kernel": True, "bias": False}),
        lambda: optax.masked(optax.scale(0.1), {"kernel": False, "bias": True}),
    ),
    "label": (
        lambda: optax.partition({"a": optax.sgd(0.1), "b": optax.adam(0.1)}, lambda p: "a"),
        lambda: optax.partition({"a": optax.sgd(0.1), "b": optax.adam(0.1)}, lambda p: "b"),
    ),
    "injected": (
        lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
        lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.2),
    ),
    "injected schedule": (
        lambda: optax.inject_hyperparams(optax.adam)(learning_rate=schedule(0.1)),
        lambda: optax.inject_hyperparams(optax.adam)(learning_rate=schedule(0.2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("label", PAIRS)
def test_another_transformation_has_another_digest(label: str) -> None:
    one, other = PAIRS[label]
    digests = [digest_of(make()) for make in (one, one, other, other)]
    assert None not in digests
    assert digests[0] == digests[1] != digests[2] == digests[3]


def test_what_changes_behind_a_function_changes_its_digest(monkeypatch: Any) -> None:
    def changed(fn: Any, change: Callable[[], Any]) -> bool:
        before = digest_of(optax.sgd(fn))
        change()
        after = digest_of(optax.sgd(fn))
        assert before is not None and after is not None
        return before != after

    listed = [0.1]
    assert changed(lambda s: listed[0] * s, lambda: listed.__setitem__(0, 0.2))
    assert changed(helper, lambda: monkeypatch.setitem(globals(), "RATE", 0.2))
    assert changed(lambda s: helper(s) + 1, lambda: monkeypatch.setitem(globals(), "RATE", 0.3))
    assert changed(
        lambda s: TABLE[0] * s, lambda: monkeypatch.setitem(globals(), "TABLE", TABLE + 1)
    )
    assert changed(with_default, lambda: monkeypatch.setattr(with_default, "__defaults__", (0.2,)))
    other = {"rate": 0.2}
    assert changed(with_keyword, lambda: monkeypatch.setattr(with_keyword, "__kwdefaults__", other))


def test_a_changed_global_is_never_served_from_the_cache(tmp_path: Path, monkeypatch: Any) -> None:
    """Failing before: a digest of the closures alone would find the first entry again."""
    values = []
    for rate in (0.1, 0.4):
        monkeypatch.setitem(globals(), "RATE", rate)
        tx = optax.chain(optax.identity(), optax.scale_by_schedule(lambda s: -helper(s + 1)))
        session = Session(build(tx, tmp_path / "cache"))
        session.run("train", {})
        values.append(1 - float(session.get("kernel")[0, 0]))
    assert values[1] == pytest.approx(4 * values[0], rel=1e-5)


def test_names_types_and_settings_are_part_of_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    adam = optax.adam(0.1)

    def entries() -> int:
        return len(list(folder.glob("*")))

    build(adam, folder)
    assert entries() == 1
    build(adam, folder, ("bias", "kernel"))
    assert entries() == 2
    with jax.numpy_dtype_promotion("strict"), pytest.raises(Exception, match="promotion"):
        build(adam, folder)
    with jax.default_matmul_precision("highest"):
        build(adam, folder)
    assert entries() == 3
    with Graph():
        w = variable(np.ones(3, np.float32), name="w")
        minimize(ops.reduce_sum(w), adam, cache=folder)
        wide = ops.reduce_sum(w * ops.zeros((3,), "float64"))
        minimize(wide, adam, variables=[w], cache=folder)
    assert entries() == 5


PROGRAM = """
import json, sys
import jax, optax
from jax import numpy as jnp
from graphc.optim.digest import digest_of
from tests.optim.test_kept import PAIRS
from tests.optim.transformations import TRANSFORMATIONS
found = {f"{k} {i}": digest_of(f()) for k, pair in PAIRS.items() for i, f in enumerate(pair)}
found |= {k: digest_of(f()) for k, f in TRANSFORMATIONS.items()}
print(json.dumps(found))
"""


@pytest.mark.slow
def test_digests_are_the_same_in_every_process_and_all_different(tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):  # the second from sources, where the first may use bytecode files
        fresh = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        environment = {**os.environ, "PYTHONHASHSEED": seed, **(fresh if seed == "2" else {})}
        command = [sys.executable, "-W", "error", "-c", PROGRAM]
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
        )
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
    digests = [d for k, d in found[0].items() if k not in ("rate of another type 1", "injected 0")]
    assert None not in digests
    assert len(set(digests)) >= len(digests) - 3  # some rows build the same transformation


# -- what has no entry -------------------------------------------------------------------------

COUNTER = [0]
COUNT = 0


class Rate:
    rate = 0.1

    def __call__(self, step: Any) -> Any:
        return self.rate * step

    def method(self, step: Any) -> Any:
        return self.rate * step


def writes_a_global(step: Any) -> Any:
    global COUNT
    COUNT += 1
    return step * COUNT


def imports(step: Any) -> Any:
    import random as other

    return step * other.random()


def captures_written(step: Any = None) -> Any:
    count = 0

    def inner(step: Any) -> Any:
        nonlocal count
        count += 1
        return step * count

    return inner


def holds(value: Any) -> Any:
    return lambda step: step if value is None else step * 2


UNKNOWN: dict[str, Callable[[], Any]] = {
    "global written": lambda: writes_a_global,
    "import": lambda: imports,
    "variable outside written": captures_written,
    "clock": lambda: lambda s: s * time.time(),
    "random": lambda: lambda s: s * random.random(),
    "numpy's random": lambda: lambda s: s * np.random.rand(),
    "environment": lambda: lambda s: s * float(os.environ.get("RATE", "1")),
    "file": lambda: lambda s: s * len(open(__file__).read()),  # noqa: SIM115
    "NumPy's file": lambda: lambda s: s * np.load("rates.npy"),
    "JAX's file": lambda: lambda s: s * jnp.load("rates.npy"),
    "devices": lambda: lambda s: s * jax.device_count(),
    "module as a value": lambda: lambda s: (lambda m: m.sin(s))(jnp),
    "getattr": lambda: lambda s: getattr(jnp, "sin")(s),  # noqa: B009
    "globals": lambda: lambda s: s * globals()["RATE"],
    "dunder": lambda: lambda s: s * helper.__globals__["RATE"],
    "object": Rate,
    "method": lambda: Rate().method,
    "class": lambda: holds(Rate),
    "set": lambda: holds({"a", "b"}),
    "module in a closure": lambda: holds(np),
    "function of another kind": lambda: jax.jit(lambda s: s, static_argnums=()),
    "random function in a closure": lambda: holds(np.random.rand),
    "JAX's key": lambda: holds(jax.random.key(0)),
    "records in an array": lambda: holds(np.zeros(2, [("a", "f4"), ("b", "i4")])),
    "objects in an array": lambda: holds(np.array([Rate()], object)),
    "subclass of a number": lambda: holds(type("Number", (float,), {})(2.0)),
    "builtin that reads": lambda: holds(open),
}


@pytest.mark.parametrize("label", UNKNOWN)
def test_what_may_be_another_one_next_time_has_no_digest(label: str) -> None:
    assert digest_of(optax.sgd(UNKNOWN[label]())) is None


def test_what_has_no_digest_is_traced_each_time(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    graphs = [build(optax.sgd(Rate()), folder) for _ in range(2)]
    assert description(graphs[0]) == description(graphs[1])
    assert not folder.exists()


# -- the folder --------------------------------------------------------------------------------


def test_no_cache_and_folders_that_cannot_be_one(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    build(optax.adam(0.1), None)
    assert not (tmp_path / "home").exists()
    with pytest.raises(AttributeValueError, match="cache must be the path of a folder, or None"):
        build(optax.adam(0.1), 3)
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(CacheError, match="open to other users"):
        build(optax.adam(0.1), tmp_path / "open")


def test_altered_entries_are_traced_again(tmp_path: Path, no_tracing: Any) -> None:
    folder = tmp_path / "cache"
    first = build(optax.adam(0.1), folder)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for damage in (whole[:-7], whole[:200] + b"x" + whole[201:], b"", whole[:-1] + b"?"):
        path.write_bytes(damage)
        assert description(build(optax.adam(0.1), folder)) == description(first)
        assert abs(len(path.read_bytes()) - len(whole)) < 9  # the times in it are others
    no_tracing()
    build(optax.adam(0.1), folder)
