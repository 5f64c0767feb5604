"""`run_steps` runs n steps in one loop, with the results of n single runs."""

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.devices import DataParallel
from graphc.errors import AttributeValueError, FeedError, StateError
from graphc.ir.parse import parse_program
from graphc.ir.verify import verify
from graphc.ops.catalogue import CATALOGUE
from graphc.runtime.buffers.layout import Group, StateLayout
from graphc.runtime.buffers.packing import pack, unpack
from graphc.runtime.buffers.steps import looped, physical_steps
from graphc.runtime.targets.prepare import evaluate
from tests.near import assert_near


def model(dtype="float64"):
    graph = gc.Graph(seed=3)
    with graph:
        x = gc.placeholder((None, 6), dtype, name="x")
        y = gc.placeholder((None,), "int32", name="y")
        w = gc.variable(np.cos(np.arange(30.0)).reshape(6, 5).astype(dtype), name="w")
        b = gc.variable(np.zeros(5, dtype), name="b")
        h = gc.random.dropout(gc.tanh(gc.matmul(x, w) + b), 0.25)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=h, labels=y), name="loss")
        train = gc.minimize(loss, optax.adam(0.05), name="train")
    return graph, x, y, h, loss, train


def batches(count, rows=8):
    rng = np.random.default_rng(0)
    return [
        {"x": rng.normal(size=(rows, 6)), "y": rng.integers(0, 5, rows).astype(np.int32)}
        for _ in range(count)
    ]


@pytest.mark.parametrize("devices", [1, 4])
def test_the_numbers_are_those_of_single_runs(devices: int) -> None:
    graph, x, y, h, loss, train = model()
    strategy = DataParallel(devices) if devices > 1 else None
    single, together = (gc.Session(graph, strategy=strategy) for _ in range(2))
    feeds = batches(7)
    fetches = {"train": train, "loss": [loss], "h": h, "b": "b"}
    singles = [single.run(fetches, feed) for feed in feeds]
    rest = iter(feeds)
    parts = [together.run_steps(fetches, rest, n) for n in (3, 1, 3)]
    for part in parts:
        assert part["train"] is None
    for key, leaf in (
        ("h", lambda r: r["h"]),
        ("b", lambda r: r["b"]),
        ("l", lambda r: r["loss"][0]),
    ):
        got = np.concatenate([leaf(part) for part in parts])
        assert_near(got, [leaf(one) for one in singles], rtol=1e-10, err_msg=key)
    for name, value in single.values().items():
        assert_near(together.get(name), value, rtol=1e-10, atol=1e-15)
    # The next run continues the same random stream.
    again = {"x": feeds[0]["x"]}
    assert_near(together.run(h, again), single.run(h, again), rtol=1e-10)
    assert together.compile_count == 3  # n = 3, n = 1 and a single run


@pytest.mark.slow
@pytest.mark.one_jax
def test_batches_come_as_a_mapping_of_arrays_too() -> None:
    graph, x, y, h, loss, train = model()
    feeds = batches(4)
    stacked = {key: np.stack([feed[key] for feed in feeds]) for key in "xy"}
    with jax.enable_x64(True):
        on_device = [{key: jnp.asarray(value) for key, value in feed.items()} for feed in feeds]
        stacked_there = {key: jnp.asarray(value) for key, value in stacked.items()}
    ways = [
        feeds,
        tuple(feeds),
        (feed for feed in feeds),
        [{"y": feed["y"], "x": feed["x"]} for feed in feeds],
        [{x: feed["x"].tolist(), y: feed["y"].astype(np.int64)} for feed in feeds],
        on_device,
        [on_device[0], *feeds[1:]],
        stacked,
        {y: stacked["y"], x: stacked["x"]},
        stacked_there,
    ]
    results = []
    for way in ways:
        session = gc.Session(graph, options=gc.CompileOptions(cache=None))
        results.append(np.asarray(session.run_steps([train, loss], way, 4)[1]))
        if len(results) > 1:
            np.testing.assert_array_equal(results[0], results[-1])
        if len(results) == 1:
            session.run_steps([loss, train], stacked, np.int64(4))
            assert session.compile_count == 1


