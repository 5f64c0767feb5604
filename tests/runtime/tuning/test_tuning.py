"""`gc.tune`: its trials, rejected variants, the stored result and its later use."""

from __future__ import annotations

import gc as garbage
import io
import math
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, GraphError
from graphc.runtime.pipeline.tuned import Choice
from graphc.runtime.tuning import search, trials, variants
from graphc.runtime.tuning.trials import collect_garbage, disagreement, nudged, upper_bound
from graphc.runtime.tuning.variants import VARIANTS, Variant
from tests.near import assert_near

BATCH = 8
FAST = Variant(Choice("fast", {"pipeline": "O0"}), lambda program, target: True)
SAME = Variant(Choice("same", {"pipeline": "O3"}), lambda program, target: True)
UNSHARED = {"pipeline": "O3", "without_passes": ("eliminate-common",)}
WRONG = Variant(Choice("wrong", UNSHARED), lambda program, target: True)
UNKNOWN = Variant(Choice("unknown", {}, {"xla_no_such_option": 1}), lambda program, target: True)


class Model:
    """A small network and one batch for it."""

    def __init__(self, layers: int = 2) -> None:
        self.graph = gc.Graph(seed=0, name="net")
        with self.graph:
            x = gc.placeholder((None, 16), name="x")
            y = gc.placeholder((None,), "int32", name="y")
            h = x
            for i in range(layers):
                h = gc.tanh(gc.nn.Dense(16, name=f"h{i}")(h))
            logits = gc.nn.Dense(4, name="out")(h)
            losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=y)
            loss = gc.reduce_mean(losses, name="loss")
            train = gc.minimize(loss, optax.sgd(0.1), name="train")
        rng = np.random.default_rng(0)
        self.fetches = [train, loss]
        self.feeds = {
            x: rng.normal(size=(BATCH, 16)).astype("float32"),
            y: rng.integers(0, 4, BATCH).astype("int32"),
        }
        self.shapes = {x: (BATCH, 16), y: (BATCH,)}

    def tune(self, **options: Any) -> Any:
        return gc.tune(self.graph, self.fetches, self.feeds, progress=False, **options)

    def compile(self, **options: Any) -> gc.runtime.Executable:  # type: ignore[name-defined]
        return gc.compile(self.graph, self.fetches, self.shapes, **options)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, float]], None]:
    """Sets the time of each trial by its pipeline, because a busy machine has no stable times."""

    def set_times(by_pipeline: dict[str, float]) -> None:
        def seconds(trial: trials.Trial) -> float:
            return by_pipeline[trial.step.stages.compilation.options.pipeline]

        monkeypatch.setattr(trials.Trial, "seconds", seconds)

    return set_times


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_rows(*rows: Variant) -> None:
        monkeypatch.setattr(variants, "VARIANTS", rows)

    return set_rows


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline "O3" that makes the fetched values slightly too large."""
    results = trials.Trial.results

    def altered(trial: trials.Trial) -> dict[str, np.ndarray[Any, Any]]:
        found = results(trial)
        if trial.step.stages.compilation.options.pipeline == "O3":
            found = {n: v * np.float32(1.001) if "'loss'" in n else v for n, v in found.items()}
        return found

    monkeypatch.setattr(trials.Trial, "results", altered)


# -- variants that win ----------------------------------------------------------------------


def test_the_fastest_is_used_by_default(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    before = model.compile()
    tuning = model.tune()
    assert (tuning.name, tuning.ratio, tuning.kept) == ("fast", 0.5, True)
    assert tuning.options == gc.CompileOptions(pipeline="O0")
    assert "fast: 0.50 of 1 s; later compilations use it" in str(tuning)
    assert before.notes == []

    model = Model()  # builds the graph again, as another process would
    step = model.compile()
    assert step.notes == ["tuned: fast, 0.50 of the time without"]
    assert step.cached and step.stages.compilation.options.pipeline == "O0"
    assert step.cache_key == Model().compile(options=gc.CompileOptions(pipeline="O0")).cache_key
    session = gc.Session(model.graph)
    session.run(model.fetches, model.feeds)
    assert session.executables[0].notes == step.notes and session.executables[0].cached


def test_feeds_may_come_in_another_order(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    model.tune()
    feeds = dict(reversed(model.feeds.items()))
    assert next(iter(feeds)) is not next(iter(model.feeds))
    session = gc.Session(model.graph)
    losses = [float(session.run(model.fetches, f)[1]) for f in (feeds, model.feeds)]
    assert session.compile_count == 1 and session.executables[0].notes != []
    step = model.compile(options=gc.CompileOptions(tuned=False))
    state, wanted = step.init(), []
    for _ in range(2):
        (_, loss), state = step(state, feeds)
        wanted.append(float(loss))
    assert_near(losses, wanted, rtol=1e-5)


def test_values_are_taken_as_a_run_would_take_them(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    x, y = model.feeds
    model.feeds = {x: model.feeds[x].astype("float64"), y: model.feeds[y].astype("int64")}
    assert model.tune().name == "fast"
    assert model.compile().notes == ["tuned: fast, 0.50 of the time without"]
    model.feeds = {x: model.feeds[x].astype("int32"), y: model.feeds[y]}
    with pytest.raises(gc.errors.FeedError, match="feed 'x:0' must be float32, got int32"):
        model.tune()


def test_tuned_options_can_be_ignored(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    model.tune()
    step = model.compile(options=gc.CompileOptions(tuned=False))
    assert step.notes == [] and step.stages.compilation.options.pipeline == "O2" and step.cached
    other = {name: (4, *shape[1:]) for name, shape in model.shapes.items()}
    assert gc.compile(model.graph, model.fetches, other).notes == []  # another size has another key


@pytest.mark.parametrize("ratio", [0.985, 1.0, 2.0])
def test_what_is_not_clearly_faster_changes_nothing(clock: Any, table: Any, ratio: float) -> None:
    clock({"O2": 1.0, "O0": ratio})
    table(FAST)
    model = Model()
    tuning = model.tune()
    assert (tuning.name, tuning.ratio, tuning.kept) == (None, 1.0, False)
    assert tuning.options == gc.CompileOptions()
    assert "nothing is clearly faster" in str(tuning)
    assert model.compile().notes == []


def test_luck_does_not_win(monkeypatch: pytest.MonkeyPatch, table: Any) -> None:
    """A variant that is fast five times and then as slow as the others does not win."""
    table(FAST)
    calls = 0

    def seconds(trial: trials.Trial) -> float:
        nonlocal calls
        if trial.step.stages.compilation.options.pipeline != "O0":
            return 1.0
        calls += 1
        return 0.5 if calls <= 6 else 1.0

    monkeypatch.setattr(trials.Trial, "seconds", seconds)
    tuning = Model().tune()
    assert tuning.name is None and tuning.rows[0].outcome == "not clearly faster"


def test_a_second_search_begins_with_what_the_first_found(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    model.tune()
    table()  # there are no other variants
    assert model.tune().name == "fast"
    clock({"O2": 1.0, "O0": 1.5})  # timings changed since the first search
    assert model.tune().name is None
    assert model.compile().notes == []  # the stored choice was deleted


def test_what_was_found_is_tried_once(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O3": 0.5})
    table(WRONG)  # this variant's options contain names of passes
    model = Model()
    assert model.tune().name == "wrong"
    clock({"O2": 1.0, "O3": 1.5})  # timings changed since the first search
    (row,) = model.tune().rows
    assert (row.outcome, row.ratio) == ("not faster", 1.5)  # not "the same program"


def test_what_cannot_be_removed_stays_in_force(
    clock: Any, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    model.tune()
    clock({"O2": 1.0, "O0": 1.5})

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "unlink", refuse)
    tuning = model.tune()
    assert (tuning.name, tuning.kept) == ("fast", True)
    assert model.compile().notes == ["tuned: fast, 0.50 of the time without"]


def test_several_changes_at_once(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = {"xla_cpu_prefer_vector_width": 256}
    both = Variant(Choice("vectors", {}, vectors), lambda program, target: True)
    table(FAST, both)

    def seconds(trial: trials.Trial) -> float:
        options = trial.step.stages.compilation.options
        return (0.8 if options.pipeline == "O0" else 1.0) * (0.9 if options.xla_options else 1.0)

    monkeypatch.setattr(trials.Trial, "seconds", seconds)
    tuning = Model().tune()
    assert tuning.name == "fast, vectors" and tuning.ratio == pytest.approx(0.72)
    assert dict(tuning.options.xla_options) == vectors and tuning.options.pipeline == "O0"


# -- variants that do not win ----------------------------------------------------------------


def test_other_results_are_refused(clock: Any, table: Any, wrong: None) -> None:
    clock({"O2": 1.0, "O3": 0.1})
    table(WRONG)
    tuning = Model().tune()
    assert tuning.name is None
    assert "'loss' of run 1 differs by" in tuning.rows[0].outcome
    assert Model().tune(tolerance=0.01).name == "wrong"


def test_a_variant_that_makes_no_difference_is_not_compiled(clock: Any, table: Any) -> None:
    clock({"O2": 1.0})
    table(SAME)
    row = Model().tune(options=gc.CompileOptions(without_passes=["prune"])).rows[0]
    assert row.compile_seconds is None and row.outcome in ("the same program", "not faster")


def test_an_option_that_xla_does_not_know_is_reported(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(UNKNOWN, FAST)
    tuning = Model().tune()
    assert tuning.rows[0].outcome.startswith("not possible: XLA could not compile the program")
    assert tuning.name == "fast"


def test_what_needs_much_more_memory_is_refused(
    clock: Any, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)

    def memory(step: Any) -> int:
        return int(2**30 * (1.3 if step.stages.compilation.options.pipeline == "O0" else 1))

    monkeypatch.setattr(search, "_memory", memory)
    tuning = Model().tune()
    assert tuning.name is None
    assert tuning.rows[0].outcome == "takes 1331 MiB; the given options take 1024"


def test_the_users_own_options_of_xla_stay() -> None:
    mine = gc.CompileOptions(xla_options={"xla_cpu_prefer_vector_width": 128})
    choice = Choice("wide", {}, {"xla_cpu_prefer_vector_width": 512, "xla_other": True})
    assert dict(choice.apply(mine).xla_options) == {
        "xla_cpu_prefer_vector_width": 128,
        "xla_other": True,
    }


def test_what_the_user_set_stays(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O1": 1.0, "O0": 0.5})
    table(FAST)
    assert Model().tune(options=gc.CompileOptions(pipeline="O1")).rows == ()
    assert Model().tune(options=gc.CompileOptions(unroll=2)).name == "fast"


def test_time_runs_out(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table(FAST)
    monkeypatch.setattr(search, "_compile_seconds", lambda compilation, step: 1e6)
    tuning = Model().tune(seconds=5)
    assert tuning.rows[0].outcome == "no time left" and tuning.name is None


# -- where the choice is stored --------------------------------------------------------------


def test_without_a_cache_the_options_are_given(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    tuning = model.tune(options=gc.CompileOptions(cache=None))
    assert not tuning.kept and tuning.options == gc.CompileOptions(pipeline="O0", cache=None)
    assert "not kept: there is no cache" in str(tuning)
    assert model.compile().notes == []


def test_losers_leave_nothing_in_the_cache(clock: Any, table: Any, tmp_path: Any) -> None:
    clock({"O2": 1.0, "O0": 2.0})
    table(FAST)
    options = gc.CompileOptions(cache=tmp_path / "compiled")
    Model().tune(options=options)
    assert len(list((tmp_path / "compiled").iterdir())) == 1  # the unchanged options


def test_a_record_that_is_no_record_is_not_used(clock: Any, table: Any) -> None:
    from graphc.runtime.pipeline import tuned
    from graphc.store.folder import open_cache

    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    model.tune()
    base = model.compile(options=gc.CompileOptions(tuned=False))
    cache = open_cache(gc.CompileOptions())
    assert cache is not None and base.cache_key is not None
    key = tuned._key(base.cache_key)
    entry = cache.get(key)
    assert entry is not None
    for data in (
        {},
        {"name": 1},
        {**entry.metadata["tuned"], "options": {"pipeline": "O9"}},
        {**entry.metadata["tuned"], "options": {"pipelines": "O0"}},
    ):
        cache.put(key, {"tuned": data}, b"")
        assert model.compile().notes == []
    cache.put(key, entry.metadata, b"")
    assert model.compile().notes != []


def test_state_with_another_layout_uses_the_options_unchanged(clock: Any, table: Any) -> None:
    """The tuned step was timed with separate buffers; with other buffers it might be slower."""
    clock({"O2": 1.0, "O0": 0.5})
    model = Model(layers=24)
    table(FAST)
    tuning = model.tune()
    assert tuning.name == "fast"
    stacked = model.compile(options=gc.CompileOptions(tuned=False))
    assert any(buffer.kind == "stacked" for buffer in stacked.layout.buffers)
    step = model.compile()  # its state has the layout of the earlier step
    assert step.notes == [] and step.layout == stacked.layout


# -- other callers of the search -------------------------------------------------------------


def test_several_devices_and_steps(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    two = gc.devices.DataParallel(2)
    assert model.tune(strategy=two).name == "fast"
    assert model.compile().notes == []
    assert model.compile(strategy=two).notes != []
    assert model.tune(steps=3).name == "fast"
    assert model.compile(steps=3).notes != [] and model.compile(steps=4).notes == []


def test_the_graph_and_its_state_are_left_alone(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    session = gc.Session(model.graph)
    before = session.values()
    model.tune()
    for name, value in session.values().items():
        np.testing.assert_array_equal(value, before[name])


def test_shapes_will_do_for_feeds(clock: Any, table: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    assert gc.tune(model.graph, model.fetches, model.shapes, progress=False).name == "fast"


def test_numbers_are_fed_to_scalars(table: Any) -> None:
    table()
    graph = gc.Graph()
    with graph:
        i = gc.placeholder((), "int32", name="i")
        y = gc.take(gc.arange(4), i) * 2
    tuning = gc.tune(graph, y, {i: 2}, progress=False)
    assert (tuning.name, tuning.rows) == (None, ())
    assert int(gc.Session(graph).run(y, {i: 2})) == 4


def test_progress_is_shown_on_terminals(clock: Any, table: Any, monkeypatch: Any) -> None:
    clock({"O2": 1.0, "O0": 0.5})
    table(FAST)
    model = Model()
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    gc.tune(model.graph, model.fetches, model.feeds)
    assert stream.getvalue() == ""
    monkeypatch.setattr(stream, "isatty", lambda: True)
    gc.tune(model.graph, model.fetches, model.feeds)
    shown = stream.getvalue()
    assert "fast" in shown and "3/3" in shown and "0.50 of the time" in shown


@pytest.mark.slow
def test_really_measured() -> None:
    """Uses the real clock. Whichever variant wins, the step computes the same."""
    model = Model()
    with gc.Session(model.graph, options=gc.CompileOptions(tuned=False)) as session:
        wanted = [float(session.run(model.fetches, model.feeds)[1]) for _ in range(5)]
    tuning = model.tune(seconds=3)
    assert {row.name for row in tuning.rows} >= {"no YNN", "512-bit vectors"}
    assert all(row.outcome for row in tuning.rows) and tuning.ratio <= 1.0
    with gc.Session(model.graph) as session:
        got = [float(session.run(model.fetches, model.feeds)[1]) for _ in range(5)]
    assert_near(got, wanted, rtol=1e-4)


# -- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, value, least",
    [("seconds", 0, "above 0"), ("seconds", "1", "above 0"), ("tolerance", -1.0, "of at least 0")],
)
def test_a_wrong_number(name: str, value: Any, least: str) -> None:
    with pytest.raises(AttributeValueError, match=f"tune: {name} must be a number {least}"):
        Model(layers=1).tune(**{name: value})


def test_an_interrupt_while_garbage_is_collected_is_not_lost() -> None:
    def interrupt(phase: str, info: Any) -> None:
        if phase == "start":
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    garbage.callbacks.append(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            collect_garbage()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        garbage.callbacks.remove(interrupt)
        signal.signal(signal.SIGINT, before)


def test_a_search_for_errors_is_not_tuned() -> None:
    with pytest.raises(AttributeValueError, match="check_numerics=True looks for errors"):
        Model(layers=1).tune(options=gc.CompileOptions(check_numerics=True))


def test_no_graph() -> None:
    with pytest.raises(GraphError, match=r"gc\.tune\(graph, fetches, feeds\)"):
        gc.tune("graph", [])  # type: ignore[arg-type]


def test_a_program_that_calls_back_is_not_tuned() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((3,), name="x")
        printed = gc.print("x is {}", x)
    with pytest.raises(GraphError, match="calls back into Python is not tuned"):
        gc.tune(graph, printed, {x: (3,)}, progress=False)


# -- the table of variants ------------------------------------------------------------------


def test_the_table_changes_what_there_is() -> None:
    known = {field.name for field in fields(gc.CompileOptions)}
    names = [variant.choice.name for variant in VARIANTS]
    assert len(set(names)) == len(names)
    for variant in VARIANTS:
        assert variant.choice.options.keys() <= known
        assert variant.choice.apply(gc.CompileOptions()) != gc.CompileOptions()


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.choice.name)
def test_xla_knows_the_options_of_the_table(variant: Variant) -> None:
    """XLA reads the options of all platforms on each platform."""
    graph = gc.Graph()
    with graph:
        y = gc.exp(gc.constant(np.ones(3, "float32")))
    options = variant.choice.apply(gc.CompileOptions(cache=None))
    step = gc.compile(graph, y, options=options)
    assert_near(step(step.init())[0], np.full(3, np.e), rtol=1e-5)


# -- statistics of trials -------------------------------------------------------------------


def test_the_bound_of_the_median() -> None:
    assert upper_bound([0.5] * 4, 0.95) == math.inf
    assert upper_bound([0.5, 0.6, 0.7, 0.8, 0.9], 0.95) == 0.9
    assert upper_bound([0.5, 0.6, 0.7, 0.8, 0.9], 0.975) == math.inf  # P(B(5, 1/2) <= 4) = 0.969
    ratios = list(np.linspace(0.1, 1.5, 15))
    assert upper_bound(ratios, 0.975) == ratios[11]  # P(B(15, 1/2) <= 11) = 0.982
    rng = np.random.default_rng(0)
    above = [upper_bound(list(rng.lognormal(0, 0.3, 15)), 0.975) >= 1.0 for _ in range(2000)]
    assert np.mean(above) > 0.975


def test_doubts_are_measured_again(monkeypatch: pytest.MonkeyPatch, table: Any) -> None:
    """A variant is slower in every fourth pair. Fifteen pairs do not decide; thirty do."""
    table(FAST)
    calls = 0

    def seconds(trial: trials.Trial) -> float:
        nonlocal calls
        if trial.step.stages.compilation.options.pipeline != "O0":
            return 1.0
        calls += 1
        return 1.2 if calls % 4 == 0 else 0.7

    monkeypatch.setattr(trials.Trial, "seconds", seconds)
    assert Model().tune().name == "fast"
    monkeypatch.setattr(search, "_LOOKS", 1)
    assert Model().tune(options=gc.CompileOptions(cache=None)).name is None


def nearby(**values: Any) -> dict[str, Any]:
    return {name: np.asarray(value) for name, value in values.items()}


@pytest.mark.parametrize(
    "want, got, around, said",
    [
        (np.float32([1, 2]), np.float32([1, 2.0001]), np.float32([1, 2]), None),
        (np.float32([1, 2]), np.float32([1, 2.001]), np.float32([1, 2]), "a differs by 0.001"),
        (np.float32([1, 2]), np.float32([1, 2.001]), np.float32([1, 2.0005]), None),
        (np.float64([1]), np.float64([1.0001]), np.float64([1]), "a differs"),
        (np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]), np.float32([0, 0]), None),
        (np.float32([1]), np.float32([np.nan]), np.float32([1]), "a differs by inf"),
        (np.float32([np.inf]), np.float32([-np.inf]), np.float32([np.inf]), "a differs by inf"),
        (np.int32([1, 2]), np.int32([1, 3]), np.int32([1, 2]), "a differs by 1"),
        (np.int32([1]), np.int64([1]), np.int32([1]), "another type"),
        (np.complex64([1j]), np.complex64([1.01j]), np.complex64([1j]), "a differs"),
    ],
)
def test_disagreement(want: Any, got: Any, around: Any, said: str | None) -> None:
    found = disagreement(nearby(a=want), nearby(a=got), nearby(a=around), None)
    assert (found is None) if said is None else (found is not None and said in found)


def test_nudged_changes_floats_by_their_last_bits() -> None:
    values = [np.float32([1, -2, 0]), np.int32([3]), np.float64(4), np.zeros((0,), "float32")]
    first, second, third, _ = nudged(values, 0)
    assert 0 < np.abs(first - values[0]).max() < 1e-6 and first[2] == 0
    assert second[0] == 3 and 0 < abs(third - 4) < 1e-14 and first.dtype == np.float32
