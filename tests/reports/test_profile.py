"""`gc.profile`: the time of a step by node and line."""

import json
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp

import graphc as gc
from graphc.errors import ArgumentError, AttributeValueError, ExecutionError, FeedError
from graphc.reports.profile import PHASES, Profile
from graphc.runtime.hlo.hlo_text import parse
from graphc.train.tensorboard.protos import protos
from tests.compiling import optimised
from tests.reports.models import LARGE, SMALL, Model, line_of, mlp, transformer


def profiled(model: Model, devices: int = 1, steps: int = 5) -> Profile:
    with optimised(), model.session(devices) as session:
        return gc.profile(session, model.fetches, model.feeds, steps=steps)


def undisturbed(made: Callable[[], Profile], holds: Callable[[Profile], bool]) -> Profile:
    """Returns the first profile for which a comparison of times holds. Other processes may
    interrupt this one at any instruction, but not always at the same one."""
    for _ in range(6):
        profile = made()
        check_sums(profile)
        if holds(profile):
            return profile
    raise AssertionError(profile.text())


def nearly_all_known(profile: Profile) -> bool:
    """Whether nodes account for nearly all time of instructions."""
    return profile.unattributed_seconds < 0.02 * profile.device_seconds


def check_sums(profile: Profile) -> None:
    """Checks that the parts of a step add up to the whole."""
    nodes = sum(node.seconds for node in profile.nodes.values())
    assert nodes + profile.unattributed_seconds == pytest.approx(profile.device_seconds)
    assert profile.device_seconds + profile.idle_seconds == pytest.approx(profile.step_seconds)
    assert sum(profile.program_seconds.values()) == pytest.approx(nodes)
    lines = sum(line.seconds for line in profile.lines.values())
    assert lines <= nodes + 1e-9
    for line in profile.lines.values():
        assert sum(line.phases.values()) == pytest.approx(line.seconds)
        assert line.share == pytest.approx(line.seconds / profile.step_seconds)
    host = profile.host.feeds + profile.host.dispatch + profile.host.wait
    assert 0 < host <= 1.001 * profile.step_seconds


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.slow
def test_nearly_all_instructions_belong_to_nodes(name: str, devices: int) -> None:
    model = SMALL[name]()
    profile = undisturbed(lambda: profiled(model, devices), nearly_all_known)
    assert profile.notes == ()
    assert profile.devices == devices
    phases = {node.phase for node in profile.nodes.values()}
    assert phases >= {"forward", "backward", "update"} and phases <= set(PHASES)
    assert ("exchange" in phases) == (devices > 1)
    in_graph = [name for name in profile.nodes if model.graph.find_node(name) is not None]
    assert len(in_graph) > 0.5 * len(profile.nodes)


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.slow
def test_every_instruction_of_the_step_is_in_the_recording(name: str, devices: int) -> None:
    """So the sums miss no work. How near they come to the time of the step depends on what else
    the machine does: benchmarks/profiling.py measures it."""
    model, steps = LARGE[name](), 3
    with optimised(), model.session(devices) as session:
        profile = gc.profile(session, model.fetches, model.feeds, steps=steps)
        (executable,) = session.executables
        wanted = executed_instructions(executable.hlo())
    check_sums(profile)
    runs = Counter((run.instruction, run.device) for run in profile.recording.runs)
    assert len(wanted) > 10
    assert runs.keys() >= {
        (instruction, device) for instruction in wanted for device in range(devices)
    }
    assert {runs[key] for key in runs if key[0] in wanted} == {steps}


def executed_instructions(hlo: str) -> set[str]:
    """The instructions of the entry computation that do any work."""
    free = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element"}
    return {
        instruction.name
        for instruction in parse(hlo).entry.instructions
        if instruction.opcode not in free
    }


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.slow
def test_tensorboard_takes_the_times(name: str, devices: int, tmp_path: Path) -> None:
    profile = profiled(SMALL[name](), devices)
    assert profile.program is not None
    with gc.train.SummaryWriter(tmp_path) as writer:
        writer.graph(profile.program)
        writer.run_metadata("step 5", profile.program, 5, seconds=profile.program_seconds)
    metadata = metadata_in(tmp_path)
    shown = sum(
        node.all_end_rel_micros
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    )
    wanted = 1e6 * sum(profile.program_seconds.values())
    assert shown == pytest.approx(wanted, rel=0.2, abs=len(profile.program_seconds))


