"""`run_workers`: consistent snapshots, each update exactly once, bounded staleness, and stops."""

from __future__ import annotations

import signal
import threading
import time
import traceback
from itertools import islice, repeat

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.devices import AsyncDataParallel
from graphc.errors import (
    AttributeValueError,
    FeedError,
    GraphError,
    NumericsError,
    StateError,
    UnknownNameError,
)
from graphc.runtime.core.counters import COUNTERS
from tests.near import assert_near

CPU = jax.devices("cpu")


# -- runs --------------------------------------------------------------------------------------


def model(dtype: str = "float64"):
    """Linear regression with batch norm, counters and a pair of equal variables."""
    graph = gc.Graph(seed=2)
    with graph:
        x = gc.placeholder((None, 3), dtype, name="x")
        y = gc.placeholder((None,), dtype, name="y")
        w = gc.variable(np.zeros(3, dtype), name="w")
        bias = gc.variable(np.zeros((), dtype), name="bias")
        mean = gc.variable(np.zeros(3, dtype), name="mean", trainable=False)
        count = gc.variable(np.int32(0), name="count", trainable=False)
        seen = gc.variable(np.int32(0), name="seen", trainable=False)
        twin = gc.variable(np.int32(0), name="twin", trainable=False)
        gap = gc.subtract(count.read(), twin.read(), name="gap")
        loss = gc.reduce_mean(gc.square(gc.matmul(x, w) + bias - y), name="loss")
        rows = gc.reduce_sum(gc.cast(gc.ones_like(y), "int32"))
        average = mean.assign(mean * 0.9 + gc.reduce_mean(x, axis=0) * 0.1)
        update = gc.minimize(loss, optax.adam(0.05), name="update")
        counts = [count.assign_add(1), seen.assign_add(rows), twin.assign_add(1)]
        train = gc.group(update, average, *counts, name="train")
    return graph, x, y, loss, gap, count, train


def batches(count: int, rows: int = 4, seed: int = 0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        x = rng.normal(size=(rows, 3))
        yield {"x": x, "y": x @ [1.0, -2.0, 0.5] + 0.3}


def workers_left() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("graphc-worker")]


def test_without_staleness_it_is_sequential_sgd() -> None:
    graph, _, _, loss, _, count, train = model()
    sequential = gc.Session(graph)
    losses = [sequential.run([train, loss, count], feed)[1:] for feed in batches(60)]
    session = gc.Session(graph, strategy=AsyncDataParallel(4, server="/cpu:1", staleness=0))
    run = session.run_workers([train, loss, count], batches(60), keep=True)
    assert run.staleness == {0: 60} and sum(run.steps) == run.updates == 60
    assert run.values is not None and run.last is run.values[-1]
    assert_near([v[1:] for v in run.values], losses, rtol=1e-9, atol=1e-12)
    wanted = sequential.values()
    for name, value in session.values().items():
        assert_near(value, wanted[name], rtol=1e-9, atol=1e-12, err_msg=name)
    # Single runs continue with the same state, on the server's device.
    for feed in batches(3, seed=1):
        got, expected = (s.run([train, loss], feed)[1] for s in (session, sequential))
        assert_near(got, expected, rtol=1e-9)
        assert got.devices() == {CPU[1]}


