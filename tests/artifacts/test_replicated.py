"""A training step for several devices, saved and resumed."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import graphc as gc
from graphc.errors import ArtifactError, AttributeValueError
from tests.artifacts.models import batch, classifier
from tests.near import assert_near

DEVICES = 4


def steps(session: gc.Session, start: int, end: int) -> list[float]:
    return [
        float(session.run(["loss:0", "train"], batch(8, i, "float64"))[0])
        for i in range(start, end)
    ]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[gc.Session, list[float], Path]:
    """A session after 20 steps, its losses, and the artifact that it wrote after 10 steps."""
    graph, signatures = classifier(dtype="float64")
    train = dataclasses.replace(signatures["train"], sizes={"batch": 8}, replicated=True)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(DEVICES))
    losses = steps(session, 0, 10)
    path = tmp_path_factory.mktemp("replicated") / "model.gcx"
    gc.save(session, path, signatures={"train": train, "predict": signatures["predict"]})
    return session, losses + steps(session, 10, 20), path


RESUME = """
import sys
import numpy as np
import graphc as gc
from tests.artifacts.models import batch

model = gc.load(sys.argv[1])
train, state = model.signatures["train"], model.state()
assert train.devices == 4
losses = []
for i in range(10, 20):
    outputs, state = train(state, **batch(8, i, "float64"))
    losses.append(float(outputs["loss"]))
assert train.way == "stablehlo", train.notes
assert len(state["out/kernel"].sharding.device_set) == 4
assert state["out/kernel"].sharding.is_fully_replicated
logits = model.signatures["predict"](state, x=batch(4, 0, "float64")["x"])["logits"]
assert len(logits.sharding.device_set) == 1
np.savez(sys.argv[2], losses=losses, logits=logits, kernel=state["out/kernel"])
"""


@pytest.mark.slow
def test_ten_steps_in_another_process_are_those_of_the_session(saved, tmp_path: Path) -> None:
    """Twenty steps in one session equal ten steps, a file, and ten more steps, with dropout."""
    session, losses, path = saved
    out = tmp_path / "out.npz"
    subprocess.run([sys.executable, "-c", RESUME, str(path), str(out)], check=True)
    results = np.load(out)
    assert_near(results["losses"], losses[10:], rtol=1e-12)
    assert_near(results["kernel"], session.get("out/kernel"), rtol=1e-9, atol=1e-12)
    logits = session.run("logits", {"x": batch(4, 0, "float64")["x"]})
    assert_near(results["logits"], logits, rtol=1e-9)


def test_states_go_between_one_device_and_several(saved) -> None:
    model = gc.load(saved[2])
    train, predict = model.signatures["train"], model.signatures["predict"]
    x = batch(3, 0, "float64")["x"]
    before = predict(x=x)["logits"]
    np.testing.assert_array_equal(before, predict(model.state(), x=x)["logits"])
    _, state = train(model.state(), **batch(8, 0, "float64"))
    after = predict(state, x=x)["logits"]
    assert not np.array_equal(before, after)
    on_device = {k: jax.numpy.asarray(v) for k, v in batch(8, 1, "float64").items()}
    _, state = train(state, **on_device)  # inputs on any device are sharded
    np.testing.assert_array_equal(before, predict(x=x)["logits"])


def test_other_numbers_of_devices_take_the_graph(saved) -> None:
    session, losses, path = saved
    model = gc.load(path, strategy=gc.devices.DataParallel(2))
    train, state = model.signatures["train"], model.state()
    _, state = train(state, **batch(8, 10, "float64"))
    assert train.way == "graph"
    assert train.notes == ["stablehlo: saved for 4 devices, but it must run on 2"]
    assert len(state["out/kernel"].sharding.device_set) == 2
    model = gc.load(path, strategy=gc.devices.DataParallel(3))  # 8 rows: two devices get 3 rows
    _, state = model.signatures["train"](model.state(), **batch(8, 10, "float64"))
    assert len(state["out/kernel"].sharding.device_set) == 3
    with pytest.raises(AttributeValueError, match="strategy must be a strategy, got 2"):
        gc.load(path, strategy=2)


@pytest.mark.parametrize("rows", [8, 6])
def test_without_randomness_any_number_gives_the_same(tmp_path: Path, rows: int) -> None:
    graph = gc.Graph()
    with graph:
        x = gc.placeholder(("batch", 3), "float64", name="x")
        w = gc.variable(np.arange(3.0), name="w")
        loss = gc.reduce_mean(gc.square(gc.reduce_sum(x * w, axis=1)))
        step = w.assign_sub(0.1 * gc.gradients(loss, [w])[0])
    signature = gc.Signature(
        {"x": x}, {"loss": loss}, updates=[step], sizes={"batch": rows}, replicated=True
    )
    session = gc.Session(graph, strategy=gc.devices.DataParallel(4))
    gc.save(session, tmp_path / "m.gcx", signatures={"train": signature})
    x = np.random.default_rng(0).normal(size=(rows, 3))
    results = []
    for count in (1, 2, 4):
        model = gc.load(tmp_path / "m.gcx", strategy=gc.devices.DataParallel(count))
        outputs, state = model.signatures["train"](model.state(), x=x)
        results.append([float(outputs["loss"]), *np.asarray(state["w"])])
        assert model.signatures["train"].way == ("stablehlo" if count == 4 else "graph")
    assert_near(results[0], results[2], rtol=1e-13)
    assert_near(results[1], results[2], rtol=1e-13)
    assert float(session.run(loss, {"x": x})) == pytest.approx(results[0][0], rel=1e-13)


FEWER = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import numpy as np
import graphc as gc
from tests.artifacts.models import batch

model = gc.load(sys.argv[1])
predict = model.signatures["predict"]
assert predict(x=batch(3, 0, "float64")["x"])["logits"].shape == (3, 3)
try:
    model.signatures["train"](model.state(), **batch(8, 0, "float64"))
except gc.errors.DeviceError as error:
    print(error)
"""


