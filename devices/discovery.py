"""The devices of this process, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from graphc.devices.topology import is_here
from graphc.errors import AttributeValueError, DeviceError
from graphc.ir.device_spec import DeviceSpec, parse_device

_KINDS: dict[str, Callable[[], Sequence[jax.Device]]] = {}


def default_device() -> jax.Device:
    """The device of this process on which JAX puts arrays that are not committed to a device."""
    config: Any = jax.config
    given = config.jax_default_device
    return given if isinstance(given, jax.Device) else jax.local_devices(backend=given)[0]


def usable_memory(devices: Sequence[jax.Device]) -> int | None:
    """How many bytes JAX may use on each of these GPUs. None if one of them is no GPU of this
    process, or has no limit."""
    limits = [_limit(device) for device in devices]
    known = [limit for limit in limits if limit is not None]
    return min(known) if len(known) == len(limits) else None


def _limit(device: jax.Device) -> int | None:
    if device.platform != "gpu" or not is_here(device):
        return None
    limit: int | None = (device.memory_stats() or {}).get("bytes_limit")
    return limit


def register_kind(kind: str, devices: str | Callable[[], Sequence[jax.Device]]) -> None:
    """Registers devices under a new kind: `/npu:0`, `/device:NPU:0`.

    JAX's default devices and the CPUs are already registered under the name of their platform. Use
    this function for devices of other platforms (JAX plug-ins), or to give devices another name.

    Args:
        kind: letters, digits and underscores; case does not matter. A later registration of the
            same kind replaces the earlier one.
        devices: the name of a platform, as `jax.devices` takes it; or a function that returns the
            devices of this process. It is called when devices are looked up.

    Raises:
        AttributeValueError: the kind is not a valid name, or the name is in use.

    Examples:
        >>> gc.devices.register_kind("host", "cpu")
        >>> "/device:HOST:0" in gc.devices.available()
        True
    """
    given: object = kind
    if not isinstance(given, str) or not given.isidentifier() or given.startswith("_"):
        raise AttributeValueError.here(
            f"{kind!r} is not a kind of devices", hint='use a word, such as "npu"'
        )
    upper = kind.upper()
    taken = {device.platform.upper() for device in (*jax.local_devices(), *_host_devices())}
    if upper in taken or upper in ("JOB", "REPLICA", "TASK"):
        raise AttributeValueError.here(
            f"the kind {upper} is already in use", hint="use another name"
        )
    if callable(devices):
        _KINDS[upper] = devices
    elif isinstance(devices, str):
        try:
            jax.local_devices(backend=devices)
        except RuntimeError as error:
            raise AttributeValueError.here(
                f"register_kind: JAX has no platform {devices!r} here",
                details=[str(error).splitlines()[0]],
            ) from None
        _KINDS[upper] = lambda: jax.local_devices(backend=devices)
    else:
        raise AttributeValueError.here(
            f"register_kind: devices must be a platform or a function, got {devices!r}"
        )


def available() -> dict[str, jax.Device]:
    """Every device of this process by its name. JAX's default devices come first, and devices of
    registered kinds last.

    Examples:
        >>> list(gc.devices.available())[0]
        '/device:CPU:0'
    """
    found: dict[str, jax.Device] = {}
    for devices in (jax.local_devices(), _host_devices()):
        for index, device in enumerate(devices):
            found.setdefault(str(DeviceSpec(kind=device.platform.upper(), index=index)), device)
    for kind, find in _KINDS.items():
        for index, device in enumerate(find()):
            found[str(DeviceSpec(kind=kind, index=index))] = device
    return found


def _of_task(task: int) -> dict[str, jax.Device]:
    """The devices of another process by their names, without the task."""
    devices = [device for device in jax.devices() if device.process_index == task]
    return {
        str(DeviceSpec(kind=device.platform.upper(), index=index)): device
        for index, device in enumerate(devices)
    }


def _host_devices() -> list[jax.Device]:
    try:
        return list(jax.local_devices(backend="cpu"))
    except RuntimeError:  # JAX was told not to use the CPU
        return []


def name_of(device: jax.Device) -> str:
    """The name of a device of this process or of a machine that is not present. For a device of
    another process, with its task."""
    if not is_here(device):
        return str(DeviceSpec(kind=device.platform.upper(), index=device.id))
    task = device.process_index
    if task != jax.process_index():
        names = [name for name, d in _of_task(task).items() if d == device]
        return f"/task:{task}{names[0]}" if names else str(device)
    return next((name for name, d in available().items() if d == device), str(device))


def platform_of(device: jax.Device) -> str:
    """The platform of a device as JAX's lowerings call it: "cpu", "cuda", "rocm", "tpu"."""
    if device.platform != "gpu":
        return str(device.platform)
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def find_devices(name: str, known: Mapping[str, jax.Device] | None = None) -> list[jax.Device]:
    """The devices that match a device name, or an empty list.

    A part that the name omits matches any value; `/gpu:*` matches any GPU. The task of a name is
    the number of a process; without one, it is this process. The job and the replica of a name are
    ignored.

    Args:
        known: the available devices by name; by default those of this process.

    Raises:
        DeviceError: the name does not parse.
    """
    task = parse_device(name).task
    if known is None and task is not None and task != jax.process_index():
        known, name = _of_task(task), str(replace(parse_device(name), task=None))
    found = available() if known is None else known
    return list(dict.fromkeys(found[name] for name in matching(name, found)))