@pytest.mark.parametrize("bound", [2, None])
def test_every_update_is_applied_once(bound: int | None) -> None:
    graph, x, y, loss, gap, count, train = model()
    session = gc.Session(graph, strategy=AsyncDataParallel(8, staleness=bound))
    steps = []
    feeds = list(batches(400)) + list(batches(9, rows=3))  # the last batches have another shape
    run = session.run_workers([train, gap, count], feeds, on_step=steps.append)
    assert sum(run.steps) == run.updates == session.get("count") == len(feeds)
    assert session.get("seen") == 400 * 4 + 9 * 3
    assert session.get("update/0/count") == len(feeds)
    assert [step.update for step in steps] == list(range(len(feeds)))  # the reports arrive in order
    assert [int(step.values[2]) for step in steps] == list(range(1, len(feeds) + 1))
    assert {int(step.values[1]) for step in steps} == {0}  # no snapshot mixes two updates
    for worker in range(8):
        mine = [step.step for step in steps if step.worker == worker]
        assert mine == list(range(run.steps[worker]))
    found = {k: sum(s.staleness == k for s in steps) for k in {s.staleness for s in steps}}
    assert run.staleness == found and sum(found.values()) == len(feeds)
    assert bound is None or max(found) <= bound
    assert run.values is None and not workers_left()
    assert_near(session.get("w"), [1, -2, 0.5], rtol=1e-7, atol=0.2)
    means = np.mean([feed["x"].mean(0) for feed in feeds[-40:]], axis=0)
    assert_near(session.get("mean"), means, rtol=1e-7, atol=0.5)


@pytest.mark.slow
def test_the_others_go_on_while_one_computes_but_not_too_far() -> None:
    done = []
    lingering = threading.Event()

    def linger(x):
        """For a batch of zeros, waits until another worker's update was applied."""
        if not x.any():
            before, end = len(done), time.monotonic() + 60
            lingering.set()
            while len(done) == before and time.monotonic() < end:
                time.sleep(0.001)
        return x

    def batches_of_a_fast_worker():
        for i in range(1, 21):
            if i == 3:
                lingering.wait(60)
            yield {x: np.full(3, float(i))}

    graph = gc.Graph()
    with graph:
        x = gc.placeholder((3,), name="x")
        w = gc.variable(np.ones(3, np.float32), name="w")
        seen = gc.py_callback(linger, gc.TensorSpec((3,), "float32"), x)
        train = gc.minimize(gc.reduce_sum(gc.square(w - seen)), optax.sgd(0.1), name="train")
    session = gc.Session(graph, strategy=AsyncDataParallel(3, staleness=3))
    fast = [batches_of_a_fast_worker() for _ in range(2)]
    slow = [{x: np.ones(3)}, {x: np.zeros(3)}]
    run = session.run_workers(train, [*fast, slow], on_step=done.append)
    assert run.steps == (20, 20, 2) and run.updates == 42
    assert max(run.staleness) <= 3
    last = next(step for step in done if step.worker == 2 and step.step == 1)
    assert last.staleness > 0


def test_each_worker_may_have_batches_of_its_own() -> None:
    graph, x, y, loss, gap, count, train = model()
    session = gc.Session(graph, strategy=AsyncDataParallel(3, staleness=5))
    own = [batches(5, seed=1), [{x: f["x"], y: f["y"]} for f in batches(7, seed=2)], []]
    run = session.run_workers({"t": train, "n": count}, own)
    assert run.steps == (5, 7, 0) and run.updates == 12 == run.last["n"]
    assert run.last["t"] is None
    assert session.run_workers(train, []).updates == 0
    assert session.run_workers(train, iter(())).last is None


def test_draws_differ_from_worker_to_worker_and_from_step_to_step() -> None:
    graph = gc.Graph(seed=4)
    with graph:
        x = gc.placeholder((), name="x")
        drawn = gc.random.uniform((2,))
        kept = gc.variable(np.zeros(2, np.float32), name="kept")
        keep, shown = kept.assign(drawn), drawn + x
    session = gc.Session(graph, strategy=AsyncDataParallel(4, staleness=4))
    values = []
    for _ in range(2):
        feeds = islice(repeat({x: 0}), 12)
        run = session.run_workers([keep, shown], feeds, keep=True)
        values += [tuple(np.asarray(v[1]).tolist()) for v in run.values or ()]
        # The last writer wins, with the random values that it used elsewhere in the same step.
        assert tuple(session.get("kept").tolist()) == values[-1]
    values.append(tuple(np.asarray(session.run(drawn)).tolist()))
    assert len(set(values)) == 25


