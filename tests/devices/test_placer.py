"""The placer: requests, colocation, the base device and its log."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc.config import CompileOptions
from graphc.devices.discovery import available, find_devices, register_kind
from graphc.devices.placer import Placement, full_name, place
from graphc.errors import AttributeValueError, DeviceError
from graphc.runtime.feeds.fetches import FetchNest
from graphc.runtime.targets.prepare import prepare

CPU = [f"/device:CPU:{i}" for i in range(4)]
GPU = [f"/device:GPU:{i}" for i in range(2)]
MACHINE = [*GPU, "/device:CPU:0"]  # a GPU machine, which prefers its GPUs


def placed(graph: gc.Graph, fetches: object, known: list[str] | None, **how: object) -> Placement:
    nest = FetchNest(graph, fetches)
    feeds = [n.outputs[0] for n in graph.nodes if n.op.name == "Placeholder"]
    prepared = prepare(graph, nest.distinct, feeds, CompileOptions())
    return place(prepared.functional, prepared.requests, known=known, **how)  # type: ignore[arg-type]


def devices(placement: Placement) -> dict[str, tuple[str, ...]]:
    rows = placement.rows()
    return {row.name: row.devices for row in rows if row.op not in ("Variable", "Placeholder")}


def test_what_says_nothing_goes_to_the_accelerator() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((2,), "float32", name="x")
        y = gc.exp(x, name="y")
        with gc.device("/cpu:0"):
            z = gc.log(y, name="z")
        out = gc.tanh(z, name="out")
    found = placed(g, out, MACHINE)
    assert found.base == "/device:GPU:0"
    assert found.devices == ("/device:GPU:0", "/device:CPU:0")
    at = devices(found)
    assert at == {"y": (GPU[0],), "z": (CPU[0],), "out": (GPU[0],)}
    assert placed(g, y, MACHINE).devices == ("/device:GPU:0",)


def test_one_device_for_all_that_the_user_wrote_is_the_base() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((None, 3), "float32", name="x")
        with gc.device("/gpu:1"):
            loss = gc.reduce_sum(gc.nn.Dense(2, name="dense")(x))
        train = gc.minimize(loss, optax.adam(0.1), name="train")
    found = placed(g, [train, loss], MACHINE)
    assert found.devices == ("/device:GPU:1",) and not found.notes
    assert set(found.homes.values()) == {"/device:GPU:1"}
    with gc.Graph() as other:
        x = gc.placeholder((2,), "float32", name="x")
        with gc.device("/gpu:1"):
            y = gc.exp(x, name="y")
        z = gc.tanh(y, name="z")
    assert devices(placed(other, z, MACHINE)) == {"y": (GPU[1],), "z": (GPU[0],)}


def test_variables_updates_and_gradients_stay_together() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((None, 3), "float32", name="x")
        with gc.device("/cpu:0"):
            first = gc.nn.Dense(3, name="first")(x)
        with gc.device("/gpu:1"):
            second = gc.nn.Dense(3, name="second")(first)
        loss = gc.reduce_sum(gc.square(second, name="square"), name="loss")
        train = gc.minimize(loss, optax.adam(0.1), name="train")
    found = placed(g, [train, loss], MACHINE)
    for name, home in found.homes.items():
        if name.startswith("first"):
            assert home == "/device:CPU:0", name
        elif name.startswith("second"):
            assert home == "/device:GPU:1", name
        else:
            assert home == "/device:GPU:0", name
    at = devices(found)
    assert at["square"] == at["loss"] == (GPU[0],)
    products = {n: d for n, d in at.items() if "MatMul" in n and "gradients" in n}
    assert products and all(
        d == ((CPU[0],) if "/first/" in n else (GPU[1],)) for n, d in products.items()
    )
    # Each parameter is updated on its own device.
    updated = next(n for n in found.program.nodes if n.op.name == "Updated")
    producers = found.program.producers()
    new = dict(zip(updated.outputs, updated.inputs[len(updated.outputs) :], strict=True))
    ends = {p.name: p.tensor for p in found.program.new_state()}
    for name in ("first/kernel", "second/kernel"):
        assert producers[new[ends[name]]].device == found.homes[name]


def test_gradients_may_go_elsewhere() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((2,), "float32", name="x")
        with gc.device("/gpu:1"):
            y = gc.reduce_sum(gc.exp(x, name="e"))
        with gc.device("/cpu:0"):
            (near,) = gc.gradients(y, [x], name="near")
            (far,) = gc.gradients(y, [x], colocate=False, name="far")
    at = devices(placed(g, [near, far], MACHINE))
    assert {d for n, d in at.items() if n.startswith("near/e/")} == {(GPU[1],)}
    assert {d for n, d in at.items() if n.startswith("far/e/")} == {(CPU[0],)}


def test_an_assignment_is_computed_on_the_device_of_its_variable() -> None:
    g = gc.Graph()
    with g:
        with gc.device("/gpu:1"):
            v = gc.variable(np.float32(1.0), name="v")
        step = v.assign_add(1.0)
        other = gc.exp(gc.placeholder((2,), "float32", name="x"), name="other")
    found = placed(g, [step, other], MACHINE)
    (add,) = [n for n in found.program.nodes if n.op.name == "Add"]
    assert add.device == found.homes["v"] == "/device:GPU:1"


def test_bodies_are_placed_whole() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((4, 2), "float32", name="x")

        def body(carry: gc.Tensor, row: gc.Tensor) -> tuple[gc.Tensor, gc.Tensor]:
            with gc.device("/gpu:1"):
                new = gc.tanh(carry + row)
            return new, new

        last, _ = gc.scan(body, gc.zeros((2,), "float32"), x)
        out = gc.exp(last, name="out")
    found = placed(g, out, MACHINE)
    (scan,) = [n for n in found.program.nodes if n.op.name == "Scan"]
    assert scan.device == "/device:GPU:1"
    assert not any(inner.device for inner in scan.regions[0].walk())
    assert devices(found)["out"] == (GPU[0],)


def test_requests_inside_a_placed_body_are_heard() -> None:
    g = gc.Graph()
    with g:
        x = gc.placeholder((2,), "float32", name="x")

        def body() -> gc.Tensor:
            with gc.device("/gpu:7"):
                return gc.exp(x)

        with gc.device("/cpu:0"):
            y = gc.cond(gc.reduce_sum(x) > 0.0, body, lambda: x)
    assert any("GPU:7" in note for note in placed(g, y, MACHINE).notes)
    with pytest.raises(DeviceError, match="GPU:7"):
        placed(g, y, MACHINE, soft=False)


def test_requests_without_a_device_are_noted_or_errors() -> None:
    g = gc.Graph()
    with g, gc.device("/tpu:3"):
        v = gc.variable(np.float32(1.0), name="v")
        y = gc.exp(v, name="y")
    found = placed(g, y, MACHINE)
    assert found.devices == ("/device:GPU:0",)
    assert len(found.notes) == 1
    assert found.notes[0].startswith("no device /device:TPU:3 for ")
    assert found.notes[0].endswith(": it runs on /device:GPU:0")
    with pytest.raises(DeviceError, match="no device '/device:TPU:3' for") as error:
        placed(g, y, MACHINE, soft=False)
    assert "test_placer.py" in str(error.value)
    assert placed(g, y, ["/device:TPU:3"], soft=False).devices == ("/device:TPU:3",)


def test_device_functions_and_nesting() -> None:
    asked: list[gc.devices.DeviceRequest] = []

    def on_server(request: gc.devices.DeviceRequest) -> str | None:
        asked.append(request)
        return "/cpu:0" if request.op == "Variable" else "/gpu:0"

    g = gc.Graph()
    with g, gc.device("/job:worker"), gc.device(on_server):
        v = gc.variable(np.zeros(2, "float32"), name="v")
        y = gc.exp(v, name="y")
        with gc.device("/gpu:1"):
            z = gc.tanh(y, name="z")
        with gc.device(lambda request: None):
            w = gc.tanh(z, name="w")
        with gc.device(None):
            u = gc.tanh(w, name="u")
    assert v.device == "/job:worker/device:CPU:0"
    assert y.node.device == w.node.device == "/job:worker/device:GPU:0"
    assert z.node.device == "/job:worker/device:GPU:1" and u.node.device == ""
    assert asked[0] == gc.devices.DeviceRequest("Variable", "v", (v.type,))
    assert {r.op for r in asked} >= {"Variable", "Exp", "Tanh"}
    with pytest.raises(DeviceError, match="not a device name"), g, gc.device(lambda r: "gpu one"):
        gc.exp(y)
    with pytest.raises(DeviceError, match="3 is not a device name"), g, gc.device(lambda r: 3):  # type: ignore[arg-type,return-value]
        gc.exp(y)
    with pytest.raises(DeviceError, match="not a device name"), g, gc.device(7):  # type: ignore[arg-type]
        pass


def test_further_kinds_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.devices.discovery._KINDS", {})
    register_kind("npu", lambda: jax.devices("cpu")[2:])
    assert find_devices("/npu:1") == [jax.devices("cpu")[3]]
    assert list(available())[-1].startswith("/device:NPU:")
    with gc.Graph() as g, gc.device("/npu:1"):
        y = gc.exp(gc.placeholder((2,), "float32", name="x"), name="y")
    assert placed(g, y, None, soft=False).devices == ("/device:CPU:3",)
    assert full_name("/gpu:1") == "/job:localhost/replica:0/task:0/device:GPU:1"
    for kind in ("cpu", "no kind", "job", 3):
        with pytest.raises(AttributeValueError):
            register_kind(kind, "cpu")  # type: ignore[arg-type]
    with pytest.raises(AttributeValueError, match="no platform 'nowhere'"):
        register_kind("npu", "nowhere")
    with pytest.raises(AttributeValueError, match="must be a platform or a function"):
        register_kind("npu", 3)  # type: ignore[arg-type]


def test_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with gc.Graph() as g:
        x = gc.placeholder((2,), "float32", name="x")
        with gc.device("/cpu:1"):
            w = gc.variable(np.ones(2, "float32"), name="w")
            with gc.name_scope("hidden"):
                y = gc.multiply(x, w, name="Mul")
        with gc.device("/cpu:2"):
            z = gc.exp(y, name="z")
    sess = gc.Session(g, log_placement=True)
    head = capsys.readouterr().out.splitlines()
    assert head[0] == "Devices:"
    assert head[1].startswith("/job:localhost/replica:0/task:0/device:CPU:0 -> cpu, id 0")
    sess.run(z, {x: np.ones(2, "float32")})
    where = "/job:localhost/replica:0/task:0/device:CPU:"
    assert capsys.readouterr().out.splitlines() == [
        f"w: (Variable) {where}1",
        f"x: (Placeholder) {where}1",
        f"hidden/Mul: (Multiply) {where}1",
        f"z: (Exp) {where}2",
    ]
    sess.run([z, y], {x: np.ones(2, "float32")})
    assert capsys.readouterr().out == ""
    gc.compile(g, z, {x: (2,)}, strategy=None, log_placement=True)
    assert f"z: (Exp) {where}2" in capsys.readouterr().out
