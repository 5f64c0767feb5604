"""A program for several devices at once, one replica per device, with `jax.pmap` or
`jax.shard_map`.

State has no leading device axis. Every device has all of it, except optimizer slots and parameters
if the strategy shards them. Feeds and fetches keep their global shapes: the compiled function
itself splits sharded values and joins them again. This moves no data, because each piece resides on
the device that uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from graphc.config import CompileOptions
from graphc.devices.bucketing import BucketCollectives, joining_options
from graphc.devices.exchange_in_loops import ExchangeInLoops
from graphc.devices.gather_parameters import GatherParameters
from graphc.devices.join_moments import JoinMoments
from graphc.devices.localize import Local
from graphc.devices.narrow_exchanges import NarrowExchanges
from graphc.devices.replicate import Replicate
from graphc.devices.strategy import DataParallel
from graphc.devices.targets import FAST_LOOPS_ON_GPU
from graphc.ir.dtypes import INT32
from graphc.ir.layouts import REPLICATED as WHOLE
from graphc.ir.layouts import Layout, Sharded, axis_of
from graphc.ir.node import Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.ops.arrays.shape import RESHAPE
from graphc.passes.core.base import Pass
from graphc.passes.core.building import node_of
from graphc.passes.manager import tell_of
from graphc.passes.precision.check_numerics import NUMERICS
from graphc.runtime.buffers.layout import FLAT, StateLayout
from graphc.runtime.core.across import spans_processes
from graphc.runtime.feeds.shares import AXIS_NAME
from graphc.runtime.targets.executors import cut_along
from graphc.runtime.targets.interface import REPLICATED
from graphc.runtime.targets.jax_program import (
    JaxProgram,
    PortOrder,
    arguments_of,
    donated,
    interface_of,
    suited,
    with_token,
)
from graphc.runtime.targets.numerics import Table, checked
from graphc.runtime.targets.slot_pieces import homes_of, slot_pieces

Step = Callable[..., list[Any]]
Axes = Sequence[int | None]
Devices = Sequence[jax.Device]

MAPPED_BY: Literal["pmap", "shard_map"] = "pmap"
"""The JAX function that runs the replicas. Both give the same numbers. `jax.pmap` will be removed
some day."""


def on_replicas(
    program: Program,
    layout: StateLayout,
    options: CompileOptions,
    strategy: DataParallel,
    sources: Mapping[str, Any],
    budget: int | None,
) -> JaxProgram:
    """A physical program with its batch split across devices; compare `jax_program.on_one_device`.

    Args:
        program: has global types, with the same meaning as on one device.
        strategy: determines the devices; each is one replica.
        sources: feed name -> the source line of its placeholder, for errors.
        budget: of each replica, see `passes.recompute`; None means no recomputation.

    Raises:
        DeviceError: a device does not exist.
        LayoutError: no feed has a batch axis.
    """
    order = PortOrder.of(program)
    program = order.reorder(program)
    devices = strategy.resolve()
    cut, notes = dict[str, Sharded](), list[str]()
    stored = program
    if strategy.shard_optimizer or strategy.shard_parameters:
        names = [port.name for port in (*order.written, *order.read, *order.assigned)]
        cut, notes = slot_pieces(layout, names, len(devices), strategy.shard_parameters)
    if strategy.shard_parameters:
        stored = _gathering(program, layout, cut)
    whole = _undivided(program, options, len(devices), notes)
    local = _replicated(
        stored, Replicate(len(devices), sources=sources, state_layouts=cut, input_layouts=whole)
    )
    platform = devices[0].platform
    bucket_bytes = strategy.bucket_bytes_on(platform)
    exchanges = _exchanges(platform, len(devices), bucket_bytes, budget)
    inside, report = suited(local.program, options, platform, budget, len(devices), exchanges)
    local = replace(local, program=inside)
    plain = local.program
    local, checks = _checked(local, options)
    if checks is not None:
        program = _with_faults(program, local, len(devices))
        order = PortOrder.of(program)
    wide = needs_x64(program)
    jitted, arguments = _jitted(program, local, order, options, devices)
    interface = interface_of(
        program, order, layout, options,
        kind=REPLICATED, wide=wide, replicas=len(devices), inputs=local.inputs,
        outputs=local.outputs, notes=(*notes, *local.notes), checks=checks,
    )  # fmt: skip
    interface = replace(interface, homes=homes_of(interface.buffers, cut))
    joining = joining_options(platform, bucket_bytes)
    return JaxProgram(interface, devices, program, jitted, arguments, plain, report, joining)


def _gathering(program: Program, layout: StateLayout, cut: Mapping[str, Sharded]) -> Program:
    """The program that gathers parameters where it uses them. The step is reported to watchers of
    the passes."""
    start = time.perf_counter()
    kept = frozenset(buffer.name for buffer in layout.buffers if buffer.kind == FLAT)
    gathering = GatherParameters(cut, kept).run(program).program
    tell_of("gather-parameters", program, gathering, time.perf_counter() - start)
    return gathering


def _undivided(
    program: Program, options: CompileOptions, replicas: int, notes: list[str]
) -> dict[str, Layout]:
    """The feeds that are not split over the devices: an uneven batch if numerics are checked, since
    its padding may contain a NaN. Adds a note."""
    if not options.check_numerics or not _is_uneven(program, replicas):
        return {}
    notes.append("numerics are checked, and the batch is uneven: each device has all of it")
    return dict.fromkeys(program.batch_axes, WHOLE)


def _with_faults(program: Program, local: Local, replicas: int) -> Program:
    """The global program with the results of the checks: a row for each replica."""
    width = local.program.outputs[-1].tensor.type.shape[-1]
    faults = Tensor(TensorType(INT32, (replicas, width)), NUMERICS)
    return program.replace(outputs=(*program.outputs, Port(NUMERICS, "fetch", faults)))


def _replicated(program: Program, replicate: Replicate) -> Local:
    """The program of one replica. The step is reported to watchers of the passes."""
    start = time.perf_counter()
    local = replicate.replicate(program)
    tell_of("replicate", program, local.program, time.perf_counter() - start)
    return local


def _exchanges(platform: str, replicas: int, bucket_bytes: int, budget: int | None) -> list[Pass]:
    """The passes for the exchanges between replicas."""
    passes: list[Pass] = [JoinMoments(replicas), NarrowExchanges()]
    passes += ExchangeInLoops.on(platform, FAST_LOOPS_ON_GPU, budget)
    if bucket_bytes:
        passes.append(BucketCollectives(bucket_bytes))
    return passes


def _jitted(
    program: Program,
    local: Local,
    order: PortOrder,
    options: CompileOptions,
    devices: Sequence[jax.Device],
) -> tuple[Any, list[jax.ShapeDtypeStruct]]:
    """The jitted step on global values, and its arguments."""
    mesh = Mesh(np.array(devices), (AXIS_NAME,))
    shardings = [cut_along(mesh, axis_of(layout)) for layout in local.inputs]
    # If nothing is fetched, there is one more output; see `with_token`.
    results = [*local.outputs, *[WHOLE] * (not order.fetches)]
    jitted = jax.jit(
        _on_replicas(local, [axis_of(layout) for layout in results], devices),
        in_shardings=tuple(shardings),
        out_shardings=[cut_along(mesh, axis_of(layout)) for layout in results],
        donate_argnums=donated(order, options),
    )
    return jitted, arguments_of(program, shardings)


def _is_uneven(program: Program, replicas: int) -> bool:
    """Whether the batch size of a feed is not divisible by the number of replicas."""
    types = {port.name: port.tensor.type for port in program.ports("feed")}
    sizes = [types[name].shape[axis] for name, axis in program.batch_axes.items()]
    return any(not isinstance(size, int) or size % replicas for size in sizes)


def _checked(local: Local, options: CompileOptions) -> tuple[Local, Table | None]:
    """The local program with checks, if the options request them. Each replica returns a row."""
    program, checks = checked(local.program, options, "local")
    if checks is None:
        return local, None
    *outputs, (name, kind, fault) = program.outputs
    shape = (1, *fault.type.shape)
    node = node_of(RESHAPE, (fault,), name=NUMERICS, shape=shape)
    program = program.replace(
        nodes=(*program.nodes, node), outputs=(*outputs, Port(name, kind, node.outputs[0]))
    )
    return replace(local, program=program, outputs=(*local.outputs, Sharded(0))), checks


def _on_replicas(local: Local, out_axes: Axes, devices: Devices) -> Step:
    """The step on global values. It runs the local program on each device's piece."""
    one_replica = to_function(local.program, axis_name=AXIS_NAME, replicas=len(devices))
    in_axes = tuple(axis_of(layout) for layout in local.inputs)
    # `jax.pmap` would want the operands of this process's devices only.
    use_pmap = MAPPED_BY == "pmap" and not spans_processes(devices)
    mapped = _by_pmap if use_pmap else _by_shard_map
    step = mapped(with_token(local.program, one_replica), in_axes, out_axes, devices)
    step.__name__ = local.program.name
    return step