def test_what_is_fed_may_be_written_to_afterwards() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((None, 300), name="x")
        y = gc.reduce_sum(gc.matmul(x, gc.transpose(x)))
    session = gc.Session(graph)
    buffer = np.empty((3, 300, 300), np.float32)
    results = []
    for i in range(20):
        buffer[...] = i
        results.append(session.run_steps(y, {x: buffer} if i % 2 else [{x: b} for b in buffer], 3))
        buffer[...] = -1
    wanted = [[300.0**3 * i * i] * 3 for i in range(20)]
    assert_near(np.asarray(results), wanted, rtol=1e-6)


def test_steps_without_feeds_or_fetched_values() -> None:
    graph = gc.Graph()
    with graph:
        v = gc.variable(np.float32(1), name="v")
        w = gc.variable(np.zeros(2, np.float32), name="w")
        before = v.read()
        double = v.assign(v * 2)
        fill = w.assign(gc.zeros((2,)) + v)
        noise = gc.random.uniform((3,))
    session = gc.Session(graph)
    assert session.run_steps(gc_group(graph, double, fill), None, 3) is None
    assert session.get("v") == 8
    np.testing.assert_array_equal(session.get("w"), [8, 8])
    np.testing.assert_array_equal(session.run_steps([before, double], {}, 2), [[8, 16], [16, 32]])
    draws = np.asarray(session.run_steps(noise, None, 50))
    assert len(np.unique(draws)) == draws.size
    other = gc.Session(graph)
    np.testing.assert_array_equal(draws, [other.run(noise) for _ in range(50)])


def gc_group(graph, *nodes):
    with graph:
        return gc.group(*nodes)


def refused():
    feeds = batches(5)
    ragged = [*feeds[:3], batches(1, rows=4)[0]]
    other = [*feeds[:3], {"x": feeds[3]["x"]}]
    stacked = {key: np.stack([feed[key] for feed in feeds]) for key in "xy"}
    return [
        (feeds, 0, AttributeValueError, "n must be an int of at least 1, got 0"),
        (feeds, 2.0, AttributeValueError, "n must be an int"),
        (feeds, True, AttributeValueError, "n must be an int"),
        (feeds, 6, FeedError, "the batches ended after 5 of 6 steps"),
        ([], 1, FeedError, "ended after 0 of 1"),
        (ragged, 4, FeedError, r"feed 'x' has shape \(8, 6\) in batch 0 and \(4, 6\) in batch 3"),
        (other, 4, FeedError, "batch 3 feeds x, batch 0 x, y"),
        ([*feeds[:3], 5], 4, FeedError, "batch 3 must be a mapping, got int"),
        (7, 2, FeedError, "batches must be feeds of 2 steps, got int"),
        ("xy", 2, FeedError, "batches must be feeds of 2 steps, got str"),
        (stacked, 4, FeedError, r"feed 'x' must have a leading axis of 4.*got shape \(5, 8, 6\)"),
        ({**stacked, "y": 3}, 5, FeedError, "feed 'y' must have a leading axis of 5"),
        ({"x": stacked["x"]}, 5, FeedError, "placeholder 'y'.*not fed"),
        ([{**f, "x": f["x"].astype(complex)} for f in feeds], 2, FeedError, "must be float64"),
        ([{**f, "x": f["x"][:, :4]} for f in feeds], 2, FeedError, "expected size 6 on axis 1"),
    ]


@pytest.fixture(scope="module")
def trained():
    graph, x, y, h, loss, train = model()
    session = gc.Session(graph)
    session.run([train, loss], batches(1)[0])
    return session, train, loss


@pytest.mark.parametrize("given, n, error, match", refused())
def test_wrong_batches_teach_and_leave_the_session_usable(trained, given, n, error, match) -> None:
    session, train, loss = trained
    before = session.values()
    with pytest.raises(error, match=match) as caught:
        session.run_steps([train, loss], given, n)
    assert "  at test_run_steps.py:" in str(caught.value)
    for name, value in session.values().items():
        np.testing.assert_array_equal(value, before[name])


