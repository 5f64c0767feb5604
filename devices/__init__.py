"""Devices: their names, the placement of nodes on them, and the distribution of a program over
them."""

import typing

from graphc.devices.asynchronous import AsyncDataParallel as AsyncDataParallel
from graphc.devices.discovery import available as available
from graphc.devices.discovery import register_kind as register_kind
from graphc.devices.machine import Gpu as Gpu
from graphc.devices.machine import Machine as Machine
from graphc.devices.mesh import Mesh as Mesh
from graphc.devices.partition import Partition as Partition
from graphc.devices.pipelining import PipelineParallel as PipelineParallel
from graphc.devices.schedule import Span as Span
from graphc.devices.schedule import bubble as bubble
from graphc.devices.schedule import idle_part as idle_part
from graphc.devices.stage_memory import kept_bytes as kept_bytes
from graphc.devices.strategy import DataParallel as DataParallel
from graphc.ir.device_spec import DeviceRequest as DeviceRequest
from graphc.ir.device_spec import DeviceSpec as DeviceSpec
from graphc.ir.namespaces import namespace as _namespace

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.devices", globals())