def _by_pmap(inside: Step, in_axes: Axes, out_axes: Axes, devices: Devices) -> Step:
    """Splits the operands, runs `inside` with `jax.pmap`, and joins the results."""
    replicas = len(devices)
    # `jax.pmap` requires a split operand. There is none if all batches are uneven.
    ranks = [np.arange(replicas)] if all(axis is None for axis in in_axes) else []
    mapped = jax.pmap(
        lambda *values: inside(*values[len(ranks) :]),
        axis_name=AXIS_NAME,
        devices=devices,
        in_axes=(*[0] * len(ranks), *in_axes),
        out_axes=list(out_axes),
    )

    def step(*values: Any) -> list[Any]:
        pieces = [
            value if axis is None else _cut(value, axis, replicas)
            for value, axis in zip(values, in_axes, strict=True)
        ]
        return [
            result if axis is None else _join(result, axis)
            for result, axis in zip(mapped(*ranks, *pieces), out_axes, strict=True)
        ]

    return step


def _by_shard_map(inside: Step, in_axes: Axes, out_axes: Axes, devices: Devices) -> Step:
    """`jax.shard_map` splits and joins. Unsplit values are not checked to be equal on all replicas;
    `jax.pmap` does not check this either."""
    mapped = jax.shard_map(
        inside,
        mesh=Mesh(np.array(devices), (AXIS_NAME,)),
        in_specs=tuple(_spec(axis) for axis in in_axes),
        out_specs=[_spec(axis) for axis in out_axes],
        check_vma=False,
    )

    def step(*values: Any) -> list[Any]:
        found: list[Any] = mapped(*values)
        return found

    return step


def _spec(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, AXIS_NAME)


def _cut(value: Any, axis: int, replicas: int) -> Any:
    """Reshapes [.., B, ..] to [.., replicas, B / replicas, ..]."""
    shape = value.shape
    pieces = (replicas, shape[axis] // replicas)
    return value.reshape(*shape[:axis], *pieces, *shape[axis + 1 :])


def _join(value: Any, axis: int) -> Any:
    """Reshapes [.., replicas, B / replicas, ..] to [.., B, ..]."""
    shape = value.shape
    return value.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