def test_an_executable_of_several_steps() -> None:
    graph, x, y, h, loss, train = model()
    feeds = batches(3)
    shapes = {x: (8, 6), y: (8,)}
    one = gc.compile(graph, [train, loss], shapes)
    three = gc.compile(graph, [train, loss], shapes, steps=3)
    state, singles = one.init(), []
    for feed in feeds:
        (_, value), state = one(state, feed)
        singles.append(value)
    stacked = {key: np.stack([feed[key] for feed in feeds]) for key in "xy"}
    (nothing, losses), after = three(three.init(), stacked)
    assert nothing is None and one.cache_key != three.cache_key
    assert_near(losses, singles, rtol=1e-10)
    for name, value in state.items():
        assert_near(after[name], value, rtol=1e-10, atol=1e-15)
    (_, value), _ = one(after, feeds[0])  # both programs accept one state
    assert np.isfinite(value)
    with pytest.raises(FeedError, match=r"feed 'x' must be f64\[3, 8, 6\]"):
        three(three.init(), feeds[0])
    with pytest.raises(AttributeValueError, match="compile: steps must be an int"):
        gc.compile(graph, loss, shapes, steps=0)


def test_a_closed_session_says_so() -> None:
    graph, *_, loss, train = model()
    session = gc.Session(graph)
    session.close()
    with pytest.raises(StateError, match="closed"):
        session.run_steps(train, batches(1), 1)


# Blocks that are stored together stay so in the loop. Small variables leave their buffer.
STEP = """
program p(
  x: f32[3], w0: state f32[3], w1: state f32[3], a: state f32[2], b: state f32[], c: state f32[2]
) {
  %0 = Stack(w0, w1) : f32[2, 3]
  %1 = Multiply(%0, x) : f32[2, 3]
  %2, %3 = Unstack(%1) : f32[3], f32[3]
  %4 = Add(a, b) : f32[2]
  %5 = Multiply(b, b) : f32[]
  %6 = ReduceSum(%2) {axes=[0]} : f32[]
  return s = %6, old = a, state w0 = %2, state w1 = %3, state a = %4, state b = %5, state new = c
}
"""


@pytest.mark.parametrize(
    "groups",
    [
        (),
        (Group("stacked", ("w0", "w1")), Group("flat", ("a", "b", "c", "new"))),
        (Group("stacked", ("w1", "w0")), Group("flat", ("c", "new"))),
        (Group("flat", ("w1", "b", "w0")), Group("stacked", ("new", "a"))),
    ],
)
def test_a_loop_keeps_stacked_state(groups) -> None:
    step = parse_program(STEP, CATALOGUE)
    ports = (*step.ports("state"), *step.new_state())
    layout = StateLayout({p.name: p.tensor.type for p in ports}).with_groups(groups)
    assert len([b for b in layout.buffers if b.kind != "own"]) == len(groups)
    program = physical_steps(step, layout, 3)
    verify(program, "bound")
    (loop,) = [node for node in program.nodes if node.op.name == "Scan"]
    if groups and groups[0].members == ("w0", "w1"):
        assert "Stack" not in [node.op.name for node in loop.regions[0].nodes]
    rng = np.random.default_rng(0)
    values = {n: rng.normal(size=t.shape).astype("f") for n, t in layout.types.items()}
    xs = rng.normal(size=(3, 3)).astype(np.float32)
    given = {"x": xs, **{b.name: pack(b, values) for b in layout.buffers}}
    results = evaluate(program, [given[port.name] for port in program.inputs])
    got = {(p.kind, p.name): v for p, v in zip(program.outputs, results, strict=True)}
    for i in range(3):
        one = evaluate(step, [{**values, "x": xs[i]}[port.name] for port in step.inputs])
        for port, value in zip(step.outputs, one, strict=True):
            if port.kind == "fetch":
                assert_near(got["fetch", port.name][i], value, rtol=1e-6)
            else:
                values[port.name] = value
    for buffer in layout.buffers:
        if ("state", buffer.name) in got:
            for name, value in unpack(buffer, got["state", buffer.name]).items():
                assert_near(value, values[name], rtol=1e-6, err_msg=name)


def test_a_loop_has_the_batch_axis_behind_that_of_the_steps() -> None:
    step = parse_program("program p(x: f32[4, 2]) {\n  return y = x\n}", CATALOGUE)
    program = looped(step.replace(batch_axes={"x": 0}), 5)
    assert dict(program.batch_axes) == {"x": 1}
    assert [str(p.tensor.type) for p in program.outputs] == ["f32[5, 4, 2]"]
