"""What each pass changed, the cost of the program after it, and disabled passes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import optax
import pytest

import graphc as gc
from graphc.errors import AttributeValueError, UnknownNameError
from graphc.ir.program import Program
from graphc.runtime.step.executable import Executable
from tests.near import assert_near

BATCH, WIDTH, LAYERS = 8, 32, 12


def step(strategy: gc.devices.DataParallel | None = None, **options: object) -> Executable:
    graph = gc.Graph(seed=0, name="deep")
    with graph:
        x = gc.placeholder((None, WIDTH), name="x")
        h = x
        for i in range(LAYERS):
            h = h + gc.nn.Dense(WIDTH, activation=gc.nn.gelu, name=f"h{i}")(h)
        loss = gc.reduce_mean(gc.square(h), name="loss")
        train = gc.minimize(loss, optax.adam(1e-3), name="train")
    given = gc.CompileOptions(**options)  # type: ignore[arg-type]
    feeds = {x: (BATCH, WIDTH)}
    made = gc.compile_async(graph, [train, loss], feeds, strategy=strategy, options=given).result()
    assert isinstance(made, Executable)
    return made


@pytest.fixture(scope="module")
def one() -> Executable:
    return step()


def operators(program: Program) -> list[str]:
    return [node.op.name for node in program.walk()]


def test_a_row_for_each_run_with_what_the_program_costs(one: Executable) -> None:
    history = one.pass_history()
    start, *rows = history.report.rows
    assert start.name == "(start)" and start.before == start.after == rows[0].before
    names = [row.name for row in one.pass_report().rows]
    # These passes run after the state layout is known.
    last = ["stack-less", "hoist-products", "carry-shifted", "update-in-loop", "update-in-place"]
    assert names[-5:] == last
    assert [row.name for row in rows] == [*names[:-5], "physical", *last]
    # Each product takes 2 B W^2: one forward and two backward per layer, but x has no gradient.
    products = (3 * LAYERS - 1) * 2 * BATCH * WIDTH**2
    for row in history.report.rows:
        assert row.flops is not None and products < row.flops < 2 * products
        assert row.bytes is not None and row.memory is not None and 0 < row.memory < row.bytes
    assert history.report.to_json()[0].keys() >= {"flops", "bytes", "memory", "milliseconds"}
    assert one.pass_report().rows[0].flops is None  # FLOPs were not requested at compilation


def test_the_table_shows_it(one: Executable) -> None:
    lines = str(one.pass_history()).splitlines()
    assert lines[0].split()[-8:] == ["check", "ms", "MFLOP", "MB", "moved", "MB", "at", "once"]
    assert lines[1].startswith("(start)") and len({len(line) for line in lines[:-1]}) == 1
    assert "MFLOP" not in str(one.pass_report())


def test_before_and_after_a_pass(one: Executable) -> None:
    history = one.pass_history()
    before, after = history.before("roll-repeats"), history.after("roll-repeats")
    assert "Scan" not in operators(before) and "Scan" in operators(after)
    assert str(after).startswith("program deep(") and "Scan(" in str(after)
    steps = [s for s in history.steps if s.before is not s.after]
    for earlier, later in pairwise(steps):
        same = earlier.after is later.before
        assert same or not later.before.symbols()  # except where sizes were bound


def test_the_first_run_that_changed_something_or_one_by_its_number(one: Executable) -> None:
    history = one.pass_history()
    runs = [s for s in history.steps if s.row.name == "prune"]
    assert len(runs) > 2 and history.before("prune") is runs[0].before
    for number, run in enumerate(runs, 1):
        assert history.after(f"prune:{number}") is run.after


def test_what_each_replica_runs() -> None:
    history = step(gc.devices.DataParallel(2)).pass_history()
    names = [s.row.name for s in history.steps[-11:]]
    assert names[:4] == ["physical", "replicate", "stack-less", "hoist-products"]
    assert names[4:6] == ["join-moments", "narrow-exchanges"]
    assert names[6:8] == ["exchange-in-loops", "bucket-collectives"]
    assert names[8:] == ["carry-shifted", "update-in-loop", "update-in-place"]
    assert "AllReduce" in operators(history.after("replicate"))
    assert "AllReduce" not in operators(history.before("replicate"))
    local, whole = history.steps[-10].row.flops, history.steps[-11].row.flops
    assert local is not None and whole is not None and 0.5 * whole <= local < 0.7 * whole


@pytest.mark.slow
def test_of_a_program_that_was_found_in_the_cache(one: Executable) -> None:
    again = step()
    assert again.stages is not one.stages
    found, made = again.pass_history().report.rows, one.pass_history().report.rows
    assert [(r.name, r.after, r.flops) for r in found] == [(r.name, r.after, r.flops) for r in made]


def test_no_such_pass(one: Executable) -> None:
    history = one.pass_history()
    with pytest.raises(UnknownNameError, match=r"no pass 'roll-repeat' ran.*") as error:
        history.after("roll-repeat")
    assert error.value.hint == "did you mean 'roll-repeats'?"
    with pytest.raises(AttributeValueError, match="names 'functionalize', which is required"):
        step(without_passes=["functionalize"])
    for name in ("prune:9", "prune:0", "prune:x"):
        with pytest.raises(UnknownNameError, match=r"pass 'prune' has no run"):
            history.before(name)


# -- disabled passes ------------------------------------------------------------------------


def test_without_a_pass(one: Executable) -> None:
    flat = step(without_passes=["roll-repeats", "group-alike"])
    assert "Scan" in operators(one.program) and "Scan" not in operators(flat.program)
    names = {row.name for row in flat.pass_report().rows}
    assert names.isdisjoint({"roll-repeats", "group-alike"}) and "prune" in names
    assert flat.cache_key != one.cache_key
    feeds = {"x": np.ones((BATCH, WIDTH), "float32")}
    losses = [s(s.init(), feeds)[0][1] for s in (one, flat)]
    assert_near(*losses, rtol=1e-5)


def test_unroll(one: Executable) -> None:
    def turns(made: Executable) -> set[object]:
        return {n.attrs["unroll"] for n in made.program.walk() if n.op.name == "Scan"}

    assert turns(one) == {1} and turns(step(unroll=3)) == {3}


def test_options_are_checked() -> None:
    with pytest.raises(AttributeValueError, match="without_passes must be a tuple of names"):
        gc.CompileOptions(without_passes="prune")
    with pytest.raises(AttributeValueError, match="without_passes must be a tuple of names"):
        gc.CompileOptions(without_passes=[1])  # type: ignore[list-item]
    with pytest.raises(AttributeValueError, match="unroll must be an int of at least 1, or None"):
        gc.CompileOptions(unroll=0)
    with pytest.raises(AttributeValueError, match="tuned must be True or False"):
        gc.CompileOptions(tuned=1)  # type: ignore[arg-type]
    names = gc.CompileOptions(without_passes=["prune", "a", "prune"]).without_passes
    assert names == ("a", "prune")
    with pytest.raises(AttributeValueError, match="'rol-repeats', which is not a pass") as error:
        step(without_passes=["rol-repeats"])
    assert error.value.hint == "did you mean 'roll-repeats'?"
    with pytest.raises(AttributeValueError, match="names 'functionalize', which is required"):
        step(without_passes=["functionalize"])
