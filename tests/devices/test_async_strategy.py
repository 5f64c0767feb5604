"""`AsyncDataParallel` as a record: its arguments, and the devices that it selects."""

from __future__ import annotations

import jax
import pytest

import graphc as gc
from graphc.devices import AsyncDataParallel
from graphc.errors import AttributeValueError, DeviceError

CPU = jax.devices("cpu")


def test_the_strategy_is_a_plain_record() -> None:
    assert AsyncDataParallel(2) == AsyncDataParallel(2, "/cpu:0") != AsyncDataParallel(3)
    assert hash(AsyncDataParallel(["/cpu:0"])) == hash(AsyncDataParallel(("/cpu:0",)))
    assert AsyncDataParallel(6).resolve() == (*CPU, *CPU[:2])  # workers share devices
    assert AsyncDataParallel(["/cpu:1", CPU[1], "/cpu:*"]).resolve() == (CPU[1], CPU[1], *CPU)
    assert AsyncDataParallel(1, server=CPU[2]).resolve_server() == CPU[2]
    assert AsyncDataParallel(1, server="/device:CPU:3").resolve_server() == CPU[3]


@pytest.mark.parametrize("workers", [0, -1, True, 2.5, [], "/cpu:0", [3], None])
def test_what_are_no_workers(workers: object) -> None:
    with pytest.raises(AttributeValueError, match="AsyncDataParallel: "):
        AsyncDataParallel(workers)  # type: ignore[arg-type]


@pytest.mark.parametrize("staleness", [-1, 1.0, True, "3"])
def test_what_is_no_staleness(staleness: object) -> None:
    with pytest.raises(AttributeValueError, match=r"(?s)staleness must be an int.*staleness=3"):
        AsyncDataParallel(2, staleness=staleness)  # type: ignore[arg-type]


def test_devices_that_are_not_there() -> None:
    with pytest.raises(DeviceError, match="no device '/tpu:3'"):
        gc.Session(gc.Graph(), strategy=AsyncDataParallel(["/tpu:3"]))
    with pytest.raises(DeviceError, match="no device '/gpu:7'"):
        gc.Session(gc.Graph(), strategy=AsyncDataParallel(1, server="/gpu:7"))
    with pytest.raises(DeviceError, match=r"(?s)the server must be one device.*/device:CPU:1"):
        gc.Session(gc.Graph(), strategy=AsyncDataParallel(1, server="/cpu:*"))
    with pytest.raises(DeviceError, match="not a device name"):
        AsyncDataParallel(1, server="cpu zero")
    with pytest.raises(AttributeValueError, match="server must be a device, got 0"):
        AsyncDataParallel(1, server=0)  # type: ignore[arg-type]