@pytest.mark.slow
def test_too_few_devices_are_reported_with_their_number(saved) -> None:
    command = [sys.executable, "-c", FEWER, str(saved[2])]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "'train' was saved for 4 devices, but only 2 are available" in text
    assert "gc.load(path, strategy=gc.devices.DataParallel(2)) lowers its graph" in text


def test_what_cannot_be_saved_replicated(tmp_path: Path) -> None:
    graph, signatures = classifier()
    train = dataclasses.replace(signatures["train"], replicated=True)
    session = gc.Session(graph, strategy=gc.devices.DataParallel(2))
    path = tmp_path / "m.gcx"
    with pytest.raises(ArtifactError, match="its sizes batch are open") as info:
        gc.save(session, path, signatures={"train": train})
    assert "sizes={'batch': ...}" in str(info.value)
    even = dataclasses.replace(train, sizes={"batch": 8})
    with pytest.raises(AttributeValueError, match="the session has no strategy"):
        gc.save(gc.Session(graph), path, signatures={"train": even})
    with pytest.raises(AttributeValueError, match="replicated must be True or False, got 1"):
        dataclasses.replace(train, replicated=1)
    assert not list(tmp_path.iterdir())


def test_native_code_for_several_devices(tmp_path: Path) -> None:
    graph, signatures = classifier()
    train = dataclasses.replace(signatures["train"], sizes={"batch": 8}, replicated=True)
    options = gc.CompileOptions(check_numerics=True)  # no file contains this
    session = gc.Session(graph, strategy=gc.devices.DataParallel(2), options=options)
    gc.save(session, tmp_path / "m.gcx", signatures={"train": train}, native=True)
    losses = []
    for trusted in (True, False):
        model = gc.load(tmp_path / "m.gcx", trust_native=trusted)
        state, point = model.state(), model.signatures["train"]
        for i in range(3):
            outputs, state = point(state, **batch(8, i))
        losses.append(float(outputs["loss"]))
        assert point.way == ("native" if trusted else "stablehlo")
    assert_near(losses[0], losses[1], rtol=1e-5)  # native code may use passes that files cannot


def test_steps_in_flight_are_bounded(saved) -> None:
    model = gc.load(saved[2])
    train, state = model.signatures["train"], model.state()
    for i in range(12):
        _, state = train(state, **batch(8, i, "float64"))
        assert len(train._waiting) <= 4
