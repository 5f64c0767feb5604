"""A program for several devices at once, one replica a device: through `jax.pmap`, or
`jax.shard_map`.

State has no leading device axis; it is whole on every device, but for the slots of optimizers
where the strategy has them cut. Feeds and fetches keep their
global shapes: the compiled function itself cuts what is sharded and joins it again, which moves
no data, since a piece lies on the device that works on it.
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
from graphc.devices.join_moments import JoinMoments
from graphc.devices.localize import Local
from graphc.devices.narrow_exchanges import NarrowExchanges
from graphc.devices.replicate import Replicate
from graphc.devices.strategy import DataParallel
from graphc.devices.targets import FAST_LOOPS_ON_GPU
from graphc.ir.dtypes import INT32
from graphc.ir.layouts import REPLICATED as WHOLE
from graphc.ir.layouts import Layout, Sharded, axis_of
from graphc.ir.node import EMPTY, Node, Tensor
from graphc.ir.program import Port, Program
from graphc.ir.types import TensorType
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.ops.arrays.shape import RESHAPE
from graphc.passes.core.base import Pass
from graphc.passes.manager import tell_of
from graphc.passes.precision.check_numerics import NUMERICS
from graphc.runtime.buffers.layout import StateLayout
from graphc.runtime.targets.executors import AXIS_NAME, cut_along
from graphc.runtime.targets.interface import REPLICATED
from graphc.runtime.targets.jax_program import (
    JaxProgram,
    PortOrder,
    donated,
    interface_of,
    suited,
    with_token,
)
from graphc.runtime.targets.numerics import Table, checked
from graphc.runtime.targets.slot_pieces import homes_of, slot_pieces

MAPPED_BY: Literal["pmap", "shard_map"] = "pmap"
"""What runs the replicas. Both give the same numbers; `jax.pmap` is to go one day."""


def on_replicas(
    program: Program,
    layout: StateLayout,
    options: CompileOptions,
    strategy: DataParallel,
    sources: Mapping[str, Any] = EMPTY,
    budget: int | None = None,
) -> JaxProgram:
    """A physical program with its batch shared among devices; beside `lowered.on_one_device`.

    Args:
        program: with global types: its meaning on one device.
        strategy: says which devices; each is one replica.
        sources: feed name -> the user's line of its placeholder, for errors.
        budget: of each replica, see `passes.recompute`; None computes nothing again.

    Raises:
        DeviceError: devices that are not there.
        LayoutError: no feed has a batch axis.
    """
    order = PortOrder.of(program)
    program = order.reorder(program)
    devices = strategy.resolve()
    cut, notes = dict[str, Sharded](), list[str]()
    if strategy.shard_optimizer:
        names = [port.name for port in (*order.written, *order.read, *order.assigned)]
        cut, notes = slot_pieces(layout, names, len(devices))
    whole = dict[str, Layout]()
    if options.check_numerics and _is_uneven(program, len(devices)):
        whole = dict.fromkeys(program.batch_axes, WHOLE)  # in padding there may be a NaN
        notes = [*notes, "numerics are checked, and the batch is uneven: each device has all of it"]
    replicate = Replicate(len(devices), sources=sources, state_layouts=cut, input_layouts=whole)
    start = time.perf_counter()
    local = replicate.replicate(program)
    tell_of("replicate", program, local.program, time.perf_counter() - start)
    platform = devices[0].platform
    bucket_bytes = strategy.bucket_bytes_on(platform)
    exchanges = _exchanges(platform, len(devices), bucket_bytes, budget)
    inside, report = suited(local.program, options, platform, budget, len(devices), exchanges)
    local = replace(local, program=inside)
    plain = local.program
    local, checks = _checked(local, options)
    if checks is not None:
        width = local.program.outputs[-1].tensor.type.shape[-1]
        faults = Tensor(TensorType(INT32, (len(devices), width)), NUMERICS)
        program = program.replace(outputs=(*program.outputs, Port(NUMERICS, "fetch", faults)))
        order = PortOrder.of(program)
    wide = needs_x64(program)
    jitted, arguments = _jitted(program, local, order, options, devices)
    interface = interface_of(
        program,
        order,
        layout,
        options,
        kind=REPLICATED,
        wide=wide,
        replicas=len(devices),
        inputs=local.inputs,
        outputs=local.outputs,
        notes=(*notes, *local.notes),
        checks=checks,
    )
    interface = replace(interface, homes=homes_of(interface.buffers, cut))
    joining = joining_options(platform, bucket_bytes)
    return JaxProgram(interface, devices, program, jitted, arguments, plain, report, joining)


def _exchanges(platform: str, replicas: int, bucket_bytes: int, budget: int | None) -> list[Pass]:
    """The passes over what replicas exchange."""
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
    # Where nothing is fetched, there is one output more: see `with_token`.
    results = [*local.outputs, *[WHOLE] * (not order.fetches)]
    jitted = jax.jit(
        _on_replicas(local, [axis_of(layout) for layout in results], devices),
        in_shardings=tuple(shardings),
        out_shardings=[cut_along(mesh, axis_of(layout)) for layout in results],
        donate_argnums=donated(order, options),
    )
    arguments = [
        jax.ShapeDtypeStruct(p.tensor.type.shape, p.tensor.type.dtype, sharding=sharding)
        for p, sharding in zip(program.inputs, shardings, strict=True)
    ]
    return jitted, arguments


def _is_uneven(program: Program, replicas: int) -> bool:
    """Whether the batch of a feed does not divide by the replicas."""
    types = {port.name: port.tensor.type for port in program.ports("feed")}
    sizes = [types[name].shape[axis] for name, axis in program.batch_axes.items()]
    return any(not isinstance(size, int) or size % replicas for size in sizes)


def _checked(local: Local, options: CompileOptions) -> tuple[Local, Table | None]:
    """The local program with checks, where the options ask for them: each replica gives a row."""
    program, checks = checked(local.program, options, "local")
    if checks is None:
        return local, None
    *outputs, (name, kind, fault) = program.outputs
    shape = (1, *fault.type.shape)
    row = Tensor(TensorType(INT32, shape), f"{NUMERICS}:0")
    node = Node(RESHAPE, (fault,), (row,), RESHAPE.complete({"shape": shape}), name=NUMERICS)
    program = program.replace(
        nodes=(*program.nodes, node), outputs=(*outputs, Port(name, kind, row))
    )
    return replace(local, program=program, outputs=(*local.outputs, Sharded(0))), checks


def _on_replicas(
    local: Local, out_axes: Sequence[int | None], devices: Sequence[jax.Device]
) -> Callable[..., list[Any]]:
    """The step on global values: the local program on each device's piece of them."""
    one_replica = to_function(local.program, axis_name=AXIS_NAME, replicas=len(devices))
    in_axes = tuple(axis_of(layout) for layout in local.inputs)
    mapped = _by_pmap if MAPPED_BY == "pmap" else _by_shard_map
    step = mapped(with_token(local.program, one_replica), in_axes, out_axes, devices)
    step.__name__ = local.program.name
    return step


def _by_pmap(
    inside: Callable[..., list[Any]],
    in_axes: Sequence[int | None],
    out_axes: Sequence[int | None],
    devices: Sequence[jax.Device],
) -> Callable[..., list[Any]]:
    """Operands are cut, `jax.pmap` runs `inside`, and results are joined."""
    replicas = len(devices)
    # `jax.pmap` wants an operand that is cut: there is none where all batches are uneven.
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


def _by_shard_map(
    inside: Callable[..., list[Any]],
    in_axes: Sequence[int | None],
    out_axes: Sequence[int | None],
    devices: Sequence[jax.Device],
) -> Callable[..., list[Any]]:
    """`jax.shard_map` cuts and joins. What every replica has whole is not checked to be the same,
    as `jax.pmap` does not."""
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
    """[.., B, ..] as [.., replicas, B / replicas, ..]."""
    shape = value.shape
    pieces = (replicas, shape[axis] // replicas)
    return value.reshape(*shape[:axis], *pieces, *shape[axis + 1 :])


def _join(value: Any, axis: int) -> Any:
    """[.., replicas, B / replicas, ..] as [.., B, ..]."""
    shape = value.shape
    return value.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
