"""Native code, StableHLO and the graph: which one is used, why, and that they agree."""

import dataclasses
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.artifacts import native_code, ways
from graphc.artifacts.lowering import compiled_program
from graphc.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactVersionError,
    ExecutionError,
)
from graphc.untrusted import safe_reading
from tests.artifacts.forge import entry, forge, member
from tests.artifacts.models import batch, classifier, linear
from tests.near import assert_near

X = np.array([[1.0, 2.0]], np.float32)
PREDICT = "programs/predict.stablehlo"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    graph, signatures = linear()
    path = tmp_path_factory.mktemp("ways") / "model.gcx"
    gc.save(gc.Session(graph), path, signatures=signatures)
    return path


def check(path: Path, way: str, *notes: str, **options: Any) -> None:
    """Checks that both signatures work in this way."""
    model = gc.load(path, **options)
    predict, train = model.signatures["predict"], model.signatures["train"]
    assert float(predict(x=X)["y"][0, 0]) == 5.0
    _, state = train(model.state(), x=X)
    assert float(predict(state, x=X)["y"][0, 0]) == -7.5
    assert (predict.way, train.way) == (way, way)
    assert len(predict.notes) == len(notes)
    for note, text in zip(predict.notes, notes, strict=True):
        assert text in note
    assert model.notes == [f"{p.name}: {n}" for p in (predict, train) for n in p.notes]


def test_stablehlo_is_taken_where_jax_reads_it(whole: Path) -> None:
    check(whole, "stablehlo")


# -- versions -------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", [0, 8, 99, 2**40])
def test_a_convention_that_jax_does_not_know(whole: Path, tmp_path: Path, convention: int) -> None:
    path = tmp_path / "model.gcx"

    def change(manifest: dict[str, Any]) -> None:
        for name in ("predict", "train"):
            entry(manifest, name)["convention"] = convention

    forge(whole, path, change)
    check(path, "graph", f"stablehlo: its calling convention is {convention}, but jax")


