"""`gc.devices.Mesh` as a record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import pytest

import graphc as gc
from graphc.devices import Mesh
from graphc.devices.mesh import jax_mesh
from graphc.errors import AttributeValueError, DeviceError

CPU = jax.devices("cpu")


def test_a_mesh_is_a_plain_record() -> None:
    mesh = gc.devices.Mesh({"data": 2, "model": 2})
    assert mesh == Mesh({"data": 2, "model": 2}) != Mesh({"data": 4, "model": 1})
    assert hash(mesh) == hash(Mesh({"data": 2, "model": 2}))
    assert (mesh.size, mesh.replicas, mesh.batch_axis) == (4, 2, "data")
    assert mesh.resolve() == tuple(jax.devices()[:4])
    assert Mesh({"rows": 2}, ["/cpu:3", CPU[0]]).resolve() == (CPU[3], CPU[0])
    assert Mesh({"rows": 2}, devices=2).resolve() == tuple(jax.devices()[:2])
    assert Mesh({"rows": 4}, ["/cpu:*"]).resolve() == tuple(CPU)


def test_the_axis_of_the_batch() -> None:
    assert Mesh({"rows": 4}).batch_axis is None
    assert Mesh({"rows": 4}).replicas == 1
    mesh = Mesh({"rows": 4, "data": 1}, batch_axis="rows")
    assert mesh.replicas == 4
    assert mesh.meaning() != Mesh({"rows": 4, "data": 1}).meaning()
    assert Mesh({"a": 2, "b": 1}).meaning() != Mesh({"b": 1, "a": 2}).meaning()


def test_the_last_axis_comes_first() -> None:
    grid = jax_mesh((("data", 2), ("model", 2)), CPU)
    assert grid.axis_names == ("data", "model")
    assert grid.devices.tolist() == [CPU[:2], CPU[2:]]


@pytest.mark.parametrize(
    "axes", [{}, {"data": 0}, {"data": True}, {"data": 2.0}, {"a b": 2}, ["data"], None]
)
def test_what_are_no_axes(axes: Any) -> None:
    with pytest.raises(AttributeValueError, match="does not give the number of devices") as caught:
        Mesh(axes)
    assert "test_mesh.py" in str(caught.value)
    assert 'hint: Mesh({"data": 2, "model": 4})' in str(caught.value)


@pytest.mark.parametrize("devices", [0, True, [], "/cpu:0", [3]])
def test_what_are_no_devices(devices: Any) -> None:
    with pytest.raises(AttributeValueError, match="Mesh: "):
        Mesh({"data": 2}, devices)


def test_devices_that_do_not_fit() -> None:
    with pytest.raises(AttributeValueError, match="data=2 x model=2 has 4 positions, got 3"):
        Mesh({"data": 2, "model": 2}, 3)
    with pytest.raises(AttributeValueError, match="has 2 positions, got 4 devices"):
        Mesh({"data": 2}, ["/cpu:*"]).resolve()
    with pytest.raises(AttributeValueError, match="batch_axis='model' is not an axis"):
        Mesh({"data": 2}, batch_axis="model")
    with pytest.raises(DeviceError, match="Mesh: a device can hold one place only"):
        Mesh({"data": 2}, ["/cpu:0", "/cpu:0"]).resolve()
    with pytest.raises(DeviceError, match="64 devices requested"):
        gc.Session(gc.Graph(), strategy=Mesh({"data": 64}))


def test_processes_divide_each_axis_evenly_or_share_it() -> None:
    def on(*processes: int) -> list[Any]:
        return [SimpleNamespace(process_index=process) for process in processes]

    for places in [(0, 0, 0, 1, 1, 1), (0, 1, 0, 1, 0, 1)]:
        Mesh({"data": 2, "model": 3})._check_processes(on(*places))
    with pytest.raises(DeviceError, match="divide the axis 'data' unevenly") as caught:
        Mesh({"data": 3, "model": 2})._check_processes(on(0, 0, 0, 1, 1, 1))
    assert "process 0 holds 0, 1" in str(caught.value)
    assert "process 1 holds 1, 2" in str(caught.value)