def test_on_step_may_run_the_session_and_set_variables() -> None:
    graph, x, y, loss, gap, count, train = model()
    session = gc.Session(graph, strategy=AsyncDataParallel(4, staleness=3))
    probe = next(batches(1, rows=50, seed=9))
    found = []

    def told(step) -> None:
        if step.update % 10 == 9:
            found.append((float(session.run(loss, probe)), int(session.get("count"))))
            state = session._state.buffers
            held = [b for b in state if isinstance(b, jax.Array)]  # other workers may do so too
            session.set("bias", 0.25)
            session.set("count", 1000 + step.update)
            assert not any(buffer.is_deleted() for buffer in held)
            session.run(train, probe)  # one more update, from outside the workers

    session.run_workers(train, batches(40), on_step=told)
    counts = [count for _, count in found]
    assert counts == [10, 1009 + 1 + 10, 1019 + 1 + 10, 1029 + 1 + 10]
    assert found[-1][0] < found[0][0]
    assert session.get("count") == 1040 and session.get("update/0/count") == 44


def test_each_device_compiles_once_and_a_later_session_finds_all_of_it() -> None:
    graph, *_, loss, _, _, train = model()
    workers = ["/cpu:0", "/cpu:1", "/cpu:1"]
    for compiled in (3, 0):  # two devices and the server compile in the first session
        session = gc.Session(graph, strategy=AsyncDataParallel(workers, staleness=2))
        before = COUNTERS.snapshot().compiles
        own = [list(batches(3, seed=seed)) for seed in range(3)]
        for _ in range(2):
            assert session.run_workers([train, loss], own).steps == (3, 3, 3)
        assert COUNTERS.snapshot().compiles == before + compiled


def test_nothing_grows_with_the_number_of_steps() -> None:
    graph, *_, loss, _, _, train = model()
    session = gc.Session(graph, strategy=AsyncDataParallel(4, staleness=3))
    session.run_workers([train, loss], batches(8))
    alive = []
    session.run_workers(
        [train, loss], batches(300), on_step=lambda step: alive.append(len(jax.live_arrays()))
    )
    assert max(alive) - min(alive) < 150  # one step makes at least five arrays


def test_a_step_by_itself_has_no_workers() -> None:
    graph, *_, train = model()
    strategy: object = AsyncDataParallel(2)
    for function in (gc.compile, gc.tune):
        with pytest.raises(AttributeValueError, match=r"(?s)AsyncDataParallel is for sessions"):
            function(graph, [train], {"x": (4, 3), "y": (4,)}, strategy=strategy)  # type: ignore[operator]
    for other in (None, gc.devices.DataParallel(2)):
        with pytest.raises(AttributeValueError, match=r"(?s)no workers.*AsyncDataParallel\(4"):
            gc.Session(graph, strategy=other).run_workers(train, batches(1))


# -- what stops a run --------------------------------------------------------------------------


def broken_batches(after: int):
    yield from batches(after)
    raise OSError("the disk is gone")


def broken_feeds():
    yield from batches(10)
    yield {"x": np.ones((4, 3)), "y": np.ones(5)}
    yield from batches(1000)


def broken_keys():
    yield from batches(10)
    yield {"z": 1}


def broken_kind():
    yield from batches(10)
    yield 3


def raising(step) -> None:
    if step.update == 10:
        raise ZeroDivisionError("in the callback")


