"""A second process loads compiled programs: it repeats no pass, trace, lowering or compilation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphc.store.folder import ExecutableCache

REPOSITORY = Path(__file__).parents[3]

# Trains, predicts and loops in a Session, then does the same with `gc.compile`. Prints the
# results, graphc's counters, and how many functions JAX traced, lowered and compiled.
PROGRAM = """
import json, sys

import jax
import numpy as np
import optax
from jax import monitoring

import graphc as gc
from graphc.runtime.core.counters import COUNTERS

changes = json.loads(sys.argv[1])
devices = changes.get("devices", 1)
if "jax" in changes:
    jax.__version__ = changes["jax"]

graph = gc.Graph(seed=3, name="model")
with graph:
    x = gc.placeholder((None, 6), name="x")
    y = gc.placeholder((None,), "int32", name="y")
    h = x
    for i in range(2):
        h = gc.nn.Dense(8, activation=gc.nn.tanh, name=f"hidden{i}")(h)
    noise = gc.random.normal((8,), stddev=changes.get("noise", 0.1))
    logits = gc.cast(gc.nn.Dense(4, name="out")(h + noise), "float64")
    losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
    loss = gc.reduce_mean(losses, name="loss")
    train = gc.minimize(loss, optax.adam(1e-2), name="train")

work = []  # since the graph was built: the optimizer is traced there, in every process

def listen(event, seconds, **facts):
    if "/compile/" in event or "/compilation" in event:
        work.append(event.rsplit("/", 1)[-1] + " of " + str(facts.get("fun_name")))

monitoring.register_event_duration_secs_listener(listen)
rng = np.random.default_rng(0)
batch = changes.get("batch", 16)
feeds = {
    x: rng.normal(size=(batch, 6)).astype("float32"),
    y: rng.integers(0, 4, batch).astype("int32"),
}
shapes = {x: (batch, 6), y: (batch,)}
strategy = gc.devices.DataParallel(devices) if devices > 1 else None
options = gc.CompileOptions(**changes.get("options", {}))

session = gc.Session(graph, strategy=strategy, options=options)
results = [float(session.run([train, loss], feeds)[1]) for _ in range(4)]
if len(changes) > 1:  # whether it is found is all that is asked
    print(json.dumps({"counters": COUNTERS.snapshot().__dict__}, default=str))
    sys.exit()
results.append(np.asarray(session.run(logits, {x: feeds[x]})).tolist())
results.append(np.asarray(session.run_steps([train, loss], [feeds] * 3, 3)[1]).tolist())
results.append({name: value.tolist() for name, value in session.values().items()})

futures = [
    gc.compile_async(graph, fetches, given, strategy=strategy, options=options)
    for fetches, given in [([train, loss], shapes), (losses, shapes)]
]
step, evaluate = [future.result() for future in futures]
state = step.init()
for _ in range(2):
    (_, value), state = step(state, feeds)
    results.append(float(value))
results.append(np.asarray(evaluate(state, feeds)[0]).tolist())

found = [*session.executables, step, evaluate]
counters = {k: v for k, v in vars(COUNTERS).items() if not k.startswith("_")}
print(json.dumps({
    "results": results,
    "counters": counters,
    "work": work,
    "cached": [one.cached for one in found],
    "reports": [len(one.pass_report().rows) for one in found],
    "notes": [one.notes for one in found],
    "repr": [repr(one) for one in found],
    "seconds": [sorted(one.seconds) for one in found],
    "imports passes": "graphc.passes.pipelines" in sys.modules,
}))
"""


def run(folder: Path, flags: str = "", **changes: Any) -> dict[str, Any]:
    """Runs the program in a separate process and returns its output."""
    variables = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"} | {
        "XDG_CACHE_HOME": str(folder),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count=4 {flags}",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, json.dumps(changes)],
        env=variables,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


@pytest.fixture(scope="module", params=[1, 4])
def cold(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder and number of devices of a first process, and that process's output."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, request.param, run(folder, devices=request.param)


@pytest.mark.slow
def test_the_second_process_compiles_nothing(cold: Any) -> None:
    folder, devices, first = cold
    assert first["counters"]["compiles"] == first["counters"]["cache_misses"] == 4
    assert first["counters"]["cache_hits"] == 1  # the session had already compiled this step
    assert first["counters"]["passes"] > 0 and first["cached"] == [False, False, False, True, False]
    second = run(folder, devices=devices)
    assert second["results"] == first["results"]
    assert {name: count for name, count in second["counters"].items() if count} == {
        "captures": first["counters"]["captures"],
        "cache_hits": 5,
    }
    assert first["imports passes"] and not second["imports passes"]
    assert second["work"] == []  # JAX on its own does no such work either
    assert all(second["cached"]) and set(map(tuple, second["seconds"])) == {("load",)}
    for name in ("reports", "notes", "repr"):
        assert second[name] == first[name]


@pytest.mark.slow
def test_another_environment_finds_nothing(cold: Any) -> None:
    folder, devices, _ = cold
    if devices > 1:
        pytest.skip("once will do")
    assert run(folder, devices=1, quick=True)["counters"]["cache_hits"] == 1
    for flags, changes in [
        ("--xla_cpu_enable_fast_math=true", {}),
        ("", {"jax": "0.9.9"}),
        ("", {"noise": 0.2}),
    ]:
        again = run(folder, flags, devices=1, quick=True, **changes)["counters"]
        assert (again["cache_hits"], again["cache_misses"]) == (0, 1), (flags, changes)
        assert again["compiles"] == 1


BESIDE = """
import sys
import jax
import numpy as np
import graphc as gc

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
graph = gc.Graph()
with graph:
    y = gc.exp(gc.variable(np.arange(3, dtype="float32")))
