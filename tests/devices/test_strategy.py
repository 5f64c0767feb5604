"""Device discovery, and strategies as records."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import pytest

import graphc as gc
from graphc.devices import DataParallel, available, discovery
from graphc.devices.discovery import find_devices, name_of
from graphc.errors import AttributeValueError, DeviceError

CPU = jax.devices("cpu")


def test_devices_by_name() -> None:
    named = {name: device for name, device in available().items() if "CPU" in name}
    assert list(named.items()) == [(f"/device:CPU:{i}", d) for i, d in enumerate(CPU)]
    assert gc.devices.available is available
    assert name_of(CPU[2]) == "/device:CPU:2"
    assert find_devices("/cpu:1") == find_devices("/job:worker/task:0/device:CPU:1") == [CPU[1]]
    assert find_devices("/cpu:*") == CPU
    assert find_devices("/task:0/cpu:*") == CPU
    assert find_devices("/task:7/cpu:0") == find_devices("/tpu:0") == find_devices("/cpu:99") == []


def test_a_strategy_is_a_plain_record() -> None:
    assert DataParallel(4) == DataParallel(4) != DataParallel(2)
    assert DataParallel(["/cpu:0"]) == DataParallel(("/cpu:0",))
    assert hash(DataParallel(["/cpu:0"])) == hash(DataParallel(("/cpu:0",)))
    assert DataParallel(4).replicas == 4
    assert DataParallel(4).resolve() == tuple(jax.devices()[:4])
    assert DataParallel(CPU[2:]).resolve() == tuple(CPU[2:])
    assert DataParallel(["/cpu:3", CPU[0]]).resolve() == (CPU[3], CPU[0])
    assert DataParallel(["/cpu:*"]).replicas == len(CPU)


def test_a_cpu_beside_a_gpu_is_not_counted(monkeypatch) -> None:
    names = {"/device:GPU:0": SimpleNamespace(platform="gpu"), "/device:CPU:0": CPU[0]}
    monkeypatch.setattr(discovery, "available", lambda: names)
    monkeypatch.setattr(jax, "local_devices", lambda: [names["/device:GPU:0"]])
    with pytest.raises(DeviceError, match="4 devices requested, 1 available\n  /device:GPU:0\n"):
        DataParallel(4).resolve()


@pytest.mark.parametrize("devices", [0, -2, True, 2.5, [], "/cpu:0", [3], None])
def test_what_is_no_strategy(devices: object) -> None:
    with pytest.raises(AttributeValueError, match="DataParallel"):
        DataParallel(devices)  # type: ignore[arg-type]


def test_devices_that_are_not_there() -> None:
    with pytest.raises(DeviceError) as error:
        DataParallel(9).resolve()
    text = str(error.value)
    assert f"9 devices requested, {len(available())} available" in text
    assert "/device:CPU:0, /device:CPU:1" in text
    assert "  at test_strategy.py:" in text
    assert "XLA_FLAGS=--xla_force_host_platform_device_count=9" in text
    assert 'jax.config.update("jax_num_cpu_devices", 9)' in text
    with pytest.raises(DeviceError, match="no device '/tpu:3'") as error:
        DataParallel(["/tpu:3"]).resolve()
    assert "XLA_FLAGS" not in str(error.value)
    with pytest.raises(DeviceError, match="not a device name"):
        DataParallel(["gpu zero"])
    with pytest.raises(DeviceError, match="one replica only, got /device:CPU:0, /device:CPU:0"):
        DataParallel(["/cpu:0", "/device:CPU:0"]).resolve()
