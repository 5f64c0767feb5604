"""The devices of this process, by name."""

from __future__ import annotations

import jax

from graphc.errors import DeviceError
from graphc.ir.device_spec import DeviceSpec, parse_device
from graphc.ir.source import current_source


def available() -> dict[str, jax.Device]:
    """Every device of this process by its name, those that JAX uses by default first.

    >>> list(available())[0]
    '/device:CPU:0'
    """
    found: dict[str, jax.Device] = {}
    for devices in (jax.local_devices(), _host_devices()):
        for index, device in enumerate(devices):
            found.setdefault(str(DeviceSpec(kind=device.platform.upper(), index=index)), device)
    return found


def _host_devices() -> list[jax.Device]:
    try:
        return list(jax.local_devices(backend="cpu"))
    except RuntimeError:  # JAX was told not to use the processor
        return []


def name_of(device: jax.Device) -> str:
    """The name of a device of this process, or JAX's own words for another one."""
    return next((name for name, d in available().items() if d == device), str(device))


def find_devices(name: str) -> list[jax.Device]:
    """The devices of this process that a device name allows; none if no such device is here.

    A part that the name leaves open may be anything; `/gpu:*` is any GPU. The task of a name is
    the number of a process. Jobs and replicas of names are not told apart.

    Raises:
        DeviceError: the name does not parse.
    """
    wanted = parse_device(name)
    if wanted.task not in (None, jax.process_index()):
        return []
    return [device for other, device in available().items() if _fits(parse_device(other), wanted)]


def _fits(device: DeviceSpec, wanted: DeviceSpec) -> bool:
    return wanted.kind in (None, device.kind) and wanted.index in (None, device.index)


def first_devices(count: int) -> list[jax.Device]:
    """The first `count` devices of the kind that JAX uses by default.

    Raises:
        DeviceError: there are fewer.
    """
    devices = jax.local_devices()
    if count > len(devices):
        raise _missing(f"{count} devices asked for", devices[0].platform, count)
    return list(devices[:count])


def no_such_device(name: str, why: str = "") -> DeviceError:
    """The error for a device name that fits none of this process's devices."""
    spec = parse_device(name)
    kind = (spec.kind or jax.local_devices()[0].platform).lower()
    return _missing(f"no device {name!r}{why}", kind, (spec.index or 0) + 1)


def _missing(what: str, kind: str, count: int) -> DeviceError:
    names = list(available())
    there = f"{len(names)} is" if len(names) == 1 else f"{len(names)} are"
    mend = "ask for no more than there are"
    if kind == "cpu":
        mend += (
            "; or split the processor into virtual devices before JAX starts: "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count}, or "
            f'jax.config.update("jax_num_cpu_devices", {count})'
        )
    return DeviceError(
        f"{what}, {there} there", details=[", ".join(names)], source=current_source(), mend=mend
    )