step = gc.compile(graph, y)
print(step.cached, [round(float(value), 2) for value in step(step.init())[0]])
"""


@pytest.mark.slow
def test_beside_jaxs_own_cache(tmp_path: Path) -> None:
    def text() -> str:
        variables = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-W", "error", "-c", BESIDE, str(tmp_path / "jax")]
        done = subprocess.run(
            command, env=variables, cwd=REPOSITORY, check=True, capture_output=True, text=True
        )
        return done.stdout

    numbers = "[1.0, 2.72, 7.39]\n"
    assert text() == f"False {numbers}"
    cache = ExecutableCache(tmp_path / "graphc" / "executables", 1 << 30)
    assert cache.clear() == 1
    assert text() == f"False {numbers}"  # JAX's cache has it; XLA would store it without its code
    assert cache.entries() == []
    assert list((tmp_path / "jax").iterdir())


# One process imports everything and forks before JAX has a device, because sixteen imports would
# take longer than the rest. Each child compiles or loads a step and an evaluation, and runs both.
SIXTEEN = """
import json, os, signal, sys, time, warnings
from pathlib import Path

warnings.simplefilter("ignore")  # of forking: no thread runs yet
import jax
import numpy as np
import optax

import graphc as gc
from graphc.runtime.step.compiler import compile
from graphc.runtime.core.counters import COUNTERS
from graphc.store.folder import ExecutableCache

place = Path(sys.argv[1])

def work(number):
    graph = gc.Graph(seed=1)
    with graph:
        x = gc.placeholder((None, 4), name="x")
        y = gc.nn.Dense(1, name="y")(x)
        loss = gc.reduce_mean(gc.square(y - 1.0))
        train = gc.minimize(loss, optax.sgd(0.1))
    session = gc.Session(graph)
    feed = {x: np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4)}
    losses = [float(session.run([train, loss], feed)[1]) for _ in range(5)]
    losses.append(np.asarray(session.run(y, feed)).tolist())
    losses.append(float(session.run(loss, {x: feed[x][: 1 + number % 3]})))
    (place / f"{number}.json").write_text(json.dumps([losses, COUNTERS.cache_hits]))

def killed(number):
    def half(self, path, parts):
        handle = os.open(self.folder / ".writing-killed", os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(handle, parts[-1][: len(parts[-1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    ExecutableCache._write = half
    work(number)

def start(number):
    child = os.fork()
    if child == 0:
        try:
            (killed if number == 0 else work)(number)
            os._exit(0)
        except BaseException as error:
            print(number, repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return child

children = [start(number) for number in range(16)]
ends = [os.waitpid(child, 0)[1] for child in children]
late = start(16)  # comes when all is there
print(json.dumps([*ends, os.waitpid(late, 0)[1]]))
"""


@pytest.mark.slow
def test_sixteen_processes_on_one_cache(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIXTEEN, str(tmp_path)],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(tmp_path)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    first, *others = json.loads(done.stdout.splitlines()[-1])
    assert os.WTERMSIG(first) == signal.SIGKILL and others == [0] * 16
    found = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(1, 17)]
    losses, hits = zip(*found, strict=True)
    for number in range(16):
        assert losses[number][:-1] == losses[0][:-1]
        assert losses[number][-1] == losses[number % 3][-1]
    cache = ExecutableCache(tmp_path / "graphc" / "executables", 1 << 30)
    entries = cache.entries()
    assert all(cache.get(entry.key) is not None for entry in entries)
    assert len(entries) == 5 and all("interface" in (entry.metadata or {}) for entry in entries)
    assert (cache.folder / ".writing-killed").exists() and hits[-1] == 3