def metadata_in(folder: Path) -> Any:
    """The run metadata in the only event file."""
    (file,) = folder.iterdir()
    for record in gc.data.read_tfrecords(file):
        event = protos().event.Event.FromString(record)
        if event.HasField("tagged_run_metadata"):
            content = event.tagged_run_metadata.run_metadata
            return protos().config.RunMetadata.FromString(content)
    raise AssertionError("no run metadata")


def test_lines_and_phases() -> None:
    profile = profiled(mlp())
    here = Path(__file__).with_name("models.py")
    hidden = line_of('name="hidden"')
    line = profile.lines[f"{here}:{hidden}"]
    assert line.phases["forward"] > 0 and line.phases["backward"] > 0
    assert line.phases["update"] == 0
    minimize = line_of("optax.adam(1e-3), name=")
    assert [caller.line for caller in line.callers] == [minimize]
    assert "gc.nn.relu" in line.code
    update = profile.lines[f"{here}:{minimize}"]
    assert update.phases["update"] == pytest.approx(update.seconds)
    backward = profile.nodes["train/gradients/hidden/MatMul/MatMul_1"]
    assert (backward.phase, backward.op) == ("backward", "MatMul")
    assert backward.caller is not None and backward.caller.line == minimize
    assert backward.flops == 2 * 32 * 64 * 64
    assert backward.flops_per_second == pytest.approx(backward.flops / backward.seconds)
    assert backward.count == 1


@pytest.mark.slow
def test_blocks_of_a_loop_share_its_time() -> None:
    model = transformer()
    with optimised(), model.session() as session:
        profile = undisturbed(
            lambda: gc.profile(session, model.fetches, model.feeds, steps=5), nearly_all_known
        )
        program = session.executables[0].stages.local
    assert "Scan" in {node.op.name for node in program.nodes}, "the blocks were not rolled"
    for part in ("up/MatMul", "query/MatMul"):
        blocks = [profile.nodes[f"block{i}/{part}"] for i in range(1, 6)]  # 0 is before the loop
        assert len({round(block.seconds, 12) for block in blocks}) == 1
        assert all(block.count == 1 and block.seconds > 0 for block in blocks)
        assert len({block.flops for block in blocks}) == 1 and blocks[0].flops > 0
    assert profile.nodes["block*"].phase == "loop"
    gradients = [n for n in profile.nodes if n.startswith("train/gradients/block3/")]
    assert gradients


def test_the_program_is_the_one_that_run_uses() -> None:
    model = mlp()
    with model.session() as session:
        session.run(model.fetches, model.feeds)
        (before,) = session.executables
        key, compiled = before.cache_key, before.compiled
        gc.profile(session, model.fetches, model.feeds, steps=2)
        (after,) = session.executables
        assert after is before and after.compiled is compiled and after.cache_key == key


def test_a_training_step_trains() -> None:
    model = mlp()
    with model.session() as session, model.session() as other:
        gc.profile(session, model.fetches, model.feeds, steps=3)
        for _ in range(8):  # 2 before, 3 without and 3 with the profiler
            other.run(model.fetches, model.feeds)
        for name, value in session.values().items():
            assert np.array_equal(value, other.values()[name]), name


def test_only_a_step_without_value() -> None:
    model = mlp()
    with model.session() as session:
        profile = gc.profile(session, "train", model.feeds, steps=2)
    check_sums(profile)
    assert profile.host.wait > 0


def test_batches_of_several_shapes_are_used_again() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(("batch", 4), name="x")
        y = gc.exp(x, name="y")
    fed = iter([{"x": np.ones((n, 4), "float32")} for n in (2, 3)])
    with gc.Session(graph) as session:
        profile = gc.profile(session, y, fed, steps=4)
        assert session.compile_count == 2
    assert list(profile.nodes) == ["y"]
    assert profile.nodes["y"].count == 1
    assert profile.nodes["y"].flops in (8, 12)  # for one of the shapes
    assert profile.steps == 4


