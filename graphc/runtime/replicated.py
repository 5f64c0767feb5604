"""Runs a program on several devices at once, through `jax.pmap`: one replica a device.

State is whole on every device and has no leading device axis. Feeds and fetches keep their
global shapes: the compiled function itself cuts what is sharded and joins it again, which moves
no data, since a piece lies on the device that works on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from graphc.config import CompileOptions
from graphc.devices.replicate import Replicate
from graphc.devices.strategy import DataParallel
from graphc.ir.layouts import REPLICATED, Layout, Sharded
from graphc.ir.node import EMPTY
from graphc.ir.program import Program
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.runtime.executors import (
    InFlight,
    PortOrder,
    compile_jax,
    place_on,
    spread,
    with_token,
)

AXIS_NAME = "replica"


class Replicated:
    """Runs a program with its batch shared among devices; beside `executors.SingleDevice`.

    Args:
        program: bound, with global types: its meaning on one device.
        strategy: says which devices; each is one replica.
        sources: feed name -> the user's line of its placeholder, for errors.

    Attributes:
        local: the program that each replica runs, with the layouts of its ports.
        notes: what had to be gathered, which costs time, one line each.

    Raises:
        DeviceError: devices that are not there.
        LayoutError: no feed has a batch axis, or one that the devices cannot share equally.
    """

    kind = "replicated"

    def __init__(
        self,
        program: Program,
        options: CompileOptions,
        strategy: DataParallel,
        sources: Mapping[str, Any] = EMPTY,
    ) -> None:
        start = time.perf_counter()
        self.order = PortOrder.of(program)
        self.program = self.order.reorder(program)
        self.devices = strategy.resolve()
        self.local = Replicate(len(self.devices), sources=sources).replicate(self.program)
        self.notes = list(self.local.notes)
        replicated = time.perf_counter() - start
        self.wide = needs_x64(self.program)
        self._in_flight = InFlight(options.max_in_flight, self.program, self.order)
        mesh = Mesh(np.array(self.devices), (AXIS_NAME,))
        self.home = NamedSharding(mesh, PartitionSpec())  # of state: whole, on every device
        shardings = [_sharding(mesh, layout) for layout in self.local.inputs]
        self._feed_shardings = shardings[len(shardings) - len(self.order.feeds) :]
        # Where nothing is fetched, there is one output more: see `with_token`.
        self._results = [*self.local.outputs, *[REPLICATED] * (not self.order.fetches)]
        donated = range(len(self.order.written)) if options.donate else ()
        jitted = jax.jit(
            self._function(),
            in_shardings=tuple(shardings),
            out_shardings=[_sharding(mesh, layout) for layout in self._results],
            donate_argnums=tuple(donated),
            keep_unused=True,
        )
        arguments = [
            jax.ShapeDtypeStruct(p.tensor.type.shape, p.tensor.type.dtype, sharding=sharding)
            for p, sharding in zip(self.program.inputs, shardings, strict=True)
        ]
        self.lowered, self.compiled, seconds = compile_jax(jitted, arguments, options, self.wide)
        self.seconds = {"replicate": replicated, **seconds}

    def place(self, value: Any) -> jax.Array:
        """A state value where this executor wants it: whole, on every device."""
        return place_on(value, self.home)

    def __call__(self, written: Sequence[Any], read: Sequence[Any], feeds: Sequence[Any]) -> Any:
        """(fetched values, assigned state). Feeds have their global shapes."""
        feeds = [spread(v, where) for v, where in zip(feeds, self._feed_shardings, strict=True)]
        self._in_flight.wait()
        if self.wide:
            with jax.enable_x64(True):
                outputs = self.compiled(*written, *read, *feeds)
        else:
            outputs = self.compiled(*written, *read, *feeds)
        return self._in_flight.split(outputs)

    def _function(self) -> Callable[..., list[Any]]:
        """The step on global values: cut, `jax.pmap` of the local program, joined."""
        local, replicas = self.local, len(self.devices)
        one_replica = to_function(local.program, axis_name=AXIS_NAME, replicas=replicas)
        in_axes = tuple(_axis(layout) for layout in local.inputs)
        out_axes = [_axis(layout) for layout in self._results]
        mapped = jax.pmap(
            with_token(local.program, one_replica),
            axis_name=AXIS_NAME,
            devices=self.devices,
            in_axes=in_axes,
            out_axes=out_axes,
        )

        def step(*values: Any) -> list[Any]:
            pieces = [
                value if axis is None else _cut(value, axis, replicas)
                for value, axis in zip(values, in_axes, strict=True)
            ]
            return [
                result if axis is None else _join(result, axis)
                for result, axis in zip(mapped(*pieces), out_axes, strict=True)
            ]

        step.__name__ = local.program.name
        return step


def _axis(layout: Layout) -> int | None:
    return layout.axis if isinstance(layout, Sharded) else None


def _sharding(mesh: Mesh, layout: Layout) -> NamedSharding:
    axis = _axis(layout)
    spec = () if axis is None else (*[None] * axis, AXIS_NAME)
    return NamedSharding(mesh, PartitionSpec(*spec))


def _cut(value: Any, axis: int, replicas: int) -> Any:
    """[.., B, ..] as [.., replicas, B / replicas, ..]."""
    shape = value.shape
    pieces = (replicas, shape[axis] // replicas)
    return value.reshape(*shape[:axis], *pieces, *shape[axis + 1 :])


def _join(value: Any, axis: int) -> Any:
    """[.., replicas, B / replicas, ..] as [.., B, ..]."""
    shape = value.shape
    return value.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