def test_a_convention_in_jaxs_own_header(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    replaced = {}
    for name in ("predict", "train"):
        key = f"programs/{name}.stablehlo"
        exported = jax.export.deserialize(bytearray(member(whole, key)))
        later = dataclasses.replace(exported, calling_convention_version=99)
        replaced[key] = bytes(later.serialize())
    forge(whole, path, replaced=replaced)
    check(path, "graph", "stablehlo: its calling convention is 99, but jax")


def test_stablehlo_of_a_newer_jax(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    keys = [f"programs/{name}.stablehlo" for name in ("predict", "train")]
    programs = {key: member(whole, key) for key in keys}
    assert all(b"dot_general_v" in p for p in programs.values())  # an operator with its version
    newer = {k: p.replace(b"dot_general_v", b"dot_general_w") for k, p in programs.items()}
    forge(whole, path, lambda m: m.update(jax="9.0"), newer)
    check(path, "graph", "stablehlo: ")

    def without_graph(manifest: dict[str, Any]) -> None:
        manifest["jax"] = "9.0"
        entry(manifest, "predict")["graph"] = None

    forge(whole, path, without_graph, newer)
    with pytest.raises(ArtifactVersionError, match="none of its forms can be used") as info:
        gc.load(path).signatures["predict"](x=X)
    assert "jax 9.0" in str(info.value) and "stablehlo: " in str(info.value)
    assert "install the jax it was written with" in str(info.value)


def test_stablehlo_that_xla_refuses(whole: Path, tmp_path: Path, monkeypatch) -> None:
    """A readable program may call functions that no longer exist."""

    def refuse(key: dict[str, str], *arguments: Any) -> Any:
        if key["form"] == "stablehlo":
            raise ExecutionError("XLA could not compile the program: no such custom call")
        return compiled_program(key, *arguments)

    monkeypatch.setattr(ways, "compiled_program", refuse)
    check(whole, "graph", "stablehlo: XLA could not compile the program: no such custom call")
    path = tmp_path / "model.gcx"
    forge(whole, path, lambda m: entry(m, "predict").update(graph=None))
    predict = gc.load(path).signatures["predict"]
    with pytest.raises(ExecutionError, match="no such custom call"):
        predict(x=X)
    monkeypatch.undo()
    assert float(predict(x=X)["y"][0, 0]) == 5.0  # the way stays: other sizes may work


# -- the graph ------------------------------------------------------------------------------


def graph_only(manifest: dict[str, Any]) -> None:
    for record in manifest["signatures"].values():
        record["convention"] = 99


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_graph_gives_what_stablehlo_gives(tmp_path: Path, dtype: str) -> None:
    """Both give equal results for any batch size, with random streams, averages and slots."""
    graph, signatures = classifier(dtype=dtype)
    gc.save(gc.Session(graph), tmp_path / "a.gcx", signatures=signatures)
    forge(tmp_path / "a.gcx", tmp_path / "b.gcx", graph_only)
    models = [gc.load(tmp_path / name) for name in ("a.gcx", "b.gcx")]
    states = [model.state() for model in models]
    close = {"rtol": 1e-12} if dtype == "float64" else {"rtol": 1e-4}
    for step, size in enumerate([8, 8]):
        losses = []
        for i, model in enumerate(models):
            feeds = batch(size, step, dtype)
            outputs, states[i] = model.signatures["train"](states[i], **feeds)
            losses.append(float(outputs["loss"]))
        assert_near(*losses, **close)
    x = batch(5, 9, dtype)["x"]
    pairs = zip(models, states, strict=True)
    logits = [m.signatures["predict"](s, x=x)["logits"] for m, s in pairs]
    assert_near(*logits, rtol=1e-9 if dtype == "float64" else 0.05, atol=1e-9)
    assert [m.signatures["train"].way for m in models] == ["stablehlo", "graph"]


def test_a_loop_in_the_graph(tmp_path: Path) -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(("batch", 3), name="x")
        total, sums = gc.scan(lambda c, row: (c + row, c * row), gc.zeros((3,)), gc.ones((4, 3)))
        y = x * total + gc.reduce_sum(sums)
    signatures = {"f": gc.Signature({"x": x}, {"y": y})}
    gc.save(gc.Session(graph), tmp_path / "a.gcx", signatures=signatures)
    forge(tmp_path / "a.gcx", tmp_path / "b.gcx", graph_only)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    f = gc.load(tmp_path / "b.gcx").signatures["f"]
    assert_near(f(x=x)["y"], x * 4 + 18, rtol=1e-7)
    assert f.way == "graph"


def test_the_graph_names_lines_without_folders(whole: Path) -> None:
    data = member(whole, "programs/train.graph")
    assert b'"source":"models.py:' in data
    assert os.path.dirname(__file__).encode() not in data and b"/models.py" not in data
    assert b"MatMul" in data and b"[batch, 2]" in data  # named sizes stay open


# -- native code ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def native(tmp_path_factory) -> Path:
    graph, signatures = linear()
    path = tmp_path_factory.mktemp("native") / "model.gcx"
    fixed = {n: dataclasses.replace(s, sizes={"batch": 1}) for n, s in signatures.items()}
    fixed["open"] = signatures["predict"]
    gc.save(gc.Session(graph), path, signatures=fixed, native=True)
    return path


def test_native_code_is_used_where_it_is_trusted(native: Path) -> None:
    check(native, "stablehlo", "native: not trusted: gc.load(path, trust_native=True)")
    check(native, "native", trust_native=True)
    model = gc.load(native, trust_native=True)
    assert model.signatures["open"].way == "stablehlo"  # native code needs fixed sizes
    assert model.signatures["open"].notes == []
    elsewhere = gc.load(native, trust_native=True, device=jax.devices()[1])
    assert float(elsewhere.signatures["predict"](x=X)["y"][0, 0]) == 5.0
    assert "made for another environment: devices" in elsewhere.signatures["predict"].notes[0]


def test_native_code_is_compiled_for_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gc.Graph(seed=0) as graph:
        x = gc.placeholder((2, 6, 6, 3), name="x")
        y = gc.nn.max_pool(gc.nn.Conv2D(4, 1, name="conv")(x), 3, 2)
    lowered = []
    compiled_program = native_code.compiled_program

    def compiled(key: Any, lower: Any, devices: Any, options: Any) -> Any:
        lowered.append((lower().as_text(), dict(options)))
        return compiled_program(key, lower, devices, options)

    monkeypatch.setattr(native_code, "compiled_program", compiled)
    path = tmp_path / "m.gcx"
    options = gc.CompileOptions(
        pipeline="O3", xla_options={"xla_cpu_enable_fast_math": False}, check_numerics=True
    )
    session = gc.Session(graph, options=options)
    gc.save(session, path, signatures={"y": gc.Signature({"x": x}, {"y": y})}, native=True)
    ((text, given),) = lowered
    assert given == {"xla_cpu_enable_fast_math": False}
    assert "stablehlo.dot_general" in text and "stablehlo.convolution" not in text
    data = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    expected = session.run(y, {x: data})
    for trusted, way in ((True, "native"), (False, "stablehlo")):
        predict = gc.load(path, trust_native=trusted).signatures["y"]
        assert_near(predict(x=data)["y"], expected, rtol=1e-5)
        assert predict.way == way


def test_native_code_is_put_in_on_request_only(whole: Path, tmp_path: Path) -> None:
    assert b"native" not in member(whole, "programs/predict.graph")
    assert (
        json.loads(json.dumps(gc.load(whole).manifest.to_json()))["signatures"]["predict"]["native"]
        is None
    )
    graph, signatures = linear()
    with pytest.raises(gc.errors.AttributeValueError, match="every signature has open sizes"):
        gc.save(gc.Session(graph), tmp_path / "m.gcx", signatures=signatures, native=True)
    assert not list(tmp_path.iterdir())


class Bomb:
    """Runs code when it is unpickled."""

    ran = False

    def __reduce__(self) -> Any:
        return (_explode, ())


def _explode() -> None:
    Bomb.ran = True


def test_hostile_native_code_is_not_looked_at(native: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    bomb = {"programs/predict.native": pickle.dumps(Bomb()) + b"\0" * 10}
    forge(native, path, replaced=bomb)
    check(path, "stablehlo", "native: not trusted")  # even with a correct checksum
    assert not Bomb.ran

    def elsewhere(manifest: dict[str, Any]) -> None:
        entry(manifest, "predict")["native"]["environment"]["jax"] = "0.0.1"

    forge(native, path, elsewhere, bomb)
    predict = gc.load(path, trust_native=True).signatures["predict"]
    assert float(predict(x=X)["y"][0, 0]) == 5.0 and not Bomb.ran
    assert predict.notes == ["native: made for another environment: jax differ"]

    def extra(manifest: dict[str, Any]) -> None:
        entry(manifest, "predict")["native"]["environment"]["more"] = ""

    forge(native, path, extra, bomb)
    assert gc.load(path, trust_native=True).signatures["predict"].way == "stablehlo"
    # With a wrong checksum, not even if the file is trusted.
    digest = json.loads(member_of(native, "manifest.json"))["members"]["programs/predict.native"]

    def wrong(manifest: dict[str, Any]) -> None:
        manifest["members"]["programs/predict.native"].update(sha256=digest["sha256"])

    forge(native, path, wrong, bomb)
    with pytest.raises(ArtifactCorruptError, match=r"predict\.native' was altered"):
        gc.load(path, trust_native=True).signatures["predict"](x=X)
    assert not Bomb.ran


def member_of(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


def test_native_code_that_does_not_load(native: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    forge(native, path, replaced={"programs/predict.native": b"no pickle"})
    predict = gc.load(path, trust_native=True).signatures["predict"]
    assert float(predict(x=X)["y"][0, 0]) == 5.0
    assert (
        predict.way == "stablehlo" and "native: a stored program does not load" in predict.notes[0]
    )


def test_trust_must_be_said_in_so_many_words(native: Path) -> None:
    for wrong in (1, "yes", None):
        with pytest.raises(gc.errors.AttributeValueError, match="trust_native must be a bool"):
            gc.load(native, trust_native=wrong)


# -- hostile programs -----------------------------------------------------------------------


def exported(function: Any, *shapes: Any, checks: Any = ()) -> bytes:
    jitted = jax.jit(function, keep_unused=True)
    return bytes(jax.export.export(jitted, disabled_checks=checks)(*shapes).serialize())


def of_one_row(manifest: dict[str, Any]) -> None:
    entry(manifest, "predict")["inputs"][0].update(shape=[1, 2])


ARGUMENTS = (jax.ShapeDtypeStruct((2, 1), np.float32), jax.ShapeDtypeStruct((1, 2), np.float32))


@pytest.mark.parametrize(
    "target", ["xla_ffi_python_cpu_callback", "my_own$kernel", "__gpu$xla.gpu.triton"]
)
def test_a_program_that_calls_code_is_refused(whole: Path, tmp_path: Path, target: str) -> None:
    def call(w: jax.Array, x: jax.Array) -> list[jax.Array]:
        return [jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((1, 1), np.float32))(x)]

    checks = [jax.export.DisabledSafetyCheck.custom_call(target)]
    path = tmp_path / "model.gcx"
    forge(whole, path, of_one_row, {PREDICT: exported(call, *ARGUMENTS, checks=checks)})
    with pytest.raises(ArtifactCorruptError, match=r"a program calls '.*', which no artifact may"):
        gc.load(path).signatures["predict"](x=X)


def test_a_program_that_gives_one_array_instead_of_a_list_is_refused(
    whole: Path, tmp_path: Path
) -> None:
    """Without the check, the first row of the array would become the output."""

    def bare(w: jax.Array, x: jax.Array) -> jax.Array:
        return x @ w

    path = tmp_path / "model.gcx"
    forge(whole, path, of_one_row, {PREDICT: exported(bare, *ARGUMENTS)})
    with pytest.raises(ArtifactCorruptError, match="must give a list of 1 arrays"):
        gc.load(path).signatures["predict"](x=X)

    def mapping(w: jax.Array, x: jax.Array) -> dict[str, jax.Array]:
        return {"y": x @ w}

    forge(whole, path, of_one_row, {PREDICT: exported(mapping, *ARGUMENTS)})
    with pytest.raises(ArtifactCorruptError, match="must give a list of 1 arrays"):
        gc.load(path).signatures["predict"](x=X)


def relabelled(data: bytes, **fields: Any) -> bytes:
    """An exported program with a changed record."""
    found = jax.export.deserialize(bytearray(data))
    return bytes(dataclasses.replace(found, **fields).serialize())


def test_a_program_with_a_false_record_is_refused(whole: Path, tmp_path: Path) -> None:
    def honest(w: jax.Array, x: jax.Array) -> list[jax.Array]:
        return [x @ w]

    def other(w: jax.Array, x: jax.Array) -> list[jax.Array]:
        return [jax.numpy.concatenate([x @ w] * 3)]

    good, longer = exported(honest, *ARGUMENTS), exported(other, *ARGUMENTS)
    code = jax.export.deserialize(bytearray(longer)).mlir_module_serialized
    lies = {
        "code of the types that it states: tensor<1x1xf32>, not tensor<3x1xf32>": relabelled(
            good, mlir_module_serialized=code
        ),
        "be for 1 devices, not 2": relabelled(good, nr_devices=2),
        "use each of its arguments once": relabelled(good, module_kept_var_idx=(0, 7)),
        "take 2 separate arrays": relabelled(
            good, in_tree=jax.tree.structure(((0,), {"x": 0})), fun_name="f"
        ),
    }
    path = tmp_path / "model.gcx"
    for text, data in lies.items():
        forge(whole, path, of_one_row, {PREDICT: data})
        with pytest.raises(ArtifactCorruptError, match=text):
            gc.load(path).signatures["predict"](x=X)
    forge(whole, path, of_one_row, {PREDICT: good})
    assert gc.load(path).signatures["predict"](x=X)["y"] == 5.0


def test_a_program_with_absurd_tensors_is_refused(whole: Path, tmp_path: Path) -> None:
    """XLA itself aborts the process if a product of sizes exceeds 64 bits (jax 0.10)."""

    def huge(w: jax.Array, x: jax.Array) -> list[jax.Array]:
        large = jax.lax.broadcast_in_dim(x[0, 0], (2**40, 2**40), ())
        return [jax.numpy.reshape(large[0, 0] + 1.0, (1, 1))]

    path = tmp_path / "model.gcx"
    forge(whole, path, of_one_row, {PREDICT: exported(huge, *ARGUMENTS)})
    with pytest.raises(ArtifactCorruptError, match="a tensor that is too large for any memory"):
        gc.load(path).signatures["predict"](x=X)


@pytest.mark.slow
def test_a_program_that_crashes_its_reader(whole: Path, tmp_path: Path, monkeypatch) -> None:
    """The process that reads it first crashes. This process continues with the graph."""
    monkeypatch.setattr(safe_reading, "_READER", safe_reading._Reader())
    script = tmp_path / "crash.py"
    script.write_text("import os; print(1, flush=True); os.read(0, 8); os.abort()")
    start = safe_reading.subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        return start([*command[:2], str(script)], **options)

    monkeypatch.setattr(safe_reading, "_found", {})
    monkeypatch.setattr(safe_reading.subprocess, "Popen", popen)
    check(whole, "graph", "stablehlo: reading it ended the process that did so (code -6)")
    script.write_text("import time; print(1, flush=True); time.sleep(60)")
    monkeypatch.setattr(safe_reading, "_SECONDS", 0.2)
    check(whole, "graph", "stablehlo: it was not read within 0 s")
    script.write_text("")  # like a reader that always ends after an idle time
    check(whole, "graph", "the process that reads it does not answer")
    monkeypatch.setattr(safe_reading.sys, "executable", str(tmp_path / "no_python"))
    check(whole, "graph", "stablehlo: no process could be started")


def test_the_process_that_reads_is_started_again(whole: Path, monkeypatch) -> None:
    reader = safe_reading._Reader()
    program = member(whole, PREDICT)
    assert [c["target"] for c in reader.ask(program, {}, 60)["calls"]] == ["shape_assertion"]
    reader._process._process.kill()
    reader._process._process.wait()
    assert "ended the process" in reader.ask(program, {}, 60)["error"]
    assert [c["target"] for c in reader.ask(program, {}, 60)["calls"]] == ["shape_assertion"]
    assert reader.stop() == 0


def test_every_form_is_named_by_errors(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gcx"
    forge(whole, path, replaced={PREDICT: b"", "programs/predict.graph": b""})
    with pytest.raises(ArtifactError, match="graph 'predict' cannot be read by this graphc"):
        gc.load(path).signatures["predict"](x=X)


@pytest.mark.parametrize(
    ("raised", "found"),
    [
        (RuntimeError("too large"), (ExecutionError, "XLA could not compile the program: too la")),
        (TimeoutError("time is up"), (TimeoutError, "^time is up")),  # of a signal handler
    ],
)
def test_errors_of_a_compilation_for_no_device_in_particular(
    raised: Exception, found: tuple[type[Exception], str]
) -> None:
    def lower() -> Any:
        raise raised

    error, match = found
    with pytest.raises(error, match=match):
        compiled_program({}, lower, ())