def test_nodes_on_several_devices() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((64, 64), name="x")
        with gc.device("/cpu:0"):
            a = gc.matmul(x, x, name="a")
        with gc.device("/cpu:1"):
            b = gc.matmul(a, a, name="b")
    with gc.Session(graph) as session:
        profile = gc.profile(session, b, {"x": np.ones((64, 64), "float32")}, steps=3)
    assert {"a", "b"} <= profile.nodes.keys()
    check_sums(profile)


@pytest.mark.parametrize("options", [{"check_numerics": True}, {"memory_limit": 10**9}], ids=str)
def test_options(options: dict[str, object]) -> None:
    model = mlp()
    with model.session(**options) as session:
        profile = gc.profile(session, model.fetches, model.feeds, steps=2)
    check_sums(profile)
    assert "hidden/MatMul" in profile.nodes


def test_node_that_xla_runs_as_a_loop_runs_once() -> None:
    graph = gc.Graph(seed=0)
    with graph:
        drawn = gc.random.normal((64, 64), name="drawn")
    profile = gc.profile(gc.Session(graph), drawn, steps=2)
    assert profile.nodes["drawn"].count == 1


def test_nothing_to_measure() -> None:
    graph = gc.Graph()
    with graph:
        one = gc.constant(1)
    profile = gc.profile(gc.Session(graph), one, steps=2)
    assert profile.nodes == {} and profile.lines == {}
    assert "no node has a line" in profile.text()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        pytest.param({"session": 3}, AttributeValueError, "must be a session, got int", id="int"),
        pytest.param({"steps": 0}, AttributeValueError, "at least 1, got 0", id="no steps"),
        pytest.param({"steps": True}, AttributeValueError, "got True", id="bool"),
        pytest.param({"feeds": []}, FeedError, "got no batch", id="no batches"),
        pytest.param({"feeds": [3]}, FeedError, "got int", id="no feeds"),
        pytest.param({"feeds": 3}, FeedError, "got int", id="int feeds"),
        pytest.param({"feeds": None}, FeedError, "is needed and not fed", id="not fed"),
    ],
)
def test_refused(arguments: dict[str, object], error: type[Exception], text: str) -> None:
    model = mlp()
    given = {"session": model.session(), "fetches": "loss", "feeds": model.feeds, **arguments}
    with pytest.raises(error, match=text):
        gc.profile(**given)  # type: ignore[arg-type]


def test_a_session_profiles_its_steps() -> None:
    model = mlp()
    with model.session() as session:
        profile = session.profile(model.fetches, model.feeds, steps=2)
        assert isinstance(profile, Profile) and profile.steps == 2
        assert profile.nodes.keys() == gc.profile(session, model.fetches, model.feeds).nodes.keys()
        with pytest.raises(ArgumentError, match=r"Session\.profile: it has no argument 'count'"):
            session.profile(model.fetches, model.feeds, count=2)


def test_another_profile_is_recorded(tmp_path: Path) -> None:
    model = mlp()
    with (
        model.session() as session,
        jax.profiler.trace(str(tmp_path)),
        pytest.raises(ExecutionError, match="the profiler cannot start"),
    ):
        gc.profile(session, "loss", model.feeds, steps=1)


# -- calls ----------------------------------------------------------------------------------


def test_function_of_jit_has_lines() -> None:
    @gc.jit
    def total(a: jax.Array) -> jax.Array:
        return jnp.tanh(a @ a).sum()

    profile = gc.profile_call(total, np.ones((128, 128), "float32"), steps=3)
    (line,) = profile.lines.values()
    assert line.source.file == __file__ and "jnp.tanh" in line.code
    assert {"MatMul", "Tanh"} <= {node.op for node in profile.nodes.values()}


def test_function_of_jax_has_instructions_only() -> None:
    profile = gc.profile_call(jax.jit(lambda a: jnp.tanh(a @ a)), np.ones((64, 64), "float32"))
    assert profile.nodes == {} and profile.unattributed
    assert "graphc did not compile this function" in profile.notes[0]
    assert "by instruction of XLA" in profile.text()


