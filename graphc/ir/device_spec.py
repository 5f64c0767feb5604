"""Device names: full, `/job:worker/replica:0/task:1/device:GPU:0`; short, `/gpu:0`; or partial."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from graphc.errors import DeviceError
from graphc.ir.types import TensorType

_PART = re.compile(
    r"/(?:(job):([A-Za-z][\w-]*)|(replica|task):(\d+)|(?:device:)?([A-Za-z]\w*):(\d+|\*))"
)


@dataclass(frozen=True)
class DeviceSpec:
    """A device name in parts. A part that the name omits is None.

    `str` gives the full name, such as `/job:worker/task:1/device:GPU:0`.

    Attributes:
        job: such as "worker".
        replica, task: numbers.
        kind: upper case: "CPU", "GPU", "TPU".
        index: the number among the devices of that kind; None for any.

    Examples:
        >>> gpu = gc.devices.DeviceSpec(kind="GPU", index=0)
        >>> str(gc.devices.DeviceSpec(job="worker", task=1).merge(gpu))
        '/job:worker/task:1/device:GPU:0'
    """

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    kind: str | None = None
    index: int | None = None

    def merge(self, inner: DeviceSpec) -> DeviceSpec:
        """This spec, in which every part that `inner` names is replaced by that of `inner`."""
        named = {f.name: getattr(inner, f.name) for f in fields(inner)}
        changes = {name: value for name, value in named.items() if value is not None}
        if inner.kind is not None:  # "/gpu:*" inside "/gpu:1" means any GPU
            changes["index"] = inner.index
        return replace(self, **changes)

    def __str__(self) -> str:
        named = {"job": self.job, "replica": self.replica, "task": self.task}
        text = "".join([f"/{name}:{part}" for name, part in named.items() if part is not None])
        if self.kind is None:
            return text
        return f"{text}/device:{self.kind}:{'*' if self.index is None else self.index}"


@dataclass(frozen=True)
class DeviceRequest:
    """The argument of a device function: a node or variable that is being created.

    Attributes:
        op: the operator, such as "MatMul"; "Variable" for a variable.
        name: its name, with the name scopes.
        types: the types of its results, or the type of the variable.

    Examples:
        >>> with gc.device(lambda request: "/gpu:0" if request.op == "MatMul" else "/cpu:0"):
        ...     x = gc.eye(2) @ gc.eye(2)
        >>> x.node.device, x.node.inputs[0].node.device
        ('/device:GPU:0', '/device:CPU:0')
    """

    op: str
    name: str
    types: tuple[TensorType, ...]


DeviceFunction = Callable[[DeviceRequest], "str | DeviceSpec | None"]


@lru_cache(maxsize=1024)
def parse_device(name: str) -> DeviceSpec:
    """The parts of a device name.

    Raises:
        DeviceError: the name does not parse. The error shows both forms.

    >>> str(parse_device("/gpu:0"))
    '/device:GPU:0'
    >>> str(parse_device("/job:worker/task:1").merge(parse_device("/cpu:0")))
    '/job:worker/task:1/device:CPU:0'
    """
    spec, position = DeviceSpec(), 0
    while position < len(name):
        match = _PART.match(name, position)
        if match is None:
            raise DeviceError.here(
                f"{name!r} is not a device name",
                hint='write "/gpu:0" or "/job:worker/replica:0/task:1/device:GPU:0"',
            )
        job_key, job, number_key, number, kind, index = match.groups()
        part: dict[str, Any]
        if job_key:
            part = {"job": job}
        elif number_key:
            part = {number_key: int(number)}
        else:
            part = {"kind": kind.upper(), "index": None if index == "*" else int(index)}
        spec = replace(spec, **part)
        position = match.end()
    return spec
