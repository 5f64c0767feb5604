"""A process that forks after it used devices: the child gets errors and does not hang."""

import multiprocessing
import os
import signal
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from graphc.errors import MemoryLimitError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# Each child uses objects of its parent and prints the result. It flushes `print` explicitly,
# because it ends with `os._exit`, as children of multiprocessing do.
BEGIN = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, graphc as gc
from graphc.errors import StateError

def build():
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((2,), "float32", name="x")
        v = gc.variable(np.ones(2, np.float32), name="v")
        y = gc.reduce_sum(x * v)
        step = v.assign_add(x)
    return graph, x, y, step

ONES = np.ones(2, np.float32)
graph, x, y, step = build()

def in_child(function):
    pid = os.fork()
    if pid == 0:
        try:
            print(function(), flush=True)
        except StateError as error:
            print("StateError:", error.what, "|", error.hint, flush=True)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
"""

USED = """
session = gc.Session(graph)
assert session.run(y, {x: ONES}) == 2
executable = gc.compile(graph, y, {x: (2,)})
state = executable.init()
gc.save(session, sys.argv[1], signatures={"f": gc.Signature({"x": x}, {"y": y})})
model = gc.load(sys.argv[1])
assert model.signatures["f"](x=ONES)["y"] == 2
function, start = gc.to_jax(graph, y)
batches = gc.data.prefetch([{x: ONES}] * 100, session, size=2)
next(batches)
"""


def outcome(script: str, folder: Path) -> list[str]:
    """Returns the lines that a script prints. A script that hangs is killed."""
    file = folder / "script.py"
    file.write_text(BEGIN + textwrap.dedent(script))
    process = Popen(
        [sys.executable, str(file), str(folder / "m.gcx")],
        stdout=PIPE,
        stderr=PIPE,
        text=True,
        start_new_session=True,  # so that its children can be killed with it
    )
    try:
        out, err = process.communicate(timeout=300)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, err
    return out.splitlines()


REFUSED = [
    "session.run(y, {x: ONES})",
    "session.run([step, y], {x: ONES})",
    "session.run_steps(y, [{x: ONES}], 1)",
    "session.get('v')",
    "session.values()",
    "session.set('v', ONES)",
    "session.put({x: ONES})",
    "session.compile_async(y, {x: (2,)})",
    "gc.Session(build()[0])",
    "gc.Session(graph, strategy=gc.devices.DataParallel(1))",
    "gc.compile(graph, y, {x: (2,)})",
    "gc.compile_async(graph, y, {x: (2,)})",
    "executable(state, {x: ONES})",
    "executable.init()",
    "state['v']",
    "dict(state)",
    "state.with_value('v', ONES)",
    "gc.save(session, sys.argv[1], signatures={'f': gc.Signature({'x': x}, {'y': y})})",
    "gc.freeze(session, [x], [y])",
    "gc.tune(graph, y, {x: (2,)}, seconds=0.1, progress=False)",
    "gc.to_jax(graph, y)",
    "function(start, {'x': ONES})",
    "model.signatures['f'](x=ONES)",
    "model.state()['v']",
    "gc.load(sys.argv[1])",
    "gc.data.prefetch([{x: ONES}])",
]


ALLOWED = {
    "len(build()[0])": "6",
    "model.variables['v']": "f32[2]",
    "len(pickle.loads(pickle.dumps(graph)))": "6",
    "batches.close()": "None",
    "session.close()": "None",
}


@pytest.mark.slow
def test_after_use_a_child_refuses_what_needs_a_device(tmp_path: Path) -> None:
    calls = [*REFUSED, "next(batches)", *ALLOWED]
    script = USED + "import pickle\n" + "".join(f"in_child(lambda: {call})\n" for call in calls)
    # The parent can continue.
    lines = outcome(script + "print(session.run(y, {x: ONES}), len(list(batches)))\n", tmp_path)
    said = dict(zip(calls, lines, strict=False))
    for call in REFUSED:
        assert "forked from one that had used its devices" in said[call], call
        assert "spawn" in said[call], call
    assert "its thread is in the parent process" in said["next(batches)"]
    assert {call: said[call] for call in ALLOWED} == ALLOWED
    assert lines[-1] == "2.0 99"
    assert len(lines) == len(calls) + 1


@pytest.mark.slow
def test_a_child_does_not_wait_for_locks_that_a_thread_of_its_parent_held(tmp_path: Path) -> None:
    script = """
    import threading
    from graphc import collection
    from graphc.runtime.step import compiler
    from graphc.runtime.targets import executors

    held, done = threading.Event(), threading.Event()

    def hold():
        with executors.ONE_AT_A_TIME.lock, compiler._LOCK.lock, collection._lock, state.lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    in_child(lambda: state["v"])
    in_child(lambda: state.with_value("v", ONES))
    in_child(lambda: session.get("v"))
    in_child(lambda: gc.compile(graph, y, {x: (2,)}))
    in_child(lambda: gc.tune(graph, y, {x: (2,)}, progress=False))
    in_child(lambda: len(build()[0]))
    done.set()
    thread.join()
    print(session.run(y, {x: ONES}))
    """
    *refused, built, ran = outcome(USED + textwrap.dedent(script), tmp_path)
    assert all("forked from one that had used its devices" in line for line in refused), refused
    assert (len(refused), built, ran) == (5, "6", "2.0")


def test_after_saving_alone_a_child_refuses_to_save(tmp_path: Path) -> None:
    """No program ran, but `jax.export` starts threads."""
    script = """
    signatures = {"f": gc.Signature({"x": x}, {"y": y})}
    gc.save(gc.Session(graph), sys.argv[1], signatures=signatures)
    in_child(lambda: gc.save(gc.Session(graph), sys.argv[1], signatures=signatures))
    """
    (said,) = outcome(script, tmp_path)
    assert "forked from one that had used its devices" in said


def test_before_use_a_child_may_do_everything(tmp_path: Path) -> None:
    script = """
    def use():
        session = gc.Session(graph)
        return session.run(y, {x: ONES})

    in_child(use)
    in_child(use)
    print(use())
    """
    assert outcome(script, tmp_path) == ["2.0"] * 3


def _fails(number: int) -> None:
    raise MemoryLimitError("too large", least=number, details=["a"], hint="more memory")


def test_errors_come_back_from_a_pool_of_processes() -> None:
    """An error that cannot be unpickled would break the pool."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for number in (1, 2):
            with pytest.raises(MemoryLimitError, match="too large") as caught:
                pool.submit(_fails, number).result(timeout=300)
            assert caught.value.least == number
            assert caught.value.hint == "more memory"