@pytest.mark.parametrize(
    ("feeds", "on_step", "kind", "frame"),
    [
        (lambda: broken_batches(10), None, OSError, "broken_batches"),
        (broken_feeds, None, FeedError, "bind_feeds"),
        (broken_keys, None, UnknownNameError, "resolve_feed"),
        (broken_kind, None, FeedError, "take"),
        (lambda: batches(5000), raising, ZeroDivisionError, "raising"),
    ],
)
def test_what_a_worker_raises_stops_the_run(feeds, on_step, kind, frame) -> None:
    graph, _, _, loss, gap, count, train = model()
    session = gc.Session(graph, strategy=AsyncDataParallel(4, staleness=2))
    done = []
    told = on_step or done.append

    def noted(step) -> None:
        done.append(step)
        told(step)

    with pytest.raises(kind) as caught:
        session.run_workers([train, gap], feeds(), on_step=noted)
    text = "".join(traceback.format_exception(caught.value))
    assert frame in text and "raised in worker " in text and "on /device:CPU:" in text
    assert not workers_left()
    applied = len({step.update for step in done})
    assert applied >= 10 or frame != "raising"
    assert session.get("count") == session.get("twin") == session.get("update/0/count") == applied
    assert f"the values after the {applied} updates that were applied" in text
    after = session.run_workers([train, gap], batches(20))
    assert after.updates == 20 and session.get("count") == applied + 20 and after.last[1] == 0


def test_a_step_that_fails_leaves_the_last_whole_update() -> None:
    graph, x, y, loss, gap, count, train = model()
    options = gc.CompileOptions(check_numerics=True)
    session = gc.Session(graph, strategy=AsyncDataParallel(2, staleness=1), options=options)
    good = list(batches(6))
    bad = {"x": np.full((4, 3), 1e200), "y": np.zeros(4)}
    with pytest.raises(NumericsError, match="made an infinity") as caught:
        session.run_workers([train, loss], [*good, bad, *good])
    assert any("raised in worker" in note for note in caught.value.__notes__)
    applied = int(session.get("count"))
    # All six batches before the bad one were applied. The other worker may have applied one more
    # within the bound, and may have computed one that it applies when the run stops.
    assert 6 <= applied <= 8
    assert all(np.all(np.isfinite(value)) for value in session.values().values())
    assert session.run_workers([train, loss], good).updates == 6


def test_an_interrupt_stops_the_workers() -> None:
    graph, *_, gap, _, train = model()
    session = gc.Session(graph, strategy=AsyncDataParallel(4, staleness=2))
    applied = []

    def told(step) -> None:
        applied.append(step.update)
        # Python handles this in the main thread. If that thread is in a callback of the garbage
        # collector (JAX has one), the interrupt is lost, and the user must repeat it.
        if step.update % 1000 == 20:
            signal.raise_signal(signal.SIGINT)

    # Shells start background processes with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            session.run_workers([train, gap], batches(5000), on_step=told)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not workers_left()
    assert session.get("count") == session.get("twin") == len(applied) >= 21
    assert session.run_workers([train, gap], batches(5)).updates == 5


def test_what_is_wrong_is_said_before_anything_runs() -> None:
    graph, x, y, loss, gap, count, train = model()
    session = gc.Session(graph, strategy=AsyncDataParallel(3, staleness=2))
    feeds = list(batches(2))
    for wrong in (3, None, "xy", np.ones(3), feeds[0]):
        with pytest.raises(FeedError, match=r"(?s)must be an iterable of feeds.*the workers share"):
            session.run_workers(train, wrong)
    with pytest.raises(FeedError, match=r"(?s)2 iterables of batches for 3 workers.*one for each"):
        session.run_workers(train, [feeds, feeds])
    with pytest.raises(FeedError, match="5 in the list of batches is neither feeds nor"):
        session.run_workers(train, [feeds, feeds, 5])
    with pytest.raises(UnknownNameError, match="no tensor, node or variable 'trian'"):
        session.run_workers("trian", feeds)
    with pytest.raises(AttributeValueError, match="on_step must be a function"):
        session.run_workers(train, feeds, on_step=3)
    with pytest.raises(GraphError, match=r"(?s)no fetch assigns a variable.*training step"):
        session.run_workers(loss, feeds)

    def again(step) -> None:
        session.run_workers(train, feeds)

    with pytest.raises(StateError, match="running already"):
        session.run_workers(train, feeds, on_step=again)
    session.close()
    with pytest.raises(StateError, match="closed"):
        session.run_workers(train, feeds)