def matching(name: str, known: Iterable[str]) -> list[str]:
    """The names in `known` that match a device name: see `find_devices`.

    Raises:
        DeviceError: the name does not parse.
    """
    wanted, here = parse_device(name), jax.process_index()
    return [other for other in known if _fits(parse_device(other), wanted, here)]


def _fits(device: DeviceSpec, wanted: DeviceSpec, here: int) -> bool:
    """Whether a device is one that is wanted. One without a task is of this process, `here`."""
    task = here if device.task is None else device.task
    return (
        wanted.kind in (None, device.kind)
        and wanted.index in (None, device.index)
        and wanted.task in (None, task)
        and (device.job is None or wanted.job in (None, device.job))
    )


def first_devices(count: int, known: Mapping[str, jax.Device] | None = None) -> list[jax.Device]:
    """The first `count` devices of JAX's default platform.

    Args:
        known: the available devices by name; by default those of this process.

    Raises:
        DeviceError: there are fewer.
    """
    devices = jax.local_devices() if known is None else list(known.values())
    if count > len(devices):
        kind = devices[0].platform
        names = available() if known is None else known
        # JAX also has a CPU beside GPUs, which does not count.
        alike = [name for name, device in names.items() if device.platform == kind]
        raise _missing(f"{count} devices requested", kind, count, known, alike)
    return list(devices[:count])


def no_such_device(name: str, why: str = "", known: Iterable[str] | None = None) -> DeviceError:
    """The error for a device name that matches none of the available devices: the keys of `known`,
    by default the devices of this process."""
    spec = parse_device(name)
    here = jax.process_index()
    if known is not None and any(parse_device(other).job for other in known):
        return DeviceError.here(
            f"no device {name!r}{why} in the cluster",
            details=[", ".join(known)],
            hint="name one of its tasks, or add tasks to the strategy",
        )
    if spec.task not in (None, here):
        return DeviceError.here(
            f"no device {name!r}{why}: this process is task {here}",
            details=[", ".join(available())],
            hint=f"omit the task, or write /task:{here}",
        )
    kind = (spec.kind or jax.local_devices()[0].platform).lower()
    return _missing(f"no device {name!r}{why}", kind, (spec.index or 0) + 1, known)


def _missing(
    what: str,
    kind: str,
    count: int,
    known: Iterable[str] | None,
    names: Iterable[str] | None = None,
) -> DeviceError:
    """The error for missing devices. `names` are those that could have been used instead, by
    default all of `known`, or of this process."""
    names = list(names or known or available())
    hint = "request no more than are available"
    if known is not None:
        hint += ", or give a machine that has them"
    elif kind == "cpu":
        hint += (
            "; or split the CPU into virtual devices before JAX starts: "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count}, or "
            f'jax.config.update("jax_num_cpu_devices", {count})'
        )
    return DeviceError.here(
        f"{what}, {len(names)} available", details=[", ".join(names)], hint=hint
    )
