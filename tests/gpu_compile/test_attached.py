"""The description of a machine's GPUs, through the private function that graphc needs for it."""

import pytest

import graphc as gc
from graphc.devices.attached import attached_machine, described
from graphc.devices.topology import devices_of
from graphc.errors import DeviceError


@pytest.mark.parametrize("name", ["2xh100", "l4"])
def test_what_xla_says_of_devices_describes_them_again(name: str, tmp_path) -> None:
    machine = gc.devices.Machine(name)
    found = described(devices_of(machine))
    assert found.count == machine.count and "core_count" in found.model.target_config
    for field in ("name", "compute_capability", "cores", "clock_ghz", "memory", "l2_cache"):
        assert getattr(found.model, field) == getattr(machine.model, field)
    path = tmp_path / "machine.toml"
    path.write_text(found.to_toml())
    again = gc.devices.Machine(path)
    assert again == found
    assert devices_of(again)[0].device_kind == machine.model.name


def test_gpus_of_two_models_are_no_machine() -> None:
    two = [devices_of(gc.devices.Machine(name))[0] for name in ("h100", "l4")]
    with pytest.raises(DeviceError, match="one model"):
        described(two)


def test_without_gpus_there_is_nothing_to_describe() -> None:
    with pytest.raises(DeviceError, match="JAX sees none"):
        attached_machine()