@pytest.mark.slow
def test_artifact_has_names_without_lines(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(("batch", 64), name="x")
        with gc.name_scope("net"):
            y = gc.nn.Dense(64, activation=gc.tanh, name="dense")(x)
    gc.save(
        gc.Session(graph),
        tmp_path / "a.gcx",
        signatures={"predict": gc.Signature({"x": x}, {"y": y})},
    )
    point = gc.load(tmp_path / "a.gcx").signatures["predict"]
    profile = gc.profile_call(point, x=np.ones((32, 64), "float32"), steps=3)
    assert "net/dense/MatMul" in profile.nodes
    assert profile.lines == {} and "no lines of the user's program" in profile.notes[0]
    profile.html(tmp_path / "a.html")


def test_call_of_no_function() -> None:
    with pytest.raises(AttributeValueError, match="must be a function, got int"):
        gc.profile_call(3)  # type: ignore[arg-type]


def test_what_the_function_raises_passes_through() -> None:
    def wrong() -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        gc.profile_call(wrong)


# -- programs from the cache ----------------------------------------------------------------

SCRIPT = textwrap.dedent("""
    import json, sys
    import numpy as np
    import graphc as gc

    graph = gc.Graph()
    with graph:
        x = gc.placeholder((256, 256), name="x")
        y = gc.matmul(x, x, name=sys.argv[1])
        z = gc.exp(gc.tanh(y, name=sys.argv[2]), name="z")  # names of results are part of the key
    session = gc.Session(graph, options=gc.CompileOptions(cache=sys.argv[3]))
    profile = gc.profile(session, z, {"x": np.ones((256, 256), "float32")}, steps=3)
    (executable,) = session.executables
    nodes = {name: node.op for name, node in profile.nodes.items() if name != "z"}
    print(json.dumps([executable.cached, nodes, len(profile.lines), list(profile.notes)]))
""")


@pytest.mark.slow
def test_executable_from_the_cache_has_the_names_of_this_graph(tmp_path: Path) -> None:
    """Equal programs share an executable, whose text has the names of the first program."""
    (tmp_path / "script.py").write_text(SCRIPT)
    found = []
    for names in (("a", "b"), ("a", "b"), ("c", "d"), ("b", "a")):
        command = [sys.executable, "script.py", *names, str(tmp_path / "cache")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    assert found == [
        [False, {"a": "MatMul", "b": "Tanh"}, 2, []],
        [True, {"a": "MatMul", "b": "Tanh"}, 2, []],
        [True, {"c": "MatMul", "d": "Tanh"}, 2, []],
        [True, {"b": "MatMul", "a": "Tanh"}, 2, []],
    ]


def test_update_of_a_scope_that_is_no_optimizer() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((64, 64), name="x")
        with gc.name_scope("update"):
            y = gc.matmul(x, x, name="product")
    profile = gc.profile(gc.Session(graph), y, {"x": np.ones((64, 64), "float32")}, steps=2)
    node = profile.nodes["update/product"]
    assert (node.phase, node.caller) == ("forward", None)


def test_gradients_have_the_line_that_requested_them() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((64, 64), name="x")
        y = gc.reduce_sum(gc.square(gc.matmul(x, x, name="product")))
        (slope,) = gc.gradients(y, [x])
    asked = line_of("(slope,) = ", Path(__file__))
    profile = gc.profile(gc.Session(graph), slope, {"x": np.ones((64, 64), "float32")}, steps=2)
    backward = [node for node in profile.nodes.values() if node.phase == "backward"]
    assert backward
    assert {node.caller.line for node in backward if node.caller is not None} == {asked}


def test_optimizer_of_optax_is_one_line() -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder((8, 8), name="x")
        w = gc.variable(np.ones((8, 8), "float32"), name="w")
        train = gc.minimize(gc.reduce_sum((x @ w) ** 2), optax.adamw(1e-3), name="mine")
    profile = gc.profile(gc.Session(graph), train, {"x": np.ones((8, 8), "float32")}, steps=2)
    update = [node for node in profile.nodes.values() if node.phase == "update"]
    assert update and {node.caller for node in update} == {node.source for node in update}
